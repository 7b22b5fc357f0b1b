"""
Tests for :mod:`twisted_exec.api.kinds.validation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.api.kinds.support import KindTestCase
from twisted_exec.api.kinds import (
    CLUSTERROLES,
    CONSOLEALERTS,
    CONSOLEPOLICIES,
    ipam,
    routing,
    validation,
)

NEEDS_VALUES = "Required value: must be specified when `operator` is 'In' or 'NotIn'"
NO_VALUES = "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
OPERATORS = '"DoesNotExist", "Exists", "In", "NotIn"'


def problems(selector: Mapping[str, Any]) -> list[str]:
    """Return the causes for a selector at the path ``s``."""
    return [
        f"{each['field']}: {each['message']}" for each in validation.label_selector(selector, "s")
    ]


class LabelSelectorTests(SynchronousTestCase):
    """Tests for :func:`label_selector`."""

    def test_good(self) -> None:
        """Each operator, with values where it needs them, is accepted."""
        expressions = [
            {"key": "a", "operator": "In", "values": ["x", ""]},
            {"key": "a", "operator": "NotIn", "values": ["x"]},
            {"key": "example.com/a", "operator": "Exists"},
            {"key": "a", "operator": "DoesNotExist", "values": []},
        ]
        self.assertEqual(problems({"matchLabels": {"a": "b"}, "matchExpressions": expressions}), [])
        self.assertEqual(problems({}), [])

    def test_values(self) -> None:
        """In and NotIn need values, and the other operators must not have any."""
        for operator, values, problem in (
            ("In", None, NEEDS_VALUES),
            ("In", [], NEEDS_VALUES),
            ("NotIn", None, NEEDS_VALUES),
            ("Exists", ["x"], NO_VALUES),
            ("DoesNotExist", ["x"], NO_VALUES),
        ):
            expression: dict[str, Any] = {"key": "a", "operator": operator}
            if values is not None:
                expression["values"] = values
            self.assertEqual(
                problems({"matchExpressions": [{"key": "b", "operator": "Exists"}, expression]}),
                [f"s.matchExpressions[1].values: {problem}"],
                expression,
            )

    def test_operator(self) -> None:
        """The error about an unknown operator has its path and the operators that exist."""
        for operator in ("Near", "in", ""):
            self.assertEqual(
                problems({"matchExpressions": [{"key": "a", "operator": operator}]}),
                [
                    f's.matchExpressions[0].operator: Unsupported value: "{operator}": '
                    f"supported values: {OPERATORS}"
                ],
            )

    def test_names(self) -> None:
        """Keys and values of labels that cannot exist are refused, each at its path."""
        for selector, start in (
            ({"matchLabels": {"-": "x"}}, 's.matchLabels: Invalid value: "-"'),
            ({"matchLabels": {"a": "b c"}}, 's.matchLabels: Invalid value: "b c"'),
            (
                {"matchExpressions": [{"key": "-", "operator": "Exists"}]},
                's.matchExpressions[0].key: Invalid value: "-"',
            ),
            (
                {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "b c"]}]},
                's.matchExpressions[0].values[1]: Invalid value: "b c"',
            ),
        ):
            (problem,) = problems(selector)
            self.assertTrue(problem.startswith(start), problem)


class SelectorFieldTests(KindTestCase):
    """The selectors of all kinds are checked."""

    def test_kinds(self) -> None:
        """A selector that needs values and has none is refused."""
        selector = {"matchExpressions": [{"key": "a", "operator": "In"}]}
        by_network = {"networkRef": {"name": "n"}, "networkInterfaceSelector": selector}
        of_interfaces = "spec.networkInterfaceSelector"
        aliases, balancers, gateways = routing.routed("x.example")
        aggregation = {"aggregationRule": {"clusterRoleSelectors": [selector]}}
        for kind, obj, path in (
            (CONSOLEPOLICIES, {"spec": {"selector": selector}}, "spec.selector"),
            (
                CONSOLEALERTS,
                {"spec": {"selector": selector, "presets": ["linux"]}},
                "spec.selector",
            ),
            (CLUSTERROLES, aggregation, "aggregationRule.clusterRoleSelectors[0]"),
            (
                ipam.prefixes("x.example"),
                {"spec": {"ipFamily": "IPv4", "prefixLength": 8, "parentSelector": selector}},
                "spec.parentSelector",
            ),
            (aliases, {"spec": by_network}, of_interfaces),
            (balancers, {"spec": {"type": "Public", **by_network}}, of_interfaces),
            (gateways, {"spec": {"type": "Public", **by_network}}, of_interfaces),
        ):
            self.kind = kind
            self.assertEqual(
                self.refused(**obj), [f"{path}.matchExpressions[0].values: {NEEDS_VALUES}"]
            )
