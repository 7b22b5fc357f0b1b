"""
Discovery: creating Spaces for physical spaces, and deleting the Secrets of deleted Spaces.
"""

from __future__ import annotations

from collections.abc import Iterable

from twisted_exec.api import spaces
from twisted_exec.api.status import AlreadyExists, NotFound
from twisted_exec.kube.informers.reflector import Key
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.spacemanager.interfaces import GOING, IProviderView, Physical
from twisted_exec.spacemanager.spaces import secrets
from twisted_exec.spacemanager.spaces.naming import discovered, name_for, physical_of
from twisted_exec.spacemanager.spaces.worker import delete_ours


async def create_space(hub: IKubeClient, view: IProviderView, physical: Physical) -> None:
    """
    Create the Space of a discovered physical space, if that still exists.

    An existing Space is no failure: another manager would create the same one.

    :raises APIError: retry later.
    """
    if view.provider is None or not await _is_there(view, physical):
        return
    for is_free in (True, False):
        form = discovered(physical, view.name, name_for(physical, is_free))
        namespace, name = form["metadata"]["namespace"], form["metadata"]["name"]
        try:
            await hub.create(spaces.SPACES, form, namespace)
            return
        except AlreadyExists:
            if await _stands_for(hub, namespace, name, physical):
                return


async def _is_there(view: IProviderView, physical: Physical) -> bool:
    """Ask the provider: the copy may be outdated, and would bring back a deleted space."""
    try:
        info = await view.provider.get(physical)
    except NotFound:
        view.look_again(physical)
        return False
    return bool(info.state != GOING)


async def _stands_for(hub: IKubeClient, namespace: str, name: str, physical: Physical) -> bool:
    try:
        existing = await hub.get(spaces.SPACES, name, namespace)
    except NotFound:
        return True  # deleted since; the watch triggers the next attempt
    return physical_of(existing) == physical


async def delete_secrets(hub: IKubeClient, key: Key, left: Iterable[Object]) -> None:
    """
    Delete the Secrets of deleted Spaces of a name.

    A hub with garbage collection does this by itself, because they have owners; other hubs do not.

    :param left: Secrets for a Space of that name, as last observed; those of an existing Space
        stay.
    :raises APIError: retry later.
    """
    ours = [each for each in left if secrets.is_ours(each)]
    uid = await _uid(hub, key) if ours else None
    for each in ours:
        if secrets.owner_uid(each) != uid:
            await delete_ours(hub, each)


async def _uid(hub: IKubeClient, key: Key) -> str | None:
    """Read the Space's UID: the copy may be outdated, and a deletion is final."""
    try:
        existing = await hub.get(spaces.SPACES, key[1], key[0])
    except NotFound:
        return None
    return str(existing["metadata"]["uid"])
