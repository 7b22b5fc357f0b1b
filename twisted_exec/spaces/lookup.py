"""
One Space, asked for: what a command needs that looks once and goes.

Whoever may read one provider's namespace only gets along with that, if they say which provider.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.spaces import DEFAULT_PROVIDER, SPACES, namespace_of
from twisted_exec.api.status import APIError, Forbidden, NotFound, ServiceUnavailable
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.spaces.interfaces import SpaceName
from twisted_exec.spaces.kubeconfigs import load
from twisted_exec.spaces.space_view import Directory, SpaceView, name_of, view_of


@dataclass(frozen=True)
class Found:
    """A Space, and its name."""

    name: SpaceName
    space: Object


async def find_space(hub: IKubeClient, name: str, provider: str = "") -> Found:
    """
    The Space that is meant, as :meth:`ISpaceClient.get
    <twisted_exec.spaces.interfaces.ISpaceClient.get>` understands it.

    :raises NotFound: there is none.
    :raises Conflict: there are several.
    :raises APIError: they cannot be asked for.
    """
    chosen = await _at(hub, name, namespace_of(provider or DEFAULT_PROVIDER))
    if chosen is None and provider:
        chosen = await _at(hub, name, provider)
        if chosen is not None and chosen.name.provider:
            chosen = None
    if chosen is not None:
        return chosen
    if provider:
        return Directory[Found]().find(name, provider)  # which says that there is none
    try:
        listed = await hub.list(SPACES, field_selector=f"metadata.name={name}")
    except APIError as refused:
        if refused.code != Forbidden.code:
            raise
        told = f"{refused.message}; say whose space it is with --provider"
        raise Forbidden(told) from None
    found: Directory[Found] = Directory()
    for space in listed["items"]:
        if (told_name := name_of(space)) is not None:
            found.put(Found(told_name, space))
    return found.find(name)


async def _at(hub: IKubeClient, name: str, namespace: str) -> Found | None:
    try:
        space = await hub.get(SPACES, name, namespace)
    except NotFound:
        return None
    except APIError as refused:
        # Whether there is one is not for everybody to know; another may be meant.
        if refused.code == Forbidden.code and namespace == namespace_of(DEFAULT_PROVIDER):
            return None
        raise
    found = name_of(space)
    return None if found is None else Found(found, space)


def usable(space: Object, viewpoint: str) -> SpaceView:
    """
    What a Space says that somebody wants to use.

    :raises ServiceUnavailable: it is not ready; the message says why.
    """
    view = view_of(space, viewpoint)
    assert view is not None, "it was found by its name"
    if view.deleting or not view.ready:
        why = "it is being deleted" if view.deleting else view.why_not
        raise ServiceUnavailable(f"{view.label} cannot be reached: {why}")
    return view


async def config_in(hub: IKubeClient, space: Object, viewpoint: str) -> ClientConfig:
    """
    What the Secret of a Space says, read just now.

    :raises ServiceUnavailable: the Space has none for this viewpoint.
    :raises KubeConfigError: it cannot be used.
    :raises APIError: it cannot be read.
    """
    view = view_of(space, viewpoint)
    assert view is not None, "it was found by its name"
    if view.secret is None:
        raise ServiceUnavailable(f"{view.label} cannot be reached: {view.no_secret}")
    try:
        return load(await hub.get(SECRETS.resource, view.secret.name, view.secret.namespace))
    except NotFound:
        raise ServiceUnavailable(f"{view.label}: {view.secret} does not exist") from None
    except KubeConfigError as error:
        raise KubeConfigError(f"{view.label}: {error}") from None
