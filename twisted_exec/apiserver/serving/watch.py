"""
Watches: changes as a stream of JSON lines, or of messages on a WebSocket.

Each event is ``{"type": ..., "object": ...}``.  A change is seen through the watch's selectors: an
object that no longer matches is ``DELETED`` for this watcher, one that begins to match is
``ADDED``. Initial objects are sent at the client's pace.  For changes a client that does not read
has a limited buffer; beyond it the connection is closed, and the client lists again.

One change reaches all watches in one pass, and its lines are encoded once for all of them
(:class:`~twisted_exec.apiserver.serving.encoding.EventLines`).

Start and errors are those of ``k8s.io/apiserver/pkg/storage/cacher`` with the feature WatchList,
except that a future version is refused at once: in this store waiting would not help.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.api import table
from twisted_exec.api.formats.encoded import json_bytes, json_of
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.status import APIError, Expired
from twisted_exec.apiserver.restriction.filtered_storage import FilteredStorage
from twisted_exec.apiserver.serving.encoding import (
    EventLines,
    empty_list,
    gathered,
    line,
    object_json,
)
from twisted_exec.apiserver.serving.query import WatchOptions
from twisted_exec.apiserver.serving.verbs import Target, selected
from twisted_exec.apiserver.serving.watch_streams import Lines, stream_of
from twisted_exec.auth.interfaces import IVisibility
from twisted_exec.storage.history import check_version_reached, versioned
from twisted_exec.storage.interfaces import ADDED, DELETED, MODIFIED, Event, IStorage
from twisted_exec.streaming.http.request import Request

_BOOKMARK_SECONDS = 60.0


class Watcher:
    """Converts changes to lines for one watch."""

    __slots__ = ("_columns_told", "_kind", "_lines", "_now", "_options", "_send")

    def __init__(
        self,
        kind: Kind,
        options: WatchOptions,
        send: Callable[[bytes], None],
        lines: EventLines,
        now: Callable[[], float],
    ) -> None:
        self._kind, self._options, self._send = kind, options, send
        self._lines, self._now = lines, now
        self._columns_told = False

    def existing(self, obj: Object) -> bytes:
        """Return the line for an existing object; empty if it does not match."""
        if not selected(self._kind, obj, self._options.chosen):
            return b""
        columns, self._columns_told = not self._columns_told, True
        form = self._options.form
        return line(ADDED, object_json(self._kind, obj, form, self._now(), columns=columns))

    def changed(self, event: Event) -> None:
        """Send a change, as seen through the selectors."""
        chosen, previous = self._options.chosen, event.previous
        fits = event.type != DELETED and selected(self._kind, event.obj, chosen)
        fitted = previous is not None and selected(self._kind, previous, chosen)
        if fits:
            self._tell(event, MODIFIED if fitted else ADDED, event.obj)
        elif fitted:
            self._tell(event, DELETED, self._gone(event))

    def _gone(self, event: Event) -> Object:
        """Return the object as the client knows it, at the version of its removal."""
        previous = event.previous
        if event.type == DELETED or previous is None:
            return event.obj
        removed: Object = self._lines.once(
            event, "gone", lambda: versioned(previous, event.version)
        )
        return removed

    def bookmark(self, version: int, *, initial_end: bool = False) -> None:
        """Send the current version."""
        metadata: Object = {"resourceVersion": str(version)}
        if initial_end:
            metadata["annotations"] = self._initial_end()
        resource, form = self._kind.resource, self._options.form
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        if form.shape == "Table":
            obj = table.table(self._kind, [], 0.0, metadata=metadata, columns=False)
        elif form.shape == "Partial":
            obj = table.partial(obj)
        self._send(line("BOOKMARK", json_bytes(obj)))

    def _initial_end(self) -> Object:
        # client-go creates a list of this type for its caller.
        blueprint = json_bytes(empty_list(self._kind, {}, self._options.form))
        return {
            "k8s.io/initial-events-end": "true",
            "kubernetes.io/initial-events-list-blueprint": base64.b64encode(blueprint).decode(),
        }

    def refused(self, error: APIError) -> None:
        """Send an error: the watch cannot start or continue."""
        self._send(line("ERROR", json_bytes(error.to_status())))

    def _tell(self, event: Event, change: str, obj: Object) -> None:
        columns, self._columns_told = not self._columns_told, True
        form = self._options.form
        self._send(self._lines.line_of(event, self._kind, change, obj, form, columns))


class CatchingUp:
    """
    Sends past changes at the client's pace.

    They are in the store's memory and cost a watch little.  Changes that happen meanwhile count
    against the client's limit, as later.
    """

    def __init__(self, watcher: Watcher, stream: Lines) -> None:
        self._watcher, self._stream = watcher, stream
        self._past: deque[Event] | None = deque()
        self._since: deque[Event] | None = None
        self.is_lost = False

    def lost(self) -> None:
        """Handle a gap in the store's events: after those received, the client must list again."""
        self.is_lost = True
        if self._past is None:
            self._tell_lost()

    def _tell_lost(self) -> None:
        self._watcher.refused(Expired("changes were missed: list again"))
        self._stream.finish()

    def changed(self, event: Event) -> None:
        """Handle a change from the store."""
        try:
            self._take(event)
        except Exception:
            # The store sends no more events to this watch, and its client would wait for ever.
            self._stream.evict()
            raise

    def _take(self, event: Event) -> None:
        if self._since is not None:
            self._since.append(event)
            self._stream.owe(len(json_of(event.obj)))
        elif self._past is not None:
            self._past.append(event)
        else:
            self._watcher.changed(event)

    async def tell(self) -> bool:
        """
        Send all past changes.

        :return: true when done, and changes are sent as they happen; false if the stream ended
            before.
        """
        self._since = deque()
        while (event := self._next()) is not None:
            await self._stream.room()
            if self._stream.done.called:
                return False
            self._watcher.changed(event)
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
        self._lines = EventLines(now)
        self._streams: set[Lines] = set()
        self._over = False

    async def run(
        self,
        request: Request,
        target: Target,
        options: WatchOptions,
        visibility: IVisibility | None = None,
    ) -> None:
        """
        Serve a watch; returns at its end.

        :param visibility: the objects that the client may see; ``None`` for all.
        """
        storage = (
            self._storage if visibility is None else FilteredStorage(self._storage, visibility)
        )
        options.chosen.fields.check(target.kind.selectable)
        stream = stream_of(request)
        self._streams.add(stream)
        timers = [self._clock.callLater(0 if self._over else options.seconds, stream.finish)]
        watcher = Watcher(target.kind, options, stream.send, self._lines, self._now)
        try:
            await self._follow(storage, target, options, watcher, stream, timers)
        except APIError as refusal:
            # The response has begun, so the error can only be an event.
            watcher.refused(refusal)
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
        target: Target,
        options: WatchOptions,
        watcher: Watcher,
        stream: Lines,
        timers: list[IDelayedCall],
    ) -> None:
        if options.version > storage.version():
            await storage.current()
        check_version_reached(options.version, storage.version())
        since = options.version or None
        if options.initial:
            since = await self._tell_existing(storage, target, options, watcher, stream)
        past = CatchingUp(watcher, stream)
        watch = storage.watch(
            target.kind.resource, since, past.changed, target.namespace, past.lost
        )
        try:
            if not await past.tell():
                return
            if options.bookmarks:
                self._mark(watcher, timers)
            await stream.done
            if past.is_lost:
                return
        finally:
            watch.stop()
        if options.bookmarks:
            watcher.bookmark(self._storage.version())

    async def _tell_existing(
        self,
        storage: IStorage,
        target: Target,
        options: WatchOptions,
        watcher: Watcher,
        stream: Lines,
    ) -> int:
        listing = await storage.list(target.kind.resource, target.namespace)
        for piece in gathered(map(watcher.existing, listing.items)):
            await stream.room()
            if stream.done.called:
                stream.evict()  # a partial list must not look complete
                break
            stream.write(piece)
        if options.announce:
            watcher.bookmark(listing.version, initial_end=True)
        return listing.version

    def _mark(self, watcher: Watcher, timers: list[IDelayedCall]) -> None:
        def mark() -> None:
            watcher.bookmark(self._storage.version())
            timers[-1] = self._clock.callLater(_BOOKMARK_SECONDS, mark)

        timers.append(self._clock.callLater(_BOOKMARK_SECONDS, mark))
