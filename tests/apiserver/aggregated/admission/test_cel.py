"""
Tests for :mod:`twisted_exec.apiserver.aggregated.admission.cel`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.apiserver.aggregated.admission.test_matching import asked
from tests.program.memory_processes import MemoryReactor
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.apiserver.aggregated.admission import cel
from twisted_exec.apiserver.aggregated.admission.cel import (
    Cel,
    MatchConditions,
    Undecided,
    values_of,
)
from twisted_exec.apiserver.aggregated.admission.matching import NamedExpression
from twisted_exec.auth.expressions import WAITING_OF_USER
from twisted_exec.program.job_processes import PROCESSES

PACKAGE = "cel_expr_python"
OBJECT: dict[str, Any] = {
    "metadata": {"name": "vm", "labels": {"tier": "gold"}},
    "spec": {
        "n": 5,
        "share": 1.5,
        "image": "registry.example/os:1",
        "list": ["a", "b"],
        "no": None,
    },
}


class CelTests(SynchronousTestCase):
    """Expressions as policies have them."""

    def setUp(self) -> None:
        self.reactor = MemoryReactor()
        self.cel = Cel(self.reactor)

    def evaluate(self, expression: str, values: dict[str, Any]) -> Any:
        """A value that is there at once."""
        return self.successResultOf(self.evaluating(expression, values))

    def evaluating(self, expression: str, values: dict[str, Any], user: str = "jane") -> Any:
        return Deferred.fromCoroutine(self.cel.evaluate(expression, values, user))

    def why_not(self, expression: str, values: dict[str, Any]) -> str:
        return str(self.failureResultOf(self.evaluating(expression, values), Undecided).value)

    def test_evaluates(self) -> None:
        """The language, with strings and optional values."""
        for expression, value in (
            ("object.spec.n <= 5 && object.spec.n == 5.0", True),
            ("double('1.5') > 1 && 1u < 2 && [1, 2].size() < 2.5", True),
            ("has(object.spec.missing)", False),
            ("object.spec.missing == 1 || true", True),
            ("object.spec.no == null && oldObject == null", True),
            ("object.spec.list.all(each, each.size() == 1)", True),
            ("object.spec.list.map(each, each + '!').join(',')", "a!,b!"),
            ("object.spec.image.startsWith('registry.example/')", True),
            ("object.spec.image.matches('^[a-z.]+/os:[0-9]+$')", True),
            ("object.metadata.?labels.tier.orValue('none')", "gold"),
            ("object.metadata.labels[?'zone'].orValue('none')", "none"),
            ("object.spec.n", 5),
            ("object.spec", OBJECT["spec"]),
            ("timestamp('2020-01-01T00:00:00Z') < timestamp('2021-01-01T00:00:00Z')", True),
        ):
            self.assertEqual(self.evaluate(expression, {"object": OBJECT}), value, expression)

    def test_cannot(self) -> None:
        """Expressions that do not compile, fail, or use Kubernetes' libraries are errors."""
        for expression, told in (
            ("1 +", "Syntax error"),
            ("object.spec.missing == 1", "missing"),
            ("object.spec.n > 'a'", "No matching overload"),
            ("1 / 0 == 1", "divide by zero"),
            ("1 + 1.5 > 2", "resulted in error"),
            ("1 + 1.5 > 2 || unheard(1) || true", "found no matching overload"),
            ("quantity('1Gi').isLessThan(quantity('2Gi'))", "undeclared reference to 'quantity'"),
            ("authorizer.path('/').check('get').allowed()", "undeclared reference to 'authorizer'"),
            ("(" * 5000 + "1" + ")" * 5000, "resulted in error"),
        ):
            why = self.why_not(expression, {"object": OBJECT})
            self.assertIn(told, why)
            self.assertNotIn("\n", why)
            self.assertLess(len(why), 1000)

    def test_bounded(self) -> None:
        """What may cost much is evaluated elsewhere; one that costs too much is an error."""
        for expression, values in (
            (
                "object.l.all(a, object.l.all(b, object.l.all(c, a + b + c >= 0)))",
                {"l": list(range(300))},
            ),
            ("object.l.exists(a, object.s.matches(a))", {"l": ["a"], "s": "b"}),
        ):
            evaluating = self.evaluating(expression, {"object": values})
            self.assertNoResult(evaluating)
            self.reactor.processes[-1].ends()
            why = str(self.failureResultOf(evaluating, Undecided).value)
            self.assertIn("costs too much about these values", why)

    def test_many(self) -> None:
        """One user's costly evaluations have a limit, which is no matter of a failurePolicy."""
        costly = "object.matches(object)"
        for _ in range(PROCESSES + WAITING_OF_USER):
            self.assertNoResult(self.evaluating(costly, {"object": "a"}))
        refused = self.evaluating(costly, {"object": "a"})
        self.failureResultOf(refused, ServiceUnavailable)
        self.assertNoResult(self.evaluating(costly, {"object": "a"}, "joe"))

    def test_without_the_package(self) -> None:
        """Nothing can be evaluated, and it says what is missing."""
        needs.without(self, PACKAGE)
        self.assertIn("cel-expr-python is not installed", self.why_not("true", {}))

    def test_missing(self) -> None:
        """A missing library is reported at the start, before any evaluation."""
        self.assertEqual(self.cel.problem, "")
        self.patch(cel, "_PACKAGE", "nobody_has_this")
        self.assertIn("cel-expr-python is not installed", self.cel.problem)


class ConditionsTests(SynchronousTestCase):
    """Evaluation of ``matchConditions``."""

    def test_hold(self) -> None:
        """All must be true; one that is false decides, whatever fails; else a failure does."""
        conditions = MatchConditions(Cel(MemoryReactor()))
        yes, no, bad = "true", "request.name == 'other'", "object.nothing"
        for expressions, outcome in (
            ([], True),
            ([yes, yes], True),
            ([yes, no], False),
            ([bad, no], False),
            ([yes, bad], None),
            (["1"], None),
        ):
            told = [NamedExpression(f"c{number}", each) for number, each in enumerate(expressions)]
            holds = Deferred.fromCoroutine(conditions.hold(told, asked()))
            if outcome is None:
                self.failureResultOf(holds, Undecided)
            else:
                self.assertEqual(self.successResultOf(holds), outcome, expressions)

    def test_values(self) -> None:
        """Expressions see the request of an AdmissionReview, without empty fields."""
        request = values_of(asked(namespace="", dry_run=True))["request"]
        self.assertEqual(request["dryRun"], True)
        self.assertEqual(request["userInfo"]["username"], "jane")
        self.assertNotIn("namespace", request)
        self.assertNotIn("uid", request)
