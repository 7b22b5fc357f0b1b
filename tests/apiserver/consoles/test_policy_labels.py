"""
Tests for :mod:`twisted_exec.apiserver.consoles.policy_labels`.
"""

from __future__ import annotations

from tests.apiserver.consoles.policies_support import PolicyTestCase
from tests.apiserver.support import MACHINES


class LabelTests(PolicyTestCase):
    """Users who edit machines cannot take them out of policies."""

    def setUp(self) -> None:
        super().setUp()
        self.label(tier="gold", other="x")
        self.make_policy(selector={"matchLabels": {"tier": "gold"}}, people=2)

    def test_leave(self) -> None:
        """Neither ``edit`` nor ``admin`` may remove or change the label."""
        for user in ("jane", "bob"):
            for value in (None, "silver"):
                message = self.label(user, 403, tier=value)["message"]
                self.assertEqual(
                    message,
                    'machines.compute.ironcore.dev "vm-1" is forbidden: without these labels '
                    f'ConsolePolicy "default/p" would not apply to it any more, and user "{user}" '
                    "cannot update that policy",
                )
        self.assertEqual(self.opened().people, 2)

    def test_replace(self) -> None:
        """A replacement without labels is refused as well."""
        body = self.answer("GET", f"{MACHINES}/vm-1")
        del body["metadata"]["labels"]
        self.refused(403, "PUT", f"{MACHINES}/vm-1", body, user="jane")

    def test_other(self) -> None:
        """Other labels, and labels that add a policy, change as before."""
        self.label("jane", other=None)
        self.make_policy("q", selector={"matchLabels": {"team": "a"}})
        self.label("jane", team="a")

    def test_negative(self) -> None:
        """A label can also be added to leave a policy."""
        without = [{"key": "free", "operator": "DoesNotExist"}]
        self.make_policy("q", selector={"matchExpressions": without})
        self.label("jane", 403, free="yes")

    def test_editor(self) -> None:
        """A user who may update the policy may change the label."""
        self.bind("jane", "console-policy-editor")
        self.label("jane", tier=None)
        self.assertEqual(self.opened().people, 1)
