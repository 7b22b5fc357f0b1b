"""
Tests for :mod:`twisted_exec.api.selectors`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import kinds
from twisted_exec.api.selectors import of_object, parse_fields, parse_labels
from twisted_exec.api.status import BadRequest

LABELS = {"app": "web", "tier": "a", "example.com/size": "12"}


class LabelTests(SynchronousTestCase):
    """Tests for :func:`parse_labels`."""

    def test_terms(self) -> None:
        """Each form of term, with a match and without."""
        for text, matches in [
            ("", True),
            ("app=web", True),
            ("app==web", True),
            ("app = web", True),
            ("app!=web", False),
            ("app!=db", True),
            ("other!=x", True),
            ("app", True),
            ("!app", False),
            ("! other", True),
            ("tier in (a, b)", True),
            ("tier in (b)", False),
            ("tier notin (a,b)", False),
            ("other notin (a)", True),
            ("app=web,tier in (a,b),!other", True),
            ("app=web,tier=b", False),
            ("example.com/size>11", True),
            ("example.com/size<12", False),
            ("app>1", False),
            ("app=", False),
        ]:
            self.assertIs(parse_labels(text).matches(LABELS), matches, text)

    def test_unreadable(self) -> None:
        """An invalid label selector is refused."""
        for text in ["=x", "a=b=c", "a in b", "a b", "-a=b", "a=b c", ",", "a" * 5000, "a in ("]:
            with self.assertRaises(BadRequest, msg=text):
                parse_labels(text)


class ObjectTests(SynchronousTestCase):
    """Tests for :func:`of_object`."""

    def selects(self, **expression: object) -> bool:
        return of_object({"matchExpressions": [{"key": "app", **expression}]}).matches(LABELS)

    def test_expressions(self) -> None:
        """Each operator, with a match and without."""
        for operator, values, matches in (
            ("In", ["web"], True),
            ("In", ["db"], False),
            ("NotIn", ["web"], False),
            ("NotIn", ["db"], True),
            ("Exists", [], True),
            ("DoesNotExist", None, False),
        ):
            self.assertIs(self.selects(operator=operator, values=values), matches, operator)
        self.assertTrue(of_object(None).matches(LABELS))

    def test_unusable(self) -> None:
        """A selector that no server accepts, such as In without values, is refused."""
        for operator, values, problem in (
            ("In", [], "the operator In of a label selector needs values"),
            ("NotIn", None, "the operator NotIn of a label selector needs values"),
            ("Exists", ["x"], "the operator Exists of a label selector must not have values"),
            ("DoesNotExist", ["x"], "the operator DoesNotExist of a label selector must not have"),
            ("Near", ["x"], "'Near' is not a valid label selector operator"),
        ):
            with self.assertRaises(ValueError) as caught:
                self.selects(operator=operator, values=values)
            self.assertIn(problem, str(caught.exception))


class TermsTests(SynchronousTestCase):
    """The number of terms is what a list costs."""

    def test_repeated(self) -> None:
        """A repeated term counts once, however it is written."""
        self.assertEqual(len(parse_labels(",".join(["!b"] * 1000)).requirements), 1)
        self.assertEqual(len(parse_labels("a in (b,c), !d ,a in (b,c),!d").requirements), 2)
        self.assertEqual(len(parse_fields("metadata.name!=a,metadata.name!=a").terms), 1)

    def test_many(self) -> None:
        """More than 256 different terms are refused."""
        for parse, end in ((parse_labels, ""), (parse_fields, "=b")):
            parse(",".join(f"a{number}{end}" for number in range(256)))
            with self.assertRaises(BadRequest) as caught:
                parse(",".join(f"a{number}{end}" for number in range(257)))
            told = "a selector has 257 different terms: 256 are the limit"
            self.assertEqual(caught.exception.message, told)


class FieldTests(SynchronousTestCase):
    """Tests for :func:`parse_fields`."""

    machine = {
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"machinePoolRef": {"name": "p"}, "machineClassRef": {"name": "c"}},
        "status": {"conditions": [{"type": "ConsoleHealthy", "status": "False"}]},
    }

    def test_terms(self) -> None:
        """Terms with ``=``, ``==`` and ``!=``, alone and combined."""
        for text, matches in [
            ("", True),
            ("metadata.name=a", True),
            ("metadata.name==a,metadata.namespace!=other", True),
            ("spec.machinePoolRef.name=p", True),
            ("spec.machinePoolRef.name!=p", False),
            ("spec.machineClassRef.name=", False),
            ("status.conditions.ConsoleHealthy=False", True),
            ("status.conditions.ConsoleHealthy=True", False),
        ]:
            selector = parse_fields(text)
            selector.check(kinds.MACHINES.selectable)
            self.assertIs(selector.matches(self.machine, kinds.MACHINES.selectable), matches, text)

    def test_missing_reads_as_empty(self) -> None:
        """A machine without a pool is selected by the empty name, one without a condition by the empty status."""
        selector = parse_fields("spec.machinePoolRef.name=,status.conditions.ConsoleHealthy=")
        machine = {"metadata": {"name": "a"}, "spec": {}}
        self.assertTrue(selector.matches(machine, kinds.MACHINES.selectable))

    def test_unsupported(self) -> None:
        """The error for an unsupported field names the field."""
        with self.assertRaises(BadRequest) as caught:
            parse_fields("spec.power=On").check(kinds.MACHINES.selectable)
        self.assertEqual(caught.exception.message, "field label not supported: spec.power")

    def test_required(self) -> None:
        """Only an equality term requires a value."""
        selector = parse_fields("metadata.name=a,metadata.namespace!=b")
        self.assertEqual(selector.required("metadata.name"), "a")
        self.assertIsNone(selector.required("metadata.namespace"))

    def test_escapes(self) -> None:
        """Commas, equals signs and backslashes can be part of a value."""
        self.assertEqual(
            parse_fields(r"a=b\,c\=d\\e,f=g").terms, (("a", True, r"b,c=d\e"), ("f", True, "g"))
        )

    def test_unreadable(self) -> None:
        """An invalid field selector is refused."""
        for text in ["a", "=b", "a=b=c"]:
            with self.assertRaises(BadRequest, msg=text):
                parse_fields(text)
