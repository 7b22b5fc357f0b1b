"""
Waiting until a Space has other credentials than it had.

The Space Manager answers in ``status.rotated``, with what the annotation says; its answer may be that this
cannot be done, which it says in an Event.  What counts is what the Secrets hold.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from twisted_exec.api.kinds.events import EVENTS
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.spaces import SPACES, VIEWPOINTS
from twisted_exec.api.status import APIError, Forbidden
from twisted_exec.cli.asking import InputError
from twisted_exec.spaces.kubeconfigs import read
from twisted_exec.spaces.view import secret_of

if TYPE_CHECKING:
    from twisted_exec.kube.interfaces import IKubeClient, Object
    from twisted_exec.spaces.found import Found

LOOK_SECONDS = 0.5
SETTLE_SECONDS = 3.0
"""For so long the Secrets may be behind the answer, and an Event behind them."""
CANNOT = "CannotRotate"


async def until_rotated(
    client: IKubeClient, found: Found, options: argparse.Namespace
) -> Callable[[str], Awaitable[str]]:
    """
    What it has now is noted; what is returned waits for other credentials.

    :param options: ``timeout`` in seconds or ``None``, and ``reactor``.
    :return: takes what the annotation was set to; gives what to say, or raises ``InputError``.
    """
    before = await _digests(client, found.space)
    clock, limit = options.reactor, options.timeout

    async def wait(asked: str) -> str:
        from twisted.internet.task import deferLater

        end = clock.seconds() + (limit or float("inf"))
        answered_at = None
        while True:
            space = await client.get(SPACES, found.name.name, found.name.namespace)
            if answered_at is None and (space.get("status") or {}).get("rotated") == asked:
                answered_at = clock.seconds()
            now = await _digests(client, space)
            if now is None or before is None:
                if answered_at is not None:
                    return "its manager has answered; who may read its Secrets can see with what"
            elif now and all(now.get(each) != digest for each, digest in before.items()):
                return "has new credentials"
            elif answered_at is not None and clock.seconds() >= answered_at + SETTLE_SECONDS:
                raise InputError(
                    f"space {found.name} has no new credentials: {await _why(client, found)}"
                )
            if clock.seconds() >= end:
                raise InputError(
                    f"space {found.name} has no new credentials after {limit:g} s; kubectl describe tells "
                    "what its manager did, if there is one"
                )
            await deferLater(clock, LOOK_SECONDS)

    return wait


async def _digests(client: IKubeClient, space: Object) -> dict[str, bytes] | None:
    """What tells its kubeconfigs from others, by viewpoint; ``None`` for who may not read them."""
    digests = {}
    for viewpoint in VIEWPOINTS:
        ref, _ = secret_of(space, viewpoint)
        if ref is not None:
            try:
                secret = await client.get(SECRETS.resource, ref.name, ref.namespace)
            except APIError as refused:
                if refused.code == Forbidden.code:
                    return None
                raise
            digests[viewpoint] = hashlib.sha256(read(secret)).digest()
    return digests


async def _why(client: IKubeClient, found: Found) -> str:
    """What the manager's Event says, for who may read it."""
    selector = f"involvedObject.uid={found.space['metadata'].get('uid', '')}"
    try:
        listed = await client.list(EVENTS.resource, found.name.namespace, field_selector=selector)
    except APIError:
        listed = {"items": []}
    for each in listed["items"]:
        if each.get("reason") == CANNOT and each.get("message"):
            return str(each["message"])
    return "its manager has answered that this cannot be done"
