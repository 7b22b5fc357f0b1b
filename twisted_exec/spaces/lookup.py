"""Look-up of a Space by its name."""

from __future__ import annotations

from dataclasses import dataclass

from twisted_exec.api.spaces import DEFAULT_PROVIDER, SPACES, namespace_of
from twisted_exec.api.status import APIError, Forbidden, NotFound, ServiceUnavailable
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.spaces.directory import Directory
from twisted_exec.spaces.interfaces import SpaceName
from twisted_exec.spaces.space_view import SpaceView, name_of, view_of


@dataclass(frozen=True)
class FoundSpace:
    name: SpaceName
    space: Object


async def find_space(hub: IKubeClient, name: str, provider: str = "") -> FoundSpace:
    """
    Return the Space with a name, as of :class:`~twisted_exec.spaces.interfaces.ISpaceClient`.

    :raises NotFound: there is no such Space.
    :raises Conflict: there are several such Spaces.
    :raises APIError: the Spaces cannot be read.
    """
    if provider:
        return await _find_at_provider(hub, name, provider)
    if (chosen := await _find_default(hub, name)) is not None:
        return chosen
    try:
        listed = await hub.list(SPACES, field_selector=f"metadata.name={name}")
    except APIError as refused:
        if refused.code != Forbidden.code:
            raise
        message = f"{refused.message}; name the provider with --provider"
        raise Forbidden(message) from None
    matches: Directory[FoundSpace] = Directory()
    for space in listed["items"]:
        if (space_name := name_of(space)) is not None:
            matches.put(FoundSpace(space_name, space))
    return matches.find(name)


async def _find_default(hub: IKubeClient, name: str) -> FoundSpace | None:
    try:
        return await _at(hub, name, namespace_of(DEFAULT_PROVIDER))
    except APIError as refused:
        # Without access to the default provider, the name may still match a Space elsewhere.
        if refused.code == Forbidden.code:
            return None
        raise


async def _find_at_provider(hub: IKubeClient, name: str, provider: str) -> FoundSpace:
    own, refusal = namespace_of(provider), None
    for namespace in (own, provider):
        try:
            chosen = await _at(hub, name, namespace)
        except APIError as refused:
            if refused.code != Forbidden.code:
                raise
            if namespace == own:
                refusal = refused
            continue
        if chosen is not None and (namespace == own or not chosen.name.provider):
            return chosen
    if refusal is not None:
        raise refusal
    return Directory[FoundSpace]().find(name, provider)  # raises NotFound with the right message


async def _at(hub: IKubeClient, name: str, namespace: str) -> FoundSpace | None:
    try:
        space = await hub.get(SPACES, name, namespace)
    except NotFound:
        return None
    space_name = name_of(space)
    return None if space_name is None else FoundSpace(space_name, space)


def ready_view(space: Object, viewpoint: str) -> SpaceView:
    """
    Return the view of a Space that is ready for use.

    :raises ServiceUnavailable: the Space is not ready.
    """
    view = view_of(space, viewpoint)
    assert view is not None, "the Space was looked up by its name"
    if view.deleting or not view.ready:
        why = "it is being deleted" if view.deleting else view.why_not
        raise ServiceUnavailable(f"{view.label} cannot be reached: {why}")
    return view
