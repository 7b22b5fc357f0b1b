"""
Posts to an OTLP collector: :mod:`twisted_exec.shipping.otlp`.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from zope.interface.verify import verifyObject

from tests.tls.support import LoopbackCase, authority, reactor, server_identity
from twisted_exec.shipping.interfaces import (
    BatchRefused,
    ILineSink,
    Labels,
    Receipt,
    ShippedLine,
    SinkError,
)
from twisted_exec.shipping.otlp import OTLPSink, collector_config, judge, read_headers
from twisted_exec.testing.collectors import Answer, OTLPCollector, encode_partial_success
from twisted_exec.tls.errors import TLSConfigError


class OTLPCase(LoopbackCase):
    """A collector with TLS on loopback."""

    async def collector(self, **options: Any) -> tuple[OTLPCollector, OTLPSink]:
        collector = OTLPCollector()
        identity = options.pop("identity", None) or server_identity("localhost", "127.0.0.1")
        port = await self.listen(collector.site, self.server_tls(identity))
        return collector, self.sink(
            f"https://127.0.0.1:{port.getHost().port}/otlp/v1/logs", **options
        )

    def sink(self, text: str, *, token_file: str = "", **options: Any) -> OTLPSink:
        ca = self.write("ca.crt", authority("serving").certificate_pem)
        url = urlsplit(text)
        config = collector_config(url, ca=ca, certificate="", key="", token_file=token_file)
        sink = OTLPSink("loki", config, url, reactor, lambda: 5, **options)
        self.addCleanup(sink.close)
        return sink

    async def send(self, sink: OTLPSink, *texts: bytes) -> Receipt:
        batch = sink.new_batch()
        for text in texts or (b"one", b"two"):
            batch.add(Labels("vm"), ShippedLine(0, 1, 1, 0, text))
        return await sink.send(batch)

    async def refusal(self, sink: OTLPSink) -> SinkError:
        try:
            await self.send(sink)
        except SinkError as error:
            return error
        raise AssertionError("the batch was accepted")


class AcceptedTests(OTLPCase):
    """A collector that takes batches."""

    async def test_batches(self) -> None:
        """Lines arrive compressed on one connection, with token and headers from files."""
        token = self.write("token", b"secret\n")
        headers = self.write("headers", b"# for Loki\nX-Scope-OrgID: lab\n\n")
        for path in (token, headers):
            os.chmod(path, 0o600)
        collector, sink = await self.collector(token_file=token, headers_file=headers)
        verifyObject(ILineSink, sink)
        self.assertEqual(await self.send(sink), Receipt())
        self.write("token", b"renewed\n")
        await self.send(sink, b"x" * 20_000)
        await sink.settle()
        self.assertEqual([line.text for line in collector.lines], ["one", "two", "x" * 20_000])
        first, second = collector.requests
        self.assertEqual(first["content-type"], "application/x-protobuf")
        self.assertEqual(first["content-encoding"], "gzip")
        self.assertEqual(first["x-scope-orgid"], "lab")
        self.assertEqual(first["authorization"], "Bearer secret")
        self.assertEqual(second["authorization"], "Bearer renewed")

    async def test_uncompressed(self) -> None:
        """Compression can be switched off."""
        collector, sink = await self.collector(compresses=False)
        await self.send(sink)
        self.assertNotIn("content-encoding", collector.requests[0])
        self.assertEqual(len(collector.lines), 2)

    async def test_partial_success(self) -> None:
        """The collector may discard lines on purpose."""
        collector, sink = await self.collector()
        collector.answers = [Answer(body=encode_partial_success(1, "too old"))]
        self.assertEqual(await self.send(sink), Receipt(1, "too old"))

    async def test_no_content(self) -> None:
        """Loki answers 204."""
        collector, sink = await self.collector()
        collector.answers = [
            Answer(204, content_type="text/plain"),
            Answer(200, b"{}", "application/json"),
        ]
        self.assertEqual(await self.send(sink), Receipt())
        self.assertEqual(await self.send(sink), Receipt())


class RefusedTests(OTLPCase):
    """A collector that does not."""

    async def test_answers(self) -> None:
        """Each answer says what is wrong; none but those about the batch itself splits it."""
        collector, sink = await self.collector()
        status = b"\x08\x03\x12\x07too old"
        cases = [
            (Answer(400, status), True, "the collector answered 400: too old"),
            (Answer(413, b"Request\nEntity", "text/plain"), True, "answered 413: Request Entity"),
            (Answer(401, b"no", "text/plain"), False, "the collector answered 401: no"),
            (Answer(404), False, "the collector answered 404"),
            (Answer(503, headers={"Retry-After": "7"}), False, "the collector answered 503"),
            (
                Answer(302, headers={"Location": "https://elsewhere.example/"}),
                False,
                "redirects are not followed: correct the URL",
            ),
            (Answer(200, b"<html>Welcome", "text/html"), False, "not one of OTLP: check the URL"),
            (Answer(200, b"\x0a\x05a"), False, "not one of OTLP: check the URL"),
        ]
        for answer, is_about_batch, message in cases:
            collector.answers = [answer]
            error = await self.refusal(sink)
            self.assertIn(message, str(error))
            self.assertEqual(isinstance(error, BatchRefused), is_about_batch, message)
            self.assertEqual(error.retry_seconds, 7 if answer.code == 503 else 0)
        self.assertEqual(len(collector.requests), len(cases))

    async def test_huge_answer(self) -> None:
        """An answer without end is not read to its end."""
        collector, sink = await self.collector()
        collector.answers = [Answer(200, b"\0" * 200_000)]
        self.assertIn("larger than", str(await self.refusal(sink)))

    async def test_silent(self) -> None:
        """A collector that does not answer fails the batch in time."""
        collector, sink = await self.collector(answer_seconds=0.2)
        collector.is_silent = True
        error = await self.refusal(sink)
        self.assertEqual((error.kind, "in time" in str(error)), ("unreachable", True))

    async def test_down(self) -> None:
        """A collector that is not there is unreachable."""
        collector, _ = await self.collector()
        port = await self.listen(collector.site, None)
        address = port.getHost().port
        await port.stopListening()
        error = await self.refusal(self.sink(f"https://127.0.0.1:{address}/"))
        self.assertEqual(error.kind, "unreachable")
        self.assertIn("cannot reach the collector https://127.0.0.1", str(error))

    async def test_wrong_certificate(self) -> None:
        """A server with another name gets neither lines nor the token."""
        token = self.write("token", b"secret")
        other = server_identity("elsewhere.example")
        collector, sink = await self.collector(identity=other, token_file=token)
        error = await self.refusal(sink)
        self.assertIn('certificate is not valid for "127.0.0.1"', str(error))
        self.assertEqual(collector.requests, [])


class HeadersTests(LoopbackCase):
    """Files of headers."""

    def test_wrong(self) -> None:
        """The message names the line, and not its content: that may be a password."""
        for content in (b"A: 1\nsecret", b"A: 1\nB b: secret", "A: 1\nB: ä".encode()):
            path = self.write("headers", content)
            with self.assertRaises(TLSConfigError) as caught:
                read_headers(path)
            self.assertIn("line 2: it is not NAME: VALUE", str(caught.exception))
            self.assertNotIn("secret", str(caught.exception))

    def test_judge_retry(self) -> None:
        """A date, or nonsense, as the time of a retry leaves it to the back-off."""
        for value in ("Fri, 21 Nov 2026 10:00:00 GMT", "-1", "9" * 40, "1.5"):
            with self.assertRaises(SinkError) as caught:
                judge(429, {"retry-after": value}, b"")
            self.assertEqual(caught.exception.retry_seconds, 0)
