"""
Every protocol of a console, through API server, poollet and runtime over TLS.
"""

from __future__ import annotations

from dataclasses import replace

from twisted.internet import reactor
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from tests.flows import shared
from tests.tiers import PROGRAMS
from twisted_exec.kube.console import ConsoleOptions, open_console
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.streaming.interfaces import Break, Role, TerminalSize
from twisted_exec.streaming.remotecommand.carriers import OVER_SPDY
from twisted_exec.streaming.remotecommand.client import ConsoleClient
from twisted_exec.streaming.remotecommand.server import NO_BREAK, READ_ONLY
from twisted_exec.testing.console import RecordingUser
from twisted_exec.wire.channel import PROTOCOLS, UNNAMED
from twisted_exec.wire.stream_options import CONSOLE, StreamOptions


class ProtocolTests(TestCase):
    """The hops between client and machine relay every protocol."""

    starts = PROGRAMS

    async def setUp(self) -> None:
        self.deployment = await shared.deployment(self)
        await self.deployment.create_machine("sh", "shell")

    async def opened(
        self, protocol: str, asked: StreamOptions = CONSOLE
    ) -> tuple[ConsoleClient, RecordingUser]:
        config, user = load(self.deployment.admin), RecordingUser()
        client = await open_console(
            config,
            config.namespace,
            "sh",
            user,
            reactor,
            ConsoleOptions(protocols=(protocol,), stream=asked),
        )
        return client, user

    async def shows(self, user: RecordingUser, text: bytes) -> None:
        """Wait until the user has received ``text``; the test's timeout bounds the wait."""
        while text not in user.received:
            self.assertEqual(user.detached_with, [])
            await deferLater(reactor, 0.01)  # type: ignore[arg-type]

    async def test_22_every_protocol(self) -> None:
        """
        Keys, output, sizes, break and role requests, and leaving work the same in every protocol.
        """
        for number, protocol in enumerate((*PROTOCOLS, UNNAMED, OVER_SPDY)):
            client, user = await self.opened(protocol)
            spoken = "v4.channel.k8s.io" if protocol == OVER_SPDY else protocol
            self.assertEqual(client.protocol, spoken)
            client.write(b"echo $((6*%d))=\n" % number)
            await self.shows(user, b"\n%d=" % (6 * number))
            client.resize(TerminalSize(100 + number, 30))
            client.write(b"stty size\n")
            await self.shows(user, b"30 %d" % (100 + number))
            client.wish(Break())
            await self.shows(user, NO_BREAK.output)
            client.wish(Role.WRITER)
            await self.shows(user, b"you are the writer of this console")
            client.leave()
            while not user.detached_with:
                await deferLater(reactor, 0.01)  # type: ignore[arg-type]
            self.assertEqual((user.endings, len(user.detached_with)), ([], 1), protocol)

    async def test_end_of_input(self) -> None:
        """
        The end of input ends the attachment successfully after a while, where it can be signalled.
        """
        for protocol in ("v5.channel.k8s.io", OVER_SPDY):
            client, user = await self.opened(protocol)
            client.write(b"echo $((6*7))\n")
            await self.shows(user, b"\n42\r\n")  # a session does not wait long for an answer
            client.end_input()
            while not user.detached_with:
                await deferLater(reactor, 0.01)  # type: ignore[arg-type]
            (ending,) = user.endings
            self.assertTrue(ending.is_success, protocol)

    async def test_looking_on(self) -> None:
        """A read-only user sees the driver's output, and cannot type, resize or take over."""
        driver, drives = await self.opened("v5.channel.k8s.io")
        driver.resize(TerminalSize(90, 33))
        for number, protocol in enumerate((*PROTOCOLS, UNNAMED, OVER_SPDY)):
            client, user = await self.opened(protocol, replace(CONSOLE, read_only=True))
            client.resize(TerminalSize(1, 1))
            client.wish(Role.WRITER)
            client.write(b"echo mine\n")
            await self.shows(user, READ_ONLY.output)
            driver.write(b"stty size; echo seen $((%d+1))\n" % number)
            for one in (user, drives):
                await self.shows(one, b"\nseen %d\r\n" % (number + 1))
            self.assertIn(b"33 90", user.received)
            client.leave()
            while not user.detached_with:
                await deferLater(reactor, 0.01)  # type: ignore[arg-type]
        self.assertNotIn(b"mine", drives.received)
        driver.leave()
        while not drives.detached_with:
            await deferLater(reactor, 0.01)  # type: ignore[arg-type]
