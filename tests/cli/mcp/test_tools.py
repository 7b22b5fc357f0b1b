"""
Tests for :mod:`twisted_exec.cli.mcp.tools`, over real sockets and real logs.

``tests/interop/mcp_clients.py`` has the tools that need a machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred

from tests.cli.mcp.test_output import HOSTILE, INSTRUCTION
from tests.kube.console_cases import ConsolesCase
from tests.kube.test_downloads import Logs
from twisted_exec.api.kinds import CONSOLEREQUESTS
from twisted_exec.api.kinds.consolepolicies import (
    APPROVAL_REQUIRED,
    NOT_ALLOWED,
    POLICY_REQUIRED,
    REASON_REQUIRED,
)
from twisted_exec.api.missing_right import MissingRight
from twisted_exec.api.status import Forbidden, NotFound, Unauthorized
from twisted_exec.cli.mcp.output import ANSWER_BYTES
from twisted_exec.cli.mcp.refusals import refused as explained
from twisted_exec.cli.mcp.table import BY_NAME, TOOLS
from twisted_exec.cli.mcp.tools import ConsoleTools
from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig
from twisted_exec.kube.transport import IdleConnections
from twisted_exec.streaming.http.responses import respond_json
from twisted_exec.streaming.http.site import Request


class Server(Logs):
    """
    Serves the log and the screen of ``vm``, and reviews.

    :ivar user: of all requests, and the groups.
    :ivar lines: of the screen.
    :ivar power: of ``vm``.
    :ivar requests: for consoles, by path.
    :ivar accepted: the ``Authorization`` header that is accepted; ``None`` accepts anyone.
    :ivar asked: paths of requests, with their methods.
    """

    def __init__(self) -> None:
        super().__init__()
        self.user, self.groups = "ada", ["dev"]
        self.lines = ["login:"]
        self.power = "On"
        self.asked: list[str] = []
        self.requests: dict[str, object] = {}
        self.accepted: bytes | None = None

    async def dispatch(self, request: Request) -> None:
        path = request.path.decode()
        self.asked.append(f"{request.method.decode()} {path}")
        if self.accepted not in (None, request.getHeader(b"authorization")):
            raise Unauthorized("the certificate has expired")
        if path.endswith("/selfsubjectreviews"):
            info = {"username": self.user, "groups": self.groups}
            respond_json(request, 201, {"status": {"userInfo": info}})
        elif path.endswith("/machines/vm"):
            respond_json(request, 200, {"spec": {"power": self.power}})
        elif path.endswith("/machines/vm/screen"):
            if self.problem is not None:
                raise self.problem
            lines = [{"text": each} for each in self.lines]
            screen = {
                "epoch": self.journal.epoch,
                "offset": self.journal.end,
                "columns": 80,
                "rows": 24,
                "cursor": {"row": 0, "column": 6},
                "lines": lines,
            }
            respond_json(request, 200, screen)
        elif path.endswith("/consolerequests"):
            body = json.loads(request.content.read())
            name = f"vm-{len(self.requests) + 1}"
            metadata = {"name": name, "creationTimestamp": "2999-01-01T00:00:00Z"}
            made = self.requests[f"{path}/{name}"] = {**body, "metadata": metadata}
            respond_json(request, 201, made)
        elif "/consolerequests/" in path:
            if (found := self.requests.get(path)) is None:
                raise NotFound("consolerequests", path.rpartition("/")[2])
            respond_json(request, 200, found)
        else:
            await super().dispatch(request)


class ToolsCase(ConsolesCase):
    """Tools at a small server."""

    def setUp(self) -> Any:
        serving = super().setUp()
        self.served = self.site.resource = Server()
        self.connections = IdleConnections(reactor)
        self.addCleanup(self.connections.close)
        return serving

    def tools(self) -> ConsoleTools:
        tools = ConsoleTools(lambda: self.config, reactor, self.connections)
        self.addCleanup(tools.close)
        return tools

    async def call(self, tool: str, **arguments: Any) -> tuple[dict[str, Any], str]:
        """Call a tool that succeeds; return its facts and its output."""
        result = await self.tools().call(tool, {"machine": "vm", **arguments})
        self.assertFalse(result["isError"], result)
        texts = [each["text"] for each in result["content"]]
        self.assertLessEqual(sum(len(each.encode()) for each in texts), ANSWER_BYTES)
        return json.loads(texts[0]), texts[1] if len(texts) > 1 else ""

    async def refusal(self, tool: str, **arguments: Any) -> str:
        """Call a tool that fails; return why."""
        result = await self.tools().call(tool, {"machine": "vm", **arguments})
        self.assertTrue(result["isError"], result)
        return str(result["content"][0]["text"])


class ReadTests(ToolsCase):
    """Tools that read."""

    async def test_log(self) -> None:
        """Calls that go on at next_offset read all that a machine printed, in answers of limited size."""
        lines = [f"line {at} {'x' * (at % 90)}" for at in range(2000)]
        self.served.journal.append("".join(f"{each}\r\n" for each in lines).encode())
        offset, found = 0, []
        while offset < self.served.journal.end:
            facts, output = await self.call("read_log", offset=offset)
            self.assertEqual((facts["offset"], facts["machine"]), (offset, "default/vm"))
            found += [each[2:] for each in output.split("\n")[1:]]
            offset = facts["next_offset"]
        self.assertEqual(found, lines)

    async def test_tail(self) -> None:
        """Without an offset the last lines are read, and the cursor goes on behind them."""
        journal = self.served.journal
        journal.append(b"".join(b"%d\n" % at for at in range(100)))
        facts, output = await self.call("read_log", tail_lines=2)
        self.assertEqual(output.split("\n")[1:], ["| 98", "| 99"])
        self.assertEqual((facts["next_offset"], facts["epoch"]), (journal.end, journal.epoch))
        journal.append(b"more\n")
        _, output = await self.call("read_log", offset=facts["next_offset"], epoch=facts["epoch"])
        self.assertEqual(output.split("\n")[1:], ["| more"])

    async def test_pattern(self) -> None:
        """A pattern chooses lines; colours do not hide a word."""
        self.served.journal.append(b"ok\n\x1b[31mke\x1b[mrnel panic\nok\n" * 3)
        facts, output = await self.call("read_log", offset=0, pattern="^kernel p")
        self.assertEqual(output.split("\n")[1:], ["| kernel panic"] * 3)
        self.assertEqual(facts["next_offset"], self.served.journal.end)

    async def test_patterns_of_attackers(self) -> None:
        """A bad or costly pattern is refused, and time and memory are linear in RE2."""
        for pattern in ("(", "(a{1000}){1000}", r"(\pL{900}){9}", "x" * 1025):
            self.assertIn("pattern", await self.refusal("read_log", pattern=pattern))
        self.served.journal.append(b"a" * 100_000)
        facts, _ = await self.call("read_log", offset=0, pattern="(a+)+$b")
        self.assertGreater(facts["next_offset"], 90_000)

    async def test_offsets_of_attackers(self) -> None:
        """Huge cursors, and those of another journal, are refused or say what is missing."""
        self.served.journal.append(b"x\n")
        self.assertIn("offset", await self.refusal("read_log", offset=2**63))
        self.assertIn("beyond", await self.refusal("read_log", offset=2**63 - 1))
        facts, output = await self.call("read_log", offset=0, epoch="0123456789abcdef")
        self.assertEqual(facts["missing"], [{"offset": 0, "bytes": "unknown"}])
        self.assertEqual(output.split("\n")[1:], ["| x"])

    async def test_stale_epochs(self) -> None:
        """With the epoch of a log that has begun anew, any offset gets the new log, and what is missing is unknown."""
        journal = self.served.journal
        journal.append(b"one\ntwo\n")
        for offset in (0, 3, journal.end, journal.end + 1, 2**62):
            for tool, more in (("read_log", {}), ("wait_for", {"pattern": "two"})):
                arguments = {"offset": offset, "epoch": "0123456789abcdef", **more}
                facts, output = await self.call(tool, **arguments)
                self.assertEqual(facts["missing"], [{"offset": 0, "bytes": "unknown"}])
                self.assertEqual((facts["epoch"], facts["offset"]), (journal.epoch, 0))
                self.assertEqual(output.split("\n")[1:], ["| one", "| two"])

    async def test_wait(self) -> None:
        """A wait ends with the line that matches, also a prompt without an end."""
        for text in (b"boot\r\nlogin: ", b"boot\r\nlogin: \r\nrest\r\n"):
            self.served = self.site.resource = Server()
            waiting = Deferred.fromCoroutine(
                self.call("wait_for", offset=0, pattern="login: ?$", timeout_seconds=60)
            )
            self.served.journal.append(text)
            facts, output = await waiting
            self.assertTrue(facts["matched"])
            self.assertEqual(output.split("\n")[1:], ["| boot", "| login: "])
            self.assertFalse(text[facts["next_offset"] :].startswith(b"login"))

    async def test_wait_in_vain(self) -> None:
        """A wait in vain says so, and where the next one goes on; the line that has no end yet is not split."""
        self.served.journal.append(b"one\nlog")
        facts, _ = await self.call("wait_for", offset=0, pattern="login", timeout_seconds=1)
        self.assertEqual((facts["matched"], facts["next_offset"]), (False, 4))

    async def test_wait_for_the_end(self) -> None:
        """A wait ends with the log, such as when the machine is deleted, and says so."""
        self.served.journal.append(b"one\r\n")
        waiting = Deferred.fromCoroutine(
            self.call("wait_for", offset=0, pattern="two", timeout_seconds=60)
        )
        self.served.journal.close()
        facts, _ = await waiting
        self.assertEqual((facts["matched"], facts["next_offset"]), (False, 5))
        self.assertIn("ended", facts["log"])

    async def test_hostile(self) -> None:
        """A machine that prints instructions and sequences: they are in marked rows, without sequences."""
        self.served.journal.append(HOSTILE + INSTRUCTION)
        self.served.lines = [HOSTILE.decode("utf-8", "replace"), INSTRUCTION.decode()]
        for tool, arguments in (("read_log", {"offset": 0}), ("get_screen", {})):
            _, output = await self.call(tool, **arguments)
            head, *rows = output.split("\n")
            self.assertIn("default/vm", head)
            self.assertTrue(all(each.startswith("| ") for each in rows), output)
            self.assertTrue(output.replace("\n", "").isprintable(), output)

    async def test_screen(self) -> None:
        """A screen is text, and its offset is where the log goes on."""
        self.served.journal.append(b"login:")
        facts, output = await self.call("get_screen")
        self.assertEqual(output.split("\n")[1:], ["| login:"])
        self.assertEqual((facts["next_offset"], facts["cursor"]), (6, {"row": 0, "column": 6}))

    async def test_off(self) -> None:
        """The screen of a machine whose power is Off, and a wait in vain, say so; an earlier screen does not."""
        for power, expected in (("On", None), ("Off", "Off")):
            self.served.power = power
            facts, _ = await self.call("get_screen")
            self.assertEqual(facts.get("power"), expected)
            facts, _ = await self.call("wait_for", pattern="x", timeout_seconds=1)
            self.assertEqual(facts.get("power"), expected)
        facts, _ = await self.call("get_screen", at="2026-11-30T15:49:01Z")
        self.assertNotIn("power", facts)

    async def test_large_screen(self) -> None:
        """Of a large screen the last rows are in the answer, which is as small as any."""
        self.served.lines = [f"{at} " + "\N{BLACK SQUARE}" * 500 for at in range(500)]
        _, output = await self.call("get_screen")
        self.assertTrue(output.split("\n")[-1].startswith("| 499 "))

    async def test_machines(self) -> None:
        """Machines are listed in pages, also with the longest names."""
        names = [f"{'x' * 240}-{at:04}" for at in range(250)]
        for name in names:
            self.served.machines[f"default/{name}"] = Forbidden("no")
        found, offset = [], 0
        while offset is not None:
            result = await self.tools().call("list_machines", {"offset": offset})
            (text,) = [each["text"] for each in result["content"]]
            self.assertLessEqual(len(text), ANSWER_BYTES)
            facts = json.loads(text)
            found += [each["name"] for each in facts["machines"]]
            offset = facts.get("next_offset")
        self.assertEqual(found, names)

    async def test_refused(self) -> None:
        """A refusal has the reason and the remedy, and never what the machine prints."""
        self.served.problem = Forbidden('User "ada" cannot get resource "machines/log"')
        self.assertIn("cannot get", await self.refusal("read_log"))
        self.served.problem = NotFound("machines", "vm", "compute.ironcore.dev")
        asked = len(self.served.asked)
        self.assertIn("list_machines", await self.refusal("read_log"))
        self.assertFalse([each for each in self.served.asked[asked:] if each.endswith("/machines")])
        for machine in ("../secrets", "a/b", "A b", "x" * 300):
            self.assertNotIn("internal", await self.refusal("read_log", machine=machine))
        self.assertFalse([each for each in self.served.asked if "secrets" in each])


class IdentityTests(ToolsCase):
    """Who may act."""

    ACTS = {
        "send": {"text": "x"},
        "run": {"command": "x"},
        "send_break": {},
        "power": {"state": "Off"},
        "start_recording": {},
        "end_recording": {},
        "request_access": {"reason": "x"},
        "leave_console": {},
    }

    async def test_person(self) -> None:
        """With a person's kubeconfig the tools that act refuse, and ask the server for nothing else."""
        self.assertEqual({each.name for each in TOOLS if each.acts}, set(self.ACTS))
        for user, groups in (("ada", ["dev"]), ("ada", ["agents"]), ("agent:ada:x", ["dev"])):
            self.served.user, self.served.groups = user, groups
            for tool, arguments in self.ACTS.items():
                why = await self.refusal(tool, **arguments)
                self.assertIn("twisted-exec mcp login", why)
        self.assertTrue(all("selfsubjectreviews" in each for each in self.served.asked))

    async def test_all_are_listed(self) -> None:
        """Each tool is named to each identity, so that an agent learns what it may ask for."""
        names = [each["name"] for each in self.tools().list()]
        self.assertEqual(names, [each.name for each in TOOLS])

    async def test_agent(self) -> None:
        """With an agent's identity the server decides."""
        self.served.user, self.served.groups = "agent:ada:triage", ["agents"]
        self.served.dialects = ()
        facts, _ = await self.call("request_access", reason="panic")
        expected = {"request": "vm-1", "state": "pending", "right": "drive", "reason": "panic"}
        self.assertEqual(facts, {"machine": "default/vm", **expected, "seconds": 900})
        self.assertIn(CONSOLEREQUESTS.resource.path("default"), self.served.asked[-1])
        self.assertIn("reason", await self.refusal("request_access"))

    async def test_deleted_request(self) -> None:
        """An agent whose request was deleted asks anew; for a request that it names, it reads that there is none."""
        self.served.user, self.served.groups = "agent:ada:triage", ["agents"]
        self.served.dialects = ()
        tools = self.tools()
        for name in ("vm-1", "vm-1"):
            result = await tools.call("request_access", {"machine": "vm", "reason": "panic"})
            self.assertEqual(json.loads(result["content"][0]["text"])["request"], name)
        self.served.requests = {"other": {}, **dict.fromkeys(self.served.requests)}
        result = await tools.call("request_access", {"machine": "vm", "reason": "panic"})
        self.assertEqual(json.loads(result["content"][0]["text"])["request"], "vm-3")
        why = await self.refusal("request_access", request="vm-1", reason="panic")
        self.assertIn("not found", why)

    async def test_other_requests(self) -> None:
        """The same request is not made again; another right, reason or time makes another, beside which another is named."""
        self.served.user, self.served.groups = "agent:ada:triage", ["agents"]
        self.served.dialects = ()
        tools = self.tools()

        async def asked(**arguments: Any) -> dict[str, Any]:
            result = await tools.call("request_access", {"machine": "vm", **arguments})
            facts: dict[str, Any] = json.loads(result["content"][0]["text"])
            return facts

        look = {"right": "observe", "reason": "look"}
        first = await asked(**look)
        for again in (look, {}, {"request": "vm-1"}, {**look, "again": True}):
            self.assertEqual(await asked(**again), first)
        for name, arguments in (
            ("vm-2", {"reason": "look"}),
            ("vm-3", {"reason": "OPS-7"}),
            ("vm-4", {"reason": "OPS-7", "seconds": 7200}),
        ):
            answer = await asked(**arguments)
            self.assertEqual(answer["request"], name)
            self.assertEqual(answer["other"]["state"], "pending")
            self.assertIn("seconds", answer["other"])
        result = await tools.call("request_access", {"machine": "other", "request": "vm-1"})
        self.assertTrue(result["isError"])
        self.assertIn('is for machine "vm", and not for "other"', result["content"][0]["text"])

    async def asked(self, tools: ConsoleTools, **arguments: Any) -> dict[str, Any]:
        result = await tools.call("request_access", {"machine": "vm", **arguments})
        self.assertFalse(result["isError"], result)
        facts: dict[str, Any] = json.loads(result["content"][0]["text"])
        return facts

    def decide(self, name: str, **status: Any) -> None:
        path = f"{CONSOLEREQUESTS.resource.path('default')}/{name}"
        request: Any = self.served.requests[path]
        self.served.requests[path] = {**request, "status": {"decidedBy": "bob", **status}}

    async def test_denied_request(self) -> None:
        """A request that was denied, withdrawn or has expired is not made again with the same arguments."""
        self.served.user, self.served.groups = "agent:ada:triage", ["agents"]
        self.served.dialects = ()
        tools = self.tools()
        past = "2000-01-01T00:00:00Z"
        for number, (state, status) in enumerate(
            (
                ("denied", {"denied": True, "message": "not now"}),
                ("withdrawn", {"denied": True, "expirationTime": past, "message": "enough"}),
                ("expired", {"approved": True, "expirationTime": past, "message": "yes"}),
            ),
            start=1,
        ):
            again = {"reason": "OPS-7", "again": True}
            self.assertEqual((await self.asked(tools, **again))["request"], f"vm-{number}")
            self.decide(f"vm-{number}", **status)
            for arguments in ({"reason": "OPS-7"}, {}):
                facts = await self.asked(tools, **arguments)
                self.assertEqual((facts["request"], facts["state"]), (f"vm-{number}", state))
                self.assertEqual((facts["decidedBy"], facts["message"]), ("bob", status["message"]))
        self.assertEqual((await self.asked(tools, reason="OPS-8"))["state"], "pending")

    async def test_used_request(self) -> None:
        """When an approval for one session was used, the same arguments ask for another session."""
        self.served.user, self.served.groups = "agent:ada:triage", ["agents"]
        self.served.dialects = ()
        tools = self.tools()
        await self.asked(tools, reason="OPS-7")
        self.decide("vm-1", approved=True, session="s", expirationTime="2999-01-01T00:00:00Z")
        self.assertEqual((await self.asked(tools, reason="OPS-7"))["request"], "vm-2")

    async def test_approved_among_others(self) -> None:
        """The same arguments find their request among several, and an approved one is named first."""
        self.served.user, self.served.groups = "agent:ada:triage", ["agents"]
        self.served.dialects = ()
        tools = self.tools()
        for reason in ("A", "B", "C"):
            await self.asked(tools, reason=reason)
        self.decide("vm-1", approved=True, expirationTime="2999-01-01T00:00:00Z")
        for arguments, name, other in (
            ({"reason": "A"}, "vm-1", "vm-3"),
            ({}, "vm-1", "vm-3"),
            ({"reason": "B"}, "vm-2", "vm-1"),
            ({"reason": "D"}, "vm-4", "vm-1"),
        ):
            facts = await self.asked(tools, **arguments)
            self.assertEqual((facts["request"], facts["other"]["request"]), (name, other))
        self.assertEqual(len(self.served.requests), 4)

    async def test_policies(self) -> None:
        """A refusal of a policy says which tool, or which parameter, helps."""
        self.served.user, self.served.groups = "agent:ada:triage", ["agents"]
        for causes, remedy in (
            ((APPROVAL_REQUIRED,), "request_access asks a person, with right drive and a reason"),
            ((REASON_REQUIRED, APPROVAL_REQUIRED), "request_access asks a person"),
            ((REASON_REQUIRED,), "the parameter reason"),
            ((NOT_ALLOWED, APPROVAL_REQUIRED), "a policy"),
            ((POLICY_REQUIRED,), "a policy"),
        ):
            self.refuse(*({"reason": each, "message": "a policy"} for each in causes))
            line = await self.refusal("send", text="x")
            self.assertTrue(line.startswith('machine "vm": a policy'), line)
            self.assertIn(remedy, line)
            self.assertNotIn("kubectl", line)
            if NOT_ALLOWED in causes or POLICY_REQUIRED in causes:
                self.assertNotIn("request_access", line)

    def refuse(self, *causes: dict[str, str]) -> None:
        text = "it needs more: kubectl console --request"
        self.served.machines["default/vm"] = Forbidden(text, details={"causes": list(causes)})

    async def test_waiting_request(self) -> None:
        """A refusal names the request that the agent has made already."""
        self.served.user, self.served.groups = "agent:ada:triage", ["agents"]
        self.refuse({"reason": APPROVAL_REQUIRED, "message": "a policy", "request": "vm-7"})
        self.assertIn(
            'with request "vm-7" it says what became', await self.refusal("send", text="x")
        )

    async def test_may_not_request(self) -> None:
        """An agent that may not even ask reads which role it lacks."""
        self.served.user, self.served.groups = "agent:ada:triage", ["agents"]
        group = "console.twisted-exec.dev"
        right = MissingRight("agent:ada:triage", "create", group, "consolerequests", "", "default")
        self.refuse({"reason": APPROVAL_REQUIRED, "message": "a policy"}, right.cause("no"))
        line = await self.refusal("send", text="x")
        self.assertIn("you may not ask for it: ask an administrator for the role", line)

    async def test_expired(self) -> None:
        """A refused identity names the command that renews it."""
        self.served.problem = Unauthorized("the certificate has expired")
        self.assertIn("twisted-exec mcp login NAME", await self.refusal("get_screen"))

    async def test_renewed(self) -> None:
        """A kubeconfig that was renewed counts from the next call on; while it is broken the old one does."""
        path = Path(self.kubeconfig())
        content = path.read_text()

        def renew(token: str) -> None:
            path.write_text(content.replace("user: {}", f'user: {{token: "{token}"}}'))

        renew("first")
        tools = ConsoleTools(ReloadingConfig(str(path)).current, reactor, self.connections)
        self.addCleanup(tools.close)
        self.served.accepted = b"Bearer first"
        self.assertFalse((await tools.call("get_screen", {"machine": "vm"}))["isError"])
        path.write_text("{half")
        self.assertFalse((await tools.call("get_screen", {"machine": "vm"}))["isError"])
        self.served.accepted = b"Bearer second"
        result = await tools.call("get_screen", {"machine": "vm"})
        self.assertIn("twisted-exec mcp login NAME", result["content"][0]["text"])
        renew("second")
        result = await tools.call("get_screen", {"machine": "vm"})
        self.assertFalse(result["isError"], result)

    async def test_names(self) -> None:
        """A name that none can be is refused with the rule; a list of machines names what is listed."""
        line = await self.refusal("get_screen", machine="Demo-VM")
        self.assertIn('machine "Demo-VM" is no name: ', line)
        self.assertIn("lowercase", line)
        line = await self.refusal("get_screen", machine="default/demo-vm")
        self.assertEqual(line, 'get_screen: use machine "demo-vm" with namespace "default"')
        right = MissingRight("ada", "list", "compute.ironcore.dev", "machines", "", "default")
        refused = Forbidden("no", details={"causes": [right.cause("no")]})
        tool = BY_NAME["list_machines"]
        line = explained(refused, tool, "default", "", self.config)
        self.assertTrue(line.startswith("you may not list the machines of default: "), line)
