"""
Tests for :mod:`twisted_exec.apiserver.consoles.power`.
"""

from __future__ import annotations

from tests.apiserver.support import EVENTS, MACHINES, MERGE, APITestCase
from twisted_exec.api.kinds import Object

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
