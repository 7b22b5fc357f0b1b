"""
Recorded streams to a leaf, through the routes of the node server.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred

from tests.chain import PATIENCE_SECONDS, reactor
from tests.nodeserver.stream_chain import ROOT, ChainTestCase
from tests.streaming.foreign import OLD, Foreign
from twisted_exec.api.status import APIError
from twisted_exec.nodeserver.kubelet_api.run import run_routes
from twisted_exec.nodeserver.kubelet_api.streams import stream_routes
from twisted_exec.recording.signatures import UnusableCertificate
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
from twisted_exec.streaming.remotecommand.carriers import OVER_SPDY
from twisted_exec.streaming.remotecommand.client import ConsoleClient, connect
from twisted_exec.testing.console import EchoAttachment, RecordingUser
from twisted_exec.wire.channel import V4, V5
from twisted_exec.wire.resize import TerminalSize

from .support import Recordings

TERMINAL = b"/exec/default/web/main?command=cat&input=1&output=1&tty=1"
EXEC = b"/exec/default/web/main?command=cat&input=1&output=1&error=1"
ATTACH = b"/attach/default/web/main?input=1&output=1&tty=1"


class Seconds:
    """The time and the timers of the reactor, with a time of day that fits certificates of tests."""

    callLater = staticmethod(reactor.callLater)

    @staticmethod
    def seconds() -> float:
        return 1.0


class RecordedCase(ChainTestCase):
    """A node server that records the Pods of some namespaces."""

    is_required = True
    namespaces: Any = ()

    def routes(self) -> Any:
        directory = os.path.abspath(self.mktemp())
        self.recordings = Recordings(
            directory,
            Seconds(),
            input="masked",
            is_required=self.is_required,
            namespaces=self.namespaces,
        )
        self.addCleanup(lambda: Deferred.fromCoroutine(self.recordings.made.stop()))
        collaborators = replace(self.collaborators, recordings=self.recordings.made)
        return [*stream_routes(collaborators), *run_routes(collaborators)]

    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        self.speak(V5, *OLD)
        self.user = RecordingUser()

    def speak(self, *protocols: str, spdy: bool = True) -> None:
        """The protocols of the leaf."""
        self.foreign = Foreign(reactor, query=None, speaks=protocols, spdy=spdy)
        self.foreign.make = EchoAttachment
        self.leaf_server.answer = self.serve

    def serve(self, request: Request) -> None:
        self.foreign.tokens.add(request.path)
        served = Deferred.fromCoroutine(self.foreign.dispatch(request))
        served.addErrback(lambda failure: self.fail(failure.getTraceback()))

    async def open(self, target: bytes = TERMINAL, *protocols: Any) -> ConsoleClient:
        headers = [(b"Authorization", f"Bearer {ROOT}".encode())]
        head = UpgradeRequest(b"GET", target, b"node", headers)
        return await connect(
            self.entry(),
            head,
            self.user,
            clock=reactor,
            timeout_seconds=PATIENCE_SECONDS,
            protocols=protocols or (V5,),
        )


class RecordedTests(RecordedCase):
    """All Pods are recorded."""

    async def whole(self, target: bytes, *protocols: Any) -> None:
        """A session in which a word is typed, and echoed."""
        self.user = RecordingUser()
        client = await self.open(target, *protocols)
        client.write(b"hello")
        await self.until(lambda: self.user.received == b"hello")
        client.abort()
        await self.until(lambda: self.recordings.store.content)

    async def test_audited(self) -> None:
        """The audit records of a session name its recording."""
        await self.whole(TERMINAL)
        ((name, _),) = self.recordings.store.content.items()
        self.assertEqual({each["recording"] for each in self.records}, {name})

    async def test_clients(self) -> None:
        """Sessions of all clients are recorded, over each protocol, to leaves of any release."""
        for leaf in ((V5, *OLD), OLD, ()):
            for protocol in (V5, V4, OVER_SPDY):
                self.speak(*leaf)
                self.recordings.store.content.clear()
                await self.whole(TERMINAL, protocol)
                stored = self.recordings.stored()
                self.assertEqual((stored.output, stored.input), ("hello", "hello"))
                self.assertTrue(stored.report.is_closed)
                self.assertEqual(stored.report.info.machine["command"], "cat")

    async def test_attach(self) -> None:
        """Attach is recorded like exec."""
        await self.whole(ATTACH)
        stored = self.recordings.stored()
        self.assertEqual(stored.report.info.machine["subresource"], "attach")
        self.assertEqual(stored.output, "hello")

    async def test_end(self) -> None:
        """End of input, exit code and size pass as without a recording."""
        client = await self.open(EXEC)
        client.write(b"hello")
        client.resize(TerminalSize(100, 40))
        client.end_input()
        await self.until(lambda: self.user.detached_with)
        (ending,) = self.user.endings
        self.assertTrue(ending.is_success)
        self.assertEqual(self.user.received, b"hello")
        await self.until(lambda: self.recordings.store.content)
        self.assertEqual(self.recordings.stored().output, "hello")

    async def test_refused(self) -> None:
        """Of a session that the leaf refuses there is no recording."""
        self.foreign.refusal = (404, 'pods "web" not found')
        with self.assertRaises(APIError) as caught:
            await self.open()
        self.assertEqual(caught.exception.code, 404)
        self.assertEqual(self.recordings.files(), [])

    async def test_cannot_be_recorded(self) -> None:
        """A session that must be recorded and cannot be is refused; the leaf's side is closed."""
        self.recordings.made.signer = self.expired
        with self.assertRaises(APIError) as caught:
            await self.open()
        self.assertEqual(caught.exception.code, 503)
        self.assertIn("must be recorded", caught.exception.message)
        await self.until(lambda: self.foreign.attachments[0].detached_with)

    def expired(self) -> Any:
        raise UnusableCertificate("it has expired")

    async def test_run(self) -> None:
        """``run`` is refused, because it is not recorded."""
        answer = await self.ask("/run/default/web/main?cmd=id")
        await self.until(lambda: b"\r\n\r\n" in answer.received)
        self.assertIn(b" 403 ", answer.received)
        self.assertIn(b"use exec", answer.received)


class OtherPodsTests(RecordedCase):
    """Pods of other namespaces are recorded."""

    namespaces = ("production",)

    async def test_unread(self) -> None:
        """Streams of other Pods pass unread, in the protocol of the client."""
        client = await self.open(TERMINAL, V4)
        client.write(b"hello")
        await self.until(lambda: self.user.received == b"hello")
        self.assertEqual(self.foreign.asked, [b"websocket"])
        client.abort()
        self.assertEqual(self.recordings.files(), [])
