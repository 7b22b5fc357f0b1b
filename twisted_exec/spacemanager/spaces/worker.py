"""
The worker for one Space: carries out the steps of its plan.

The worker rereads the Space before it creates a physical space, because its copy may be outdated.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from twisted.internet.interfaces import IReactorTime

from twisted_exec.api import spaces
from twisted_exec.api.kinds.secrets import SECRETS, value_of
from twisted_exec.api.status import AlreadyExists, APIError, BadRequest, Conflict, Invalid, NotFound
from twisted_exec.control.backoff import Backoff
from twisted_exec.kube.informers import Key
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
from twisted_exec.spacemanager.spaces import observation as acts
from twisted_exec.spacemanager.spaces import secrets
from twisted_exec.spacemanager.spaces.naming import physical_of, provider_of
from twisted_exec.spacemanager.spaces.observation import (
    ABSENT,
    SOON_SECONDS,
    Answer,
    ProbeResult,
    Provider,
    RefusedStep,
    SpaceObservation,
)
from twisted_exec.spacemanager.spaces.plan import (
    SpacePlan,
    asked_to_rotate,
    asks,
    plan,
    renewal_seconds,
)
from twisted_exec.spacemanager.spaces.probe_schedule import ProbeSchedule
from twisted_exec.spacemanager.spaces.status import cannot_rotate, events, intended, status_of

MAX_TURNS = 16
"""Most rounds of planning in one run; the next run follows after :data:`SOON_SECONDS`."""
SETTLE_SECONDS = 600.0
"""Minimum interval between automatic rotations by one leader."""
LONGEST_LOOK_SECONDS = 30.0
"""Maximum interval for polling a change under way."""
FRESH_SECONDS = 300.0
"""Validity of an answer from a provider without versions."""

_REFUSALS = (BadRequest.code, Invalid.code)
"""Errors for impossible names, which are the Space's fault, not the provider's."""

_PROVIDER_STEPS = (acts.Create, acts.Delete, acts.Rotate)

Record = Callable[[Object, str, str, str], None]
"""Records an Event about a Space, with type, reason and message."""


def pauses(rng: random.Random | None = None) -> Backoff:
    """Return the growing intervals for polling a change under way."""
    return Backoff(SOON_SECONDS, LONGEST_LOOK_SECONDS, rng)


@dataclass
class SpaceMemory:
    """
    Memory about one Space, which saves requests.

    :ivar answer: last answer of the provider, at ``answered_at`` seconds of the clock.
    """

    answer: SpaceInfo | None = None
    answered_at: float = 0.0
    rotated_at: float | None = None
    probed: ProbeResult | None = None
    backoff: Backoff = field(default_factory=pauses)


@dataclass(frozen=True)
class SpaceContext:
    """
    Resources that all workers share.

    :param now: seconds since the epoch.
    """

    hub: IKubeClient
    clock: IReactorTime
    now: Callable[[], float]
    secret: Callable[[str, str], Object | None]
    rival: Callable[[Object], str]
    probes: ProbeSchedule
    record: Record


class SpaceChanged(Exception):
    """The Space no longer exists, or was replaced."""


class SpaceWorker:
    """Processes one Space."""

    def __init__(
        self, context: SpaceContext, space: Object, view: IProviderView | None, memory: SpaceMemory
    ) -> None:
        self.space = space
        self.probed: ProbeResult | None = None
        self._context, self._view, self._memory = context, view, memory
        metadata = space["metadata"]
        self._namespace, self._name = metadata["namespace"], metadata["name"]
        self._key: Key = (self._namespace, self._name)
        self._secrets = {
            each: context.secret(self._namespace, spaces.secret_name(self._name, each))
            for each in spaces.VIEWPOINTS
        }
        self._answer: Answer = None
        self._is_asked = False
        self._trouble: APIError | None = None
        self._refused: RefusedStep | None = None
        self._done: set[type] = set()
        self._events: list[acts.Tell] = []

    async def run(self) -> float | None:
        """
        Process the Space.

        :return: seconds until the next check; ``None`` to wait for events.
        """
        try:
            if self._view is None and await self._is_known():
                return None  # the provider's view will appear, and trigger the next run
            again = await self._turns()
        except SpaceChanged:
            return None
        finally:
            for each in self._events:
                self._context.record(self.space, each.type, each.reason, each.message)
        trouble = self._trouble or (self._refused.error if self._refused else None)
        if trouble is not None:
            raise trouble
        return again

    async def _turns(self) -> float | None:
        for _ in range(MAX_TURNS):
            observation = await self._look()
            planned = plan(observation)
            if planned.steps:
                await self._steps(planned.steps)
            elif planned.is_over:
                return None
            elif await self._write(observation, planned):
                return self._again(observation, planned)
        return SOON_SECONDS

    # Observing.

    async def _is_known(self) -> bool:
        name = provider_of(self.space)
        if not name:
            return False
        try:
            await self._context.hub.get(spaces.PROVIDERS, name)
        except NotFound:
            return False
        return True

    async def _look(self) -> SpaceObservation:
        provider = self._provider()
        if not self._is_asked and asks(self.space, provider):
            await self._ask()
            provider = self._provider()
        self.probed = self._probe(provider)
        rotated = self._memory.rotated_at
        return SpaceObservation(
            space=self.space,
            provider=provider,
            answer=self._answer,
            secrets=dict(self._secrets),
            probed=self.probed,
            refused=self._refused,
            done=frozenset(self._done),
            is_settled=rotated is None or self._seconds() - rotated > SETTLE_SECONDS,
            rival=self._context.rival(self.space),
            now=self._context.now(),
        )

    def _provider(self) -> Provider:
        name, view = provider_of(self.space), self._view
        if view is None:
            look = ProviderCondition(
                "False", "NoProvider", f'there is no SpaceProviderDesc "{name}"'
            )
            return Provider(name, is_there=False, is_usable=False, reachable=look)
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
        return Provider(
            name,
            is_usable=view.provider is not None and well,
            reachable=look,
            passes=view.passes(physical),
            is_gone=view.gone(physical),
            rotates=IRotatesCredentials.providedBy(view.provider),
            refusal=refusal,
        )

    async def _ask(self) -> None:
        assert self._view is not None
        self._is_asked, physical = True, physical_of(self.space)
        if (current := self._remembered(physical)) is not None:
            self._answer = current
            return
        try:
            self._answer = self._memory.answer = await self._view.provider.get(physical)
            self._memory.answered_at = self._seconds()
        except NotFound:
            self._answer, self._memory.answer = ABSENT, None
        except APIError as error:
            self._answer, self._trouble = None, error

    def _remembered(self, physical: Physical) -> SpaceInfo | None:
        answer, probed = self._memory.answer, self._context.probes
        if answer is None or answer.physical != physical or answer.state != USABLE:
            return None
        assert self._view is not None
        if self._done or self.space["metadata"].get("deletionTimestamp"):
            return None
        if not answer.version:
            return answer if self._seconds() - self._memory.answered_at < FRESH_SECONDS else None
        listed = self._view.spaces().get(physical)
        same = listed is not None and listed.version == answer.version
        return answer if same and not probed.is_refused(self._key) else None

    def _probe(self, provider: Provider) -> ProbeResult | None:
        contents = {}
        for viewpoint, secret in self._secrets.items():
            if secret is not None and self._is_mine(secret):
                content = value_of(secret, spaces.KUBECONFIG_KEY)
                if content:
                    contents[viewpoint] = content
        phase = (self.space.get("status") or {}).get("Phase")
        what = f"the kubeconfig of space {self._namespace}/{self._name}"
        # Without its provider, the physical space may have stopped since the last probe.
        was_well = phase == spaces.READY and self._memory.probed is None and provider.is_there
        is_away = not provider.is_there or (
            isinstance(self._answer, SpaceInfo) and self._answer.state != USABLE
        )
        result = self._context.probes.look(
            self._key,
            contents,
            what,
            provider.name,
            was_well=was_well and not self._done,
            is_away=is_away,
        )
        self._memory.probed = result
        return result

    def _is_mine(self, secret: Object) -> bool:
        uid = self.space["metadata"]["uid"]
        return secrets.claim(secret, self._name, uid) == secrets.MINE

    # Acting.

    async def _steps(self, steps: Sequence[acts.Step]) -> None:
        for step in steps:
            try:
                await self._step(step)
            except Conflict:
                await self._read()  # another writer was faster: observe again
                return
            except APIError as error:
                self._refused = RefusedStep(step, error)
                return
            self._done.add(type(step))

    async def _step(self, step: acts.Step) -> None:
        if isinstance(step, acts.Tell):
            self._events.append(step)
        elif isinstance(step, acts.LookAgain):
            assert self._view is not None
            self._view.look_again(physical_of(self.space))
        elif isinstance(step, _PROVIDER_STEPS):
            await self._at_provider(step)
        elif isinstance(step, acts.WriteSecret):
            await self._write_secret(step)
        elif isinstance(step, acts.DeleteSecret):
            await self._delete_secret(step.viewpoint)
        else:
            await self._in_hub(step)

    async def _in_hub(self, step: acts.SetFinalizers | acts.Intend | acts.DeleteSpace) -> None:
        hub, metadata = self._context.hub, self.space["metadata"]
        if isinstance(step, acts.DeleteSpace):
            await self._existing(
                hub.delete(spaces.SPACES, self._name, self._namespace, uid=metadata["uid"])
            )
        elif isinstance(step, acts.SetFinalizers):
            named = {"resourceVersion": metadata["resourceVersion"], "uid": metadata["uid"]}
            patch = {"metadata": {**named, "finalizers": list(step.finalizers)}}
            self.space = await self._existing(
                hub.patch(spaces.SPACES, self._name, patch, self._namespace)
            )
        else:
            status = intended(self.space, step.physical, self._context.now())
            await self._put_status(status)

    async def _existing(self, request: Awaitable[Object]) -> Object:
        try:
            return await request
        except NotFound:
            raise SpaceChanged from None

    async def _at_provider(self, step: acts.Create | acts.Delete | acts.Rotate) -> None:
        assert self._view is not None
        physical, uid = physical_of(self.space), self.space["metadata"]["uid"]
        provider, self._is_asked = self._view.provider, False
        if isinstance(step, acts.Delete):
            await self._delete(physical, uid)
        elif isinstance(step, acts.Rotate):
            if not asked_to_rotate(self.space):
                self._memory.rotated_at = self._seconds()
            await _refusable(IRotatesCredentials(provider).rotate(physical))
            self._events.append(acts.Tell("Normal", "Rotated", "new credentials were made"))
        else:
            await self._create(physical, uid)
        self._memory.answer = None
        self._view.look_again(physical)

    async def _create(self, physical: Physical, uid: str) -> None:
        await self._confirm()
        assert self._view is not None
        parameters = (self.space.get("spec") or {}).get("parameters") or {}
        try:
            request = SpaceRequest(uid, dict(parameters))
            await _refusable(self._view.provider.create(physical, request))
        except AlreadyExists:
            await self._ask_whose(physical, uid)

    async def _ask_whose(self, physical: Physical, uid: str) -> None:
        assert self._view is not None
        info = await self._view.provider.get(physical)
        if info.owner == uid:
            message = (
                f"the provider refuses to create physical space {physical} because it exists, although it"
                " belongs to this Space"
            )
            raise APIError(message, code=500, reason="InternalError")

    async def _delete(self, physical: Physical, uid: str) -> None:
        assert self._view is not None
        try:
            await self._view.provider.delete(physical, uid)
        except Conflict:
            # The provider decides: the physical space is not ours.
            if isinstance(self._answer, SpaceInfo):
                self._answer, self._is_asked = replace(self._answer, owner=""), True

    async def _confirm(self) -> None:
        before = self.space["metadata"]
        space = await self._existing(
            self._context.hub.get(spaces.SPACES, self._name, self._namespace)
        )
        now = space["metadata"]
        if now["uid"] != before["uid"]:
            raise SpaceChanged
        if now.get("deletionTimestamp") and not before.get("deletionTimestamp"):
            raise Conflict(f'space "{self._name}" is being deleted')

    async def _read(self) -> None:
        hub, uid = self._context.hub, self.space["metadata"]["uid"]
        self.space = await self._existing(hub.get(spaces.SPACES, self._name, self._namespace))
        if self.space["metadata"]["uid"] != uid:
            raise SpaceChanged
        for viewpoint in spaces.VIEWPOINTS:
            await self._read_secret(viewpoint)

    async def _read_secret(self, viewpoint: str) -> None:
        name = spaces.secret_name(self._name, viewpoint)
        try:
            secret = await self._context.hub.get(SECRETS.resource, name, self._namespace)
        except NotFound:
            self._secrets[viewpoint] = None
        else:
            self._secrets[viewpoint] = secret

    async def _write_secret(self, step: acts.WriteSecret) -> None:
        hub, before = self._context.hub, self._secrets[step.viewpoint]
        narrow = secrets.secret_content(step.access, step.viewpoint, self._name)
        form = secrets.form(narrow, step.viewpoint, self.space, before, self._context.now())
        try:
            if before is None:
                stored = await hub.create(SECRETS.resource, form, self._namespace)
            else:
                stored = await hub.update(SECRETS.resource, form, self._namespace)
        except (AlreadyExists, NotFound) as error:
            before_read = self._secrets[step.viewpoint]
            await self._read_secret(step.viewpoint)
            if self._secrets[step.viewpoint] == before_read:
                raise error  # for example, the namespace is missing
        else:
            self._secrets[step.viewpoint] = stored

    async def _delete_secret(self, viewpoint: str) -> None:
        secret = self._secrets[viewpoint]
        if secret is not None:
            await delete_ours(self._context.hub, secret)
            self._secrets[viewpoint] = None

    # Reporting.

    async def _write(self, observation: SpaceObservation, planned: SpacePlan) -> bool:
        """Write the status. :return: false after a conflict."""
        before, after = self.space.get("status") or {}, status_of(observation, planned)
        if after != before:
            self._memory.backoff.reset()
            try:
                await self._put_status(after)
            except Conflict:
                await self._read()
                return False
        self._events += events(before, after)
        cannot = cannot_rotate(observation)
        if cannot is not None:
            self._events.append(cannot)
        return True

    async def _put_status(self, status: Object) -> None:
        update = {**self.space, "status": status}
        self.space = await self._existing(
            self._context.hub.update(spaces.SPACES, update, self._namespace, subresource="status")
        )

    def _again(self, observation: SpaceObservation, planned: SpacePlan) -> float | None:
        times: list[float | None] = []
        if planned.again_seconds is not None:
            times.append(max(planned.again_seconds, self._memory.backoff.pause()))
        if isinstance(observation.answer, SpaceInfo) and observation.provider.rotates:
            times.append(renewal_seconds(observation, observation.answer))
        if isinstance(observation.answer, SpaceInfo) and not observation.answer.version:
            times.append(FRESH_SECONDS)
        return min((each for each in times if each is not None), default=None)

    def _seconds(self) -> float:
        return float(self._context.clock.seconds())


async def _refusable(answer: Awaitable[None]) -> None:
    """Turn a provider's Conflict into a refusal, because observing the hub again would not help."""
    try:
        await answer
    except Conflict as refused:
        raise APIError(refused.message, code=refused.code, reason=refused.reason) from None


async def delete_ours(hub: IKubeClient, obj: Object) -> None:
    """Delete a Secret of ours; a missing or replaced one is no failure."""
    metadata = obj["metadata"]
    try:
        await hub.delete(
            SECRETS.resource, metadata["name"], metadata["namespace"], uid=metadata["uid"]
        )
    except (NotFound, Conflict):
        pass
