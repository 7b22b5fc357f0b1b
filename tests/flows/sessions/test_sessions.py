"""
Several users at one console, on real terminals: driving, observing, taking over, ending sessions;
and BREAK sent to a console server.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows.deployment import CLASSES, Deployment, machine_class, pause
from tests.flows.kubectls import run
from tests.flows.programs import Program, script, terminal
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds

reactor: Any = _reactor

_VERBS = ("observe", "drive", "takeover")

BREAK = b"\xff\xf3"
"""Telnet's BREAK: IAC BRK (RFC 854)."""


class Port(Protocol):
    """One port of a console server; keeps what it receives."""

    transport: Any
    heard = b""

    def connectionMade(self) -> None:
        self.transport.write(b"login: ")

    def dataReceived(self, data: bytes) -> None:
        self.heard += data


class SessionsTests(TestCase):
    """Two machines, a shell and a line of a console server; every user is an administrator."""

    starts = PROGRAMS
    skip = needs.kubectl()

    async def setUp(self) -> None:
        self.ports: list[Port] = []
        port: Any = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(
            Factory.forProtocol(self.plugged)
        )
        self.addCleanup(port.stopListening)
        self.deployment = Deployment(self.mktemp())
        self.addCleanup(self.deployment.stop)
        rack = f"""
- name: rack
  driver: socket
  capabilities: {{cpu: "1", memory: 64Mi}}
  lines:
    web-1: {{endpoint: "tcp:host=127.0.0.1:port={port.getHost().port}", protocol: telnet}}
"""
        (self.deployment.directory / "runtime.yaml").write_text(CLASSES.rstrip() + rack)
        await self.deployment.start()
        self.people = {
            name: self.deployment.kubeconfig(name, ["system:masters"])
            for name in ("ada", "bob", "eve")
        }

    def plugged(self) -> Port:
        made = Port()
        self.ports.append(made)
        return made

    def sit_down(self, who: str, machine: str, *options: str) -> Program:
        """Open a console in a terminal as a user."""
        argv = [script("kubectl-console"), machine, *options]
        return self.at_terminal(who, argv)

    def at_terminal(self, who: str, argv: list[str]) -> Program:
        argv[0] = shutil.which(argv[0]) or argv[0]
        program = terminal(argv, KUBECONFIG=self.people[who], TERM="dumb")
        self.addCleanup(program.stop)
        return program

    async def test_roles(self) -> None:
        """One user drives, another takes over, a third observes; each sees a notice of its role."""
        await self.deployment.create_machine("sh", "shell")
        ada = self.sit_down("ada", "sh")
        await ada.until(rb"Connected to sh\. Ctrl-\] leaves, ~\? helps\.")
        ada.type(b"echo a$((40+2))a\r")
        await ada.until(rb"a42a\r\n")

        bob = self.sit_down("bob", "sh")
        await bob.until(rb"a42a\r\n(?s:.*)the writer of this console is ada; you are an observer")
        bob.type(b"echo lost\r")
        await bob.until(rb"what you type is not sent: the writer of this console is ada")
        eve = self.sit_down("eve", "sh", "--read-only")
        await eve.until(rb"a42a\r\n")

        start_at = len(bob.output)
        bob.type(b"~f")
        await bob.until(rb"ada types at this console[^?]*any other key cancels", start=start_at)
        bob.type(b"y")
        await bob.until(rb"you have taken over this console from ada", start=start_at)
        await ada.until(rb"bob has taken over this console; you are an observer")
        bob.type(b"echo b$((40+3))b\r")
        for one in (ada, bob, eve):
            await one.until(rb"b43b\r\n")
        ada.type(b"echo lost\r")
        await ada.until(rb"what you type is not sent: the writer of this console is bob")
        eve.type(b"~f")
        await eve.until(rb"This session is read-only")

        ada.type(b"\x1d")
        self.assertEqual(await ada.ended, 0)
        back = self.sit_down("ada", "sh", "--force")
        await back.until(rb"you have taken over this console from bob")
        await bob.until(rb"ada has taken over this console")
        back.type(b"echo c$((40+4))c\r")
        await eve.until(rb"c44c\r\n")
        back.type(b"~.")
        self.assertEqual(await back.ended, 0)
        await bob.until(rb"ada has left; this console has no writer")
        for one in (bob, eve):
            self.assertIsNone(re.search(rb"\r\nlost\r\n", one.output))

    async def grant(self, verb: str, *users: str) -> None:
        """Give a right at all consoles to exactly these users."""
        verbs = list(_VERBS[: _VERBS.index(verb) + 1])
        for user in users:
            self.people.setdefault(user, self.deployment.kubeconfig(user))
        rules = [
            {"apiGroups": ["*"], "resources": ["machines/console"], "verbs": verbs},
            {"apiGroups": ["*"], "resources": ["machines"], "verbs": ["get"]},
        ]
        api = "rbac.authorization.k8s.io"
        role = {"kind": "Role", "rules": rules}
        subjects = [{"apiGroup": api, "kind": "User", "name": each} for each in users]
        reference = {"apiGroup": api, "kind": "Role", "name": verb}
        binding = {"kind": "RoleBinding", "roleRef": reference, "subjects": subjects}
        for each in (role, binding):
            document = {"apiVersion": f"{api}/v1", "metadata": {"name": verb}, **each}
            await self.kubectl("apply", "-f", "-", stdin=json.dumps(document).encode())

    async def test_rights(self) -> None:
        """
        Users observe, drive and take over by right.

        A right that is withdrawn or granted in the middle of a session changes the session, at the
        machine's end of three programs.
        """
        await self.deployment.create_machine("sh", "shell")
        await self.grant("observe", "oda")
        await self.grant("drive", "dan", "don")
        oda, dan = self.sit_down("oda", "sh"), self.sit_down("dan", "sh")
        await oda.until(rb"you may only observe this console")
        await dan.until(rb"Connected to sh")
        dan.type(b"echo a$((40+2))a\r")
        for each in (oda, dan):
            await each.until(rb"a42a\r\n")
        oda.type(b"echo lost\r")
        await oda.until(rb"what you type is not sent: you may only observe")

        argv = ["kubectl", "exec", "-it", "sh", "--", "console", "--force"]
        refused = self.at_terminal("don", argv.copy())
        await refused.until(rb"you may drive it: open it without --force")
        self.assertEqual(await refused.ended, 1)
        don = self.at_terminal("don", argv[:-1])
        await don.until(rb"the writer of this console is dan; you are an observer \(you may")
        waiting = self.sit_down("don", "sh")
        await waiting.until(rb"you are an observer \(you may")
        waiting.type(b"~f")
        await waiting.until(rb"you may not take over this console; its writer is dan")

        await self.grant("observe", "oda", "dan")
        await self.grant("drive", "don", "oda")
        await dan.until(rb"from now on you may only observe this console")
        await waiting.until(rb"dan may no longer type; this console has no writer")
        await oda.until(rb"you may type at this console again")
        dan.type(b"echo lost\r")
        await dan.until(rb"what you type is not sent: you may only observe")
        waiting.type(b"~f")
        await waiting.until(rb"you are the writer of this console")
        waiting.type(b"echo b$((40+3))b\r")
        for each in (oda, dan, don, waiting):
            await each.until(rb"b43b\r\n")
            self.assertIsNone(re.search(rb"\r\nlost\r\n", each.output))

        ada = self.sit_down("ada", "sh", "--force")
        await ada.until(rb"you have taken over this console from don")
        await waiting.until(rb"ada has taken over this console; you are an observer \(you may")

    async def test_stock_kubectl(self) -> None:
        """
        Stock kubectl can observe, take over, list sessions and end them.

        The user of an ended session sees who ended it; other sessions continue.
        """
        await self.deployment.create_machine("sh", "shell")
        ada = self.sit_down("ada", "sh")
        await ada.until(rb"Connected to sh")
        attached = self.at_terminal("bob", ["kubectl", "attach", "-it", "sh"])
        await attached.until(rb"the writer of this console is ada; you are an observer")
        argv = ["kubectl", "exec", "-it", "sh", "--", "console", "--force"]
        driving = self.at_terminal("bob", argv)
        await driving.until(rb"you have taken over this console from ada")
        await ada.until(rb"bob has taken over this console")
        driving.type(b"echo b$((40+3))b\r")
        for one in (ada, attached, driving):
            await one.until(rb"b43b\r\n")
        expected = [
            ["sh", "ada", "Drive", "Observer", "<none>", "127.0.0.1"],
            ["sh", "bob", "Drive", "Observer", "<none>", "127.0.0.1"],
            ["sh", "bob", "TakeOver", "Writer", "<none>", "127.0.0.1"],
        ]
        # The poollet reports the roles with its next listing.
        rows = await self.rows()
        while sorted(row.split()[1:7] for row in rows) != expected:
            await pause()
            rows = await self.rows()
        (name,) = (row.split()[0] for row in rows if "ada" in row.split())
        await self.kubectl("delete", "session", name)
        # A client that stalls loses the connection with the reason, and is told when it resumes.
        ended = rb"(session ended: SessionDeleted|the session could not be resumed: [^:]+)"
        await ada.until(ended + f": admin deleted the console session {name}".encode())
        self.assertEqual(await ada.ended, 1)
        while len(rows := await self.rows()) != 2:
            await pause()
        (name,) = (row.split()[0] for row in rows if "TakeOver" in row.split())
        await self.kubectl("delete", "consolesession", name)
        await driving.until(f"admin deleted the console session {name}".encode())
        self.assertEqual(await driving.ended, 1)
        await attached.until(rb"another session of yours has left; this console has no writer")

    async def test_break(self) -> None:
        """
        BREAK and SysRq reach the port of a console server, in order with typed keys.

        A machine whose line has no BREAK says so.
        """
        resource = kinds.MACHINECLASSES.resource
        await self.deployment.client.create(resource, machine_class("rack", "64Mi"))
        await self.deployment.create_machine("sh", "shell")
        shell = self.sit_down("ada", "sh")
        await shell.until(rb"Connected to sh")
        shell.type(b"~B")
        await shell.until(rb"this console has no BREAK")
        await self.deployment.create_machine("web-1", "rack")
        ada = self.sit_down("ada", "web-1")
        await ada.until(rb"login: ")
        ada.type(b"root\r~B~Sh")
        (port,) = self.ports
        while not port.heard.endswith(b"h"):
            await pause()
        typed = port.heard[port.heard.index(b"root") :]
        self.assertEqual(typed.count(BREAK), 2)
        self.assertRegex(typed, rb"(?s)\Aroot\r.?" + BREAK + BREAK + rb"h\Z")
        bob = self.sit_down("bob", "web-1")
        await bob.until(rb"the writer of this console is ada")
        bob.type(b"~B")
        await bob.until(rb"nothing was sent: you are an observer; ada is the writer")
        self.assertEqual(port.heard.count(BREAK), 2)

    async def rows(self) -> list[str]:
        told = await self.kubectl("get", "consolesessions", "--no-headers")
        return [row for row in told.splitlines() if not row.startswith("No resources")]

    @property
    def stock(self) -> str:
        return shutil.which("kubectl") or "kubectl"

    async def kubectl(self, *arguments: str, stdin: bytes = b"") -> str:
        env = {"KUBECONFIG": self.deployment.admin}
        code, _, told = await run(self.stock, *arguments, env=env, stdin=stdin)
        self.assertEqual(code, 0, told)
        return told
