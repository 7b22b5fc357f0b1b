"""
Read and watch the objects that Machines refer to.

Objects other than Secrets are watched, each kind from the first reference on. A poollet may read
only the Secrets that its Machines name, so it reads a Secret when a plan needs it. Some Secrets
that Machines wait for are watched, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.kinds import SECRETS
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, NotFound
from twisted_exec.kube.informers import Reflector, key_of
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.poollet.machines.references import Key, Object, References, Unread

MAX_FOLLOWED = 64
"""Limit of watched Secrets; Machines that wait for more poll instead."""

MISSING_SECONDS = 1.0
"""
Grace period before an object counts as missing: an API server lets a poollet see the objects of a
Machine only a moment after the Machine is bound to its pool.
"""

_Place = tuple[Resource, str, str]


@dataclass
class ReferenceCache:
    """
    Looks up the objects that Machines refer to.

    :param changed: called with the UID of a Machine when an object that it looked up has changed.
    """

    client: IKubeClient
    clock: IReactorTime
    changed: Callable[[str], None]
    class_of: Callable[[str], tuple[str, str]]
    _copies: dict[Resource, Reflector] = field(default_factory=dict)
    _readers: dict[_Place, set[str]] = field(default_factory=dict)
    _missed: dict[_Place, float] = field(default_factory=dict)
    """When a lookup first missed an object."""
    _followed: dict[Key, Reflector] = field(default_factory=dict)
    _stopping: list[Deferred[None]] = field(default_factory=list)

    def references(self, uid: str, secrets: Mapping[Key, Object | str]) -> References:
        """Return the references of Machine ``uid``; lookups subscribe it to changes."""

        def find(resource: Resource, namespace: str, name: str) -> Object | None:
            self._readers.setdefault((resource, namespace, name), set()).add(uid)
            copy = self._copy(resource)
            if not copy.synced:
                raise Unread(
                    copy.problem or f"{resource.qualified} are being read", soon=not copy.problem
                )
            obj = copy.get(name, namespace)
            place = (resource, namespace, name)
            if obj is not None:
                self._missed.pop(place, None)
            elif self.clock.seconds() - self._missing_since(place) < MISSING_SECONDS:
                raise Unread(f"{resource.qualified} {name!r} is looked for", soon=True)
            return obj

        return References(find, secrets, self.class_of)

    async def read(self, keys: Iterable[Key]) -> dict[Key, Object | str]:
        """Read Secrets; the result is an error message for an unreadable one."""
        objects: dict[Key, Object | str] = {}
        for key in keys:
            namespace, name = key
            try:
                objects[key] = await self.client.get(SECRETS.resource, name, namespace)
            except APIError as error:
                missing = error.code == NotFound.code
                objects[key] = "does not exist" if missing else f"cannot be read: {error.message}"
        return objects

    def follow(self, uid: str, keys: Iterable[Key]) -> None:
        """Watch these Secrets for the Machine, up to a limit, instead of its earlier ones."""
        pending_keys = set(keys)
        for key in pending_keys:
            self._readers.setdefault((SECRETS.resource, *key), set()).add(uid)
            if key not in self._followed and len(self._followed) < MAX_FOLLOWED:
                self._followed[key] = self._reflector(
                    SECRETS.resource, key[0], f"metadata.name={key[1]}"
                )
        for key in [key for key in self._followed if key not in pending_keys]:
            readers = self._readers.get((SECRETS.resource, *key), set())
            readers.discard(uid)
            if not readers:
                self._stop_following(key)

    def forget(self, uid: str) -> None:
        """Forget a Machine that no longer exists."""
        self.follow(uid, ())
        for place in [place for place, readers in self._readers.items() if uid in readers]:
            self._readers[place].discard(uid)
            if not self._readers[place]:
                del self._readers[place]
                self._missed.pop(place, None)

    def stop(self) -> Deferred[Any]:
        """Stop all watches; fires when nothing is under way."""
        ending = [copy.stop() for copy in (*self._copies.values(), *self._followed.values())]
        self._copies.clear()
        self._followed.clear()
        return DeferredList([*ending, *self._stopping])

    def _missing_since(self, place: _Place) -> float:
        return self._missed.setdefault(place, self.clock.seconds())

    def _copy(self, resource: Resource) -> Reflector:
        if resource not in self._copies:
            copy = self._copies[resource] = self._reflector(resource)
            copy.when_synced().addCallbacks(lambda _: self._read(resource), lambda _: None)
        return self._copies[resource]

    def _reflector(self, resource: Resource, namespace: str = "", fields: str = "") -> Reflector:
        def changed(before: Object | None, after: Object | None) -> None:
            obj = after if after is not None else before
            assert obj is not None
            self._tell((resource, *key_of(obj)))

        reflector = Reflector(
            self.client,
            resource,
            self.clock,
            namespace=namespace,
            field_selector=fields,
            on_change=changed,
        )
        reflector.start()
        return reflector

    def _read(self, resource: Resource) -> None:
        for place in [place for place in self._readers if place[0] == resource]:
            self._tell(place)

    def _tell(self, place: _Place) -> None:
        for uid in list(self._readers.get(place, ())):
            self.changed(uid)

    def _stop_following(self, key: Key) -> None:
        stopping = self._followed.pop(key).stop()
        self._stopping.append(stopping)
        stopping.addBoth(lambda _: self._stopping.remove(stopping))
