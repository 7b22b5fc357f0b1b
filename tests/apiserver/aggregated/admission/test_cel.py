"""
Tests for :mod:`twisted_exec.apiserver.aggregated.admission.cel`.
"""

from __future__ import annotations

import sys
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.aggregated.admission.test_matching import asked
from twisted_exec.apiserver.aggregated.admission import cel
from twisted_exec.apiserver.aggregated.admission.cel import Cel, Conditions, Undecided, values_of
from twisted_exec.apiserver.aggregated.admission.hooks import Condition

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
        self.cel = Cel()

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
            self.assertEqual(self.cel.evaluate(expression, {"object": OBJECT}), value, expression)

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
            with self.assertRaises(Undecided) as caught:
                self.cel.evaluate(expression, {"object": OBJECT})
            self.assertIn(told, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))
            self.assertLess(len(str(caught.exception)), 1000)

    def test_bounded(self) -> None:
        """A loop of loops ends, with an error."""
        many = list(range(300))
        expression = "object.l.all(a, object.l.all(b, object.l.all(c, a + b + c >= 0)))"
        with self.assertRaises(Undecided):
            self.cel.evaluate(expression, {"object": {"l": many}})

    def test_without_the_package(self) -> None:
        """Nothing can be evaluated, and it says what is missing."""
        known = {name: sys.modules[name] for name in sys.modules if name.startswith(PACKAGE)}
        self.addCleanup(sys.modules.update, known)
        for name in (PACKAGE, *known):
            sys.modules[name] = None  # type: ignore[assignment]  # as if there were none
        with self.assertRaises(Undecided) as caught:
            self.cel.evaluate("true", {})
        self.assertIn("cel-expr-python is not installed", str(caught.exception))

    def test_missing(self) -> None:
        """A missing library is reported at the start, before any evaluation."""
        self.assertEqual(self.cel.problem, "")
        self.patch(cel, "_PACKAGE", "nobody_has_this")
        self.assertIn("cel-expr-python is not installed", self.cel.problem)


class ConditionsTests(SynchronousTestCase):
    """Evaluation of ``matchConditions``."""

    def test_hold(self) -> None:
        """All must be true; one that is false decides, whatever fails; else a failure does."""
        conditions = Conditions(Cel())
        yes, no, bad = "true", "request.name == 'other'", "object.nothing"
        for expressions, outcome in (
            ([], True),
            ([yes, yes], True),
            ([yes, no], False),
            ([bad, no], False),
            ([yes, bad], None),
            (["1"], None),
        ):
            told = [Condition(f"c{number}", each) for number, each in enumerate(expressions)]
            if outcome is None:
                self.assertRaises(Undecided, conditions.hold, told, asked())
            else:
                self.assertEqual(conditions.hold(told, asked()), outcome, expressions)

    def test_values(self) -> None:
        """Expressions see the request of an AdmissionReview, without empty fields."""
        request = values_of(asked(namespace="", dry_run=True))["request"]
        self.assertEqual(request["dryRun"], True)
        self.assertEqual(request["userInfo"]["username"], "jane")
        self.assertNotIn("namespace", request)
        self.assertNotIn("uid", request)
