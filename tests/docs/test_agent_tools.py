"""Tests for ``docs/reference/agents-mcp.rst``."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.docs import agent_tools


class ToolTests(SynchronousTestCase):
    """The tools in the docs."""

    def test_table(self) -> None:
        """The table is that of the code: ``python -m tests.docs.agent_tools`` writes it."""
        self.assertEqual(agent_tools.PATH.read_text(), agent_tools.text())
