"""
The steps of a plan for one Space of a provider, done: in the hub, and by the provider's adaptor.

What is there is looked at, planned, and changed, in turns, until there is nothing left to do but to write the
status.  Everything in the hub is written under the version that it was decided on: what somebody else has
changed meanwhile is looked at anew.  Before the adaptor is told to make something the Space is read once more,
for a copy may be late.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from twisted_exec.api import spaces
from twisted_exec.api.kinds.secrets import SECRETS, value_of
from twisted_exec.api.status import AlreadyExists, APIError, BadRequest, Conflict, Invalid, NotFound
from twisted_exec.kube.informers.reflector import Backoff, Key
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.spacemanager.interfaces import (
    USABLE,
    IProviderView,
    IRotatesCredentials,
    Physical,
    ProviderCondition,
    SpaceInfo,
    SpaceRequest,
)
from twisted_exec.spacemanager.probes.schedule import ProbeSchedule
from twisted_exec.spacemanager.probes.verdicts import ProbeResult
from twisted_exec.spacemanager.spaces import plan as plans
from twisted_exec.spacemanager.spaces import secrets
from twisted_exec.spacemanager.spaces import steps as acts
from twisted_exec.spacemanager.spaces.naming import physical_of, provider_of
from twisted_exec.spacemanager.spaces.status import cannot_rotate, events, intended, status_of

MAX_TURNS = 16
"""Of looking and doing, before another Space is looked at."""
SETTLE_SECONDS = 600.0
"""Between two renewals of credentials that nobody has asked for."""
LONGEST_LOOK_SECONDS = 30.0
"""Between two looks at what goes on by itself."""
FRESH_SECONDS = 300.0
"""How long an answer counts of an adaptor that does not tell versions."""

_REFUSALS = (BadRequest.code, Invalid.code)
"""What an adaptor says of names that there can be none of: that is the Space's fault, not its provider's."""

_ADAPTOR = (acts.Create, acts.Delete, acts.Rotate)

Record = Callable[[Object, str, str, str], None]
"""Tells an Event about a Space: the object, type, reason and message."""


def pauses(rng: random.Random | None = None) -> Backoff:
    """Between two looks at what goes on by itself."""
    return Backoff(plans.SOON_SECONDS, LONGEST_LOOK_SECONDS, rng)


@dataclass
class SpaceMemory:
    """
    What is remembered of one Space; nothing depends on it but how often is asked.

    :ivar told: by the adaptor; ``told_at`` seconds of the clock.
    :ivar rotated_at: when its credentials were renewed.
    """

    told: SpaceInfo | None = None
    told_at: float = 0.0
    rotated_at: float | None = None
    probed: ProbeResult | None = None
    backoff: Backoff = field(default_factory=pauses)


@dataclass(frozen=True)
class SpaceContext:
    """
    What the work on all Spaces shares.

    :param secret: one of the manager's own, as last seen, by namespace and name.
    :param rival: the other Space that stands for the same and was first; or empty.
    :param now: seconds since the epoch.
    """

    hub: IKubeClient
    clock: Any
    now: Callable[[], float]
    secret: Callable[[str, str], Object | None]
    rival: Callable[[Object], str]
    probes: ProbeSchedule
    record: Record


class SpaceChanged(Exception):
    """There is no such Space any more."""


class SpaceWorker:
    """
    The work on one Space, once.

    :param space: as last seen.
    :param view: its provider; ``None`` when there is none.
    :ivar space: as it is now.
    :ivar probed: what is known of its credentials.
    """

    def __init__(
        self, around: SpaceContext, space: Object, view: IProviderView | None, memory: SpaceMemory
    ) -> None:
        self.space = space
        self.probed: ProbeResult | None = None
        self._around, self._view, self._memory = around, view, memory
        metadata = space["metadata"]
        self._namespace, self._name = metadata["namespace"], metadata["name"]
        self._key: Key = (self._namespace, self._name)
        self._secrets = {
            each: around.secret(self._namespace, spaces.secret_name(self._name, each))
            for each in spaces.VIEWPOINTS
        }
        self._answer: plans.Answer = None
        self._is_asked = False
        self._trouble: APIError | None = None
        self._refused: plans.Refused | None = None
        self._done: set[type] = set()
        self._told: list[acts.Tell] = []

    async def run(self) -> float | None:
        """
        :return: when to look again, in seconds; ``None`` when somebody will say so.
        :raises APIError: something could not be done: to be tried again.
        """
        try:
            if self._view is None and await self._is_known():
                return None  # its provider is about to be there, and tells when
            again = await self._turns()
        except SpaceChanged:
            return None
        finally:
            for each in self._told:
                self._around.record(self.space, each.type, each.reason, each.message)
        trouble = self._trouble or (self._refused.error if self._refused else None)
        if trouble is not None:
            raise trouble
        return again

    async def _turns(self) -> float | None:
        for _ in range(MAX_TURNS):
            seen = await self._look()
            planned = plans.plan(seen)
            if planned.steps:
                await self._steps(planned.steps)
            elif planned.is_over:
                return None
            elif await self._write(seen, planned):
                return self._again(seen, planned)
        return plans.SOON_SECONDS

    # What is there.

    async def _is_known(self) -> bool:
        """Whether there is a SpaceProviderDesc after all, and whoever keeps providers has not got to it."""
        name = provider_of(self.space)
        if not name:
            return False
        try:
            await self._around.hub.get(spaces.PROVIDERS, name)
        except NotFound:
            return False
        return True

    async def _look(self) -> plans.Observation:
        provider = self._provider()
        if not self._is_asked and plans.asks(self.space, provider):
            await self._ask()
            provider = self._provider()
        self.probed = self._probe(provider)
        rotated = self._memory.rotated_at
        return plans.Observation(
            space=self.space,
            provider=provider,
            answer=self._answer,
            secrets=dict(self._secrets),
            probed=self.probed,
            refused=self._refused,
            done=frozenset(self._done),
            is_settled=rotated is None or self._seconds() - rotated > SETTLE_SECONDS,
            rival=self._around.rival(self.space),
            now=self._around.now(),
        )

    def _provider(self) -> plans.Provider:
        name, view = provider_of(self.space), self._view
        if view is None:
            look = ProviderCondition(
                "False", "NoProvider", f'there is no SpaceProviderDesc "{name}"'
            )
            return plans.Provider(name, is_there=False, is_usable=False, reachable=look)
        physical = physical_of(self.space)
        look, credentials = view.reachable, view.credentials
        refusal = ""
        if self._trouble is not None and self._trouble.code in _REFUSALS:
            refusal = self._trouble.message
        elif self._trouble is not None:
            look = ProviderCondition("Unknown", "NotAnswered", self._trouble.message)
        well = look.status == "True" and credentials.status != "False"
        if look.status == "True" and not well:
            look = replace(credentials, status="True")
        return plans.Provider(
            name,
            is_usable=view.provider is not None and well,
            reachable=look,
            passes=view.passes(physical),
            is_gone=view.gone(physical),
            rotates=IRotatesCredentials.providedBy(view.provider),
            refusal=refusal,
        )

    async def _ask(self) -> None:
        """What the adaptor tells now, or told a moment ago of what has not changed since."""
        assert self._view is not None
        self._is_asked, physical = True, physical_of(self.space)
        if (known := self._remembered(physical)) is not None:
            self._answer = known
            return
        try:
            self._answer = self._memory.told = await self._view.provider.get(physical)
            self._memory.told_at = self._seconds()
        except NotFound:
            self._answer, self._memory.told = plans.ABSENT, None
        except APIError as error:
            self._answer, self._trouble = None, error

    def _remembered(self, physical: Physical) -> SpaceInfo | None:
        told, probed = self._memory.told, self._around.probes
        if told is None or told.physical != physical or told.state != USABLE:
            return None
        assert self._view is not None
        if self._done or self.space["metadata"].get("deletionTimestamp"):
            return None
        if not told.version:
            return told if self._seconds() - self._memory.told_at < FRESH_SECONDS else None
        listed = self._view.spaces().get(physical)
        same = listed is not None and listed.version == told.version
        return told if same and not probed.is_refused(self._key) else None

    def _probe(self, provider: plans.Provider) -> ProbeResult | None:
        contents = {}
        for viewpoint, secret in self._secrets.items():
            if secret is not None and self._is_mine(secret):
                content = value_of(secret, spaces.KUBECONFIG_KEY)
                if content:
                    contents[viewpoint] = content
        known = (self.space.get("status") or {}).get("Phase")
        what = f"the kubeconfig of space {self._namespace}/{self._name}"
        was_well = known == spaces.READY and self._memory.probed is None
        is_away = isinstance(self._answer, SpaceInfo) and self._answer.state != USABLE
        found = self._around.probes.look(
            self._key,
            contents,
            what,
            provider.name,
            was_well=was_well and not self._done,
            is_away=is_away,
        )
        self._memory.probed = found
        return found

    def _is_mine(self, secret: Object) -> bool:
        uid = self.space["metadata"]["uid"]
        return secrets.claim(secret, self._name, uid) == secrets.MINE

    # What is done.

    async def _steps(self, steps: Sequence[acts.Step]) -> None:
        for step in steps:
            try:
                await self._step(step)
            except Conflict:
                await self._read()  # somebody was faster: look anew
                return
            except APIError as error:
                self._refused = plans.Refused(step, error)
                return
            self._done.add(type(step))

    async def _step(self, step: acts.Step) -> None:
        if isinstance(step, acts.Tell):
            self._told.append(step)
        elif isinstance(step, acts.LookAgain):
            assert self._view is not None
            self._view.look_again(physical_of(self.space))
        elif isinstance(step, _ADAPTOR):
            await self._by_adaptor(step)
        elif isinstance(step, acts.WriteSecret):
            await self._write_secret(step)
        elif isinstance(step, acts.DeleteSecret):
            await self._delete_secret(step.viewpoint)
        else:
            await self._in_hub(step)

    async def _in_hub(self, step: acts.SetFinalizers | acts.Intend | acts.DeleteSpace) -> None:
        hub, metadata = self._around.hub, self.space["metadata"]
        if isinstance(step, acts.DeleteSpace):
            await self._gone(
                hub.delete(spaces.SPACES, self._name, self._namespace, uid=metadata["uid"])
            )
        elif isinstance(step, acts.SetFinalizers):
            named = {"resourceVersion": metadata["resourceVersion"], "uid": metadata["uid"]}
            patch = {"metadata": {**named, "finalizers": list(step.finalizers)}}
            self.space = await self._gone(
                hub.patch(spaces.SPACES, self._name, patch, self._namespace)
            )
        else:
            status = intended(self.space, step.physical, self._around.now())
            await self._put_status(status)

    async def _gone(self, asked: Awaitable[Object]) -> Object:
        """What the hub answers; one that is gone is no failure."""
        try:
            return await asked
        except NotFound:
            raise SpaceChanged from None

    async def _by_adaptor(self, step: acts.Create | acts.Delete | acts.Rotate) -> None:
        assert self._view is not None
        physical, uid = physical_of(self.space), self.space["metadata"]["uid"]
        provider, self._is_asked = self._view.provider, False
        if isinstance(step, acts.Delete):
            await self._delete(physical, uid)
        elif isinstance(step, acts.Rotate):
            if not plans.asked_to_rotate(self.space):
                self._memory.rotated_at = self._seconds()
            await IRotatesCredentials(provider).rotate(physical)
            self._told.append(acts.Tell("Normal", "Rotated", "new credentials were made"))
        else:
            await self._create(physical, uid)
        self._memory.told = None
        self._view.look_again(physical)

    async def _create(self, physical: Physical, uid: str) -> None:
        await self._confirm()
        assert self._view is not None
        parameters = (self.space.get("spec") or {}).get("parameters") or {}
        try:
            await self._view.provider.create(physical, SpaceRequest(uid, dict(parameters)))
        except AlreadyExists:
            await self._ask_whose(physical, uid)

    async def _ask_whose(self, physical: Physical, uid: str) -> None:
        """It was there a moment ago, so the next look tells whose it is; unless it is gone again."""
        assert self._view is not None
        found = await self._view.provider.get(physical)
        if found.owner == uid:
            told = f"physical space {physical} is ours, and its provider says that it is not"
            raise APIError(told, code=500, reason="InternalError")

    async def _delete(self, physical: Physical, uid: str) -> None:
        assert self._view is not None
        try:
            await self._view.provider.delete(physical, uid)
        except Conflict:
            # The adaptor's word counts: it is not ours.
            if isinstance(self._answer, SpaceInfo):
                self._answer, self._is_asked = replace(self._answer, owner=""), True

    async def _confirm(self) -> None:
        """Go on only if the Space is as it was when this was decided."""
        before = self.space["metadata"]
        found = await self._gone(self._around.hub.get(spaces.SPACES, self._name, self._namespace))
        now = found["metadata"]
        if now["uid"] != before["uid"]:
            raise SpaceChanged
        if now.get("deletionTimestamp") and not before.get("deletionTimestamp"):
            raise Conflict(f'space "{self._name}" is being deleted')

    async def _read(self) -> None:
        """The Space and its Secrets as they are, for a copy may be late."""
        hub, uid = self._around.hub, self.space["metadata"]["uid"]
        self.space = await self._gone(hub.get(spaces.SPACES, self._name, self._namespace))
        if self.space["metadata"]["uid"] != uid:
            raise SpaceChanged
        for viewpoint in spaces.VIEWPOINTS:
            await self._read_secret(viewpoint)

    async def _read_secret(self, viewpoint: str) -> None:
        name = spaces.secret_name(self._name, viewpoint)
        try:
            found = await self._around.hub.get(SECRETS.resource, name, self._namespace)
        except NotFound:
            self._secrets[viewpoint] = None
        else:
            self._secrets[viewpoint] = found

    async def _write_secret(self, step: acts.WriteSecret) -> None:
        hub, before = self._around.hub, self._secrets[step.viewpoint]
        narrow = secrets.secret_content(step.access, step.viewpoint, self._name)
        form = secrets.form(narrow, step.viewpoint, self.space, before, self._around.now())
        try:
            if before is None:
                stored = await hub.create(SECRETS.resource, form, self._namespace)
            else:
                stored = await hub.update(SECRETS.resource, form, self._namespace)
        except (AlreadyExists, NotFound) as error:
            known = self._secrets[step.viewpoint]
            await self._read_secret(step.viewpoint)
            if self._secrets[step.viewpoint] == known:
                raise error  # such as of a namespace that is not there
        else:
            self._secrets[step.viewpoint] = stored

    async def _delete_secret(self, viewpoint: str) -> None:
        secret = self._secrets[viewpoint]
        if secret is not None:
            await delete_ours(self._around.hub, secret)
            self._secrets[viewpoint] = None

    # What is told.

    async def _write(self, seen: plans.Observation, planned: plans.Plan) -> bool:
        """:return: whether it is written; if not, it is to be looked at anew."""
        before, after = self.space.get("status") or {}, status_of(seen, planned)
        if after != before:
            self._memory.backoff.reset()
            try:
                await self._put_status(after)
            except Conflict:
                await self._read()
                return False
        self._told += events(before, after)
        cannot = cannot_rotate(seen)
        if cannot is not None:
            self._told.append(cannot)
        return True

    async def _put_status(self, status: Object) -> None:
        told = {**self.space, "status": status}
        self.space = await self._gone(
            self._around.hub.update(spaces.SPACES, told, self._namespace, subresource="status")
        )

    def _again(self, seen: plans.Observation, planned: plans.Plan) -> float | None:
        times: list[float | None] = []
        if planned.again_seconds is not None:
            times.append(max(planned.again_seconds, self._memory.backoff.pause()))
        if isinstance(seen.answer, SpaceInfo) and seen.provider.rotates:
            times.append(plans.renewal_seconds(seen, seen.answer))
        if isinstance(seen.answer, SpaceInfo) and not seen.answer.version:
            times.append(FRESH_SECONDS)
        return min((each for each in times if each is not None), default=None)

    def _seconds(self) -> float:
        return float(self._around.clock.seconds())


async def delete_ours(hub: IKubeClient, obj: Object) -> None:
    """
    Delete a Secret that was found to be ours; one that is gone, or another by now, is no failure.
    """
    metadata = obj["metadata"]
    try:
        await hub.delete(
            SECRETS.resource, metadata["name"], metadata["namespace"], uid=metadata["uid"]
        )
    except (NotFound, Conflict):
        pass
