"""Tests for sessions of :mod:`twisted_exec.kube.console` that are resumed: real sockets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import TCP4ServerEndpoint, clientFromString, connectProtocol
from twisted.internet.interfaces import IHostnameResolver
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from tests.chain import until
from tests.kube.plugins import PluginScript
from tests.kube.test_console_endpoint import Collector
from tests.streaming.remotecommand.resuming import ResumingUser
from tests.tiers import PROGRAMS
from twisted_exec.api.status import APIError
from twisted_exec.kube.console import ConsoleOptions, open_console
from twisted_exec.kube.console_endpoint import ConsoleEndpoint, ConsoleLost
from twisted_exec.kube.interfaces import IRecordedProtocol, IResumableProtocol
from twisted_exec.kube.kubeconfig import headers as transport
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.streaming.remotecommand.carriers import OVER_SPDY
from twisted_exec.streaming.remotecommand.client import ConsoleClient
from twisted_exec.streaming.remotecommand.resuming_client import ResumingClient
from twisted_exec.testing.resumable_console import ResumableConsole
from twisted_exec.wire.channel import V4
from twisted_exec.wire.marks import Attendance, OpenRecording
from twisted_exec.wire.stream_options import CONSOLE

reactor: Any = _reactor

RECORDING = OpenRecording("masked", "ada")


class UserWithRole(ResumingUser):
    """A user who knows the role of the session."""

    is_observer = False


class ResumeCase(TestCase):
    """A console whose sessions can be resumed, at ``self.config``."""

    async def setUp(self) -> None:
        self.server = ResumableConsole(reactor)
        port = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(self.server)
        self.addCleanup(self.until, lambda: not self.server.live)
        self.addCleanup(lambda: maybeDeferred(port.stopListening))
        self.config = ClientConfig(f"http://127.0.0.1:{port.getHost().port}")
        self.user = ResumingUser()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await deferLater(reactor, 0.005)

    def opening(self, **more: Any) -> Deferred[Any]:
        config = more.pop("config", self.config)
        return open_console(config, "default", "vm", self.user, reactor, ConsoleOptions(**more))

    def lose(self) -> None:
        """Break the connection, on which something is under way."""
        self.server.print(b"on its way")
        for connection in self.server.live:
            connection.cut()


class Mute(Factory):
    """A server that may accept connections without an answer."""

    is_mute = False

    def __init__(self, console: ResumableConsole) -> None:
        self.console = console

    def buildProtocol(self, addr: Any) -> Protocol:
        return Protocol() if self.is_mute else self.console.buildProtocol(addr)


@implementer(IHostnameResolver)
class Names:
    """Resolves each name to these addresses, in this order."""

    def __init__(self, hosts: list[str]) -> None:
        self.hosts = hosts

    def resolveHostName(
        self, receiver: Any, hostName: str, portNumber: int = 0, *rest: Any, **more: Any
    ) -> Any:
        receiver.resolutionBegan(None)
        for host in self.hosts:
            receiver.addressResolved(IPv4Address("TCP", host, portNumber))
        receiver.resolutionComplete()


class OpenConsoleTests(ResumeCase):
    """What a resumed session goes to, and with which credentials."""

    starts = PROGRAMS

    async def test_resumed(self) -> None:
        """The session goes on at the same path, with the same protocol and options."""
        read_only = replace(CONSOLE, read_only=True)
        stream = await self.opening(protocols=[OVER_SPDY, V4][1:], stream=read_only, reason="why")
        self.assertIsInstance(stream, ResumingClient)
        self.assertIs(self.user.stream, stream)
        self.lose()
        stream.write(b"typed")
        await self.until(lambda: self.user.received == b"on its way" and bool(self.server.line))
        (first, its_headers), (second, headers) = self.server.heads
        self.assertEqual(first, second)
        self.assertIn("readOnly=true", second)
        self.assertIn("reason=why", second)
        for name in ("user-agent", "host", "sec-websocket-protocol"):
            self.assertEqual(headers[name], its_headers[name])
        self.assertEqual(its_headers["x-twisted-exec-resume"], "marks")
        stream.leave()
        await self.until(lambda: bool(self.user.detached_with))
        self.assertEqual(self.server.sessions, [])

    async def test_role(self) -> None:
        """The request that resumes says that the user is an observer by now."""
        await self.check_role(is_observer=True)

    async def test_other_role(self) -> None:
        """The request that resumes does not say that the user is an observer who is none any more."""
        await self.check_role(is_observer=False)

    async def check_role(self, *, is_observer: bool) -> None:
        self.user = user = UserWithRole()
        stream = await self.opening(stream=replace(CONSOLE, observe=not is_observer))
        user.is_observer = is_observer
        self.lose()
        await self.until(lambda: len(user.returns) == 1)
        asked = ["observe=true" in path for path, _ in self.server.heads]
        self.assertEqual(asked, [not is_observer, is_observer])
        stream.leave()
        await self.until(lambda: bool(user.detached_with))

    async def test_not_resumable(self) -> None:
        """The user of a server that cannot resume gets the connection itself."""
        self.server.agrees = False
        stream = await self.opening()
        self.assertIsInstance(stream, ConsoleClient)
        self.lose()
        await self.until(lambda: bool(self.user.detached_with))
        self.assertEqual(len(self.server.heads), 1)

    async def test_not_wanted(self) -> None:
        """With ``resume=False`` the client does not ask."""
        stream = await self.opening(resume=False)
        self.assertIsInstance(stream, ConsoleClient)
        self.assertNotIn("x-twisted-exec-resume", self.server.heads[0][1])
        stream.leave()
        await self.until(lambda: bool(self.user.detached_with))

    async def test_current_credentials(self) -> None:
        """A resumed session has the credentials of its time."""
        token = Path(self.mktemp())
        token.write_text("first")
        stream = await self.opening(config=replace(self.config, token_file=str(token)))
        token.write_text("second")
        self.lose()
        await self.until(lambda: bool(self.user.returns))
        shown = [headers["authorization"] for _, headers in self.server.heads]
        self.assertEqual(shown, ["Bearer first", "Bearer second"])
        token.unlink()  # they may be missing for a while
        looks: list[Any] = []
        shown_of = transport.auth_headers

        def look(config: ClientConfig) -> Any:
            looks.append(config)
            return shown_of(config)

        self.patch(transport, "auth_headers", look)
        self.lose()
        await self.until(lambda: bool(looks))
        token.write_text("third")
        await self.until(lambda: len(self.user.returns) == 2)
        self.assertEqual(self.server.heads[-1][1]["authorization"], "Bearer third")
        stream.leave()
        await self.until(lambda: bool(self.user.detached_with))

    async def test_renewed_credentials(self) -> None:
        """After a 401 the plugin runs once more; a second 401 is the end."""
        script = PluginScript(Path(self.mktemp()), "answer(token=f't{count}')")
        await self.opening(config=replace(self.config, plugin=script.plugin()))
        self.server.refusals = [(401, None)]
        self.lose()
        await self.until(lambda: bool(self.user.returns))
        shown = [headers["authorization"] for _, headers in self.server.heads]
        self.assertEqual(shown, ["Bearer t1", "Bearer t1", "Bearer t2"])
        self.server.refusals = [(401, None)] * 2
        self.lose()
        await self.until(lambda: bool(self.user.detached_with))
        self.assertIn("could not be resumed: refused with 401", self.user.detached_with[0])

    async def test_all_addresses(self) -> None:
        """
        The session goes on at another address of the server's name, though the first one accepts
        connections and does not answer.
        """
        mute = Mute(self.server)
        first = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(mute)
        self.addCleanup(lambda: maybeDeferred(first.stopListening))
        number = first.getHost().port
        other = TCP4ServerEndpoint(reactor, number, interface="127.0.0.2")
        second = await other.listen(self.server)
        self.addCleanup(lambda: maybeDeferred(second.stopListening))
        names = reactor.installNameResolver(Names(["127.0.0.1", "127.0.0.2"]))
        self.addCleanup(reactor.installNameResolver, names)
        stream = await self.opening(config=replace(self.config, server=f"http://api.test:{number}"))
        self.assertEqual(stream.transport.getPeer().host, "127.0.0.1")
        mute.is_mute = True
        self.lose()
        took = await until(lambda: self.user.returns)
        self.assertEqual(stream.transport.getPeer().host, "127.0.0.2")
        self.assertLess(took, 5)
        stream.leave()
        await self.until(lambda: bool(self.user.detached_with))

    async def test_refused(self) -> None:
        """The user reads why the session cannot be resumed, and what to do."""
        await self.opening()
        self.server.refusals = [(503, None), (403, None)]
        self.lose()
        await self.until(lambda: bool(self.user.detached_with))
        self.assertEqual(
            self.user.detached_with,
            ["the session could not be resumed: refused with 403; open the console again"],
        )

    async def test_refused_at_first(self) -> None:
        """The first connection fails as any other."""
        self.server.refusals = [(409, None)]
        error = await self.assertFailure(self.opening(), APIError)
        self.assertEqual(error.code, 409)

    async def test_give_up(self) -> None:
        """A limit ends the attempts."""
        await self.opening(give_up_seconds=0.2)
        self.server.refusals = [(503, None)] * 100
        self.lose()
        await self.until(lambda: bool(self.user.detached_with))
        self.assertIn("no connection within 0.2 s: refused with 503", self.user.detached_with[0])


@implementer(IResumableProtocol)
class Interested(Collector):
    """A protocol that records what it learns of losses."""

    def __init__(self) -> None:
        super().__init__()
        self.news: list[Any] = []

    def outage(self, reason: str) -> None:
        self.news.append("outage")

    def resumed(self, seconds: float, uncertain: int) -> None:
        self.news.append(("resumed", uncertain))

    def notice(self, text: str) -> None:
        self.news.append(text)

    def skipped(self, count: int | None) -> None:
        self.news.append(("skipped", count))


@implementer(IRecordedProtocol)
class Recorded(Collector):
    """A protocol that records what it learns of recordings."""

    def __init__(self) -> None:
        super().__init__()
        self.recordings: list[tuple[OpenRecording, ...]] = []

    def recordings_changed(self, recordings: tuple[OpenRecording, ...]) -> None:
        self.recordings.append(recordings)


class ConsoleEndpointTests(ResumeCase):
    """Protocols over a loss."""

    async def test_plain_protocol(self) -> None:
        """A protocol goes on as if nothing had happened; messages are in its output."""
        console = await connectProtocol(
            ConsoleEndpoint(self.config, "default", "vm", reactor), Collector()
        )
        self.lose()
        console.transport.write(b"typed")
        console.transport.loseWriteConnection()
        await console.until(b"on its way")
        await self.until(lambda: None in self.server.line)
        self.server.notice("hello")
        await console.until(b"\r\n[twisted-exec: hello]\r\n")
        self.assertEqual(self.server.line, [b"typed", None])
        console.transport.loseConnection()
        await console.over
        self.assertEqual(self.server.sessions, [])

    async def test_interested_protocol(self) -> None:
        """A protocol with the interface learns of losses, messages and gaps."""
        console = await connectProtocol(
            ConsoleEndpoint(self.config, "default", "vm", reactor), Interested()
        )
        self.server.notice("hello")
        await self.until(lambda: bool(console.news))
        self.lose()
        self.server.forget(3)
        await console.until(b"its way")
        self.assertEqual(console.news, ["hello", "outage", ("resumed", 0), ("skipped", 3)])
        self.server.refusals = [(404, None)] * 2  # for both keys
        self.lose()
        reason = await console.over
        assert isinstance(reason, ConsoleLost)
        self.assertIn("could not be resumed", str(reason))

    async def test_recordings(self) -> None:
        """A protocol with the interface learns of recordings of all users that begin and end."""
        console = await connectProtocol(
            ConsoleEndpoint(self.config, "default", "vm", reactor), Recorded()
        )
        for recordings in ((), (RECORDING,), (RECORDING,), ()):
            self.server.attendance(Attendance(1, recordings=recordings))
        await self.until(lambda: len(console.recordings) == 2)
        self.assertEqual(console.recordings, [(RECORDING,), ()])
        console.transport.loseConnection()
        await console.over

    async def test_recordings_logged(self) -> None:
        """Without the interface they are logged."""
        console = await connectProtocol(
            ConsoleEndpoint(self.config, "default", "vm", reactor), Collector()
        )
        with capturedLogs() as captured:
            self.server.attendance(Attendance(1, recordings=(RECORDING,)))
            await self.until(lambda: bool(captured))
        self.assertEqual(
            formatEvent(captured[0]),
            "the console of default/vm is recorded for ada (input: masked)",
        )
        console.transport.loseConnection()
        await console.over

    async def test_string(self) -> None:
        """``resume=no`` in the endpoint's name asks for an ordinary session."""
        path = Path(self.mktemp())
        path.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: t\n"
            "contexts: [{name: t, context: {cluster: t, user: t}}]\nusers: [{name: t, user: {}}]\n"
            f"clusters: [{{name: t, cluster: {{server: '{self.config.server}'}}}}]\n"
        )
        for more, asks in (("", True), (":resume=yes", True), (":resume=no", False)):
            endpoint = clientFromString(reactor, f"console:vm:kubeconfig={path.resolve()}{more}")
            console = await connectProtocol(endpoint, Collector())
            self.assertEqual("x-twisted-exec-resume" in self.server.heads[-1][1], asks)
            console.transport.loseConnection()
            await console.over
        self.assertRaises(ValueError, clientFromString, reactor, "console:vm:resume=maybe")
