"""
The contract of :class:`~twisted_exec.auth.interfaces.IAuthorizer`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer
from zope.interface.verify import verifyObject

from twisted_exec.api.kinds import MACHINES, Object
from twisted_exec.api.selectors import parse_fields
from twisted_exec.api.status import APIError, Forbidden, ServiceUnavailable
from twisted_exec.auth.interfaces import Decision, IAuthorizer, IRulesAuthorizer, IVisibility, User
from twisted_exec.auth.rules import Attributes, Rule

JANE = User("jane", ("dev", "system:authenticated"))
_MACHINES = MACHINES.resource
GET = Attributes(
    JANE, "get", _MACHINES.group, _MACHINES.version, "machines", namespace="default", name="vm-1"
)
"""The request that each authorizer of the contract allows, also as ``list``."""

_REFUSED = (
    replace(GET, verb="delete"),
    replace(GET, verb="GET"),
    replace(GET, verb="*"),
    replace(GET, group=""),
    replace(GET, group="*"),
    replace(GET, resource="machinepools"),
    replace(GET, resource="*"),
    replace(GET, subresource="exec"),
    replace(GET, verb="create", subresource="exec"),
    replace(GET, namespace="kube-system"),
    replace(GET, user=User("joe", ("system:authenticated",))),
    replace(GET, user=User("", ())),
    Attributes(JANE, "get", path="/metrics"),
    Attributes(JANE, "get"),
)


class AuthorizerContract:
    """Mix into a ``SynchronousTestCase``; say how to create the authorizer."""

    def make_authorizer(self: Any) -> IAuthorizer:
        """Create an authorizer that allows :data:`GET`, the same as ``list``, and nothing else."""
        raise NotImplementedError

    def make_undecided(self: Any) -> IAuthorizer:
        """Create an authorizer that cannot decide now, because what it depends on fails."""
        raise NotImplementedError

    def decide(self: Any, attributes: Attributes) -> Decision:
        decision: Decision = self.successResultOf(self.make_authorizer().authorize(attributes))
        return decision

    def test_authorizer_interface(self: Any) -> None:
        """It provides IAuthorizer; one that lists rules is an authorizer as well."""
        for authorizer in (self.make_authorizer(), self.make_undecided()):
            verifyObject(IAuthorizer, authorizer)
            if IRulesAuthorizer.providedBy(authorizer):
                verifyObject(IRulesAuthorizer, authorizer)

    def test_allowed(self: Any) -> None:
        """A permission is a Decision whose ``allowed`` is True and which hides nothing."""
        for attributes in (GET, replace(GET, verb="list", name="")):
            decision = self.decide(attributes)
            self.assertIs(decision.allowed, True)
            self.assertIs(decision.hidden, False)
            self.assertIsInstance(decision.reason, str)

    def test_refused(self: Any) -> None:
        """A request without an explicit permission is refused by a Decision, not by an error."""
        for attributes in _REFUSED:
            decision = self.decide(attributes)
            self.assertIs(decision.allowed, False, attributes)
            self.assertIsNone(decision.visibility)
            self.assertIsInstance(decision.reason, str)

    def test_reason(self: Any) -> None:
        """A reason is one line, for the message of a Status and the audit log."""
        for attributes in (GET, *_REFUSED):
            self.assertNotIn("\n", self.decide(attributes).reason)

    def test_again(self: Any) -> None:
        """The same request gets the same decision: reviews of a session repeat the request."""
        authorizer = self.make_authorizer()
        for attributes in (GET, _REFUSED[0]):
            first, second = (
                self.successResultOf(authorizer.authorize(attributes)) for _ in range(2)
            )
            self.assertEqual(first.allowed, second.allowed)

    def test_of_another_user(self: Any) -> None:
        """A decision for one user does not apply to the same request of another user."""
        authorizer = self.make_authorizer()
        for user, allowed in ((JANE, True), (User("joe"), False), (JANE, True)):
            decision = self.successResultOf(authorizer.authorize(replace(GET, user=user)))
            self.assertIs(decision.allowed, allowed)

    def test_field_selector(self: Any) -> None:
        """A field selector never adds a permission."""
        selector = parse_fields("metadata.name=vm-1")
        for attributes in _REFUSED:
            self.assertFalse(self.decide(replace(attributes, field_selector=selector)).allowed)

    def test_visibility(self: Any) -> None:
        """A visibility, if there is one, provides IVisibility."""
        for verb in ("get", "list"):
            visibility = self.decide(replace(GET, verb=verb)).visibility
            if visibility is not None:
                verifyObject(IVisibility, visibility)

    def test_undecided(self: Any) -> None:
        """An authorizer that cannot decide fails with an APIError and never allows."""
        self.failureResultOf(self.make_undecided().authorize(GET), APIError)


@implementer(IRulesAuthorizer)
class FixedAuthorizer:
    """
    Gives one answer to :data:`GET` and the same ``list``; refuses everything else.

    :ivar questions: the attributes of every call so far.
    """

    def __init__(self, answer: Decision | APIError) -> None:
        self._answer = answer
        self.questions: list[Attributes] = []

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        """As :meth:`IAuthorizer.authorize`."""
        self.questions.append(attributes)
        if isinstance(self._answer, APIError):
            return fail(self._answer)
        plain = replace(attributes, verb="get", name="vm-1", field_selector=GET.field_selector)
        named = attributes.verb == "list" or attributes.name == "vm-1"
        if plain == GET and attributes.verb in ("get", "list") and named:
            return succeed(self._answer)
        return succeed(Decision(False, "no role allows it"))

    def rules_for(self, user: User, namespace: str) -> Deferred[tuple[Rule, ...]]:
        """As :meth:`IRulesAuthorizer.rules_for`."""
        return succeed((Rule(("get", "list"), (GET.group,), ("machines",)),))


@implementer(IVisibility)
class OnlyLabelled:
    """The objects that have a label."""

    def __init__(self, label: str) -> None:
        self._label = label

    def sees(self, obj: Object) -> bool:
        """As :meth:`IVisibility.sees`."""
        return self._label in obj["metadata"].get("labels", {})

    def refusal(self, obj: Object) -> APIError:
        """As :meth:`IVisibility.refusal`."""
        return Forbidden(f"not labelled {self._label}")

    def since(self) -> int:
        """As :meth:`IVisibility.since`."""
        return 7

    def follow(self, changed: Callable[[], None]) -> Callable[[], None]:
        """As :meth:`IVisibility.follow`."""
        return lambda: None


class WrappingAuthorizerContract(AuthorizerContract):
    """An authorizer that asks another one about requests that are not its own business."""

    def wrap(self: Any, authorizer: IRulesAuthorizer) -> IAuthorizer:
        """Put the authorizer round another one."""
        raise NotImplementedError

    def make_authorizer(self: Any) -> IAuthorizer:
        """As :meth:`AuthorizerContract.make_authorizer`."""
        wrapped: IAuthorizer = self.wrap(FixedAuthorizer(Decision(True, "a role allows it")))
        return wrapped

    def make_undecided(self: Any) -> IAuthorizer:
        """As :meth:`AuthorizerContract.make_undecided`."""
        wrapped: IAuthorizer = self.wrap(FixedAuthorizer(ServiceUnavailable("no rules")))
        return wrapped

    def test_passes_on(self: Any) -> None:
        """It asks the wrapped authorizer the same question and keeps its answer."""
        for answer in (
            Decision(True, "a role allows it"),
            Decision(False, "no"),
            Decision(False, "no", hidden=True),
        ):
            inner = FixedAuthorizer(answer)
            decision = self.successResultOf(self.wrap(inner).authorize(GET))
            self.assertEqual(decision, answer)
            self.assertEqual(inner.questions, [GET])

    def test_keeps_visibility(self: Any) -> None:
        """A visibility of the wrapped authorizer still applies: wrapping never shows more."""
        inner = FixedAuthorizer(Decision(True, visibility=OnlyLabelled("a")))
        visibility = self.successResultOf(self.wrap(inner).authorize(GET)).visibility
        self.assertTrue(visibility.sees({"metadata": {"name": "x", "labels": {"a": ""}}}))
        self.assertFalse(visibility.sees({"metadata": {"name": "x"}}))
        self.assertGreaterEqual(visibility.since(), 7)

    def test_same_failure(self: Any) -> None:
        """The failure of the wrapped authorizer is passed on."""
        self.failureResultOf(self.make_undecided().authorize(GET), ServiceUnavailable)
