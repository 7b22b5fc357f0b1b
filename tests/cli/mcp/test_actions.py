"""
Tests for :mod:`twisted_exec.cli.mcp.actions` and :mod:`twisted_exec.cli.mcp.consoles`, over real sockets.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from twisted.internet import reactor as _reactor

from tests.cli.mcp.test_output import HOSTILE
from tests.cli.mcp.test_tools import Server, ToolsCase
from tests.streaming.remotecommand.serving import LoneSession
from twisted_exec.cli.console import shell_run
from twisted_exec.cli.console.script import MAY_GO_ON
from twisted_exec.cli.console.session import NOT_SENT
from twisted_exec.cli.mcp import consoles
from twisted_exec.cli.mcp.actions import Actor, Failed
from twisted_exec.cli.mcp.consoles import HINT, MOST_CONSOLES, STOP_LATER
from twisted_exec.cli.mcp.output import ANSWER_BYTES, newest_output
from twisted_exec.cli.mcp.refusals import MAY_ONLY_OBSERVE
from twisted_exec.cli.mcp.tools import ConsoleTools
from twisted_exec.console.notices import GETS_INPUT, LINE_BACK, RESTARTED, WAIT
from twisted_exec.console.notices import HINT as PEOPLES_HINT
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import Break, Ending, Role
from twisted_exec.streaming.remotecommand.resumable import Resumption
from twisted_exec.streaming.remotecommand.serving import serve
from twisted_exec.testing.console import ResumableAttachment
from twisted_exec.wire.endings import COMPLETED, POWERED_OFF, REVOKED
from twisted_exec.wire.marks import At, Attendance, Notice, NoticeKind, NoticeRole, not_sent
from twisted_exec.wire.resume import Position, Resumable
from twisted_exec.wire.shell_run import mark, probe_mark

reactor: Any = _reactor
_KEY = "k" * 43


class Machine(ResumableAttachment):
    """
    Echoes what is typed.

    :ivar notices: for the user, as soon as the session begins.
    :ivar answer: printed behind each echo.
    :ivar takes_over: a person takes the console as soon as something is typed.
    """

    def __init__(self, *notices: Notice) -> None:
        super().__init__()
        self.notices, self.answer = notices, b""
        self.takes_over = False

    def attached(self, transport: Any) -> None:
        super().attached(transport)
        for each in self.notices:
            transport.send_mark(each)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.prints(data.replace(b"\r", b"\r\n") + self.answer)
        if self.takes_over:
            self.transport.send_mark(observer("bob has taken over"))

    def wished(self, wish: Any) -> None:
        super().wished(wish)
        if wish is Role.WRITER:
            self.transport.send_mark(Notice("you type", NoticeKind.ROLE, NoticeRole.WRITER))


class LateMachine(Machine):
    """Says when it gets the first input where its output is, and prints again what it has printed."""

    def _continue(self, position: Position) -> None:
        """Wait for input."""

    def data_received(self, data: bytes) -> None:
        if not self.received:
            self.transport.send_mark(At(Position(self.epoch, 0), end=len(self.output)))
            if self.output:
                self.transport.write(self.output)
        super().data_received(data)


class LiveMachine(Machine):
    """Prints something as soon as the session begins."""

    def attached(self, transport: Any) -> None:
        super().attached(transport)
        self.prints(b"live\r\n")


class Shell(Machine):
    """A shell at its prompt, for runs; ``sleep`` goes on until Ctrl-C."""

    def __init__(self) -> None:
        super().__init__()
        self.output = b"$ "
        self._line = b""
        self._sleeps = False

    def data_received(self, data: bytes) -> None:
        ResumableAttachment.data_received(self, data)
        if b"\x03" in data:
            self._sleeps, self._line = False, b""
            self.prints(b"^C\r\n$ ")
        elif not self._sleeps:
            *lines, self._line = (self._line + data).split(b"\r")
            for each in lines:
                self._run(each)

    def _run(self, line: bytes) -> None:
        nonce = re.search(rb"28747;[RB]([0-9a-f]{8})", line)
        self.prints(line + b"\r\n")
        if nonce is None:
            self.prints(b"$ ")
        elif b"_te=" not in line:
            self.prints(probe_mark(nonce[1].decode()) * 2)
        else:
            self.prints(mark(b"B" + nonce[1]) + b"hello\r\n")
            self._sleeps = b"sleep" in line
            if not self._sleeps:
                self.prints(mark(b"E%s:0" % nonce[1]) + b"$ ")


class Sleeper(Shell):
    """
    A shell whose session ends as soon as a command has begun.

    :ivar ending: of that session.
    """

    ending: Ending

    def _run(self, line: bytes) -> None:
        super()._run(line)
        if self._sleeps:
            self.transport.end(self.ending)


def observer(text: str, role: NoticeRole = NoticeRole.OBSERVER) -> Notice:
    return Notice(f"{text} {PEOPLES_HINT}", NoticeKind.ROLE, role, writer="bob", hint=PEOPLES_HINT)


class MarkServer(Server):
    """Serves consoles with marks: notices, the people at a console, and positions."""

    async def dispatch(self, request: Request) -> None:
        name = request.path.decode().split("/")[-2:]
        if name[-1] == "exec" and f"default/{name[0]}" in self.machines:
            machine: Any = self.machines[f"default/{name[0]}"]()  # type: ignore[operator]
            resumption = Resumption(Resumable(_KEY, 60), LoneSession(machine))
            serve(request, machine, session="s", user="u", clock=reactor, resumption=resumption)
        else:
            await super().dispatch(request)


class ConsoleTests(ToolsCase):
    """Consoles that an agent holds."""

    def setUp(self) -> Any:
        serving = super().setUp()
        self.served = self.site.resource = MarkServer()
        self.served.user, self.served.groups = "agent:ada:triage", ["agents"]
        self.machine = self.serve(Machine())
        self.agent = ConsoleTools(lambda: self.config, reactor, self.connections)
        self.addCleanup(self.agent.close)
        return serving

    def serve(self, machine: Machine, name: str = "vm") -> Machine:
        self.served.machines[f"default/{name}"] = lambda: machine
        return machine

    async def act(self, tool: str, *, machine: str = "vm", **arguments: Any) -> list[str]:
        """Call a tool that succeeds; return the texts of its result."""
        result = await self.agent.call(tool, {"machine": machine, **arguments})
        self.assertFalse(result["isError"], result)
        return [each["text"] for each in result["content"]]

    async def failure(self, tool: str, **arguments: Any) -> str:
        result = await self.agent.call(tool, {"machine": "vm", **arguments})
        self.assertTrue(result["isError"], result)
        return str(result["content"][0]["text"])

    async def test_one_visit(self) -> None:
        """Calls share a session, which ends when the agent leaves, and the next call begins another."""
        for text in ("one\n", "two\n"):
            _, output = await self.act("send", text=text)
            self.assertIn(f"| {text.strip()}", output)
        self.assertEqual((self.machine.attachments, self.machine.received), (1, b"one\rtwo\r"))
        facts = json.loads((await self.act("leave_console"))[0])
        self.assertTrue(facts["left"])
        second = self.serve(Machine())
        await self.act("send", text="three\n")
        self.assertEqual((second.attachments, second.received), (1, b"three\r"))

    async def test_wait(self) -> None:
        """With a pattern the answer comes with the match, or says that there was none."""
        self.machine.answer = b"login: "
        facts = json.loads((await self.act("send", text="x\n", wait_for="login:"))[0])
        self.assertTrue(facts["matched"])
        texts = await self.act("send", text="y\n", wait_for="never", timeout_seconds=1)
        self.assertFalse(json.loads(texts[0])["matched"])
        self.assertIn("y", texts[1])

    async def test_ended_by_server(self) -> None:
        """A session that the server has ended, such as at a policy's limit, is over; the next call asks again."""
        await self.act("send", text="one\n")
        second = self.serve(Machine())
        self.machine.transport.end(Ending("Revoked", "the right was withdrawn"))
        while True:
            result = await self.agent.call("send", {"machine": "vm", "text": "two\n"})
            if not result["isError"]:
                break
            self.assertIn("the right was withdrawn", result["content"][0]["text"])
        self.assertEqual(second.received, b"two\r")

    async def test_renewed(self) -> None:
        """A renewed identity goes on with the visit and knows the requests; one that is no agent's types nothing."""
        await self.act("send", text="one\n")
        self.served.dialects = ()
        asked = await self.act("request_access", reason="OPS-7")
        self.config = replace(self.config, token="renewed")
        await self.act("send", text="two\n")
        self.assertEqual((self.machine.attachments, self.machine.received), (1, b"one\rtwo\r"))
        self.assertEqual(await self.act("request_access", reason="OPS-7"), asked)
        self.config = replace(self.config, token="ada")
        self.served.user, self.served.groups = "ada", ["dev"]
        self.assertIn("needs the identity of an agent", await self.failure("send", text="three\n"))
        self.assertEqual(self.machine.received, b"one\rtwo\r")

    async def test_break(self) -> None:
        """BREAK reaches the machine."""
        await self.act("send_break")
        self.assertEqual(self.machine.wishes, [Break()])

    async def test_hostile(self) -> None:
        """What a machine prints while an agent types is in marked rows, without sequences."""
        self.machine.answer = HOSTILE
        _, output = await self.act("send", text="x\n")
        _, *rows = output.split("\n")
        self.assertTrue(all(each.startswith("| ") for each in rows), output)
        self.assertTrue(output.replace("\n", "").isprintable())

    async def test_login_prompt(self) -> None:
        """A command is not typed at the prompt of a login, and the message has no text of the machine."""
        self.machine.output = b"evil-instruction login: "
        result = await self.agent.call("run", {"machine": "vm", "command": "id"})
        self.assertTrue(result["isError"])
        message, _, shown = (each["text"] for each in result["content"])
        self.assertIn("login prompt", message)
        self.assertNotIn("evil", message)
        self.assertIn("| evil-instruction login:", shown)
        self.assertEqual(self.machine.received, b"")

    async def test_many_consoles(self) -> None:
        """An agent holds a few consoles, and reads which to leave."""
        for number in range(MOST_CONSOLES):
            self.serve(Machine(), f"vm-{number}")
            await self.act("send_break", machine=f"vm-{number}")
        self.assertIn("leave_console", await self.failure("send_break"))
        await self.act("leave_console", machine="vm-0")
        await self.act("send_break")

    async def test_offsets(self) -> None:
        """The answer's offsets are those of the log."""
        await self.act("send", text="one\n")
        facts = json.loads((await self.act("send", text="two\n"))[0])
        printed = self.machine.output[facts["offset"] : facts["next_offset"]]
        self.assertEqual((printed, facts["epoch"]), (b"two\r\n", self.machine.epoch))

    async def test_first_offset(self) -> None:
        """The first answer has offsets, too, also if the server says late where its output is."""
        self.serve(LateMachine())
        facts = json.loads((await self.act("send", text="one\n"))[0])
        self.assertEqual((facts["offset"], facts["next_offset"]), (0, len("one\r\n")))

    async def test_offset_behind_the_past(self) -> None:
        """What the machine printed before the visit is not part of the first answer."""
        machine = self.serve(LateMachine())
        machine.output = b"long ago\r\n"
        facts = json.loads((await self.act("send", text="one\n"))[0])
        printed = machine.output[facts["offset"] : facts["next_offset"]]
        self.assertEqual(printed, b"one\r\n")

    async def test_offset_behind_news(self) -> None:
        """The offset is that of the first byte in the answer, also if the machine prints before it gets the input."""
        machine = self.serve(LiveMachine())
        facts = json.loads((await self.act("send", text="one\n"))[0])
        self.assertEqual(machine.output[facts["offset"] : facts["next_offset"]], b"one\r\n")

    async def test_long_line(self) -> None:
        """Of a line that does not fit the answer has the end, and says how much is left out from where."""
        for size in (20_000, 100_000):
            self.machine.answer = b"y" * size + b"the end\r\n"
            texts = await self.act("send", text="x\n")
            facts, rows = json.loads(texts[0]), texts[1].split("\n")[1:]
            shown = "".join(each.removeprefix("| ") for each in rows)
            printed = self.machine.output[facts["offset"] : facts["next_offset"]]
            rest = printed[facts["omitted_bytes"] :].decode()
            self.assertEqual(shown, rest.replace("\r\n", ""))
            self.assertGreater(len(shown), 8000)
            self.assertLessEqual(len(texts[1]), ANSWER_BYTES)

    async def test_run_that_fails(self) -> None:
        """A command that does not end leaves the session, so that the agent can stop it, and the next run says so."""
        machine = self.serve(Shell())
        result = await self.agent.call(
            "run", {"machine": "vm", "command": "sleep 1000", "timeout_seconds": 1}
        )
        why, _, shown = (each["text"] for each in result["content"])
        self.assertTrue(why.startswith("timed out"), why)
        self.assertIn("goes on in the console; send with keys ctrl-c stops it", why)
        self.assertIn("| hello", shown)
        why = await self.failure("run", command="id")
        self.assertIn("the command of an earlier run has not ended", why)
        await self.act("send", keys=["ctrl-c"])
        facts = json.loads((await self.act("run", command="id"))[0])
        self.assertEqual((facts["exit_code"], machine.attachments), (0, 1))

    async def test_ended_during_run(self) -> None:
        """A command whose session ends goes on, and another session stops it; with the machine it has ended, too."""
        gone = "the session at the console ended: gone"
        for reason, expected in (
            (REVOKED, f"{gone}; {MAY_GO_ON}; {STOP_LATER}"),
            (POWERED_OFF, gone),
            (COMPLETED, "the session at the console ended: Completed"),
        ):
            machine = self.serve(Sleeper())
            machine.ending = Ending(reason, "gone")
            self.assertEqual(await self.failure("run", command="sleep 1000"), expected)

    async def test_run_without_a_shell(self) -> None:
        """If no shell answers, and if a person types, the session of a run goes on, too."""
        self.patch(shell_run, "PROBE_SECONDS", 0.1)
        self.assertIn("no shell answered", await self.failure("run", command="id"))
        transport: Any = self.machine.transport
        transport.send_mark(Attendance(2, "bob"))
        transport.send_mark(observer("bob has taken over"))
        self.assertIn("bob has taken over", await self.failure("run", command="id"))
        transport.send_mark(Attendance(1, ""))
        while (await self.agent.call("send", {"machine": "vm", "text": "three\n"}))["isError"]:
            pass  # the mark is under way
        self.assertEqual(self.machine.attachments, 1)

    async def test_ending_of_the_last_session(self) -> None:
        """An agent that may not open another session reads why its last one ended."""
        await self.act("send", text="one\n")
        why = "bob withdrew it; request again with kubectl console --request --reason OPS-7 -n default vm"
        self.machine.transport.end(Ending("Revoked", why))
        del self.served.machines["default/vm"]
        await self.failure("send", text="two\n")  # which may come before the ending
        why = await self.failure("send", text="two\n")
        self.assertIn("not found", why)
        self.assertIn("ended: bob withdrew it; request again with request_access", why)

    async def test_idle(self) -> None:
        """An agent whose session was left because it did not call reads so, if it may not open another."""
        self.patch(consoles, "IDLE_SECONDS", 0.0)
        await self.act("send", text="one\n")
        del self.served.machines["default/vm"]
        text = ""
        while "not found" not in text:
            await self.act("get_screen")  # which leaves time for the end
            result = await self.agent.call("send", {"machine": "vm", "text": "two\n"})
            text = result["content"][0]["text"]
        self.assertIn("your last session there ended: no send or run for 120 s", text)

    async def test_observer(self) -> None:
        """While a person types, nothing of an agent's reaches the machine, and it reads who that is."""
        machine = self.serve(Machine(observer("bob is the writer")))
        why = await self.failure("send", text="x\n")
        self.assertIn(f"bob is the writer {HINT}", why)
        self.assertEqual(machine.received, b"")

    async def test_yields(self) -> None:
        """A person who takes the console has it; when the person has left, the agent asks for it again."""
        await self.act("send", text="one\n")
        transport: Any = self.machine.transport
        transport.send_mark(Attendance(2, "bob"))
        transport.send_mark(observer("bob has taken over"))
        self.assertIn("bob has taken over", await self.failure("send", text="two\n"))
        why = await self.failure("send_break")
        self.assertEqual(why, f"BREAK was not sent: bob has taken over {HINT}")
        self.assertEqual((self.machine.received, self.machine.wishes), (b"one\r", []))
        transport.send_mark(Attendance(1, ""))
        while (await self.agent.call("send", {"machine": "vm", "text": "three\n"}))["isError"]:
            pass  # the mark is under way
        self.assertEqual(self.machine.wishes, [Role.WRITER])
        self.assertEqual(self.machine.received, b"one\rthree\r")

    async def test_takeover_during_a_call(self) -> None:
        """A call that waits for an answer ends when a person takes the console, and names the person."""
        await self.act("send", text="one\n")
        self.machine.takes_over = True
        why = await self.failure("send", text="two\n", wait_for="never", timeout_seconds=60)
        self.assertIn(f"bob has taken over {HINT}", why)
        self.assertEqual(self.machine.received, b"one\rtwo\r")

    async def test_takeover_between_calls(self) -> None:
        """The first call after a person had the console sends nothing and says so, although that person has left."""
        for tool, arguments in (
            ("send", {"text": "two\n"}),
            ("send_break", {}),
        ):
            await self.act("send", text="one\n")
            before = self.machine.received
            transport: Any = self.machine.transport
            transport.send_mark(observer("bob has taken over"))
            transport.send_mark(Notice("bob has left", NoticeKind.ROLE, NoticeRole.WRITER))
            transport.send_mark(not_sent("marked"))
            facts: dict[str, Any] = {}
            while "input" not in facts:  # the marks are under way
                facts = json.loads((await self.act("get_screen"))[0])
            transport.send_mark(Notice(GETS_INPUT))
            while "input" in facts:
                facts = json.loads((await self.act("get_screen"))[0])
            why = await self.failure(tool, **arguments)
            self.assertIn("bob took this console over since your last call", why)
            self.assertEqual((self.machine.received, self.machine.wishes), (before, []))
            await self.act("send", text="three\n")

    async def test_visit_goes_on(self) -> None:
        """A command that was not typed, or takes too long, does not end the visit, whose approval would go with it."""
        self.machine = self.serve(Machine(Notice("x", NoticeKind.ROLE, NoticeRole.WRITER)))
        await self.act("send", text="one\n")
        transport: Any = self.machine.transport
        transport.send_mark(Attendance(2, "bob"))
        transport.send_mark(
            Notice(f"bob has taken over {WAIT}", NoticeKind.ROLE, NoticeRole.OBSERVER, writer="bob")
        )
        self.assertIn(f"bob has taken over {HINT}", await self.failure("run", command="id"))
        self.assertEqual((self.machine.received, self.machine.attachments), (b"one\r", 1))
        self.assertTrue(json.loads((await self.act("leave_console"))[0])["left"])

    async def test_flood(self) -> None:
        """An answer has 16 KiB whatever is printed, and says where the log goes on; also one that fails."""
        floods = (b"x" * 100_000, b"\xff" * 100_000, b"\xf0\x9f\x99\x82\n" * 20_000, HOSTILE * 900)
        for number, self.machine.answer in enumerate(floods):
            texts = await self.act("send", text=f"{number}\n")
            facts = json.loads(texts[0])
            self.assertLessEqual(sum(len(each.encode()) for each in texts), ANSWER_BYTES)
            self.assertGreater(len(texts[1].encode()), ANSWER_BYTES // 4)
            self.assertTrue(all(each.startswith("| ") for each in texts[1].split("\n")[1:]))
            first = facts["offset"] + facts["omitted_bytes"]
            raw = self.machine.output[first : facts["next_offset"]]
            self.assertEqual("\n".join(newest_output(raw)[0]), texts[1].partition("\n")[2])

    async def test_long_failure(self) -> None:
        """A failure with a long reason has fewer rows of the machine."""
        rows = ["| \N{REPLACEMENT CHARACTER}"] * 5000

        async def failing(*_: object) -> None:
            raise Failed("\N{PILE OF POO}" * 5000, {"offset": 1}, rows)

        self.patch(Actor, "send", failing)
        agent = ConsoleTools(lambda: self.config, reactor, self.connections)
        self.addCleanup(agent.close)
        result = await agent.call("send", {"machine": "vm", "text": "x"})
        texts = [each["text"] for each in result["content"]]
        self.assertEqual(len(texts), 3)
        self.assertLessEqual(sum(len(each.encode()) for each in texts), ANSWER_BYTES)

    async def test_discarded(self) -> None:
        """Each call fails with the reason for which the server discards input, until input arrives again."""
        withheld = "1 of 2 people"
        transport = await self._first()
        for notice, back in (
            (Notice("x", NoticeKind.INTERRUPTED, why="it is off"), RESTARTED),
            (not_sent(withheld), Notice(GETS_INPUT)),
            (not_sent("no line"), Notice(LINE_BACK)),
            (not_sent("bob types"), Notice("you type", NoticeKind.ROLE, NoticeRole.WRITER)),
        ):
            transport.send_mark(notice)
            before, why = self.machine.received, notice.why
            facts: dict[str, Any] = {}
            while "input" not in facts:  # the mark is under way
                facts = json.loads((await self.act("get_screen"))[0])
            self.assertEqual(facts["input"], f"does not arrive: {why}")
            for tool, arguments in (
                ("send", {"text": "two\n"}),
                ("send", {"text": "two\n", "wait_for": "two"}),
                ("run", {"command": "id"}),
                ("send", {"text": "two\n"}),
            ):
                self.assertEqual(await self.failure(tool, **arguments), f"{NOT_SENT}: {why}")
            self.assertEqual(await self.failure("send_break"), f"BREAK was not sent: {why}")
            texts = await self.act("wait_for", pattern="never", timeout_seconds=1)
            facts = json.loads(texts[0])
            self.assertEqual(facts["input"], f"does not arrive: {why}")
            self.assertEqual((self.machine.received, self.machine.wishes), (before, []))
            transport.send_mark(back)
            while "input" in facts:  # the mark is under way
                facts = json.loads((await self.act("get_screen"))[0])
            await self.act("send", text="three\n")

    async def _first(self) -> Any:
        await self.act("send", text="one\n")
        return self.machine.transport

    async def test_discarded_without_end(self) -> None:
        """A reason whose end the server does not say lasts until the server would say it again."""
        self.patch(consoles, "TELL_AGAIN_SECONDS", 0.0)
        transport = await self._first()
        transport.send_mark(not_sent("the disk is full"))
        self.assertIn("the disk is full", await self.failure("send", text="two\n"))
        await self.act("send", text="three\n")
        self.assertTrue(self.machine.received.endswith(b"three\r"))

    async def test_denied(self) -> None:
        """An agent without the right to type reads so."""
        machine = self.serve(Machine(observer("no", NoticeRole.DENIED)))
        for tool, arguments, what in (
            ("send", {"text": "x\n"}, NOT_SENT),
            ("run", {"command": "id"}, NOT_SENT),
            ("send_break", {}, "BREAK was not sent"),
        ):
            self.assertEqual(await self.failure(tool, **arguments), f"{what}: {MAY_ONLY_OBSERVE}")
        self.assertEqual((machine.received, machine.wishes), (b"", []))
