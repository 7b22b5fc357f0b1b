"""
Watches: the existing objects and past changes at the client's pace, then later changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from weakref import WeakValueDictionary

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.api.encoded import json_of
from twisted_exec.api.status import APIError, Expired
from twisted_exec.apiserver.restriction.filtered_storage import FilteredStorage
from twisted_exec.apiserver.serving.encoding import PIECE_BYTES
from twisted_exec.apiserver.serving.query import ListOptions, WatchOptions
from twisted_exec.apiserver.serving.selection import candidates
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.apiserver.serving.watches.converter import WatchConverter, error_line
from twisted_exec.apiserver.serving.watches.shared_events import SharedEvent, SharedEvents
from twisted_exec.apiserver.serving.watches.streams import WatchLines, stream_of
from twisted_exec.apiserver.serving.watches.turns import WatchTurns
from twisted_exec.auth.interfaces import IVisibility, User
from twisted_exec.program.turns import TURN_SECONDS
from twisted_exec.storage.history import check_version_reached
from twisted_exec.storage.interfaces import Event, IStorage
from twisted_exec.streaming.http.site import Request

_BOOKMARK_SECONDS = 60.0

_WAITING_BYTES = 96
"""Memory of a change that waits for a watch's turn, beyond the object and its lines."""

_STEP_SECONDS = TURN_SECONDS / 8
"""Time after which a watch leaves further changes for its next step."""


class WatchChanges:
    """
    Sends the changes of one watch: past ones at the client's pace, later ones as they happen.

    :ivar waiting: changes and versions of bookmarks that wait for the watch's turn, with the bytes
        of each.
    """

    def __init__(
        self,
        converter: WatchConverter,
        stream: WatchLines,
        turns: WatchTurns,
        user: str,
        shared: SharedEvents,
    ) -> None:
        self._converter, self._stream, self._turns, self._user = converter, stream, turns, user
        self._shared = shared
        self._past: deque[Event] | None = deque()
        self._since: deque[Event] | None = None
        self.is_lost = False
        self.waiting: deque[tuple[SharedEvent | int, int]] | None = None

    def lost(self) -> None:
        """Handle a gap in the store's events: after those received, the client must list again."""
        self.is_lost = True
        if self._past is None:
            self._send_lost()

    def _send_lost(self) -> None:
        self._stream.send(error_line(Expired("changes were missed: list again")))
        self._stream.finish()

    def changed(self, event: Event) -> None:
        """Handle a change from the store."""
        if self._since is not None:
            self._since.append(event)
            self._stream.owe(len(json_of(event.obj)))
        elif self._past is not None:
            self._past.append(event)
        else:
            self._send_in_turn(self._shared.of(event))

    def bookmark(self, version: int) -> None:
        """Send a bookmark after the changes up to its version."""
        self._send_in_turn(version)

    def _send_in_turn(self, change: SharedEvent | int) -> None:
        if self.waiting is None and self._turns.is_free():
            self._send(lambda: self._line(change))
            return
        if self.waiting is None:
            self.waiting = deque()
            self._turns.wait(self._user, self._step)
        count = _WAITING_BYTES
        if not isinstance(change, int):
            count += change.uncounted_bytes()
        self.waiting.append((change, count))
        self._stream.owe(count)

    def _step(self) -> None:
        if not self._stream.done.called:
            self._send(self._next_lines)
        if not self.waiting:
            self.waiting = None
        elif not self._stream.done.called:
            self._turns.wait(self._user, self._step)

    def _next_lines(self) -> bytes:
        assert self.waiting is not None
        lines, size, counted = [], 0, 0
        until = self._turns.seconds() + _STEP_SECONDS
        while self.waiting:
            change, count = self.waiting.popleft()
            counted += count
            lines.append(self._line(change))
            size += len(lines[-1])
            if size >= PIECE_BYTES or self._turns.seconds() >= until:
                break
        self._stream.owe(-counted)
        return b"".join(lines)

    def _line(self, change: SharedEvent | int) -> bytes:
        if isinstance(change, int):
            return self._converter.bookmark(change)
        return self._converter.changed(change)

    def _send(self, make: Callable[[], bytes]) -> None:
        try:
            line = make()
        except Exception:
            # No more events come to this watch, and its client would wait for ever.
            self._stream.evict()
            raise
        if line:
            self._stream.send(line)

    async def send_past(self) -> bool:
        """
        Send all past changes.

        :return: false if the stream ended before, or changes were missed.
        """
        self._since = deque()
        while (event := self._next()) is not None:
            await self._turns.breathe(self._user)
            await self._stream.room()
            if self._stream.done.called:
                return False
            line = self._converter.changed(self._shared.of(event))
            if line:
                self._stream.send(line)
        self._past = self._since = None  # saves memory in idle watches
        if self.is_lost:
            self._send_lost()
        return not self.is_lost

    def _next(self) -> Event | None:
        if self._past:
            return self._past.popleft()
        if not self._since:
            return None
        event = self._since.popleft()
        self._stream.owe(-len(json_of(event.obj)))
        return event


class Watches:
    """
    Runs watches over one store.

    :param now: seconds since the epoch, for ages.
    """

    def __init__(self, storage: IStorage, clock: IReactorTime, now: Callable[[], float]) -> None:
        self._storage = storage
        self._clock, self._now = clock, now
        self._shared = SharedEvents()
        self._turns = WatchTurns(clock)
        self._chosen: WeakValueDictionary[object, ListOptions] = WeakValueDictionary()
        """The selectors of all watches; equal ones are one object."""
        self._streams: set[WatchLines] = set()
        self._is_ended = False

    async def run(
        self,
        request: Request,
        user: User,
        target: RequestTarget,
        options: WatchOptions,
        visibility: IVisibility | None = None,
    ) -> None:
        """Serve a user's watch; returns at its end."""
        storage = (
            self._storage if visibility is None else FilteredStorage(self._storage, visibility)
        )
        options.chosen.fields.check(target.kind.selectable)
        chosen = options.chosen
        # The key is not the object, which lives as long as a watch needs it.
        chosen = self._chosen.setdefault((chosen.labels, chosen.fields), chosen)
        options = replace(options, chosen=chosen)
        stream = stream_of(request)
        self._streams.add(stream)
        timers = [self._clock.callLater(0 if self._is_ended else options.seconds, stream.finish)]
        converter = WatchConverter(target.kind, options, self._now)
        try:
            await self._follow(storage, user.name, target, options, converter, stream, timers)
        except APIError as refusal:
            # The response has begun, so the error can only be an event.
            stream.send(error_line(refusal))
        finally:
            self._streams.discard(stream)
            for timer in timers:
                if timer.active():
                    timer.cancel()
            stream.end()

    def end_all(self) -> None:
        """End every watch, including later ones; clients reconnect elsewhere."""
        self._is_ended = True
        for stream in list(self._streams):
            stream.finish()

    async def _follow(
        self,
        storage: IStorage,
        user: str,
        target: RequestTarget,
        options: WatchOptions,
        converter: WatchConverter,
        stream: WatchLines,
        timers: list[IDelayedCall],
    ) -> None:
        if options.version > storage.version():
            await storage.current()
        check_version_reached(options.version, storage.version())
        since = options.version or None
        if options.initial:
            since = await self._send_existing(storage, user, target, options, converter, stream)
        changes = WatchChanges(converter, stream, self._turns, user, self._shared)
        # Not by StoreFollower: it is the client's watch, and begins at the client's version.
        watch = storage.watch(
            target.kind.resource, since, changes.changed, target.namespace, changes.lost
        )
        try:
            if not await changes.send_past():
                return
            if options.bookmarks:
                self._send_bookmarks(changes, timers)
            await stream.done
            if changes.is_lost:
                return
        finally:
            watch.stop()
        if options.bookmarks and not changes.waiting:
            stream.send(converter.bookmark(self._storage.version()))

    async def _send_existing(
        self,
        storage: IStorage,
        user: str,
        target: RequestTarget,
        options: WatchOptions,
        converter: WatchConverter,
        stream: WatchLines,
    ) -> int:
        listing = await storage.list(target.kind.resource, target.namespace)
        lines, size = [], 0
        for obj in candidates(listing.items, target, options.chosen):
            await self._turns.breathe(user)
            lines.append(converter.existing(obj))
            size += len(lines[-1])
            if size >= PIECE_BYTES:
                await stream.room()
                stream.write(b"".join(lines))
                lines, size = [], 0
            if stream.done.called:
                break
        await stream.room()
        if stream.done.called:
            stream.evict()  # a partial list must not look complete
        elif size:
            stream.write(b"".join(lines))
        if options.announce:
            stream.send(converter.bookmark(listing.version, initial_end=True))
        return listing.version

    def _send_bookmarks(self, changes: WatchChanges, timers: list[IDelayedCall]) -> None:
        def send() -> None:
            changes.bookmark(self._storage.version())
            timers[-1] = self._clock.callLater(_BOOKMARK_SECONDS, send)

        timers.append(self._clock.callLater(_BOOKMARK_SECONDS, send))
