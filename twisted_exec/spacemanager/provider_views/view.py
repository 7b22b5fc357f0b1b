"""
One provider as the manager knows it: its SpaceProviderDesc, its Secret, its adaptor, its copy.

The adaptor is made anew when what it is made of has changed, such as its Secret; the old one is closed first.
What the old one told stays until the new one tells.  A Secret that cannot be used leaves the adaptor in force
that there is; one that is gone takes it along.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.spaces import PROVIDERS
from twisted_exec.api.status import APIError
from twisted_exec.kube.informers.reflector import Reflector
from twisted_exec.kube.interfaces import Object
from twisted_exec.program.tasks import Stopping
from twisted_exec.spacemanager.host_place import PLACE, is_same, recorded_place, shown
from twisted_exec.spacemanager.interfaces import (
    Around,
    IKeptHere,
    IProviderView,
    ISpaceProvider,
    Look,
    MakeProvider,
    Physical,
    ProviderSpec,
    SpaceInfo,
)
from twisted_exec.spacemanager.provider_views.bounded import Bounded, CallMetrics, bounded
from twisted_exec.spacemanager.provider_views.conditions import NOT_YET, Looks, not_asked
from twisted_exec.spacemanager.provider_views.desc import (
    NoSpec,
    SecretRef,
    filter_of,
    prefix_of,
    secret_ref,
    spec_of,
)
from twisted_exec.spacemanager.provider_views.listing import ProviderCopy

FOLLOWED = Look("True", "Followed", "what this SpaceProviderDesc says is in force")
NOT_READ = Look("Unknown", "SecretNotRead", "its Secret was not read yet")


@dataclass(frozen=True)
class ProviderEnvironment:
    """
    What views make adaptors of, and with.

    :param makers: by type.
    """

    around: Around
    makers: Mapping[str, MakeProvider]
    counting: CallMetrics


@implementer(IProviderView)
class ProviderView:
    """
    :param changed: called with what has become other; ``None`` for anything.
    :param secret_changed: called when :meth:`renew` is worth it.
    :ivar looks: how it went when the provider was asked last.
    :ivar synced: condition Synced, as far as it is about the SpaceProviderDesc and its Secret.
    """

    _log = Logger()

    def __init__(
        self,
        desc: Object,
        workshop: ProviderEnvironment,
        changed: Callable[[Physical | None], None],
        secret_changed: Callable[[], None],
    ) -> None:
        self.name: str = desc["metadata"]["name"]
        self.uid: str = desc["metadata"]["uid"]
        self.desc, self._prefix = desc, prefix_of(desc)
        self._passes = filter_of(self._prefix)
        self._workshop, self._changed, self._secret_changed = workshop, changed, secret_changed
        self._clock: Any = workshop.around.reactor
        self._ref: SecretRef | None = None
        self._secret: Reflector | None = None
        self._spec: ProviderSpec | None = None
        self._failed: ProviderSpec | None = None
        self._adaptor: Bounded | None = None
        self._copy: ProviderCopy | None = None
        self.synced = NOT_READ
        self._stopping = Stopping()
        self._stopped = False

    @property
    def provider(self) -> ISpaceProvider | None:
        """See :class:`IProviderView`."""
        return self._adaptor

    @property
    def looks(self) -> Looks:
        if self._copy is not None:
            return self._copy.looks
        if self.synced.status == "False":
            return not_asked(self.synced.reason, self.synced.message)
        return NOT_YET

    @property
    def reachable(self) -> Look:
        """See :class:`IProviderView`."""
        return self.looks.reachable

    @property
    def credentials(self) -> Look:
        """See :class:`IProviderView`."""
        return self.looks.credentials

    @property
    def listed(self) -> bool:
        """See :class:`IProviderView`."""
        return self._copy is not None and self._copy.listed

    def spaces(self) -> Mapping[Physical, SpaceInfo]:
        """See :meth:`IProviderView.spaces`."""
        return self._copy.spaces() if self._copy is not None else {}

    def passes(self, physical: Physical) -> bool:
        """See :meth:`IProviderView.passes`; the parent has no say."""
        return self._passes(physical.name)

    def gone(self, physical: Physical) -> bool:
        """See :meth:`IProviderView.gone`."""
        return self._copy is not None and self._copy.gone(physical)

    def look_again(self, physical: Physical | None = None) -> None:
        """See :meth:`IProviderView.look_again`."""
        if self._copy is not None:
            self._copy.look_again(physical)

    def become(self, desc: Object) -> None:
        """Be what the same SpaceProviderDesc says by now; :meth:`renew` has the adaptor follow."""
        self.desc = desc
        if prefix_of(desc) != self._prefix:
            self._prefix = prefix_of(desc)
            self._passes = filter_of(self._prefix)
            self._changed(None)

    async def renew(self) -> None:
        """Have the adaptor that the SpaceProviderDesc and its Secret ask for, if one can be made."""
        try:
            await self._follow_secret(secret_ref(self.desc))
            if self._secret is not None and not self._secret.synced:
                self.synced = self._unread(self._secret)
                return
            spec = spec_of(self.desc, self._workshop.makers, self._read())
            if spec != self._spec:
                await self._make(spec)
        except NoSpec as problem:
            await self._cannot(problem)
        else:
            self.synced = FOLLOWED

    async def stop(self) -> None:
        """Let go of everything; the provider goes on."""
        self._stopped = True
        await self._follow_secret(None)
        await self._let_go()
        await self._stopping.over()

    def _unread(self, secret: Reflector) -> Look:
        if not secret.problem:
            return NOT_READ
        why = f"secret {self._ref} cannot be read: {secret.problem}"
        return Look("False", "SecretNotRead", why)

    def _read(self) -> Object | None:
        if self._secret is None or self._ref is None:
            return None
        return self._secret.get(self._ref.name, self._ref.namespace)

    async def _follow_secret(self, ref: SecretRef | None) -> None:
        if ref == self._ref:
            return
        self._ref, before, self._secret = ref, self._secret, None
        if before is not None:
            await before.stop()
        if ref is None or self._stopped:
            return
        self._secret = Reflector(
            self._workshop.around.hub,
            SECRETS.resource,
            self._clock,
            namespace=ref.namespace,
            field_selector=f"metadata.name={ref.name}",
            on_change=lambda before, after: self._secret_changed(),
        )
        self._secret.start()
        # One that is not there tells no change.
        self._secret.when_synced().addCallback(lambda _: self._secret_changed())

    async def _make(self, spec: ProviderSpec) -> None:
        make, around = self._workshop.makers[spec.type], self._workshop.around
        before = self.spaces()
        try:
            made = make(spec, around)
        except APIError as error:
            raise NoSpec("AdaptorCannotBeMade", error.message) from None
        except Exception:
            if spec != self._failed:  # it is tried again now and then
                self._log.failure("provider {name}: no adaptor can be made", name=self.name)
            self._failed = spec
            why = "its adaptor cannot be made; see the log of the manager"
            raise NoSpec("AdaptorFailed", why) from None
        if IKeptHere.providedBy(made):
            try:
                await self._claim()
            except (APIError, NoSpec):
                await bounded(made, self.name, self._clock).close()
                raise
        await self._let_go()
        if self._stopped:
            await bounded(made, self.name, self._clock).close()
            return
        adaptor = bounded(made, self.name, self._clock, self._workshop.counting)
        copy = ProviderCopy(self.name, adaptor, self._clock, self._changed, before)
        adaptor.knows = copy
        self._spec, self._adaptor, self._copy = spec, adaptor, copy
        self._log.info("provider {name}: taken up ({type})", name=self.name, type=spec.type)
        self._changed(None)
        copy.start()

    async def _claim(self) -> None:
        """
        Be who has its physical spaces, written before any is looked for.

        :raises NoSpec: another has them.
        :raises APIError: it cannot be written.
        """
        here, there = self._workshop.around.place, recorded_place(self.desc)
        if there and not is_same(here, there):
            raise NoSpec(
                "KeptElsewhere",
                f"its physical spaces are at {shown(there)}, and this manager has its own at {shown(here)}: have the "
                "manager there lead, or bring that directory here (--state-dir); to give up what is there, take "
                f"status.{PLACE} away",
            )
        if there:
            return
        version = self.desc["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "status": {PLACE: here}}
        hub = self._workshop.around.hub
        self.desc = await hub.patch(PROVIDERS, self.name, patch, subresource="status")

    async def _cannot(self, problem: NoSpec) -> None:
        if problem.why != self.synced.message:
            self._log.warn("provider {name}: {why}", name=self.name, why=problem.why)
        self.synced = Look("False", problem.reason, problem.why)
        keeps = problem.reason in ("SecretCannotBeUsed", "AdaptorCannotBeMade", "AdaptorFailed")
        if not keeps and self._adaptor is not None:
            await self._let_go()
            self._changed(None)

    async def _let_go(self) -> None:
        """Close the adaptor, if there is one, and forget what it told."""
        adaptor, copy = self._adaptor, self._copy
        self._adaptor = self._copy = self._spec = None
        if adaptor is None or copy is None:
            return
        self._stopping.add(Deferred.fromCoroutine(_ended(adaptor, copy)))
        over: Deferred[None] = Deferred()  # who waits may be cancelled; the end may not
        self._stopping.over().addCallback(lambda _: over.callback(None))
        await over


async def _ended(adaptor: Bounded, copy: ProviderCopy) -> None:
    await copy.stop()
    await adaptor.close()
