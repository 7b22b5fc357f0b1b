"""
Requests to buckets that do not behave: :mod:`twisted_exec.recording.stores.bucket`.
"""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl

from twisted.logger import globalLogPublisher
from twisted.web.resource import Resource
from twisted.web.server import Site

from tests.contracts.recording_store import text_of
from tests.tls.support import LoopbackCase, authority, reactor, server_identity
from twisted_exec.recording.stores.bucket import (
    AccessKey,
    Bucket,
    Call,
    RequestSigner,
    parse_target,
    transport_of,
)
from twisted_exec.recording.stores.bucket import query as query_of
from twisted_exec.recording.stores.interfaces import StoreError
from twisted_exec.recording.stores.s3 import S3Store

from .support import now

CREDENTIALS = AccessKey("KEY-ID", "SECRET-KEY", "SESSION-TOKEN")


class Answering(Resource):
    """A server with one answer to all requests."""

    isLeaf = True

    def __init__(self, code: int, body: bytes = b"", **headers: str) -> None:
        super().__init__()
        self._code, self._body, self._headers = code, body, headers
        self.requests: list[Any] = []
        self.bodies: list[bytes] = []

    def render(self, request: Any) -> bytes:
        self.requests.append(request)
        self.bodies.append(request.content.read())
        request.setResponseCode(self._code)
        for name, value in self._headers.items():
            request.setHeader(name, value)
        return self._body


class BucketTests(LoopbackCase):
    """A bucket behind TLS."""

    async def store(self, answering: Answering, *names: str, ca: str = "serving") -> S3Store:
        """A store in a bucket with that answer, whose certificate has these names."""
        identity = server_identity(*(names or ("localhost", "127.0.0.1")))
        port = await self.listen(Site(answering), self.server_tls(identity))
        path = self.write("ca.crt", authority(ca).certificate_pem)
        endpoint = f"https://127.0.0.1:{port.getHost().port}"
        target = parse_target(f"s3://bucket/prefix?endpoint={endpoint}&ca={path}")
        bucket = Bucket(target, lambda: CREDENTIALS, transport_of(target, reactor), now)
        self.addCleanup(bucket.close)
        return S3Store(bucket, reactor)

    async def refusal(self, store: S3Store) -> StoreError:
        """The error of each kind of call; it never has credentials."""
        errors = []
        for working in (store.read("a", 0, 9), store.list(), store.put("a", text_of(b"x"))):
            try:
                await working
            except StoreError as error:
                errors.append(error)
        self.assertEqual(len(errors), 3)
        for error in errors:
            for secret in ("SECRET-KEY", "SESSION-TOKEN", "Signature", "KEY-ID"):
                self.assertNotIn(secret, str(error))
        return errors[0]

    async def test_signature(self) -> None:
        """What arrives is what was signed, byte for byte, also with strange ids of uploads."""
        answering = Answering(204)
        store = await self.store(answering)
        bucket = store._bucket
        await bucket.send(Call("PUT", "prefix/a.cast", {"uploadId": "a+b/c=~ü%2B &"}, b"body"))
        await bucket.send(Call("GET", parameters={"uploads": "", "prefix": "a/b"}))
        for request, body in zip(answering.requests, answering.bodies, strict=True):
            headers = {
                name.decode().lower(): values[0].decode()
                for name, values in request.requestHeaders.getAllRawHeaders()
            }
            text = headers["authorization"]
            names = text.partition("SignedHeaders=")[2].partition(",")[0].split(";")
            self.assertIn("host", names)
            path, _, query = request.uri.decode().partition("?")
            again = RequestSigner(CREDENTIALS, "us-east-1").sign(
                request.method.decode(),
                path,
                dict(parse_qsl(query, keep_blank_values=True)),
                {name: headers[name] for name in names if not name.startswith("x-amz-")},
                sha256(body).hexdigest(),
                datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ"),
            )
            self.assertEqual(text, dict(again)["authorization"])
            self.assertEqual(query_of(dict(parse_qsl(query, keep_blank_values=True))), query)

    async def test_redirects(self) -> None:
        """Redirects are not followed: they could lead to any address, with our signature."""
        other = Answering(200, b"x")
        there = await self.listen(Site(other), None)
        url = f"http://127.0.0.1:{there.getHost().port}/"
        for code in (301, 302, 307, 308):
            store = await self.store(Answering(code, Location=url))
            error = await self.refusal(store)
            self.assertEqual(error.kind, "refused")
            self.assertIn(f"answered {code}; redirects are not followed", str(error))
        self.assertEqual(other.requests, [])

    async def test_foreign_certificates(self) -> None:
        """A server that the CA has not certified, or for another name, gets no request."""
        answering = Answering(200, b"x")
        for names, ca in (((), "users"), (("elsewhere.example",), "serving")):
            error = await self.refusal(await self.store(answering, *names, ca=ca))
            self.assertEqual(error.kind, "unreachable")
        self.assertEqual(answering.requests, [])

    async def test_refusals(self) -> None:
        """Code and message of S3 are shown in one line; a full bucket is known as such."""
        denied = b"<Error><Code>AccessDenied</Code><Message>Access\nDenied.</Message></Error>"
        full = b"<Error><Code>XMinioStorageFull</Code><Message>no space</Message></Error>"
        cases = [
            (403, denied, "refused", "the bucket answered 403: AccessDenied: Access Denied"),
            (507, full, "full", "the bucket answered 507: XMinioStorageFull: no space"),
            (507, b"", "full", "the bucket answered 507"),
            (503, b"<html>", "refused", "the bucket answered 503"),
            (403, b"<Error><Code>" + b"x" * 999 + b"</Code></Error>", "refused", "x" * 200),
        ]
        for code, body, kind, message in cases:
            error = await self.refusal(await self.store(Answering(code, body)))
            self.assertEqual(error.kind, kind)
            self.assertTrue(str(error).endswith(message), str(error))

    async def test_other_answers(self) -> None:
        """An answer that is not one of S3, or has entities, is an error."""
        entities = b'<!DOCTYPE a [<!ENTITY b "c">]><a><IsTruncated>&b;</IsTruncated></a>'
        hidden = entities.decode().encode("utf-16")
        for body in (b"", b"<html>", b"{}", b"\xff", entities, hidden, b"<a/>"):
            store = await self.store(Answering(200, body))
            with self.assertRaisesRegex(StoreError, "not one of S3"):
                await store.list()

    async def test_failure_with_code_200(self) -> None:
        """A request that succeeds by its code fails if the body is an error."""
        body = b'<?xml version="1.0"?>\n\n<Error><Code>InternalError</Code></Error>'
        store = await self.store(Answering(200, body))
        with self.assertRaisesRegex(StoreError, "InternalError"):
            await store.list()

    async def test_much_markup(self) -> None:
        """An answer whose parsing would hold everybody up is not parsed."""
        end = b"<IsTruncated>false</IsTruncated></a>"
        attributes = b" ".join(b'a%d=""' % number for number in range(100_000))
        for body in (b"<a>" + b"<b/>" * 100_000 + end, b"<a %s>%s" % (attributes, end)):
            store = await self.store(Answering(200, body))
            with self.assertRaisesRegex(StoreError, "not one of S3"):
                await store.list()

    async def test_large_answers(self) -> None:
        """An answer is not read beyond its limit."""
        store = await self.store(Answering(206, b"x" * (5 << 20)))
        with self.assertRaisesRegex(StoreError, "larger than"):
            await store.read("a", 0, 1 << 20)
        with self.assertRaisesRegex(StoreError, "larger than"):
            await store.list()

    async def test_no_ranges(self) -> None:
        """A server that ignores ranges is found out."""
        store = await self.store(Answering(200, b"x" * 100))
        self.assertEqual(await store.read("a", 0, 10), b"x" * 10)
        with self.assertRaisesRegex(StoreError, "ignores ranges"):
            await store.read("a", 10, 10)

    async def test_logs(self) -> None:
        """Nothing that is logged has credentials."""
        events: list[Any] = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        await self.refusal(await self.store(Answering(403)))
        self.assertNotIn("SECRET-KEY", str(events))
        self.assertNotIn("Signature", str(events))
