"""
Requests to buckets, also to buckets that do not behave: :mod:`twisted_exec.recording.stores.s3`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.threads import deferToThread
from twisted.logger import globalLogPublisher
from twisted.web.resource import Resource
from twisted.web.server import Site

from tests.contracts.recording_store import text_of
from tests.tiers import PROGRAMS
from tests.tls.support import LoopbackCase, Recorder, authority, reactor, server_identity
from twisted_exec.recording.stores.bucket import AccessKey, parse_target
from twisted_exec.recording.stores.interfaces import StoreError
from twisted_exec.recording.stores.s3 import BucketClient, S3Store, transport_of

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


class Hanging(Recorder):
    """
    A server that does not answer.

    :ivar head: fires when the head of a request has arrived.
    """

    def __init__(self) -> None:
        super().__init__()
        self.head: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        super().dataReceived(data)
        if b"\r\n\r\n" in self.received and not self.head.called:
            self.head.callback(None)


def headers_of(request: Any) -> dict[str, str]:
    """The headers of a request, by lower-case names."""
    return {
        name.decode().lower(): values[0].decode()
        for name, values in request.requestHeaders.getAllRawHeaders()
    }


class BucketTests(LoopbackCase):
    """A bucket behind TLS."""

    async def store(self, answering: Answering, *names: str, ca: str = "serving") -> S3Store:
        """A store in a bucket with that answer, whose certificate has these names."""
        identity = server_identity(*(names or ("localhost", "127.0.0.1")))
        port = await self.listen(Site(answering), self.server_tls(identity))
        path = self.write("ca.crt", authority(ca).certificate_pem)
        endpoint = f"https://127.0.0.1:{port.getHost().port}"
        target = parse_target(f"s3://bucket/prefix?endpoint={endpoint}&ca={path}")
        self.credentials = CREDENTIALS
        transport = transport_of(target, reactor)
        bucket = BucketClient(target, lambda: self.credentials, transport, reactor)
        self.addCleanup(bucket.close)
        return S3Store(bucket)

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
        bucket = (await self.store(answering))._bucket
        strange = {"UploadId": "a+b/c=~ü%2B &", "PartNumber": 1}
        await bucket.send("upload_part", Key="prefix/a.cast", Body=b"body", **strange)
        await bucket.send("list_multipart_uploads", Prefix="a/b")
        self.assertEqual(answering.bodies, [b"body", b""])
        for request, body in zip(answering.requests, answering.bodies, strict=True):
            headers = headers_of(request)
            self.assertEqual(headers["x-amz-security-token"], "SESSION-TOKEN")
            names = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0]
            for name in ("host", "x-amz-content-sha256", *(["content-md5"] if body else [])):
                self.assertIn(name, names.split(";"))
            url = f"https://{headers['host']}{request.uri.decode()}"
            signed = {name: headers[name] for name in names.split(";")}
            again = AWSRequest(request.method.decode(), url, signed, body)
            again.context["timestamp"] = headers["x-amz-date"]
            key = Credentials(CREDENTIALS.key_id, CREDENTIALS.secret)
            auth = S3SigV4Auth(key, "s3", "us-east-1")
            text = auth.string_to_sign(again, auth.canonical_request(again))
            signature = auth.signature(text, again)
            self.assertTrue(headers["authorization"].endswith(f"Signature={signature}"))

    async def test_another_key(self) -> None:
        """Each request is signed with the present credentials."""
        answering = Answering(204)
        bucket = (await self.store(answering))._bucket
        await bucket.send("delete_object", Key="a")
        self.credentials = AccessKey("OTHER-ID", "OTHER-KEY")
        await bucket.send("delete_object", Key="a")
        first, second = map(headers_of, answering.requests)
        self.assertIn("Credential=KEY-ID/", first["authorization"])
        self.assertIn("Credential=OTHER-ID/", second["authorization"])
        self.assertNotIn("x-amz-security-token", second)

    async def test_once(self) -> None:
        """A request that fails is not repeated; the owner of the recording does so."""
        for code in (429, 500, 503):
            answering = Answering(code)
            await self.assertFailure((await self.store(answering)).list(), StoreError)
            self.assertEqual(len(answering.requests), 1)

    async def test_other_region(self) -> None:
        """A bucket cannot make the program sign for another region."""
        body = (
            b"<Error><Code>AuthorizationHeaderMalformed</Code><Message>wrong</Message>"
            b"<Region>eu-south-9</Region></Error>"
        )
        for code, start in ((400, b""), (200, b""), (200, b" " * 2000)):
            answering = Answering(code, start + body, **{"x-amz-bucket-region": "eu-south-9"})
            store = await self.store(answering)
            for count in (1, 2):
                with self.assertRaisesRegex(StoreError, "AuthorizationHeaderMalformed: wrong"):
                    await store.list()
                self.assertEqual(len(answering.requests), count)
                self.assertIn("/us-east-1/s3/", headers_of(answering.requests[-1])["authorization"])

    async def test_cancelled(self) -> None:
        """Cancelling aborts the request that is under way, and prevents a request before it is sent."""
        recorders = self.recorders(Hanging)
        port = await self.listen(recorders, None)
        target = parse_target(f"s3://bucket?endpoint=http://127.0.0.1:{port.getHost().port}")
        transport = transport_of(target, reactor)
        bucket = BucketClient(target, lambda: CREDENTIALS, transport, reactor)
        self.addCleanup(bucket.close)
        store = S3Store(bucket)
        early = store.list()
        early.cancel()
        await self.assertFailure(early, CancelledError)
        accepted: Deferred[Hanging] = recorders.next()
        working = store.put("a", text_of(b"x"))
        server = await accepted
        await server.head
        working.cancel()
        await self.assertFailure(working, CancelledError)
        await server.lost
        self.assertEqual(server.received.count(b"GET "), 1)

    async def test_another_address(self) -> None:
        """A bucket for which boto3 has an address of its own gets no request."""
        answering = Answering(204)
        port = await self.listen(Site(answering), None)
        endpoint = f"http://localhost:{port.getHost().port}"
        target = parse_target(f"s3://bucket--usw2-az1--x-s3?endpoint={endpoint}")
        transport = transport_of(target, reactor)
        bucket = BucketClient(target, lambda: CREDENTIALS, transport, reactor)
        self.addCleanup(bucket.close)
        error = await self.assertFailure(S3Store(bucket).list(), StoreError)
        self.assertIn(f"another address for {target} than {endpoint}", str(error))
        self.assertEqual(answering.requests, [])

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


_HOSTILE = """[default]
aws_access_key_id = FILE-ID
aws_secret_access_key = FILE-KEY
region = eu-south-9
endpoint_url = {trap}
credential_process = /bin/touch {touched}
s3 =
    addressing_style = virtual
    use_accelerate_endpoint = true
"""

_PROGRAM = """
import sys
from twisted.internet import reactor
from twisted.internet.task import react
from twisted_exec.recording.stores.option import store_option

async def main(reactor, url):
    assert "botocore" not in sys.modules
    store = store_option(url)(reactor)
    for working in (store.list(), store.read("a", 0, 9)):
        try:
            await working
        except Exception as error:
            print(error)
    await store.close()

react(main, sys.argv[1:])
"""


class EnvironmentTests(LoopbackCase):
    """What the environment has for Amazon's programs; a program of its own reads it."""

    starts = PROGRAMS

    async def run_store(self, url: str, **environment: str) -> str:
        """Use a store in a program with that environment; return its messages."""
        program = deferToThread(
            subprocess.run,
            [sys.executable, "-c", _PROGRAM, url],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": os.getcwd(), **environment},
            capture_output=True,
            text=True,
        )
        done = await program
        self.assertEqual(done.returncode, 0, done.stderr)
        return str(done.stdout)

    async def test_ignored(self) -> None:
        """No variable, file, or service of the environment changes requests, or gets requests."""
        trap, answering = Answering(200), Answering(404)
        trap_port = await self.listen(Site(trap), None)
        port = await self.listen(Site(answering), None)
        trap_url = f"http://127.0.0.1:{trap_port.getHost().port}"
        touched = os.path.abspath(os.path.join(self.directory, "touched"))
        hostile = _HOSTILE.format(trap=trap_url, touched=touched).encode()
        home = os.path.join(os.path.abspath(self.directory), "home")
        os.makedirs(os.path.join(home, ".aws", "models", "s3", "2006-03-01"))
        for name in ("config", "credentials"):
            with open(os.path.join(home, ".aws", name), "wb") as file:
                file.write(hostile)
        model = os.path.join(home, ".aws", "models", "s3", "2006-03-01", "service-2.json")
        with open(model, "wb") as file:
            file.write(b"{}")
        config = os.path.abspath(self.write("hostile", hostile))
        key = os.path.abspath(
            self.write(
                "key", b"[default]\naws_access_key_id=OUR-ID\naws_secret_access_key=OUR-KEY\n"
            )
        )
        output = await self.run_store(
            f"s3://bucket/p?endpoint=http://127.0.0.1:{port.getHost().port}&credentials={key}",
            HOME=home,
            HTTP_PROXY=trap_url,
            HTTPS_PROXY=trap_url,
            ALL_PROXY=trap_url,
            REQUESTS_CA_BUNDLE="/nowhere",
            AWS_CA_BUNDLE="/nowhere",
            AWS_ACCESS_KEY_ID="ENVIRONMENT-ID",
            AWS_SECRET_ACCESS_KEY="ENVIRONMENT-KEY",
            AWS_SESSION_TOKEN="ENVIRONMENT-TOKEN",
            AWS_PROFILE="nobody",
            AWS_CONFIG_FILE=config,
            AWS_SHARED_CREDENTIALS_FILE=config,
            AWS_DATA_PATH=os.path.join(home, ".aws", "models"),
            AWS_REGION="eu-south-9",
            AWS_DEFAULT_REGION="eu-south-9",
            AWS_ENDPOINT_URL=trap_url,
            AWS_ENDPOINT_URL_S3=trap_url,
            AWS_EC2_METADATA_SERVICE_ENDPOINT=trap_url,
            AWS_CONTAINER_CREDENTIALS_FULL_URI=trap_url,
            AWS_ENDPOINT_DISCOVERY_ENABLED="true",
            AWS_USE_FIPS_ENDPOINT="true",
            AWS_USE_DUALSTACK_ENDPOINT="true",
            AWS_MAX_ATTEMPTS="5",
            AWS_DEFAULTS_MODE="nonsense",
            AWS_REQUEST_CHECKSUM_CALCULATION="when_supported",
            AWS_EXECUTION_ENV="SHOWN",
            AWS_SDK_UA_APP_ID="SHOWN",
            AWS_LAMBDA_FUNCTION_NAME="SHOWN",
            _X_AMZN_TRACE_ID="SHOWN",
            AWS_CSM_ENABLED="true",
        )
        self.assertEqual(trap.requests, [])
        self.assertFalse(os.path.exists(touched))
        self.assertIn("the bucket answered 404", output)
        self.assertIn("s3://bucket/p/a.cast does not exist", output)
        self.assertEqual(len(answering.requests), 2)
        for request in answering.requests:
            headers = headers_of(request)
            self.assertTrue(request.uri.startswith(b"/bucket"))
            self.assertIn("Credential=OUR-ID/", headers["authorization"])
            self.assertIn("/us-east-1/s3/", headers["authorization"])
            self.assertNotIn("x-amz-security-token", headers)
            self.assertNotIn("SHOWN", str(headers))

    async def test_no_key(self) -> None:
        """Without our credentials there is no request, not even for others."""
        trap = Answering(200)
        port = await self.listen(Site(trap), None)
        url = f"http://127.0.0.1:{port.getHost().port}"
        config = os.path.abspath(self.write("c", _HOSTILE.format(trap=url, touched="x").encode()))
        output = await self.run_store(
            f"s3://bucket?endpoint={url}",
            AWS_CONFIG_FILE=config,
            AWS_SHARED_CREDENTIALS_FILE=config,
            AWS_EC2_METADATA_SERVICE_ENDPOINT=url,
            AWS_CONTAINER_CREDENTIALS_FULL_URI=url,
        )
        self.assertEqual(output.count("s3://bucket has no credentials"), 2)
        self.assertEqual(trap.requests, [])

    async def test_proxy(self) -> None:
        """The proxy of the environment is used as by all our clients; loopback addresses have none."""
        recorders = self.recorders(Hanging)
        port = await self.listen(recorders, None)
        self.patch(os, "environ", {"HTTPS_PROXY": f"http://u:p@127.0.0.1:{port.getHost().port}"})
        target = parse_target("s3://bucket?endpoint=https://minio.example:9000")
        bucket = BucketClient(target, lambda: CREDENTIALS, transport_of(target, reactor), reactor)
        self.addCleanup(bucket.close)
        accepted: Deferred[Hanging] = recorders.next()
        working = S3Store(bucket).list()
        server = await accepted
        await server.head
        self.assertTrue(server.received.startswith(b"CONNECT minio.example:9000 "))
        self.assertIn(b"proxy-authorization: basic", server.received.lower())
        server.transport.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        error: StoreError = await self.assertFailure(working, StoreError)
        self.assertEqual(error.kind, "unreachable")
        self.assertIn("403", str(error))
