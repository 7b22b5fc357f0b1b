"""
The namespaces of providers: created for a SpaceProviderDesc, and deleted after it when they are empty.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.kinds import MACHINES, NAMESPACES, SECRETS, SERVICEACCOUNTS
from twisted_exec.api.resource import Resource
from twisted_exec.api.spaces import MANAGED_BY, MANAGER, PROVIDER_LABEL, SPACES, namespace_of
from twisted_exec.api.status import AlreadyExists, APIError, Conflict, NotFound
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.spacemanager.descs import is_ours, namespace_for
from twisted_exec.spacemanager.interfaces import ProviderCondition

CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
BLOCKING = (
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
"""Resources that prevent the deletion of a namespace: any Space, and others' objects of the other kinds."""

_IN_EVERY_NAMESPACE = {
    (CONFIGMAPS.plural, "kube-root-ca.crt"),
    (CONFIGMAPS.plural, "openshift-service-ca.crt"),
    (SERVICEACCOUNTS.resource.plural, "default"),
}
"""Objects that a cluster creates in every namespace."""


class ProviderNamespaces:
    """
    The namespaces of providers, created for a SpaceProviderDesc and deleted after it.

    A namespace that existed before is not deleted; neither is a namespace with Spaces or with
    others' objects of the kinds in :data:`BLOCKING`.
    """

    _log = Logger()

    def __init__(
        self, client: IKubeClient, clock: IReactorTime, changed: Callable[[str], None]
    ) -> None:
        self._client, self._notify = client, changed
        self._reported: dict[str, str] = {}
        self.reflector = Reflector(
            client, NAMESPACES.resource, clock, trim=_trimmed_to_metadata, on_change=self._changed
        )

    def start(self) -> None:
        self.reflector.start()

    def stop(self) -> Deferred[None]:
        return self.reflector.stop()

    @property
    def synced(self) -> bool:
        return self.reflector.synced

    def made_for(self) -> list[str]:
        labels = [each["metadata"].get("labels") or {} for each in self.reflector]
        return [each[PROVIDER_LABEL] for each in labels if each.get(PROVIDER_LABEL)]

    def is_made_for(self, provider: str) -> bool:
        namespace = self.reflector.get(namespace_of(provider))
        return namespace is not None and is_ours(namespace, provider)

    async def ensure(self, provider: str) -> ProviderCondition | None:
        """
        Create a provider's namespace if it is missing.

        :return: the condition Synced if the namespace is not usable, else ``None``.
        """
        namespace = self.reflector.get(namespace_of(provider))
        if namespace is not None and namespace["metadata"].get("deletionTimestamp"):
            message = f"namespace {namespace_of(provider)} is being deleted; it is created anew afterwards"
            return ProviderCondition("False", "NamespaceGoing", message)
        if namespace is None:
            try:
                await self._client.create(NAMESPACES.resource, namespace_for(provider))
            except APIError as error:
                if error.reason != AlreadyExists.reason:
                    message = (
                        f"namespace {namespace_of(provider)} cannot be created: {error.message}"
                    )
                    return ProviderCondition("False", "NamespaceCannotBeMade", message)
        return None

    async def clear(self, provider: str) -> None:
        name = namespace_of(provider)
        namespace = self.reflector.get(name)
        if namespace is None or not is_ours(namespace, provider):
            return
        if namespace["metadata"].get("deletionTimestamp"):
            return
        left = await self._left(name)
        if left:
            self._tell(name, left)
            return
        try:
            await self._client.delete(NAMESPACES.resource, name, uid=namespace["metadata"]["uid"])
        except APIError as error:
            if error.code not in (NotFound.code, Conflict.code):
                raise
        self._reported.pop(name, None)
        self._log.info("deleted namespace {name}: its provider is gone", name=name)

    async def _left(self, namespace: str) -> str:
        for resource in BLOCKING:
            try:
                listed = await self._client.list(resource, namespace, trim=_trimmed_to_metadata)
            except APIError as error:
                if error.code == NotFound.code:  # no such kind here
                    continue
                return f"{resource.plural} in it cannot be listed: {error.message}"
            for each in listed["items"]:
                if not _is_deletable(resource, each):
                    return f"there is {resource.kind} {each['metadata']['name']} in it"
        return ""

    def _tell(self, name: str, left: str) -> None:
        if self._reported.get(name) != left:
            self._reported[name] = left
            message = "keeping namespace {name} of a removed provider: {why}"
            self._log.info(message, name=name, why=left)

    def _changed(self, before: Object | None, after: Object | None) -> None:
        name = (after or before or {})["metadata"]["name"]
        prefix = namespace_of("")
        if name.startswith(prefix):
            self._notify(name.removeprefix(prefix))


def _is_deletable(resource: Resource, obj: Object) -> bool:
    metadata = obj["metadata"]
    if (resource.plural, metadata["name"]) in _IN_EVERY_NAMESPACE:
        return True
    is_space = resource == SPACES
    return not is_space and (metadata.get("labels") or {}).get(MANAGED_BY) == MANAGER


def _trimmed_to_metadata(obj: Object) -> Object:
    keys = ("name", "namespace", "uid", "resourceVersion", "labels", "deletionTimestamp")
    metadata = {key: obj["metadata"][key] for key in keys if key in obj["metadata"]}
    return {"metadata": metadata}
