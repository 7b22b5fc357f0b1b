"""Tests of :mod:`twisted_exec.streaming.remotecommand.translate`: which sessions it translates."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol

from tests.streaming.foreign import Foreign
from tests.streaming.remotecommand.translating import TranslateTestCase
from twisted_exec.api.status import APIError, Conflict
from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.site import Request, Site
from twisted_exec.streaming.remotecommand.carriers import OVER_SPDY
from twisted_exec.streaming.remotecommand.client import ConsoleClient
from twisted_exec.testing.console import RecordingAttachment
from twisted_exec.wire.channel import V4, V5, Channel
from twisted_exec.wire.upgrade import accept_key, switching_protocols


class WayTests(TranslateTestCase):
    """When sessions are translated, and the request to the next hop."""

    def test_22_refused_version(self) -> None:
        """If the next hop refuses version 5, a second request, located anew, asks for SPDY."""
        client = self.open()
        self.assertEqual(self.foreign.asked, [b"websocket", b"SPDY/3.1"])
        self.assertEqual((client.protocol, client.session), (V5, "s-1"))
        self.assertEqual(self.foreign.servers[0].protocol, V4)
        self.assertEqual(self.admission.located, 2)

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
        self.admission.endpoint = self.network.endpoint(Site(_Unnamed(self.foreign), self.clock))
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
        """If the admission refuses the second request, the user gets that error."""
        self.admission.problem = Conflict('machine "vm" is being deleted')
        self.assertEqual(self.refused().code, 409)

    def test_not_there(self) -> None:
        """If the next hop does not answer the second request, the user gets a 504."""
        self.admission.endpoint = self.network.endpoint(_Deaf())
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
        self.admission.endpoint = self.network.endpoint(Site(_Silent(), self.clock))
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
        self.admission.endpoint = self.network.endpoint(Site(_Unnamed(self.foreign), self.clock))
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
            self.admission.streams = None
            self.open(path=path)
            ids = self.foreign.carrier.streams._ids
            self.assertEqual({channel.name for channel in ids}, opened | {"ERROR"}, path)

    def test_errors(self) -> None:
        """Errors stay apart from output where the next hop tells them apart."""
        self.admission.streams = None
        self.open(path=b"/x?stdout=true&stderr=true")
        self.foreign.carrier.send(Channel.STDERR, b"oh")
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
