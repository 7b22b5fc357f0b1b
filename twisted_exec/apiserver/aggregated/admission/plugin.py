"""
The admission plugin that calls the webhooks and policies of the host.

kube-apiserver runs no admission for requests that it proxies to aggregated servers.

Writes of the server itself skip admission.
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
from twisted_exec.apiserver.aggregated.admission import objects
from twisted_exec.apiserver.aggregated.admission.attributes import (
    DELETE,
    AdmissionAttributes,
    attributes_of_change,
    attributes_of_opening,
)
from twisted_exec.apiserver.aggregated.admission.cel import Cel, MatchConditions
from twisted_exec.apiserver.aggregated.admission.matching import Matcher
from twisted_exec.apiserver.aggregated.admission.objects import FollowedKind, HostNamespaces
from twisted_exec.apiserver.aggregated.admission.policies import Policies
from twisted_exec.apiserver.aggregated.admission.webhook_connections import WebhookConnections
from twisted_exec.apiserver.aggregated.admission.webhooks import (
    Reinvocation,
    RequestDeadline,
    WebhookDispatcher,
)
from twisted_exec.apiserver.interfaces import (
    Change,
    IMutatingAdmission,
    IOpeningAdmission,
    Opening,
)
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.program.libraries import install


@implementer(IMutatingAdmission, IOpeningAdmission)
class HostAdmission(MultiService):
    """
    Calls the webhooks and policies of a host.

    :param client: may get, list and watch all of
        :data:`~twisted_exec.apiserver.aggregated.admission.objects.FOLLOWED`.
    """

    _log = Logger()

    def __init__(
        self, client: IKubeClient, reactor: Any, *, clock: IReactorTime | None = None
    ) -> None:
        super().__init__()
        self._clock = clock or reactor
        self._client = client
        namespaces = HostNamespaces(client, self._follow(objects.NAMESPACES_OF_HOST))
        matcher, cel = Matcher(namespaces), Cel(reactor)
        self._cel = cel
        self._connections = WebhookConnections(reactor)
        self._dispatcher = WebhookDispatcher(
            self._follow(objects.MUTATING_WEBHOOKS),
            self._follow(objects.VALIDATING_WEBHOOKS),
            matcher,
            MatchConditions(cel),
            self._connections,
        )
        self._policies = Policies(
            (
                self._follow(objects.VALIDATING_POLICIES),
                self._follow(objects.VALIDATING_BINDINGS),
            ),
            (
                self._follow(objects.MUTATING_POLICIES),
                self._follow(objects.MUTATING_BINDINGS),
            ),
            matcher,
            cel,
        )

    def _follow(self, versions: Sequence[Resource]) -> FollowedKind:
        followed = FollowedKind(self._client, versions, self._clock)
        followed.setServiceParent(self)
        return followed

    def startService(self) -> None:
        super().startService()
        if self._cel.problem:
            self._log.warn(
                "{why}: policies and matchConditions of the host fail, as handled by their "
                "failurePolicy; {remedy}",
                why=self._cel.problem,
                remedy=install("cel-expr-python"),
            )

    @property
    def problems(self) -> Iterator[str]:
        """Why the copies of the host's objects are not current."""
        for each in self:
            if isinstance(each, FollowedKind) and each.problem:
                yield f"{each.resource.plural}: {each.problem}"

    def stopService(self) -> Deferred[None]:
        stopping = DeferredList(
            [super().stopService(), self._connections.close(), self._cel.close()]
        )
        return stopping.addCallback(lambda _: None)

    def mutate(self, change: Change) -> Deferred[Object]:
        return Deferred.fromCoroutine(self._changed(attributes_of_change(change), self._deadline()))

    def admit(self, change: Change) -> Deferred[None]:
        attributes = attributes_of_change(change)
        # A deleted object cannot be changed, but mutating webhooks can refuse the deletion as well.
        return Deferred.fromCoroutine(
            self._decide(attributes, first=attributes.operation == DELETE)
        )

    def admit_opening(self, opening: Opening) -> Deferred[None]:
        return Deferred.fromCoroutine(self._decide(attributes_of_opening(opening), first=True))

    def _deadline(self) -> RequestDeadline:
        return RequestDeadline(self._clock)

    async def _decide(self, attributes: AdmissionAttributes, *, first: bool) -> None:
        deadline = self._deadline()
        if first:
            attributes = replace(attributes, new=await self._changed(attributes, deadline))
        await self._policies.validate(attributes)
        await self._dispatcher.validate(attributes, deadline)

    async def _changed(self, attributes: AdmissionAttributes, deadline: RequestDeadline) -> Any:
        pass_ = Reinvocation()
        await self._policies.check_mutating(attributes)
        new = await self._dispatcher.mutate(attributes, pass_, deadline)
        if pass_.again_due:
            pass_.second = True
            again = replace(attributes, new=new)
            await self._policies.check_mutating(again)
            new = await self._dispatcher.mutate(again, pass_, deadline)
        return new
