"""
Retention of journals, sans I/O.

Whole segments are removed, the oldest of a journal first, for reasons of age or size. The journal
of a machine deleted long ago is removed entirely.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_DAY = 86_400 * 1_000_000_000
_JUMP_SECONDS = 3600.0
_DISTRUST_SECONDS = 86_400.0


@dataclass(frozen=True)
class Retention:
    """
    Limits of the journals of one class.

    :param days: oldest output that is retained; 0 for any age.
    :param machine_bytes: size of each journal; 0 for any size.
    """

    days: float = 30.0
    machine_bytes: int = 64 << 20


@dataclass(frozen=True)
class StoreLimits:
    """
    Limits of all journals of a store.

    :param total_bytes: size of all journals; 0 for a tenth of the file system.
    :param free_bytes: space of the file system that the journals leave free; ``None`` for 1 GiB, or
        a twentieth of a file system below 20 GiB.
    :param deleted_days: the journal of a deleted machine is removed after this time.
    """

    total_bytes: int = 0
    free_bytes: int | None = None
    deleted_days: float = 7.0


DEFAULT_RETENTION = Retention()
DEFAULT_LIMITS = StoreLimits()


@dataclass(frozen=True)
class SegmentFile:
    """
    One segment on disk.

    :param last_time: time of its newest entry, in nanoseconds since the epoch.
    """

    first: int
    size: int
    last_time: int


@dataclass(frozen=True)
class JournalUsage:
    """
    The files of one journal.

    :param segments: the oldest first; the last one grows.
    """

    key: str
    segments: Sequence[SegmentFile]
    retention: Retention
    deleted_at: int = 0


@dataclass(frozen=True)
class Space:
    """Size and free space of a file system."""

    size: int
    free: int


@dataclass(frozen=True)
class Removal:
    """A segment to remove; ``first`` is ``None`` for the whole journal."""

    key: str
    first: int | None


class ClockTrust:
    """
    Decides whether ages can be trusted: not for a day after the time of day has jumped, or after a
    start far from the time that the last run has noted.

    Times are seconds of a clock that never jumps, and nanoseconds since the epoch.
    """

    def __init__(self) -> None:
        self._seen: tuple[float, int] | None = None
        self._distrust_until = 0.0

    def begin(self, seconds: float, now: int, last: int | None) -> None:
        """Take the times of a start; ``last`` is the time of day that the last run has noted."""
        if last is not None and abs(now - last) > _JUMP_SECONDS * 1e9:
            self._distrust(seconds)  # the clock may be wrong, or it is long ago: nothing is urgent
        self._seen = seconds, now

    def check(self, seconds: float, now: int) -> bool:
        if self._seen is not None:
            before, then = self._seen
            if abs((now - then) / 1e9 - (seconds - before)) > _JUMP_SECONDS:
                self._distrust(seconds)
        self._seen = seconds, now
        return seconds >= self._distrust_until

    def _distrust(self, seconds: float) -> None:
        self._distrust_until = seconds + _DISTRUST_SECONDS


def plan(
    usages: Iterable[JournalUsage],
    limits: StoreLimits,
    space: Space,
    now: int,
    *,
    by_age: bool = True,
) -> list[Removal]:
    """
    Decide what to remove.

    :param by_age: false while the clock cannot be trusted.
    :param now: nanoseconds since the epoch.
    """
    removals: list[Removal] = []
    remaining: dict[str, list[SegmentFile]] = {}
    for usage in usages:
        if by_age and usage.deleted_at and now - usage.deleted_at > limits.deleted_days * _DAY:
            removals.append(Removal(usage.key, None))
            continue
        segments = list(usage.segments)
        for segment in _beyond(usage, now, by_age):
            removals.append(Removal(usage.key, segment.first))
            segments.remove(segment)
        remaining[usage.key] = segments
    total = sum(each.size for segments in remaining.values() for each in segments)
    excess = max(total - _total_bytes(limits, space), _free_bytes(limits, space) - space.free)
    removals += _fair(remaining, excess)
    return removals


def _beyond(usage: JournalUsage, now: int, by_age: bool) -> Iterator[SegmentFile]:
    size = sum(each.size for each in usage.segments)
    days, limit = usage.retention.days, usage.retention.machine_bytes
    for segment in usage.segments:
        is_old = by_age and days and now - segment.last_time > days * _DAY
        is_newest = segment is usage.segments[-1]
        if not is_old and not (limit and size > limit and not is_newest):
            return
        size -= segment.size
        yield segment


def _total_bytes(limits: StoreLimits, space: Space) -> int:
    return limits.total_bytes or space.size // 10


def _free_bytes(limits: StoreLimits, space: Space) -> int:
    return min(1 << 30, space.size // 20) if limits.free_bytes is None else limits.free_bytes


def _fair(remaining: dict[str, list[SegmentFile]], excess: int) -> Iterator[Removal]:
    heap = [(-sum(each.size for each in segments), key) for key, segments in remaining.items()]
    heapq.heapify(heap)
    while excess > 0 and heap:
        size, key = heapq.heappop(heap)
        if len(remaining[key]) < 2:
            continue
        segment = remaining[key].pop(0)
        excess -= segment.size
        yield Removal(key, segment.first)
        heapq.heappush(heap, (size + segment.size, key))
