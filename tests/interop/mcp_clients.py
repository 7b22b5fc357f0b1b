"""
Foreign clients of MCP at both doors: the SDKs in Python and TypeScript, and MCP Inspector.

Each calls every tool, over ``twisted-exec mcp`` on a pipe and over ``exec-mcp`` with a token, through the three programs to
a shell.  The SDKs check each response against the schema of the protocol.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.trial.unittest import TestCase

from tests import needs
from tests.auth.provider import Provider
from tests.flows import programs, shared
from tests.flows.deployment import pause
from tests.flows.test_three_programs import binding
from tests.tls.support import server_identity, write
from twisted_exec.api.kinds import (
    CLUSTERROLEBINDINGS,
    CLUSTERROLES,
    CONSOLEPOLICIES,
    CONSOLESESSIONS,
    ROLEBINDINGS,
)
from twisted_exec.cli.mcp.protocol import VERSIONS
from twisted_exec.cli.mcp.table import TOOLS

reactor: Any = _reactor

ENVIRONMENT = os.environ.get("MCP_SDK", "")
MODULES = os.environ.get("MCP_MODULES", "")
_NO_SDK = None if ENVIRONMENT else "MCP_SDK names no environment with the Python package mcp"
_NO_MODULES = None if MODULES else "MCP_MODULES names no directory with the MCP SDK and inspector"
AGENT, PERSON = "agent:ada:triage", "bob"
_ROLES = ("edit", "console-operator", "console-log-reader", "console-session-reader")
_CLIENTS = Path(__file__).parents[1] / "clients" / "mcp"


class Talk:
    """A client that runs, and its calls."""

    def __init__(self, program: programs.Program) -> None:
        self._program, self._lines = program, 0

    async def next(self) -> Any:
        """Return the next line of the client."""
        self._lines += 1
        await self._program.until(rb"(?s)(?:\bMCP [^\n]*\n.*?){%d}" % self._lines)
        lines = [each for each in self._program.stdout.split(b"\n") if each.startswith(b"MCP ")]
        return json.loads(lines[self._lines - 1].removeprefix(b"MCP "))

    async def call(self, tool: str, **arguments: Any) -> tuple[bool, list[str]]:
        """Call a tool; return whether it failed, and the texts of the result."""
        self._program.type(json.dumps([tool, arguments]).encode() + b"\n")
        result = await self.next()
        return result["error"], result["texts"]


class Door(TestCase):
    """A deployment with a machine ``vm``, an agent with rights, and a door."""

    timeout = 600
    skip = needs.kubectl()

    async def setUp(self) -> None:
        self.deployment = await shared.deployment(self)
        self.addCleanup(self.nobody_left)
        await self.deployment.create_machine("vm", "shell")
        client = self.deployment.client
        for role in _ROLES:
            group = binding(f"agents-{role}", role)
            group["subjects"] = [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
                for kind, name in (("Group", "agents"), ("User", "ada"))
            ]
            await client.create(ROLEBINDINGS.resource, group, "default")
        await self.make_policy("agents", subjects=[{"kind": "Group", "name": "agents"}])
        self.settings = await self.connect()

    async def make_policy(self, name: str, **spec: Any) -> None:
        policy = {
            "apiVersion": CONSOLEPOLICIES.resource.api_version,
            "kind": CONSOLEPOLICIES.resource.kind,
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        }
        await self.deployment.client.create(CONSOLEPOLICIES.resource, policy, "default")

    async def nobody_left(self) -> None:
        """Every session at a console ends with the client's."""
        while True:
            found = await self.deployment.client.list(CONSOLESESSIONS.resource, "default")
            if not found["items"]:
                return
            await pause()

    async def connect(self) -> dict[str, Any]:
        """Return the client's settings for this door."""
        raise NotImplementedError

    async def may_impersonate(self, user: str) -> None:
        """Let a program act as the agent, and as nobody else."""
        rules = [
            {
                "apiGroups": [""],
                "resources": ["users"],
                "verbs": ["impersonate"],
                "resourceNames": [AGENT],
            },
            {
                "apiGroups": [""],
                "resources": ["groups"],
                "verbs": ["impersonate"],
                "resourceNames": ["agents"],
            },
        ]
        role = {
            "apiVersion": CLUSTERROLES.resource.api_version,
            "kind": "ClusterRole",
            "metadata": {"name": user},
            "rules": rules,
        }
        client = self.deployment.client
        await client.create(CLUSTERROLES.resource, role)
        bound = {**binding(user, user), "kind": "ClusterRoleBinding"}
        await client.create(CLUSTERROLEBINDINGS.resource, bound)

    def start(self, *argv: str, **env: str) -> programs.Program:
        program = programs.start(argv, env=env)
        self.addCleanup(program.stop)
        return program

    async def facts(self, talk: Talk, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool that succeeds; return its facts, with the output as ``output``."""
        failed, texts = await talk.call(tool, **arguments)
        self.assertFalse(failed, (tool, texts))
        facts: dict[str, Any] = json.loads(texts[0])
        return {**facts, "output": "\n".join(texts[1:])}

    async def refusal(self, talk: Talk, tool: str, **arguments: Any) -> str:
        failed, texts = await talk.call(tool, **arguments)
        self.assertTrue(failed, (tool, texts))
        return texts[0]


class Pipe(Door):
    """``twisted-exec mcp``."""

    async def connect(self) -> dict[str, Any]:
        await self.may_impersonate("launcher")
        kubeconfig = self.deployment.kubeconfig("launcher")
        identity = (f"--kubeconfig={kubeconfig}", f"--as={AGENT}", "--as-group=agents")
        return {
            "command": [programs.script("twisted-exec"), "mcp", *identity],
            "env": dict(os.environ),
        }


class HTTP(Door):
    """``exec-mcp``."""

    async def connect(self) -> dict[str, Any]:
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        provider = Provider()
        await provider.listen(reactor, str(directory))
        self.addCleanup(provider.stop)
        identity = server_identity("localhost")
        certificate = write(str(directory), "door.crt", identity.certificate_pem)
        key = write(str(directory), "door.key", identity.key_pem)
        os.chmod(key, 0o600)
        ca = write(str(directory), "ca.crt", provider.ca_pem)
        port = self.deployment.reserved.add()
        url = f"https://localhost:{port}/mcp"
        jwt = {
            "issuer": {
                "url": provider.url,
                "audiences": [url],
                "certificateAuthority": provider.ca_pem.decode(),
            },
            "claimMappings": {
                "username": {"claim": "sub", "prefix": ""},
                "groups": {"claim": "groups", "prefix": ""},
            },
        }
        configuration = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AuthenticationConfiguration",
            "jwt": [jwt],
        }
        path = directory / "authentication.yaml"
        path.write_text(json.dumps(configuration))
        await self.may_impersonate("exec-mcp")
        door = self.deployment.twistd(
            "exec-mcp",
            f"--kubeconfig={self.deployment.kubeconfig('exec-mcp')}",
            f"--resource-url={url}",
            f"--listen=tcp:{port}:interface=127.0.0.1",
            "--health-listen=",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--authentication-config={path}",
        )
        self.addCleanup(door.stop)
        await door.until(rb"starting on %d" % port)
        claims = {"sub": AGENT, "groups": ["agents"], "aud": url, "exp": int(time.time()) + 3600}
        return {"url": url, "token": provider.token(**claims).decode(), "ca": ca}


class ClientContract:
    """What each SDK's client does at each door, for a :class:`Door`."""

    def client(self) -> tuple[str, ...]:
        """Return the command line of the client."""
        raise NotImplementedError

    async def talk(self: Any) -> tuple[Talk, Any]:
        """Start the client; return it, and what it says of the server."""
        ca = self.settings.get("ca", "")
        program = self.start(*self.client(), **({"NODE_EXTRA_CA_CERTS": ca} if ca else {}))
        talk = Talk(program)
        return talk, await talk.next()

    async def test_every_tool(self: Any) -> None:
        """All tools are listed, and each does what its description says."""
        talk, said = await self.talk()
        self.assertEqual([each["name"] for each in said["tools"]], [each.name for each in TOOLS])
        self.assertIn(said["version"], ("", *VERSIONS))
        facts = await self.facts(talk, "list_machines")
        self.assertIn("vm", [each["name"] for each in facts["machines"]])
        facts = await self.facts(talk, "run", machine="vm", command="echo $((6*7)); exit 3")
        self.assertEqual(facts["exit_code"], 3)
        self.assertTrue(facts["output"].endswith("\n| 42"), facts["output"])
        facts = await self.facts(
            talk, "send", machine="vm", text="echo $((6*", keys=[], timeout_seconds=20
        )
        facts = await self.facts(
            talk, "send", machine="vm", text="8))", keys=["enter"], wait_for="^48"
        )
        self.assertTrue(facts["matched"])
        self.assertIn("\n| 48", facts["output"])
        log = await self.facts(talk, "read_log", machine="vm", offset=facts["offset"])
        self.assertIn("\n| 48", log["output"])
        self.assertIn("| 48", (await self.facts(talk, "get_screen", machine="vm"))["output"])
        facts = await self.facts(
            talk, "wait_for", machine="vm", pattern="^48", offset=0, timeout_seconds=30
        )
        self.assertTrue(facts["matched"])
        facts = await self.facts(talk, "who_is_watching", machine="vm")
        self.assertEqual(
            ([each["user"] for each in facts["sessions"]], facts["writer"]), ([AGENT], AGENT)
        )
        self.assertIn("BREAK", await self.refusal(talk, "send_break", machine="vm"))
        recording = await self.facts(talk, "start_recording", machine="vm", reason="TICKET-1")
        ended = await self.facts(
            talk, "end_recording", machine="vm", recording=recording["recording"]
        )
        self.assertEqual(ended["ended"], recording["recording"])
        facts = await self.facts(talk, "request_access", machine="vm", reason="TICKET-1")
        self.assertEqual(facts["state"], "pending")
        self.assertEqual((await self.facts(talk, "leave_console", machine="vm"))["left"], True)
        self.assertEqual(
            (await self.facts(talk, "power", machine="vm", state="Off"))["power"], "Off"
        )
        self.assertIn("not found", await self.refusal(talk, "get_screen", machine="other"))
        self.assertIn(
            "parameter", await self.refusal(talk, "run", machine="vm", command="x", to="y")
        )

    async def test_approval(self: Any) -> None:
        """An agent asks, another user approves, the agent types, and a person takes the console."""
        await self.make_policy("asks", reason="Required", approval="Once", maxSeconds=900)
        talk, _ = await self.talk()
        reason = {"machine": "vm", "reason": "TICKET-1"}
        why = await self.refusal(talk, "run", command="id", machine="vm")
        self.assertIn("with right drive and a reason", why)
        why = await self.refusal(talk, "run", command="id", **reason)
        self.assertIn("request_access asks a person", why)
        facts = await self.facts(talk, "request_access", **reason)
        person = self.deployment.kubeconfig(PERSON, ["system:masters"])
        approving = self.start(
            *(programs.script("twisted-exec"), "request", "approve", facts["request"]),
            f"--kubeconfig={person}",
        )
        self.assertEqual(await approving.ended, 0, approving.output)
        facts = await self.facts(talk, "request_access", machine="vm")
        self.assertEqual((facts["state"], facts["decidedBy"]), ("approved", PERSON))
        # One approval for one session, which has several calls.
        for number in (1, 2):
            facts = await self.facts(talk, "run", command=f"echo n{number}", **reason)
            self.assertIn(f"\n| n{number}", facts["output"])
        await self.deployment.client.delete(CONSOLEPOLICIES.resource, "asks", "default")
        console = programs.terminal(
            (programs.script("kubectl-console"), "vm", "--force", f"--kubeconfig={person}")
        )
        self.addCleanup(console.stop)
        await console.until(rb"Connected to vm\.")
        while "bob has taken over" not in await self.typed(talk):
            await pause()

    async def typed(self: Any, talk: Talk) -> str:
        """Press Enter; return why that failed, or an empty string."""
        failed, texts = await talk.call("send", machine="vm", keys=["enter"])
        return texts[0] if failed else ""

    async def test_cancelled_wait(self: Any) -> None:
        """A wait that ends in vain says so, over comments that keep a connection alive."""
        talk, _ = await self.talk()
        facts = await self.facts(
            talk, "wait_for", machine="vm", pattern="never printed", timeout_seconds=20
        )
        self.assertFalse(facts["matched"])


class PythonClient(ClientContract):
    """The SDK in Python."""

    settings: dict[str, Any]

    def client(self) -> tuple[str, ...]:
        python = f"{ENVIRONMENT}/bin/python"
        return python, str(_CLIENTS / "client.py"), json.dumps(self.settings)


class TypeScriptClient(ClientContract):
    """The SDK in TypeScript."""

    settings: dict[str, Any]

    def client(self) -> tuple[str, ...]:
        settings = json.dumps({**self.settings, "modules": MODULES})
        return "node", str(_CLIENTS / "client.mjs"), settings


class PythonPipeTests(PythonClient, Pipe):
    """The Python SDK on a pipe."""

    skip = Door.skip or _NO_SDK


class PythonHTTPTests(PythonClient, HTTP):
    """The Python SDK over HTTP."""

    skip = Door.skip or _NO_SDK


class TypeScriptPipeTests(TypeScriptClient, Pipe):
    """The TypeScript SDK on a pipe."""

    skip = Door.skip or _NO_MODULES or needs.node()


class TypeScriptHTTPTests(TypeScriptClient, HTTP):
    """The TypeScript SDK over HTTP."""

    skip = Door.skip or _NO_MODULES or needs.node()


class InspectorContract:
    """MCP Inspector on a command line, for a :class:`Door`."""

    def target(self) -> tuple[str, ...]:
        """Return the arguments that name the server."""
        raise NotImplementedError

    async def inspect(self: Any, method: str, *words: str) -> Any:
        ca = self.settings.get("ca", "")
        program = self.start(
            *("node", f"{MODULES}/.bin/mcp-inspector", "--cli", *self.target()),
            *("--method", method, *words),
            **({"NODE_EXTRA_CA_CERTS": ca} if ca else {}),
        )
        self.assertEqual(await program.ended, 0, program.output)
        return json.loads(program.stdout)

    async def test_inspector(self: Any) -> None:
        """The inspector lists all tools, and calls one."""
        listed = await self.inspect("tools/list")
        self.assertEqual([each["name"] for each in listed["tools"]], [each.name for each in TOOLS])
        result = await self.inspect(
            "tools/call", "--tool-name", "run", "--tool-arg", "machine=vm", "command=echo $((6*7))"
        )
        self.assertFalse(result["isError"], result)
        self.assertIn("| 42", result["content"][1]["text"])


class InspectorPipeTests(InspectorContract, Pipe):
    """The inspector on a pipe."""

    skip = Door.skip or _NO_MODULES or needs.node()

    def target(self) -> tuple[str, ...]:
        return tuple(self.settings["command"])


class InspectorHTTPTests(InspectorContract, HTTP):
    """The inspector over HTTP."""

    skip = Door.skip or _NO_MODULES or needs.node()

    def target(self) -> tuple[str, ...]:
        header = f"Authorization: Bearer {self.settings['token']}"
        return self.settings["url"], "--transport", "http", "--header", header
