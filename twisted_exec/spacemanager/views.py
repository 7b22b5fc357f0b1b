"""
View of one provider: its SpaceProviderDesc, its Secret, the provider itself, and the copy of its list.

The provider is recreated when its configuration, such as its Secret, has changed. With an unusable
Secret the current instance stays in use.

The physical spaces of a provider such as ``local`` or ``kind`` only exist on one host and
``--state-dir``; a manager elsewhere would create them a second time, empty. So the first manager
that uses such a provider records its place in the ``status``, and managers elsewhere report that
place instead of using the provider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.spaces import PROVIDERS
from twisted_exec.api.status import APIError
from twisted_exec.control.runs import StoppingParts
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.bounded import Bounded, CallMetrics, bounded
from twisted_exec.spacemanager.descs import (
    NOT_YET,
    DescSecret,
    InvalidDesc,
    ProviderConditions,
    filter_of,
    not_asked,
    prefix_of,
    secret_ref,
    spec_of,
)
from twisted_exec.spacemanager.interfaces import (
    IHostLocal,
    IProviderView,
    ISpaceProvider,
    MakeProvider,
    Physical,
    ProviderCondition,
    ProviderContext,
    ProviderSpec,
    SpaceInfo,
)
from twisted_exec.spacemanager.listing import ProviderCopy
from twisted_exec.spacemanager.place import PLACE, is_same, location_of, recorded_place

FOLLOWED = ProviderCondition("True", "Followed", "the spec is in force")
NOT_READ = ProviderCondition("Unknown", "SecretNotRead", "its Secret has not been read yet")


@dataclass(frozen=True)
class ProviderEnvironment:
    """Resources for the creation of providers."""

    around: ProviderContext
    makers: Mapping[str, MakeProvider]
    counting: CallMetrics


@implementer(IProviderView)
class ProviderView:
    """See :class:`IProviderView`."""

    _log = Logger()

    def __init__(
        self,
        desc: Object,
        environment: ProviderEnvironment,
        changed: Callable[[Physical | None], None],
        secret_changed: Callable[[], None],
    ) -> None:
        self.name: str = desc["metadata"]["name"]
        self.uid: str = desc["metadata"]["uid"]
        self.desc, self._prefix = desc, prefix_of(desc)
        self._passes = filter_of(self._prefix)
        self._environment, self._changed, self._secret_changed = (
            environment,
            changed,
            secret_changed,
        )
        self._clock: IReactorTime = environment.around.reactor
        self._ref: DescSecret | None = None
        self._secret: Reflector | None = None
        self._spec: ProviderSpec | None = None
        self._failed: ProviderSpec | None = None
        self._provider: Bounded | None = None
        self._copy: ProviderCopy | None = None
        self.synced = NOT_READ
        self._stopping = StoppingParts()
        self._stopped = False

    @property
    def provider(self) -> ISpaceProvider | None:
        return self._provider

    @property
    def looks(self) -> ProviderConditions:
        if self._copy is not None:
            return self._copy.looks
        if self.synced.status == "False":
            return not_asked(self.synced.reason, self.synced.message)
        return NOT_YET

    @property
    def reachable(self) -> ProviderCondition:
        return self.looks.reachable

    @property
    def credentials(self) -> ProviderCondition:
        return self.looks.credentials

    @property
    def listed(self) -> bool:
        return self._copy is not None and self._copy.listed

    def spaces(self) -> Mapping[Physical, SpaceInfo]:
        return self._copy.spaces() if self._copy is not None else {}

    def passes(self, physical: Physical) -> bool:
        return self._passes(physical.name)

    def gone(self, physical: Physical) -> bool:
        return self._copy is not None and self._copy.gone(physical)

    def look_again(self, physical: Physical | None = None) -> None:
        if self._copy is not None:
            self._copy.look_again(physical)

    def become(self, desc: Object) -> None:
        """Take a new version of the SpaceProviderDesc; :meth:`renew` updates the provider."""
        self.desc = desc
        if prefix_of(desc) != self._prefix:
            self._prefix = prefix_of(desc)
            self._passes = filter_of(self._prefix)
            self._changed(None)

    async def renew(self) -> None:
        try:
            await self._follow_secret(secret_ref(self.desc))
            if self._secret is not None and not self._secret.synced:
                self.synced = self._unread(self._secret)
                return
            spec = spec_of(self.desc, self._environment.makers, self._read())
            if spec != self._spec:
                await self._make(spec)
        except InvalidDesc as problem:
            await self._cannot(problem)
        else:
            self.synced = FOLLOWED

    async def stop(self) -> None:
        self._stopped = True
        await self._follow_secret(None)
        await self._let_go()
        await self._stopping.over()

    def _unread(self, secret: Reflector) -> ProviderCondition:
        if not secret.problem:
            return NOT_READ
        why = f"secret {self._ref} cannot be read: {secret.problem}"
        return ProviderCondition("False", "SecretNotRead", why)

    def _read(self) -> Object | None:
        if self._secret is None or self._ref is None:
            return None
        return self._secret.get(self._ref.name, self._ref.namespace)

    async def _follow_secret(self, ref: DescSecret | None) -> None:
        if ref == self._ref:
            return
        self._ref, before, self._secret = ref, self._secret, None
        if before is not None:
            await before.stop()
        if ref is None or self._stopped:
            return
        self._secret = Reflector(
            self._environment.around.hub,
            SECRETS.resource,
            self._clock,
            namespace=ref.namespace,
            field_selector=f"metadata.name={ref.name}",
            on_change=lambda before, after: self._secret_changed(),
        )
        self._secret.start()
        # A missing Secret causes no change event.
        self._secret.when_synced().addCallback(lambda _: self._secret_changed())

    async def _make(self, spec: ProviderSpec) -> None:
        make, around = self._environment.makers[spec.type], self._environment.around
        before = self.spaces()
        try:
            provider = make(spec, around)
        except APIError as error:
            raise InvalidDesc("AdaptorCannotBeMade", error.message) from None
        except Exception:
            if spec != self._failed:  # it is retried periodically
                self._log.failure("provider {name}: creating the provider failed", name=self.name)
            self._failed = spec
            why = "the provider cannot be created; see the log of the manager"
            raise InvalidDesc("AdaptorFailed", why) from None
        if IHostLocal.providedBy(provider):
            try:
                await self._claim()
            except (APIError, InvalidDesc):
                await bounded(provider, self.name, self._clock).close()
                raise
        await self._let_go()
        if self._stopped:
            await bounded(provider, self.name, self._clock).close()
            return
        instance = bounded(provider, self.name, self._clock, self._environment.counting)
        copy = ProviderCopy(self.name, instance, self._clock, self._changed, before)
        instance.listener = copy
        self._spec, self._provider, self._copy = spec, instance, copy
        self._log.info("provider {name}: in use ({type})", name=self.name, type=spec.type)
        self._changed(None)
        copy.start()

    async def _claim(self) -> None:
        """
        Record this host as the place of the physical spaces.

        :raises InvalidDesc: another place is recorded.
        """
        here, recorded = self._environment.around.place, recorded_place(self.desc)
        if recorded and not is_same(here, recorded):
            raise InvalidDesc(
                "KeptElsewhere",
                f"its physical spaces are at {location_of(recorded)}, and this manager's are at {location_of(here)}: let "
                "the manager there lead, or move that directory here (--state-dir); to abandon them, remove "
                f"status.{PLACE}",
            )
        if recorded:
            return
        version = self.desc["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "status": {PLACE: here}}
        hub = self._environment.around.hub
        self.desc = await hub.patch(PROVIDERS, self.name, patch, subresource="status")

    async def _cannot(self, problem: InvalidDesc) -> None:
        if problem.why != self.synced.message:
            self._log.warn("provider {name}: {why}", name=self.name, why=problem.why)
        self.synced = ProviderCondition("False", problem.reason, problem.why)
        keeps = problem.reason in ("SecretCannotBeUsed", "AdaptorCannotBeMade", "AdaptorFailed")
        if not keeps and self._provider is not None:
            await self._let_go()
            self._changed(None)

    async def _let_go(self) -> None:
        instance, copy = self._provider, self._copy
        self._provider = self._copy = self._spec = None
        if instance is None or copy is None:
            return
        self._stopping.add(Deferred.fromCoroutine(_closed(instance, copy)))
        over: Deferred[None] = Deferred()  # the waiting may be cancelled, the closing may not
        self._stopping.over().addCallback(lambda _: over.callback(None))
        await over


async def _closed(instance: Bounded, copy: ProviderCopy) -> None:
    await copy.stop()
    await instance.close()
