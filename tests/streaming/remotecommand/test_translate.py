"""Tests for :mod:`twisted_exec.streaming.remotecommand.translate`: through a proxy, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.streaming.foreign import Foreign
from tests.streaming.http.test_upgrade_client import OneConnection
from tests.streaming.passing import carry
from tests.streaming.sessions.test_registry import Records
from twisted_exec.api.status import APIError, Conflict
from twisted_exec.observe.audit import Trail
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.request import Request
from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.site import Site
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    INTERNAL,
    LINE_LOST,
    MACHINE_DELETED,
    REVOKED,
    Break,
    Ending,
    IStreamLocator,
    Location,
    Role,
    TerminalSize,
)
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.remotecommand.bridge import LOST, SILENT_SECONDS
from twisted_exec.streaming.remotecommand.client import ConsoleClient, connect
from twisted_exec.streaming.remotecommand.negotiation import OVER_SPDY
from twisted_exec.streaming.remotecommand.server import READ_ONLY
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.testing.attachment import EchoAttachment, RecordingAttachment, RecordingUser
from twisted_exec.testing.network import BUFFER_BYTES, MemoryNetwork
from twisted_exec.wire.channel import TERMINAL, V1, V4, V5, Channel
from twisted_exec.wire.session_terms import Right, Terms
from twisted_exec.wire.upgrade import accept_key, switching_protocols

SUCCESS = {"metadata": {}, "status": "Success"}


@implementer(IStreamLocator)
class Locator:
    """
    Leads to one place, whose path is good for one request.

    :ivar control: where requests about open sessions go, if not there.
    """

    def __init__(self, endpoint: Any, tokens: set[bytes]) -> None:
        self.endpoint, self.tokens = endpoint, tokens
        self.located = 0
        self.streams: Any = TERMINAL
        self.problem: APIError | None = None
        self.control: Any = None

    def locate(self, context: RequestContext) -> Deferred[Location]:
        context.learn(session="s-1", user="ann", machine="vm")
        return self._to(context.subject)

    def _to(self, subject: Any) -> Deferred[Location]:
        if self.problem is not None and self.located:
            return fail(self.problem)
        self.located += 1
        path = b"/exec/%d" % self.located
        self.tokens.add(path)
        location = Location(
            subject,
            [("the runtime", self.endpoint)],
            path,
            b"runtime",
            [(b"X-Ours", b"yes")],
            streams=self.streams,
            again=lambda: self._to(subject),
        )
        if self.control is None:
            return succeed(location)
        control = replace(location, endpoints=[("the runtime", self.control)])
        return succeed(replace(location, later=lambda: succeed(control)))


class Proxying(Dispatcher):
    """:ivar request: the latest."""

    request: Any

    def __init__(self, proxy: Proxy) -> None:
        super().__init__()
        self.proxy = proxy

    async def dispatch(self, request: Request) -> None:
        self.request = request
        await carry(self.proxy, request)


class TranslateTestCase(SynchronousTestCase):
    """A user, a proxy, and a next hop that may not speak what the user does."""

    protocols: Sequence[str] = (V5,)

    def setUp(self) -> None:
        self.start()

    def start(self, **more: Any) -> None:
        self.clock, self.network = Clock(), MemoryNetwork()
        self.records = Records()
        self.foreign = Foreign(self.clock, **more)
        self.sessions = Sessions(Trail(self.records, "poollet", self.clock))
        endpoint = self.network.endpoint(Site(self.foreign, self.clock))
        self.locator = Locator(endpoint, self.foreign.tokens)
        self.proxy = Proxy(self.locator, hop="poollet", sessions=self.sessions, clock=self.clock)
        self.proxying = Proxying(self.proxy)
        self.entry = self.network.endpoint(Site(self.proxying, self.clock))
        self.user = RecordingUser()

    def ask(self, path: bytes = b"/machines/vm/exec") -> Deferred[ConsoleClient]:
        head = UpgradeRequest(b"GET", path, b"localhost", [(b"Authorization", b"Bearer secret")])
        opening = connect(
            self.entry,
            head,
            self.user,
            clock=self.clock,
            timeout_seconds=60,
            protocols=self.protocols,
        )
        self.network.pump()
        return opening

    def open(self, **more: Any) -> ConsoleClient:
        return self.successResultOf(self.ask(**more))

    def refused(self) -> APIError:
        error = self.failureResultOf(self.ask(), APIError).value
        assert isinstance(error, APIError)
        self.records.check_pairs()
        self.assertEqual(self.records.ends()[0][1], error.code)
        self.assertEqual(len(self.sessions), 0)
        self.assertTrue(all(each.lost for each in self.network.transports))
        return error

    @property
    def attachment(self) -> RecordingAttachment:
        return self.foreign.attachments[-1]

    def over(self, reason: str) -> dict[str, Any]:
        """Check that the session ended once, and that no connection or timer is left."""
        self.network.pump()
        self.records.check_pairs()
        self.assertEqual(self.records.ends(), [(reason, None)])
        self.assertEqual(len(self.user.detached_with), 1)
        self.assertEqual(len(self.attachment.detached_with), 1)
        self.assertTrue(all(each.lost for each in self.network.transports))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        return self.records.all[-1]


class WayTests(TranslateTestCase):
    """When sessions are translated, and the request to the next hop."""

    def test_22_refused_version(self) -> None:
        """If the next hop refuses version 5, a second request, located anew, asks for SPDY."""
        client = self.open()
        self.assertEqual(self.foreign.asked, [b"websocket", b"SPDY/3.1"])
        self.assertEqual((client.protocol, client.session), (V5, "s-1"))
        self.assertEqual(self.foreign.servers[0].protocol, V4)
        self.assertEqual(self.locator.located, 2)

    def test_in_our_name(self) -> None:
        """The request for SPDY has the hop's own headers and only known query parameters."""
        self.open(path=b"/machines/vm/exec?stdin=true&stdout=true&tty=1&readOnly=true&evil=1")
        head = self.foreign.heads[1]
        self.assertEqual((head[b"X-Ours"], head[b"Audit-Id"]), ([b"yes"], [b"s-1"]))
        self.assertNotIn(b"Authorization", head)
        self.assertNotIn(b"Sec-Websocket-Key", head)
        asked = {b"stdin": [b"true"], b"stdout": [b"true"], b"tty": [b"true"]}
        self.assertEqual(self.foreign.queries, [asked | {b"readOnly": [b"true"]}])

    def test_not_needed(self) -> None:
        """If the next hop accepts the user's protocol, no other is tried."""
        self.protocols = (V4,)
        self.open()
        self.assertEqual(self.foreign.asked, [b"websocket"])
        self.protocols = (OVER_SPDY,)
        self.start()
        self.open()
        self.assertEqual(self.foreign.asked, [b"SPDY/3.1"])

    def test_22_spdy_to_websocket(self) -> None:
        """
        For a SPDY user, a next hop with WebSockets only gets a request for its newest version.
        """
        self.protocols = (OVER_SPDY,)
        for speaks, chosen in (((V5, V4), V5), ((V4,), V4)):
            self.start(speaks=speaks, spdy=False)
            client = self.open()
            self.assertEqual(client.protocol, V4)
            self.assertEqual(self.foreign.servers[0].protocol, chosen)

    def test_websocket_to_older_websocket(self) -> None:
        """If the next hop does not speak SPDY either, version 4 is used."""
        self.start(spdy=False)
        self.open()
        self.assertEqual(self.foreign.asked, [b"websocket", b"SPDY/3.1", b"websocket"])
        self.assertEqual(self.foreign.servers[0].protocol, V4)

    def test_nothing_in_common(self) -> None:
        """If every protocol is refused, the user gets the first refusal."""
        self.start(speaks=("v9.channel.k8s.io",), spdy=False)
        error = self.refused()
        self.assertEqual(
            (error.code, error.message), (403, 'machine "vm": the server answered 403')
        )

    def test_other_version_than_offered(self) -> None:
        """A next hop that answers the other way with what was not offered speaks none of ours."""
        self.protocols = (OVER_SPDY,)
        self.start(spdy=False)
        self.locator.endpoint = self.network.endpoint(Site(_Unnamed(self.foreign), self.clock))
        error = self.refused()
        self.assertEqual(error.code, 400)

    def test_no_client_of_a_console(self) -> None:
        """An unknown subprotocol is not translated."""
        self.protocols = ("v9.channel.k8s.io",)
        self.assertEqual(self.refused().code, 403)
        self.assertEqual(self.foreign.asked, [b"websocket"])

    def test_client_left_unnoticed(self) -> None:
        """A client may be gone by the time it is to be answered."""

        def attach() -> RecordingAttachment:
            self.proxying.request.gone = True
            return RecordingAttachment()

        self.foreign.make = attach
        self.ask().addErrback(lambda failure: None)
        self.network.pump()
        self.assertEqual(self.records.ends(), [("client closed", 499)])
        self.assertEqual(len(self.attachment.detached_with), 1)

    def test_refused_otherwise(self) -> None:
        """A refusal for a reason other than the protocol is passed on without another attempt."""
        self.protocols = (OVER_SPDY,)
        self.foreign.refusal = (404, "no such machine")
        error = self.refused()
        self.assertEqual((error.code, self.foreign.asked), (404, [b"SPDY/3.1"]))

    def test_refused_in_the_other_way(self) -> None:
        """A refusal of the second request is passed on."""
        for code in (403, 404, 429, 500):
            self.start()
            self.foreign.refusal = (code, "not now")
            error = self.refused()
            self.assertEqual((error.code, error.message), (code, 'machine "vm": not now'))
            self.assertEqual(self.foreign.asked, [b"websocket", b"SPDY/3.1"])

    def test_unknown_there(self) -> None:
        """A 401 of the next hop is a 502 for the user."""
        self.foreign.refusal = (401, "who are you")
        self.assertEqual(self.refused().code, 502)

    def test_nowhere_to_go(self) -> None:
        """If the locator refuses the second request, the user gets that error."""
        self.locator.problem = Conflict('machine "vm" is being deleted')
        self.assertEqual(self.refused().code, 409)

    def test_not_there(self) -> None:
        """If the next hop does not answer the second request, the user gets a 504."""
        self.locator.endpoint = self.network.endpoint(_Deaf())
        connecting = self.ask()
        self.clock.advance(10)
        self.network.pump()
        self.assertEqual(self.failureResultOf(connecting, APIError).value.code, 504)
        self.records.check_pairs()

    def test_streams_that_do_not_open(self) -> None:
        """
        If the next hop accepts the upgrade but opens no streams within 10 s, the user gets a 502.
        """
        connecting = self.ask_silent()
        self.clock.advance(10)
        self.network.pump()
        error = self.failureResultOf(connecting, APIError).value
        self.assertEqual(error.code, 502)
        self.assertIn("the streams were not opened within 10 s", error.message)
        self.records.check_pairs()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def ask_silent(self) -> Deferred[ConsoleClient]:
        self.locator.endpoint = self.network.endpoint(Site(_Silent(), self.clock))
        return self.ask()

    def test_client_leaves_before(self) -> None:
        """If the client leaves during the upgrade, the connection to the next hop is closed."""
        connecting = self.ask_silent()
        connecting.cancel()
        self.network.pump()
        self.failureResultOf(connecting)
        self.assertTrue(all(each.lost for each in self.network.transports))
        self.assertEqual(self.records.ends(), [("client closed", 499)])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_other_subprotocol(self) -> None:
        """A next hop that answers, but with no subprotocol, speaks none of ours."""
        self.locator.endpoint = self.network.endpoint(Site(_Unnamed(self.foreign), self.clock))
        self.open()
        self.assertEqual(self.foreign.asked, [b"SPDY/3.1"])

    def test_streams(self) -> None:
        """A kubelet waits for the streams of the query; a machine for those of a terminal."""
        for path, opened in (
            (b"/x?stdin=true&stdout=true&stderr=true", {"STDIN", "STDOUT", "STDERR"}),
            (b"/x?stdout=true&stderr=true", {"STDOUT", "STDERR"}),
            (b"/x?stdin=true&stdout=true&tty=true", {"STDIN", "STDOUT", "RESIZE"}),
            (b"/x", {"STDIN", "STDOUT", "RESIZE"}),
        ):
            self.start(query=None)
            self.locator.streams = None
            self.open(path=path)
            ids = self.foreign.servers[0]._carrier.streams._ids
            self.assertEqual({channel.name for channel in ids}, opened | {"ERROR"}, path)

    def test_errors(self) -> None:
        """Errors stay apart from output where the next hop tells them apart."""
        self.locator.streams = None
        self.open(path=b"/x?stdout=true&stderr=true")
        self.foreign.servers[0]._carrier.send(Channel.STDERR, b"oh")
        self.network.pump()
        self.assertEqual(self.user.received, b"oh")


class _Deaf:
    """A server that accepts connections and never answers."""

    def buildProtocol(self, address: Any) -> Any:
        return Protocol()


class _Silent(Dispatcher):
    """Accepts SPDY, and answers no stream."""

    async def dispatch(self, request: Request) -> None:
        if request.requestHeaders.getRawHeaders(b"upgrade") == [b"websocket"]:
            request.channel.transport.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            request.channel.transport.loseConnection()
            return
        version = [(b"X-Stream-Protocol-Version", V4.encode())]
        request.channel.transport.write(switching_protocols(b"SPDY/3.1", version))
        await Deferred()


class _Unnamed(Dispatcher):
    """Accepts any WebSocket without naming a subprotocol; else asks the one inside."""

    def __init__(self, inner: Foreign) -> None:
        super().__init__()
        self.inner = inner

    async def dispatch(self, request: Request) -> None:
        if request.requestHeaders.getRawHeaders(b"upgrade") != [b"websocket"]:
            await self.inner.dispatch(request)
            return
        (key,) = request.requestHeaders.getRawHeaders(b"sec-websocket-key")
        head = switching_protocols(b"websocket", [(b"Sec-WebSocket-Accept", accept_key(key))])
        request.channel.transport.write(head)
        await Deferred()


class TalkTests(TranslateTestCase):
    """Traffic between a version 5 client and a SPDY next hop."""

    def test_both_ways(self) -> None:
        """Input, output, sizes, counted as they are without framing."""
        client = self.open()
        client.resize(TerminalSize(80, 24))
        client.write(b"ls\n")
        self.attachment.transport.write(b"file\n")
        self.network.pump()
        self.assertEqual(self.attachment.sizes, [TerminalSize(80, 24)])
        self.assertEqual((self.attachment.received, self.user.received), (b"ls\n", b"file\n"))
        self.attachment.transport.end(Ending(COMPLETED))
        last = self.over("backend closed")
        self.assertEqual((last["bytes_to_machine"], last["bytes_to_user"]), (3, 5))
        self.assertEqual((last["session"], last["machine"]), ("s-1", "vm"))

    def test_early_output(self) -> None:
        """Output that the machine sends at once is not lost."""
        self.foreign.make = lambda: RecordingAttachment(greeting=b"login: ")
        self.open()
        self.assertEqual(self.user.received, b"login: ")

    def test_over_at_once(self) -> None:
        """Output and exit code of a session that ends at once are not lost."""

        class Short(RecordingAttachment):
            def attached(self, transport: Any) -> None:
                super().attached(transport)
                transport.write(b"bye")
                transport.end(Ending(COMPLETED, exit_code=3))

        self.foreign.make = Short
        self.open()
        self.assertEqual(self.user.received, b"bye")
        self.assertEqual([each.exit_code for each in self.user.endings], [3])
        self.over("backend closed")

    def test_wishes(self) -> None:
        """A BREAK and a role pass as sizes do, in order with what is typed."""
        client = self.open()
        client.resize(TerminalSize(80, 24))
        client.write(b"a")
        client.wish(Break(300))
        client.write(b"b")
        client.wish(Role.DRIVE)
        self.network.pump()
        self.assertEqual(self.attachment.received, b"ab")
        self.assertEqual(self.attachment.wishes, [Break(300), Role.DRIVE])
        self.assertEqual(self.attachment.sizes, [TerminalSize(80, 24)])

    def test_looking_on(self) -> None:
        """readOnly is enforced at this hop, independently of the next one."""
        client = self.open(path=b"/x?stdin=true&stdout=true&tty=true&readOnly=true")
        client.resize(TerminalSize(80, 24))
        client.wish(Break())
        client.wish(Role.DRIVE)
        client.write(b"rm")
        client.write(b" -rf /\n")
        self.attachment.transport.write(b"seen")
        self.network.pump()
        self.assertEqual((self.attachment.received, self.attachment.sizes), (b"", []))
        self.assertEqual(self.attachment.wishes, [])
        self.assertEqual(self.user.received.count(READ_ONLY), 1)
        self.assertIn(b"seen", self.user.received)

    def test_no_input_asked(self) -> None:
        """Without stdin=true, input is dropped silently; terminal sizes still count."""
        client = self.open(path=b"/x?stdout=true&tty=true")
        client.resize(TerminalSize(80, 24))
        client.write(b"typed")
        self.network.pump()
        self.assertEqual((self.attachment.received, self.user.received), (b"", b""))
        self.assertEqual(self.attachment.sizes, [TerminalSize(80, 24)])

    def test_end_of_input(self) -> None:
        """The end of input passes; output goes on, then comes the status."""
        self.foreign.make = EchoAttachment
        client = self.open()
        client.write(b"hello")
        client.end_input()
        self.network.pump()
        self.assertEqual(self.attachment.input_ends, 1)
        self.assertEqual(self.user.received, b"hello")
        self.assertEqual(self.user.endings, [Ending(COMPLETED)])
        self.over("backend closed")

    def test_endings(self) -> None:
        """The user gets reason, exit code and message of the machine's ending."""
        for ending in (
            Ending(COMPLETED),
            Ending(COMPLETED, "the process ended with exit code 7", 7),
            Ending(LINE_LOST, "the line is lost"),
            Ending(INTERNAL, "error executing command"),
        ):
            self.start()
            self.open()
            self.attachment.transport.write(b"last words")
            self.attachment.transport.end(ending)
            self.network.pump()
            self.assertEqual(self.user.received, b"last words")
            (told,) = self.user.endings
            self.assertEqual((told.reason, told.exit_code), (ending.reason, ending.exit_code))
            self.assertIn(ending.message, told.message)
            self.over("backend closed")

    def test_much(self) -> None:
        """Large transfers in both directions arrive complete before the end."""
        self.foreign.make = EchoAttachment
        client = self.open()
        data = bytes(range(256)) * 4096
        client.write(data)
        client.end_input()
        self.over("backend closed")
        self.assertEqual(self.user.received, data)
        self.assertEqual(self.user.endings, [Ending(COMPLETED)])


class EndTests(TranslateTestCase):
    """Sessions that end early."""

    def test_machine_vanishes(self) -> None:
        """A next hop that dies without a status is a failure that says so, not success."""
        self.open()
        self.attachment.transport.write(b"almost")
        self.network.pump()
        self.attachment.transport.cut()
        last = self.over("backend lost")
        self.assertEqual((self.user.received, last["bytes_to_user"]), (b"almost", 6))
        self.assertEqual(self.user.endings, [Ending(INTERNAL, LOST)])

    def test_unreadable_status(self) -> None:
        """An unreadable status is a failure."""
        self.open()
        self.foreign.servers[0]._carrier.send_status(b"{nonsense")
        self.network.pump()
        (told,) = self.user.endings
        self.assertEqual(
            (told.reason, told.message),
            (INTERNAL, "the machine's status cannot be read: status is not JSON"),
        )

    def test_endless_status(self) -> None:
        """A status that is too large is a failure."""
        self.open()
        for _ in range(5):
            self.foreign.servers[0]._carrier.send(Channel.ERROR, b"x" * 20000)
        self.over("backend closed")
        (told,) = self.user.endings
        self.assertIn("the status is too large", told.message)

    def test_no_status(self) -> None:
        """An empty status is success, as in Kubernetes."""
        self.open()
        self.foreign.servers[0]._carrier.send_status(b"")
        self.network.pump()
        self.assertEqual(self.user.endings, [Ending(COMPLETED)])
        self.over("backend closed")

    def test_protocol_broken_behind(self) -> None:
        """A next hop that speaks nonsense is cut off, the user told."""
        self.open()
        self.foreign.servers[0]._carrier.transport.write(b"\x80\x03\0\x05\0\0\0\0")
        self.network.pump()
        (told,) = self.user.endings
        self.assertIn("the machine's end broke the protocol", told.message)
        self.over("backend closed")

    def test_user_leaves(self) -> None:
        """A user who leaves is gone everywhere, after what was typed."""
        client = self.open()
        client.write(b"exit\n")
        client.leave()
        self.over("client closed")
        self.assertEqual(self.attachment.received, b"exit\n")
        self.assertEqual(self.attachment.detached_with, ["client closed"])

    def test_user_vanishes(self) -> None:
        """A user whose connection is lost ends the session at every hop."""
        client = self.open()
        client.abort()
        self.over("client lost")

    def test_protocol_broken_before(self) -> None:
        """If the user breaks the protocol, the user gets an error and the session ends."""
        client = self.open()
        client.carrier.socket.send(b"\xff\0\0")
        self.network.pump()
        self.assertIn("the client broke the protocol", self.user.endings[0].message)
        self.assertIn("protocol error", self.over_after(15)["reason"])

    def over_after(self, seconds: float) -> dict[str, Any]:
        self.clock.pump([1] * int(seconds))
        self.network.pump()
        self.assertEqual(len(self.sessions), 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        return self.records.all[-1]

    def test_ended_by_the_hop(self) -> None:
        """The hop tells the user itself, though the next one knows of no endings."""
        self.open()
        self.attachment.transport.write(b"last")
        self.network.pump()
        ending = Ending(MACHINE_DELETED, 'machine "vm" was deleted')
        self.sessions.end(lambda one: one.user == "ann", ending)
        self.network.pump()
        self.assertEqual((self.user.received, self.user.endings), (b"last", [ending]))
        self.over(MACHINE_DELETED)
        self.assertEqual(len(self.foreign.asked), 2)

    def test_input_behind_the_end(self) -> None:
        """Nothing that the user sends after the decision reaches the machine."""
        client = self.open()
        client.write(b"before")
        self.network.pump()
        self.sessions.end(lambda _: True, Ending(REVOKED, "no more"))
        client.write(b"behind")
        self.network.pump()
        self.assertEqual(self.attachment.received, b"before")

    def test_input_while_opening(self) -> None:
        """Nor does anything if the session was to end before its stream was up."""
        attach = self.foreign.make

        def revoke() -> RecordingAttachment:
            self.sessions.end(lambda _: True, Ending(REVOKED, "no more"))
            return attach()

        self.foreign.make = revoke
        opening = self.ask()
        opening.addCallback(lambda client: client.write(b"early"))
        self.network.pump()
        self.assertEqual(self.attachment.received, b"")
        self.assertEqual([each.reason for each in self.user.endings], [REVOKED])

    def test_paused_user(self) -> None:
        """A paused user's input waits, in its order."""
        client = self.open()
        (session,) = self.sessions.live()
        translation: Any = session._cut.__self__  # type: ignore[union-attr]
        translation.pause_user()
        translation.input(Channel.STDIN, b"read already, ")
        client.write(b"and typed")
        self.network.pump()
        self.assertEqual(self.attachment.received, b"")
        translation.resume_user()
        self.network.pump()
        self.assertEqual(self.attachment.received, b"read already, and typed")
        translation.pause_user()
        translation.input_over()
        self.network.pump()
        self.assertEqual(self.attachment.input_ends, 0)
        translation.resume_user()
        self.network.pump()
        self.assertEqual(self.attachment.input_ends, 1)

    def test_terms_unconfirmed(self) -> None:
        """A session whose next hop still has to confirm a change of terms can end all the same."""
        silent = OneConnection(connected=False)
        self.locator.control = silent
        self.open()
        (session,) = self.sessions.live()
        session.hold_to(Terms(right=Right.OBSERVE))
        self.assertFalse(silent.connecting.called)
        self.attachment.transport.end(Ending(COMPLETED))
        self.over("backend closed")
        self.assertTrue(silent.connecting.called)  # cancelled

    def test_terms_of_the_session(self) -> None:
        """A change of terms names the session, though its streams are translated."""
        self.locator.control = control = OneConnection()
        self.open()
        (session,) = self.sessions.live()
        session.hold_to(Terms(right=Right.OBSERVE))
        line = control.transport.value().split(b"\r\n")[0]
        self.assertIn(b"?session=s-1&terms=right%3Dobserve", line)
        self.clock.advance(60)

    def test_cut_by_the_hop(self) -> None:
        """A cut by the hop ends the session without a status for the user."""
        self.open()
        for session in list(self.sessions._live):
            session.cut()
        self.over("cut")
        self.assertEqual(self.user.endings, [])

    def test_dead_machine(self) -> None:
        """A next hop that answers nothing any more is given up."""
        client = self.open()
        theirs = self.foreign.servers[0]._carrier.transport
        theirs.pauseProducing()
        for _ in range(int(SILENT_SECONDS) + 10):
            self.clock.advance(1)
            self.network.pump()
        (told,) = self.user.endings
        self.assertIn("the machine's end has not answered for 61 seconds", told.message)
        self.assertTrue(self.user.detached_with)
        self.assertFalse(client.carrier.blocked)

    def test_alive(self) -> None:
        """A session whose next hop only answers pings stays open."""
        client = self.open()
        for _ in range(200):
            self.clock.advance(1)
            self.network.pump()
        self.assertEqual(self.user.endings, [])
        client.leave()
        self.over("client closed")

    def test_stuck_user(self) -> None:
        """The hop waits for a user who does not read the end, up to a time limit."""
        client = self.open()
        client.pause_output()
        self.attachment.transport.write(b"x" * 300_000)
        self.attachment.transport.end(Ending(COMPLETED))
        self.network.pump()
        self.assertEqual(len(self.sessions), 1)
        for _ in range(120):
            self.clock.advance(1)
            self.network.pump()
        self.assertEqual(len(self.sessions), 0)


class PaceTests(TranslateTestCase):
    """Flow control between the two sides."""

    def test_slow_user(self) -> None:
        """A user who does not read pauses the machine's writer and loses no output."""
        client = self.open()
        client.pause_output()
        data = bytes(range(256)) * 4096
        sent = 0
        while sent < len(data):
            self.attachment.transport.write(data[sent : sent + 16384])
            sent += 16384
            self.network.pump()
        ours = self.proxy_ends()
        self.assertLess(max(len(each.queued) for each in ours), 2 * BUFFER_BYTES + 40000)
        self.assertEqual(self.user.received, b"")
        client.resume_output()
        self.network.pump()
        self.assertEqual(self.user.received, data)

    def proxy_ends(self) -> list[Any]:
        """The transports that the proxy writes to."""
        theirs = self.foreign.servers[0]._carrier.transport
        client = self.user.stream.carrier.transport
        return [each for each in self.network.transports if each not in (theirs, client)]

    def test_slow_machine(self) -> None:
        """
        Input is kept up to a limit while the machine takes none, and pings are answered
        as long; beyond that the user is not read, and nothing is lost.
        """
        client = self.open()
        theirs = self.foreign.servers[0]._carrier.transport
        theirs.pauseProducing()
        data = bytes(range(256)) * 4096
        client.write(data[:131072])
        self.network.pump()
        client.carrier.ping()
        client._pings._unanswered_since = 1.0
        self.network.pump()
        self.assertIsNone(client._pings._unanswered_since)
        client.write(data[131072:])
        self.network.pump()
        limit = (256 << 10) + 2 * BUFFER_BYTES + 40000
        self.assertLess(max(len(each.queued) for each in self.proxy_ends()), limit)
        client.carrier.socket.sendPing()
        client._pings._unanswered_since = 1.0
        self.network.pump()
        self.assertEqual(client._pings._unanswered_since, 1.0)
        theirs.resumeProducing()
        self.network.pump()
        self.assertEqual(self.attachment.received, data)
        self.assertIsNone(client._pings._unanswered_since)


class ReversedTests(TalkTests):
    """SPDY before, a WebSocket of version 5 behind."""

    protocols = (OVER_SPDY,)

    def start(self, **more: Any) -> None:
        super().start(speaks=(V5, V4), spdy=False, **more)


class TextTests(TranslateTestCase):
    """A user of version 1, which has no Status, before SPDY."""

    protocols = (V1,)

    def start(self, **more: Any) -> None:
        super().start(speaks=(), **more)

    def test_failure(self) -> None:
        """A failure reaches the user as its text with the reason INTERNAL."""
        self.open()
        self.attachment.transport.end(Ending(LINE_LOST, "the line is lost"))
        self.network.pump()
        self.assertEqual(self.user.endings, [Ending(INTERNAL, "the line is lost")])
        self.over("backend closed")

    def test_success(self) -> None:
        """Version 1 reports success without a text."""
        self.open()
        self.attachment.transport.write(b"bye")
        self.attachment.transport.end(Ending(COMPLETED))
        self.network.pump()
        self.assertEqual((self.user.received, self.user.endings), (b"bye", [Ending(COMPLETED)]))
        self.over("backend closed")

    def test_lost(self) -> None:
        """A lost connection is a failure here as well."""
        self.open()
        self.attachment.transport.cut()
        self.network.pump()
        self.assertEqual(self.user.endings, [Ending(INTERNAL, LOST)])


class OlderTests(TranslateTestCase):
    """A WebSocket of version 4 behind, which cannot tell the end of input."""

    protocols = (OVER_SPDY,)

    def start(self, **more: Any) -> None:
        super().start(speaks=(V4,), spdy=False, **more)

    def test_end_of_input(self) -> None:
        """The end of input stays here; the session goes on."""
        client = self.open()
        client.write(b"hello")
        client.end_input()
        self.network.pump()
        self.assertEqual((self.attachment.received, self.attachment.input_ends), (b"hello", 0))
        self.attachment.transport.end(Ending(COMPLETED, exit_code=1))
        self.network.pump()
        self.assertEqual([each.exit_code for each in self.user.endings], [1])
        self.over("backend closed")

    def test_closed_without_a_status(self) -> None:
        """A Close alone is no success."""
        self.open()
        self.foreign.servers[0]._carrier.close()
        self.network.pump()
        self.assertEqual(self.user.endings, [Ending(INTERNAL, LOST)])


ACTIONS = st.tuples(
    st.sampled_from(
        [
            *("types", "prints", "user pauses", "user resumes", "machine pauses"),
            *("machine resumes", "resizes", "ends input", "waits"),
        ]
    ),
    st.integers(1, 90_000),
    st.integers(0, 3),
)
LAST = ("leaves", "vanishes", "machine ends", "machine vanishes", "hop ends", "hop cuts")


class AnyOrderTests(TranslateTestCase):
    """Properties of a translation for any order of actions."""

    @settings(max_examples=150, deadline=None)
    @given(st.lists(ACTIONS, max_size=20), st.sampled_from(LAST), st.booleans())
    def test_any_order(
        self, actions: list[tuple[str, int, int]], last: str, reversed_: bool
    ) -> None:
        """
        Bytes are never changed or reordered, buffers stay small, the session ends once and
        leaves nothing behind, and a user gets success only if the machine reported it.
        """
        self.protocols = (OVER_SPDY,) if reversed_ else (V5,)
        self.start(**({"speaks": (V5,), "spdy": False} if reversed_ else {}))
        client = self.open()
        typed = printed = b""
        ended = False
        machine = self.foreign.servers[0]._carrier.transport
        for what, amount, turns in actions:
            data = bytes(range(256)) * (amount // 256 + 1)
            if what == "types" and not ended:
                client.write(data)
                typed += data
            elif what == "prints":
                self.attachment.transport.write(data)
                printed += data
            elif what in ("user pauses", "user resumes"):
                client.pause_output() if what == "user pauses" else client.resume_output()
            elif what in ("machine pauses", "machine resumes"):
                machine.pauseProducing() if what == "machine pauses" else machine.resumeProducing()
            elif what == "resizes":
                client.resize(TerminalSize(amount % 500 + 1, 24))
            elif what == "ends input" and not ended:
                client.end_input()
                ended = True
            for _ in range(turns):
                for each in list(self.network.transports):
                    each.step(20_000)
        self.finish(last, client, machine)
        self.assertTrue(typed.startswith(self.attachment.received))
        self.assertTrue(printed.startswith(self.user.received))
        if last == "machine ends":
            self.assertEqual(self.user.received, printed)
            self.assertEqual([each.exit_code for each in self.user.endings], [9])
        self.assertFalse([each for each in self.user.endings if each.ok])
        self.assertEqual(len(self.sessions), 0)
        self.records.check_pairs()
        self.assertTrue(all(each.lost for each in self.network.transports))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def finish(self, last: str, client: ConsoleClient, machine: Any) -> None:
        machine.resumeProducing()
        client.resume_output()
        if last == "leaves":
            client.leave()
        elif last == "vanishes":
            client.abort()
        elif last == "machine ends":
            self.attachment.transport.end(Ending(COMPLETED, exit_code=9))
        elif last == "machine vanishes":
            self.attachment.transport.cut()
        else:
            for session in list(self.sessions._live):
                session.cut() if last == "hop cuts" else session.end(Ending(LINE_LOST, "x"))
        self.network.pump(20_000)
        for _ in range(60):  # the rest ends by its time limits
            self.clock.advance(1)
            self.network.pump(20_000)
