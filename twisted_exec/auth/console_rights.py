"""
The rights of users at consoles.

``create`` on ``machines/exec`` includes all rights, unless the verbs are strict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.kinds import PODS
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, Forbidden
from twisted_exec.auth.credentials import files_of
from twisted_exec.auth.interfaces import Decision, IAuthorizer, User
from twisted_exec.auth.rules import CONSOLE, Attributes
from twisted_exec.tls.files import Replaceable
from twisted_exec.wire.session_terms import Right, Terms
from twisted_exec.wire.stream_options import StreamOptions

VERBS = tuple(right.verb for right in Right)
OPENS_PODS = ("exec", "attach")
"""Subresources of Pods that open the machine's console, where Pods are machines."""

_HIGHEST_FIRST = sorted(Right, reverse=True)


@implementer(IAuthorizer)
class ConsoleVerbs:
    """
    Decides about consoles, and passes everything else on.

    :param machines: resources whose consoles are meant, besides Pods.
    :param strict: ``create`` on ``machines/exec`` includes no verb.
    :param is_strict: the same for the machine of a request; may raise an
        :class:`~twisted_exec.api.status.APIError` that the request then gets.
    :param pods: Pods are machines: ``exec`` and ``attach`` of Pods need ``drive`` or ``takeover``.
    """

    def __init__(
        self,
        authorizer: IAuthorizer,
        machines: Iterable[Resource],
        *,
        strict: bool = False,
        is_strict: Callable[[Attributes], bool] = lambda _: False,
        pods: bool = False,
    ) -> None:
        self._authorizer, self.strict, self._is_strict = authorizer, strict, is_strict
        resources = (*machines, PODS.resource)
        self._machines = {(each.group, each.plural) for each in resources}
        self._has_pods = pods

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        if self._has_pods and _opens_pod(attributes):
            return Deferred.fromCoroutine(self._opens(attributes))
        if not self._is_console(attributes):
            return self._decide(attributes)
        return Deferred.fromCoroutine(self._authorize(_normal(attributes)))

    def files(self) -> list[Replaceable]:
        return files_of([self._authorizer])

    def _is_console(self, attributes: Attributes) -> bool:
        return (
            attributes.verb in VERBS
            and (attributes.group, attributes.resource) in self._machines
            and attributes.subresource in (CONSOLE, "")
        )

    async def _opens(self, attributes: Attributes) -> Decision:
        """Decide about opening a Pod's console, which needs the right to take over or to drive."""
        if not attributes.subresource:
            attributes = replace(attributes, name="")
        decision = Decision(False)
        for right in (Right.TAKEOVER, Right.DRIVE):
            console = replace(attributes, verb=right.verb, subresource=CONSOLE)
            decision = await self._authorize(console)
            if decision.allowed or decision.hidden:
                break
        return decision

    async def _authorize(self, attributes: Attributes) -> Decision:
        if not (self.strict or attributes.strict):
            opening = replace(attributes, verb="create", subresource="exec")
            decision = await self._decide(opening)
            # Last: it raises while the policies are not known, and may not matter.
            if (decision.allowed or decision.hidden) and not self._is_strict(attributes):
                return decision
        return await self._decide(attributes)

    def _decide(self, attributes: Attributes) -> Deferred[Decision]:
        decided: Deferred[Decision] = self._authorizer.authorize(attributes)
        return decided


def _opens_pod(attributes: Attributes) -> bool:
    pods = PODS.resource
    if (attributes.group, attributes.resource) != (pods.group, pods.plural):
        return False
    if attributes.subresource:
        return attributes.verb in ("create", "get") and attributes.subresource in OPENS_PODS
    # kubectl auth can-i create pods/exec sends the subresource as the name.
    return attributes.verb == "create" and attributes.name in OPENS_PODS


def _normal(attributes: Attributes) -> Attributes:
    """``kubectl auth can-i observe machines/console`` sends the subresource as the name."""
    name = attributes.name
    if not attributes.subresource and name == CONSOLE:
        name = ""
    return replace(attributes, subresource=CONSOLE, name=name)


class TakeoverRefused(Forbidden):
    """A user who has a lesser right at the console asked to take over."""


class SessionRequirements(Protocol):
    """Conditions of one session besides the rights of its user: those of ConsolePolicies."""

    def is_strict(self, user: User) -> bool:
        """Return whether ``create`` on ``machines/exec`` includes no right at present."""

    def terms(self, user: User, right: Right) -> Terms:
        """
        Return the present terms of the session.

        :param user: of the session, whose groups may be others than at its beginning.
        :raises APIError: the session may not go on.
        """


class SessionAccess(Protocol):
    """The access of a session to a console, for its reviews."""

    async def review(self, gate: Decides, user: User) -> Terms:
        """Return the terms at this moment; errors as :meth:`SessionRequirements.terms`."""


class Decides(Protocol):
    """A gate, as far as rights need it."""

    async def decide(self, attributes: Attributes) -> Decision:
        """Return the authorizer's decision."""

    def refused(self, attributes: Attributes, decision: Decision) -> APIError:
        """Return the error for a refusal."""

    async def highest_right(self, console: Attributes, refusal: Attributes, wanted: Right) -> Right:
        """As :func:`highest_right`."""


async def highest_right(
    gate: Decides, console: Attributes, refusal: Attributes, wanted: Right
) -> Right:
    """
    Return the highest right of a user at a console.

    :param console: the permission on the machine's ``console``, without a verb.
    :param refusal: names the permission that a user without any right lacks.
    :param wanted: the refusal may name this right instead.
    :raises APIError: the user has no right.
    """
    # The highest first, because a session without --force can ask for the floor later, and
    # because a hop of another make may take input from a session that asked for none.
    decision = Decision(False)
    for right in _HIGHEST_FIRST:
        decision = await gate.decide(replace(console, verb=right.verb))
        if decision.allows_everything:
            return right
        if decision.hidden:
            break
    is_named = console.strict or wanted is Right.OBSERVE
    if is_named or (await gate.decide(refusal)).allowed:  # a policy makes the verbs strict
        refusal = replace(console, verb=wanted.verb)
    raise gate.refused(refusal, decision)


@dataclass(frozen=True)
class ConsoleAccess:
    """
    A user's access to one console.

    :param permission: on the machine's ``console``, without a verb.
    :param refusal: as for :func:`highest_right`.
    :param conditions: apply besides the user's rights.
    """

    permission: Attributes
    options: StreamOptions
    refusal: Attributes
    conditions: SessionRequirements | None = None

    @classmethod
    def of(
        cls, exec_permission: Attributes, options: StreamOptions, *, strict: bool
    ) -> ConsoleAccess:
        """
        Return the access for a request to open a console.

        :param exec_permission: ``create`` on the machine's ``exec``.
        """
        permission = replace(exec_permission, verb="", subresource=CONSOLE, strict=strict)
        return cls(permission, options, exec_permission)

    def under(self, conditions: SessionRequirements | None) -> ConsoleAccess:
        """Return the access under other conditions."""
        return replace(self, conditions=conditions)

    @property
    def wanted(self) -> Right:
        """The right that the request needs."""
        if not self.options.takes_input:
            return Right.OBSERVE
        return Right.TAKEOVER if self.options.force else Right.DRIVE

    async def opening(self, gate: Decides) -> Right:
        """
        Return the user's right for a new session.

        :raises TakeoverRefused: the user asks to take over without the right to do so.
        :raises APIError: the user has no right at this console.
        """
        right = await self._right(gate, self.permission.user)
        if right < self.wanted is Right.TAKEOVER:
            lacking = replace(self.permission, verb=Right.TAKEOVER.verb)
            reason = f"you may {right.verb} it: open it without --force"
            refusal = gate.refused(lacking, Decision(False, reason))
            raise TakeoverRefused(refusal.message, details=refusal.details)
        return right

    async def review(self, gate: Decides, user: User) -> Terms:
        right = await self._right(gate, user)
        if self.conditions is None:
            return self.terms(Terms(right=right))
        return self.terms(self.conditions.terms(user, right))

    def terms(self, terms: Terms) -> Terms:
        """
        Return the terms, without their limit of the right for a request that takes no input.

        The limit of an observer remains: a next hop of another make may ignore that there is no
        input.
        """
        if self.options.takes_input or terms.right < Right.DRIVE:
            return terms
        return replace(terms, right=Right.TAKEOVER)

    async def _right(self, gate: Decides, user: User) -> Right:
        console, refusal = self.permission, self.refusal
        strict = console.strict or (self.conditions is not None and self.conditions.is_strict(user))
        if user is not console.user or strict != console.strict:
            console = replace(console, user=user, strict=strict)
        if user is not refusal.user:
            refusal = replace(refusal, user=user)
        return await gate.highest_right(console, refusal, self.wanted)


class ScreenAccess(ConsoleAccess):
    """
    A user's access to the screen of a console.

    A screen takes no input, so the terms limit no right.
    """

    def terms(self, terms: Terms) -> Terms:
        return replace(terms, right=Right.TAKEOVER)
