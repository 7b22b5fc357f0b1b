"""
A fake kcp server for providers of spaces, on a real socket with TLS: logical clusters in memory,
their Workspaces, ServiceAccounts and tokens, with authorization and delays.

Responses follow kcp's sources (v0.32.3: ``pkg/reconciler/tenancy/workspace``,
``pkg/authorization/workspace_content_authorizer.go``, ``pkg/admission/workspacetypeexists``,
``pkg/server/options/authentication.go``).  Workspaces change only at requests: each request
advances them by a step.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from twisted.internet import reactor as _reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.ssl import PrivateCertificate
from twisted.python.failure import Failure
from twisted.web import resource, server
from twisted.web.http import Request

from tests.ports import ReservedPorts
from tests.tls.support import CLIENT_GO, alternatives, authority, named
from twisted_exec.api.kinds import (
    CLUSTERROLEBINDINGS,
    NAMESPACES,
    SELFSUBJECTREVIEWS,
    SERVICEACCOUNTS,
    TOKENREVIEWS,
)
from twisted_exec.api.kinds.kind import Kind
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, Forbidden, NotFound, Unauthorized
from twisted_exec.api.times import timestamp
from twisted_exec.kube.interfaces import Object
from twisted_exec.testing.cluster import MemoryCluster

reactor: Any = _reactor
SERVING = authority("kcp")
_ISSUED = named(alternatives(*CLIENT_GO, "localhost"), ca="kcp", common_name="127.0.0.1@1795000000")
CERTIFICATE = PrivateCertificate.loadPEM(_ISSUED.key_pem + _ISSUED.certificate_pem)
TENANCY = "tenancy.kcp.io"
WORKSPACES = Kind(
    resource=Resource(TENANCY, "v1alpha1", "workspaces", "Workspace", namespaced=False),
    singular="workspace",
    has_status=True,
)
KINDS = (NAMESPACES, SERVICEACCOUNTS, CLUSTERROLEBINDINGS, WORKSPACES)
REVIEWS = (SELFSUBJECTREVIEWS, TOKENREVIEWS)
FINALIZER = "core.kcp.io/logicalcluster"
CONTENT = {"type": "WorkspaceContentDeleted", "status": "False", "reason": "SomeResourcesRemain"}
REMAINS = "Some resources are remaining: namespaces. has 1 resource instances"
NO_TYPES = (
    f'Internal error occurred: workspacetypes.{TENANCY} "{{}}" not found',
    "workspace type cannot be resolved",
)
"""kcp's messages for an unknown type, at creation and at validation of a workspace."""
TYPES = ("root:universal", "root:organization")


@dataclass
class LogicalCluster:
    """
    The content of a workspace.

    :param id: the unique name of the logical cluster.
    :ivar no_accounts: creating objects and requesting tokens fails for now.
    """

    id: str
    path: str
    has: MemoryCluster = field(default_factory=lambda: MemoryCluster(KINDS))
    no_accounts: bool = False


class _Site(server.Site):
    """A site that can abort all its connections."""

    noisy = False

    def __init__(self, root: resource.Resource) -> None:
        super().__init__(root)
        self._open: set[Any] = set()
        self._ended: Deferred[None] | None = None

    def buildProtocol(self, addr: Any) -> Any:
        channel = super().buildProtocol(addr)
        assert channel is not None
        self._open.add(channel)
        lost = channel.connectionLost

        def connection_lost(reason: Failure) -> None:
            lost(reason)
            self._open.discard(channel)
            if not self._open and self._ended is not None:
                ended, self._ended = self._ended, None
                ended.callback(None)

        channel.connectionLost = connection_lost  # type: ignore[method-assign]
        return channel

    def abort_all(self) -> Deferred[None]:
        """Abort all connections; the Deferred fires when they have ended."""
        self._ended = ended = Deferred()
        for channel in list(self._open):
            channel._channel.transport.abortConnection()
        if not self._open:
            ended.callback(None)
        return ended


class PlayedKcp(resource.Resource):
    """
    :param extra: paths of workspaces that exist from the start.
    :ivar held: new workspaces do not become ready, and deleted workspaces stay.
    :ivar lingers: requests that a deletion takes, as kcp deletes what a workspace holds first.
        Meanwhile the Workspace keeps its phase and its finalizer, and its logical cluster answers.
    :ivar no_type: one of :data:`NO_TYPES`.
    :ivar stalled: no request is answered.
    :ivar nonsense: every response has meaningless content.
    :ivar forbidden: every request is forbidden.
    """

    isLeaf = True

    def __init__(self, *extra: str) -> None:
        super().__init__()
        self.clusters: dict[str, LogicalCluster] = {}
        self.held = self.stalled = self.nonsense = self.forbidden = False
        self.lingers, self.no_type = 0, NO_TYPES[0]
        self._lingered: Counter[str] = Counter()
        self.asked: list[str] = []
        """Method and path of every request."""
        self._ids = itertools.count(1)
        self.accounts: dict[str, tuple[str, str, str, float]] = {}
        self._port: Any = None
        self._number, self._reserved = 0, ReservedPorts()
        self._add("root")
        self.renew()
        for path in extra:
            parent, _colon, name = path.rpartition(":")
            self.put(parent, name)

    # The server.

    def listen(self) -> None:
        """Listen, after the first time at the same port."""
        self._number = self._number or self._reserved.add()
        self._site = _Site(self)
        self._port = reactor.listenSSL(
            self._number, self._site, CERTIFICATE.options(), interface="127.0.0.1"
        )

    async def leave(self) -> None:
        """Stop listening and abort all connections."""
        port, self._port = self._port, None
        if port is not None:
            await port.stopListening()
            await self._site.abort_all()

    async def stop(self) -> None:
        """Leave for good."""
        await self.leave()
        self._reserved.release()

    @property
    def url(self) -> str:
        """Return the external URL."""
        return f"https://127.0.0.1:{self._number}"

    @property
    def inside(self) -> str:
        """Return the in-cluster URL."""
        return f"https://localhost:{self._number}"

    def restart(self) -> None:
        """Replace kcp-admin's token; tokens of accounts stay valid."""
        self.renew()

    def renew(self) -> None:
        """Replace kcp-admin's token."""
        self.admin = f"admin-{uuid.uuid4()}"

    def revoke(self) -> None:
        """Invalidate kcp-admin's token."""
        self.admin = ""

    # Workspaces.

    def at(self, path: str) -> LogicalCluster | None:
        """Return the logical cluster with this path or id."""
        return next((c for c in self.clusters.values() if path in (c.path, c.id)), None)

    def put(self, parent: str, name: str) -> Object:
        """Create a workspace of another user, ready at once."""
        cluster = self.at(parent)
        assert cluster is not None, parent
        made = self._make(cluster, {"metadata": {"name": name}, "spec": {}})
        held, self.held = self.held, False
        while made["status"]["phase"] != "Ready":
            made = self._step(cluster, made)
        self.held = held
        return made

    def drop(self, parent: str, name: str) -> None:
        """Delete a workspace and its content, as another user."""
        cluster = self.at(parent)
        if cluster is not None:
            key = (WORKSPACES.resource, "", name)
            self._end(cluster, cluster.has.objects[key])

    def set(self, parent: str, name: str, phase: str, **status: Any) -> None:
        """Set the phase of a workspace."""
        cluster = self.at(parent)
        assert cluster is not None
        found = cluster.has.objects[(WORKSPACES.resource, "", name)]
        self._store(cluster, {**found, "status": {"phase": phase, **status}})

    def paths(self) -> list[str]:
        """Return the paths of all workspaces except root."""
        found = (
            f"{cluster.path}:{name}"
            for cluster in self.clusters.values()
            for resource_, _namespace, name in cluster.has.objects
            if resource_ == WORKSPACES.resource
        )
        return sorted(found)

    def go_on(self) -> None:
        """Advance every workspace by a step."""
        for cluster in list(self.clusters.values()):
            for key, found in list(cluster.has.objects.items()):
                if key[0] == WORKSPACES.resource:
                    self._step(cluster, found)

    def _add(self, path: str) -> LogicalCluster:
        made = LogicalCluster("root" if path == "root" else f"{next(self._ids):x}kvk3gvg", path)
        self.clusters[made.id] = made
        return made

    def _make(self, cluster: LogicalCluster, obj: Object) -> Object:
        kind = obj.setdefault("spec", {}).setdefault("type", {"name": "universal", "path": "root"})
        if f"{kind.get('path')}:{kind.get('name')}" not in TYPES:
            told = self.no_type.format(f"{kind.get('path')}:{kind.get('name')}")
            name = obj["metadata"]["name"]
            raise Forbidden(f'workspaces.{TENANCY} "{name}" is forbidden: {told}')
        obj["metadata"].setdefault("annotations", {})["experimental.tenancy.kcp.io/owner"] = "{}"
        obj["metadata"]["finalizers"] = [FINALIZER]
        made: Object = _now(cluster.has.client().create(WORKSPACES.resource, obj))
        return self._store(cluster, {**made, "status": {"phase": "Scheduling"}})

    def _store(self, cluster: LogicalCluster, obj: Object) -> Object:
        key = (WORKSPACES.resource, "", obj["metadata"]["name"])
        return cluster.has.put(key, json.loads(json.dumps(obj)))

    def _step(self, cluster: LogicalCluster, found: Object) -> Object:
        if self.held:
            return found
        phase = found["status"]["phase"]
        if found["metadata"].get("deletionTimestamp"):
            return self._delete(cluster, found)
        if phase == "Scheduling":
            path = f"{cluster.path}:{found['metadata']['name']}"
            where = {"cluster": self._add(path).id, "URL": f"{self.url}/clusters/{path}"}
            now = {"phase": "Initializing", "initializers": ["root:universal"]}
            return self._store(
                cluster, {**found, "spec": {**found["spec"], **where}, "status": now}
            )
        if phase == "Initializing":
            return self._store(cluster, {**found, "status": {"phase": "Ready"}})
        return found

    def _delete(self, cluster: LogicalCluster, found: Object) -> Object:
        status, uid = found["status"], found["metadata"]["uid"]
        if self._lingered[uid] < self.lingers:
            self._lingered[uid] += 1
            if self._lingered[uid] > 1 or "cluster" not in found["spec"]:
                return found
            remains = {**CONTENT, "message": REMAINS}
            return self._store(cluster, {**found, "status": {**status, "conditions": [remains]}})
        if self.lingers or status["phase"] == "Deleting":
            self._end(cluster, found)
            return found
        return self._store(cluster, {**found, "status": {"phase": "Deleting"}})

    def _end(self, cluster: LogicalCluster, found: Object) -> None:
        path = f"{cluster.path}:{found['metadata']['name']}"
        for each in list(self.clusters.values()):
            if each.path == path or each.path.startswith(f"{path}:"):
                del self.clusters[each.id]
        cluster.has.remove((WORKSPACES.resource, "", found["metadata"]["name"]))

    # Requests.

    def render(self, request: Request) -> bytes | int:
        uri = request.uri.decode("ascii")
        self.asked.append(f"{request.method.decode()} {uri.partition('?')[0]}")
        if self.stalled:
            return server.NOT_DONE_YET
        if self.nonsense:
            return self._tell(request, {"nonsense": True})
        try:
            told = self._answer(request, unquote(uri.partition("?")[0]))
        except APIError as refused:
            return self._tell(request, refused.to_status(), refused.code)
        return told if isinstance(told, int) else self._tell(request, told)

    def _answer(self, request: Request, path: str) -> Object | int:
        told = (request.getHeader("authorization") or "").removeprefix("Bearer ")
        account = self._account(told)
        if account is None and (not self.admin or told != self.admin):
            raise Unauthorized()
        self.go_on()
        _empty, clusters, where, *rest = path.split("/")
        cluster = self.at(where) if clusters == "clusters" else None
        user = f"system:serviceaccount:{account[1]}" if account else "kcp-admin"
        if self.forbidden or cluster is None or not self._may(account, cluster):
            raise Forbidden(f'forbidden: User "{user}" cannot {path}: access denied')
        return self._done(request, cluster, _Target.of(rest), user)

    def _account(self, token: str) -> tuple[str, str, str, float] | None:
        found = self.accounts.get(token)
        if found is None or found[3] <= reactor.seconds():
            return None
        cluster = self.clusters.get(found[0])
        namespace, _colon, name = found[1].partition(":")
        there = cluster and cluster.has.objects.get((SERVICEACCOUNTS.resource, namespace, name))
        return found if there and there["metadata"]["uid"] == found[2] else None

    def _may(self, account: tuple[str, str, str, float] | None, cluster: LogicalCluster) -> bool:
        if account is None:
            return True
        namespace, _colon, name = account[1].partition(":")
        wanted = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        return cluster.id == account[0] and any(
            wanted in binding["subjects"] and binding["roleRef"]["name"] == "cluster-admin"
            for key, binding in cluster.has.objects.items()
            if key[0] == CLUSTERROLEBINDINGS.resource
        )

    def _done(
        self, request: Request, cluster: LogicalCluster, target: _Target, user: str
    ) -> Object | int:
        client, kind = cluster.has.client(), target.resource
        body = json.loads(request.content.read() or b"{}")  # type: ignore[union-attr]
        if request.method == b"POST":
            return self._created(cluster, target, body, user)
        if request.method == b"DELETE":
            uid = (body.get("preconditions") or {}).get("uid", "")
            gone: Object = _now(client.delete(kind, target.name, target.namespace, uid=uid))
            return gone
        if target.name:
            found: Object = _now(client.get(kind, target.name, target.namespace))
            return found
        if b"watch" in request.args:  # type: ignore[operator]
            return self._watch(request, cluster, target)
        listed: Object = _now(client.list(kind, target.namespace))
        return listed

    def _created(self, cluster: LogicalCluster, target: _Target, body: Object, user: str) -> Object:
        if target.resource == SELFSUBJECTREVIEWS.resource:
            return {**body, "status": {"userInfo": {"username": user}}}
        if target.resource == TOKENREVIEWS.resource:
            known = self._account(body["spec"]["token"])
            fine = known is not None and known[0] == cluster.id
            return {**body, "status": {"authenticated": True} if fine else {"error": "no"}}
        if cluster.no_accounts:
            raise Forbidden("forbidden: nothing can be made here just now")
        if target.subresource == "token":
            return self._token(cluster, target, body)
        if target.resource == WORKSPACES.resource:
            return self._make(cluster, body)
        made: Object = _now(cluster.has.client().create(target.resource, body, target.namespace))
        return made

    def _token(self, cluster: LogicalCluster, target: _Target, body: Object) -> Object:
        found: Object = _now(
            cluster.has.client().get(target.resource, target.name, target.namespace)
        )
        token, until = f"account-{uuid.uuid4()}", reactor.seconds()
        until += body["spec"]["expirationSeconds"]
        whose = f"{target.namespace}:{target.name}"
        self.accounts[token] = (cluster.id, whose, found["metadata"]["uid"], until)
        return {**body, "status": {"token": token, "expirationTimestamp": timestamp(until)}}

    def _watch(self, request: Request, cluster: LogicalCluster, target: _Target) -> int:
        def tell(kind: str, obj: Object) -> None:
            request.write(json.dumps({"type": kind, "object": obj}).encode() + b"\n")

        version = request.args[b"resourceVersion"][0].decode()  # type: ignore[index]
        request.setHeader(b"Content-Type", b"application/json")
        request.write(b"")
        watching: Deferred[None] = cluster.has.client().watch(
            target.resource, tell, resource_version=version
        )
        watching.addErrback(lambda failure: failure.trap(CancelledError, APIError) and None)
        request.notifyFinish().addErrback(lambda _left: watching.cancel())
        return server.NOT_DONE_YET

    def _tell(self, request: Request, document: Object, code: int = 200) -> bytes:
        request.setResponseCode(code)
        request.setHeader(b"Content-Type", b"application/json")
        return json.dumps(document).encode()


@dataclass(frozen=True)
class _Target:
    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @classmethod
    def of(cls, parts: list[str]) -> _Target:
        """:raises NotFound: the resource is not served."""
        rest = parts[2:] if parts[:1] == ["api"] else parts[3:]
        group = "" if parts[:1] == ["api"] else parts[1]
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource, *_more = [*rest, "", "", ""]
        for kind in (*KINDS, *REVIEWS):
            if (kind.resource.group, kind.resource.plural) == (group, plural):
                return cls(kind.resource, namespace, name, subresource)
        raise NotFound(plural, "", group, "the server could not find the requested resource")


def _now(asking: Deferred[Any]) -> Any:
    """Return the answer of a cluster in memory, which answers at once."""
    told: list[Any] = []
    asking.addBoth(told.append)
    if isinstance(told[0], Failure):
        told[0].raiseException()
    return told[0]
