"""
A store of recordings in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from twisted_exec.recording.stores.interfaces import (
    SUFFIX,
    IRecordingStore,
    NotStored,
    ReadText,
    Stored,
    StoreEntry,
    StoreError,
    fill,
    require_name,
)


@implementer(IRecordingStore)
class MemoryStore:
    """
    :ivar content: the recordings.
    :ivar problem: fails all calls.
    :ivar gate: calls wait for it.
    :ivar damage: is added to the next recording.
    """

    url = "memory://store"

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.problem: StoreError | None = None
        self.gate: Deferred[None] | None = None
        self.damage = b""
        self.calls: list[str] = []
        self.is_closed = False

    async def _enter(self, call: str) -> None:
        self.calls.append(call)
        if self.gate is not None:
            await self.gate
        if self.problem is not None:
            raise self.problem

    def put(self, name: str, read: ReadText) -> Deferred[Stored]:
        return Deferred.fromCoroutine(self._put(require_name(name), read))

    async def _put(self, name: str, read: ReadText) -> Stored:
        await self._enter(f"put {name}")
        data = await fill(read, 0, 1 << 30)
        self.content[name], self.damage = data + self.damage, b""
        return Stored(len(data), sha256(data).hexdigest())

    def read(self, name: str, offset: int, limit: int) -> Deferred[bytes]:
        return Deferred.fromCoroutine(self._read(require_name(name), offset, limit))

    async def _read(self, name: str, offset: int, limit: int) -> bytes:
        if self.problem is not None:
            raise self.problem
        if name not in self.content:
            raise NotStored(self.location(name))
        return self.content[name][offset : offset + limit]

    def list(self, after: str = "", limit: int = 1000) -> Deferred[Sequence[StoreEntry]]:
        names = sorted(each for each in self.content if each > after)[:limit]
        return succeed([StoreEntry(name, len(self.content[name])) for name in names])

    def delete(self, name: str) -> Deferred[None]:
        return Deferred.fromCoroutine(self._delete(require_name(name)))

    async def _delete(self, name: str) -> None:
        await self._enter(f"delete {name}")
        self.content.pop(name, None)

    def location(self, name: str) -> str:
        return f"{self.url}/{require_name(name)}{SUFFIX}"

    def close(self) -> Deferred[None]:
        self.is_closed = True
        return succeed(None)
