"""
Tests for :mod:`twisted_exec.apiserver.consoles.policy_evaluation`.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.kinds import CONSOLEPOLICIES
from twisted_exec.api.schema import set_defaults
from twisted_exec.apiserver.consoles.policy_evaluation import ParsedPolicy, demand_of, parsed
from twisted_exec.apiserver.interfaces import RecordingDemand


def policy(name: str, **recording: Any) -> ParsedPolicy:
    spec = {"recording": recording} if recording else {}
    set_defaults(CONSOLEPOLICIES.schema["spec"], spec)
    return parsed({"metadata": {"namespace": "default", "name": name}, "spec": spec})


class DemandTests(SynchronousTestCase):
    """Recordings that several policies demand."""

    def test_none(self) -> None:
        """Policies without a recording demand none."""
        self.assertIsNone(demand_of([policy("a"), policy("b")]))

    def test_strictest(self) -> None:
        """The most input, the longest retention, and Required win; all policies are named."""
        demand = demand_of(
            [
                policy("b", mode="Optional", input="all", retentionDays=7),
                policy("none"),
                policy("a", mode="Required", input="none", retentionDays=30),
            ]
        )
        assert demand is not None
        self.assertEqual(demand, RecordingDemand("all", True, 30, ("a", "b")))
        self.assertEqual(
            demand.rule("default"),
            "ConsolePolicies default/a, default/b require a recording of this console",
        )

    def test_wish(self) -> None:
        """The wish of a user adds to the policies, and sets no retention."""
        wish = RecordingDemand("masked", True)
        self.assertEqual(wish.rule("default"), "you asked for a recording of this console")
        demand = demand_of([policy("a", mode="Optional", input="none", retentionDays=7)])
        assert demand is not None
        self.assertEqual(wish.stricter(demand), RecordingDemand("masked", True, 7, ("a",)))

    def test_met(self) -> None:
        """A recording with more input meets a demand; one with less does not."""
        demand = RecordingDemand("masked", True)
        for recording, is_met in (
            ("", False),
            ("u/none", False),
            ("u/masked", True),
            ("u/all", True),
        ):
            self.assertEqual(demand.is_met_by(recording), is_met)
