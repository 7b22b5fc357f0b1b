"""
Tests of leaves that lack the protocol of the root's client.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from tests.chain import PATIENCE_SECONDS, reactor
from tests.nodeserver.stream_chain import ROOT, ChainTestCase
from tests.streaming.foreign import OLD, Foreign
from twisted_exec.api.status import APIError, BadRequest
from twisted_exec.nodeserver.kubelet_api.streams import stream_routes
from twisted_exec.streaming.http.responses import respond_status
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
from twisted_exec.streaming.remotecommand.carriers import OVER_SPDY, UPGRADE_REQUIRED
from twisted_exec.streaming.remotecommand.client import ConsoleClient, connect
from twisted_exec.testing.console import EchoAttachment, RecordingUser
from twisted_exec.wire.channel import V5
from twisted_exec.wire.endings import Ending

TERMINAL = b"/exec/default/web/main?command=cat&input=1&output=1&tty=1"
EXEC = b"/exec/default/web/main?command=cat&input=1&output=1&error=1"


class OldLeafTests(ChainTestCase):
    """
    Version 5 of a WebSocket from the root, to a leaf before 1.30.

    Its API server passes a WebSocket on to its kubelet, which does not know version 5.
    """

    speaks: Any = OLD

    def routes(self) -> Any:
        return stream_routes(self.collaborators)

    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.foreign = Foreign(reactor, query=None, speaks=self.speaks)
        self.foreign.make = EchoAttachment
        self.leaf_server.answer = self.serve
        self.user = RecordingUser()

    def serve(self, request: Request) -> None:
        self.foreign.tokens.add(request.path)
        served = Deferred.fromCoroutine(self.foreign.dispatch(request))
        served.addErrback(lambda failure: self.fail(failure.getTraceback()))

    async def open(self, target: bytes = EXEC) -> ConsoleClient:
        headers = [(b"Authorization", f"Bearer {ROOT}".encode())]
        head = UpgradeRequest(b"GET", target, b"node", headers)
        return await connect(
            self.entry(),
            head,
            self.user,
            clock=reactor,
            timeout_seconds=PATIENCE_SECONDS,
            protocols=(V5,),
        )

    async def test_to_the_end(self) -> None:
        """Input arrives, its end ends the command, and the exit code comes back."""
        client = await self.open()
        self.assertEqual(self.foreign.asked, [b"websocket", b"SPDY/3.1"])
        client.write(b"hello")
        await self.until(lambda: self.user.received == b"hello")
        client.end_input()
        await self.until(lambda: self.user.detached_with)
        (ending,) = self.user.endings
        self.assertTrue(ending.is_success)
        await self.until(lambda: self.foreign.attachments[0].detached_with)

    async def test_same_question(self) -> None:
        """The leaf gets the same command, with the arguments in their places."""
        await self.open()
        first, second = (uri for _, uri, _ in self.leaf_server.asked)
        self.assertEqual(first, second)
        self.assertTrue(
            second.endswith(b"exec?command=cat&container=main&stdin=true&stdout=true&stderr=true")
        )
        self.user.stream.abort()

    async def test_variable_streams(self) -> None:
        """Only the requested streams are opened: a leaf waits for no others."""
        for query in (b"output=1", b"output=1&error=1", b"input=1&output=1&tty=1"):
            self.user = RecordingUser()
            client = await self.open(b"/exec/default/web/main?command=sh&" + query)
            machine = self.foreign.attachments[-1]
            machine.transport.write(b"out")
            machine.transport.end(Ending("Completed"))
            await self.until(lambda: self.user.detached_with)
            self.assertEqual(self.user.received, b"out")
            self.assertTrue(self.user.endings[0].is_success)
            client.abort()

    async def test_refused(self) -> None:
        """The leaf's answer to the second request is passed on."""
        self.foreign.refusal = (404, 'pods "web" not found')
        with self.assertRaises(APIError) as caught:
            await self.open()
        self.assertEqual(caught.exception.code, 404)

    async def test_client_dies(self) -> None:
        """B5: the leaf's leg is closed within a second here, too."""
        client = await self.open()
        client.abort()
        took = await self.until(lambda: self.foreign.attachments[0].detached_with)
        self.assertLess(took, 1)

    async def test_leaf_dies(self) -> None:
        """The user learns that the status is missing; the command does not seem to have succeeded."""
        await self.open()
        self.foreign.attachments[0].transport.cut()
        await self.until(lambda: self.user.detached_with)
        self.assertFalse(self.user.endings[0].is_success)


class WebSocketOnlyTests(ChainTestCase):
    """SPDY from the root, to a leaf behind something that lets only WebSockets pass."""

    def routes(self) -> Any:
        return stream_routes(self.collaborators)

    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.foreign = Foreign(reactor, query=None, speaks=(V5,))
        self.foreign.make = EchoAttachment
        self.leaf_server.answer = self.serve

    def serve(self, request: Request) -> None:
        if request.method == b"POST":  # the upgrade was taken out on the way
            respond_status(request, BadRequest(UPGRADE_REQUIRED))
            return
        self.foreign.tokens.add(request.path)
        served = Deferred.fromCoroutine(self.foreign.dispatch(request))
        served.addErrback(lambda failure: self.fail(failure.getTraceback()))

    async def test_exec(self) -> None:
        """Input, output and the end of both pass in a WebSocket of version 5."""
        user = RecordingUser()
        headers = [(b"Authorization", f"Bearer {ROOT}".encode())]
        head = UpgradeRequest(b"GET", TERMINAL, b"node", headers)
        client = await connect(
            self.entry(),
            head,
            user,
            clock=reactor,
            timeout_seconds=PATIENCE_SECONDS,
            protocols=(OVER_SPDY,),
        )
        self.assertEqual([method for method, _, _ in self.leaf_server.asked], [b"POST", b"GET"])
        client.write(b"hello")
        await self.until(lambda: user.received == b"hello")
        client.end_input()
        await self.until(lambda: user.detached_with)
        self.assertTrue(user.endings[0].is_success)

    async def test_other_refusals(self) -> None:
        """Any other Status is about the request."""
        self.leaf_server.answer = lambda request: respond_status(request, BadRequest("no such"))
        code, message = await self.refused(EXEC.decode())
        self.assertEqual((code, len(self.leaf_server.asked)), (400, 1))
        self.assertIn("no such", message)


class SPDYOnlyTests(OldLeafTests):
    """A leaf that knows no WebSockets at all says 400, with a text."""

    speaks = ()
