"""
Watches: changes as a stream of JSON lines.

Each line is ``{"type": ..., "object": ...}``.  A change is told as it looks
through the watch's selectors: an object that no longer fits is ``DELETED`` for
this watcher, one that begins to fit is ``ADDED``.  What there is already is told as
fast as the client reads.  Of changes, a client that does not read is owed a bounded
number of bytes; then its connection is closed and it lists again.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from zope.interface import implementer

from twisted_exec.api import table
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.status import Expired
from twisted_exec.apiserver.options import Form, ListOptions, Query
from twisted_exec.apiserver.verbs import Target, selected
from twisted_exec.storage.history import versioned
from twisted_exec.storage.interfaces import ADDED, DELETED, MODIFIED, Event, IStorage
from twisted_exec.streaming.site import Request

_LIMIT_QUEUED_BYTES = 4 << 20
_BOOKMARK_SECONDS = 60.0
# Clients come back at different times, so that they do not all list at once.
_LEAST_SECONDS, _MOST_SECONDS = 1800.0, 3600.0


@dataclass(frozen=True)
class WatchOptions:
    """
    What a watch tells.

    :param since: the resourceVersion to go on from; ``None`` begins with the
        objects that there are.
    :param bookmarks: tell now and then how far the watch has come.
    :param announce: tell when all objects that there are have been told.
    """

    chosen: ListOptions
    form: Form
    since: int | None
    bookmarks: bool
    announce: bool
    seconds: float


def watch_options(query: Query, chosen: ListOptions, form: Form) -> WatchOptions:
    """
    :raises BadRequest: something cannot be read.
    """
    given = query.text("resourceVersion")
    announce = query.flag("sendInitialEvents")
    since = query.number("resourceVersion") if given and not announce else None
    seconds = float(query.number("timeoutSeconds"))
    if not 0 < seconds <= _MOST_SECONDS:
        seconds = random.uniform(_LEAST_SECONDS, _MOST_SECONDS)
    bookmarks = query.flag("allowWatchBookmarks")
    return WatchOptions(chosen, form, since or None, bookmarks, announce and bookmarks, seconds)


@implementer(IPushProducer)
class LineStream:
    """
    Lines on a response, as fast as the client reads them.

    :ivar done: fires when the stream is over: finished, or cut because the
        client does not read.
    """

    def __init__(self, request: Request, limit_bytes: int = _LIMIT_QUEUED_BYTES) -> None:
        self._request = request
        self._unread = request.channel.site.unread
        self._limit_bytes = limit_bytes
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._paused = False
        self._lost = False
        self._room: Deferred[None] | None = None
        self.done: Deferred[None] = Deferred()

    def begin(self) -> None:
        """Send the head; the client then knows that the watch runs."""
        self._request.setHeader(b"Content-Type", b"application/json")
        self._request.setHeader(b"Cache-Control", b"no-cache, private")
        self._request.registerProducer(self, True)
        self._request.write(b"")

    def send(self, document: Any) -> None:
        """One line; bounded by what the client reads."""
        if self._lost:
            return
        line = json.dumps(document, separators=(",", ":")).encode() + b"\n"
        if not self._paused:
            self._request.write(line)
            return
        self._queue.append(line)
        self._queued_bytes += len(line)
        self._unread.keep(self, len(line))
        if self._queued_bytes > self._limit_bytes:
            self.evict()

    def room(self) -> Deferred[None]:
        """Fires when the client takes more, or the stream is over.  One at a time."""
        waiting: Deferred[None] = Deferred()
        self._room = waiting
        if not self._paused or self.done.called:
            self._make_room()
        return waiting

    def _make_room(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.called:
            room.callback(None)

    def finish(self) -> None:
        """It is time to end; a last line may still follow."""
        if not self.done.called:
            self.done.callback(None)
        self._make_room()

    def end(self) -> None:
        """Finish the response, if there still is one.  Called once, after :attr:`done`."""
        self._unread.release(self)
        if self._request.gone or self._request.finished:
            return
        self._request.unregisterProducer()
        if self._queue:
            # Half of the queue would look like all of it.
            self._request.channel.transport.abortConnection()
        else:
            self._request.finish()

    def evict(self) -> None:
        """The client does not read, and others need the room; or it cannot be told all."""
        self._lost = True
        if not self._request.gone:
            self._request.channel.transport.abortConnection()
        self.finish()

    def pauseProducing(self) -> None:
        """The client's buffers are full."""
        self._paused = True

    def resumeProducing(self) -> None:
        """The client has read."""
        self._paused = False
        while self._queue and not self._paused:
            line = self._queue.popleft()
            self._queued_bytes -= len(line)
            self._unread.release(self, len(line))
            self._request.write(line)
        if not self._paused:
            self._make_room()

    def stopProducing(self) -> None:
        """The client has left."""
        self._lost = True
        self.finish()


class Watcher:
    """Turns changes into lines for one watch."""

    def __init__(
        self,
        kind: Kind,
        options: WatchOptions,
        send: Callable[[Object], None],
        now: Callable[[], float],
    ) -> None:
        self._kind, self._options, self._send, self._now = kind, options, send, now
        self._columns_told = False

    def existing(self, obj: Object) -> None:
        """An object that was there when the watch began."""
        if selected(self._kind, obj, self._options.chosen):
            self._tell(ADDED, obj)

    def changed(self, event: Event) -> None:
        """A change, as it looks through the selectors."""
        fits = event.type != DELETED and selected(self._kind, event.obj, self._options.chosen)
        fitted = event.previous is not None and selected(
            self._kind, event.previous, self._options.chosen
        )
        if fits:
            self._tell(MODIFIED if fitted else ADDED, event.obj)
        elif fitted and event.previous is not None:
            # What the client knew, at the version at which it is gone for the client.
            self._tell(DELETED, versioned(event.previous, event.version))

    def bookmark(self, version: int, *, initial_end: bool = False) -> None:
        """How far the watch has come."""
        metadata: Object = {"resourceVersion": str(version)}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        resource = self._kind.resource
        obj = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        if self._options.form.shape == "Table":
            obj = table.table(self._kind, [], 0.0, metadata=metadata, columns=False)
        self._send({"type": "BOOKMARK", "object": obj})

    def expired(self, error: Expired) -> None:
        """The watch cannot begin where the client wants."""
        self._send({"type": "ERROR", "object": error.to_status()})

    def _tell(self, change: str, obj: Object) -> None:
        self._send({"type": change, "object": self._formed(obj)})

    def _formed(self, obj: Object) -> Object:
        form = self._options.form
        if form.shape == "Partial":
            return table.partial(obj)
        if form.shape != "Table":
            return obj
        columns, self._columns_told = not self._columns_told, True
        return table.table(
            self._kind,
            [obj],
            self._now(),
            metadata={"resourceVersion": obj["metadata"]["resourceVersion"]},
            include=form.include,
            columns=columns,
        )


class Watches:
    """
    Runs watches over one store.

    :param now: seconds since the epoch, for ages.
    """

    def __init__(self, storage: IStorage, clock: IReactorTime, now: Callable[[], float]) -> None:
        self._storage = storage
        self._clock, self._now = clock, now
        self._streams: set[LineStream] = set()

    async def run(self, request: Request, target: Target, options: WatchOptions) -> None:
        """Answer a request with a watch; returns when it is over."""
        options.chosen.fields.check(target.kind.selectable)
        stream = LineStream(request)
        stream.begin()
        self._streams.add(stream)
        timers = [self._clock.callLater(options.seconds, stream.finish)]
        watcher = Watcher(target.kind, options, stream.send, self._now)
        try:
            await self._follow(target, options, watcher, stream, timers)
        finally:
            self._streams.discard(stream)
            for timer in timers:
                if timer.active():
                    timer.cancel()
            stream.end()

    def end_all(self) -> None:
        """End every watch; clients go elsewhere."""
        for stream in list(self._streams):
            stream.finish()

    async def _follow(
        self,
        target: Target,
        options: WatchOptions,
        watcher: Watcher,
        stream: LineStream,
        timers: list[IDelayedCall],
    ) -> None:
        since = options.since
        if since is None:
            since = await self._tell_existing(target, options, watcher, stream)
        try:
            watch = self._storage.watch(
                target.kind.resource, since, watcher.changed, target.namespace
            )
        except Expired as error:
            watcher.expired(error)
            return
        if options.bookmarks:
            self._mark(watcher, timers)
        try:
            await stream.done
        finally:
            watch.stop()
        if options.bookmarks:
            watcher.bookmark(self._storage.version())

    async def _tell_existing(
        self, target: Target, options: WatchOptions, watcher: Watcher, stream: LineStream
    ) -> int:
        listing = await self._storage.list(target.kind.resource, target.namespace)
        for obj in listing.items:
            await stream.room()
            if stream.done.called:
                stream.evict()  # half of what there is would look like all of it
                break
            watcher.existing(obj)
        if options.announce:
            watcher.bookmark(listing.version, initial_end=True)
        return listing.version

    def _mark(self, watcher: Watcher, timers: list[IDelayedCall]) -> None:
        def mark() -> None:
            watcher.bookmark(self._storage.version())
            timers[-1] = self._clock.callLater(_BOOKMARK_SECONDS, mark)

        timers.append(self._clock.callLater(_BOOKMARK_SECONDS, mark))
