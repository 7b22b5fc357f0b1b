"""
A bucket as a store of recordings: :mod:`twisted_exec.recording.stores.s3`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import Factory

from tests.contracts.recording_store import RecordingStoreContract, stored, text_of
from tests.recording.stores.support import PART_BYTES, BucketCase, reactor
from twisted_exec.kube.transport import Request
from twisted_exec.recording.stores import s3 as store_module
from twisted_exec.recording.stores.interfaces import StoreError
from twisted_exec.recording.stores.s3 import MOST_PARTS, transport_of


class Killed(Exception):
    """The process ended."""


class Transport:
    """
    Connections that remember requests, and end with the process at one of them.

    :param last: number of the request at which the process ends, from 0; -1 for none.
    :param is_sent: that request arrives, and its answer is lost.
    """

    def __init__(self, inner: Any, last: int = -1, is_sent: bool = False) -> None:
        self._inner = inner
        self._last, self._is_sent = last, is_sent
        self.requests: list[Request] = []

    async def collect(
        self, request: Request, **limits: Any
    ) -> tuple[int, Mapping[str, str], bytes]:
        is_last = len(self.requests) == self._last
        if is_last and not self._is_sent:
            raise Killed
        self.requests.append(request)
        answer: tuple[int, Mapping[str, str], bytes] = await self._inner.collect(request, **limits)
        if is_last:
            raise Killed
        return answer

    def close(self) -> Deferred[None]:
        closed: Deferred[None] = self._inner.close()
        return closed

    def sent(self) -> list[str]:
        """The parts and objects that were sent."""
        return [
            dict(parse_qsl(urlsplit(each.target).query)).get("partNumber", "whole")
            for each in self.requests
            if each.method == "PUT"
        ]


class S3Case(BucketCase):
    """A bucket."""

    def transport(self, last: int = -1, is_sent: bool = False) -> Transport:
        """Connections to it."""
        return Transport(transport_of(self.target(), reactor), last, is_sent)


class ShortTests(S3Case, RecordingStoreContract):
    """Recordings that fit into one request."""

    content = bytes(range(256)) * 20

    async def test_given_up(self) -> None:
        """An attempt that is not complete leaves nothing."""
        store = self.make_store()
        await self.assertFailure(store.put("a", text_of(self.content, until=1000)), OSError)
        self.assertEqual(self.leftovers(), 0)


class PartsTests(S3Case, RecordingStoreContract):
    """Recordings of several parts."""

    content = bytes(range(256)) * 100

    async def test_one_object(self) -> None:
        """A recording is one object below the prefix; its location says where."""
        transport = self.transport()
        store = self.make_store(transport)
        await store.put("a", text_of(self.content))
        self.assertEqual(self.objects(), {"consoles/a/a.cast": self.content})
        self.assertEqual(transport.sent(), ["1", "2", "3"])
        self.assertEqual(store.location("a"), "s3://recordings/consoles/a/a.cast")

    async def test_whole_parts(self) -> None:
        """The last part may be as long as the others."""
        store = self.make_store()
        for count in (1, 2):
            content = b"x" * PART_BYTES * count
            self.assertEqual(await store.put("a", text_of(content)), stored(content))
            self.assertEqual(await self.whole(store), content)

    async def test_many_parts(self) -> None:
        """More parts than are listed at once are found again."""
        self.patch(store_module, "_PAGE", 1)
        await self.assertFailure(
            self.make_store().put("a", text_of(self.content, until=2 * PART_BYTES)), OSError
        )
        transport = self.transport()
        store = self.make_store(transport)
        self.assertEqual(await store.put("a", text_of(self.content)), stored(self.content))
        self.assertEqual(transport.sent(), ["3"])

    async def test_resumed(self) -> None:
        """Parts that have arrived are not sent again."""
        await self.assertFailure(
            self.make_store().put("a", text_of(self.content, until=2 * PART_BYTES)), OSError
        )
        transport = self.transport()
        await self.make_store(transport).put("a", text_of(self.content))
        self.assertEqual(transport.sent(), ["3"])
        self.assertEqual(self.objects(), {"consoles/a/a.cast": self.content})

    async def test_changed(self) -> None:
        """Parts of an attempt with other content are replaced."""
        other = self.content[:PART_BYTES] + b"y" * PART_BYTES + self.content
        await self.assertFailure(
            self.make_store().put("a", text_of(other, until=len(other) - 1)), OSError
        )
        transport = self.transport()
        await self.make_store(transport).put("a", text_of(self.content))
        self.assertEqual(transport.sent(), ["2", "3"])
        self.assertEqual(self.objects(), {"consoles/a/a.cast": self.content})
        self.assertEqual(self.leftovers(), 0)

    async def test_killed_at_any_request(self) -> None:
        """
        The process ends before or after any request; the next attempt leads to exactly one object with
        the content, and nothing else is left.
        """
        for is_sent in (False, True):
            for last in range(100):
                self.backend.reset()
                await self._create()
                store = self.make_store(self.transport(last, is_sent))
                try:
                    await store.put("a", text_of(self.content))
                except Killed:
                    pass
                else:
                    self.assertGreater(last, 6)
                    break
                store = self.make_store()
                self.assertEqual(await store.put("a", text_of(self.content)), stored(self.content))
                self.assertEqual(self.objects(), {"consoles/a/a.cast": self.content})
                self.assertEqual(self.leftovers(), 0)
                await store.close()

    async def test_lost_end(self) -> None:
        """If the last answer was lost, the object is compared and not sent again."""
        await self.make_store().put("a", text_of(self.content))
        transport = self.transport()
        await self.make_store(transport).put("a", text_of(self.content))
        self.assertEqual(transport.sent(), [])

    async def test_objects_of_others(self) -> None:
        """Other objects and incomplete uploads below the prefix are ignored and stay."""
        for key in ("consoles/a/sub/b.cast", "consoles/a/B.cast", "consoles/a/b.txt", "c.cast"):
            self.backend.put_object("recordings", key, b"")
        other = self.backend.create_multipart_upload(
            "recordings", "consoles/a/a.cast.old", {}, "STANDARD", {}, None, "", ""
        )
        store = self.make_store()
        await store.put("a", text_of(self.content))
        await store.put("z", text_of(b""))
        self.assertEqual(await self.names(store), ["a", "z"])
        listed = await store.list(limit=1)
        self.assertEqual([each.name for each in listed], ["a"])
        await store.delete("a")
        self.assertEqual([*self.backend.buckets["recordings"].multiparts], [other.id])

    async def test_no_bucket(self) -> None:
        """A bucket that does not exist is an error, not an empty store."""
        self.backend.reset()
        store = self.make_store()
        for working in (store.put("a", text_of(self.content)), store.read("a", 0, 1), store.list()):
            error = await self.refusal(working)
            self.assertEqual(error.kind, "refused")
            self.assertIn("NoSuchBucket", str(error))

    async def test_away(self) -> None:
        """A bucket that does not answer is an error that names it, without the signature."""
        listening = reactor.listenTCP(0, Factory(), interface="127.0.0.1")
        self.port = listening.getHost().port
        await listening.stopListening()
        store = self.make_store()
        error: StoreError = await self.refusal(store.put("a", text_of(self.content)))
        self.assertEqual(error.kind, "unreachable")
        self.assertIn(f"http://127.0.0.1:{self.port}", str(error))
        self.assertNotIn("Signature", str(error))


class Endless:
    """
    A bucket whose list of parts has no end.

    :param page: the parts in each answer.
    """

    def __init__(self, page: int) -> None:
        self._page = page
        self.listed = 0

    async def collect(
        self, request: Request, **limits: Any
    ) -> tuple[int, Mapping[str, str], bytes]:
        query = dict(parse_qsl(urlsplit(request.target).query, keep_blank_values=True))
        if request.method == "POST":
            return 200, {}, b"<a><UploadId>u</UploadId></a>"
        if "uploads" in query:
            return 200, {}, b"<a><IsTruncated>false</IsTruncated></a>"
        if "uploadId" not in query:
            return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"
        first = int(query.get("part-number-marker", "0")) + 1
        self.listed = first + self._page - 1
        part = b"<Part><PartNumber>%d</PartNumber><Size>1</Size><ETag>e</ETag></Part>"
        parts = b"".join(part % number for number in range(first, first + self._page))
        return 200, {}, b"<a>%s<IsTruncated>true</IsTruncated></a>" % parts

    def close(self) -> Deferred[None]:
        return succeed(None)


class HostileTests(S3Case):
    """Buckets that lie."""

    async def test_parts_without_end(self) -> None:
        """More parts than an upload can have are an error, also where each answer has one."""
        for page, limits in ((1, {"most_parts": 20}), (1000, {})):
            bucket = Endless(page)
            store = self.make_store(bucket, **limits)
            with self.assertRaisesRegex(StoreError, "more parts than an upload can have"):
                await store.put("a", text_of(b"x" * PART_BYTES))
            self.assertEqual(bucket.listed, limits.get("most_parts", MOST_PARTS) + page)
