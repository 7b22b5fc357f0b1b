"""
The authorizer for ``rbac.authorization.k8s.io`` objects.

Rules are matched in :mod:`twisted_exec.auth.rbac.rules` and indexed by user in
:mod:`twisted_exec.auth.rbac.policy`; :mod:`twisted_exec.auth.rbac.bootstrap` has the default roles.
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
    """A source of roles and bindings."""

    def snapshot() -> Deferred[RBACObjects]:
        """
        :return: fires with all current RBAC objects: the *same instance* until one changes, since
            building a policy from a new one takes time.  Fails with an
            :class:`~twisted_exec.api.status.APIError`.
        """


@implementer(IRulesAuthorizer)
class RBACAuthorizer:
    """Authorizes by the roles and bindings of a source."""

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

    def confirm_covered(self, user: User, namespace: str, rules: Iterable[Rule]) -> Deferred[None]:
        """
        Check for privilege escalation: users must not grant more than they have.

        For writing a role, ``rules`` are its rules, or
        :data:`~twisted_exec.auth.rbac.rules.EVERYTHING` for one with an ``aggregationRule``;
        for writing a binding, those of :meth:`rules_of`.

        :return: fires with ``None``; fails with :class:`Forbidden` and the missing rules.
        """
        return Deferred.fromCoroutine(self._confirm_covered(user, namespace, tuple(rules)))

    def rules_of(self, reference: Mapping[str, Any], namespace: str) -> Deferred[tuple[Rule, ...]]:
        """Return the rules of a binding's ``roleRef``; empty if the role does not exist."""
        return self._policy().addCallback(
            lambda policy: policy.rules_of(reference, namespace) or ()
        )

    async def _confirm_covered(self, user: User, namespace: str, rules: tuple[Rule, ...]) -> None:
        own = await self.rules_for(user, namespace)
        missing = uncovered(own, rules)
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
    descriptions = [str(rule.to_object()) for rule in rules[:5]]
    more = f" and {len(rules) - 5} more" if len(rules) > 5 else ""
    return "; ".join(descriptions) + more
