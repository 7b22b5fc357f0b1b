"""
The journal of one console.

All viewers, logs, alerts and shippers read the same journal, each at its own offset, so output is
stored once for any number of readers.
"""

from __future__ import annotations

import re
import secrets
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from zope.interface import implementer

from .interfaces import Boot, Event, ICursor, IJournal, Kind
from .tail import Tail

_MAX_EVENTS = 1000
_MAX_BOOTS = 1000
_CURSOR = re.compile(r"[a-z0-9-]{1,63}")
_OFFSET = attrgetter("offset")


@implementer(IJournal)
class Journal:
    """
    A journal in memory, which ends with the process.

    :param now_nanoseconds: returns the time of day, in nanoseconds since the epoch.
    """

    def __init__(self, now_nanoseconds: Callable[[], int] = time.time_ns) -> None:
        self.now = now_nanoseconds
        self.epoch = secrets.token_hex(8)
        self.closed = False
        self._tail = Tail()
        self._last_time = 0
        self._events: deque[Event] = deque(maxlen=_MAX_EVENTS)
        self._boots: list[Boot] = []
        self._cursors: dict[str, _MemoryCursor] = {}
        self._watchers: dict[Callable[[], None], None] = {}

    @property
    def start(self) -> int:
        return self._tail.start

    @property
    def end(self) -> int:
        return self._tail.end

    def append(self, data: bytes) -> None:
        self._tail.append(data, self._time())
        self._notify()

    def _time(self) -> int:
        """Return the time for the next entry: never before that of the last one."""
        self._last_time = max(self._last_time, self.now())
        return self._last_time

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._notify()

    def watch(self, changed: Callable[[], None]) -> None:
        self._watchers[changed] = None

    def unwatch(self, changed: Callable[[], None]) -> None:
        self._watchers.pop(changed, None)

    def _notify(self) -> None:
        for changed in list(self._watchers):
            changed()

    def read(self, offset: int, limit: int) -> bytes:
        boots = self._boots
        if boots and boots[-1].offset > offset:
            limit = min(limit, boots[bisect_right(boots, offset, key=_OFFSET)].offset - offset)
        return self._tail.read(offset, limit)

    def next_available(self, offset: int) -> int:
        return min(max(self.start, offset), self.end)

    def discard_before(self, offset: int) -> None:
        self._tail.discard_before(offset)
        start = self._tail.start
        while self._events and self._events[0].offset < start:
            self._events.popleft()
        while len(self._boots) > 1 and self._boots[1].offset <= start:
            del self._boots[0]

    def last_lines(self, count: int) -> int:
        return self._tail.last_lines(count)

    def line_start(self, offset: int) -> int:
        return self._tail.line_start(offset)

    def time_at(self, offset: int) -> int:
        return self._tail.time_at(offset)

    def printed_since(self, moment: int) -> int:
        return self._tail.printed_since(moment)

    def boots(self) -> Sequence[Boot]:
        return tuple(self._boots)

    def booted(self, reason: str) -> None:
        number = self._boots[-1].number + 1 if self._boots else 1
        event = self._record(Kind.BOOT, number=number, reason=reason)
        self._boots.append(Boot(number, event.offset, event.time_ns))
        del self._boots[:-_MAX_BOOTS]

    def resized(self, rows: int, columns: int) -> None:
        self._record(Kind.SIZE, rows=rows, columns=columns)

    def joined(self, session: str, user: str, role: str) -> None:
        self._record(Kind.JOIN, session=session, user=user, role=role)

    def left(self, session: str) -> None:
        self._record(Kind.LEAVE, session=session)

    def role_changed(self, session: str, role: str) -> None:
        self._record(Kind.ROLE, session=session, role=role)

    def _record(self, kind: Kind, **data: Any) -> Event:
        event = Event(self.end, self._time(), kind, data)
        self._events.append(event)
        return event

    def events(self, first: int, last: int) -> Iterator[Event]:
        return iter([each for each in self._events if first <= each.offset <= last])

    def cursor(self, name: str) -> ICursor:
        if not _CURSOR.fullmatch(name):
            raise ValueError(f"{name!r} is not a name of a cursor, such as syslog-1")
        return self._cursors.setdefault(name, _MemoryCursor())


@implementer(ICursor)
class _MemoryCursor:
    """A cursor that ends with its journal."""

    def __init__(self) -> None:
        self._offset: int | None = None

    def load(self) -> int | None:
        return self._offset

    def save(self, offset: int) -> None:
        self._offset = offset
