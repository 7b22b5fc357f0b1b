"""
Tests for :mod:`twisted_exec.apiserver.consoles.agent_changes`.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.consoles.policies_support import PolicyTestCase
from tests.apiserver.support import MACHINES, MERGE
from twisted_exec.api.kinds.consolepolicies import POLICY_REQUIRED

AS = "Impersonate-User"
BOT = "agent:jane:bot"
VM = f"{MACHINES}/vm-1"
OFF = {"spec": {"power": "Off"}}


class ChangeTests(PolicyTestCase):
    """An agent with all rights changes machines only where a policy with subjects covers it."""

    def setUp(self) -> None:
        super().setUp()
        self.bind(BOT, "edit")

    def as_agent(
        self, method: str, path: str, body: Any = None, code: int = 403, **more: Any
    ) -> Any:
        headers = [(AS, BOT)]
        return self.answer(method, path, body, code=code, headers=headers, **more)

    def power(self, code: int, **more: Any) -> Any:
        return self.as_agent("PATCH", VM, OFF, code, content_type=MERGE, **more)

    def test_uncovered(self) -> None:
        """Without a policy for it, it neither powers a machine, nor creates, deletes or writes the status of one."""
        self.make_policy("all", idleSeconds=60)
        refusal = self.power(403)
        self.assertIn("no ConsolePolicy with subjects covers it", refusal["message"])
        reasons = [each["reason"] for each in refusal["details"]["causes"]]
        self.assertEqual(reasons, [POLICY_REQUIRED])
        machine = self.answer("GET", VM)
        self.as_agent("DELETE", VM)
        self.as_agent("PUT", f"{VM}/status", machine)
        other = {"metadata": {"name": "vm-2"}, "spec": machine["spec"]}
        self.as_agent("POST", MACHINES, other)
        self.assertEqual(self.answer("GET", VM), machine)

    def test_covered(self) -> None:
        """With a policy for it, it does what its rights allow; people never need one."""
        self.answer("PATCH", VM, OFF, user="jane", content_type=MERGE)
        self.make_policy(subjects=[{"kind": "User", "name": BOT}])
        on = {"spec": {"power": "On"}}
        self.as_agent("PATCH", VM, on, 200, content_type=MERGE)
        self.as_agent("DELETE", VM, code=200)

    def test_labels(self) -> None:
        """A write that selects the machine for the first policy of the agent is refused."""
        gold = {"matchLabels": {"tier": "gold"}}
        self.make_policy(selector=gold, subjects=[{"kind": "User", "name": BOT}])
        label = {"metadata": {"labels": {"tier": "gold"}}}
        self.as_agent("PATCH", VM, label, content_type=MERGE)
        self.label(tier="gold")
        self.power(200)
