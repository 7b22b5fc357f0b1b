"""The page about Nodes says what the code writes."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec import nodeserver
from twisted_exec.nodeserver.clusters import KOSMOS_LEAF
from twisted_exec.nodeserver.needs import probe_rules
from twisted_exec.nodeserver.node_conditions import OURS, POLICIES
from twisted_exec.nodeserver.node_plan import KEPT_BY, LEAF, UPKEEPS

PAGE = Path(__file__).parents[2] / "docs/reference/nodes.rst"
CODE = Path(nodeserver.__file__).parent


class PageTests(SynchronousTestCase):
    """``docs/reference/nodes.rst``."""

    def setUp(self) -> None:
        self.text = PAGE.read_text()

    def test_words(self) -> None:
        """Conditions, marks and choices are all there."""
        for word in (*OURS, *POLICIES, *UPKEEPS, KEPT_BY.split("/")[1], LEAF, KOSMOS_LEAF):
            self.assertIn(word, self.text)

    def test_reasons(self) -> None:
        """So is every reason of a condition that is not well, and of an Event."""
        found: set[str] = set()
        for module in ("probe", "node_conditions"):
            code = (CODE / f"{module}.py").read_text()
            found.update(re.findall(r'\("(?:False|Unknown)", "(\w+)"', code))
            found.update(re.findall(r'_away\("(\w+)"', code))
        for module in ("kept_node", "upkeep"):
            code = (CODE / f"{module}.py").read_text()
            found.update(re.findall(r'"(?:Warning|Normal)", "(\w+)"', code))
        self.assertGreater(len(found), 15)
        self.assertEqual({reason for reason in found if f"``{reason}``" not in self.text}, set())

    def test_role(self) -> None:
        """The role for the probe is what the probe needs, and for named Nodes only."""
        (block,) = re.findall(r"code-block:: yaml\n\n((?:   .*\n|\n)+)", self.text)
        (rule,) = yaml.safe_load(block)["rules"]
        (needed,) = probe_rules(["kosmos-one"])
        self.assertEqual(
            rule,
            {
                "apiGroups": list(needed.api_groups),
                "resources": list(needed.resources),
                "resourceNames": list(needed.resource_names),
                "verbs": list(needed.verbs),
            },
        )
