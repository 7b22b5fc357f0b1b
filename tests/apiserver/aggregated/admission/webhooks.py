"""
A host's admission for tests: webhooks that listen on loopback, and what the host says of them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.web.resource import Resource as WebResource

from tests.tls.support import LoopbackCase, authority, reactor
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError
from twisted_exec.apiserver.aggregated.admission import objects
from twisted_exec.apiserver.aggregated.admission.plugin import HostAdmission
from twisted_exec.apiserver.interfaces import CREATE, DELETE, UPDATE, Change, Opening
from twisted_exec.auth.interfaces import User
from twisted_exec.streaming.http.responses import respond
from twisted_exec.streaming.http.site import Site
from twisted_exec.testing.cluster import MemoryCluster

JANE = User("jane", ("dev", "system:authenticated"), "u-1", {"scopes": ("a", "b")})
GROUP = "compute.ironcore.dev"

NEVER: Any = object()
"""A reply that does not come."""

Reply = Callable[[Object], Any]
"""
From an AdmissionReview's request to the response; or to bytes that are sent as they are, or code,
headers and bytes.
"""


def kind_of(resource: Resource) -> Kind:
    """Of what only the host has."""
    return Kind(resource, resource.kind.lower())


def hosted(*absent: Resource) -> MemoryCluster:
    """A host that has all kinds that admission needs, in their newest version, but some."""
    there = [versions[0] for versions in objects.FOLLOWED if versions[0] not in absent]
    return MemoryCluster((*kinds.ALL, *(kind_of(each) for each in there)))


def machine(name: str = "vm", **labels: str) -> Object:
    """A machine in ``default``."""
    metadata: Object = {"name": name, "namespace": "default"}
    if labels:
        metadata["labels"] = labels
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "Machine",
        "metadata": metadata,
        "spec": {"machineClassRef": {"name": "small"}},
    }


def creating(new: Object | None = None, **more: Any) -> Change:
    """``jane`` makes a machine."""
    return Change(JANE, CREATE, kinds.MACHINES, new or machine(), None, **more)


def updating(new: Object, old: Object, **more: Any) -> Change:
    """``jane`` changes a machine."""
    return Change(JANE, UPDATE, kinds.MACHINES, new, old, **more)


def deleting(old: Object | None = None, **more: Any) -> Change:
    """``jane`` deletes a machine."""
    return Change(JANE, DELETE, kinds.MACHINES, None, old or machine(), **more)


def opening(name: str = "vm") -> Opening:
    """``jane`` opens a machine's console."""
    options = {"kind": "MachineExecOptions", "apiVersion": f"{GROUP}/v1alpha1"}
    return Opening(JANE, kinds.MACHINES, "default", name, "exec", options)


def rule(*operations: str, resources: tuple[str, ...] = ("machines",), **more: Any) -> Object:
    """A rule on machines."""
    return {
        "operations": list(operations or ("*",)),
        "apiGroups": [GROUP],
        "apiVersions": ["*"],
        "resources": list(resources),
        **more,
    }


def patch(*operations: Object) -> Object:
    """The part of a response that changes the object."""
    raw = json.dumps(operations).encode()
    return {"patchType": "JSONPatch", "patch": base64.b64encode(raw).decode()}


class HookServer(WebResource):
    """
    Answers reviews at ``/NAME`` as told.

    :ivar asked: name, query and review of each, as they came.
    """

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, bytes, Object]] = []
        self.replies: dict[str, Reply] = {}
        self.url = ""

    def render(self, request: Any) -> Any:
        """One review."""
        name = request.path.decode().lstrip("/")
        review = json.loads(request.content.read())
        self.asked.append((name, request.uri.partition(b"?")[2], review))
        told = self.replies[name](review["request"])
        if told is NEVER:
            return
        code, headers, body = 200, {}, told
        if isinstance(told, tuple):
            code, headers, body = told
        elif not isinstance(told, bytes):
            response = {"uid": review["request"]["uid"], "allowed": True, **told}
            kind, version = review["kind"], review["apiVersion"]
            body = json.dumps({"kind": kind, "apiVersion": version, "response": response}).encode()
        for key, value in headers.items():
            request.setHeader(key, value)
        respond(request, code, body, "application/json")


class AdmissionCase(LoopbackCase):
    """
    Admission by a host's webhooks and policies; the webhooks are on loopback.

    :ivar cluster: the host.
    """

    async def setUp(self) -> None:
        super().setUp()
        self.cluster = hosted()
        self.client = self.cluster.client()
        await self.put(kinds.NAMESPACES.resource, "default", labels={"team": "a"})
        self.hooks = HookServer()
        self.site = Site(self.hooks, reactor)
        port = await self.listen(self.site, self.server_tls())
        self.hooks.url = f"https://localhost:{port.getHost().port}"
        self.addCleanup(self.until, lambda: not self.site.connections)
        self.admission = HostAdmission(self.client, reactor)
        self.admission.startService()
        self.addCleanup(self.admission.stopService)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Look again and again."""
        while not condition():
            await deferLater(reactor, 0.01)

    async def put(
        self, resource: Resource, name: str, *, labels: Mapping[str, str] | None = None, **body: Any
    ) -> None:
        """Make an object of the host's."""
        metadata: Object = {"name": name}
        if labels:
            metadata["labels"] = dict(labels)
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        await self.client.create(resource, {**obj, **body})

    def webhook(self, name: str, reply: Reply, *rules: Object, **more: Any) -> Object:
        """An entry of a webhook configuration; its server answers with ``reply``."""
        self.hooks.replies[name] = reply
        ca = base64.b64encode(authority("serving").certificate_pem).decode()
        return {
            "name": f"{name}.example.com",
            "clientConfig": {"url": f"{self.hooks.url}/{name}", "caBundle": ca},
            "rules": list(rules or (rule(),)),
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 30,  # the longest that there is
            **more,
        }

    async def validating(self, *webhooks: Object, name: str = "config") -> None:
        """The host has a ValidatingWebhookConfiguration."""
        await self.put(objects.VALIDATING_WEBHOOKS[0], name, webhooks=list(webhooks))

    async def mutating(self, *webhooks: Object, name: str = "config") -> None:
        """The host has a MutatingWebhookConfiguration."""
        await self.put(objects.MUTATING_WEBHOOKS[0], name, webhooks=list(webhooks))

    async def refusal(self, asking: Deferred[Any]) -> Any:
        """The error that something ends with."""
        try:
            told = await asking
        except APIError as error:
            return error
        raise AssertionError(f"it was not refused: {told!r}")

    def names(self) -> list[str]:
        """Names of the called webhooks."""
        return [name for name, _, _ in self.hooks.asked]


def allow(request: Object) -> Object:
    """Yes."""
    return {}


def deny(message: str = "", **status: Any) -> Reply:
    """No."""
    told = {"message": message, **status} if message or status else None
    return lambda request: {"allowed": False, **({"status": told} if told else {})}
