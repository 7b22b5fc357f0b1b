"""
The cluster where a provider stores its objects.

A missing *object* means that something is gone; a missing *kind* means that this is the wrong
cluster, or that it is being repaired.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, succeed

from twisted_exec.api import names
from twisted_exec.api.resource import Resource
from twisted_exec.api.spaces import KUBECONFIG_KEY, MANAGER, OWNER
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    BadRequest,
    Forbidden,
    Invalid,
    NotFound,
    ServiceUnavailable,
    Unauthorized,
    one_line,
)
from twisted_exec.kube.client import MAX_LIST_BYTES, KubeClient
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.kubeconfig.loader import load_inline
from twisted_exec.spacemanager.interfaces import ProviderContext, ProviderSpec
from twisted_exec.spaces.kubeconfigs import unwrapped

T = TypeVar("T")
_WORD = re.compile("[A-Za-z][A-Za-z0-9]{0,63}")
_LONGEST = 400


class ProviderCluster:
    """
    A cluster, with its name and remedies for messages.

    :param remedy: what to do about refused credentials, such as ``put credentials into secret NAME``.
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
        """Return an object, or ``None`` if it does not exist."""
        try:
            obj = await self.client.get(resource, name, namespace)
        except NotFound as refused:
            if refused.details.get("name") == name:
                return None
            raise self._without(resource) from None
        except APIError as refused:
            raise self._with_remedy(refused) from None
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict) or metadata.get("name") != name:
            raise BadGateway(
                f"{self._title}: the server that answers for {resource.qualified} is not an API server"
            )
        return obj

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        trim: Callable[[Object], Object],
        field_selector: str = "",
        label_selector: str = "",
    ) -> list[Object]:
        """Return the objects of a kind."""
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
            raise self._with_remedy(refused) from None
        return list(listed["items"])

    async def do(self, request: Awaitable[T], resource: Resource, name: str) -> T:
        """Return the result of a change of one object."""
        try:
            return await request
        except NotFound as refused:
            if refused.details.get("name") == name:
                raise
            raise self._without(resource) from None
        except APIError as refused:
            raise self._with_remedy(refused) from None

    def _without(self, resource: Resource) -> APIError:
        return ServiceUnavailable(
            f"{self._title} has no {resource.qualified} just now;"
            f" install what serves them there, or {self._remedy}"
        )

    def _with_remedy(self, refused: APIError) -> APIError:
        if refused.code == Unauthorized.code:
            remedy = f"{self._remedy} that the server accepts"
        elif refused.code == Forbidden.code:
            remedy = "grant that there"
        else:
            return refused
        # A copy, because several callers may wait for the same error.
        mended = copy(refused)
        mended.message = f"{self._title}: {refused.message}; {remedy}"
        return mended


def reach(
    spec: ProviderSpec, around: ProviderContext, other_keys: Sequence[str] = ()
) -> ProviderCluster:
    """
    Return the cluster of the kubeconfig in a provider's Secret, or the manager's own.

    :raises Invalid: the Secret's content is not usable.
    """
    content = spec.secret or {}
    if spec.secret is None or (content and set(content) <= set(other_keys)):
        return ProviderCluster(
            around.hub,
            f'provider "{spec.name}" (the cluster of the Spaces)',
            "name a Secret in spec.secretRef with the kubeconfig of another cluster",
        )
    source = f'secret {spec.secret_ref}, key "{KUBECONFIG_KEY}"'
    if KUBECONFIG_KEY not in content:
        raise wrong_secret(spec, f"{source}: there is no such key; put a kubeconfig there")
    try:
        config = load_inline(unwrapped(content[KUBECONFIG_KEY], source), source)
    except KubeConfigError as error:
        raise wrong_secret(spec, str(error)) from None
    client = KubeClient(config, around.reactor, agent=MANAGER, list_bytes=MAX_LIST_BYTES)
    return ProviderCluster(
        client, f'provider "{spec.name}"', f"put credentials into {source}", client.close
    )


def wrong_secret(spec: ProviderSpec, problem: str) -> APIError:
    """Return the error for unusable content of a provider's Secret."""
    causes: list[Any] = [
        {"reason": "FieldValueInvalid", "message": problem, "field": "spec.secretRef"}
    ]
    return Invalid("SpaceProviderDesc", spec.name, causes, "space.kubestellar.io")


def owner_of(obj: Mapping[str, Any]) -> str:
    """Return the owner in an object's annotation, or empty."""
    annotations = obj["metadata"].get("annotations")
    return str(annotations.get(OWNER) or "") if isinstance(annotations, dict) else ""


def mark(owner: str) -> dict[str, str]:
    """
    Return the annotation for an owner.

    :raises BadRequest: the owner cannot be a UID.
    """
    if not owner or names.label_value(owner):
        raise BadRequest("the owner of a physical space must be the UID of a Space")
    return {OWNER: owner}


def reason_of(condition: Mapping[str, Any], otherwise: str) -> str:
    """Return the condition's reason, or ``otherwise`` if it is not one word."""
    reason = str(condition.get("reason") or "")
    return reason if _WORD.fullmatch(reason) else otherwise


def message_of(condition: Mapping[str, Any]) -> str:
    """Return the condition's message as one short line; may be empty."""
    return one_line(str(condition.get("message") or ""))[:_LONGEST]
