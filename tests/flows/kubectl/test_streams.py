"""
Stock kubectls with our streams: protocols, output and exit codes.

Versions up to 1.29 use SPDY, later versions try WebSockets first.
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

from tests import needs
from tests.flows import kubectls
from tests.flows.programs import Program, resize, terminal
from tests.tiers import PROGRAMS
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    LINE_LOST,
    Ending,
    IAttachment,
    IAttachmentTransport,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand import carriers
from twisted_exec.testing.console import EchoAttachment, RecordingAttachment

from .pods import PodServer

SUCCESS = Ending(COMPLETED)


@implementer(IPushProducer)
class Command(RecordingAttachment):
    """Prints its output and ends as soon as the transport accepts data."""

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
        """Ignore that the user left."""


class Terminal(RecordingAttachment):
    """Prints ``size?`` and each size that it receives; a ``q`` ends it."""

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
    """Run the reactor until ``condition()`` is true; the test's timeout bounds the wait."""
    while not condition():
        await deferLater(reactor, 0)  # type: ignore[arg-type]


class KubectlTestCase(TestCase):
    """A server with one Pod, and every kubectl of this machine."""

    starts = PROGRAMS
    exact = True
    skip = needs.kubectls()

    async def setUp(self) -> None:
        self.kubectls = kubectls.found()
        # An empty file, because without a kubeconfig kubectl looks for the cluster it runs in.
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
        """Run kubectl; return its exit code, standard output, and all of its output."""
        server = f"--server={self.server.url}"
        return await kubectls.run(
            self.kubectls[name], server, *argv, env=self.env | env, stdin=stdin
        )

    def spoken(self) -> tuple[str, str]:
        """Return the upgrade of the last stream, and its protocol version."""
        upgrade, server = self.server.pods.served[-1]
        return upgrade, server.protocol

    def in_terminal(self, name: str, *argv: str) -> Program:
        """Start a kubectl in a terminal of 80 by 24."""
        server = f"--server={self.server.url}"
        program = terminal([self.kubectls[name], server, *argv], **self.env)
        self.addCleanup(program.stop)
        return program


def expected(name: str) -> tuple[str, str]:
    """Return a kubectl's default upgrade and protocol version."""
    carrier = kubectls.carrier(name)
    return carrier, "v4.channel.k8s.io" if carrier == "SPDY/3.1" else "v5.channel.k8s.io"


class ExecTests(KubectlTestCase):
    """``kubectl exec`` and ``attach``, every version."""

    async def test_input(self) -> None:
        """A megabyte of input is echoed completely, and its end ends the session."""
        data = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(32768))
        data = data.hex().encode()[: 1 << 20]
        for name in self.kubectls:
            code, stdout, told = await self.run_kubectl(
                name, "exec", "-i", "p1", "--", "cat", stdin=data
            )
            self.assertEqual((code, stdout == data.decode()), (0, True), (name, told[-300:]))
            self.assertEqual(self.spoken(), expected(name), name)

    async def test_output(self) -> None:
        """Three megabytes of output arrive completely, although the session ends at once."""
        output = b"".join(b"%015d\n" % number for number in range(3 << 16))
        self.attach = lambda: Command(output)
        for name in self.kubectls:
            code, stdout, _ = await self.run_kubectl(name, "exec", "p1", "--", "ls")
            self.assertEqual((code, stdout == output.decode()), (0, True), name)

    async def test_exit_code(self) -> None:
        """kubectl exits with the exit code of the process."""
        self.attach = lambda: Command(b"out\n", Ending(COMPLETED, exit_code=7))
        for name in self.kubectls:
            code, stdout, told = await self.run_kubectl(name, "exec", "p1", "--", "ls")
            self.assertEqual((code, stdout), (7, "out\n"), name)
            self.assertIn("command terminated with exit code 7", told)

    async def test_failure(self) -> None:
        """For other failures kubectl exits with 1 and prints their message."""
        self.attach = lambda: Command(b"out\n", Ending(LINE_LOST, "the line is lost"))
        for name in self.kubectls:
            code, stdout, told = await self.run_kubectl(name, "exec", "p1", "--", "ls")
            self.assertEqual((code, stdout), (1, "out\n"), name)
            self.assertIn("error: the line is lost", told)

    async def test_many(self) -> None:
        """Many short sessions in sequence are complete, and none of them hangs."""
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
        """A killed kubectl detaches its attachment."""
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
    """Older versions of SPDY remote command, and the fallback to SPDY."""

    async def test_older(self) -> None:
        """Versions 3, 2 and 1 work when the server supports nothing newer."""
        for version in ("v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"):
            self.patch(carriers, "SPDY_PROTOCOLS", (version,))
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
        """Versions 2 and 3 also signal the end of input."""
        for version in ("v3.channel.k8s.io", "v2.channel.k8s.io"):
            self.patch(carriers, "SPDY_PROTOCOLS", (version,))
            code, stdout, _ = await self.run_kubectl(
                "kubectl.1.27", "exec", "-i", "p1", "--", "cat", stdin=b"hello"
            )
            self.assertEqual((code, stdout), (0, "hello"), version)

    async def test_fall_back(self) -> None:
        """A kubectl whose WebSocket is refused falls back to SPDY without an error."""
        self.patch(carriers, "PROTOCOLS", ("v4.channel.k8s.io",))
        for name in self.kubectls:
            code, stdout, told = await self.run_kubectl(
                name, "exec", "-i", "p1", "--", "cat", stdin=b"hello"
            )
            self.assertEqual((code, stdout), (0, "hello"), (name, told))
            self.assertEqual(self.spoken(), ("SPDY/3.1", "v4.channel.k8s.io"), name)

    async def test_by_choice(self) -> None:
        """``KUBECTL_REMOTE_COMMAND_WEBSOCKETS`` selects the protocol."""
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
        """Without a common protocol, kubectl prints the server's refusal."""
        self.patch(carriers, "PROTOCOLS", ("v9.channel.k8s.io", "v8.channel.k8s.io"))
        self.patch(carriers, "SPDY_PROTOCOLS", ("v9.channel.k8s.io", "v8.channel.k8s.io"))
        for name in self.kubectls:
            code, _, told = await self.run_kubectl(name, "exec", "p1", "--", "ls")
            self.assertEqual(code, 1, name)
            self.assertIn("no stream protocol in common", told)
