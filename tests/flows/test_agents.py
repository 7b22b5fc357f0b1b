"""
An agent at a panicked machine: it looks, asks, types, yields to a person, and loses its rights.

Over both doors: ``twisted-exec mcp`` with an identity of ``twisted-exec mcp login``, and ``exec-mcp`` with a token.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import yaml
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred, DeferredList
from twisted.trial.unittest import TestCase

from tests import needs
from tests.auth import forge
from tests.auth.provider import Provider
from tests.ports import reserved_port
from tests.tiers import PROGRAMS
from tests.tls.support import server_identity, write
from twisted_exec.api import kinds
from twisted_exec.api.kinds.subjects import GROUP as RBAC
from twisted_exec.cli.mcp.protocol import VERSIONS
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.kube.transport import HTTPTransport, Request

from . import kubectls, programs
from .consoles import watch
from .deployment import pause
from .programs import Program, script

reactor: Any = _reactor
HOWTO = Path(__file__).parents[2] / "docs" / "howto"
AGENT = "agent:ada:triage"
MACHINE = {"machine": "demo-shell"}
REASON = {**MACHINE, "reason": "OPS-7"}
PANIC = "Kernel panic - not syncing: Attempted to kill init!"
LIMIT_BYTES = 1 << 20


class Pipe:
    """``twisted-exec mcp`` on a pipe."""

    def __init__(self, program: Program) -> None:
        self._program = program

    async def exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        self._program.type(json.dumps(message).encode() + b"\n")
        match = await self._program.until(rb'(?m)^(\{"jsonrpc":"2.0","id":%d,.*)\n' % message["id"])
        answer: dict[str, Any] = json.loads(match[1])
        return answer


class HTTP:
    """``exec-mcp`` over HTTP."""

    def __init__(self, config: ClientConfig) -> None:
        self.transport = HTTPTransport(config, reactor)
        self._session = ""

    async def exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        headers = [("Accept", "application/json")]
        if self._session:
            headers.append(("Mcp-Session-Id", self._session))
        request = Request(
            "POST",
            "/mcp",
            json.dumps(message).encode(),
            headers=headers,
            kept_headers=["mcp-session-id"],
        )
        _, kept, body = await self.transport.collect(
            request, timeout_seconds=600, limit_bytes=LIMIT_BYTES
        )
        self._session = kept.get("mcp-session-id") or self._session
        answer: dict[str, Any] = json.loads(body)
        return answer


class Agent:
    """An agent's client."""

    def __init__(self, door: Pipe | HTTP) -> None:
        self._door, self._last = door, 0

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        message = {"jsonrpc": "2.0", "id": self._last, "method": method, "params": params}
        return await self._door.exchange(message)

    async def begin(self) -> None:
        client = {"name": "test", "version": "1"}
        await self.ask(
            "initialize", protocolVersion=VERSIONS[0], capabilities={}, clientInfo=client
        )

    async def call(self, tool: str, **arguments: Any) -> tuple[bool, list[str]]:
        """Call a tool; return whether it failed, and the texts of the result."""
        answer = await self.ask("tools/call", name=tool, arguments=arguments)
        assert "result" in answer, answer
        result = answer["result"]
        return result["isError"], [each["text"] for each in result["content"]]


class AgentCase(TestCase):
    """``exec-standalone`` with the shipped role and policy of agents; ada and bob are in the group ``dev``."""

    starts = PROGRAMS
    skip = needs.kubectl()
    timeout = 600

    async def setUp(self) -> None:
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        program = programs.twistd("exec-standalone", "--port=0", cwd=str(self.directory))
        self.addCleanup(program.stop)
        await program.until(rb"kubectl console \S+\n")
        self.admin = str(self.directory / "exec-state" / "admin.kubeconfig")
        self.config = load(self.admin)
        self.client = KubeClient(self.config, reactor)
        self.addCleanup(self.client.close)
        await self.kubectl("apply", "-n", "default", "-f", str(HOWTO / "agents.yaml"))
        for role in ("edit", "console-approver", "console-session-reader"):
            await self.bind(role, role, "Group", "dev")
        for user in ("ada", "bob"):
            await self.make_user(user, "--group", "dev")

    async def kubectl(self, *argv: str, user: str = "") -> str:
        env = {"KUBECONFIG": self.kubeconfig(user), "HOME": str(self.directory)}
        code, out, said = await kubectls.run(kubectls.found()["kubectl"], *argv, env=env)
        self.assertEqual(code, 0, said)
        return out

    def kubeconfig(self, user: str) -> str:
        return str(self.directory / f"{user}.kubeconfig") if user else self.admin

    async def make_user(self, user: str, *options: str) -> None:
        """Write the kubeconfig of a user with a certificate."""
        pki = str(self.directory / "exec-state" / "pki")
        words = ("pki", "user", pki, "--user", user, *options, "--server", self.config.server)
        await self.done(*words, "--kubeconfig", self.kubeconfig(user))

    async def twisted_exec(self, *argv: str, user: str = "") -> tuple[int, str]:
        """Run ``twisted-exec`` as a user; return the exit code, and what it prints."""
        env = {"KUBECONFIG": self.kubeconfig(user)}
        program = programs.start((script("twisted-exec"), *argv), env=env, cwd=str(self.directory))
        self.addCleanup(program.stop)
        return await program.ended, program.output.decode()

    async def done(self, *argv: str, user: str = "") -> str:
        code, said = await self.twisted_exec(*argv, user=user)
        self.assertEqual(code, 0, said)
        return said

    async def bind(self, name: str, role: str, kind: str, subject: str) -> None:
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": RBAC, "kind": kind, "name": subject}],
        }
        await self.client.create(kinds.ROLEBINDINGS.resource, binding, "default")

    async def facts(self, agent: Agent, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that succeeds; return its facts, with the output as ``output``."""
        failed, texts = await agent.call(tool, **arguments)
        self.assertFalse(failed, (tool, texts))
        facts: dict[str, Any] = json.loads(texts[0])
        return {**facts, "output": "\n".join(texts[1:])}

    async def refusal(self, agent: Agent, tool: str, **arguments: Any) -> str:
        failed, texts = await agent.call(tool, **arguments)
        self.assertTrue(failed, (tool, texts))
        return texts[0]

    async def approved(self, agent: Agent) -> str:
        """Ask for access, and let bob approve; return the request's name."""
        name: str = (await self.facts(agent, "request_access", **REASON, again=True))["request"]
        await self.done("request", "approve", name, user="bob")
        return name

    async def over_http(self, **claims: Any) -> Agent:
        """Start a session at ``exec-mcp`` with a token; the first one starts the program."""
        if not hasattr(self, "url"):
            await self.start_door()
        claims = {"sub": AGENT, "groups": ["agents", "dev"], **claims}
        claims = {"aud": self.url, "exp": int(time.time()) + 3600, **claims}
        return await self.with_token(self.provider.token(**claims))

    async def with_token(self, token: bytes) -> Agent:
        ca = Material(data=self.provider.ca_pem)
        door = HTTP(ClientConfig(self.url.removesuffix("/mcp"), ca=ca, token=token.decode()))
        self.addCleanup(door.transport.close)
        agent = Agent(door)
        await agent.begin()
        return agent

    async def said(self, agent: Agent) -> str:
        """Return why ``exec-mcp`` refuses the token of an agent."""
        answer = await agent.ask("ping")
        self.assertEqual(answer.get("kind"), "Status", answer)
        return str(answer["message"])

    async def start_door(self, name: str = "exec-mcp-authentication.yaml") -> None:
        """Start ``exec-mcp``, with the role and a configuration of the how-to."""
        self.provider = Provider()
        await self.provider.listen(reactor, str(self.directory))
        self.addCleanup(self.provider.stop)
        identity = server_identity("localhost")
        certificate = write(str(self.directory), "door.crt", identity.certificate_pem)
        key = write(str(self.directory), "door.key", identity.key_pem)
        os.chmod(key, 0o600)
        port = reserved_port(self)
        self.url = f"https://localhost:{port}/mcp"
        configuration = yaml.safe_load((HOWTO / name).read_text())
        (issuer,) = configuration["jwt"]
        issuer["issuer"] = {
            "url": self.provider.url,
            "audiences": [self.url],
            "certificateAuthority": self.provider.ca_pem.decode(),
        }
        path = self.directory / "authentication.yaml"
        path.write_text(json.dumps(configuration))
        await self.kubectl("apply", "-f", str(HOWTO / "exec-mcp-role.yaml"))
        await self.make_user("exec-mcp")
        self.door = programs.twistd(
            "exec-mcp",
            f"--kubeconfig={self.kubeconfig('exec-mcp')}",
            f"--resource-url={self.url}",
            f"--listen=tcp:{port}:interface=127.0.0.1",
            "--health-listen=",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--authentication-config={path}",
        )
        self.addCleanup(self.door.stop)
        await self.door.until(rb"starting on %d" % port)

    async def on_pipe(self) -> Agent:
        """Log the agent in as ada does, and start the command of the agent's program."""
        owner = {
            "metadata": {"name": "owner"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "agent-owner"},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "ada"}],
        }
        await self.client.create(kinds.CLUSTERROLEBINDINGS.resource, owner)
        said = await self.done("mcp", "login", "triage", "-n", "default", user="ada")
        self.assertIn(f'agent "{AGENT}"', said)
        argv = (script("twisted-exec"), "mcp", "--kubeconfig", self.kubeconfig("triage"))
        program = programs.start(argv)
        self.addCleanup(program.stop)
        agent = Agent(Pipe(program))
        await agent.begin()
        return agent


class VisitTests(AgentCase):
    """A visit, and all that is known of it afterwards."""

    async def test_visit(self) -> None:
        """
        An agent finds a panicked machine, asks, is approved by another person, types, and yields to a person.

        The recording and the audit log say who typed, and why.
        """
        agent = await self.on_pipe()
        await self.panic()
        await self.find_panic(agent)
        why = await self.refusal(agent, "run", **MACHINE, command="uname -s")
        self.assertIn("request_access asks a person, with right drive and a reason", why)
        why = await self.refusal(agent, "send", **REASON, text="uname -s\n")
        self.assertIn('ConsolePolicy "default/agents" requires the approval', why)
        self.assertIn("request_access asks a person", why)
        await self.approve(agent)
        facts = await self.facts(agent, "run", **REASON, command="echo $((6*7)); exit 3")
        self.assertEqual(facts["exit_code"], 3)
        self.assertTrue(facts["output"].endswith("\n| 42"), facts["output"])
        await self.facts(agent, "send", **MACHINE, text="echo sent$((6*8))\n", wait_for="^sent48")
        await self.yield_to_bob(agent)
        await self.check_recording()
        said = await self.done("audit", "who", "demo-shell", "--file", "exec-state/audit.jsonl")
        for user, reason in ((AGENT, "OPS-7"), ("bob", "look")):
            self.assertRegex(said, rf"(?m)^{user} .* yes .* {reason} ")

    async def panic(self) -> None:
        """Let the machine print what a kernel prints at its end."""
        screen = await watch(self.admin, "demo-shell")
        await screen.ask(f"printf '%s panic - {PANIC[15:]}\\n' Kernel\n".encode(), PANIC.encode())
        await screen.leave()

    async def find_panic(self, agent: Agent) -> None:
        """The agent looks at each machine, and finds the one that has panicked."""
        listed = await self.facts(agent, "list_machines")
        found = []
        for machine in (each["name"] for each in listed["machines"]):
            log = await self.facts(
                agent, "read_log", machine=machine, tail_lines=50, pattern="^Kernel panic"
            )
            found += [machine] if f"| {PANIC}" in log["output"] else []
        self.assertEqual(found, ["demo-shell"])
        facts = await self.facts(
            agent, "wait_for", **MACHINE, pattern="^Kernel panic", offset=0, timeout_seconds=300
        )
        self.assertTrue(facts["matched"])
        self.assertIn(f"| {PANIC}", (await self.facts(agent, "get_screen", **MACHINE))["output"])

    async def approve(self, agent: Agent) -> None:
        """Neither the agent nor its person, whom a policy binds, approves the request; another person does."""
        policy = {
            "metadata": {"name": "production"},
            "spec": {
                "subjects": [{"kind": "User", "name": "ada"}],
                "restricts": "Input",
                "approval": "Once",
            },
        }
        await self.client.create(kinds.CONSOLEPOLICIES.resource, policy, "default")
        name = (await self.facts(agent, "request_access", **REASON))["request"]
        for user, told in (("triage", "is your own"), ("ada", "it is of your own agent")):
            code, said = await self.twisted_exec("request", "approve", name, user=user)
            self.assertEqual(code, 1)
            self.assertIn(told, said)
        facts = await self.facts(agent, "request_access", **MACHINE)
        self.assertEqual(facts["state"], "pending")
        why = await self.refusal(agent, "run", **REASON, command="id")
        self.assertIn(f'with request "{name}" it says what became of that one', why)
        listed = await self.done("request", "list", user="bob")
        self.assertRegex(listed, rf"{name} .* {AGENT} .* OPS-7")
        await self.done("request", "approve", name, user="bob")
        facts = await self.facts(agent, "request_access", **MACHINE)
        self.assertEqual((facts["state"], facts["decidedBy"]), ("approved", "bob"))

    async def yield_to_bob(self, agent: Agent) -> None:
        """A key of bob takes the floor; the agent reads so, and keeps its session and the approval."""
        console = programs.terminal(
            (script("kubectl-console"), "demo-shell", "--reason=look"),
            columns=200,
            KUBECONFIG=self.kubeconfig("bob"),
        )
        self.addCleanup(console.stop)
        await console.until(rb"the writer of this console is agent:ada:triage; .*type to take over")
        console.type(b"\r")
        await console.until(rb"you have taken over this console from agent:ada:triage")
        for tool, arguments in (("send", {"text": "reboot\n"}), ("run", {"command": "reboot"})):
            why = await self.refusal(agent, tool, **MACHINE, **arguments)
            self.assertIn("nothing was typed: bob has taken over this console", why)
            self.assertIn("wait until that user has left, or ask", why)
        users: set[str] = set()
        while users != {AGENT, "bob"}:
            await pause()
            facts = await self.facts(agent, "who_is_watching", **MACHINE)
            users = {each["user"] for each in facts["sessions"]}
        console.type(b"\x1d")
        await console.ended
        while (await self.facts(agent, "who_is_watching", **MACHINE))["writer"] != "nobody":
            await pause()
        # With the session goes the approval, which serves for one.
        facts = await self.facts(agent, "run", **MACHINE, command="echo again")
        self.assertIn("| again", facts["output"])
        self.assertTrue((await self.facts(agent, "leave_console", **MACHINE))["left"])

    async def check_recording(self) -> None:
        """The recording has the reason and the typist, is played, and verifies."""
        resource = kinds.CONSOLERECORDINGS.resource
        (recording,) = (await self.client.list(resource, "default"))["items"]
        name, spec = recording["metadata"]["name"], recording["spec"]
        # It would end by itself a minute after the last session.
        await self.client.patch(resource, name, {"spec": {"ended": True}}, "default")
        while recording["status"]["phase"] != "Closed":
            await pause()
            recording = await self.client.get(resource, name, "default")
        self.assertEqual((spec["reason"], spec["users"]), ("OPS-7", [AGENT]))
        played = await self.done("recording", "play", name, "--speed=1000")
        for printed in ("42", "sent48", "again"):
            self.assertIn(printed, played)
        verified = await self.done("recording", "verify", name, "--ca", "exec-state/pki/ca.crt")
        self.assertIn(", closed\n", verified)
        await self.done("recording", "export", name, "run.cast")
        events = [
            json.loads(line)[1:]
            for line in (self.directory / "run.cast").read_text().splitlines()
            if line.startswith("[")
        ]
        marks = [text for kind, text in events if kind == "m"]
        self.assertIn(f"{AGENT} is writer now", marks)
        self.assertIn("bob is writer now", marks)
        before = events[: events.index(["m", "bob joined as observer"])]
        typed = "".join(text for kind, text in before if kind == "i")
        self.assertIn("echo $((6*7)); exit 3", typed)
        self.assertIn("echo sent$((6*8))\r", typed)
        self.assertNotIn("reboot", "".join(text for kind, text in events if kind == "i"))


class WithdrawnTests(AgentCase):
    """Rights that end while an agent types."""

    async def test_on_pipe(self) -> None:
        """The session ends, and the next call is refused with the reason."""
        await self.withdraw(await self.on_pipe())

    async def test_over_http(self) -> None:
        """The same through ``exec-mcp``."""
        await self.withdraw(await self.over_http())

    async def withdraw(self, agent: Agent) -> None:
        """End each right and approval during a command, and give it back."""
        dev = [{"apiGroup": RBAC, "kind": "Group", "name": "dev"}]
        others = [{"apiGroup": RBAC, "kind": "Group", "name": "others"}]

        async def delete_request(name: str) -> None:
            await self.client.delete(kinds.CONSOLEREQUESTS.resource, name, "default")

        async def deny_request(name: str) -> None:
            await self.done("request", "deny", name, user="bob")

        persons, approval = (
            'user "ada", whose agent it is, may not',
            "requires the approval of another user",
        )
        # The first if the session ends within its first second.
        late = 'agents"? allows (?:this session until|sessions of at most 1 second)'
        cases = (
            ("group", lambda _: self.set_subjects("edit", others), persons, persons),
            ("person", lambda _: self.unbind("edit"), persons, persons),
            ("agents", lambda _: self.unbind("agents"), "cannot create", "you may not type at"),
            ("denied", deny_request, "bob withdrew the approval", approval),
            ("deleted", delete_request, approval, approval),
            ("late", lambda _: self.shorten(), late, approval),
        )
        for case, end, ended, refused in cases:
            name = await self.approved(agent)
            begun = await self.begin_command(agent, case)
            await end(name)
            failed, texts = await begun
            self.assertTrue(failed)
            self.assertIn("the session at the console ended", texts[0])
            self.assertRegex(texts[0], ended)
            for tool, arguments in (("send", {"text": "x\n"}), ("run", {"command": "id"})):
                why = await self.refusal(agent, tool, **REASON, **arguments)
                self.assertIn(refused, why)
            if case == "group":
                await self.set_subjects("edit", dev)
            elif case == "person":
                await self.bind("edit", "edit", "Group", "dev")
            elif case == "agents":
                await self.bind("agents", "agents", "Group", "agents")
            (self.directory / case).touch()

    async def set_subjects(self, binding: str, subjects: Any) -> None:
        patch = {"subjects": subjects}
        await self.client.patch(kinds.ROLEBINDINGS.resource, binding, patch, "default")

    async def unbind(self, binding: str) -> None:
        await self.client.delete(kinds.ROLEBINDINGS.resource, binding, "default")

    async def shorten(self) -> None:
        """Let the session have lasted as long as the policy allows."""
        patch = {"spec": {"maxSeconds": 1}}
        await self.client.patch(kinds.CONSOLEPOLICIES.resource, "agents", patch, "default")

    async def begin_command(self, agent: Agent, case: str) -> Deferred[Any]:
        """Return what fires with the result of a command that has begun, and ends with a file of the case's name."""
        waiting = f"until [ -e {self.directory / case} ]; do sleep 0.1; done"
        call = Deferred.fromCoroutine(
            agent.call(
                "run", **REASON, command=f"echo be''gun-{case}; {waiting}", timeout_seconds=300
            )
        )
        begun = Deferred.fromCoroutine(
            agent.call(
                "wait_for", **MACHINE, pattern=f"^begun-{case}", offset=0, timeout_seconds=300
            )
        )
        await DeferredList([call, begun], fireOnOneCallback=True, fireOnOneErrback=True)
        self.assertFalse(call.called, getattr(call, "result", None))
        return call


class AttackTests(AgentCase):
    """Agents, and tokens, that would be more than they are."""

    async def test_agent(self) -> None:
        """An agent makes no agents, acts as nobody else, and approves nothing, by whatever program."""
        await self.on_pipe()
        code, said = await self.twisted_exec(
            "mcp", "login", "other", "-n", "default", user="triage"
        )
        self.assertEqual(code, 1)
        self.assertIn("an agent has no agents of its own", said)
        env = {"KUBECONFIG": self.kubeconfig("triage"), "HOME": str(self.directory)}
        request = {
            "apiVersion": kinds.CONSOLEREQUESTS.resource.api_version,
            "kind": "ConsoleRequest",
            "metadata": {"name": "own", "namespace": "default"},
            "spec": {**MACHINE, "right": "drive", "reason": "OPS-7", "seconds": 60},
        }
        await self.client.create(kinds.CONSOLEREQUESTS.resource, request, "default")
        approval = ("patch", "consolerequest", "own", "--subresource=approval", "--type=merge")
        for argv in (
            ("--as=ada", "get", "machines"),
            ("--as=agent:bob:nightly", "--as-group=agents", "get", "machines"),
            ("-n", "default", *approval, '--patch={"status":{"approved":true}}'),
            ("-n", "default", "delete", "consolepolicy", "agents"),
            ("create", "token", "default", "-n", "default"),
        ):
            code, _, said = await kubectls.run(kubectls.found()["kubectl"], *argv, env=env)
            self.assertEqual(code, 1, said)
            self.assertIn("an agent may not approve, impersonate", said)

    async def test_tokens(self) -> None:
        """A token of another name, group, audience or signature is refused with the reason."""
        agent = await self.over_http()
        facts = await self.facts(agent, "list_machines")
        self.assertEqual({each["name"] for each in facts["machines"]}, {"demo-shell", "demo-vm"})
        invalid = "a valid bearer token for this server is needed, and this one is not"
        for claims, told in (
            ({"groups": []}, 'not the group "agents"'),
            ({"groups": ["dev"]}, 'not the group "agents"'),
            ({"sub": "ada"}, "which is not that of an agent"),
            ({"groups": ["agents", "system:masters"]}, invalid),
            ({"sub": "system:admin", "groups": []}, invalid),
            ({"sub": "system:serviceaccount:default:x", "groups": []}, invalid),
            ({"aud": "https://other.example.org/mcp"}, invalid),
            ({"exp": int(time.time()) - 3600}, invalid),
        ):
            why = await self.said(await self.over_http(**claims))
            self.assertIn(told, why)
        claims = {"iss": self.provider.url, "sub": AGENT, "groups": ["agents"], "aud": self.url}
        claims["exp"] = int(time.time()) + 3600
        unsigned = forge.token(claims, alg="none").rpartition(b".")[0] + b"."
        key = forge.public_pem(forge.rsa_key())
        for token in (
            unsigned,
            forge.token(claims, forge.rsa_key("other")),
            forge.hmac_token(claims, key),
        ):
            self.assertIn(invalid, await self.said(await self.with_token(token)))
        # Names and groups that the door's role does not have.
        for claims, named in (
            ({"sub": "agent:eve:x"}, 'resource "users"'),
            ({"sub": "ada", "groups": ["dev"]}, 'resource "users"'),
            ({"groups": ["agents", "ops"]}, "person-groups"),
        ):
            why = await self.refusal(await self.over_http(**claims), "list_machines")
            self.assertIn("may not act as you, and its operator decides that", why)
            self.assertIn(named, why)
            self.assertNotIn("kubectl", why)

    async def test_opaque_subject(self) -> None:
        """
        The mapping of the how-to for Dex gives its name and groups to one subject, whatever else a token says.
        """
        await self.start_door("exec-mcp-subjects.yaml")
        agent = await self.over_http(sub="CgZ0cmlhZ2USBWxvY2Fs", groups=[])
        facts = await self.facts(agent, "list_machines")
        self.assertEqual({each["name"] for each in facts["machines"]}, {"demo-shell", "demo-vm"})
        self.assertIn("a valid bearer token", await self.said(await self.over_http(sub=AGENT)))

    async def test_person(self) -> None:
        """An agent has the rights of its person's groups, as the token has them, and counts as its person."""
        agent = await self.over_http(groups=["agents"])
        why = await self.refusal(agent, "list_machines")
        self.assertIn('user "ada", whose agent it is, may not', why)
        agent = await self.over_http()
        await self.approved(agent)
        facts = await self.facts(agent, "run", **REASON, command="echo $((6*7))")
        self.assertIn("| 42", facts["output"])
        await self.facts(agent, "leave_console", **MACHINE)
        # Also where several people are needed.
        policy = {"metadata": {"name": "people"}, "spec": {"people": 2}}
        await self.client.create(kinds.CONSOLEPOLICIES.resource, policy, "default")
        await self.approved(agent)
        why = await self.refusal(agent, "run", **REASON, command="id")
        self.assertIn("impersonated users do not count", why)
