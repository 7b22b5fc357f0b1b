"""
The cluster that a provider keeps its things in: the manager's own, or that of a kubeconfig in its Secret.

What such a cluster answers is told on with a remedy, and one answer is told apart from another that looks like
it: that there is no such *object* says that something is gone, that there is no such *kind* says that we ask
the wrong cluster, or that a right one is just being repaired.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, succeed

from twisted_exec.api.resource import Resource
from twisted_exec.api.spaces import KUBECONFIG_KEY, MANAGER
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    Forbidden,
    Invalid,
    NotFound,
    ServiceUnavailable,
    Unauthorized,
)
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.loader import load_inline
from twisted_exec.spacemanager.interfaces import ProviderContext, ProviderSpec
from twisted_exec.spaces.kubeconfigs import unwrapped

T = TypeVar("T")

MAX_LIST_BYTES = 256 << 20
"""Of one list of a provider's server: whoever runs that is not to fill the manager's memory."""


class ProviderCluster:
    """
    A cluster, and how to speak of it.

    :param client: of it.
    :param title: what it is called in messages.
    :param remedy: where credentials are to be put when it does not take ours.
    """

    def __init__(
        self,
        client: IKubeClient,
        title: str,
        remedy: str,
        close: Callable[[], Deferred[None]] = lambda: succeed(None),
    ) -> None:
        self.client, self._title, self._remedy, self.close = client, title, remedy, close

    async def find(self, resource: Resource, name: str, namespace: str = "") -> Object | None:
        """
        An object, or ``None`` when there is no such object.

        :raises APIError: that cannot be said.
        """
        try:
            found = await self.client.get(resource, name, namespace)
        except NotFound as refused:
            if refused.details.get("name") == name:
                return None
            raise self._without(resource) from None
        except APIError as refused:
            raise self._told(refused) from None
        metadata = found.get("metadata")
        if not isinstance(metadata, dict) or metadata.get("name") != name:
            raise BadGateway(
                f"{self._title}: what answers for {resource.qualified} is no API server"
            )
        return found

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        trim: Callable[[Object], Object],
        field_selector: str = "",
        label_selector: str = "",
    ) -> list[Object]:
        """All objects of a kind, trimmed.  Raises as :meth:`find`."""
        try:
            listed = await self.client.list(
                resource,
                namespace,
                field_selector=field_selector,
                label_selector=label_selector,
                trim=trim,
            )
        except NotFound:
            raise self._without(resource) from None
        except APIError as refused:
            raise self._told(refused) from None
        return list(listed["items"])

    async def do(self, asked: Awaitable[T], resource: Resource, name: str) -> T:
        """What came of a change of one object; :class:`NotFound` is about that object.  Raises as :meth:`find`."""
        try:
            return await asked
        except NotFound as refused:
            if refused.details.get("name") == name:
                raise
            raise self._without(resource) from None
        except APIError as refused:
            raise self._told(refused) from None

    def _without(self, resource: Resource) -> APIError:
        return ServiceUnavailable(
            f"{self._title} has no {resource.qualified} just now;"
            f" install what serves them there, or {self._remedy}"
        )

    def _told(self, refused: APIError) -> APIError:
        if refused.code == Unauthorized.code:
            remedy = f"{self._remedy} that it takes"
        elif refused.code == Forbidden.code:
            remedy = "grant that there"
        else:
            return refused
        # Another, not the same with another message: several may wait for one answer.
        mended = copy(refused)
        mended.message = f"{self._title}: {refused.message}; {remedy}"
        return mended


def reach(
    spec: ProviderSpec, around: ProviderContext, other_keys: Sequence[str] = ()
) -> ProviderCluster:
    """
    The cluster that a SpaceProviderDesc means: that of the kubeconfig in its Secret, or the manager's own when
    there is no Secret, or none with a kubeconfig but with what else there may be.

    :param other_keys: what else its Secret may hold.
    :raises Invalid: what the Secret holds cannot be used.
    """
    held = spec.secret or {}
    if spec.secret is None or (held and set(held) <= set(other_keys)):
        return ProviderCluster(
            around.hub,
            f'provider "{spec.name}" (the cluster of the Spaces)',
            "name a Secret in spec.secretRef with the kubeconfig of another cluster",
        )
    source = f'secret {spec.secret_ref}, key "{KUBECONFIG_KEY}"'
    if KUBECONFIG_KEY not in held:
        raise wrong_secret(spec, f"{source}: there is no such key; put a kubeconfig there")
    try:
        config = load_inline(unwrapped(held[KUBECONFIG_KEY], source), source)
    except KubeConfigError as error:
        raise wrong_secret(spec, str(error)) from None
    client = KubeClient(config, around.reactor, agent=MANAGER, list_bytes=MAX_LIST_BYTES)
    return ProviderCluster(
        client, f'provider "{spec.name}"', f"put credentials into {source}", client.close
    )


def wrong_secret(spec: ProviderSpec, problem: str) -> APIError:
    """What the Secret of a provider holds cannot be used."""
    causes: list[Any] = [
        {"reason": "FieldValueInvalid", "message": problem, "field": "spec.secretRef"}
    ]
    return Invalid("SpaceProviderDesc", spec.name, causes, "space.kubestellar.io")
