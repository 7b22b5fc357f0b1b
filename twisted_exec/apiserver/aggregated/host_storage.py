"""
Storage for the host's objects: a client of its API server behind the interface of a store.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator
from typing import Any

from twisted.application.service import Service
from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from twisted_exec.api.kinds import EVENTS, LEASES, NAMESPACES
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    Conflict,
    Expired,
    InternalError,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.apiserver.controllers.leader_election import LEASE
from twisted_exec.apiserver.controllers.leader_election import NAMESPACE as ELECTION
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.storage.delegating import DelegatingStorage
from twisted_exec.storage.history import key_of
from twisted_exec.storage.interfaces import (
    ADDED,
    DELETED,
    MODIFIED,
    Event,
    IStorage,
    IWatch,
    Listing,
    Object,
)

HOSTED: frozenset[Resource] = frozenset(kind.resource for kind in (NAMESPACES, EVENTS, LEASES))
"""Resources that the host stores."""

SINGLE_OBJECTS = {(LEASES.resource, ELECTION): LEASE}
"""The one object to follow of a resource and namespace."""

_OWN = ("uid", "creationTimestamp", "resourceVersion", "generation", "managedFields")
"""Metadata that the server sets on creation."""


def unavailable(resource: Resource, error: APIError) -> APIError:
    """
    Convert an error of the host for the user whose request needed the host.

    The host's 401 and 403 concern this server, not the user.
    """
    if error.code == 404 and not isinstance(error, NotFound):
        name = str(error.details.get("name", ""))
        return NotFound(resource.plural, name, resource.group, error.message)
    if error.code == 409 and not isinstance(error, Conflict | AlreadyExists):
        if error.reason == AlreadyExists.reason:
            return AlreadyExists(
                resource.plural, str(error.details.get("name", "")), resource.group
            )
        return Conflict(error.message, details=error.details)
    if error.code in (401, 403):
        return InternalError(f"the host cluster refuses this server: {error.message}")
    if error.code == 429 or error.code >= 500:
        return ServiceUnavailable(
            f"the host cluster cannot be asked: {error.message}", retry_after_seconds=1
        )
    return error


class _Copy:
    def __init__(
        self, client: IKubeClient, resource: Resource, namespace: str, clock: IReactorTime
    ) -> None:
        self.watches: dict[_Watch, None] = {}
        name = SINGLE_OBJECTS.get((resource, namespace), "")
        self.reflector = Reflector(
            client,
            resource,
            clock,
            namespace=namespace,
            field_selector=f"metadata.name={name}" if name else "",
            on_change=self._changed,
        )

    def _changed(self, before: Object | None, after: Object | None) -> None:
        kind = ADDED if before is None else MODIFIED if after is not None else DELETED
        obj = after if after is not None else before
        assert obj is not None
        event = Event(kind, obj, before, _version(obj["metadata"]))
        for watch in list(self.watches):
            watch.tell(event)


@implementer(IWatch)
class _Watch:
    def __init__(self, source: _Copy, on_event: Callable[[Event], None]) -> None:
        self._source, self._on_event = source, on_event
        source.watches[self] = None

    def tell(self, event: Event) -> None:
        if self in self._source.watches:  # an earlier callback may have stopped it
            self._on_event(event)

    def stop(self) -> None:
        self._source.watches.pop(self, None)


@implementer(IStorage)
class HostedStorage(Service):
    """
    The host's objects, through a client of its API server.

    :param followed: resources that are read from a copy.
    """

    exclusive = False
    location = "host"

    def __init__(
        self,
        client: IKubeClient,
        clock: IReactorTime,
        followed: Collection[Resource] = (NAMESPACES.resource,),
    ) -> None:
        self._client, self._clock = client, clock
        self._copies: dict[tuple[Resource, str], _Copy] = {}
        self._followed = followed

    def startService(self) -> None:
        super().startService()
        for resource in self._followed:
            self._copy(resource, "")

    def stopService(self) -> Deferred[Any]:
        super().stopService()
        copies, self._copies = self._copies, {}
        return defer.DeferredList([each.reflector.stop() for each in copies.values()])

    def _copy(self, resource: Resource, namespace: str) -> _Copy:
        key = resource, namespace
        if key not in self._copies:
            self._copies[key] = _Copy(self._client, resource, namespace, self._clock)
            self._copies[key].reflector.start()
        return self._copies[key]

    def _synced(self, resource: Resource, namespace: str, stale: bool) -> Reflector | None:
        if resource not in self._followed and not stale:
            return None  # leader election needs the host's current Lease
        if (resource, namespace) in SINGLE_OBJECTS:
            return None
        for key in ((resource, namespace), (resource, "")):
            copy = self._copies.get(key)
            if copy is not None and copy.reflector.synced:
                return copy.reflector
        return None

    @property
    def problems(self) -> Iterator[str]:
        """Why the copies are not current."""
        for (resource, _), each in self._copies.items():
            if each.reflector.problem:
                yield f"{resource.plural}: {each.reflector.problem}"
            elif not each.reflector.synced:
                yield f"{resource.plural} are not synced yet"

    def when_ready(self) -> Deferred[None]:
        """At once: the host may start later."""
        return defer.succeed(None)

    def get(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[Object]:
        """As :meth:`IStorage.get`; an object missing in the copy is requested."""
        source = self._synced(resource, namespace, stale)
        cached = source.get(name, namespace) if source is not None else None
        if cached is not None:
            return defer.succeed(cached)
        return self._answer(resource, self._client.get(resource, name, namespace))

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        version: int | None = None,
        stale: bool = False,
    ) -> Deferred[Listing]:
        """As :meth:`IStorage.list`; past versions are not available."""
        if version is not None:
            return defer.fail(Expired(f"too old resource version: {version}"))
        source = self._synced(resource, namespace, stale)
        if source is not None:
            return defer.succeed(_listing(resource, list(source), namespace))
        listed = self._answer(resource, self._client.list(resource, namespace))
        return listed.addCallback(lambda listing: _listing(resource, listing["items"], namespace))

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """As :meth:`IStorage.create`; the host sets its own metadata."""
        new = copy.deepcopy(dict(obj))
        for key in _OWN:
            new["metadata"].pop(key, None)
        namespace = new["metadata"].get("namespace", "")
        return self._answer(resource, self._client.create(resource, new, namespace))

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        new = copy.deepcopy(dict(obj))
        # The host tracks managers by our field manager; ours would be refused or duplicated.
        new["metadata"].pop("managedFields", None)
        return self._answer(
            resource, self._client.update(resource, new, new["metadata"].get("namespace", ""))
        )

    def delete(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """As :meth:`IStorage.delete`; returns the object as passed."""
        metadata = obj["metadata"]
        done = self._client.delete(
            resource, metadata["name"], metadata.get("namespace", ""), uid=metadata["uid"]
        )
        return self._answer(resource, done).addCallback(lambda _: obj)

    def watch(
        self,
        resource: Resource,
        since: int | None,
        on_event: Callable[[Event], None],
        namespace: str = "",
        on_lost: Callable[[], None] | None = None,
    ) -> IWatch:
        """As :meth:`IStorage.watch`, but ``since`` must be ``None``."""
        if since is not None:
            raise Expired(f"too old resource version: {since}")
        return _Watch(self._copy(resource, namespace), on_event)

    def version(self) -> int:
        """As :meth:`IStorage.version`; the host's versions come with its objects."""
        return 0

    def current(self) -> Deferred[int]:
        return defer.succeed(0)

    def probe(self) -> Deferred[object]:
        return defer.execute(self._probe)

    def _probe(self) -> None:
        for problem in self.problems:
            raise ServiceUnavailable(problem)

    def _answer(self, resource: Resource, response: Deferred[Object]) -> Deferred[Object]:
        def failed(failure: Any) -> Any:
            failure.trap(APIError)
            raise unavailable(resource, failure.value) from None

        return response.addErrback(failed)


def _listing(resource: Resource, items: list[Object], namespace: str) -> Listing:
    chosen = [obj for obj in items if not namespace or key_of(obj)[0] == namespace]
    latest = max((_version(obj["metadata"]) for obj in chosen), default=0)
    return Listing(sorted(chosen, key=key_of), latest)


def _version(metadata: Object) -> int:
    text = str(metadata.get("resourceVersion", ""))
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else 0


@implementer(IStorage)
class SplitStorage(DelegatingStorage):
    """
    Picks the store by resource.

    Resource versions and readiness are those of the server's own store.
    """

    def __init__(
        self, own: IStorage, hosted: IStorage, resources: Collection[Resource] = HOSTED
    ) -> None:
        super().__init__(own)
        self._hosted, self._resources = hosted, resources

    def _storage_of(self, resource: Resource) -> IStorage:
        return self._hosted if resource in self._resources else self._storage
