"""
The rotation of the credentials of a Space.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from twisted_exec.api.kinds.events import EVENTS
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.spaces import SPACES, VIEWPOINTS
from twisted_exec.api.status import APIError, Forbidden
from twisted_exec.cli.failures import InputError
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.spaces.interfaces import SpaceName
from twisted_exec.spaces.kubeconfigs import read
from twisted_exec.spaces.lookup import FoundSpace
from twisted_exec.spaces.space_view import secret_of

LOOK_SECONDS = 0.5
SETTLE_SECONDS = 3.0
"""Time after the manager's answer for the Secrets to change and for an Event to come."""
CANNOT = "CannotRotate"
NO_PROVIDER = "NoProvider"
"""Reason of a condition without the SpaceProviderDesc: nothing will answer a request."""


class CredentialRotation:
    """
    The rotation of one Space's credentials.

    ``status.rotated`` does not say whether the rotation succeeded, so this compares Secrets.
    """

    def __init__(
        self,
        client: IKubeClient,
        location: FoundSpace,
        clock: IReactorTime,
        limit_seconds: float | None,
    ) -> None:
        self._client, self._location, self._clock = client, location, clock
        self._limit = limit_seconds
        self._before: dict[str, bytes] | None = {}
        self._answered: float | None = None

    async def note(self) -> None:
        self._before = await _digests(self._client, self._location.space)

    async def wait(self, requested_at: str) -> str:
        """
        Wait until the credentials differ from the noted ones; without the right to read them, until
        the manager has answered.

        :return: the message for the user.
        :raises InputError: they cannot be rotated, or not in time.
        """
        # Not control.polling: what is awaited is the message that says how it ended.
        end = self._clock.seconds() + (self._limit or float("inf"))
        name = self._location.name
        while True:
            space = await self._client.get(SPACES, name.name, name.namespace)
            if message := await self._look(space, requested_at):
                return message
            if self._clock.seconds() >= end:
                why = _trouble(space) or (
                    "kubectl describe tells what its manager did, if there is one"
                )
                raise InputError(
                    f"space {name} has no new credentials after {self._limit:g} s; {why}"
                )
            await deferLater(self._clock, LOOK_SECONDS)

    async def _look(self, space: Object, requested_at: str) -> str:
        check_provider(space, self._location.name)
        seconds = self._clock.seconds()
        if self._answered is None and (space.get("status") or {}).get("rotated") == requested_at:
            self._answered = seconds
        now, before = await _digests(self._client, space), self._before
        if now is None or before is None:
            is_over = self._answered is not None
            return (
                "its manager has answered; who may read its Secrets sees with what"
                if is_over
                else ""
            )
        if now and all(now.get(each) != digest for each, digest in before.items()):
            return "has new credentials"
        if self._answered is not None and seconds >= self._answered + SETTLE_SECONDS:
            why = await _why(self._client, self._location)
            raise InputError(f"space {self._location.name} has no new credentials: {why}")
        return ""


def check_provider(space: Object, name: SpaceName) -> None:
    """
    Check that the Space has a provider, which can rotate its credentials.

    :raises InputError: it has none.
    """
    for each in _problems(space):
        if each.get("reason") == NO_PROVIDER:
            raise InputError(f"space {name} cannot get new credentials: {each['message']}")


def _trouble(space: Object) -> str:
    return next((str(each["message"]) for each in _problems(space)), "")


def _problems(space: Object) -> Iterator[Object]:
    for each in (space.get("status") or {}).get("conditions") or ():
        if each.get("status") != "True" and each.get("message"):
            yield each


async def _digests(client: IKubeClient, space: Object) -> dict[str, bytes] | None:
    """Return digests of the Space's kubeconfigs by viewpoint, or ``None`` without the right."""
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


async def _why(client: IKubeClient, location: FoundSpace) -> str:
    selector = f"involvedObject.uid={location.space['metadata'].get('uid', '')}"
    try:
        listed = await client.list(
            EVENTS.resource, location.name.namespace, field_selector=selector
        )
    except APIError:
        listed = {"items": []}
    for each in listed["items"]:
        if each.get("reason") == CANNOT and each.get("message"):
            return str(each["message"])
    return "its manager has answered that this cannot be done"
