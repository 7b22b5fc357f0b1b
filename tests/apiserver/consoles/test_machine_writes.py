"""
Tests for :mod:`twisted_exec.apiserver.consoles.machine_writes`.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.consoles.policies_support import PolicyTestCase
from tests.apiserver.support import EVENTS, MACHINES, MERGE, APITestCase
from twisted_exec.api.kinds import Object
from twisted_exec.api.kinds.consolepolicies import POLICY_REQUIRED

_VM = f"{MACHINES}/vm"
_OFF, _ON = {"spec": {"power": "Off"}}, {"spec": {"power": "On"}}


class PowerTests(APITestCase):
    """A machine, and users who may change it."""

    def setUp(self) -> None:
        super().setUp()
        self.make_machine("vm")

    def events(self) -> list[Object]:
        self.clock.pump([1.0] * 5)
        items = self.answer("GET", EVENTS)["items"]
        return [each for each in items if each["reason"] == "PowerChanged"]

    def test_named(self) -> None:
        """Users read who has asked for the power of a machine."""
        self.bind("jane", "edit")
        self.answer("PATCH", _VM, _OFF, content_type=MERGE, user="jane")
        (event,) = self.events()
        self.assertEqual(event["involvedObject"]["name"], "vm")
        self.assertEqual(event["message"], "jane has asked to power the machine off")
        self.answer("PATCH", _VM, _ON, content_type=MERGE)
        messages = {each["message"] for each in self.events()}
        self.assertEqual(len(messages), 2)
        self.assertTrue(any(each.endswith("power the machine on") for each in messages))

    def test_others(self) -> None:
        """Writes that change nothing of it, are refused, or are not to be stored, are no Events."""
        self.answer("PATCH", _VM, _ON, content_type=MERGE)
        self.answer("PATCH", _VM, {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE)
        self.answer("PATCH", f"{_VM}?dryRun=All", _OFF, content_type=MERGE)
        self.refused(403, "PATCH", _VM, _OFF, content_type=MERGE, user="jane")
        self.refused(422, "PATCH", _VM, {"spec": {"power": "Half"}}, content_type=MERGE)
        self.assertEqual(self.events(), [])


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
