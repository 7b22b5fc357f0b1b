"""
A cluster in memory: versioned objects, watches and reviews without a server.

It passes the contract suite of clients (``tests/contracts``), and does not validate objects.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.kinds import ALL, Kind
from twisted_exec.api.resource import Resource
from twisted_exec.api.selectors import parse_fields, parse_labels
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    BadGateway,
    Conflict,
    Expired,
    Forbidden,
    NotFound,
)
from twisted_exec.kube.answers import typed
from twisted_exec.kube.interfaces import IKubeClient, Object

GRACE_SECONDS = 30
"""Grace period of a Pod that names none, in seconds."""

_GRACE = "deletionGracePeriodSeconds"

Key = tuple[Resource, str, str]
Review = Callable[[Object], Object]
"""Returns the ``status`` for the object of a review."""


class MemoryCluster:
    """
    All objects, their history and their watchers.

    :param kinds: the served kinds.
    """

    def __init__(self, kinds: tuple[Kind, ...] = ALL) -> None:
        self.kinds = {kind.resource: kind for kind in kinds}
        self.objects: dict[Key, Object] = {}
        self.reviews: dict[Resource, Review] = {}
        """How each kind of review is answered; others are refused with 404."""
        self.problem: APIError | None = None
        """While set, requests fail with it."""
        self.forbidden: set[Resource] = set()
        """Resources without a role: requests for them fail with 403."""
        self.requests: list[tuple[str, str, str, str]] = []
        """Verb, plural, namespace and name of the requests so far."""
        self.graceful: set[Resource] = set()
        """Kinds of Pods, which remain until their kubelet has ended them."""
        self.version = 1
        self._history: list[tuple[int, str, Key, Object]] = []
        self._oldest = 0
        self._watchers: list[_Watcher] = []

    def client(self) -> MemoryClient:
        """Return a client that may do everything."""
        return MemoryClient(self)

    def compact(self) -> None:
        """Forget the history: watches from earlier versions get ``Expired``."""
        self._history.clear()
        self._oldest = self.version

    def end_watches(self, why: APIError | None = None) -> None:
        """End every watch, normally or with an error."""
        for watcher in list(self._watchers):
            watcher.end(why)

    def bookmark(self) -> None:
        """Send every watcher a bookmark with the newest version."""
        for watcher in list(self._watchers):
            watcher.on_event("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})

    @property
    def watches(self) -> int:
        """The number of open watches."""
        return len(self._watchers)

    def kind(self, resource: Resource) -> Kind:
        """
        Return the kind of a resource.

        :raises NotFound: the cluster does not serve the resource.
        """
        try:
            return self.kinds[resource]
        except KeyError:
            raise NotFound(
                resource.plural,
                "",
                resource.group,
                "the server could not find the requested resource",
            ) from None

    def put(self, key: Key, obj: Object) -> Object:
        """Store ``obj`` with the next version and notify the watchers."""
        previous = self.objects.get(key)
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = obj
        self._record("MODIFIED" if previous is not None else "ADDED", key, obj, previous)
        return copy.deepcopy(obj)

    def remove(self, key: Key) -> Object:
        """Remove an object and notify the watchers."""
        obj = self.objects.pop(key)
        self.version += 1
        tombstone = copy.deepcopy(obj)
        tombstone["metadata"]["resourceVersion"] = str(self.version)
        self._record("DELETED", key, tombstone, obj)
        return tombstone

    def find(self, resource: Resource, namespace: str, name: str) -> tuple[Key, Object]:
        """Return the stored object itself; :class:`NotFound` when there is none."""
        kind = self.kind(resource)
        key = (kind.resource, namespace if resource.namespaced else "", name)
        if key not in self.objects:
            raise NotFound(resource.plural, name, resource.group)
        return key, self.objects[key]

    def add_watcher(self, watcher: _Watcher, since: int) -> None:
        """Replay the changes after version ``since``, then deliver new ones."""
        if since < self._oldest:
            raise Expired(f"too old resource version: {since} ({self._oldest})")
        self._watchers.append(watcher)
        for version, event, key, obj in list(self._history):
            if version > since:
                watcher.offer(event, key, obj, None)

    def drop_watcher(self, watcher: _Watcher) -> None:
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def _record(self, event: str, key: Key, obj: Object, before: Object | None) -> None:
        snapshot = copy.deepcopy(obj)
        self._history.append((self.version, event, key, snapshot))
        for watcher in list(self._watchers):
            watcher.offer(event, key, snapshot, before)


class _Selection:
    def __init__(
        self, kind: Kind, namespace: str, field_selector: str, label_selector: str
    ) -> None:
        self._kind = kind
        self._namespace = namespace
        self._fields = parse_fields(field_selector)
        self._fields.check(kind.selectable)
        self._labels = parse_labels(label_selector)

    def holds(self, key: Key, obj: Object | None) -> bool:
        if obj is None or key[0] != self._kind.resource:
            return False
        if self._namespace and key[1] != self._namespace:
            return False
        return self._fields.matches(obj, self._kind.selectable) and self._labels.matches(
            obj["metadata"].get("labels") or {}
        )


class _Watcher:
    def __init__(
        self,
        cluster: MemoryCluster,
        selection: _Selection,
        on_event: Callable[[str, Object], None],
    ) -> None:
        self.on_event = on_event
        self._cluster = cluster
        self._selection = selection
        self.done: Deferred[None] = Deferred(lambda _: cluster.drop_watcher(self))

    def offer(self, event: str, key: Key, obj: Object, before: Object | None) -> None:
        was, now = self._selection.holds(key, before), self._selection.holds(key, obj)
        if event == "MODIFIED" and before is not None:
            if not was and not now:
                return
            event = "MODIFIED" if was and now else "ADDED" if now else "DELETED"
        elif not now:
            return
        if self.done.called:
            return
        try:
            self.on_event(event, copy.deepcopy(obj))
        except Exception:  # as a real client: the watch ends with what its listener fails with
            self._cluster.drop_watcher(self)
            self.done.errback(Failure())

    def end(self, why: APIError | None) -> None:
        self._cluster.drop_watcher(self)
        if why is None:
            self.done.callback(None)
        else:
            self.done.errback(why)


@implementer(IKubeClient)
class MemoryClient:
    """
    A client of a :class:`MemoryCluster`; answers at once.

    :ivar changes: how often its configuration has changed.
    """

    changes = 0

    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    def look(self) -> int:
        return self.changes

    def groups(self) -> Deferred[list[str]]:
        return succeed(sorted({each.group for each in self._cluster.kinds if each.group}))

    def get(self, resource: Resource, name: str, namespace: str = "") -> Deferred[Object]:
        return self._do(
            "get", resource, namespace, name, lambda: self._get(resource, name, namespace)
        )

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        field_selector: str = "",
        label_selector: str = "",
        trim: Callable[[Object], Object] | None = None,
    ) -> Deferred[Object]:
        return self._do(
            "list",
            resource,
            namespace,
            "",
            lambda: self._list(resource, namespace, field_selector, label_selector, trim),
        )

    def create(
        self,
        resource: Resource,
        obj: Object,
        namespace: str = "",
        *,
        subresource: str = "",
        name: str = "",
    ) -> Deferred[Object]:
        return self._do(
            "create", resource, namespace, name, lambda: self._create(resource, obj, namespace)
        )

    def update(
        self, resource: Resource, obj: Object, namespace: str = "", *, subresource: str = ""
    ) -> Deferred[Object]:
        name = obj["metadata"]["name"]
        return self._do(
            "update",
            resource,
            namespace,
            name,
            lambda: self._change(resource, namespace, name, subresource, lambda _: obj),
        )

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, Any],
        namespace: str = "",
        *,
        subresource: str = "",
        content_type: str = "application/merge-patch+json",
    ) -> Deferred[Object]:
        """As :meth:`IKubeClient.patch`; merge patches only."""
        return self._do(
            "patch",
            resource,
            namespace,
            name,
            lambda: self._change(
                resource, namespace, name, subresource, lambda old: _merged(old, patch)
            ),
        )

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_seconds: int | None = None,
    ) -> Deferred[Object]:
        return self._do(
            "delete",
            resource,
            namespace,
            name,
            lambda: self._delete(resource, name, namespace, uid, grace_seconds),
        )

    def watch(
        self,
        resource: Resource,
        on_event: Callable[[str, Object], None],
        namespace: str = "",
        *,
        resource_version: str,
        field_selector: str = "",
        label_selector: str = "",
        on_open: Callable[[], None] = lambda: None,
    ) -> Deferred[None]:
        def begin() -> Deferred[None]:
            kind = self._cluster.kind(resource)
            selection = _Selection(kind, namespace, field_selector, label_selector)
            watcher = _Watcher(self._cluster, selection, on_event)
            self._cluster.add_watcher(watcher, int(resource_version))
            on_open()
            return watcher.done

        return self._do("watch", resource, namespace, "", begin)

    def _do(
        self, verb: str, resource: Resource, namespace: str, name: str, act: Callable[[], Any]
    ) -> Deferred[Any]:
        self._cluster.requests.append((verb, resource.plural, namespace, name))
        if self._cluster.problem is not None:
            return fail(self._cluster.problem)
        if resource in self._cluster.forbidden:
            return fail(typed(Forbidden(f"{resource.qualified} is forbidden")))
        try:
            done = act()
        except APIError as refused:
            return fail(typed(refused))
        return done if isinstance(done, Deferred) else succeed(done)

    def _get(self, resource: Resource, name: str, namespace: str) -> Object:
        return copy.deepcopy(self._cluster.find(resource, namespace, name)[1])

    def _list(
        self,
        resource: Resource,
        namespace: str,
        field_selector: str,
        label_selector: str,
        trim: Callable[[Object], Object] | None,
    ) -> Object:
        kind = self._cluster.kind(resource)
        selection = _Selection(kind, namespace, field_selector, label_selector)
        chosen = [
            o
            for key, o in sorted(self._cluster.objects.items(), key=_order)
            if selection.holds(key, o)
        ]
        return {
            "apiVersion": resource.api_version,
            "kind": kind.list_kind,
            "metadata": {"resourceVersion": str(self._cluster.version)},
            "items": [(trim or _whole)(copy.deepcopy(each)) for each in chosen],
        }

    def _create(self, resource: Resource, obj: Object, namespace: str) -> Object:
        if resource in self._cluster.reviews:
            return {**obj, "status": self._cluster.reviews[resource](copy.deepcopy(obj))}
        kind = self._cluster.kind(resource)
        if not kind.stored:
            raise NotFound(resource.plural, "", resource.group)
        new = copy.deepcopy(obj)
        metadata = new.setdefault("metadata", {})
        key = (resource, namespace if resource.namespaced else "", metadata["name"])
        if key in self._cluster.objects:
            raise AlreadyExists(resource.plural, metadata["name"], resource.group)
        if key[1]:
            metadata["namespace"] = key[1]
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
        if kind.counts_generation:
            metadata["generation"] = 1
        if kind.has_status:
            new.pop("status", None)
        new.update(apiVersion=resource.api_version, kind=resource.kind)
        return self._cluster.put(key, new)

    def _change(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        subresource: str,
        change: Callable[[Object], Object],
    ) -> Object:
        key, old = self._cluster.find(resource, namespace, name)
        updated = change(copy.deepcopy(old))
        _check_version(resource, name, old, updated)
        _check_uid(resource, name, old, updated)
        new = self._joined(self._cluster.kind(resource), old, updated, subresource)
        if new == old:
            return copy.deepcopy(old)
        stored = self._cluster.put(key, new)
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            self._cluster.remove(key)
        return stored

    def _joined(self, kind: Kind, old: Object, updated: Object, subresource: str) -> Object:
        if subresource == "status":
            return {**copy.deepcopy(old), "status": copy.deepcopy(updated.get("status"))}
        new = copy.deepcopy(updated)
        for name in ("uid", "creationTimestamp", "deletionTimestamp", "generation", "namespace"):
            new["metadata"].pop(name, None)
            if name in old["metadata"]:
                new["metadata"][name] = old["metadata"][name]
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if kind.has_status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = copy.deepcopy(old["status"])
        if kind.counts_generation and new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"]["generation"] + 1
        return new

    def _delete(
        self, resource: Resource, name: str, namespace: str, uid: str, grace: int | None
    ) -> Object:
        key, old = self._cluster.find(resource, namespace, name)
        if uid and old["metadata"]["uid"] != uid:
            raise Conflict(
                f'Operation cannot be fulfilled on {resource.qualified} "{name}": '
                f"the UID in the precondition ({uid}) does not match the UID in record"
            )
        if old["metadata"].get("finalizers"):
            new = copy.deepcopy(old)
            new["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
            return self._cluster.put(key, new)
        if resource in self._cluster.graceful:
            return self._end(key, old, grace)
        return self._cluster.remove(key)

    def _end(self, key: Key, old: Object, grace: int | None) -> Object:
        spec, metadata = old.get("spec", {}), old["metadata"]
        own = spec.get("terminationGracePeriodSeconds", GRACE_SECONDS)
        seconds = min(own if grace is None else grace, metadata.get(_GRACE, 1 << 31))
        if not spec.get("nodeName") or not seconds:
            return self._cluster.remove(key)
        new = copy.deepcopy(old)
        new["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:00Z")
        new["metadata"][_GRACE] = seconds
        return copy.deepcopy(old) if new == old else self._cluster.put(key, new)


def _whole(obj: Object) -> Object:
    return obj


def _order(item: tuple[Key, Object]) -> tuple[str, str]:
    return item[0][1], item[0][2]


def _check_version(resource: Resource, name: str, old: Object, updated: Object) -> None:
    version = updated["metadata"].get("resourceVersion")
    if version and version != old["metadata"]["resourceVersion"]:
        raise Conflict(
            f'Operation cannot be fulfilled on {resource.qualified} "{name}": '
            "the object has been modified; please apply your changes to the latest version"
        )


def _check_uid(resource: Resource, name: str, old: Object, updated: Object) -> None:
    uid = updated["metadata"].get("uid")
    if uid and uid != old["metadata"].get("uid"):
        raise Conflict(
            f'Operation cannot be fulfilled on {resource.qualified} "{name}": '
            f"the UID in the precondition ({uid}) does not match the UID in record"
        )


def _merged(old: Any, patch: Mapping[str, Any]) -> Any:
    """RFC 7396."""
    merged = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            merged[key] = _merged(merged.get(key), value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def unreachable() -> APIError:
    """Return the error of an unreachable API server, for ``MemoryCluster.problem``."""
    return BadGateway("cannot reach the API server: connection refused")
