"""
The part of a store in memory: objects, recent changes and watchers.

A request for older changes fails with ``Expired``.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial

from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.encoded import Encoded, json_of
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, Expired, NotFound
from twisted_exec.storage.interfaces import ADDED, DELETED, MODIFIED, Event, IWatch, Listing, Object
from twisted_exec.storage.ordered import OrderedObjects, Snapshot
from twisted_exec.storage.quota import StoreUsage
from twisted_exec.storage.sharing import SharedParts
from twisted_exec.storage.write_checks import versioned

REMEMBERED_CHANGES = 10_000
"""Default number of changes that a store remembers."""

REMEMBERED_BYTES = 32 << 20
"""Default limit of the JSON of all their objects together."""

_EARLIER_LISTS = 8
"""Number of earlier versions that are kept for the next pages of their lists."""

_SHARED_BYTES = 16 << 10
_SHARED_CHARS = 1024
_SHARED_KEYS = 256
_SHARED_DEPTH = 4
"""Limits of the search for long strings that an object shares with its earlier state."""

Key = tuple[str, str]
"""Namespace and name."""

_log = Logger()


def key_of(obj: Object) -> Key:
    """Return the key of an object in its table; for an object of the store always the same tuple."""
    if isinstance(obj, Encoded):
        return obj.key
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def table_of(resource: Resource) -> str:
    """Return the name of a resource's table, which all its API versions share."""
    return resource.qualified


class _Held:
    def __init__(self) -> None:
        # An identity is unique as long as the changes hold their objects.
        self._objects: dict[int, tuple[int, int]] = {}
        """Number of uses and size, by identity."""
        self.bytes = 0

    def __contains__(self, obj: Object) -> bool:
        return id(obj) in self._objects

    def add(self, obj: Object | None) -> None:
        if obj is None:
            return
        uses, size = self._objects.get(id(obj), (0, 0))
        if not uses:
            size = len(json_of(obj))
            self.bytes += size
        self._objects[id(obj)] = uses + 1, size

    def remove(self, obj: Object | None) -> None:
        if obj is None:
            return
        uses, size = self._objects.pop(id(obj))
        if uses > 1:
            self._objects[id(obj)] = uses - 1, size
        else:
            self.bytes -= size

    def clear(self) -> None:
        self._objects.clear()
        self.bytes = 0


@implementer(IWatch)
class _Watch:
    __slots__ = ("_namespace", "_on_event", "_on_lost", "_watches")

    def __init__(
        self,
        watches: dict[_Watch, None],
        namespace: str,
        on_event: Callable[[Event], None],
        on_lost: Callable[[], None] | None,
    ) -> None:
        self._watches = watches
        self._namespace = namespace
        self._on_event = on_event
        self._on_lost = on_lost
        watches[self] = None

    def tell(self, event: Event) -> None:
        if self._namespace and key_of(event.obj)[0] != self._namespace:
            return
        if self not in self._watches:
            return  # an earlier callback for the same event stopped it
        try:
            self._on_event(event)
        except Exception:  # a bug of one watcher must not cost the others their event
            _log.failure("a watcher failed and is dropped")
            self.stop()

    def missed(self, differences: Callable[[], Sequence[Event]]) -> None:
        if self not in self._watches:
            return
        if self._on_lost is None:
            for event in differences():
                self.tell(event)
            return
        self.stop()
        try:
            self._on_lost()
        except Exception:
            _log.failure("a watcher failed when it was told that changes were missed")

    def stop(self) -> None:
        self._watches.pop(self, None)


class History:
    """
    Objects, changes and watchers.

    :param remembered_bytes: limit of the size of the objects of remembered changes, as JSON.
    :param remembered: limit of the number of remembered changes.
    """

    def __init__(
        self,
        remembered: int = REMEMBERED_CHANGES,
        remembered_bytes: int = REMEMBERED_BYTES,
    ) -> None:
        self._objects: dict[str, OrderedObjects] = {}
        self._changes: deque[tuple[str, Event]] = deque()
        self._held = _Held()
        self._parts = SharedParts()
        self._earlier: OrderedDict[tuple[str, int], Snapshot] = OrderedDict()
        """By table and version."""
        self._remembered, self._remembered_bytes = remembered, remembered_bytes
        self._watches: dict[str, dict[_Watch, None]] = {}
        self._undelivered: deque[tuple[Event, Sequence[_Watch]]] = deque()
        self.usage = StoreUsage()
        """Sizes of the objects, without the changes."""
        self.version = 0
        """Version of the latest change."""
        self.forgotten = 0
        """Version up to which changes are forgotten."""
        self._undone = 0

    def restore(self, objects: Iterable[tuple[str, Object]], version: int, forgotten: int) -> None:
        for table, obj in objects:
            self._put(table, obj)
        self.version, self.forgotten = version, forgotten

    def start_over(self, objects: Iterable[tuple[str, Object]], version: int) -> None:
        """
        Replace all objects after changes were missed, and forget all changes.

        :param version: may be lower than before if the store was restored from a backup.
        """
        before, self._objects = self._objects, {}
        for forgotten in (self._changes, self._held, self._earlier, self.usage):
            forgotten.clear()
        self._undone = max(self._undone, self.version)
        self.restore(objects, version, version)
        for table, watches in list(self._watches.items()):
            old = before.get(table, OrderedObjects())
            differences = cache(partial(_differences, old, self._table(table), version))
            for watch in list(watches):
                watch.missed(differences)

    def without(self, deleted: Iterable[tuple[str, Key]]) -> Sequence[tuple[str, Object]]:
        """Return the objects except ``deleted``, as :meth:`restore` takes them."""
        left = {
            (t, key): obj for t, all_ in self._objects.items() for key, obj in all_.by_key.items()
        }
        for object_key in deleted:
            left.pop(object_key, None)
        return [(table, obj) for (table, _), obj in left.items()]

    def lose(self) -> None:
        """Call ``on_lost`` of the watches that have it, and end these."""
        for watches in list(self._watches.values()):
            for watch in list(watches):
                watch.missed(tuple)

    def remember(self, table: str, event: Event) -> None:
        """Add one earlier change, in order."""
        for obj in (event.obj, event.previous):
            if obj is not None and obj not in self._held and obj is not self.at(table, key_of(obj)):
                self._share(obj)
        if event.previous is not None and len(json_of(event.obj)) >= _SHARED_BYTES:
            _share_strings(event.obj, event.previous)
        self._changes.append((table, event))
        self._held.add(event.obj)
        self._held.add(event.previous)
        while len(self._changes) > self._remembered or self._held.bytes > self._remembered_bytes:
            _, oldest = self._changes.popleft()
            self.forgotten = oldest.version
            self._held.remove(oldest.obj)
            self._held.remove(oldest.previous)
        for kept in [each for each in self._earlier if each[1] < self.forgotten]:
            del self._earlier[kept]

    def apply(self, table: str, event: Event) -> int:
        """
        Make a change visible to readers and watchers.

        If a watch applies a change, all watches first get the change that it was called for.

        :return: the number of watches of the table.
        """
        if event.type == DELETED:
            self._drop(table, key_of(event.obj))
        else:
            self._put(table, event.obj)
        self.version = event.version
        self.remember(table, event)
        watches = list(self._watches.get(table, ()))
        self._undelivered.append((event, watches))
        if len(self._undelivered) == 1:
            self._deliver()
        return len(watches)

    def _deliver(self) -> None:
        while self._undelivered:
            event, watches = self._undelivered[0]
            for watch in watches:
                watch.tell(event)
            self._undelivered.popleft()

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """
        Return an object.

        :raises NotFound: there is none.
        """
        obj = self._table(table_of(resource)).by_key.get((namespace, name))
        if obj is None:
            raise NotFound(resource.plural, name, resource.group)
        return obj

    def find(self, resource: Resource, obj: Object) -> Object | None:
        """Return the stored object with the name of ``obj``, or ``None``."""
        return self.at(table_of(resource), key_of(obj))

    def at(self, table: str, key: Key) -> Object | None:
        """Return the object with a key, or ``None``."""
        return self._table(table).by_key.get(key)

    def list(self, resource: Resource, namespace: str, version: int | None) -> Listing:
        """
        List objects as of a version.

        :raises Expired: changes since ``version`` are forgotten.
        :raises APIError: it has not happened yet.
        """
        table = table_of(resource)
        if version is None or version == self.version:
            objects, version = self._table(table).snapshot(), self.version
        else:
            objects = self._as_of(table, version)
        return Listing(objects.within(namespace) if namespace else objects, version)

    def _put(self, table: str, obj: Object) -> None:
        self._share(obj)
        key, objects = key_of(obj), self._table(table)
        before = objects.by_key.get(key)
        self.usage.add(table, key[0], len(json_of(obj)) - _size(before))
        objects.put(key, obj)

    def _share(self, obj: Object) -> None:
        if len(json_of(obj)) < _SHARED_BYTES:
            self._parts.share(obj)

    def _drop(self, table: str, key: Key) -> None:
        objects = self._table(table)
        self.usage.add(table, key[0], -_size(objects.by_key.get(key)))
        objects.drop(key)

    def _table(self, name: str) -> OrderedObjects:
        objects = self._objects.get(name)
        if objects is None:
            objects = self._objects[name] = OrderedObjects()
        return objects

    def _as_of(self, table: str, version: int) -> Snapshot:
        self._check_remembered(version)
        earlier = self._earlier.get((table, version))
        if earlier is None:
            changes = self._changes_since(table, version)  # the latest first
            earlier = self._table(table).before({key_of(c.obj): c.previous for c in changes})
            self._earlier[table, version] = earlier
            if len(self._earlier) > _EARLIER_LISTS:
                self._earlier.popitem(last=False)
        return earlier

    def _check_remembered(self, version: int) -> None:
        # Versions up to the second limit are of changes that a restored backup has undone.
        if version < self.forgotten or self.version < version <= self._undone:
            raise Expired(f"too old resource version: {version} ({self.forgotten})")
        check_version_reached(version, self.version)

    def watch(
        self,
        resource: Resource,
        since: int | None,
        on_event: Callable[[Event], None],
        namespace: str,
        on_lost: Callable[[], None] | None = None,
    ) -> IWatch:
        """
        Watch a resource.

        :raises Expired: changes since ``since`` are forgotten.
        :raises APIError: it has not happened yet.
        """
        since = self.version if since is None else since
        self._check_remembered(since)
        table = table_of(resource)
        watch = _Watch(self._watches.setdefault(table, {}), namespace, on_event, on_lost)
        for event in reversed(self._changes_since(table, since)):
            watch.tell(event)
        return watch

    def _changes_since(self, table: str, version: int) -> Sequence[Event]:
        events: list[Event] = []
        for changed, event in reversed(self._changes):
            if event.version <= version:
                break
            if changed == table:
                events.append(event)
        return events


def _size(obj: Object | None) -> int:
    return 0 if obj is None else len(json_of(obj))


def _share_strings(new: Object, old: Object, depth: int = _SHARED_DEPTH) -> None:
    if len(new) > _SHARED_KEYS:
        return
    for key, value in new.items():
        before = old.get(key)
        if value is before:
            continue
        if isinstance(value, str):
            if len(value) >= _SHARED_CHARS and value == before:
                new[key] = before
        elif depth and isinstance(value, dict) and isinstance(before, dict):
            _share_strings(value, before, depth - 1)


def _differences(old: OrderedObjects, new: OrderedObjects, version: int) -> Sequence[Event]:
    events: list[Event] = []
    for key, before in old.by_key.items():
        after = new.by_key.get(key)
        if after is None or after["metadata"].get("uid") != before["metadata"].get("uid"):
            events.append(Event(DELETED, versioned(before, version), before, version))
        elif after != before:  # versions say nothing here: the other history numbers its own writes
            events.append(Event(MODIFIED, after, before, version))
    deleted = {key_of(event.obj) for event in events if event.type == DELETED}
    for key, after in new.by_key.items():
        if key in deleted or key not in old.by_key:
            events.append(Event(ADDED, after, None, version))
    return events


def check_version_reached(version: int, current: int) -> None:
    """
    Check that a version has happened.

    Source of the Status: ``k8s.io/apiserver/pkg/storage/errors.go``.

    :raises APIError: ``version`` has not happened yet.
    """
    if version > current:
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        raise APIError(
            f"Timeout: Too large resource version: {version}, current: {current}",
            code=504,
            reason="Timeout",
            details={"causes": [cause]},
            retry_after_seconds=1,
        )
