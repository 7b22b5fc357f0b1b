"""
Syslog over TLS: :mod:`twisted_exec.shipping.syslog`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.task import deferLater
from zope.interface.verify import verifyObject

from tests.clocks import expire
from tests.tls.support import (
    LoopbackCase,
    authority,
    client_identity,
    reactor,
    server_identity,
    write,
)
from twisted_exec.shipping.interfaces import ILineSink, Labels, ShippedLine, SinkError
from twisted_exec.shipping.syslog import SyslogSink
from twisted_exec.testing.collectors import SyslogReceiver
from twisted_exec.tls.client import ClientCredentials


class SyslogCase(LoopbackCase):
    """A receiver with TLS on loopback."""

    async def receiver(self, identity: Any = None, **options: Any) -> tuple[Any, Any, SyslogSink]:
        receiver = SyslogReceiver()
        port = await self.listen(receiver, self.server_tls(identity, **options))
        self.addCleanup(receiver.cut)
        return receiver, port, self.sink(port.getHost().port)

    def sink(self, port: int, **options: Any) -> SyslogSink:
        ca = self.write("ca.crt", authority("serving").certificate_pem)
        files = {
            name: self.write(name, content) for name, content in options.pop("files", {}).items()
        }
        credentials = ClientCredentials(ca=ca, alpn=(), clock=reactor, **files)
        options.setdefault("confirm_seconds", 0.05)
        sink = SyslogSink(
            "central", "127.0.0.1", port, credentials, reactor, facility=16, **options
        )
        self.addCleanup(sink.close)
        return sink

    def batch(self, sink: SyslogSink, *texts: bytes) -> Any:
        batch = sink.new_batch()
        for text in texts:
            batch.add(Labels("vm"), ShippedLine(0, 1, 1, 0, text))
        return batch

    async def until(self, condition: Any) -> None:
        while not condition():
            await deferLater(reactor, 0.01)

    async def settle(self, sink: SyslogSink) -> None:
        """Settle at once, however long the connection has to last."""
        settled = sink.settle()
        while not settled.called:
            expire(reactor, 1000)
            await deferLater(reactor, 0.01)
        await settled

    async def refusal(self, sink: SyslogSink) -> str:
        try:
            await sink.send(self.batch(sink, b"secret"))
        except SinkError as error:
            return str(error)
        raise AssertionError("the batch was accepted")


class SyslogTests(SyslogCase):
    """One sink, one receiver."""

    async def test_lines(self) -> None:
        """Messages arrive in order on one connection."""
        receiver, _, sink = await self.receiver()
        verifyObject(ILineSink, sink)
        texts = [b"%d" % number + b"x" * 500 for number in range(400)]
        for at in range(0, 400, 100):
            await sink.send(self.batch(sink, *texts[at : at + 100]))
        await sink.settle()
        await self.until(lambda: len(receiver.lines) == 400)
        self.assertEqual([line.text.encode() for line in receiver.lines], texts)
        self.assertEqual(len(receiver.connections), 1)
        await sink.close()
        await self.until(lambda: not receiver.connections)

    async def test_killed(self) -> None:
        """Lines that were sent shortly before a loss are reported as lost; then it goes on."""
        receiver, port, _ = await self.receiver()
        sink = self.sink(port.getHost().port, confirm_seconds=3600)
        await sink.send(self.batch(sink, b"one"))
        await self.until(lambda: receiver.lines)
        settled = sink.settle()
        receiver.cut()
        with self.assertRaises(SinkError) as caught:
            await settled
        self.assertIn("the syslog receiver 127.0.0.1", str(caught.exception))
        await sink.send(self.batch(sink, b"two"))
        await self.settle(sink)
        await self.until(lambda: len(receiver.lines) == 2)
        self.assertEqual([line.text for line in receiver.lines], ["one", "two"])

    async def test_lost_between(self) -> None:
        """Nothing is sent on a new connection before the loss was reported."""
        receiver, _, sink = await self.receiver()
        await sink.send(self.batch(sink, b"one"))
        await self.until(lambda: receiver.lines)
        receiver.cut()
        # Until the sink has noticed, it sends on the old connection.
        await self.until(lambda: sink._connection is None)
        self.assertIn("lost", await self.refusal(sink))
        with self.assertRaises(SinkError):
            await sink.settle()
        await sink.send(self.batch(sink, b"two"))

    async def test_idle_loss(self) -> None:
        """A loss after everything has settled costs nothing."""
        receiver, _, sink = await self.receiver()
        await sink.send(self.batch(sink, b"one"))
        await sink.settle()
        await self.until(lambda: receiver.lines)
        receiver.cut()
        # Until the sink has noticed, it sends on the old connection.
        await self.until(lambda: sink._connection is None)
        await sink.settle()
        await sink.send(self.batch(sink, b"two"))
        await self.until(lambda: len(receiver.lines) == 2)

    async def test_stuck(self) -> None:
        """A receiver that reads nothing fails a batch in time, and no line settles."""
        receiver, port, _ = await self.receiver()
        sink = self.sink(port.getHost().port, send_seconds=0.3)
        receiver.is_paused = True
        with self.assertRaises(SinkError) as caught:
            while True:
                await sink.send(self.batch(sink, *[b"x" * 7000] * 200))
        self.assertIn("has taken nothing for", str(caught.exception))
        with self.assertRaises(SinkError):
            await sink.settle()

    async def test_refused(self) -> None:
        """A receiver with another name gets no line; without a receiver the reason is reported."""
        receiver, port, sink = await self.receiver(server_identity("elsewhere.example"))
        self.assertIn('certificate is not valid for "127.0.0.1"', await self.refusal(sink))
        await port.stopListening()
        self.assertIn("Connection was refused", await self.refusal(sink))
        self.assertEqual(receiver.lines, [])

    async def test_client_certificate(self) -> None:
        """A receiver that requires a certificate gets one."""
        users = write(self.directory, "users.crt", authority("users").certificate_pem)
        receiver, port, _ = await self.receiver(client_cas=[users])
        issued = client_identity("exec-runtime")
        files = {"certificate": issued.certificate_pem, "key": issued.key_pem}
        sink = self.sink(port.getHost().port, files=files)
        await sink.send(self.batch(sink, b"one"))
        await sink.settle()
        await self.until(lambda: receiver.lines)
        self.assertEqual([line.text for line in receiver.lines], ["one"])
