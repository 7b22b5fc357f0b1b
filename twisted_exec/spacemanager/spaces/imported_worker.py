"""The worker for one imported Space."""

from __future__ import annotations

from collections.abc import Awaitable

from twisted_exec.api import spaces
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    BadRequest,
    Forbidden,
    Invalid,
    NotFound,
)
from twisted_exec.kube.informers import Key
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.spaces.imported import (
    ImportedCredentials,
    credentials_of,
    is_forgotten,
    is_record,
    made_anew,
    record_name,
    record_of,
    references,
    status_of,
    why_not_readable,
)
from twisted_exec.spacemanager.spaces.observation import ProbeResult, Tell
from twisted_exec.spacemanager.spaces.probes import Probe
from twisted_exec.spacemanager.spaces.status import events
from twisted_exec.spacemanager.spaces.worker import SpaceChanged, SpaceContext, delete_ours

TROUBLE_SECONDS = 15.0
"""Interval for rereading Secrets that are unusable or whose credentials were rejected."""
_NO_PLACE = (Forbidden.code, NotFound.code, Invalid.code, BadRequest.code)
"""Errors in a namespace that is being deleted, or for an object that is not a valid Space."""


class ImportedWorker:
    """
    Processes one imported Space.

    :param record: the record of a deleted Space.
    """

    def __init__(
        self,
        around: SpaceContext,
        key: Key,
        space: Object | None,
        record: Object | None,
        probe: Probe,
    ) -> None:
        self.space = space
        self.probed: ProbeResult | None = None
        self._around, self._key, self._record, self._probe = around, key, record, probe
        self._events: list[Tell] = []

    async def run(self) -> float | None:
        """
        Process the Space.

        :return: seconds until the next check; ``None`` to wait for events.
        """
        try:
            if self.space is None:
                return await self._make_anew()
            if self.space["metadata"].get("deletionTimestamp"):
                return await self._going(self.space)
            return await self._keep(self.space)
        except SpaceChanged:
            return None
        finally:
            if self.space is not None:
                for each in self._events:
                    self._around.record(self.space, each.type, each.reason, each.message)

    # The Space exists.

    async def _keep(self, space: Object) -> float | None:
        await self._drop_record()
        space = await self._set_finalizers(space, keep=True)
        credentials = await self._read_credentials(space)
        what = f"the kubeconfig of space {'/'.join(self._key)}"
        phase = (space.get("status") or {}).get("Phase")
        self.probed = self._around.probes.look(
            self._key,
            credentials.contents,
            what,
            f"/{self._key[0]}",
            was_well=phase == spaces.READY,
        )
        before = space.get("status") or {}
        after = status_of(space, credentials, self.probed, self._around.now())
        if after != before:
            stored = {**space, "status": after}
            self.space = await self._there(
                self._around.hub.update(spaces.SPACES, stored, self._key[0], subresource="status")
            )
        self._events += events(before, after)
        if after.get("rotated") != before.get("rotated"):
            message = "an imported Space's credentials are its user's: put new ones into its Secret"
            self._events.append(Tell("Warning", "CannotRotate", message))
        refused = self.probed is not None and self.probed.is_refused
        return TROUBLE_SECONDS if credentials.problem or refused else None

    async def _read_credentials(self, space: Object) -> ImportedCredentials:
        secrets: dict[str, Object | None] = {}
        for viewpoint, reference in references(space).items():
            if not why_not_readable(space, reference):
                secrets[viewpoint] = await self._secret(reference["name"])
        return credentials_of(space, secrets)

    async def _secret(self, name: str) -> Object | None:
        try:
            return await self._around.hub.get(SECRETS.resource, name, self._key[0])
        except NotFound:
            return None

    # The Space is being deleted.

    async def _going(self, space: Object) -> float | None:
        if spaces.FINALIZER not in (space["metadata"].get("finalizers") or ()):
            await self._set_finalizers(space, keep=False)
            return None
        if is_forgotten(space):
            await self._drop_record()
            reason, message = "Forgotten", "it is let go; what it stands for was not touched"
        elif await self._lives(space) and await self._write_record(space):
            reason, message = (
                "MadeAnew",
                (
                    "what it stands for lives, so the Space is made anew; to let it go for good, annotate it with "
                    f"{spaces.FORGET}=true before it is deleted"
                ),
            )
        else:
            await self._drop_record()
            reason, message = "LetGo", "what it stands for cannot be reached with its credentials"
        await self._set_finalizers(space, keep=False)
        self._events.append(Tell("Normal", reason, message))
        return None

    async def _lives(self, space: Object) -> bool:
        credentials = await self._read_credentials(space)
        if not credentials.contents:
            return False
        result = await self._probe(
            credentials.contents, f"the kubeconfig of space {'/'.join(self._key)}"
        )
        return result.lives

    async def _write_record(self, space: Object) -> bool:
        """Create the record. :return: whether it exists."""
        if self._record is not None:
            return True
        form = record_of(space)
        try:
            self._record = await self._around.hub.create(SECRETS.resource, form, self._key[0])
        except AlreadyExists:
            existing = await self._secret(record_name(self._key[1]))
            self._record = existing if existing is not None and is_record(existing) else None
        except APIError as error:
            if error.code not in _NO_PLACE:
                raise
        return self._record is not None

    async def _set_finalizers(self, space: Object, *, keep: bool) -> Object:
        current = list(space["metadata"].get("finalizers") or ())
        ours = (spaces.FINALIZER, spaces.OLD_FINALIZER)
        desired = [each for each in current if each not in ours]
        if keep:
            desired = [each for each in current if each != spaces.OLD_FINALIZER]
            desired += [] if spaces.FINALIZER in desired else [spaces.FINALIZER]
        if desired == current:
            return space
        metadata = space["metadata"]
        named = {"resourceVersion": metadata["resourceVersion"], "uid": metadata["uid"]}
        patch = {"metadata": {**named, "finalizers": desired}}
        self.space = await self._there(
            self._around.hub.patch(spaces.SPACES, self._key[1], patch, self._key[0])
        )
        return self.space

    async def _there(self, request: Awaitable[Object]) -> Object:
        try:
            return await request
        except NotFound:
            raise SpaceChanged from None

    # The Space is gone.

    async def _make_anew(self) -> float | None:
        if self._record is None:
            return None
        space = made_anew(self._record)
        if space is not None:
            try:
                await self._around.hub.create(spaces.SPACES, space, self._key[0])
            except AlreadyExists:
                pass  # a user was faster, or we created it before
            except APIError as error:
                if error.code not in _NO_PLACE:
                    raise
        await self._drop_record()
        return None

    async def _drop_record(self) -> None:
        if self._record is not None:
            await delete_ours(self._around.hub, self._record)
            self._record = None
