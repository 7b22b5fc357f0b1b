"""
Tests for :mod:`twisted_exec.poollet.recordings.messages`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.poollet.recordings.messages import events_of

RECORDING = {"phase": "Recording", "firstOffset": 2, "endOffset": 2}
CLOSED = {"phase": "Closed", "firstOffset": 2, "endOffset": 9}


class EventsTests(SynchronousTestCase):
    """Events about changes of a status."""

    def test_changes(self) -> None:
        """Each change that a user should know of is an Event; a newer head is none."""
        away = {"message": "it is not stored yet: cannot reach the bucket"}
        table = (
            ({}, RECORDING, ["RecordingStarted"]),
            (RECORDING, RECORDING | {"endOffset": 7}, []),
            (RECORDING, RECORDING | {"message": "disk full"}, ["RecordingInterrupted"]),
            (RECORDING | {"message": "disk full"}, RECORDING, []),
            (RECORDING, CLOSED, ["RecordingClosed"]),
            ({}, CLOSED, ["RecordingStarted", "RecordingClosed"]),
            (CLOSED, CLOSED | away, ["RecordingNotStored"]),
            (CLOSED | away, CLOSED | {"location": "s3://b/x.cast"}, ["RecordingStored"]),
            (CLOSED, CLOSED | {"message": "output is missing"}, ["RecordingIncomplete"]),
            (RECORDING, {"phase": "Failed", "message": "no"}, ["RecordingFailed"]),
            ({}, {"message": "no certificate"}, ["RecordingNotStarted"]),
        )
        for before, after, expected in table:
            found = [reason for _, reason, _ in events_of(before, after)]
            self.assertEqual(found, expected, (before, after))
