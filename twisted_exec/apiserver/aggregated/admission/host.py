"""
The host's admission, for requests that come past it.

kube-apiserver asks no admission about what it passes on to aggregated servers: who stores an object
has to.  So what the host's administrators have set up (webhooks and policies) is read from the host
and asked here, in the order that Kubernetes' own servers have: what changes objects comes before
the rules and sees what its predecessors have left; what only decides comes last and sees what would
be stored.  A stream is asked about before it is opened, as operation CONNECT.

What the server writes of its own accord, such as a machine's pool, is nobody's request, and is not
asked about.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.kinds import Object
from twisted_exec.api.resource import Resource
from twisted_exec.apiserver.aggregated.admission import sources
from twisted_exec.apiserver.aggregated.admission.calls import Calls
from twisted_exec.apiserver.aggregated.admission.cel import Cel, Conditions
from twisted_exec.apiserver.aggregated.admission.matching import (
    CONNECT,
    CREATE,
    DELETE,
    UPDATE,
    Asked,
)
from twisted_exec.apiserver.aggregated.admission.policies import Policies
from twisted_exec.apiserver.aggregated.admission.sources import Followed, HostNamespaces
from twisted_exec.apiserver.aggregated.admission.webhooks import (
    Deadline,
    Matching,
    Reinvocation,
    Webhooks,
)
from twisted_exec.apiserver.interfaces import (
    Change,
    IMutatingAdmission,
    IOpeningAdmission,
    Opening,
)
from twisted_exec.kube.interfaces import IKubeClient

_OPTIONS = {CREATE: "CreateOptions", UPDATE: "UpdateOptions", DELETE: "DeleteOptions"}


@implementer(IMutatingAdmission, IOpeningAdmission)
class HostAdmission(MultiService):
    """
    Asks the webhooks and policies of a host.

    To be started before requests are answered; it follows the host until it is stopped.

    :param client: of the host; its role must allow to list and watch all of
        :data:`~twisted_exec.apiserver.aggregated.admission.sources.FOLLOWED`.
    :param reactor: a real reactor: webhooks are called by it.
    :param clock: for time limits, when that is another.
    """

    _log = Logger()

    def __init__(
        self, client: IKubeClient, reactor: Any, *, clock: IReactorTime | None = None
    ) -> None:
        super().__init__()
        self._clock = clock or reactor
        self._client = client
        namespaces = HostNamespaces(client, self._follow(sources.NAMESPACES_OF_HOST))
        matching, cel = Matching(namespaces), Cel()
        self._cel = cel
        self._calls = Calls(reactor)
        self._webhooks = Webhooks(
            self._follow(sources.MUTATING_WEBHOOKS),
            self._follow(sources.VALIDATING_WEBHOOKS),
            matching,
            Conditions(cel),
            self._calls,
        )
        self._policies = Policies(
            (self._follow(sources.VALIDATING_POLICIES), self._follow(sources.VALIDATING_BINDINGS)),
            (self._follow(sources.MUTATING_POLICIES), self._follow(sources.MUTATING_BINDINGS)),
            matching,
            cel,
        )

    def _follow(self, versions: Sequence[Resource]) -> Followed:
        followed = Followed(self._client, versions, self._clock)
        followed.setServiceParent(self)
        return followed

    def startService(self) -> None:
        """Begin to follow the host."""
        super().startService()
        if self._cel.problem:
            self._log.warn(
                "{why}: policies and matchConditions of the host are answered as their "
                "failurePolicy says; pip install twisted-exec[policies]",
                why=self._cel.problem,
            )

    @property
    def problems(self) -> Iterator[str]:
        """Why what is followed is not current."""
        for each in self:
            if isinstance(each, Followed) and each.problem:
                yield f"{each.resource.plural}: {each.problem}"

    def stopService(self) -> Deferred[None]:
        """Follow no longer, and close what is idle."""
        stopping = DeferredList([super().stopService(), self._calls.close()])
        return stopping.addCallback(lambda _: None)

    def mutate(self, change: Change) -> Deferred[Object]:
        """As :meth:`IMutatingAdmission.mutate`."""
        return Deferred.fromCoroutine(self._changed(_asked(change), self._deadline()))

    def admit(self, change: Change) -> Deferred[None]:
        """As :meth:`IAdmission.admit`."""
        asked = _asked(change)
        # What is deleted cannot be changed, but who changes objects may refuse as well.
        return Deferred.fromCoroutine(self._decide(asked, first=asked.operation == DELETE))

    def admit_opening(self, opening: Opening) -> Deferred[None]:
        """As :meth:`IOpeningAdmission.admit_opening`."""
        return Deferred.fromCoroutine(self._decide(_opened(opening), first=True))

    def _deadline(self) -> Deadline:
        return Deadline(self._clock)

    async def _decide(self, asked: Asked, *, first: bool) -> None:
        """:param first: nobody who changes objects has been asked about it yet."""
        deadline = self._deadline()
        if first:
            asked = replace(asked, new=await self._changed(asked, deadline))
        await self._policies.validate(asked)
        await self._webhooks.validate(asked, deadline)

    async def _changed(self, asked: Asked, deadline: Deadline) -> Any:
        """The object after one pass, or two."""
        pass_ = Reinvocation()
        await self._policies.check_mutating(asked)
        new = await self._webhooks.mutate(asked, pass_, deadline)
        if pass_.wanted:
            pass_.second = True
            again = replace(asked, new=new)
            await self._policies.check_mutating(again)
            new = await self._webhooks.mutate(again, pass_, deadline)
        return new


def _asked(change: Change) -> Asked:
    operation = change.operation.upper()
    resource, metadata = change.kind.resource, change.obj["metadata"]
    return Asked(
        change.user,
        operation,
        resource.group,
        resource.version,
        resource.plural,
        resource.kind,
        metadata.get("namespace", ""),
        metadata.get("name", ""),
        change.new,
        change.old,
        change.subresource,
        {**change.options, "kind": _OPTIONS[operation], "apiVersion": "meta.k8s.io/v1"},
        change.dry_run,
        change.warnings.append,
    )


def _opened(opening: Opening) -> Asked:
    resource = opening.kind.resource
    return Asked(
        opening.user,
        CONNECT,
        resource.group,
        resource.version,
        resource.plural,
        opening.options["kind"],
        opening.namespace,
        opening.name,
        opening.options,
        subresource=opening.subresource,
    )
