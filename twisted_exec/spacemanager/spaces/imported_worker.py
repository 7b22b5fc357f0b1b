"""
The work on one imported Space, once; see :mod:`.imported` for what it is about.

Each step leaves what the next one needs, so that whoever is killed behind any of them is no harm.
"""

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
from twisted_exec.kube.informers.reflector import Key
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.probes.probe import Probe
from twisted_exec.spacemanager.probes.verdicts import ProbeResult
from twisted_exec.spacemanager.spaces import imported
from twisted_exec.spacemanager.spaces.status import events
from twisted_exec.spacemanager.spaces.steps import Tell
from twisted_exec.spacemanager.spaces.worker import SpaceChanged, SpaceContext, delete_ours

TROUBLE_SECONDS = 15.0
"""Until the Secrets of a Space are read again that could not be used, or whose credentials are refused."""
_NO_PLACE = (Forbidden.code, NotFound.code, Invalid.code, BadRequest.code)
"""What is answered in a namespace that is being deleted, or of what is no Space any more."""


class ImportedWorker:
    """
    :param key: namespace and name.
    :param space: as last seen; ``None`` when it is not there.
    :param record: of what is to be made anew, as last seen; ``None`` when there is none.
    :param probe: looks now, whatever was found before.
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
        self._told: list[Tell] = []

    async def run(self) -> float | None:
        """
        :return: when to look again, in seconds; ``None`` when somebody will say so.
        :raises APIError: something could not be done: to be tried again.
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
                for each in self._told:
                    self._around.record(self.space, each.type, each.reason, each.message)

    # It is there.

    async def _keep(self, space: Object) -> float | None:
        await self._drop_record()
        space = await self._set_finalizers(space, keep=True)
        told = await self._given(space)
        what = f"the kubeconfig of space {'/'.join(self._key)}"
        phase = (space.get("status") or {}).get("Phase")
        self.probed = self._around.probes.look(
            self._key, told.contents, what, f"/{self._key[0]}", was_well=phase == spaces.READY
        )
        before = space.get("status") or {}
        after = imported.status_of(space, told, self.probed, self._around.now())
        if after != before:
            stored = {**space, "status": after}
            self.space = await self._there(
                self._around.hub.update(spaces.SPACES, stored, self._key[0], subresource="status")
            )
        self._told += events(before, after)
        if after.get("rotated") != before.get("rotated"):
            asked = "an imported Space's credentials are its user's: put new ones into its Secret"
            self._told.append(Tell("Warning", "CannotRotate", asked))
        refused = self.probed is not None and self.probed.is_refused
        return TROUBLE_SECONDS if told.problem or refused else None

    async def _given(self, space: Object) -> imported.ImportedCredentials:
        found: dict[str, Object | None] = {}
        for viewpoint, reference in imported.references(space).items():
            if not imported.elsewhere(space, reference):
                found[viewpoint] = await self._secret(reference["name"])
        return imported.given(space, found)

    async def _secret(self, name: str) -> Object | None:
        try:
            return await self._around.hub.get(SECRETS.resource, name, self._key[0])
        except NotFound:
            return None

    # It is being deleted.

    async def _going(self, space: Object) -> float | None:
        if spaces.FINALIZER not in (space["metadata"].get("finalizers") or ()):
            await self._set_finalizers(space, keep=False)
            return None
        if imported.is_forgotten(space):
            await self._drop_record()
            reason, told = "Forgotten", "it is let go; what it stands for was not touched"
        elif await self._lives(space) and await self._write_record(space):
            reason, told = (
                "MadeAnew",
                (
                    "what it stands for lives, so the Space is made anew; to let it go for good, annotate it with "
                    f"{spaces.FORGET}=true before it is deleted"
                ),
            )
        else:
            await self._drop_record()
            reason, told = "LetGo", "what it stands for cannot be reached with its credentials"
        await self._set_finalizers(space, keep=False)
        self._told.append(Tell("Normal", reason, told))
        return None

    async def _lives(self, space: Object) -> bool:
        told = await self._given(space)
        if not told.contents:
            return False
        found = await self._probe(told.contents, f"the kubeconfig of space {'/'.join(self._key)}")
        return found.lives

    async def _write_record(self, space: Object) -> bool:
        """:return: whether it is there now; not in a namespace that is going itself."""
        if self._record is not None:
            return True
        form = imported.record_of(space)
        try:
            self._record = await self._around.hub.create(SECRETS.resource, form, self._key[0])
        except AlreadyExists:
            found = await self._secret(imported.record_name(self._key[1]))
            self._record = found if found is not None and imported.is_record(found) else None
        except APIError as error:
            if error.code not in _NO_PLACE:
                raise
        return self._record is not None

    async def _set_finalizers(self, space: Object, *, keep: bool) -> Object:
        known = list(space["metadata"].get("finalizers") or ())
        ours = (spaces.FINALIZER, spaces.OLD_FINALIZER)
        wanted = [each for each in known if each not in ours]
        if keep:
            wanted = [each for each in known if each != spaces.OLD_FINALIZER]
            wanted += [] if spaces.FINALIZER in wanted else [spaces.FINALIZER]
        if wanted == known:
            return space
        metadata = space["metadata"]
        named = {"resourceVersion": metadata["resourceVersion"], "uid": metadata["uid"]}
        patch = {"metadata": {**named, "finalizers": wanted}}
        self.space = await self._there(
            self._around.hub.patch(spaces.SPACES, self._key[1], patch, self._key[0])
        )
        return self.space

    async def _there(self, asked: Awaitable[Object]) -> Object:
        try:
            return await asked
        except NotFound:
            raise SpaceChanged from None

    # It is gone.

    async def _make_anew(self) -> float | None:
        if self._record is None:
            return None
        wanted = imported.made_anew(self._record)
        if wanted is not None:
            try:
                await self._around.hub.create(spaces.SPACES, wanted, self._key[0])
            except AlreadyExists:
                pass  # somebody was faster, and theirs counts; or it is ours, made before
            except APIError as error:
                if error.code not in _NO_PLACE:
                    raise
        await self._drop_record()
        return None

    async def _drop_record(self) -> None:
        if self._record is not None:
            await delete_ours(self._around.hub, self._record)
            self._record = None
