"""
The namespaces of providers: made when a SpaceProviderDesc is there, taken away when it is gone and they are empty.

One that was there already is used as it is, and never deleted; nor is one in which anything is left that somebody
else has put there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from twisted_exec.api.kinds import MACHINES, NAMESPACES, SECRETS, SERVICEACCOUNTS
from twisted_exec.api.resource import Resource
from twisted_exec.api.spaces import MANAGED_BY, MANAGER, PROVIDER_LABEL, SPACES, namespace_of
from twisted_exec.api.status import AlreadyExists, APIError, Conflict, NotFound
from twisted_exec.kube.informers.reflector import Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.spacemanager.interfaces import Look
from twisted_exec.spacemanager.provider_views.desc import is_ours, namespace_for

CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
LOOKED_AT = (
    SPACES,
    SECRETS.resource,
    CONFIGMAPS,
    SERVICEACCOUNTS.resource,
    Resource("", "v1", "pods", "Pod"),
    Resource("", "v1", "services", "Service"),
    Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    MACHINES.resource,
    Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    Resource("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    Resource("", "v1", "resourcequotas", "ResourceQuota"),
    Resource("", "v1", "limitranges", "LimitRange"),
    Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
    Resource("apps", "v1", "deployments", "Deployment"),
    Resource("apps", "v1", "statefulsets", "StatefulSet"),
    Resource("batch", "v1", "cronjobs", "CronJob"),
)
"""What keeps a namespace from being taken away, if there is any of it that is not of the manager's."""

_FURNITURE = {
    (CONFIGMAPS.plural, "kube-root-ca.crt"),
    (CONFIGMAPS.plural, "openshift-service-ca.crt"),
    (SERVICEACCOUNTS.resource.plural, "default"),
}
"""What a cluster puts into every namespace."""


class ProviderNamespaces:
    """
    :param changed: called with the name of a provider whose namespace has become other.
    """

    _log = Logger()

    def __init__(self, client: IKubeClient, clock: Any, changed: Callable[[str], None]) -> None:
        self._client, self._told = client, changed
        self._kept: dict[str, str] = {}
        self.reflector = Reflector(
            client, NAMESPACES.resource, clock, trim=_trimmed, on_change=self._changed
        )

    def start(self) -> None:
        """Follow them."""
        self.reflector.start()

    def stop(self) -> Deferred[None]:
        """Fires when nothing is under way."""
        return self.reflector.stop()

    @property
    def synced(self) -> bool:
        return self.reflector.synced

    def made_for(self) -> list[str]:
        """The providers for which we made the namespaces that there are."""
        labels = [each["metadata"].get("labels") or {} for each in self.reflector]
        return [each[PROVIDER_LABEL] for each in labels if each.get(PROVIDER_LABEL)]

    async def ensure(self, provider: str) -> Look | None:
        """
        Have the namespace there.

        :return: why it cannot be used, if so.
        """
        there = self.reflector.get(namespace_of(provider))
        if there is not None and there["metadata"].get("deletionTimestamp"):
            told = (
                f"namespace {namespace_of(provider)} is being deleted; it is made anew after that"
            )
            return Look("False", "NamespaceGoing", told)
        if there is None:
            try:
                await self._client.create(NAMESPACES.resource, namespace_for(provider))
            except APIError as error:
                if error.reason != AlreadyExists.reason:
                    told = f"namespace {namespace_of(provider)} cannot be made: {error.message}"
                    return Look("False", "NamespaceCannotBeMade", told)
        return None

    async def clear(self, provider: str) -> None:
        """Take the namespace of a provider that is gone away, if it is ours and nothing is left in it."""
        name = namespace_of(provider)
        there = self.reflector.get(name)
        if there is None or not is_ours(there, provider):
            return
        if there["metadata"].get("deletionTimestamp"):
            return
        left = await self._left(name)
        if left:
            self._tell(name, left)
            return
        try:
            await self._client.delete(NAMESPACES.resource, name, uid=there["metadata"]["uid"])
        except APIError as error:
            if error.code not in (NotFound.code, Conflict.code):
                raise
        self._kept.pop(name, None)
        self._log.info("namespace {name} is removed: its provider is gone", name=name)

    async def _left(self, namespace: str) -> str:
        """What keeps it; empty when nothing does."""
        for resource in LOOKED_AT:
            try:
                listed = await self._client.list(resource, namespace, trim=_trimmed)
            except APIError as error:
                if error.code == NotFound.code:  # no such kind here
                    continue
                return f"{resource.plural} in it cannot be listed: {error.message}"
            for each in listed["items"]:
                if not _goes_along(resource, each):
                    return f"there is {resource.kind} {each['metadata']['name']} in it"
        return ""

    def _tell(self, name: str, left: str) -> None:
        if self._kept.get(name) != left:
            self._kept[name] = left
            told = "namespace {name} of a provider that is gone stays: {why}"
            self._log.info(told, name=name, why=left)

    def _changed(self, before: Object | None, after: Object | None) -> None:
        name = (after or before or {})["metadata"]["name"]
        prefix = namespace_of("")
        if name.startswith(prefix):
            self._told(name.removeprefix(prefix))


def _goes_along(resource: Resource, obj: Object) -> bool:
    """What of a namespace's content need not keep it: what we wrote, and what every namespace has."""
    metadata = obj["metadata"]
    if (resource.plural, metadata["name"]) in _FURNITURE:
        return True
    is_space = resource == SPACES
    return not is_space and (metadata.get("labels") or {}).get(MANAGED_BY) == MANAGER


def _trimmed(obj: Object) -> Object:
    known = ("name", "namespace", "uid", "resourceVersion", "labels", "deletionTimestamp")
    metadata = {key: obj["metadata"][key] for key in known if key in obj["metadata"]}
    return {"metadata": metadata}
