"""Tests for ``docs/reference/nodes.rst``."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec import nodeserver
from twisted_exec.nodeserver.leaves.kosmos import KOSMOS_LEAF
from twisted_exec.nodeserver.nodes.conditions import OURS, READY_POLICIES
from twisted_exec.nodeserver.nodes.plan import KEPT_BY, LEAF, NODE_SOURCES
from twisted_exec.nodeserver.rbac_rules import probe_rules

PAGE = Path(__file__).parents[2] / "docs/reference/nodes.rst"
CODE = Path(nodeserver.__file__).parent


class PageTests(SynchronousTestCase):
    """``docs/reference/nodes.rst``."""

    def setUp(self) -> None:
        self.text = PAGE.read_text()

    def test_words(self) -> None:
        """The page names every condition, label and policy."""
        for word in (
            *OURS,
            *READY_POLICIES,
            *NODE_SOURCES,
            KEPT_BY.split("/")[1],
            LEAF,
            KOSMOS_LEAF,
        ):
            self.assertIn(word, self.text)

    def test_reasons(self) -> None:
        """The page names every reason of a failing condition and of an Event."""
        reasons: set[str] = set()
        for module in ("probe", "conditions", "status"):
            code = (CODE / "nodes" / f"{module}.py").read_text()
            reasons.update(re.findall(r'\("(?:False|Unknown)", "(\w+)"', code))
            reasons.update(re.findall(r'_away\("(\w+)"', code))
        for module in ("worker", "address_conflict", "controller"):
            code = (CODE / "nodes" / f"{module}.py").read_text()
            reasons.update(re.findall(r'"(?:Warning|Normal)", "(\w+)"', code))
        self.assertGreater(len(reasons), 15)
        self.assertEqual({reason for reason in reasons if f"``{reason}``" not in self.text}, set())

    def test_role(self) -> None:
        """The role on the page has exactly the probe's rules, for named Nodes only."""
        (block,) = re.findall(r"code-block:: yaml\n\n((?:   .*\n|\n)+)", self.text)
        (rule,) = yaml.safe_load(block)["rules"]
        (expected,) = probe_rules(["kosmos-one"])
        self.assertEqual(
            rule,
            {
                "apiGroups": list(expected.api_groups),
                "resources": list(expected.resources),
                "resourceNames": list(expected.resource_names),
                "verbs": list(expected.verbs),
            },
        )
