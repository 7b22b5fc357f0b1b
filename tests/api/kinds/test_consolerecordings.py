"""
Tests for :mod:`twisted_exec.api.kinds.consolerecordings`.
"""

from __future__ import annotations

from typing import Any

from tests.api.kinds.support import KindTestCase
from twisted_exec.api import strategy
from twisted_exec.api.kinds import CONSOLERECORDINGS, Object
from twisted_exec.api.kinds.consolepolicies import RECORDED_INPUT
from twisted_exec.api.kinds.consolerecordings import end_of, state_of
from twisted_exec.api.status import Invalid
from twisted_exec.api.times import seconds
from twisted_exec.wire import session_terms

NOON = "2026-11-22T12:00:00Z"
BY_SERVER = {"machineUID": "u-1", "pool": "a", "policies": ["p"], "machineResource": "machines.x"}


class ConsoleRecordingTests(KindTestCase):
    """ConsoleRecordings."""

    kind = CONSOLERECORDINGS

    def stored(self, **status: Any) -> Object:
        recording = self.create(spec={"machine": "vm-1"})
        recording["spec"] |= BY_SERVER
        return {**recording, **({"status": status} if status else {})}

    def test_defaults(self) -> None:
        """A recording has the echoed input, and is deleted 30 days after its end."""
        recording = self.create(spec={"machine": "vm-1"}, status={"phase": "Closed"})
        expected = {"machine": "vm-1", "input": "masked", "retentionDays": 30}
        self.assertEqual(recording["spec"], expected)
        self.assertNotIn("status", recording)

    def test_input(self) -> None:
        """The object, the policy and the terms of a session know the same words."""
        self.assertEqual(RECORDED_INPUT, session_terms.RECORDED_INPUT)

    def test_refused(self) -> None:
        """A machine, a known kind of input, and a lifetime in days."""
        for spec, message in (
            ({}, "spec.machine: Required value"),
            (
                {"machine": "a", "input": "secret"},
                'spec.input: Unsupported value: "secret": supported values: "all", "masked", "none"',
            ),
            (
                {"machine": "a", "retentionDays": 0},
                "spec.retentionDays: Invalid value: 0: must be greater than or equal to 1",
            ),
            (
                {"machine": "a", "reason": "x\n"},
                'spec.reason: Invalid value: "x\\n": the reason has a control or invisible character (U+000A): remove it',
            ),
        ):
            self.assertEqual(self.refused(spec=spec), [message])

    def test_updated(self) -> None:
        """A recording can be ended once, and its retention and reason change."""
        old = self.stored()
        for change in ({"machine": "b"}, {"input": "all"}, {"machineUID": "u"}, {"policies": []}):
            (key,) = change
            self.assertEqual(
                self.update_refused(old, spec={**old["spec"], **change}),
                [f"spec.{key}: Forbidden: is immutable: end this recording and create another"],
            )
        without = {k: v for k, v in old["spec"].items() if k not in BY_SERVER}
        body = {**old, "spec": {**without, "ended": True, "retentionDays": 7, "reason": "x"}}
        new = strategy.for_update(self.kind, body, old)
        self.assertEqual(new["spec"]["policies"], ["p"])
        self.assertEqual(
            self.update_refused(new, spec={**new["spec"], "ended": False}),
            ["spec.ended: Forbidden: cannot be taken back: create another recording"],
        )

    def test_phase(self) -> None:
        """A closed recording does not go on."""
        old = self.stored(phase="Closed")
        with self.assertRaises(Invalid) as caught:
            body = {**old, "status": {"phase": "Recording"}}
            strategy.for_update(self.kind, body, old, subresource="status")
        self.assertIn("status.phase", str(caught.exception.details))

    def test_state(self) -> None:
        """The state follows from the phase, and from the wish to end."""
        old = self.stored()
        self.assertEqual(state_of(old), "Pending")
        self.assertIsNone(end_of(old))
        old["spec"] |= {"ended": True, "endedTime": NOON}
        self.assertEqual((state_of(old), end_of(old)), ("Ending", seconds(NOON)))
        self.assertEqual(state_of(self.stored(phase="Recording")), "Recording")
        closed = self.stored(phase="Failed", endTime=NOON)
        self.assertEqual((state_of(closed), end_of(closed)), ("Failed", seconds(NOON)))

    def test_columns(self) -> None:
        """The table shows the bytes and the policies."""
        cells = {
            column.name: column.read(self.stored(phase="Recording", firstOffset=5, endOffset=12))
            for column in self.kind.columns
        }
        self.assertEqual((cells["Bytes"], cells["Policies"], cells["Users"]), ("7", "p", "<none>"))
        self.assertEqual((cells["State"], cells["Ended"]), ("Recording", "<none>"))
