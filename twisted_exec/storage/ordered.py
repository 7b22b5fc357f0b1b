"""
The objects of one resource in order of namespace and name, with snapshots.

The objects are in blocks of a few hundred.  A snapshot shares the blocks, and a change copies only
the block that it concerns: neither costs more with more objects.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import eq
from typing import Any, overload

from twisted_exec.storage.interfaces import Object

_BLOCK_KEYS = 256
"""Keys of a full block after it was split; it is split at twice as many."""

_Key = tuple[str, str]
"""Namespace and name."""


class _Block:
    __slots__ = ("keys", "objects", "owner")

    def __init__(self, keys: list[_Key], objects: list[Object], owner: object) -> None:
        self.keys, self.objects, self.owner = keys, objects, owner


class OrderedObjects:
    """
    Objects by key, in order.

    :ivar by_key: to be read only.
    """

    def __init__(self) -> None:
        self.by_key: dict[_Key, Object] = {}
        self._blocks: list[_Block] = []
        self._last_keys: list[_Key] = []
        # Only blocks of this owner are changed in place; the others are in a snapshot.
        self._owner = object()
        self._snapshot: Snapshot | None = None

    def put(self, key: _Key, obj: Object) -> None:
        """Add or replace an object."""
        number = min(bisect_left(self._last_keys, key), len(self._blocks) - 1)
        if number < 0:
            self._blocks.append(_Block([], [], self._owner))
            self._last_keys.append(key)
            number = 0
        block = self._changeable(number)
        if key in self.by_key:
            block.objects[bisect_left(block.keys, key)] = obj
        else:
            place = bisect_left(block.keys, key)
            block.keys.insert(place, key)
            block.objects.insert(place, obj)
            self._last_keys[number] = block.keys[-1]
            if len(block.keys) >= 2 * _BLOCK_KEYS:
                self._split(number)
        self.by_key[key] = obj

    def drop(self, key: _Key) -> None:
        """Remove an object, if it is there."""
        if self.by_key.pop(key, None) is None:
            return
        number = bisect_left(self._last_keys, key)
        block = self._changeable(number)
        place = bisect_left(block.keys, key)
        del block.keys[place], block.objects[place]
        if block.keys:
            self._last_keys[number] = block.keys[-1]
        else:
            del self._blocks[number], self._last_keys[number]

    def _changeable(self, number: int) -> _Block:
        if self._snapshot is not None:
            self._snapshot, self._owner = None, object()
        block = self._blocks[number]
        if block.owner is not self._owner:
            block = _Block(list(block.keys), list(block.objects), self._owner)
            self._blocks[number] = block
        return block

    def _split(self, number: int) -> None:
        block = self._blocks[number]
        rest = _Block(block.keys[_BLOCK_KEYS:], block.objects[_BLOCK_KEYS:], self._owner)
        del block.keys[_BLOCK_KEYS:], block.objects[_BLOCK_KEYS:]
        self._blocks.insert(number + 1, rest)
        self._last_keys.insert(number, block.keys[-1])

    def snapshot(self) -> Snapshot:
        """Return the objects as they are now, whatever changes later."""
        if self._snapshot is None:
            ends = list(accumulate(len(block.keys) for block in self._blocks))
            self._snapshot = Snapshot(list(self._blocks), ends)
        return self._snapshot

    def before(self, previous: dict[_Key, Object | None]) -> Snapshot:
        """
        Return the objects as they were before some changes.

        :param previous: the objects that were changed, ``None`` for those that did not exist.
        """
        earlier = OrderedObjects()
        # One dictionary is enough to know which of these keys are in the blocks.
        earlier.by_key = {key: self.by_key[key] for key in previous if key in self.by_key}
        self.snapshot()  # these blocks are shared from now on
        earlier._blocks, earlier._last_keys = list(self._blocks), list(self._last_keys)
        for key, obj in previous.items():
            if obj is None:
                earlier.drop(key)
            else:
                earlier.put(key, obj)
        return earlier.snapshot()


class _Objects(Sequence[Object]):
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


class Snapshot(_Objects):
    """Objects in order, unchangeable."""

    def __init__(
        self, blocks: list[_Block], ends: list[int], first: int = 0, end: int | None = None
    ) -> None:
        self._blocks, self._ends = blocks, ends
        self._first = first
        self._end = (ends[-1] if ends else 0) if end is None else end

    def within(self, namespace: str) -> Snapshot:
        """Return the objects of a namespace."""
        # The second is the least key behind those of the namespace.
        first, end = self._place((namespace, "")), self._place((namespace + "\0", ""))
        return Snapshot(self._blocks, self._ends, first, end)

    def _place(self, key: _Key) -> int:
        number = bisect_left(self._blocks, key, key=lambda block: block.keys[-1])
        if number == len(self._blocks):
            return self._ends[-1] if self._ends else 0
        keys = self._blocks[number].keys
        return self._ends[number] - len(keys) + bisect_left(keys, key)

    def __len__(self) -> int:
        return self._end - self._first

    @overload
    def __getitem__(self, place: int) -> Object: ...
    @overload
    def __getitem__(self, place: slice) -> Snapshot: ...
    def __getitem__(self, place: int | slice) -> Object | Snapshot:
        if isinstance(place, slice):
            start, stop, step = place.indices(len(self))
            if step != 1:
                raise ValueError("objects are listed in their order")
            first = self._first + start
            return Snapshot(self._blocks, self._ends, first, max(first, self._first + stop))
        index = range(self._first, self._end)[place]
        number = bisect_right(self._ends, index)
        return self._blocks[number].objects[index - self._ends[number]]

    def __iter__(self) -> Iterator[Object]:
        number, index = bisect_right(self._ends, self._first), self._first
        while index < self._end:
            objects, end = self._blocks[number].objects, self._ends[number]
            # Places from the block's end are negative, but for the end itself.
            yield from objects[index - end : min(0, self._end - end) or None]
            number, index = number + 1, end


class Converted(_Objects):
    """
    Objects that are converted when they are read.

    :param convert: called for each reading of an object.
    """

    def __init__(self, objects: Sequence[Object], convert: Callable[[Object], Object]) -> None:
        self._objects, self._convert = objects, convert

    def __len__(self) -> int:
        return len(self._objects)

    @overload
    def __getitem__(self, place: int) -> Object: ...
    @overload
    def __getitem__(self, place: slice) -> Converted: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return Converted(self._objects[place], self._convert)
        return self._convert(self._objects[place])

    def __iter__(self) -> Iterator[Object]:
        return map(self._convert, self._objects)
