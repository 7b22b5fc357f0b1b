"""
A bucket as a store of recordings.

A short recording is one request.  A longer one is uploaded in parts, and becomes an object when the last
request joins them.  S3 itself remembers the parts of an upload, so an attempt after a crash needs no
state of ours: it lists the upload's parts, compares their hashes, and sends the parts that are missing or
differ.  The earlier attempt need not have had the same content.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import md5, sha256
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from zope.interface import implementer

from twisted_exec.program.tasks import as_deferred
from twisted_exec.recording.stores.interfaces import (
    SUFFIX,
    Entry,
    IRecordingStore,
    NotStored,
    ReadText,
    Stored,
    StoreError,
    fill,
    is_name,
    reader,
    require_name,
)
from twisted_exec.recording.stores.verification import digest

from .answers import Part, completion, error, page, require_success, text
from .bucket import Bucket, Call

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
    async def list(self, after: str = "", limit: int = _PAGE) -> Sequence[Entry]:
        """See :meth:`IRecordingStore.list`."""
        entries: list[Entry] = []
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
                    entries.append(Entry(name, _number(each.get("Size", ""))))
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
            if parts.get(len(sizes)) != Part(len(data), etag):
                parameters = {"uploadId": upload, "partNumber": str(len(sizes))}
                await self._send(Call("PUT", key, parameters, data))
            data = await fill(read, offset, self._part_bytes)
        parts = await self._parts(key, upload)
        if [parts.get(number, Part(-1, "")).size for number in range(1, len(sizes) + 1)] != sizes:
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

    async def _parts(self, key: str, upload: str) -> dict[int, Part]:
        parts: dict[int, Part] = {}
        while True:
            parameters = {"uploadId": upload, "max-parts": str(_PAGE)}
            if parts:
                parameters["part-number-marker"] = str(max(parts))
            body = await self._require(Call("GET", key, parameters))
            listed = page(body, "Part")
            before = len(parts)
            for each in listed.elements:
                part = Part(_number(each.get("Size", "")), each.get("ETag", "").strip('"'))
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
