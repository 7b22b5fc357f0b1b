"""
A Pod in a leaf cluster, by its name in the root: real kubectls through root, node server and leaf
to a kubelet.

Root and leaf are our own API server.  All four programs are in this process, and every hop between
them is TLS.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP4ServerEndpoint, connectProtocol
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows import kubectls
from tests.flows.programs import Program, resize, start, terminal
from tests.nodeserver.clusters import LEAF_NODE, POD, ROOT_NODE, Clusters
from tests.testing.callers import until
from tests.tiers import PROGRAMS
from twisted_exec.api.kinds import NODE_PODS
from twisted_exec.testing.kubelet import Container

reactor: Any = _reactor
ECHO = ["sh", "-c", 'while read -r line; do echo "<$line>"; done']


class LeafTestCase(TestCase):
    """Root, node server, leaf, kubelet, and one Pod."""

    starts = PROGRAMS
    skip = needs.kubectl()

    async def setUp(self) -> None:
        self.clusters = await Clusters.start()
        self.addCleanup(self.clusters.stop)
        await self.serve()
        await self.add_pods()
        self.env = {
            "KUBECONFIG": self.clusters.root.kubeconfig("admin"),
            "PATH": os.environ["PATH"],
            "HOME": os.path.abspath(self.mktemp()),
        }
        self.directory = Path(os.path.abspath(self.mktemp()))
        self.directory.mkdir()

    async def serve(self) -> None:
        await self.clusters.serve()

    async def add_pods(self) -> None:
        await self.clusters.add_pods()

    async def kubectl(
        self, *argv: str, name: str = "kubectl", stdin: bytes = b"", **env: str
    ) -> tuple[int, str, str]:
        """Run kubectl; return its exit code, standard output, and all of its output."""
        program = kubectls.found()[name]
        return await kubectls.run(program, *argv, env={**self.env, **env}, stdin=stdin)

    def begin(self, *argv: str, name: str = "kubectl") -> Program:
        """Start a kubectl that keeps running."""
        return start([kubectls.found()[name], *argv], env=self.env)

    def log(self, container: str = "main") -> Any:
        return self.clusters.kubelet.pods["default", POD][container].log


class ExecTests(LeafTestCase):
    """``kubectl exec`` and ``cp``."""

    async def test_versions(self) -> None:
        """Output, input and exit code, by the oldest kubectl, one between, and the newest."""
        for name in kubectls.some():
            code, stdout, _ = await self.kubectl(
                "exec", "-i", POD, "--", "sh", "-c", "cat; exit 7", name=name, stdin=b"hello"
            )
            self.assertEqual((name, code, stdout), (name, 7, "hello"))

    async def test_error_output(self) -> None:
        """Standard error stays separate from standard output."""
        _, stdout, output = await self.kubectl("exec", POD, "--", "sh", "-c", "echo a; echo b >&2")
        self.assertEqual(stdout, "a\n")
        self.assertIn("b\n", output)

    async def test_terminal(self) -> None:
        """The container's terminal has the user's size, and follows each change of it."""
        argv = [kubectls.found()["kubectl"], "exec", "-it", POD, "--", "sh"]
        program = terminal(argv, columns=100, rows=40, **self.env)
        self.addCleanup(program.stop)
        program.type(b"stty size; echo siz''ed\n")
        await program.until(b"sized")
        await self.said(program, b"40 100")
        resize(program, 90, 30)
        await self.said(program, b"30 90")
        program.type(b"exit 4\n")
        self.assertEqual(await program.ended, 4)

    async def said(self, program: Program, text: bytes) -> None:
        """
        Repeat ``stty size`` until it prints ``text``: a new size may arrive after the command.
        """
        for _ in range(100):
            if text in program.output:
                return
            seen = len(program.output)
            program.type(b"stty size\n")
            await until(lambda: len(program.output) > seen + 10)  # noqa: B023
        raise AssertionError(program.output)

    async def test_copy(self) -> None:
        """Files are copied unchanged in both directions, which needs the end of input to arrive."""
        content = os.urandom(300_000)
        original, there, back = (self.directory / each for each in ("a", "b", "c"))
        original.write_bytes(content)
        for name in kubectls.some():
            code, _, told = await self.kubectl("cp", str(original), f"{POD}:{there}", name=name)
            self.assertEqual(code, 0, told)
            self.assertEqual(_digest(there), _digest(original))
            code, _, told = await self.kubectl("cp", f"{POD}:{there}", str(back), name=name)
            self.assertEqual(code, 0, told)
            self.assertEqual(_digest(back), _digest(original))
            there.unlink()
            back.unlink()

    async def test_nobody_else(self) -> None:
        """The root decides on permissions; a refused user's request never reaches the kubelet."""
        code, _, told = await self.kubectl(
            "exec", POD, "--", "id", KUBECONFIG=self.clusters.root.kubeconfig("jane")
        )
        self.assertEqual(code, 1)
        self.assertIn('User "jane" cannot', told)
        self.assertEqual(list(self.clusters.kubelet.seen), [])

    async def test_record(self) -> None:
        """
        Both audit logs have the session: the root's with the user, the leaf's with the node server.
        """
        await self.kubectl("exec", POD, "--", "true")
        await until(lambda: len(self.clusters.leaf.audit) == 2)
        users = [
            {each["user"] for each in audit}
            for audit in (self.clusters.root.audit, self.clusters.leaf.audit)
        ]
        self.assertEqual(users, [{"admin"}, {"exec-nodeserver"}])

    async def test_not_ours(self) -> None:
        """A Pod of the leaf that only shares a name with a Pod of the root cannot be reached."""
        await self.clusters.root.add_pod("theirs", ROOT_NODE)
        await self.clusters.leaf.add_pod("theirs", LEAF_NODE)
        self.clusters.kubelet.add("default", "theirs", {"main": Container()})
        code, _, told = await self.kubectl("exec", "theirs", "--", "id")
        self.assertEqual(code, 1)
        self.assertIn("(NotFound)", told)
        self.assertIn("was not made for this one", told)
        self.assertEqual(list(self.clusters.kubelet.seen), [])

    async def test_deleted_in_the_root(self) -> None:
        """Deleting a Pod in the root ends its sessions with a message that names the Pod."""
        program = self.begin("exec", POD, "--", "sh", "-c", "echo on; sleep 100")
        await program.until(b"on")
        storage = self.clusters.root.storage
        await storage.delete(
            NODE_PODS.resource, await storage.get(NODE_PODS.resource, "default", POD)
        )
        self.assertNotEqual(await program.ended, 0)
        self.assertIn(b'pod "web" was deleted', program.output)


class AttachTests(LeafTestCase):
    """``kubectl attach``."""

    async def add_pods(self) -> None:
        containers = {"echo": Container(command=ECHO), "main": Container()}
        await self.clusters.add_pods("typing", containers)

    async def test_attach(self) -> None:
        """Input reaches the container's own process, and its output returns."""
        for name in kubectls.some():
            program = self.begin("attach", "-i", "typing", "-c", "echo", name=name)
            program.type(f"{name}\n".encode())
            await program.until(re.escape(f"<{name}>".encode()))
            await program.stop()

    async def test_unknown_container(self) -> None:
        """An unknown container is refused by its name."""
        code, _, told = await self.kubectl("attach", "typing", "-c", "none")
        self.assertEqual(code, 1)
        self.assertIn("container none", told)


class PortForwardTests(LeafTestCase):
    """``kubectl port-forward``."""

    async def test_ports(self) -> None:
        """Concurrent connections through one port-forward do not mix their data."""
        factory = Factory.forProtocol(Upper)
        server = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(factory)
        self.addCleanup(server.stopListening)
        for name in kubectls.some():
            program = self.begin("port-forward", POD, f":{server.getHost().port}", name=name)
            told = await program.until(rb"Forwarding from 127\.0\.0\.1:(\d+) ->")
            there = TCP4ClientEndpoint(reactor, "127.0.0.1", int(told[1]))
            clients = [await connectProtocol(there, Heard()) for _ in range(3)]
            for number, client in enumerate(clients):
                client.transport.write(b"client %d\n" % number)
            for number, client in enumerate(clients):
                await until(lambda: b"\n" in client.heard)  # noqa: B023
                self.assertEqual(client.heard, b"CLIENT %d\n" % number)
                client.transport.loseConnection()
                await client.lost
            await program.stop()


class LogTests(LeafTestCase):
    """``kubectl logs``."""

    async def setUp(self) -> None:
        await super().setUp()
        for number in range(1, 4):
            self.log().write(b"line %d\n" % number)

    async def test_options(self) -> None:
        """Each option of ``kubectl logs`` has its usual effect, also ``--tail=0``."""
        told: Mapping[tuple[str, ...], str] = {
            (): "line 1\nline 2\nline 3\n",
            ("--tail=1",): "line 3\n",
            ("--tail=0",): "",
            ("--limit-bytes=4",): "line",
            ("--since=1h",): "line 1\nline 2\nline 3\n",
            ("--since-time=2099-01-01T00:00:00Z",): "",
        }
        for options, expected in told.items():
            code, stdout, output = await self.kubectl("logs", POD, *options)
            self.assertEqual((options, code, stdout), (options, 0, expected), output)

    async def test_versions(self) -> None:
        """Every kubectl version reads the log, with timestamps."""
        for name in kubectls.some():
            _, stdout, _ = await self.kubectl("logs", POD, "--timestamps", name=name)
            self.assertRegex(stdout.splitlines()[0], r"^\d{4}-\d\d-\d\dT[\d:.]+Z line 1$")

    async def test_previous(self) -> None:
        """Without a previous container, the leaf's BadRequest reaches the user."""
        code, _, told = await self.kubectl("logs", POD, "--previous")
        self.assertEqual(code, 1)
        self.assertIn("(BadRequest)", told)
        self.assertIn("previous terminated container", told)

    async def test_follow(self) -> None:
        """Following a log shows new lines, and the stream ends when the reader leaves."""
        program = self.begin("logs", "-f", "--tail=1", POD)
        await program.until(b"line 3")
        self.log().write(b"and on\n")
        await program.until(b"and on")
        await program.stop()
        await until(lambda: not self.clusters.kubelet.streams)


class Upper(Protocol):
    """Sends back in upper case whatever it receives."""

    def dataReceived(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data.upper())


class Heard(Protocol):
    """Keeps what it receives."""

    transport: Any

    def __init__(self) -> None:
        self.heard = b""
        self.lost: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.heard += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost.callback(None)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
