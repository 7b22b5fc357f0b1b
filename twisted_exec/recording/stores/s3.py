"""
An S3-compatible bucket as a store of recordings, and its answers, which are XML.

A short recording is one request.  A longer one is uploaded in parts, and becomes an object when the last
request joins them.  S3 itself remembers the parts of an upload, so an attempt after a crash needs no
state of ours: it lists the upload's parts, compares their hashes, and sends the parts that are missing or
differ.  The earlier attempt need not have had the same content.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import md5, sha256
from typing import Any, NamedTuple
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from zope.interface import implementer

from twisted_exec.program.tasks import as_deferred
from twisted_exec.recording.stores.bucket import Bucket, Call
from twisted_exec.recording.stores.interfaces import (
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
_MOST_PARTS = 10_000
_PAGE = 1000
_OK, _PARTIAL_CONTENT, _NOT_FOUND, _RANGE_NOT_SATISFIABLE = 200, 206, 404, 416
_ERROR_BYTES = 64 << 10


@implementer(IRecordingStore)
class S3Store:
    """
    Recordings as objects ``PREFIX/NAME.cast``.

    :param part_bytes: smaller only in tests.
    """

    def __init__(self, bucket: Bucket, reactor: Any, *, part_bytes: int = PART_BYTES) -> None:
        self.url = str(bucket.target)
        self._bucket, self._reactor = bucket, reactor
        self._part_bytes = part_bytes
        self._prefix = f"{bucket.target.prefix}/" if bucket.target.prefix else ""

    def location(self, name: str) -> str:
        """See :meth:`IRecordingStore.location`."""
        return f"{self.url}/{require_name(name)}{SUFFIX}"

    def put(self, name: str, read: ReadText) -> Deferred[Stored]:
        """See :meth:`IRecordingStore.put`."""
        return Deferred.fromCoroutine(self._put(require_name(name), read))

    def read(self, name: str, offset: int, limit: int) -> Deferred[bytes]:
        """See :meth:`IRecordingStore.read`."""
        return Deferred.fromCoroutine(self._read(require_name(name), offset, limit))

    @as_deferred
    async def list(self, after: str = "", limit: int = _PAGE) -> Sequence[StoreEntry]:
        """See :meth:`IRecordingStore.list`."""
        entries: list[StoreEntry] = []
        start, is_last = self._key(after) if after else self._prefix, False
        while len(entries) < limit and not is_last:
            parameters = {"list-type": "2", "prefix": self._prefix, "start-after": start}
            parameters["max-keys"] = str(min(limit, _PAGE))
            body = await self._require(Call("GET", parameters=parameters))
            objects = page(body, "Contents")
            is_last = objects.is_last or not objects.elements
            for each in objects.elements:
                start = each.get("Key", "")
                name = start.removeprefix(self._prefix).removesuffix(SUFFIX)
                # Leave out objects of other programs, and of other prefixes below ours.
                if is_name(name) and start == self._key(name):
                    entries.append(StoreEntry(name, _number(each.get("Size", ""))))
        return entries[:limit]

    def delete(self, name: str) -> Deferred[None]:
        """See :meth:`IRecordingStore.delete`."""
        return Deferred.fromCoroutine(self._delete(self._key(require_name(name))))

    def close(self) -> Deferred[None]:
        """See :meth:`IRecordingStore.close`."""
        return self._bucket.close()

    def _key(self, name: str) -> str:
        return f"{self._prefix}{name}{SUFFIX}"

    async def _require(self, call: Call) -> bytes:
        """Send a request that must succeed; return the body of the answer."""
        code, body = await self._bucket.send(call)
        require_success(code, body)
        return body

    # Reading.

    async def _read(self, name: str, offset: int, limit: int) -> bytes:
        call = Call(
            "GET",
            self._key(name),
            headers={"range": f"bytes={offset}-{offset + limit - 1}"},
            limit_bytes=max(limit, _ERROR_BYTES),
        )
        code, body = await self._bucket.send(call)
        if code == _RANGE_NOT_SATISFIABLE:
            return b""
        if code == _NOT_FOUND and error(body)[0] != "NoSuchBucket":
            raise NotStored(self.location(name))
        if code not in (_OK, _PARTIAL_CONTENT):
            require_success(code, body)
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
            return Stored(len(first), await self._send(Call("PUT", key, body=first)))
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
            if len(sizes) == _MOST_PARTS:
                raise StoreError(
                    "refused", f"{key} is larger than {_MOST_PARTS * self._part_bytes >> 30} GiB"
                )
            sizes.append(len(data))
            offset += len(data)
            etag = await self._in_thread(_hashed, data, whole)
            if parts.get(len(sizes)) != UploadPart(len(data), etag):
                parameters = {"uploadId": upload, "partNumber": str(len(sizes))}
                await self._send(Call("PUT", key, parameters, data))
            data = await fill(read, offset, self._part_bytes)
        parts = await self._parts(key, upload)
        if [
            parts.get(number, UploadPart(-1, "")).size for number in range(1, len(sizes) + 1)
        ] != sizes:
            raise StoreError("answer", "the bucket has other parts than it was sent")
        etags = (parts[number].etag for number in range(1, len(sizes) + 1))
        await self._require(
            Call("POST", key, {"uploadId": upload}, completion(f'"{each}"' for each in etags))
        )
        return Stored(offset, whole.hexdigest())

    async def _send(self, call: Call) -> str:
        """Send a part, or a whole object, with hashes that the bucket compares; return the SHA-256."""
        payload, check = await self._in_thread(_checksums, call.body)
        # Buckets that lock their objects demand Content-MD5.
        await self._require(
            Call(
                call.method,
                call.key,
                call.parameters,
                call.body,
                {"content-md5": check},
                payload,
            )
        )
        return str(payload)

    async def _new_upload(self, key: str) -> str:
        body = await self._require(Call("POST", key, {"uploads": ""}))
        return text(body, "UploadId")

    async def _incomplete_upload(self, key: str) -> str:
        """Return the newest incomplete upload, and abort others; empty if there is none."""
        *others, newest = await self._uploads(key) or [""]
        await self._abort(others, key)
        return newest

    async def _uploads(self, key: str) -> Sequence[str]:
        """Return the incomplete uploads of an object, the newest last."""
        body = await self._require(Call("GET", parameters={"uploads": "", "prefix": key}))
        uploads = page(body, "Upload").elements
        own = [each for each in uploads if each.get("Key") == key and each.get("UploadId")]
        own.sort(key=lambda each: each.get("Initiated", ""))
        return [each["UploadId"] for each in own]

    async def _parts(self, key: str, upload: str) -> dict[int, UploadPart]:
        parts: dict[int, UploadPart] = {}
        while True:
            parameters = {"uploadId": upload, "max-parts": str(_PAGE)}
            if parts:
                parameters["part-number-marker"] = str(max(parts))
            body = await self._require(Call("GET", key, parameters))
            listed = page(body, "Part")
            before = len(parts)
            for each in listed.elements:
                part = UploadPart(_number(each.get("Size", "")), each.get("ETag", "").strip('"'))
                parts[_number(each.get("PartNumber", ""))] = part
            if len(parts) > _MOST_PARTS:
                raise StoreError("answer", "the bucket lists more parts than an upload can have")
            if listed.is_last or len(parts) == before:
                return parts

    async def _abort(self, uploads: Sequence[str], key: str) -> None:
        for upload in uploads:
            code, body = await self._bucket.send(Call("DELETE", key, {"uploadId": upload}))
            if code != _NOT_FOUND:
                require_success(code, body)

    async def _delete(self, key: str) -> None:
        code, body = await self._bucket.send(Call("DELETE", key))
        if code != _NOT_FOUND:
            require_success(code, body)
        await self._abort(await self._uploads(key), key)

    async def _in_thread(self, work: Any, *arguments: Any) -> Any:
        # To hash some megabytes in the reactor would delay every console.
        pool = self._reactor.getThreadPool()
        return await deferToThreadPool(self._reactor, pool, work, *arguments)


def _hashed(data: bytes, whole: Any) -> str:
    """Add a part to the hash of the recording; return the part's ETag."""
    whole.update(data)
    # A bucket that encrypts with its own keys reports other hashes; then an attempt after a crash
    # sends all parts again.
    return md5(data, usedforsecurity=False).hexdigest()


def _checksums(data: bytes) -> tuple[str, str]:
    """Return SHA-256 in hexadecimal digits, and the value of Content-MD5."""
    check = b64encode(md5(data, usedforsecurity=False).digest()).decode()
    return sha256(data).hexdigest(), check


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise StoreError("answer", "the bucket's answer has no number where there must be one")
    return int(text)


_MESSAGE_CHARACTERS = 200
_FULL = ("EntityTooLarge", "QuotaExceeded", "XMinioStorageFull", "InsufficientCapacity")
_INSUFFICIENT_STORAGE = 507
_MOST_MARKS = 60_000
"""
Opening brackets, and equals signs, of an answer; a full page has some 25 000.  A million of them take a second to
parse, in which no console is served.
"""


class UploadPart(NamedTuple):
    """A part of an upload."""

    size: int
    etag: str


@dataclass(frozen=True)
class ListPage:
    """
    A page of a list.

    :param elements: the entries, each with the texts of its elements.
    :param is_last: there are no more pages.
    """

    elements: Sequence[dict[str, str]]
    is_last: bool


def page(body: bytes, entry: str) -> ListPage:
    """
    Read a page of a list.

    :param entry: name of the elements of entries.
    :raises StoreError: it is not a page.
    """
    tree = _parse(body)
    entries = [
        {_name(field): field.text or "" for field in each} for each in tree if _name(each) == entry
    ]
    # Services differ in the name of the root; all have this element.
    truncated = tree.findtext("{*}IsTruncated")
    if truncated is None:
        raise StoreError("answer", _NOT_S3)
    return ListPage(entries, truncated != "true")


def text(body: bytes, name: str) -> str:
    """
    Return the text of an element.

    :raises StoreError: there is none.
    """
    value = _parse(body).findtext(f"{{*}}{name}", "")
    if not value:
        raise StoreError("answer", f"the bucket's answer has no {name}")
    return value


def require_success(code: int, body: bytes) -> None:
    """
    Check an answer, also one that reports its failure in the body of a 200.

    :raises StoreError: the request failed.
    """
    if 200 <= code < 300 and b"<Error" not in body[:1000]:
        return
    if 300 <= code < 400:
        raise StoreError(
            "refused",
            f"the bucket answered {code}; redirects are not followed: correct the endpoint, region "
            "and style in the URL of the store",
        )
    name, message = error(body)
    kind = "full" if code == _INSUFFICIENT_STORAGE or name in _FULL else "refused"
    details = ": ".join(filter(None, (name, message)))
    raise StoreError(kind, f"the bucket answered {code}" + (f": {details}" if details else ""))


def error(body: bytes) -> tuple[str, str]:
    """Return code and message of an error; they are empty if there are none."""
    try:
        tree = _parse(body)
    except StoreError:
        return "", ""
    # The other elements repeat parts of the request, which logs do not need.
    name, message = (tree.findtext(f"{{*}}{each}", "") for each in ("Code", "Message"))
    return _one_line(name), _one_line(message).rstrip(".")


def completion(etags: Iterator[str]) -> bytes:
    """Return the body of the request that joins the parts, which are in their order."""
    parts = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(etag)}</ETag></Part>"
        for number, etag in enumerate(etags, 1)
    )
    namespace = "http://s3.amazonaws.com/doc/2006-03-01/"
    return (
        f'<CompleteMultipartUpload xmlns="{namespace}">{parts}</CompleteMultipartUpload>'.encode()
    )


def _parse(body: bytes) -> ElementTree.Element:
    # S3 sends white space while a long request is under way.  A declaration could define entities
    # that expand to any amount of memory; no answer of S3 has one.  In another encoding it would be
    # overlooked here.
    try:
        content = body.strip().decode()
        if "<!" in content or max(content.count("<"), content.count("=")) > _MOST_MARKS:
            raise ValueError
        tree = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError):
        raise StoreError("answer", _NOT_S3) from None
    return tree


_NOT_S3 = "the bucket's answer is not one of S3: check the URL of the store"


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _one_line(text: str) -> str:
    printable = "".join(each if each.isprintable() else " " for each in text)
    return printable[:_MESSAGE_CHARACTERS].strip()
