"""
Watches: changes as a stream of JSON lines, or of messages on a WebSocket.

A change is seen through the watch's selectors: an object that no longer matches is ``DELETED`` for
this watcher, one that begins to match is ``ADDED``. A client that does not read has a limited
buffer for changes.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from sys import intern
from weakref import WeakValueDictionary

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from twisted_exec.api import table
from twisted_exec.api.encoded import json_bytes, json_of
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.status import APIError, Expired
from twisted_exec.apiserver.restriction.filtered_storage import FilteredStorage
from twisted_exec.apiserver.serving.encoding import (
    PIECE_BYTES,
    SharedEvent,
    SharedEvents,
    empty_list,
    gathered,
    object_json,
)
from twisted_exec.apiserver.serving.encoding import line as event_line
from twisted_exec.apiserver.serving.query import ListOptions, WatchOptions
from twisted_exec.apiserver.serving.verbs import RequestTarget, candidates, selected
from twisted_exec.auth.interfaces import IVisibility, User
from twisted_exec.program.turns import TURN_SECONDS
from twisted_exec.storage.history import check_version_reached, versioned
from twisted_exec.storage.interfaces import ADDED, DELETED, MODIFIED, Event, IStorage
from twisted_exec.streaming.http.paced import Paced, PacedAnswer
from twisted_exec.streaming.http.pages import OutputSocketUser, connect_socket, output_socket
from twisted_exec.streaming.http.site import Budget, Request, SlowReader
from twisted_exec.streaming.http.upgrade_server import is_upgrade
from twisted_exec.wire.upgrade import (
    BEARER_SUBPROTOCOL,
    WEBSOCKET,
    Headers,
    tokens,
    values,
)

_BOOKMARK_SECONDS = 60.0

_WAITING_BYTES = 96
"""Memory of a change that waits for a watch's turn, beyond the object and its lines."""

_STEP_SECONDS = TURN_SECONDS / 8
"""Time after which a watch leaves further changes for its next step."""

_LIMIT_OWED_BYTES = 4 << 20


class WatchTurns:
    """
    Turns of all watches of a server together; half of the time is left to the server's other work.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._clock, self.seconds = clock, clock.seconds
        # The user whose turn is next comes first.
        self._steps: dict[str, deque[Callable[[], object]]] = {}
        self._call: IDelayedCall | None = None
        self._until = self._next = 0.0

    def is_free(self) -> bool:
        """Return whether a watch may go on at once."""
        return not self._steps and self._has_time()

    def wait(self, user: str, step: Callable[[], object]) -> None:
        """Do a step of a watch after the user's waiting steps."""
        self._steps.setdefault(user, deque()).append(step)
        self._schedule()

    async def breathe(self, user: str) -> None:
        """Wait for the turn of a watch's next step."""
        if not self.is_free():
            turn: Deferred[None] = Deferred()
            self.wait(user, partial(turn.callback, None))
            await turn

    def _has_time(self) -> bool:
        now = self._clock.seconds()
        if now >= self._next:
            self._until, self._next = now + TURN_SECONDS, now + 2 * TURN_SECONDS
        return now < self._until

    def _schedule(self) -> None:
        if self._call is None and self._steps:
            self._call = self._clock.callLater(
                max(0.0, self._next - self._clock.seconds()), self._run
            )

    def _run(self) -> None:
        self._call = None
        while self._steps and self._has_time():
            step = self._popped()
            try:
                step()
            except Exception:
                self._log.failure("a watch failed and is ended")
        self._schedule()

    def _popped(self) -> Callable[[], object]:
        user = next(iter(self._steps))
        steps = self._steps.pop(user)
        step = steps.popleft()
        if steps:
            self._steps[user] = steps
        return step


class WatchConverter:
    """Converts changes to lines for one watch."""

    __slots__ = ("_columns_told", "_form", "_kind", "_now", "_options")

    def __init__(self, kind: Kind, options: WatchOptions, now: Callable[[], float]) -> None:
        self._kind, self._options, self._now = kind, options, now
        self._columns_told = False
        # A string has its hash, which a dataclass computes for each change.
        self._form = intern(repr((kind.resource, options.form)))

    def existing(self, obj: Object) -> bytes:
        """Return the line for an existing object; empty if it does not match."""
        if not selected(self._kind, obj, self._options.chosen):
            return b""
        columns, self._columns_told = not self._columns_told, True
        form = self._options.form
        return event_line(ADDED, object_json(self._kind, obj, form, self._now(), columns=columns))

    def changed(self, change: SharedEvent) -> bytes:
        """Return the line for a change, as seen through the selectors; empty if it is not seen."""
        fits, fitted = self._selected(change)
        if fits:
            return self._line(change, MODIFIED if fitted else ADDED)
        return self._line(change, DELETED) if fitted else b""

    def _selected(self, change: SharedEvent) -> tuple[bool, bool]:
        kind, chosen, event = self._kind, self._options.chosen, change.event
        previous = event.previous
        if not chosen.selects:
            return event.type != DELETED, previous is not None

        def compare() -> tuple[ListOptions, bool, bool]:
            fits = event.type != DELETED and selected(kind, event.obj, chosen)
            # The result keeps the selector, so that no other gets its id meanwhile.
            return chosen, fits, previous is not None and selected(kind, previous, chosen)

        # Watches with equal selectors have the same object.
        _, fits, fitted = change.once((kind.resource, id(chosen)), compare)
        return fits, fitted

    def _line(self, change: SharedEvent, type_: str) -> bytes:
        columns, self._columns_told = not self._columns_told, True

        def make() -> bytes:
            obj = _gone(change) if type_ == DELETED else change.event.obj
            form = self._options.form
            return event_line(
                type_, object_json(self._kind, obj, form, self._now(), columns=columns)
            )

        line: bytes = change.once((self._form, type_, columns), make)
        return line

    def bookmark(self, version: int, *, initial_end: bool = False) -> bytes:
        """Return the line of a bookmark at this version."""
        metadata: Object = {"resourceVersion": str(version)}
        if initial_end:
            metadata["annotations"] = self._initial_end()
        resource, form = self._kind.resource, self._options.form
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        if form.shape == "Table":
            obj = table.table(self._kind, [], 0.0, metadata=metadata, columns=False)
        elif form.shape == "Partial":
            obj = table.partial(obj)
        return event_line("BOOKMARK", json_bytes(obj))

    def _initial_end(self) -> Object:
        # client-go creates a list of this type for its caller.
        blueprint = json_bytes(empty_list(self._kind, {}, self._options.form))
        return {
            "k8s.io/initial-events-end": "true",
            "kubernetes.io/initial-events-list-blueprint": base64.b64encode(blueprint).decode(),
        }


def _gone(change: SharedEvent) -> Object:
    """Return the object as clients know it, at the version of its removal."""
    event, previous = change.event, change.event.previous
    if event.type == DELETED or previous is None:
        return event.obj
    removed: Object = change.once("gone", lambda: versioned(previous, event.version))
    return removed


def _refusal(error: APIError) -> bytes:
    return event_line("ERROR", json_bytes(error.to_status()))


class WatchChanges:
    """
    Sends the changes of one watch: past ones at the client's pace, later ones as they happen.

    :ivar waiting: changes and versions of bookmarks that wait for the watch's turn, with the bytes
        of each.
    """

    def __init__(
        self,
        watcher: WatchConverter,
        stream: WatchLines,
        turns: WatchTurns,
        user: str,
        shared: SharedEvents,
    ) -> None:
        self._watcher, self._stream, self._turns, self._user = watcher, stream, turns, user
        self._shared = shared
        self._past: deque[Event] | None = deque()
        self._since: deque[Event] | None = None
        self.is_lost = False
        self.waiting: deque[tuple[SharedEvent | int, int]] | None = None

    def lost(self) -> None:
        """Handle a gap in the store's events: after those received, the client must list again."""
        self.is_lost = True
        if self._past is None:
            self._tell_lost()

    def _tell_lost(self) -> None:
        self._stream.send(_refusal(Expired("changes were missed: list again")))
        self._stream.finish()

    def changed(self, event: Event) -> None:
        """Handle a change from the store."""
        if self._since is not None:
            self._since.append(event)
            self._stream.owe(len(json_of(event.obj)))
        elif self._past is not None:
            self._past.append(event)
        else:
            self._take(self._shared.of(event))

    def mark(self, version: int) -> None:
        """Send a bookmark after the changes up to its version."""
        self._take(version)

    def _take(self, change: SharedEvent | int) -> None:
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
            self._send(self._joined)
        if not self.waiting:
            self.waiting = None
        elif not self._stream.done.called:
            self._turns.wait(self._user, self._step)

    def _joined(self) -> bytes:
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
            return self._watcher.bookmark(change)
        return self._watcher.changed(change)

    def _send(self, make: Callable[[], bytes]) -> None:
        try:
            line = make()
        except Exception:
            # No more events come to this watch, and its client would wait for ever.
            self._stream.evict()
            raise
        if line:
            self._stream.send(line)

    async def tell(self) -> bool:
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
            line = self._watcher.changed(self._shared.of(event))
            if line:
                self._stream.send(line)
        self._past = self._since = None  # saves memory in idle watches
        if self.is_lost:
            self._tell_lost()
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
        self._over = False

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
        timers = [self._clock.callLater(0 if self._over else options.seconds, stream.finish)]
        watcher = WatchConverter(target.kind, options, self._now)
        try:
            await self._follow(storage, user.name, target, options, watcher, stream, timers)
        except APIError as refusal:
            # The response has begun, so the error can only be an event.
            stream.send(_refusal(refusal))
        finally:
            self._streams.discard(stream)
            for timer in timers:
                if timer.active():
                    timer.cancel()
            stream.end()

    def end_all(self) -> None:
        """End every watch, including later ones; clients reconnect elsewhere."""
        self._over = True
        for stream in list(self._streams):
            stream.finish()

    def resume(self) -> None:
        """Serve later watches again."""
        self._over = False

    async def _follow(
        self,
        storage: IStorage,
        user: str,
        target: RequestTarget,
        options: WatchOptions,
        watcher: WatchConverter,
        stream: WatchLines,
        timers: list[IDelayedCall],
    ) -> None:
        if options.version > storage.version():
            await storage.current()
        check_version_reached(options.version, storage.version())
        since = options.version or None
        if options.initial:
            since = await self._tell_existing(storage, user, target, options, watcher, stream)
        changes = WatchChanges(watcher, stream, self._turns, user, self._shared)
        # Not by StoreFollower: it is the client's watch, and begins at the client's version.
        watch = storage.watch(
            target.kind.resource, since, changes.changed, target.namespace, changes.lost
        )
        try:
            if not await changes.tell():
                return
            if options.bookmarks:
                self._mark(changes, timers)
            await stream.done
            if changes.is_lost:
                return
        finally:
            watch.stop()
        if options.bookmarks and not changes.waiting:
            stream.send(watcher.bookmark(self._storage.version()))

    async def _tell_existing(
        self,
        storage: IStorage,
        user: str,
        target: RequestTarget,
        options: WatchOptions,
        watcher: WatchConverter,
        stream: WatchLines,
    ) -> int:
        listing = await storage.list(target.kind.resource, target.namespace)
        lines, size = [], 0
        for obj in candidates(listing.items, target, options.chosen):
            await self._turns.breathe(user)
            lines.append(watcher.existing(obj))
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
            stream.send(watcher.bookmark(listing.version, initial_end=True))
        return listing.version

    def _mark(self, changes: WatchChanges, timers: list[IDelayedCall]) -> None:
        def mark() -> None:
            changes.mark(self._storage.version())
            timers[-1] = self._clock.callLater(_BOOKMARK_SECONDS, mark)

        timers.append(self._clock.callLater(_BOOKMARK_SECONDS, mark))


class WatchLines(Paced):
    """
    Lines to one client at its pace; mixed in before the transport's class.

    :ivar unread: the budget for all clients that do not read.
    :ivar limit_bytes: limit for lines that wait for this client.
    """

    unread: Budget[SlowReader]
    limit_bytes = _LIMIT_OWED_BYTES
    _queue: deque[bytes] | None = None  # None while idle, to save memory
    _owed_bytes = 0

    def send(self, line: bytes) -> None:
        """Queue one or more lines, within the client's limit."""
        if self.gone:
            return
        if not self.paused:
            self.write(line)
            return
        if self._queue is None:
            self._queue = deque()
        self._queue.append(line)
        self.owe(len(line))

    def owe(self, count: int) -> None:
        """Count bytes that wait for the client.  Beyond the limit the client is cut off."""
        self._owed_bytes += count
        if count < 0:
            self.unread.release(self, -count)
            return
        self.unread.keep(self, count)
        if self._owed_bytes > self.limit_bytes:
            self.evict()

    def end(self) -> None:
        if self._queue:
            self.evict()  # a partial queue must not look complete
        self.unread.release(self)
        super().end()

    def resumeProducing(self) -> None:
        self.paused = False
        while self._queue and not self.paused:
            piece = next(gathered(_drained(self._queue)))
            self.owe(-len(piece))
            self.put(piece)
        if not self.paused:
            self._queue = None
            super().resumeProducing()


def _drained(queue: deque[bytes]) -> Iterator[bytes]:
    while queue:
        yield queue.popleft()


class LineStream(WatchLines, PacedAnswer):
    """Lines in a response."""

    def __init__(self, request: Request, limit_bytes: int = _LIMIT_OWED_BYTES) -> None:
        PacedAnswer.__init__(self, request)
        self.unread = request.channel.site.unread
        self.limit_bytes = limit_bytes


class MessageStream(WatchLines, OutputSocketUser):
    """
    Messages on a WebSocket, one per line.

    :raises BadRequest: the request is no complete handshake.
    """

    def __init__(self, request: Request) -> None:
        super().__init__(request.channel.site.reactor)
        self.unread = request.channel.site.unread
        self._request = request
        self._socket = output_socket(request, _subprotocol, {})
        self._socket.on_flow(self._flow)

    def begin(self) -> None:
        connect_socket(self._request, self._socket, self)

    def put(self, data: bytes) -> None:
        for line in data.splitlines():
            self._socket.send(line, text=True)

    def abort(self) -> None:
        self._socket.abort()

    def end(self) -> None:
        super().end()
        if not self.gone:
            self._socket.close()
            self._socket.hang_up()

    def _flow(self, full: bool) -> None:
        if full:
            self.pauseProducing()
        else:
            self.resumeProducing()

    def client_left(self, reason: str) -> None:
        self.stopProducing()


def _subprotocol(headers: Headers) -> str:
    """The client's first offer: a browser that offers some hangs up if none is chosen."""
    offered = tokens(values(headers, b"sec-websocket-protocol"))
    named = (token for token in offered if not token.startswith(BEARER_SUBPROTOCOL))
    return next(named, b"").decode("ascii", "replace")


def stream_of(request: Request) -> LineStream | MessageStream:
    """
    Start the stream for a watch's request.

    :raises BadRequest: a WebSocket handshake is incomplete.
    """
    protocol = is_upgrade(request)
    stream = MessageStream(request) if protocol == WEBSOCKET else LineStream(request)
    stream.begin()
    return stream
