"""
Copies of the host's objects that admission needs.

Requests wait for the first complete list, or fail after a while. A kind counts as empty while the
host does not serve it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.kinds import NAMESPACES, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, ServiceUnavailable
from twisted_exec.control.loop import PokedLoop
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.interfaces import IKubeClient

REGISTRATION = "admissionregistration.k8s.io"

READY_SECONDS = 10.0
"""Longest wait of a request for the first list of a kind."""

ABSENT_SECONDS = 30.0
"""Interval of discovery for a kind that the host does not serve."""


def _registered(version: str, kind: str, plural: str = "") -> Resource:
    return Resource(REGISTRATION, version, plural or f"{kind.lower()}s", kind, namespaced=False)


def _all_versions(kind: str, plural: str) -> tuple[Resource, ...]:
    versions = ("v1", "v1beta1", "v1alpha1")
    return tuple(_registered(version, kind, plural) for version in versions)


MUTATING_WEBHOOKS = (_registered("v1", "MutatingWebhookConfiguration"),)
VALIDATING_WEBHOOKS = (_registered("v1", "ValidatingWebhookConfiguration"),)
VALIDATING_POLICIES = _all_versions("ValidatingAdmissionPolicy", "validatingadmissionpolicies")
VALIDATING_BINDINGS = _all_versions(
    "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"
)
MUTATING_POLICIES = _all_versions("MutatingAdmissionPolicy", "mutatingadmissionpolicies")
MUTATING_BINDINGS = _all_versions(
    "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"
)

NAMESPACES_OF_HOST = (NAMESPACES.resource,)

FOLLOWED = (
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    VALIDATING_POLICIES,
    VALIDATING_BINDINGS,
    MUTATING_POLICIES,
    MUTATING_BINDINGS,
    NAMESPACES_OF_HOST,
)
"""All resources that are listed and watched; the server's role must allow it."""


class FollowedKind(Service):
    """
    A copy of the objects of one kind.

    :param versions: versions in which the host may serve them, newest first.
    """

    _log = Logger()

    def __init__(
        self, client: IKubeClient, versions: Sequence[Resource], clock: IReactorTime
    ) -> None:
        self._client, self._versions, self._clock = client, versions, clock
        self.generation = 0
        """Incremented with each change."""
        self._synced = False
        self._problem = ""
        self._reflector: Reflector | None = None
        self._waiting: list[Deferred[None]] = []
        self._loop = PokedLoop(self._look, clock, ABSENT_SECONDS, refused=self._refused)

    @property
    def resource(self) -> Resource:
        """The resource in its newest version."""
        return self._versions[0]

    @property
    def problem(self) -> str:
        """Why the copy is not current, or empty."""
        if self._problem or self._reflector is None:
            return self._problem or ("" if self._synced else "not known yet")
        return self._reflector.problem

    def startService(self) -> None:
        super().startService()
        self._loop.start()

    def stopService(self) -> Deferred[None]:
        super().stopService()
        ending = [self._loop.stop()]
        reflector, self._reflector = self._reflector, None
        if reflector is not None:
            ending.append(reflector.stop())
        return DeferredList(ending).addCallback(lambda _: None)

    async def _look(self) -> float | None:
        """Look whether the host serves the kind, until it does."""
        resource = await self._served()
        if resource is None:
            self._tell()  # the copy is complete and empty
            return None
        self._reflector = Reflector(self._client, resource, self._clock, on_change=self._changed)
        self._reflector.start()
        self._reflector.when_synced().addCallback(lambda _: self._tell())
        return inf

    async def _served(self) -> Resource | None:
        for resource in self._versions:
            try:
                await self._client.list(resource, field_selector="metadata.name=none")
            except APIError as error:
                if error.code != 404:
                    raise
                continue
            return resource
        return None

    def _changed(self, before: Object | None, after: Object | None) -> None:
        self.generation += 1

    def _refused(self, error: APIError, failures: int) -> None:
        if error.message != self._problem:
            self._log.warn("{kind}: {why}", kind=self.resource.qualified, why=error.message)
        self._problem = error.message

    def _tell(self) -> None:
        self._synced, self._problem = True, ""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)

    async def objects(self) -> Sequence[Object]:
        """
        Return all objects; do not change them.

        :raises ServiceUnavailable: the first list is not complete.
        """
        if not self._synced:
            await self._wait()
        return [] if self._reflector is None else list(self._reflector)

    def get(self, name: str) -> Object | None:
        """Return an object of the copy; ``None`` if it is not there."""
        return None if self._reflector is None else self._reflector.get(name)

    async def _wait(self) -> None:
        waiting: Deferred[None] = Deferred(lambda d: self._waiting.remove(d))
        self._waiting.append(waiting)
        try:
            await waiting.addTimeout(READY_SECONDS, self._clock)
        except TimeoutError:
            raise ServiceUnavailable(
                f"not yet ready to handle request: the {self.resource.plural} of the cluster "
                f"cannot be read: {self.problem or 'not known yet'}",
                retry_after_seconds=1,
            ) from None


class HostNamespaces:
    def __init__(self, client: IKubeClient, followed: FollowedKind) -> None:
        self._client, self._followed = client, followed

    async def get(self, name: str) -> Object:
        """
        Return a namespace.

        :raises APIError: there is no such namespace, or the host does not answer.
        """
        await self._followed.objects()
        namespace = self._followed.get(name)
        return namespace or await self._client.get(NAMESPACES.resource, name)

    async def labels(self, name: str) -> Mapping[str, str]:
        """Return the labels of a namespace; errors as :meth:`get`."""
        return (await self.get(name))["metadata"].get("labels") or {}
