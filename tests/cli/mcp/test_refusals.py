"""
Tests for :mod:`twisted_exec.cli.mcp.refusals`, with the texts of the server.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import Forbidden
from twisted_exec.apiserver.consoles.policy_evaluation import evaluate, parsed
from twisted_exec.apiserver.interfaces import Applicant
from twisted_exec.auth.interfaces import User
from twisted_exec.cli.mcp.refusals import TOOLS_ADVICE
from twisted_exec.wire.session_terms import Right

MACHINE = {"metadata": {"namespace": "default", "name": "vm", "labels": {}}}
AGENT = "agent:ada:triage"
SUBJECTS = [{"kind": "User", "name": AGENT}]


class ToolsAdviceTests(SynchronousTestCase):
    """Messages that have no causes, such as those of endings."""

    def refusal(self, right: Right, **spec: Any) -> str:
        """Return how the server refuses a session, or ends it."""
        metadata = {"namespace": "default", "name": "p"}
        policy = parsed({"metadata": metadata, "spec": {"subjects": SUBJECTS, **spec}})
        applicant = Applicant(User(AGENT, ("agents",)), "", 0.0, wanted=right)
        with self.assertRaises(Forbidden) as caught:
            evaluate([policy], [], applicant, MACHINE, right, 0.0)
        return TOOLS_ADVICE.refused(caught.exception.message)

    def test_policies(self) -> None:
        """The remedies of policies are a tool and a parameter, whatever the right."""
        for right in (Right.OBSERVE, Right.DRIVE):
            line = self.refusal(right, approval="Once")
            self.assertTrue(line.endswith(": request it with request_access"), line)
            line = self.refusal(right, reason="Required")
            self.assertTrue(line.endswith(": use the parameter reason"), line)

    def test_screen(self) -> None:
        """A screen that its user's session shows is opened with a tool."""
        for text, expected in (
            (
                "it shows the screen: open it with kubectl console vm -n default --read-only",
                "it shows the screen: send opens it, and read_log needs none",
            ),
            (
                "you may observe it: open it with --read-only",
                "you may observe it: get_screen and read_log show it",
            ),
        ):
            self.assertEqual(TOOLS_ADVICE.refused(text), expected)
