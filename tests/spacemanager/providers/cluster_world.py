"""
Worlds whose provider is a cluster in memory; requests to it can fail, stall or be refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail
from zope.interface import implementer

from tests.contracts.space_world import SpaceWorld
from twisted_exec.api.kinds import NAMESPACES, SECRETS, Kind
from twisted_exec.api.status import APIError, BadGateway, Forbidden, Unauthorized
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.testing.cluster import MemoryCluster

LOOKS = ("get", "list", "watch")


class Way:
    """
    The path of requests from adaptors to a cluster.

    :ivar problem: the error of every request.
    :ivar stalled: no request is answered.
    :ivar nonsense: every request is answered by something that is no API server.
    :ivar lived: how many more requests have an effect; ``None`` for all.
    :ivar looks_count: whether reads count as steps too; as time passes, that gives endless steps.
    :ivar requests: the number of requests so far.
    :ivar valid: the number of the only valid credentials.
    """

    def __init__(self) -> None:
        self.problem: APIError | None = None
        self.stalled = self.nonsense = False
        self.lived: int | None = None
        self.died = False
        self.looks_count = True
        self.requests = 0
        self.valid: int | None = 1
        self.waiting: set[Deferred[Any]] = set()

    def pass_on(self, verb: str, number: int, act: Callable[[], Deferred[Any]]) -> Deferred[Any]:
        self.requests += 1
        if self.lived is not None and (self.looks_count or verb not in LOOKS):
            self.lived -= 1
            if self.lived < 0:
                self.died = True
                return self._never()
        if self.stalled:
            return self._never()
        if self.problem is not None:
            return fail(self.problem)
        if number != self.valid:
            return fail(Unauthorized())
        if self.nonsense:
            return self._nonsense(verb)
        return act()

    def _never(self) -> Deferred[Any]:
        never: Deferred[Any] = Deferred(self.waiting.discard)
        self.waiting.add(never)
        return never

    def _nonsense(self, verb: str) -> Deferred[Any]:
        """As :class:`KubeClient` tells it: one object is not looked at, lists are."""
        told: Deferred[Any] = Deferred()
        if verb == "get":
            told.callback({"hello": "world"})
        else:
            told.errback(BadGateway("the API server's answer is not a list of objects"))
        return told


@implementer(IKubeClient)
class WayClient:
    """A client that goes by a :class:`Way`, with the credentials of a number."""

    def __init__(self, client: IKubeClient, way: Way) -> None:
        assert way.valid is not None
        self._client, self._way, self._number = client, way, way.valid

    def __getattr__(self, verb: str) -> Any:
        """Return a verb of the client that passes through the :class:`Way`."""
        act = getattr(self._client, verb)
        return lambda *args, **more: self._way.pass_on(
            verb, self._number, lambda: act(*args, **more)
        )


class ClusterWorld(SpaceWorld):
    """A provider whose spaces are objects of a cluster in memory."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.cluster = MemoryCluster((NAMESPACES, SECRETS, *kinds))
        self.way = Way()
        self.own_watches = 0

    def client(self) -> Any:
        """Return a client for another adaptor."""
        number = self.way.valid
        if number is None:  # revoked: new clients get invalid credentials
            self.way.valid = 0
            client = WayClient(self.cluster.client(), self.way)
            self.way.valid = None
            return client
        return WayClient(self.cluster.client(), self.way)

    def put(self, kind: Kind, name: str, obj: Object, namespace: str = "") -> Object:
        """Create or replace an object, as the owner of the cluster would."""
        key = (kind.resource, namespace, name)
        before = self.cluster.objects.get(key)
        new = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind, **obj}
        given = dict(new.get("metadata") or {})
        kept = before["metadata"] if before else {"uid": f"uid-{name}-{self.cluster.version}"}
        new["metadata"] = {**kept, **given, "name": name}
        if namespace:
            new["metadata"]["namespace"] = namespace
        return self.cluster.put(key, new)

    def find(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        """Return the stored object."""
        return self.cluster.objects.get((kind.resource, namespace, name))

    def drop(self, kind: Kind, name: str, namespace: str = "") -> None:
        """Delete an object if it exists."""
        if self.find(kind, name, namespace) is not None:
            self.cluster.remove((kind.resource, namespace, name))

    def all(self, kind: Kind) -> Sequence[Object]:
        """Return all objects of a kind."""
        return [obj for key, obj in self.cluster.objects.items() if key[0] == kind.resource]

    async def break_down(self) -> None:
        self.way.problem = BadGateway("the API server cannot be reached: start it again")
        self.cluster.end_watches(self.way.problem)

    async def come_back(self) -> None:
        self.way.problem, self.way.stalled, self.way.nonsense = None, False, False

    async def stall(self) -> None:
        self.way.stalled = True

    async def talk_nonsense(self) -> None:
        self.way.nonsense = True

    async def revoke(self) -> None:
        self.way.valid = None

    async def forbid(self) -> None:
        self.way.problem = Forbidden('User "us" cannot do that')

    async def renew(self) -> None:
        self.way.valid = self.way.requests + 2

    def calls(self) -> int:
        return self.way.requests

    def left(self) -> Sequence[str]:
        watches = self.cluster.watches - self.own_watches
        return [*["a watch"] * watches, *["a request"] * len(self.way.waiting)]

    async def die_after(self, steps: int) -> None:
        self.way.lived, self.way.died = steps, False

    def died(self) -> bool:
        return self.way.died

    async def live(self) -> None:
        self.way.lived, self.way.died = None, False


def kubeconfig(server: str, token: str, **user: Any) -> dict[str, Any]:
    """Return a kubeconfig as a dict."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "c", "cluster": {"server": server, "certificate-authority-data": CA}}
        ],
        "users": [{"name": "u", "user": {"token": token, **user}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


CA = "LS0tLS1CRUdJTg=="
"""Valid base64 but not a certificate, as no test connects."""


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a dict, else an empty mapping."""
    return value if isinstance(value, dict) else {}
