"""
The host's objects behind the door of a store.

What keeps pools alive, tells Events and looks whether a namespace is there asks a store; where
these objects are the host's, that store is a client of its API server.  Namespaces are kept as a
copy by list and watch, and read from that, as Kubernetes' own servers do; so is what is
watched otherwise, but it is read from the copy only by whoever is content with what is at hand.  A
host that is down costs what needs it a 503, and is never a reason to end anything.

Versions are the host's own and are compared with nobody else's: nothing here is shown to clients.

One door to two stores: a server's own, and its host's.
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
from twisted_exec.kube.informers.reflector import Reflector
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.storage.base import Through
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
"""What is the host's."""

ALONE = {(LEASES.resource, ELECTION): LEASE}
"""Of a resource in a namespace, the one object that is followed: the others are not ours to see."""

_OWN = ("uid", "creationTimestamp", "resourceVersion", "generation", "managedFields")
"""Of an object's metadata, what a server says itself when it makes one."""


def unavailable(resource: Resource, error: APIError) -> APIError:
    """
    What the host answered, for the user whose request needed it.

    Neither its 401 nor its 403 is theirs, and what may pass is worth another try.
    Whoever asks a store catches what a store says, so that is what it is made of.
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
    """One resource, or what of it is in one namespace, as the host last told."""

    def __init__(
        self, client: IKubeClient, resource: Resource, namespace: str, clock: IReactorTime
    ) -> None:
        self.watches: dict[_Watch, None] = {}
        name = ALONE.get((resource, namespace), "")
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
        if self in self._source.watches:  # else another one, told before, stopped it
            self._on_event(event)

    def stop(self) -> None:
        """As :meth:`IWatch.stop`."""
        self._source.watches.pop(self, None)


@implementer(IStorage)
class HostedStorage(Service):
    """
    Objects of a host, through a client of its API server.

    :param followed: resources of which a copy is kept from the start, and is good enough.
    """

    alone = False

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
        """Begin to follow."""
        super().startService()
        for resource in self._followed:
            self._copy(resource, "")

    def stopService(self) -> Deferred[Any]:
        """Follow no longer; fires when nothing is under way."""
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
        """A complete copy that has what is in a namespace, or all when it is empty."""
        if resource not in self._followed and not stale:
            return None  # leases are agreed on: what counts is what the host has now
        if (resource, namespace) in ALONE:
            return None
        for key in ((resource, namespace), (resource, "")):
            found = self._copies.get(key)
            if found is not None and found.reflector.synced:
                return found.reflector
        return None

    @property
    def problems(self) -> Iterator[str]:
        """Why what is followed is not current."""
        for (resource, _), each in self._copies.items():
            if each.reflector.problem:
                yield f"{resource.plural}: {each.reflector.problem}"
            elif not each.reflector.synced:
                yield f"{resource.plural} are not known yet"

    def when_ready(self) -> Deferred[None]:
        """As :meth:`IStorage.when_ready`: at once, for a host may come later."""
        return defer.succeed(None)

    def get(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[Object]:
        """As :meth:`IStorage.get`; what the copy has not may be new, and is asked for."""
        source = self._synced(resource, namespace, stale)
        known = source.get(name, namespace) if source is not None else None
        if known is not None:
            return defer.succeed(known)
        return self._told(resource, self._client.get(resource, name, namespace))

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        version: int | None = None,
        stale: bool = False,
    ) -> Deferred[Listing]:
        """As :meth:`IStorage.list`; of the past nothing is known."""
        if version is not None:
            return defer.fail(Expired(f"too old resource version: {version}"))
        source = self._synced(resource, namespace, stale)
        if source is not None:
            return defer.succeed(_listing(resource, list(source), namespace))
        listed = self._told(resource, self._client.list(resource, namespace))
        return listed.addCallback(lambda told: _listing(resource, told["items"], namespace))

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """As :meth:`IStorage.create`; what a server says itself is the host's to say."""
        new = copy.deepcopy(dict(obj))
        for key in _OWN:
            new["metadata"].pop(key, None)
        namespace = new["metadata"].get("namespace", "")
        return self._told(resource, self._client.create(resource, new, namespace))

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """As :meth:`IStorage.update`."""
        new = copy.deepcopy(dict(obj))
        # The host notes who manages what by who writes it.
        new["metadata"].pop("managedFields", None)
        return self._told(
            resource, self._client.update(resource, new, new["metadata"].get("namespace", ""))
        )

    def delete(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """As :meth:`IStorage.delete`; the object as it was known."""
        metadata = obj["metadata"]
        done = self._client.delete(
            resource, metadata["name"], metadata.get("namespace", ""), uid=metadata["uid"]
        )
        return self._told(resource, done).addCallback(lambda _: obj)

    def watch(
        self,
        resource: Resource,
        since: int | None,
        on_event: Callable[[Event], None],
        namespace: str = "",
        on_lost: Callable[[], None] | None = None,
    ) -> IWatch:
        """
        As :meth:`IStorage.watch`, from now on only.

        Nothing is ever missed: what changed while the host was away is told as its sum.
        """
        if since is not None:
            raise Expired(f"too old resource version: {since}")
        return _Watch(self._copy(resource, namespace), on_event)

    def version(self) -> int:
        """As :meth:`IStorage.version`: the host has its own, and tells it with each object."""
        return 0

    def current(self) -> Deferred[int]:
        """As :meth:`IStorage.current`."""
        return defer.succeed(0)

    def probe(self) -> Deferred[object]:
        """As :meth:`IStorage.probe`: what is followed is current."""
        return defer.execute(self._probe)

    def _probe(self) -> None:
        for problem in self.problems:
            raise ServiceUnavailable(problem)

    def _told(self, resource: Resource, asked: Deferred[Object]) -> Deferred[Object]:
        def failed(failure: Any) -> Any:
            failure.trap(APIError)
            raise unavailable(resource, failure.value) from None

        return asked.addErrback(failed)


def _listing(resource: Resource, items: list[Object], namespace: str) -> Listing:
    chosen = [obj for obj in items if not namespace or key_of(obj)[0] == namespace]
    latest = max((_version(obj["metadata"]) for obj in chosen), default=0)
    return Listing(sorted(chosen, key=key_of), latest)


def _version(metadata: Object) -> int:
    """A number where it is one: clients must not count on that, and neither do we."""
    told = str(metadata.get("resourceVersion", ""))
    return int(told) if told.isascii() and told.isdigit() and len(told) <= 20 else 0


@implementer(IStorage)
class SplitStorage(Through):
    """
    Picks the store by the resource.

    Versions are those of the server's own store: it alone is shown to clients.  It alone says whether
    all is well, too: a host that is down is no reason to be taken out of service.

    :param own: started and stopped by whoever has made it.
    :param hosted: likewise.
    :param resources: those that are in ``hosted``.
    """

    def __init__(
        self, own: IStorage, hosted: IStorage, resources: Collection[Resource] = HOSTED
    ) -> None:
        super().__init__(own)
        self._hosted, self._resources = hosted, resources

    def _of(self, resource: Resource) -> IStorage:
        return self._hosted if resource in self._resources else self._storage

    def get(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[Object]:
        """As :meth:`IStorage.get`."""
        return self._of(resource).get(resource, namespace, name, stale=stale)

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        version: int | None = None,
        stale: bool = False,
    ) -> Deferred[Listing]:
        """As :meth:`IStorage.list`."""
        return self._of(resource).list(resource, namespace, version=version, stale=stale)

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """As :meth:`IStorage.create`."""
        return self._of(resource).create(resource, obj)

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """As :meth:`IStorage.update`."""
        return self._of(resource).update(resource, obj)

    def delete(self, resource: Resource, obj: Object) -> Deferred[Object]:
        """As :meth:`IStorage.delete`."""
        return self._of(resource).delete(resource, obj)

    def watch(
        self,
        resource: Resource,
        since: int | None,
        on_event: Callable[[Event], None],
        namespace: str = "",
        on_lost: Callable[[], None] | None = None,
    ) -> IWatch:
        """As :meth:`IStorage.watch`."""
        return self._of(resource).watch(resource, since, on_event, namespace, on_lost)
