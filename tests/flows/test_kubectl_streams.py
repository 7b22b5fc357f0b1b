"""
Stock kubectls against our streams: what they speak, what they show, how they exit.

Up to 1.29 they speak SPDY, from 1.30 on WebSockets first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from twisted.internet import reactor
from twisted.internet.interfaces import IPushProducer
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from twisted_exec.streaming.interfaces import (
    COMPLETED,
    LINE_LOST,
    Ending,
    IAttachment,
    IAttachmentTransport,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand import negotiation
from twisted_exec.testing.attachment import EchoAttachment, RecordingAttachment

from . import kubectls
from .pods import PodServer
from .programs import Program, resize, terminal

SUCCESS = Ending(COMPLETED)


@implementer(IPushProducer)
class Command(RecordingAttachment):
    """Prints something and ends, as soon as its transport takes something."""

    def __init__(self, output: bytes, ending: Ending = SUCCESS) -> None:
        super().__init__()
        self.output, self.ending = output, ending
        self.paused = False

    def attached(self, transport: IAttachmentTransport) -> None:
        super().attached(transport)
        transport.registerProducer(self, True)
        if not self.paused:
            self.resumeProducing()

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.transport.unregisterProducer()
        self.transport.write(self.output)
        self.transport.end(self.ending)

    def stopProducing(self) -> None:
        """The user left."""


class Terminal(RecordingAttachment):
    """Says ``size?`` and tells each size it learns; a ``q`` ends it."""

    def attached(self, transport: IAttachmentTransport) -> None:
        super().attached(transport)
        transport.write(b"size?\r\n")

    def window_changed(self, size: TerminalSize) -> None:
        super().window_changed(size)
        self.transport.write(b"[%dx%d]\r\n" % (size.columns, size.rows))

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(b"<" + data + b">")
        if b"q" in data:
            self.transport.end(Ending(COMPLETED, exit_code=3))


async def until(condition: Callable[[], object]) -> None:
    """Turn the reactor until it holds; the test's timeout bounds it."""
    while not condition():
        await deferLater(reactor, 0)  # type: ignore[arg-type]


class KubectlTestCase(TestCase):
    """A server with one Pod, and all kubectls of this machine."""

    timeout = 180

    async def setUp(self) -> None:
        self.kubectls = kubectls.found()
        assert "kubectl.1.27" in self.kubectls, "SPDY cannot be tried without an old kubectl"
        # An empty file: kubectls without any look for the cluster they run in.
        home = self.mktemp()
        with open(home, "w"):
            self.env = {"HOME": home + ".d", "KUBECONFIG": home}
        self.attachments: list[Any] = []
        self.attach: Callable[[], IAttachment] = EchoAttachment
        self.server = PodServer(self._attach)
        await self.server.start()
        self.addCleanup(self.server.stop)

    def _attach(self) -> IAttachment:
        self.attachments.append(self.attach())
        return self.attachments[-1]  # type: ignore[no-any-return]

    async def run_kubectl(
        self, name: str, *argv: str, stdin: bytes = b"", **env: str
    ) -> tuple[int, str, str]:
        """Exit code, standard output, everything printed."""
        server = f"--server={self.server.url}"
        return await kubectls.run(
            self.kubectls[name], server, *argv, env=self.env | env, stdin=stdin
        )

    def spoken(self) -> tuple[str, str]:
        """What the last stream was upgraded to, and its version."""
        upgrade, server = self.server.pods.served[-1]
        return upgrade, server.protocol

    def in_terminal(self, name: str, *argv: str) -> Program:
        """Start a kubectl in a terminal of 80 by 24."""
        server = f"--server={self.server.url}"
        program = terminal([self.kubectls[name], server, *argv], **self.env)
        self.addCleanup(program.stop)
        return program


def expected(name: str) -> tuple[str, str]:
    """What a kubectl speaks by itself."""
    carrier = kubectls.carrier(name)
    return carrier, "v4.channel.k8s.io" if carrier == "SPDY/3.1" else "v5.channel.k8s.io"


class ExecTests(KubectlTestCase):
    """``kubectl exec`` and ``attach``, every version."""

    async def test_input(self) -> None:
        """A megabyte goes in, the same comes out, its end ends the session."""
        data = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(32768))
        data = data.hex().encode()[: 1 << 20]
        for name in self.kubectls:
            code, stdout, told = await self.run_kubectl(
                name, "exec", "-i", "p1", "--", "cat", stdin=data
            )
            self.assertEqual((code, stdout == data.decode()), (0, True), (name, told[-300:]))
            self.assertEqual(self.spoken(), expected(name), name)

    async def test_output(self) -> None:
        """Three megabytes, from the first byte to the last, though the end is at once."""
        output = b"".join(b"%015d\n" % number for number in range(3 << 16))
        self.attach = lambda: Command(output)
        for name in self.kubectls:
            code, stdout, _ = await self.run_kubectl(name, "exec", "p1", "--", "ls")
            self.assertEqual((code, stdout == output.decode()), (0, True), name)

    async def test_exit_code(self) -> None:
        """kubectl exits as the process did."""
        self.attach = lambda: Command(b"out\n", Ending(COMPLETED, exit_code=7))
        for name in self.kubectls:
            code, stdout, told = await self.run_kubectl(name, "exec", "p1", "--", "ls")
            self.assertEqual((code, stdout), (7, "out\n"), name)
            self.assertIn("command terminated with exit code 7", told)

    async def test_failure(self) -> None:
        """Any other ending is told in its own words."""
        self.attach = lambda: Command(b"out\n", Ending(LINE_LOST, "the line is lost"))
        for name in self.kubectls:
            code, stdout, told = await self.run_kubectl(name, "exec", "p1", "--", "ls")
            self.assertEqual((code, stdout), (1, "out\n"), name)
            self.assertIn("error: the line is lost", told)

    async def test_many(self) -> None:
        """Short sessions, one after the other, and none of them hangs or says less."""
        self.attach = lambda: Command(b"out\n", Ending(COMPLETED, exit_code=7))
        for number in range(40):
            code, stdout, _ = await self.run_kubectl("kubectl.1.27", "exec", "p1", "--", "ls")
            self.assertEqual((code, stdout), (7, "out\n"), number)

    async def test_terminal(self) -> None:
        """``attach -it``: keys, sizes, the process's code."""
        self.attach = Terminal
        for name in self.kubectls:
            program = self.in_terminal(name, "attach", "-it", "p1")
            await program.until(rb"\[80x24\]")
            resize(program, 100, 30)
            await program.until(rb"\[100x30\]")
            program.type(b"x")
            await program.until(rb"<x>")
            program.type(b"q")
            self.assertEqual(await program.ended, 3, name)
            self.assertEqual(self.spoken(), expected(name), name)

    async def test_interrupted(self) -> None:
        """A kubectl that is killed leaves nothing behind."""
        self.attach = Terminal
        for name in ("kubectl.1.27", "kubectl.1.33"):
            program = self.in_terminal(name, "exec", "-it", "p1", "--", "sh")
            await program.until(rb"\[80x24\]")
            detached = self.attachments[-1].detached_with
            self.assertEqual(detached, [])
            await program.stop(9)
            await until(lambda detached=detached: detached)
            self.assertEqual(len(detached), 1)


class VersionTests(KubectlTestCase):
    """Older versions of SPDY's remote command, and falling back to it."""

    async def test_older(self) -> None:
        """A server that speaks no newer one is spoken to in versions 3, 2 and 1."""
        for version in ("v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"):
            self.patch(negotiation, "SPDY_PROTOCOLS", (version,))
            code, stdout, _ = await self.run_older(b"out\n", SUCCESS)
            self.assertEqual((code, stdout, self.spoken()[1]), (0, "out\n", version))
            code, stdout, told = await self.run_older(
                b"out\n", Ending(LINE_LOST, "the line is lost")
            )
            self.assertEqual(code, 1, version)
            self.assertIn("the line is lost", told)
            if version != "channel.k8s.io":  # whose kubectl drops its output for an error
                self.assertEqual(stdout, "out\n", version)

    async def run_older(self, output: bytes, ending: Ending) -> tuple[int, str, str]:
        self.attach = lambda: Command(output, ending)
        return await self.run_kubectl("kubectl.1.27", "exec", "p1", "--", "ls")

    async def test_input_of_older(self) -> None:
        """In versions 2 and 3 input ends as well."""
        for version in ("v3.channel.k8s.io", "v2.channel.k8s.io"):
            self.patch(negotiation, "SPDY_PROTOCOLS", (version,))
            code, stdout, _ = await self.run_kubectl(
                "kubectl.1.27", "exec", "-i", "p1", "--", "cat", stdin=b"hello"
            )
            self.assertEqual((code, stdout), (0, "hello"), version)

    async def test_fall_back(self) -> None:
        """A kubectl whose WebSocket is refused speaks SPDY, and nobody notices."""
        self.patch(negotiation, "PROTOCOLS", ("v4.channel.k8s.io",))
        for name in self.kubectls:
            code, stdout, told = await self.run_kubectl(
                name, "exec", "-i", "p1", "--", "cat", stdin=b"hello"
            )
            self.assertEqual((code, stdout), (0, "hello"), (name, told))
            self.assertEqual(self.spoken(), ("SPDY/3.1", "v4.channel.k8s.io"), name)

    async def test_by_choice(self) -> None:
        """Its user may choose, too."""
        for name, choice, upgrade in (
            ("kubectl.1.29", "true", "websocket"),
            ("kubectl.1.33", "false", "SPDY/3.1"),
        ):
            code, stdout, _ = await self.run_kubectl(
                name,
                *("exec", "-i", "p1", "--", "cat"),
                stdin=b"hello",
                KUBECTL_REMOTE_COMMAND_WEBSOCKETS=choice,
            )
            self.assertEqual((code, stdout, self.spoken()[0]), (0, "hello", upgrade), name)

    async def test_nothing_in_common(self) -> None:
        """A refusal is told in the server's own words."""
        self.patch(negotiation, "PROTOCOLS", ("v9.channel.k8s.io", "v8.channel.k8s.io"))
        self.patch(negotiation, "SPDY_PROTOCOLS", ("v9.channel.k8s.io", "v8.channel.k8s.io"))
        for name in self.kubectls:
            code, _, told = await self.run_kubectl(name, "exec", "p1", "--", "ls")
            self.assertEqual(code, 1, name)
            self.assertIn("no stream protocol in common", told)
