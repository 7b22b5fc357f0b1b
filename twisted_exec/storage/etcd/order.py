"""
One order for the changes of all servers.

A write becomes visible by etcd's confirmation or by the watch, as the order allows.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from twisted_exec.storage.etcd.keys import (
    ForeignKey,
    HistoryPlace,
    Keys,
    with_version,
    without_version,
)
from twisted_exec.storage.etcd.marker import read_marker
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb
from twisted_exec.storage.history import History
from twisted_exec.storage.interfaces import ADDED, DELETED, MODIFIED, Event, Object, StorageError
from twisted_exec.storage.write_checks import versioned

_CALLBACKS_PER_TURN = 1000
"""Watch callbacks after which the next revision waits for another turn of the reactor."""


@dataclass
class OrderedWrite:
    """
    A write of this server.

    :param id: unique among the writes of all servers; the marker has that of the last write.
    :param obj: the new object, or the last state of a deleted one.
    :param text: its JSON without a resourceVersion.
    """

    id: str
    place: HistoryPlace
    change: str
    obj: Object
    text: str
    done: Deferred[Object] = field(default_factory=Deferred)


@dataclass
class _Revision:
    number: int
    events: Sequence[pb.Event]
    dealt_with: Callable[[], None] | None


class ChangeOrder:
    """
    Applies the changes of all servers to a history, in etcd's order.

    :param list_again: called with a reason when all objects must be listed again.
    """

    _log = Logger()

    def __init__(
        self, history: History, keys: Keys, clock: IReactorTime, list_again: Callable[[str], None]
    ) -> None:
        self._history, self._keys, self._clock = history, keys, clock
        self._list_again = list_again
        self.seen = 0
        self.marker = ""
        self._writes: dict[str, OrderedWrite] = {}
        self._early: dict[int, tuple[OrderedWrite, int]] = {}
        self._revisions: deque[_Revision] = deque()
        self._turn: IDelayedCall | None = None
        self._waiting: list[tuple[int, int, Deferred[None]]] = []
        self._numbers = count()
        self._complained = ""

    def begin(self, shown_revision: int, marker: str) -> None:
        """Continue from a history at ``shown_revision``."""
        self.forget()
        self.seen, self.marker = shown_revision, marker
        for after, (write, revision) in list(self._early.items()):
            if revision <= shown_revision:
                del self._early[after]
                self._settle(write, self.as_shown(write, revision))
        self._wake()

    def forget(self) -> None:
        """Drop events that are not applied yet; the next watch delivers them again."""
        self._revisions.clear()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def expect(self, write: OrderedWrite) -> None:
        self._writes[write.id] = write

    def dismiss(self, write: OrderedWrite) -> None:
        self._writes.pop(write.id, None)

    def confirmed(self, write: OrderedWrite, revision: int, after: int) -> None:
        """
        Handle etcd's confirmation of a write.

        :param after: revision of the write before it, by any server.
        """
        if write.done.called:
            return
        if revision <= self.seen:  # listed meanwhile
            self._settle(write, self.as_shown(write, revision))
            return
        # Visible when the write before it is the last visible one: no other write lies between the
        # two.
        self._early[after] = write, revision
        self._show_early()

    def waiting(self) -> Sequence[OrderedWrite]:
        """The writes that were sent and are not visible yet."""
        return list(self._writes.values())

    def events(self, events: list[pb.Event], dealt_with: Callable[[], None]) -> None:
        """Handle events of the watch, which come in whole revisions."""
        revisions = [
            _Revision(number, list(each), None)
            for number, each in groupby(events, lambda event: event.kv.mod_revision)
        ]
        revisions[-1].dealt_with = dealt_with
        self._revisions.extend(revisions)
        if self._turn is None:
            self._show_some()

    def stop(self) -> None:
        """Stop: complete the confirmed writes, and cancel what :meth:`reached` has returned."""
        self.forget()
        early, self._early = self._early, {}
        for write, revision in early.values():
            self._settle(write, self.as_shown(write, revision))
        waiting, self._waiting = self._waiting, []
        for _, _, each in waiting:
            each.cancel()

    def reached(self, revision: int) -> Deferred[None]:
        """Return a Deferred that fires when everything up to a revision is visible."""
        while self._waiting and self._waiting[0][2].called:  # cancelled
            heapq.heappop(self._waiting)
        waiting: Deferred[None] = Deferred()
        if revision <= self.seen:
            waiting.callback(None)
        else:
            heapq.heappush(self._waiting, (revision, next(self._numbers), waiting))
        return waiting

    def _show_some(self) -> None:
        self._turn, callbacks = None, 0
        while self._revisions:
            revision = self._revisions.popleft()
            callbacks += self._show_revision(revision)
            if revision.dealt_with is not None:
                revision.dealt_with()
            self._show_early()
            if callbacks >= _CALLBACKS_PER_TURN and self._revisions:
                self._turn = self._clock.callLater(0, self._show_some)
                return

    def _show_revision(self, revision: _Revision) -> int:
        marker = next(
            (event for event in revision.events if event.kv.key == self._keys.marker), None
        )
        others = [event for event in revision.events if not self._keys.is_own(event.kv.key)]
        if marker is None:
            return self._show_foreign(revision.number, others) if others else 0
        if revision.number <= self.seen:
            return 0
        if marker.type == pb.Event.DELETE:
            marker_key = self._keys.marker.decode("utf-8", "replace")
            self._list_again(
                f"another program has deleted {marker_key} from etcd, the marker of the last write"
            )
            return 0
        try:
            write_id = read_marker(marker.kv.key, marker.kv.value).write
        except StorageError as problem:
            self._list_again(str(problem))
            return 0
        write = self._writes.get(write_id)
        if write is not None:
            return self._show_own(write, revision.number)
        callbacks = self._show_others(others, revision.number)
        self._advance(revision.number, write_id)
        return callbacks

    def _show_foreign(self, revision: int, events: Sequence[pb.Event]) -> int:
        """Apply changes by another program, such as etcdctl."""
        if revision <= self.seen:
            self._list_again("another program changes etcd's keys of this API server")
            return 0
        return self._show_others(events, revision)

    def _show_others(self, events: Sequence[pb.Event], revision: int) -> int:
        callbacks = 0
        for place, event in self._read(events, revision):
            callbacks += self._history.apply(place.table, event)
        return callbacks

    def _read(
        self, events: Sequence[pb.Event], revision: int
    ) -> Iterator[tuple[HistoryPlace, Event]]:
        version = self._keys.version(revision)
        for event in events:
            try:
                if event.type == pb.Event.DELETE:
                    place = self._keys.place(event.kv.key)
                    obj = None
                else:
                    place, obj = self._keys.read(event.kv.key, event.kv.value, revision)
            except ForeignKey as problem:
                self.complain(problem)
                continue
            previous = self._history.at(place.table, place.key)
            if obj is not None:
                yield place, Event(MODIFIED if previous else ADDED, obj, previous, version)
            elif previous is not None:
                yield place, Event(DELETED, versioned(previous, version), previous, version)

    def complain(self, problem: ForeignKey) -> None:
        """Log a foreign key."""
        if str(problem) != self._complained:
            self._complained = str(problem)
            self._log.error("the store leaves this out: {problem}", problem=problem)

    def _show_early(self) -> None:
        while (early := self._early.pop(self.seen, None)) is not None:
            write, revision = early
            if not write.done.called:
                self._show_own(write, revision)

    def _show_own(self, write: OrderedWrite, revision: int) -> int:
        obj = self.as_shown(write, revision)
        previous = self._history.at(write.place.table, write.place.key)
        event = Event(write.change, obj, previous, self._keys.version(revision))
        changes = self._history.apply(write.place.table, event)
        self._advance(revision, write.id)
        self._settle(write, obj)
        return changes

    def as_shown(self, write: OrderedWrite, revision: int) -> Object:
        version = self._keys.version(revision)
        if write.change == DELETED:
            return versioned(write.obj, version)
        return with_version(without_version(write.obj), write.text, version)

    def _settle(self, write: OrderedWrite, obj: Object) -> None:
        self._writes.pop(write.id, None)
        if not write.done.called:
            write.done.callback(obj)

    def _advance(self, revision: int, marker: str) -> None:
        self.seen, self.marker = revision, marker
        self._history.version = self._keys.version(revision)
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.seen:
            waiting = heapq.heappop(self._waiting)[2]
            if not waiting.called:
                waiting.callback(None)
