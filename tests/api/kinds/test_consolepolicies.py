"""
Tests for :mod:`twisted_exec.api.kinds.consolepolicies`.
"""

from __future__ import annotations

from typing import Any
from unittest import skipUnless

from tests.api.kinds.support import KindTestCase
from twisted_exec.api import patterns
from twisted_exec.api.kinds import CONSOLEPOLICIES

OFFICE = [{"days": ["Mon"], "from": "08:00", "to": "18:00"}]


class ConsolePolicyTests(KindTestCase):
    """ConsolePolicies."""

    kind = CONSOLEPOLICIES

    def assertRefused(self, message: str, **spec: Any) -> None:
        self.assertEqual(self.refused(spec=spec), [message])

    def test_defaults(self) -> None:
        """An empty policy restricts nothing, and says so."""
        self.assertEqual(
            self.create(spec={})["spec"],
            {
                "restricts": "Sessions",
                "reason": "Optional",
                "people": 1,
                "approval": "None",
                "verbs": "Compatible",
            },
        )
        self.assertEqual(self.refused(), ["spec: Required value"])

    def test_whole(self) -> None:
        """A policy with all conditions is shown in a table."""
        policy = self.create(
            spec={
                "selector": {"matchLabels": {"tier": "gold"}},
                "reason": "Required",
                "maxSeconds": 3600,
                "idleSeconds": 300,
                "hours": OFFICE,
                "timeZone": "Europe/Berlin",
                "viewers": 3,
                "people": 2,
                "subjects": [{"kind": "Group", "name": "on-call"}],
                "inputBytesPerSecond": 50,
                "yieldsToPeople": True,
                "restricts": "Input",
                "approval": "Once",
                "approvers": "ask #on-call",
                "verbs": "Strict",
                "recording": {"input": "all"},
            }
        )
        cells = [column.read(policy) for column in self.kind.columns]
        shown = "tier=gold|on-call|Required|Once|2|60m|5m|Mon 08:00-18:00 Europe/Berlin"
        shown += "|Input|50 B/s|ToPeople|Strict"
        shown += "|Required, input all"
        self.assertEqual("|".join(map(str, cells)), shown)

    def test_recording(self) -> None:
        """A recording is required, with the echoed input, and kept for 90 days, unless the policy says else."""
        policy = self.create(spec={"recording": {}})
        self.assertEqual(
            policy["spec"]["recording"],
            {"mode": "Required", "input": "masked", "retentionDays": 90},
        )
        self.assertRefused(
            'spec.recording.mode: Unsupported value: "required": supported values: "Optional", "Required"',
            recording={"mode": "required"},
        )

    def test_subjects(self) -> None:
        """Subjects are as those of a RoleBinding; a policy for nobody is refused."""
        self.assertRefused(
            "spec.subjects: Invalid value: []: must not be empty: leave it out to restrict everybody",
            subjects=[],
        )
        self.assertRefused(
            'spec.subjects[0].kind: Unsupported value: "Robot": supported values: "Group", '
            '"ServiceAccount", "User"',
            subjects=[{"kind": "Robot", "name": "x"}],
        )
        self.assertRefused(
            "spec.subjects[0].namespace: Required value",
            subjects=[{"kind": "ServiceAccount", "name": "x"}],
        )
        many = [{"kind": "User", "name": f"u{number}"} for number in range(257)]
        self.assertRefused(
            "spec.subjects: Too many: 257: must have at most 256 items", subjects=many
        )

    def test_input(self) -> None:
        """A rate of input is at least one byte in a second."""
        self.assertRefused(
            "spec.inputBytesPerSecond: Invalid value: 0: must be greater than or equal to 1",
            inputBytesPerSecond=0,
        )

    def test_people(self) -> None:
        """People are 1 to 10."""
        for people, bound in ((0, "greater than or equal to 1"), (11, "less than or equal to 10")):
            self.assertRefused(
                f"spec.people: Invalid value: {people}: must be {bound}", people=people
            )

    def test_never_satisfied(self) -> None:
        """A policy that no one can satisfy is refused with the reason."""
        self.assertRefused(
            "spec.viewers: Invalid value: 1: must be at least people, 2: no console would ever "
            "accept input",
            viewers=1,
            people=2,
        )
        self.assertRefused(
            "spec.hours: Invalid value: []: must not be empty, because no session would be allowed: "
            "leave it out for any time",
            hours=[],
        )

    def test_large_selector(self) -> None:
        """A selector has at most 64 terms: each session and each change of labels evaluates it."""
        exists = [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(63)]
        self.create(spec={"selector": {"matchLabels": {"a": "b"}, "matchExpressions": exists}})
        labels = {"a": "b", "c": "d"}
        self.assertRefused(
            "spec.selector: Too many: 65: must have at most 64 items",
            selector={"matchLabels": labels, "matchExpressions": exists},
        )

    def test_time_zone(self) -> None:
        """A time zone must exist, and have hours."""
        self.assertRefused(
            'spec.timeZone: Invalid value: "Mars": must be the IANA name of a time zone, such as UTC '
            "or Europe/Berlin",
            hours=OFFICE,
            timeZone="Mars",
        )
        self.assertRefused(
            "spec.timeZone: Forbidden: has a meaning only with spec.hours", timeZone="UTC"
        )

    def test_hours(self) -> None:
        """Bad hours are refused where they are."""
        self.assertRefused(
            'spec.hours[0].to: Invalid value: "25:00": must be a time such as 08:30',
            hours=[{"from": "08:00", "to": "25:00"}],
        )
        self.assertRefused(
            'spec.hours[0].days[0]: Unsupported value: "Monday": supported values: "Fri", "Mon", '
            '"Sat", "Sun", "Thu", "Tue", "Wed"',
            hours=[{"days": ["Monday"], "from": "08:00", "to": "18:00"}],
        )
        self.assertRefused(
            'spec.hours[0].days[1]: Duplicate value: "Mon"',
            hours=[{"days": ["Mon", "Mon"], "from": "08:00", "to": "18:00"}],
        )

    @skipUnless(patterns.SUPPORTED, patterns.UNSUPPORTED)
    def test_reason_pattern(self) -> None:
        """A pattern is valid RE2, and has a meaning only if reasons are required."""
        self.create(spec={"reason": "Required", "reasonPattern": "^OPS-[0-9]+$"})
        self.assertRefused(
            "spec.reasonPattern: Forbidden: has a meaning only with spec.reason: Required",
            reasonPattern="x",
        )
        self.assertRefused(
            'spec.reasonPattern: Invalid value: "ab(c": character 3: missing ): ab(c',
            reason="Required",
            reasonPattern="ab(c",
        )

    def test_without_the_extra(self) -> None:
        """A server that cannot search patterns refuses them, rather than let reasons pass."""
        self.patch(patterns, "SUPPORTED", False)
        (message,) = self.refused(spec={"reason": "Required", "reasonPattern": "OPS"})
        self.assertIn("pip install google-re2", message)

    def test_selector(self) -> None:
        """A selector that no label can match is refused; one that matches nothing is not."""
        self.create(spec={"selector": {"matchLabels": {"nobody": "has-this"}}})
        self.assertEqual(len(self.refused(spec={"selector": {"matchLabels": {"-": "x"}}})), 1)

    def test_approvers(self) -> None:
        """The hint goes into messages, so it has printable characters only."""
        for text in ("a\x1b[2J", "a\u202e", "a\u00a0b"):
            (message,) = self.refused(spec={"approvers": text})
            self.assertIn("must be printable characters", message)
