"""
What is made and taken away around Spaces: an object for what was discovered, and what was left of Spaces that
are there no more.
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


async def show(hub: IKubeClient, view: IProviderView, physical: Physical) -> None:
    """
    Make the Space of something that was discovered, if it is there.

    Whoever is faster makes the same one, so one that is there is no failure.

    :raises APIError: to be tried again.
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
    """A copy may be late: what was just deleted would come back as a picture of nothing."""
    try:
        info = await view.provider.get(physical)
    except NotFound:
        view.look_again(physical)
        return False
    return bool(info.state != GOING)


async def _stands_for(hub: IKubeClient, namespace: str, name: str, physical: Physical) -> bool:
    try:
        found = await hub.get(spaces.SPACES, name, namespace)
    except NotFound:
        return True  # it was there a moment ago; whoever follows says what is to be done
    return physical_of(found) == physical


async def clear(hub: IKubeClient, key: Key, left: Iterable[Object]) -> None:
    """
    Delete the Secrets that were left by Spaces of a name.

    A hub that is a whole cluster does that by itself, for they have owners; others do not.

    :param left: what was written for a Space of that name, as last seen; what one has that is there after all
        stays.
    :raises APIError: to be tried again.
    """
    ours = [each for each in left if secrets.is_ours(each)]
    uid = await _uid(hub, key) if ours else None
    for each in ours:
        if secrets.owner_uid(each) != uid:
            await delete_ours(hub, each)


async def _uid(hub: IKubeClient, key: Key) -> str | None:
    """A copy may be late, and what is deleted is not to be had back."""
    try:
        found = await hub.get(spaces.SPACES, key[1], key[0])
    except NotFound:
        return None
    return str(found["metadata"]["uid"])
