"""
Contract of every :class:`~twisted_exec.recording.stores.interfaces.IRecordingStore`.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from zope.interface.verify import verifyObject

from twisted_exec.recording.stores.interfaces import (
    IRecordingStore,
    NotStored,
    ReadText,
    Stored,
    StoreEntry,
    StoreError,
    digest,
    reader,
)

LIMIT = 1 << 20


def text_of(content: bytes, *, until: int | None = None) -> ReadText:
    """
    Return the function that reads a recording.

    :param until: reading at or behind this offset fails, as if the journal could not be read.
    """

    def read(offset: int, limit: int) -> Deferred[bytes]:
        if until is not None and offset + limit > until:
            return fail(OSError(5, "Input/output error"))
        return succeed(content[offset : offset + limit])

    return read


def stored(content: bytes) -> Stored:
    """Return the result of storing a recording."""
    return Stored(len(content), sha256(content).hexdigest())


class RecordingStoreContract:
    """Mix into a ``TestCase`` of trial that makes an empty store."""

    content = bytes(range(256)) * 100

    def make_store(self: Any) -> IRecordingStore:
        """An empty store; further calls in one test return it again, as after a restart."""
        raise NotImplementedError

    def leftovers(self: Any) -> int:
        """The number of incomplete attempts in the store."""
        raise NotImplementedError

    async def names(self: Any, store: IRecordingStore) -> list[str]:
        """The names in the store."""
        return [each.name for each in await store.list()]

    async def whole(self: Any, store: IRecordingStore, name: str = "a") -> bytes:
        """A recording, read in pieces."""
        read, data = reader(store, name), b""
        while piece := await read(len(data), 10_000):
            data += piece
        return data

    async def test_stored(self: Any) -> None:
        """A recording is read as it was sent, in any ranges."""
        store = self.make_store()
        verifyObject(IRecordingStore, store)
        self.assertEqual(await store.put("a", text_of(self.content)), stored(self.content))
        self.assertEqual(await digest(reader(store, "a")), stored(self.content))
        self.assertEqual(await self.whole(store), self.content)
        size = len(self.content)
        self.assertEqual(await store.read("a", 100, 3), self.content[100:103])
        self.assertEqual(await store.read("a", size - 5, LIMIT), self.content[-5:])
        self.assertEqual(await store.read("a", size, LIMIT), b"")
        self.assertEqual(await store.read("a", size + 1, LIMIT), b"")
        self.assertEqual(self.leftovers(), 0)

    async def test_empty(self: Any) -> None:
        """A recording may be empty."""
        store = self.make_store()
        self.assertEqual(await store.put("a", text_of(b"")), stored(b""))
        self.assertEqual(await self.whole(store), b"")
        self.assertEqual(list(await store.list()), [StoreEntry("a", 0)])

    async def test_twice(self: Any) -> None:
        """Storing a recording again leads to the same; other content replaces it."""
        store = self.make_store()
        await store.put("a", text_of(self.content))
        self.assertEqual(
            await self.make_store().put("a", text_of(self.content)), stored(self.content)
        )
        other = self.content[::-1]
        self.assertEqual(await store.put("a", text_of(other)), stored(other))
        self.assertEqual(await self.whole(store), other)
        self.assertEqual(await self.names(store), ["a"])

    async def test_listed(self: Any) -> None:
        """Recordings are listed page by page, each once."""
        store = self.make_store()
        self.assertEqual(list(await store.list()), [])
        expected = {"a", "a.b", "b-1", "c"}
        for name in expected:
            await store.put(name, text_of(name.encode()))
        found: list[StoreEntry] = []
        while entries := await store.list(after=found[-1].name if found else "", limit=3):
            self.assertLessEqual(len(entries), 3)
            found += entries
        self.assertEqual(len(found), 4)
        self.assertEqual({each.name for each in found}, expected)
        self.assertEqual({each.size for each in found}, {1, 3})

    async def test_deleted(self: Any) -> None:
        """Deleting may be repeated; others stay."""
        store = self.make_store()
        for name in ("a", "b"):
            await store.put(name, text_of(self.content))
        await store.delete("a")
        await store.delete("a")
        await store.delete("never-there")
        self.assertEqual(await self.names(store), ["b"])

    async def test_missing(self: Any) -> None:
        """A recording that is not there is refused by its location."""
        store = self.make_store()
        error = await self.assertFailure(store.read("a", 0, LIMIT), NotStored)
        self.assertIn(store.location("a"), str(error))

    async def test_interrupted(self: Any) -> None:
        """Of a recording that cannot be read to its end, nothing is seen; a later attempt completes it."""
        store = self.make_store()
        half = len(self.content) // 2
        await self.assertFailure(store.put("a", text_of(self.content, until=half)), OSError)
        self.assertEqual(await self.names(store), [])
        await self.assertFailure(store.read("a", 0, LIMIT), NotStored)
        store = self.make_store()
        self.assertEqual(await store.put("a", text_of(self.content)), stored(self.content))
        self.assertEqual(await self.whole(store), self.content)
        self.assertEqual(await self.names(store), ["a"])
        self.assertEqual(self.leftovers(), 0)

    async def test_given_up(self: Any) -> None:
        """Deleting a recording deletes what an incomplete attempt left."""
        store = self.make_store()
        half = len(self.content) // 2
        await self.assertFailure(store.put("a", text_of(self.content, until=half)), OSError)
        self.assertEqual(self.leftovers(), 1)
        await store.delete("a")
        self.assertEqual(self.leftovers(), 0)

    async def test_names(self: Any) -> None:
        """Names cannot leave the store."""
        store = self.make_store()
        for name in ("", "../a", ".a", "A", "a/b", "a\n", "a" * 201, "a%2f"):
            with self.assertRaises(ValueError):
                store.read(name, 0, 1)
            with self.assertRaises(ValueError):
                store.put(name, text_of(b""))
            with self.assertRaises(ValueError):
                store.delete(name)

    async def test_no_secrets(self: Any) -> None:
        """Locations begin with the URL of the store."""
        store = self.make_store()
        self.assertTrue(store.location("a").startswith(store.url + "/"))
        self.assertTrue(store.location("a").endswith("/a.cast"))

    async def refusal(self: Any, working: Deferred[Any]) -> StoreError:
        """The error of a call."""
        error: StoreError = await self.assertFailure(working, StoreError)
        return error
