"""
Tests for :mod:`twisted_exec.poollet.class_matching`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.poollet.class_matching import ReadOnlyObject, choice

MIB = 1 << 20


def machine_class(name: str, **capabilities: str) -> ReadOnlyObject:
    """A MachineClass of the API server."""
    return {"metadata": {"name": name}, "capabilities": capabilities}


def offers(**classes: dict[str, int]) -> pb.StatusResponse:
    """A runtime's answer: capabilities by class."""
    answer = pb.StatusResponse()
    for name, resources in classes.items():
        machine_class = answer.machine_class_status.add(quantity=1).machine_class
        machine_class.name = name
        machine_class.capabilities.resources.update(resources)
    return answer


class ChoiceTests(SynchronousTestCase):
    """Tests for :func:`choice`."""

    def chosen(self, answer: pb.StatusResponse) -> tuple[str, str]:
        return choice("vm", [machine_class("vm", cpu="1", memory="128Mi")], answer)

    def test_same_name(self) -> None:
        """The class of that name, when it has the same capabilities."""
        same = {"cpu": 1, "memory": 128 * MIB}
        self.assertEqual(self.chosen(offers(other=same, vm=same)), ("vm", ""))

    def test_only_one_alike(self) -> None:
        """Else the only one with these capabilities."""
        self.assertEqual(self.chosen(offers(other={"cpu": 1, "memory": 128 * MIB})), ("other", ""))

    def test_only_by_name(self) -> None:
        """A class whose machines are processes of the host is not found by its capabilities."""
        answer = offers(pty={"cpu": 1, "memory": 128 * MIB})
        answer.machine_class_status[0].only_by_name = True
        name, why = self.chosen(answer)
        self.assertEqual(name, "")
        self.assertIn(
            'its class "pty" has the same capabilities, but only its name selects it', why
        )
        pty = machine_class("pty", cpu="1", memory="128Mi")
        self.assertEqual(choice("pty", [pty], answer), ("pty", ""))

    def test_unknown(self) -> None:
        """A MachineClass that does not exist."""
        missing = 'class "vm" does not exist; there are: none'
        self.assertEqual(choice("vm", [], offers()), ("", missing))

    def test_other_capabilities(self) -> None:
        """The class has other capabilities in the runtime: the message has both."""
        self.assertEqual(
            self.chosen(offers(vm={"cpu": 1, "memory": 64 * MIB})),
            (
                "",
                'the machine runtime\'s class "vm" has cpu 1, memory 64Mi, and machine class "vm" '
                "has cpu 1, memory 128Mi: they must be the same",
            ),
        )

    def test_several_alike(self) -> None:
        """Several classes match: the choice would be arbitrary."""
        same = {"cpu": 1, "memory": 128 * MIB}
        self.assertEqual(
            self.chosen(offers(b=same, a=same)),
            (
                "",
                'the machine runtime has no class "vm" on this host, and several with its '
                "capabilities: a, b",
            ),
        )

    def test_none_alike(self) -> None:
        """The message lists the runtime's classes, up to a limit."""
        other = {"cpu": 2}
        begins = (
            'the machine runtime offers no class "vm", and none with its capabilities '
            "(cpu 1, memory 128Mi); it offers: "
        )
        self.assertEqual(self.chosen(offers()), ("", begins + "none"))
        self.assertEqual(self.chosen(offers(b=other, a=other)), ("", begins + "a, b"))
        many = offers(**{f"c{count:03}": other for count in range(50)})
        self.assertTrue(self.chosen(many)[1].endswith("c019 and 30 more"))
