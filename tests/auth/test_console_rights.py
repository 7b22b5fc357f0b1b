"""Tests for :mod:`twisted_exec.auth.console_rights`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from twisted_exec.api.kinds import MACHINES
from twisted_exec.api.status import APIError, Forbidden, NotFound, ServiceUnavailable
from twisted_exec.auth.console_rights import VERBS, ConsoleAccess, ConsoleVerbs
from twisted_exec.auth.credentials import UnionAuthenticator
from twisted_exec.auth.gate import Gate
from twisted_exec.auth.interfaces import Decision, IAuthorizer, User
from twisted_exec.auth.rules import Attributes, Rule
from twisted_exec.wire.session_terms import FULL, Right, Terms
from twisted_exec.wire.stream_options import CONSOLE as INPUT
from twisted_exec.wire.stream_options import StreamOptions

GROUP = MACHINES.resource.group
ANN = User("ann")
EXEC = Attributes(ANN, "create", GROUP, "v1alpha1", "machines", "exec", "lab", "vm")
OPEN = Rule(("create",), (GROUP,), ("machines/exec",))
READ = Rule(("get", "list", "watch"), ("*",), ("*",))


def console(*verbs: str) -> Rule:
    """A rule for verbs on consoles."""
    return Rule(verbs, (GROUP,), ("machines/console",))


@implementer(IAuthorizer)
class Rules:
    """Decides by a list of rules, and records the questions."""

    def __init__(self, *rules: Rule, hidden: bool = False) -> None:
        self.rules, self.hidden = rules, hidden
        self.questions: list[str] = []

    def authorize(self, attributes: Attributes) -> Deferred[Decision]:
        self.questions.append(f"{attributes.verb} {attributes.subresource}")
        allowed = any(rule.allows(attributes) for rule in self.rules)
        return succeed(Decision(allowed, hidden=self.hidden and not allowed))


class ConsoleVerbsTests(SynchronousTestCase):
    """Verbs of ``machines/console`` for an authorizer."""

    def allowed(self, *rules: Rule, strict: bool = False, **attributes: Any) -> list[str]:
        """Return the verbs that the rules allow."""
        verbs = ConsoleVerbs(Rules(*rules), [MACHINES.resource], strict=strict)
        place = {"subresource": "console", "namespace": "lab", "name": "vm", **attributes}
        return [
            verb
            for verb in VERBS
            if self.successResultOf(
                verbs.authorize(Attributes(ANN, verb, GROUP, "v1alpha1", "machines", **place))
            ).allowed
        ]

    def test_compatible(self) -> None:
        """The permission to open a console includes all verbs."""
        self.assertEqual(self.allowed(OPEN), list(VERBS))
        self.assertEqual(self.allowed(console("observe")), ["observe"])
        self.assertEqual(self.allowed(READ), [])

    def test_strict(self) -> None:
        """Only the verbs themselves count."""
        self.assertEqual(self.allowed(OPEN, strict=True), [])
        self.assertEqual(self.allowed(console("drive"), strict=True), ["drive"])
        self.assertEqual(self.allowed(READ, strict=True), [])
        everything = Rule(("*",), ("*",), ("*",))
        self.assertEqual(self.allowed(everything, strict=True), list(VERBS))

    def test_unknown(self) -> None:
        """
        A user whose right depends on policies that are not known yet is to try again, and is not refused.
        """

        def is_strict(attributes: Attributes) -> bool:
            raise ServiceUnavailable("not known yet")

        drive = Attributes(ANN, "drive", GROUP, "v1alpha1", "machines", "console", "lab", "vm")
        for rule, allowed in ((console("drive"), True), (READ, False), (OPEN, None)):
            verbs = ConsoleVerbs(Rules(rule), [MACHINES.resource], is_strict=is_strict)
            decided = verbs.authorize(drive)
            if allowed is None:
                self.failureResultOf(decided, ServiceUnavailable)
            else:
                self.assertEqual(self.successResultOf(decided).allowed, allowed)

    def test_can_i(self) -> None:
        """``kubectl auth can-i observe machines/console`` sends the subresource as the name."""
        for place in ({"subresource": "", "name": "console"}, {"subresource": "", "name": ""}):
            self.assertEqual(self.allowed(console("observe"), **place), ["observe"])
            self.assertEqual(self.allowed(OPEN, **place), list(VERBS))
        named = Rule(("observe",), (GROUP,), ("machines/console",), ("vm",))
        self.assertEqual(self.allowed(named), ["observe"])
        self.assertEqual(self.allowed(named, name="other"), [])

    def test_others(self) -> None:
        """Other requests are decided as before."""
        rules = Rules(OPEN)
        verbs = ConsoleVerbs(rules, [MACHINES.resource])
        for attributes in (
            EXEC,
            Attributes(ANN, "observe", "example.org", "v1", "machines", "console"),
            Attributes(ANN, "observe", GROUP, "v1alpha1", "machines", "log"),
            Attributes(ANN, "get", path="/metrics"),
        ):
            self.successResultOf(verbs.authorize(attributes))
        questions = ["create exec", "observe console", "observe log", "get "]
        self.assertEqual(rules.questions, questions)


class ConsoleAccessTests(SynchronousTestCase):
    """A user's access to one console."""

    def terms(
        self, *rules: Rule, options: StreamOptions = INPUT, strict: bool = False, **more: Any
    ) -> Terms | APIError:
        """Return the terms of a new session, or its refusal."""
        verbs = ConsoleVerbs(Rules(*rules, **more), [MACHINES.resource], strict=strict)
        gate = Gate(UnionAuthenticator([]), verbs)
        access = ConsoleAccess.of(EXEC, options, strict=strict)
        result: list[Any] = []
        Deferred.fromCoroutine(access.opening(gate)).addBoth(result.append)
        (right,) = result
        return right.value if isinstance(right, Failure) else access.terms(Terms(right=right))

    def test_highest(self) -> None:
        """A session gets the highest right of its user; a higher one includes the lower."""
        for verbs, right in (
            (("observe",), Right.OBSERVE),
            (("observe", "drive"), Right.DRIVE),
            (("drive",), Right.DRIVE),
            (("takeover",), Right.TAKEOVER),
        ):
            self.assertEqual(self.terms(console(*verbs)), Terms(right=right))
        self.assertEqual(self.terms(OPEN), FULL)

    def test_no_input(self) -> None:
        """
        A session without input is content with any right; hops of another make, which may take input
        all the same, get no session of a user who may only observe.
        """
        for verb in VERBS:
            held = Terms(right=Right.OBSERVE) if verb == "observe" else FULL
            for options in (
                StreamOptions(read_only=True),
                StreamOptions(read_only=True, force=True),
            ):
                self.assertEqual(self.terms(console(verb), options=options), held)

    def test_force(self) -> None:
        """Who may not take over is told what they may do."""
        force = StreamOptions(force=True)
        self.assertEqual(self.terms(console("takeover"), options=force), FULL)
        for verb in ("observe", "drive"):
            problem = self.terms(console(verb), options=force)
            assert isinstance(problem, Forbidden)
            self.assertIn('User "ann" cannot takeover resource "machines/console"', problem.message)
            self.assertIn(f"you may {verb} it: open it without --force", problem.message)

    def test_refused(self) -> None:
        """Without any right the permission that is missing is named."""
        for strict, lacking in (
            (False, 'create resource "machines/exec"'),
            (True, "drive resource"),
        ):
            problem = self.terms(READ, strict=strict)
            assert isinstance(problem, Forbidden)
            self.assertIn(f"cannot {lacking}", problem.message)
        problem = self.terms(READ, options=StreamOptions(read_only=True))
        assert isinstance(problem, Forbidden)
        self.assertIn('cannot observe resource "machines/console"', problem.message)
        self.assertIsInstance(self.terms(OPEN, strict=True), Forbidden)
        self.assertIsInstance(self.terms(hidden=True), NotFound)
