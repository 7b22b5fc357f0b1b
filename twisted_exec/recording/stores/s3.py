"""
An S3-compatible bucket as a store of recordings.

A long recording is uploaded in parts, and becomes an object when the last request joins them. S3
remembers the parts, so an attempt after a crash needs no state of ours.

boto3 makes and signs the requests, and reads the answers. The connections are those of
:class:`HTTPTransport`.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import md5, sha256
from io import BytesIO
from threading import Lock, local
from typing import Any, NamedTuple
from xml.etree import ElementTree

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from zope.interface import implementer

from twisted_exec.api.status import APIError
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError, Material
from twisted_exec.kube.kubeconfig.environment import proxy_for
from twisted_exec.kube.transport import HTTPTransport, Request
from twisted_exec.program.tasks import as_deferred
from twisted_exec.recording.stores.bucket import AccessKey, BucketTarget, credentials_of
from twisted_exec.recording.stores.interfaces import (
    MAX_READ_BYTES,
    SUFFIX,
    IRecordingStore,
    NotStored,
    ReadText,
    Stored,
    StoreEntry,
    StoreError,
    digest,
    fill,
    is_name,
    reader,
    require_name,
)

PART_BYTES = 5 << 20
"""The least size of all parts but the last; 10 000 of them are 48 GiB."""
MOST_PARTS = 10_000
"""S3's limit of the parts of an upload."""
_PAGE = 1000
_PARTIAL_CONTENT, _NOT_FOUND, _RANGE_NOT_SATISFIABLE = 206, 404, 416

_ANSWER_BYTES = 4 << 20
_SECONDS = 60.0
_BODY_SECONDS = 600.0
"""Time limit of a request with a body."""
_MOST_MARKS = 60_000
"""
Limit of opening brackets, and of equals signs, in an answer: no other thread runs while Python
parses it.
"""
_MESSAGE_CHARACTERS = 200
_FULL = ("EntityTooLarge", "QuotaExceeded", "XMinioStorageFull", "InsufficientCapacity")
_INSUFFICIENT_STORAGE = 507
_NOT_S3 = "the bucket's answer is not one of S3: check the URL of the store"
_PARSING = (ValueError, TypeError, LookupError, AttributeError)
"""Exceptions of boto3's parser, other than its own classes."""
_OTHER_HEADERS = ("content-length", "expect", "user-agent", "x-amzn-trace-id")
"""Unsigned headers of boto3 that the transport has itself, or that come from the environment."""

_creating = Lock()
"""Clients may be used by many threads; sessions may not."""


def transport_of(target: BucketTarget, reactor: Any) -> HTTPTransport:
    """Return the connections to a bucket."""
    config = ClientConfig(
        server=target.server,
        ca=Material(path=target.ca),
        proxy_url=proxy_for(target.endpoint, os.environ),
    )
    return HTTPTransport(config, reactor, peer="the bucket")


class Refusal(StoreError):
    """
    The bucket answered with an error.

    :param code: of HTTP.
    :param name: of S3, such as ``NoSuchKey``; maybe empty.
    """

    def __init__(self, kind: str, message: str, code: int, name: str = "") -> None:
        super().__init__(kind, message)
        self.code, self.name = code, name


class BucketClient:
    """
    Calls operations of S3.

    boto3's hook ``before-send`` hands over the signed request, and in a second call of boto3
    returns the answer. boto3 reads only answers that report success, because it could repeat
    others, or follow them to another server.
    """

    def __init__(
        self,
        target: BucketTarget,
        credentials: Callable[[], AccessKey],
        transport: Any,
        reactor: Any,
    ) -> None:
        self.target = target
        self._credentials, self._transport, self._reactor = credentials, transport, reactor
        self._boto: tuple[AccessKey, Any] | None = None
        self._local = local()

    async def call(self, operation: str, **parameters: Any) -> Mapping[str, Any]:
        answer = await self.send(operation, **parameters)
        if not _is_harmless(answer[1]):
            raise StoreError("answer", _NOT_S3)
        read: Mapping[str, Any] = await self.in_thread(
            self._call, self._credentials(), operation, parameters, answer
        )
        return read

    async def send(self, operation: str, **parameters: Any) -> tuple[int, bytes]:
        """
        Call an operation.

        :param operation: name of the method of boto3's client, such as ``get_object``.
        :return: code and body of the answer, which reports success.
        :raises Refusal: the bucket answered with an error.
        :raises StoreError: there is no usable answer, or no request can be made.
        """
        signed = await self.in_thread(self._call, self._credentials(), operation, parameters)
        # boto3 makes a stream of bytes.
        request = self._request(signed, parameters.get("Body", signed.body) or b"")
        try:
            code, _, body = await self._transport.collect(
                request,
                timeout_seconds=_BODY_SECONDS if request.body else _SECONDS,
                limit_bytes=MAX_READ_BYTES if signed.stream_output else _ANSWER_BYTES,
            )
        except (APIError, KubeConfigError) as problem:
            raise StoreError("unreachable", str(problem)) from None
        # Some requests report a failure in the body of a 200; but a recording may have any content.
        if not 200 <= code < 300 or (b"<Error" in body and not signed.stream_output):
            raise _refusal(code, body)
        return code, body

    def in_thread(self, work: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        pool = self._reactor.getThreadPool()
        return deferToThreadPool(self._reactor, pool, work, *arguments)

    def close(self) -> Deferred[None]:
        closed: Deferred[None] = self._transport.close()
        return closed

    def _request(self, signed: Any, body: bytes) -> Request:
        path = signed.url.removeprefix(self.target.server)
        if path == signed.url or path[:1] != "/":
            raise StoreError(
                "refused",
                f"boto3 has another address for {self.target} than {self.target.server}: change "
                "endpoint, region or style in the URL of the store",
            )
        headers = [("host", self.target.host)]
        for name, value in signed.headers.items():
            if name.lower() not in _OTHER_HEADERS:
                headers.append((name, value.decode() if isinstance(value, bytes) else str(value)))
        return Request(signed.method, path, body, "application/octet-stream", headers=headers)

    # In a thread.

    def _call(
        self,
        key: AccessKey,
        operation: str,
        parameters: dict[str, Any],
        answer: tuple[int, bytes] | None = None,
    ) -> Any:
        # Importing boto3 takes half a second of CPU, which programs without a bucket need not wait for.
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        if "Body" in parameters:
            # Buckets that lock their objects demand Content-MD5.
            check = md5(parameters["Body"], usedforsecurity=False).digest()
            parameters = {**parameters, "ContentMD5": b64encode(check).decode()}
        self._local.answer = answer
        try:
            with _creating:
                if self._boto is None or self._boto[0] != key:
                    self._boto = key, create_client(self.target, key, self._send)
                client = self._boto[1]
            return getattr(client, operation)(Bucket=self.target.bucket, **parameters)
        except _Signed as signed:
            return signed.request
        except (BotoCoreError, ClientError, ResponseParserError, *_PARSING) as problem:
            if answer is None:
                raise StoreError("refused", f"{self.target}: {_one_line(str(problem))}") from None
            raise StoreError("answer", _NOT_S3) from None

    def _send(self, request: Any, **_: Any) -> Any:
        """
        Return the answer, as the hook ``before-send``; before there is one, raise the request.
        """
        from botocore.awsrequest import AWSResponse

        if self._local.answer is None:
            raise _Signed(request)
        code, body = self._local.answer
        return AWSResponse(request.url, code, {}, _Content(body))


class _Signed(Exception):
    def __init__(self, request: Any) -> None:
        super().__init__()
        self.request = request


class _Content(BytesIO):
    def stream(self) -> Sequence[bytes]:
        return [self.read()]


@cache
def _session() -> Any:
    """Return a session of boto3 that ignores configuration files and the environment."""
    import boto3.session
    from botocore.configprovider import ConstantProvider
    from botocore.loaders import Loader
    from botocore.session import Session

    # Without names in files and in the environment, variables have their defaults.
    variables = {
        name: (None, None, default, convert)
        for name, (_, _, default, convert) in Session.SESSION_VARIABLES.items()
    }
    for name in ("config_file", "credentials_file"):
        variables[name] = (None, None, os.devnull, None)
    session = Session(session_vars=variables)
    session.get_component("config_store").set_config_provider("s3", ConstantProvider(None))
    # Without ~/.aws/models.
    models = Loader([Loader.BUILTIN_DATA_PATH], include_default_search_paths=False)
    session.register_component("data_loader", models)
    return boto3.session.Session(botocore_session=session)


def create_client(target: BucketTarget, key: AccessKey, send: Callable[..., Any]) -> Any:
    from botocore.config import Config

    client = _session().client(
        "s3",
        region_name=target.region,
        endpoint_url=target.endpoint.geturl(),
        aws_access_key_id=key.key_id,
        aws_secret_access_key=key.secret,
        aws_session_token=key.token or None,
        config=Config(
            signature_version="s3v4",
            retries={"mode": "standard", "total_max_attempts": 1},
            ignore_configured_endpoint_urls=True,
            # Not all services know the newer checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={
                "addressing_style": "path" if target.is_path_style else "virtual",
                "payload_signing_enabled": True,
            },
        ),
    )
    client.meta.events.register("before-send.s3", send)
    return client


def _is_harmless(body: bytes) -> bool:
    """
    Return whether an answer may be parsed.

    A declaration could define entities that expand to any amount of memory; no answer of S3 has
    one. In UTF-16, which the parser detects, all markup has zeros.
    """
    marks = max(body.count(b"<"), body.count(b"="))
    return b"<!" not in body and b"\0" not in body and marks <= _MOST_MARKS


def _refusal(code: int, body: bytes) -> Refusal:
    text = f"the bucket answered {code}"
    if 300 <= code < 400:
        return Refusal(
            "refused",
            f"{text}; redirects are not followed: correct the endpoint, region and style in the URL of "
            "the store",
            code,
        )
    name, message = _error(body)
    kind = "full" if code == _INSUFFICIENT_STORAGE or name in _FULL else "refused"
    return Refusal(kind, ": ".join(filter(None, (text, name, message))), code, name)


def _error(body: bytes) -> tuple[str, str]:
    try:
        # In another encoding entities would be overlooked.
        tree = ElementTree.fromstring(body.strip().decode() if _is_harmless(body) else "")
    except (ElementTree.ParseError, ValueError, LookupError):
        return "", ""
    # The other elements repeat parts of the request, which logs do not need.
    name, message = (tree.findtext(f"{{*}}{each}", "") for each in ("Code", "Message"))
    return _one_line(name), _one_line(message).rstrip(".")


def _one_line(text: str) -> str:
    printable = "".join(each if each.isprintable() else " " for each in text)
    return printable[:_MESSAGE_CHARACTERS].strip()


class UploadPart(NamedTuple):
    size: int
    etag: str


@implementer(IRecordingStore)
class S3Store:
    """
    Recordings as objects ``PREFIX/NAME.cast``.

    :param most_parts: a bucket that lists more parts of an upload is in error.
    """

    def __init__(
        self, bucket: BucketClient, *, part_bytes: int = PART_BYTES, most_parts: int = MOST_PARTS
    ) -> None:
        self.url = str(bucket.target)
        self._bucket, self._part_bytes, self._most_parts = bucket, part_bytes, most_parts
        self._prefix = f"{bucket.target.prefix}/" if bucket.target.prefix else ""

    def location(self, name: str) -> str:
        return f"{self.url}/{require_name(name)}{SUFFIX}"

    def put(self, name: str, read: ReadText) -> Deferred[Stored]:
        return Deferred.fromCoroutine(self._put(require_name(name), read))

    def read(self, name: str, offset: int, limit: int) -> Deferred[bytes]:
        return Deferred.fromCoroutine(self._read(require_name(name), offset, limit))

    @as_deferred
    async def list(self, after: str = "", limit: int = _PAGE) -> Sequence[StoreEntry]:
        entries: list[StoreEntry] = []
        start, is_last = self._key(after) if after else self._prefix, False
        while len(entries) < limit and not is_last:
            page = await self._bucket.call(
                "list_objects_v2",
                Prefix=self._prefix,
                StartAfter=start,
                MaxKeys=min(limit, _PAGE),
            )
            objects = _entries(page, "Contents")
            is_last = not page["IsTruncated"] or not objects
            for each in objects:
                start = each.get("Key", "")
                name = start.removeprefix(self._prefix).removesuffix(SUFFIX)
                # Leave out objects of other programs, and of other prefixes below ours.
                if is_name(name) and start == self._key(name):
                    entries.append(StoreEntry(name, _required(each, "Size")))
        return entries[:limit]

    def delete(self, name: str) -> Deferred[None]:
        return Deferred.fromCoroutine(self._delete(self._key(require_name(name))))

    def close(self) -> Deferred[None]:
        return self._bucket.close()

    def _key(self, name: str) -> str:
        return f"{self._prefix}{name}{SUFFIX}"

    # Reading.

    async def _read(self, name: str, offset: int, limit: int) -> bytes:
        try:
            code, body = await self._bucket.send(
                "get_object", Key=self._key(name), Range=f"bytes={offset}-{offset + limit - 1}"
            )
        except Refusal as error:
            if error.code == _RANGE_NOT_SATISFIABLE:
                return b""
            if error.code == _NOT_FOUND and error.name != "NoSuchBucket":
                raise NotStored(self.location(name)) from None
            raise
        if code != _PARTIAL_CONTENT and offset:
            raise StoreError("answer", "the bucket ignores ranges of bytes")
        return body[:limit]

    # Storing.

    async def _put(self, name: str, read: ReadText) -> Stored:
        key = self._key(name)
        if await self._exists(name):
            # The answer to the last request of an earlier attempt was lost, or has not arrived.
            stored = await digest(read)
            if await digest(reader(self, name), stored.size) == stored:
                await self._abort(await self._uploads(key), key)
                return stored
        first = await fill(read, 0, self._part_bytes)
        if len(first) < self._part_bytes:
            whole = sha256()
            await self._bucket.in_thread(_hashed, first, whole)
            await self._bucket.send("put_object", Key=key, Body=first)
            return Stored(len(first), whole.hexdigest())
        return await self._put_parts(key, first, read)

    async def _exists(self, name: str) -> bool:
        try:
            await self._read(name, 0, 1)
        except NotStored:
            return False
        return True

    async def _put_parts(self, key: str, data: bytes, read: ReadText) -> Stored:
        upload = await self._incomplete_upload(key) or await self._new_upload(key)
        parts = await self._parts(key, upload)
        sizes: list[int] = []
        offset, whole = 0, sha256()
        while data:
            if len(sizes) == self._most_parts:
                raise StoreError(
                    "refused",
                    f"{key} is larger than {self._most_parts * self._part_bytes >> 30} GiB",
                )
            sizes.append(len(data))
            offset += len(data)
            # To hash some megabytes in the reactor would delay every console.
            etag = await self._bucket.in_thread(_hashed, data, whole)
            if parts.get(len(sizes)) != UploadPart(len(data), etag):
                await self._bucket.send(
                    "upload_part", Key=key, UploadId=upload, PartNumber=len(sizes), Body=data
                )
            data = await fill(read, offset, self._part_bytes)
        parts = await self._parts(key, upload)
        numbers = range(1, len(sizes) + 1)
        if [parts.get(number, UploadPart(-1, "")).size for number in numbers] != sizes:
            raise StoreError("answer", "the bucket has other parts than it was sent")
        complete = [{"PartNumber": each, "ETag": f'"{parts[each].etag}"'} for each in numbers]
        await self._bucket.send(
            "complete_multipart_upload",
            Key=key,
            UploadId=upload,
            MultipartUpload={"Parts": complete},
        )
        return Stored(offset, whole.hexdigest())

    async def _new_upload(self, key: str) -> str:
        answer = await self._bucket.call("create_multipart_upload", Key=key)
        return str(_required(answer, "UploadId"))

    async def _incomplete_upload(self, key: str) -> str:
        """Return the newest incomplete upload, and abort others; empty if there is none."""
        *others, newest = await self._uploads(key) or [""]
        await self._abort(others, key)
        return newest

    async def _uploads(self, key: str) -> Sequence[str]:
        page = await self._bucket.call("list_multipart_uploads", Prefix=key)
        own = [
            each
            for each in _entries(page, "Uploads")
            if each.get("Key") == key and each.get("UploadId")
        ]
        own.sort(key=lambda each: str(each.get("Initiated", "")))
        return [each["UploadId"] for each in own]

    async def _parts(self, key: str, upload: str) -> dict[int, UploadPart]:
        parts: dict[int, UploadPart] = {}
        while True:
            page = await self._bucket.call(
                "list_parts",
                Key=key,
                UploadId=upload,
                MaxParts=_PAGE,
                PartNumberMarker=max(parts, default=0),
            )
            listed, before = _entries(page, "Parts"), len(parts)
            for each in listed:
                part = UploadPart(_required(each, "Size"), each.get("ETag", "").strip('"'))
                parts[_required(each, "PartNumber")] = part
            if len(parts) > self._most_parts:
                raise StoreError("answer", "the bucket lists more parts than an upload can have")
            if not page["IsTruncated"] or len(parts) == before:
                return parts

    async def _abort(self, uploads: Sequence[str], key: str) -> None:
        for upload in uploads:
            await self._remove("abort_multipart_upload", Key=key, UploadId=upload)

    async def _delete(self, key: str) -> None:
        await self._remove("delete_object", Key=key)
        await self._abort(await self._uploads(key), key)

    async def _remove(self, operation: str, **parameters: str) -> None:
        try:
            await self._bucket.send(operation, **parameters)
        except Refusal as error:
            if error.code != _NOT_FOUND:
                raise


def _entries(page: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    if "IsTruncated" not in page:
        raise StoreError("answer", _NOT_S3)
    entries: Sequence[Mapping[str, Any]] = page.get(name, ())
    return entries


def _required(answer: Mapping[str, Any], name: str) -> Any:
    if name not in answer:
        raise StoreError("answer", f"the bucket's answer has no {name}")
    return answer[name]


def _hashed(data: bytes, whole: Any) -> str:
    whole.update(data)
    # A bucket that encrypts with its own keys reports other hashes; then an attempt after a crash
    # sends all parts again.
    return md5(data, usedforsecurity=False).hexdigest()


def bucket_store(target: BucketTarget, reactor: Any) -> S3Store:
    """
    Return the store in a bucket.

    :raises ValueError: the proxy in the environment is not the URL of a proxy.
    """
    try:
        transport = transport_of(target, reactor)
    except KubeConfigError as problem:
        raise ValueError(str(problem)) from None
    credentials = credentials_of(target, os.environ, reactor)
    return S3Store(BucketClient(target, credentials, transport, reactor))
