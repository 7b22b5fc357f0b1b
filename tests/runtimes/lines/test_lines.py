"""
Tests for :mod:`twisted_exec.runtimes.lines.lines`.
"""

from __future__ import annotations

from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.runtimes.interfaces import CannotStart, MachineFacts
from twisted_exec.runtimes.lines.lines import Lines


def machine(name: str, namespace: str = "default") -> MachineFacts:
    return MachineFacts(
        id=f"id-of-{namespace}-{name}",
        label=f"{namespace}/{name}",
        hostname="",
        directory="",
        marker=("", ""),
        started=lambda leader: None,
        event=lambda *arguments: None,
        namespace=namespace,
        name=name,
    )


class LinesTests(SynchronousTestCase):
    """Tests for :class:`Lines`."""

    def refusal(self, lines: Lines[str], facts: MachineFacts) -> tuple[str, str]:
        with self.assertRaises(CannotStart) as caught:
            lines.claim(facts)
        return caught.exception.condition, caught.exception.message

    def test_names(self) -> None:
        """The line is called as the machine is, with its namespace first."""
        lines = Lines({"web": "plain", "lab/web": "special"})
        self.assertEqual(lines.claim(machine("web", "lab")), ("lab/web", "special"))
        self.assertEqual(lines.claim(machine("web", "prod")), ("web", "plain"))
        self.assertEqual(lines.options_of(machine("web", "lab")), "special")
        self.assertIsNone(lines.options_of(machine("mail")))

    def test_no_line(self) -> None:
        """A machine that names none reads what there is."""
        lines = Lines({"web-1": "", "web-2": "", "web-3": ""})
        lines.claim(machine("web-2"))
        reason, message = self.refusal(lines, machine("web-4"))
        self.assertEqual(reason, "NoLine")
        self.assertEqual(message, 'no line is called "default/web-4"; free lines are: web-1, web-3')

    def test_between_starts(self) -> None:
        """A machine that is on keeps its line while it waits for its next start."""
        lines, is_on = Lines({"web-1": "", "web-2": ""}), True
        facts = replace(machine("web-1"), is_on=lambda: is_on)
        lines.claim(facts)
        lines.release(facts)
        self.assertIn("free lines are: web-2", self.refusal(lines, machine("web-4"))[1])
        self.assertEqual(self.refusal(lines, machine("web-1", "other"))[0], "LineTaken")
        lines.claim(facts)
        is_on = False
        self.assertIn("free lines are: web-2", self.refusal(lines, machine("web-4"))[1])
        lines.release(facts)
        self.assertIn("free lines are: web-1, web-2", self.refusal(lines, machine("web-4"))[1])
        lines.claim(machine("web-1", "other"))

    def test_many(self) -> None:
        """A list that is too long to be read ends."""
        lines = Lines({f"port-{number}": "" for number in range(50)})
        _, message = self.refusal(lines, machine("x"))
        self.assertIn("port-19 and 30 more", message)

    def test_taken(self) -> None:
        """
        A second machine on a line is refused with the owner's name, and gets the line after its
        release.
        """
        lines = Lines({"web": ""})
        first, second = machine("web", "a"), machine("web", "b")
        lines.claim(first)
        lines.claim(first)
        self.assertEqual(
            self.refusal(lines, second),
            (
                "LineTaken",
                'line "web" is that of machine "a/web"; all lines of the class are taken',
            ),
        )
        lines.release(second)
        self.assertEqual(self.refusal(lines, second)[0], "LineTaken")
        lines.release(first)
        lines.claim(second)
