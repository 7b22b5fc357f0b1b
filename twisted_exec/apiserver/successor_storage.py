"""
The store of a replaced API server: it reads and writes through its successor's API.

The successor serves the stored kinds as the Kubernetes API does, but without admission, and
objects exactly as the replaced server has made them.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from twisted.application.service import Service
from twisted.internet import defer
from twisted.internet.defer import Deferred, DeferredList
from zope.interface import implementer

from twisted_exec.api.encoded import Encoded, encoded
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    APIError,
    Expired,
    Forbidden,
    InsufficientStorage,
    ServiceUnavailable,
)
from twisted_exec.apiserver.serving.fairness import FairQueue, Work
from twisted_exec.apiserver.serving.query import WriteOptions
from twisted_exec.apiserver.serving.request_limits import RequestLimits
from twisted_exec.apiserver.serving.requests import APIRequest
from twisted_exec.apiserver.serving.rest import REST
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.apiserver.serving.verbs import OURSELVES, Verbs
from twisted_exec.apiserver.serving.watches.watches import Watches
from twisted_exec.auth.credentials import NO_HEADERS
from twisted_exec.auth.dispatcher import GatedDispatcher, GatedRoutes
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.interfaces import (
    Decision,
    IAuthenticator,
    IAuthorizer,
    PresentedCredentials,
    User,
)
from twisted_exec.auth.rules import Attributes
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.program.handover.connections import PassedConnections, SuccessorEndpoint
from twisted_exec.program.tasks import settled
from twisted_exec.storage import history
from twisted_exec.storage.delegating import DelegatingStorage
from twisted_exec.storage.history import History
from twisted_exec.storage.interfaces import (
    ADDED,
    DELETED,
    MODIFIED,
    Event,
    IStorage,
    IWatch,
    Listing,
)
from twisted_exec.storage.replaceable import IReplaceableStorage
from twisted_exec.streaming.http.site import Site
from twisted_exec.streaming.sessions.registry import Sessions

_LOST = "the process that took this one's place has ended"
_LISTS_AGAIN = "this process was replaced: read again from its successor"

_PAGE_BYTES = 1 << 30
"""More than a page of the largest objects has: the server is this very program."""

_ERRORS: Mapping[str, type[APIError]] = {
    each.reason: each for each in (Forbidden, InsufficientStorage, ServiceUnavailable)
}
"""Errors that callers catch by class, besides those that the client converts."""


def kept_kinds(kinds: Iterable[Kind]) -> Sequence[Kind]:
    """Return the kinds whose objects a server's store has, each as anything may write it."""
    return [
        replace(kind, server_made="", read_only=False)
        for kind in kinds
        if kind.stored and not kind.kept_as
    ]


# The successor's side.


class _StoreVerbs(Verbs):
    """The verbs of a replaced server, which has made and admitted the objects itself."""

    async def create(
        self,
        user: User,
        target: RequestTarget,
        body: Object,
        options: WriteOptions,
        work: Work | None = None,
    ) -> Object:
        return await settled(self._storage.create(target.kind.resource, body))

    async def update(
        self,
        user: User,
        target: RequestTarget,
        body: Object,
        options: WriteOptions,
        work: Work | None = None,
    ) -> Object:
        return await settled(self._storage.update(target.kind.resource, body))

    async def delete(
        self, user: User, target: RequestTarget, options: WriteOptions, preconditions: Object
    ) -> tuple[Object, bool]:
        metadata = {"namespace": target.namespace, "name": target.name, **preconditions}
        gone = await settled(self._storage.delete(target.kind.resource, {"metadata": metadata}))
        return gone, False  # so that the answer is the object, and no Status


@implementer(IAuthenticator, IAuthorizer)
class _Trust:
    """The connection itself is the credential: only the replaced process can have it."""

    credential_headers = NO_HEADERS

    def authenticate(self, credentials: PresentedCredentials) -> Deferred[User | None]:
        return defer.succeed(OURSELVES)

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        return defer.succeed(Decision(True))


class StoreSite:
    """
    Serves a store to the processes that this process has replaced.

    :param kinds: those of :func:`kept_kinds`.
    :param now: seconds since the epoch.
    """

    def __init__(
        self,
        storage: IStorage,
        kinds: Iterable[Kind],
        sessions: Sessions,
        reactor: Any,
        now: Callable[[], float],
    ) -> None:
        self._reactor = reactor
        gate, routes = Gate(_Trust(), _Trust()), GatedRoutes()
        self._watches = Watches(storage, reactor, now)
        verbs = _StoreVerbs(storage, [], now)
        rest = REST(verbs, self._watches, gate, RequestLimits(), now, FairQueue())
        for kind in kinds:
            rest.add_to(routes, kind)
        self._site = Site(GatedDispatcher(gate, routes, sessions), reactor)
        self._site.requestFactory = APIRequest
        self._site.wind_down()  # a connection for each request: none is closed while one arrives
        self._ends: list[PassedConnections] = []

    def inherit(self, descriptors: Iterable[int]) -> None:
        """Take the ends of the predecessor's connections, and of those before it."""
        for each in descriptors:
            end = socket.socket(fileno=each)
            self._ends.append(PassedConnections(self._reactor, end, self._site))

    def start(self) -> None:
        """Serve."""
        self._watches.resume()
        for each in self._ends:
            each.start()

    def pause(self) -> None:
        """Leave further connections to :meth:`start`, or to a successor."""
        for each in self._ends:
            each.pause()
        self._watches.end_all()

    def requests(self) -> int:
        """Return how many requests are being answered."""
        return self._site.requests()

    def descriptors(self) -> Sequence[int]:
        """Return the ends, for a successor."""
        return [number for each in self._ends if (number := each.fileno()) >= 0]

    def close(self) -> None:
        """Close the ends: the processes there have no successor, unless another has copies."""
        for each in self._ends:
            each.close()
        self._ends.clear()


# The replaced server's side.


@implementer(IStorage)
class SuccessorStorage(Service):
    """
    The objects of a successor's store.

    :param copy: the objects of the store that the successor has opened; kept current by watches.
    """

    exclusive = False

    def __init__(
        self,
        client: KubeClient,
        copy: History,
        kinds: Iterable[Kind],
        clock: Any,
        location: str,
    ) -> None:
        self._client, self._copy, self.location = client, copy, location
        version = copy.version
        tables = {history.table_of(kind.resource): kind.resource for kind in kinds}
        self._reflectors = []
        for table, resource in tables.items():
            changed = partial(self._changed, table)
            reflector = Reflector(client, resource, clock, on_change=changed, trim=Encoded)
            reflector.begin_with(copy.list(resource, "", None).items, str(version))
            self._reflectors.append(reflector)

    def startService(self) -> None:
        super().startService()
        for each in self._reflectors:
            each.start()

    def stopService(self) -> Deferred[Any]:
        super().stopService()
        return DeferredList([each.stop() for each in self._reflectors])

    def _changed(self, table: str, before: Object | None, after: Object | None) -> None:
        kind = ADDED if before is None else MODIFIED if after is not None else DELETED
        obj = after if after is not None else before
        assert obj is not None
        # Watches of several resources have no common order.
        version = max(self._copy.version, int(obj["metadata"]["resourceVersion"]))
        self._copy.apply(table, Event(kind, obj, before, version))

    def get(
        self, resource: Resource, namespace: str, name: str, *, stale: bool = False
    ) -> Deferred[Object]:
        if stale:
            return defer.execute(self._copy.get, resource, namespace, name)
        return _answer(self._client.get(resource, name, namespace)).addCallback(encoded)

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        version: int | None = None,
        stale: bool = False,
    ) -> Deferred[Listing]:
        """As :meth:`IStorage.list`; past versions are the successor's."""
        if version is not None:
            return defer.fail(Expired(_LISTS_AGAIN))
        if stale:
            return defer.execute(self._copy.list, resource, namespace, None)
        listing = _answer(self._client.list(resource, namespace, trim=encoded))
        return listing.addCallback(
            lambda whole: Listing(whole["items"], int(whole["metadata"]["resourceVersion"]))
        )

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
            raise Expired(_LISTS_AGAIN)
        return self._copy.watch(resource, None, on_event, namespace, on_lost)

    def version(self) -> int:
        return self._copy.version

    def when_ready(self) -> Deferred[None]:
        return defer.succeed(None)

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        namespace = obj["metadata"].get("namespace", "")
        return _answer(self._client.create(resource, obj, namespace)).addCallback(encoded)

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        namespace = obj["metadata"].get("namespace", "")
        return _answer(self._client.update(resource, obj, namespace)).addCallback(encoded)

    def delete(self, resource: Resource, obj: Object) -> Deferred[Object]:
        metadata = obj["metadata"]
        gone = self._client.delete(
            resource,
            metadata["name"],
            metadata.get("namespace", ""),
            uid=metadata["uid"],
            version=metadata["resourceVersion"],
        )
        return _answer(gone).addCallback(encoded)

    def current(self) -> Deferred[int]:
        """Fail: only the successor knows."""
        return defer.fail(ServiceUnavailable(_LISTS_AGAIN, retry_after_seconds=1))

    def probe(self) -> Deferred[object]:
        for each in self._reflectors:
            if each.problem:
                return defer.fail(ServiceUnavailable(each.problem))
        return defer.succeed(None)


def _answer(response: Deferred[Object]) -> Deferred[Object]:
    def failed(failure: Any) -> Any:
        failure.trap(APIError)
        kind = _ERRORS.get(failure.value.reason)
        return failure if kind is None else failure.value.as_class(kind)

    def raised(result: Any) -> Any:
        if isinstance(result, APIError):
            raise result
        return result

    return response.addErrback(failed).addCallback(raised)


@implementer(IStorage)
class HandedOverStorage(DelegatingStorage):
    """
    An exclusive store until its process is replaced; then that of the successor.
    """

    def __init__(self, storage: IReplaceableStorage, reactor: Any) -> None:
        super().__init__(storage)
        self._own, self._reactor = storage, reactor
        self._pair: tuple[socket.socket, socket.socket] | None = None
        self._endpoint: SuccessorEndpoint | None = None

    def startService(self) -> None:
        Service.startService(self)
        self._storage.startService()

    def stopService(self) -> Deferred[Any]:
        Service.stopService(self)
        self._close_pair()
        if self._endpoint is not None:
            self._endpoint.close()
        stores = {id(each): each for each in (self._storage, self._own)}
        return DeferredList([defer.maybeDeferred(each.stopService) for each in stores.values()])

    async def freeze(self) -> int:
        """
        Leave the store to another process; writes fail with 503.

        :return: the descriptor for the successor, which :meth:`StoreSite.inherit` takes.
        """
        await self._own.freeze()
        self._pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return self._pair[1].fileno()

    async def thaw(self) -> None:
        """Use the store again."""
        self._close_pair()
        await self._own.thaw()

    def retire(self, kinds: Iterable[Kind]) -> Deferred[str]:
        """
        Go on through the successor.

        :param kinds: those of :func:`kept_kinds`.
        :return: fires with the reason when the successor is lost.
        """
        assert self._pair is not None, "it is frozen"
        ours, theirs = self._pair
        self._pair = None
        theirs.close()
        endpoint = self._endpoint = SuccessorEndpoint(self._reactor, ours)
        endpoint.start()
        config = ClientConfig("http://successor", source="the hand-over")
        client = KubeClient(config, self._reactor, server=endpoint, body_bytes=_PAGE_BYTES)
        arguments = (client, self._own.history, kinds, self._reactor, self.location)
        storage = SuccessorStorage(*arguments)
        storage.startService()
        self._storage = storage
        return endpoint.lost.addCallback(lambda _: _LOST)

    def _close_pair(self) -> None:
        pair, self._pair = self._pair, None
        for each in pair or ():
            each.close()
