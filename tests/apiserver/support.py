"""
An API server in memory: real parts, no sockets, no disk but for a file of tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.audits import AuditList
from twisted_exec.api.dialects import DEFAULT, Dialect
from twisted_exec.api.encoded import json_of
from twisted_exec.api.kinds import Kind, Object, served
from twisted_exec.api.resource import Resource
from twisted_exec.api.users import EXPOSED
from twisted_exec.apiserver.assembly import ServerContext, ServerParts, assemble
from twisted_exec.apiserver.consoles.poollets import Backend
from twisted_exec.apiserver.controllers.system_objects import create_system_objects
from twisted_exec.apiserver.identity.credentials import Identities, ServerAuthenticators
from twisted_exec.apiserver.serving.request_limits import RequestLimits
from twisted_exec.apiserver.serving.requests import APIRequest
from twisted_exec.apiserver.serving_settings import ServingSettings
from twisted_exec.apiserver.standalone import StandaloneControlPlane
from twisted_exec.auth.default_roles import bootstrap_objects
from twisted_exec.program.metrics import new_registry
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.testing.network import MemoryClient, MemoryServer, Response
from twisted_exec.tls.client import ClientCredentials

EPOCH = 1_700_000_000
REMEMBERED = 200
"""Changes that the store remembers."""
POOL_GROUP = "compute.ironcore.dev:system:machinepools"
TOKENS = f"""\
admin,admin,1,system:masters
jane,jane,2,dev
robot,system:serviceaccount:default:robot,7,system:serviceaccounts
bob,bob,3
eve,eve,16
pool-a,compute.ironcore.dev:system:machinepool:pool-a,4,{POOL_GROUP}
pool-b,compute.ironcore.dev:system:machinepool:pool-b,8,{POOL_GROUP}
fleet-a,core.spheric.cloud:system:fleet:fleet-a,7,core.spheric.cloud:system:fleets
onmetal-a,compute.api.onmetal.de:system:machinepool:pool-a,9,compute.api.onmetal.de:system:machinepools
no-pool,someone,5,{POOL_GROUP}
bootstrap,bootstrap,7,system:bootstrappers:compute-ironcore-dev:machinepools
node-a,system:node:node-a,11,system:nodes
node-b,system:node:node-b,12,system:nodes
no-node,someone,13,system:nodes
bootstrap-node,bootstrap-node,14,system:bootstrappers:nodes
leaf,leaf,15,{EXPOSED}
no-group,compute.ironcore.dev:system:machinepool:pool-a,6
"""
"""Each token is the short name by which tests call its user."""

PODS = "/api/v1/namespaces/default/pods"
MACHINES = "/apis/compute.ironcore.dev/v1alpha1/namespaces/default/machines"
ALL_MACHINES = "/apis/compute.ironcore.dev/v1alpha1/machines"
POOLS = "/apis/compute.ironcore.dev/v1alpha1/machinepools"
CLASSES = "/apis/compute.ironcore.dev/v1alpha1/machineclasses"
NAMESPACES = "/api/v1/namespaces"
EVENTS = "/api/v1/namespaces/default/events"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
MERGE = "application/merge-patch+json"


_bootstrapped: dict[tuple[Any, ...], list[tuple[Resource, Object]]] = {}


def machine(name: str, pool: str = "pool-a", **spec: Any) -> Object:
    """A machine as a user writes it; empty ``pool`` binds it to none."""
    bound = {"machinePoolRef": {"name": pool}} if pool else {}
    return {
        "apiVersion": "compute.ironcore.dev/v1alpha1",
        "kind": "Machine",
        "metadata": {"name": name},
        "spec": {"machineClassRef": {"name": "small"}, **bound, **spec},
    }


def event(name: str, **more: Any) -> Object:
    """An Event of a machine ``vm`` of the namespace ``default``."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": {
            "apiVersion": "compute.ironcore.dev/v1alpha1",
            "kind": "Machine",
            "namespace": "default",
            "name": "vm",
            "uid": "u-1",
        },
        "type": "Normal",
        "reason": "Started",
        "message": "it runs",
        **more,
    }


class FreezingStorage(MemoryStorage):
    """
    A store that others write to as well, so that fresh reads ask it.

    :ivar is_frozen: it answers neither reads nor writes; its cache remains.
    """

    exclusive = False
    is_frozen = False

    def current(self) -> Deferred[int]:
        return Deferred() if self.is_frozen else super().current()

    def create(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return Deferred() if self.is_frozen else super().create(resource, obj)

    def update(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return Deferred() if self.is_frozen else super().update(resource, obj)

    def delete(self, resource: Resource, obj: Object) -> Deferred[Object]:
        return Deferred() if self.is_frozen else super().delete(resource, obj)


class APITestCase(SynchronousTestCase):
    """
    An API server, and requests of named users.

    :cvar limits: of requests at once.
    :cvar dialects: the dialects that the server serves.
    :cvar pods_view: whether machines are shown as Pods as well.
    :cvar node_pods: whether Pods belong to Nodes.
    :ivar identities: users besides those with :data:`TOKENS`.
    :cvar control_plane: standalone or aggregated.
    """

    control_plane: type[StandaloneControlPlane] = StandaloneControlPlane
    limits: RequestLimits | None = None
    dialects: Sequence[Dialect] = (DEFAULT,)
    pods_view = False
    node_pods = False
    identities = Identities()

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(EPOCH)
        self.storage = MemoryStorage(remembered=REMEMBERED)
        self.audit = AuditList()
        path = self.mktemp()
        with open(path, "w") as stream:
            stream.write(TOKENS)
        identities = replace(self.identities, token_file=path)
        self.known = ServerAuthenticators(
            "", identities, self.storage, self.clock, self.clock.seconds
        )
        self.parts = self.assemble()
        self.bootstrap()
        for follower in (*self.parts.followers, self.parts.leading):
            follower.startService()
            self.addCleanup(follower.stopService)
        self.clock.advance(0)  # the controllers see their first writes
        self.addCleanup(self.check_stored)
        self.server = MemoryServer(self.parts.dispatcher, self.clock)
        self.server.site.requestFactory = APIRequest

    def bootstrap(self) -> None:
        """
        Create the system objects.

        The first test of a process creates them by the verbs, which costs more than most tests; the others
        store the same objects, which no test may change (see :meth:`check_stored`).
        """
        key = (tuple(each.name for each in self.dialects), self.node_pods)
        if key not in _bootstrapped:
            objects = bootstrap_objects(self.dialects, node_pods=self.node_pods)
            self.successResultOf(
                Deferred.fromCoroutine(
                    create_system_objects(self.storage, self.parts.verbs, objects)
                )
            )
            _bootstrapped[key] = self.all_stored()
            return
        for resource, obj in _bootstrapped[key]:
            self.successResultOf(self.storage.create(resource, obj))

    def all_stored(self) -> list[tuple[Resource, Object]]:
        """Return all stored objects, in the order of their last changes."""
        found = [
            (kind.resource, obj)
            for kind in served(self.dialects)
            if kind.stored
            for obj in self.successResultOf(self.storage.list(kind.resource)).items
        ]
        return sorted(found, key=lambda each: int(each[1]["metadata"]["resourceVersion"]))

    def assemble(self) -> ServerParts:
        """A server's parts, over this store."""
        control_plane = self.control_plane(
            self.storage,
            self.dialects,
            self.known,
            pods_view=self.pods_view,
            node_pods=self.node_pods,
            **self.signing(),
        )
        settings = {"dialects": self.dialects, "scheduling": False, **self.settings()}
        return assemble(
            ServingSettings(**settings),
            control_plane,
            Backend(self.forwarding()),
            ServerContext(
                audit=self.audit,
                metrics=new_registry(process=False),
                reactor=self.clock,
                now=self.clock.seconds,
                **self.context(),
            ),
            limits=self.limits,
            **self.more(),
        )

    def settings(self) -> dict[str, Any]:
        """Further settings of the assembly."""
        return {}

    def more(self) -> dict[str, Any]:
        """Further arguments of the assembly."""
        return {}

    def context(self) -> dict[str, Any]:
        """Further fields of the server's context."""
        return {}

    def signing(self) -> dict[str, Any]:
        """The signing authority, if there is one."""
        return {}

    def check_stored(self) -> None:
        """Check that shared stored objects were not modified: they still equal their JSON."""
        for _, obj in self.all_stored():
            self.assertEqual(json.loads(json_of(obj)), obj)

    def forwarding(self) -> ClientCredentials:
        """Headers that poollets would get; none here, since nothing connects."""
        return ClientCredentials(clock=self.clock)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: str = "admin",
        content_type: str = "application/json",
        headers: Iterable[tuple[str, str]] = (),
    ) -> Response:
        """One request; ``body`` is a document or bytes."""
        raw = (
            body
            if isinstance(body, bytes)
            else json.dumps(body).encode()
            if body is not None
            else b""
        )
        sent = [("Content-Type", content_type), *headers]
        if user:
            sent.append(("Authorization", f"Bearer {user}"))
        return self.server.request(method, path, raw, sent)

    def answer(
        self, method: str, path: str, body: Any = None, *, code: int = 200, **more: Any
    ) -> Any:
        """The document of an answer that must have ``code``."""
        response = self.ask(method, path, body, **more)
        self.assertEqual(response.code, code, response.body)
        return response.json() if response.body else None

    def refused(self, code: int, method: str, path: str, body: Any = None, **more: Any) -> str:
        """The message of a refusal that must have ``code``, as a Status."""
        status = self.answer(method, path, body, code=code, **more)
        self.assertEqual(
            (status["kind"], status["status"], status["code"]), ("Status", "Failure", code)
        )
        return str(status["message"])

    def make_machine(self, name: str, pool: str = "pool-a", **spec: Any) -> Object:
        """A machine, stored."""
        obj: Object = self.answer("POST", MACHINES, machine(name, pool, **spec), code=201)
        return obj

    def make_pool(self, name: str, **status: Any) -> Object:
        """A pool, stored, with a status."""
        obj: Object = self.answer("POST", POOLS, {"metadata": {"name": name}}, code=201)
        if status:
            patch = {"status": status}
            obj = self.answer("PATCH", f"{POOLS}/{name}/status", patch, content_type=MERGE)
        return obj

    def bind(self, user: str, role: str, namespace: str = "default") -> None:
        """Give a user a cluster role in a namespace."""
        body = {
            "metadata": {"name": f"{user}-{role.replace(':', '-')}"},
            "roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": user}],
        }
        self.answer("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", body, code=201)

    def watch(
        self, path: str, *, user: str = "admin", accept: str = "application/json"
    ) -> Watching:
        """A watch that runs."""
        client = self.server.connect()
        head = f"GET {path} HTTP/1.1\r\nHost: server\r\nAuthorization: Bearer {user}\r\nAccept: {accept}\r\n\r\n"
        self.addCleanup(client.lose)
        client.send(head.encode())
        return Watching(client)

    def stored(self, kind: Kind, name: str, namespace: str = "default") -> Object:
        """An object as the store has it."""
        where = namespace if kind.resource.namespaced else ""
        obj: Object = self.successResultOf(self.storage.get(kind.resource, where, name))
        return obj


class Watching:
    """A watch's response as it grows."""

    def __init__(self, client: MemoryClient) -> None:
        self.client = client
        self._raw = b""

    def events(self) -> list[Object]:
        """The lines that came since the last call, decoded from their chunks."""
        self._raw += self.client.received()
        if b"HTTP/1.1" in self._raw:
            _head, _, self._raw = self._raw.partition(b"\r\n\r\n")
        lines, rest = b"", self._raw
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            length = int(size, 16)
            lines, rest = lines + rest[:length], rest[length + 2 :]
        self._raw = b""
        return [json.loads(line) for line in lines.splitlines()]

    def names(self) -> list[tuple[str, str]]:
        """Type and name of each of :meth:`events`."""
        return [(event["type"], event["object"]["metadata"]["name"]) for event in self.events()]
