"""
The authorizer for real ``rbac.authorization.k8s.io`` objects.

Matching is in :mod:`twisted_exec.auth.rbac.rules`, who has which rules in
:mod:`twisted_exec.auth.rbac.policy`, what exists from the start in
:mod:`twisted_exec.auth.rbac.bootstrap`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import Interface, implementer

from twisted_exec.api.status import Forbidden
from twisted_exec.auth.interfaces import Attributes, Decision, IRulesAuthorizer, User
from twisted_exec.auth.rbac.bootstrap import bootstrap_objects
from twisted_exec.auth.rbac.policy import Policy, RBACObjects
from twisted_exec.auth.rbac.rules import Rule, uncovered

__all__ = ["IRuleSource", "RBACAuthorizer", "RBACObjects", "Rule", "bootstrap_objects"]


class IRuleSource(Interface):
    """Where an authorizer gets roles and bindings from."""

    def snapshot() -> Deferred[RBACObjects]:
        """
        :return: fires with all RBAC objects as they are now: with the *same instance* as
            long as none has changed, since making sense of a new one takes time.
            Fails with an :class:`~twisted_exec.api.status.APIError`.
        """


@implementer(IRulesAuthorizer)
class RBACAuthorizer:
    """Decides by the roles and bindings of a source."""

    def __init__(self, source: IRuleSource) -> None:
        self._source = source
        self._objects: RBACObjects | None = None
        self._current: Policy | None = None

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        """As :meth:`IAuthorizer.authorize`."""
        return self._policy().addCallback(lambda policy: policy.decide(attributes))

    def rules_for(self, user: User, namespace: str) -> Deferred[tuple[Rule, ...]]:
        """As :meth:`IRulesAuthorizer.rules_for`."""
        return self._policy().addCallback(lambda policy: policy.rules_for(user, namespace))

    def confirm_covered(self, user: User, namespace: str, wanted: Iterable[Rule]) -> Deferred[None]:
        """
        Make sure that nobody grants what they do not have: the escalation check.

        For writing a role, ``wanted`` are its rules, or
        :data:`~twisted_exec.auth.rbac.rules.EVERYTHING` for one with an ``aggregationRule``;
        for writing a binding, those of :meth:`rules_of`.

        :return: fires with ``None``; fails with :class:`Forbidden` naming what is missing.
        """
        return Deferred.fromCoroutine(self._confirm_covered(user, namespace, tuple(wanted)))

    def rules_of(self, reference: Mapping[str, Any], namespace: str) -> Deferred[tuple[Rule, ...]]:
        """The rules behind a binding's ``roleRef``; none when there is no such role."""
        return self._policy().addCallback(
            lambda policy: policy.rules_of(reference, namespace) or ()
        )

    async def _confirm_covered(self, user: User, namespace: str, wanted: tuple[Rule, ...]) -> None:
        own = await self.rules_for(user, namespace)
        missing = uncovered(own, wanted)
        if missing:
            raise Forbidden(
                f"user {user.name!r} is attempting to grant RBAC permissions not currently held: "
                + _few(missing)
            )

    def _policy(self) -> Deferred[Policy]:
        return self._source.snapshot().addCallback(self._understood)

    def _understood(self, objects: RBACObjects) -> Policy:
        if self._current is None or objects is not self._objects:
            self._objects, self._current = objects, Policy(objects)
        return self._current


def _few(rules: list[Rule]) -> str:
    told = [str(rule.to_object()) for rule in rules[:5]]
    more = f" and {len(rules) - 5} more" if len(rules) > 5 else ""
    return "; ".join(told) + more
