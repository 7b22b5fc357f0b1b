"""
Watches: changes as a stream of JSON lines, or of messages on a WebSocket.

Each is ``{"type": ..., "object": ...}``.  A change is told as it looks
through the watch's selectors: an object that no longer fits is ``DELETED`` for
this watcher, one that begins to fit is ``ADDED``.  What there is already is told as
fast as the client reads.  Of changes, a client that does not read is owed a bounded
number of bytes; then its connection is closed and it lists again.

One change reaches all watches in one pass, and its lines are made once for all of
them (:class:`~twisted_exec.apiserver.serving.encoding.EventLines`).

Where a watch begins, and what it refuses, is that of
``k8s.io/apiserver/pkg/storage/cacher`` with the feature WatchList; only a version
that has not happened yet is refused at once, for here it never will happen by waiting.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.api import table
from twisted_exec.api.encoded import json_bytes, json_of
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
from twisted_exec.streaming.http.site import Request

_BOOKMARK_SECONDS = 60.0


class Watcher:
    """Turns changes into lines for one watch."""

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
        """The line for an object that was there when the watch began; empty for none."""
        if not selected(self._kind, obj, self._options.chosen):
            return b""
        columns, self._columns_told = not self._columns_told, True
        form = self._options.form
        return line(ADDED, object_json(self._kind, obj, form, self._now(), columns=columns))

    def changed(self, event: Event) -> None:
        """A change, as it looks through the selectors."""
        chosen, previous = self._options.chosen, event.previous
        fits = event.type != DELETED and selected(self._kind, event.obj, chosen)
        fitted = previous is not None and selected(self._kind, previous, chosen)
        if fits:
            self._tell(event, MODIFIED if fitted else ADDED, event.obj)
        elif fitted:
            self._tell(event, DELETED, self._gone(event))

    def _gone(self, event: Event) -> Object:
        """What the client knew, at the version at which it is gone for the client."""
        previous = event.previous
        if event.type == DELETED or previous is None:
            return event.obj
        gone: Object = self._lines.once(event, "gone", lambda: versioned(previous, event.version))
        return gone

    def bookmark(self, version: int, *, initial_end: bool = False) -> None:
        """How far the watch has come."""
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
        # The list of which client-go makes the one that its caller asked for.
        blueprint = json_bytes(empty_list(self._kind, {}, self._options.form))
        return {
            "k8s.io/initial-events-end": "true",
            "kubernetes.io/initial-events-list-blueprint": base64.b64encode(blueprint).decode(),
        }

    def refused(self, error: APIError) -> None:
        """The watch cannot begin where the client wants."""
        self._send(line("ERROR", json_bytes(error.to_status())))

    def _tell(self, event: Event, change: str, obj: Object) -> None:
        columns, self._columns_told = not self._columns_told, True
        form = self._options.form
        self._send(self._lines.told(event, self._kind, change, obj, form, columns))


class CatchingUp:
    """
    Changes that have happened already, told as fast as the client reads.

    They are the store's, and cost a watch little.  What happens meanwhile is the
    client's debt, as it is later.
    """

    def __init__(self, watcher: Watcher, stream: Lines) -> None:
        self._watcher, self._stream = watcher, stream
        self._past: deque[Event] | None = deque()
        self._since: deque[Event] | None = None
        self.is_lost = False

    def lost(self) -> None:
        """The store missed changes: when what it told is told, the client is to list again."""
        self.is_lost = True
        if self._past is None:
            self._tell_lost()

    def _tell_lost(self) -> None:
        self._watcher.refused(Expired("changes were missed: list again"))
        self._stream.finish()

    def changed(self, event: Event) -> None:
        """The store tells a change."""
        try:
            self._take(event)
        except Exception:
            # The store tells this watch no more, and its client would wait for ever.
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
        Tell it all.

        :return: true when that is done, and changes are told as they happen; false when
            the stream was over before.
        """
        self._since = deque()
        while (event := self._next()) is not None:
            await self._stream.room()
            if self._stream.done.called:
                return False
            self._watcher.changed(event)
        self._past = self._since = None  # an idle watch keeps nothing
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
        Answer a request with a watch; returns when it is over.

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
            # As the answer has begun, it can only be told in a line.
            watcher.refused(refusal)
        finally:
            self._streams.discard(stream)
            for timer in timers:
                if timer.active():
                    timer.cancel()
            stream.end()

    def end_all(self) -> None:
        """End every watch, those too that begin later; clients go elsewhere."""
        self._over = True
        for stream in list(self._streams):
            stream.finish()

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
        for told in gathered(map(watcher.existing, listing.items)):
            await stream.room()
            if stream.done.called:
                stream.evict()  # half of what there is would look like all of it
                break
            stream.write(told)
        if options.announce:
            watcher.bookmark(listing.version, initial_end=True)
        return listing.version

    def _mark(self, watcher: Watcher, timers: list[IDelayedCall]) -> None:
        def mark() -> None:
            watcher.bookmark(self._storage.version())
            timers[-1] = self._clock.callLater(_BOOKMARK_SECONDS, mark)

        timers.append(self._clock.callLater(_BOOKMARK_SECONDS, mark))
