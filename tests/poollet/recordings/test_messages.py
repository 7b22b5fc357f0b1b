"""
Tests for :mod:`twisted_exec.poollet.recordings.messages`.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.kube.interfaces import Object
from twisted_exec.poollet.recordings import messages
from twisted_exec.poollet.recordings.messages import events_of
from twisted_exec.program.turns import REST_SECONDS, TURN_SECONDS, ShortTurns

RECORDING = {"phase": "Recording", "firstOffset": 2, "endOffset": 2}
CLOSED = {"phase": "Closed", "firstOffset": 2, "endOffset": 9}


class EventsTests(SynchronousTestCase):
    """Events about changes of a status."""

    def test_changes(self) -> None:
        """Each change that a user should know of is an Event; a newer head is none."""
        away = {"reason": "NotStored", "message": "it is not stored yet: cannot reach the bucket"}
        late = {"reason": "Incomplete", "message": "it began late: it has no input"}
        full = {"reason": "Interrupted", "message": "disk full"}
        table = (
            ({}, RECORDING, ["RecordingStarted"]),
            (RECORDING, RECORDING | {"endOffset": 7}, []),
            (RECORDING, RECORDING | full, ["RecordingInterrupted"]),
            (RECORDING | full, RECORDING, []),
            (
                {"message": "the disk does not answer"},
                RECORDING | late,
                ["RecordingStarted", "RecordingIncomplete"],
            ),
            (RECORDING, CLOSED, ["RecordingClosed"]),
            ({}, CLOSED, ["RecordingStarted", "RecordingClosed"]),
            (CLOSED, CLOSED | away, ["RecordingNotStored"]),
            (CLOSED | away, CLOSED | {"location": "s3://b/x.cast"}, ["RecordingStored"]),
            (RECORDING, {"phase": "Failed", "message": "no"}, ["RecordingFailed"]),
            ({}, {"reason": "NotStarted", "message": "no disk"}, ["RecordingNotStarted"]),
        )
        for before, after, expected in table:
            found = [reason for _, reason, _ in events_of(before, after)]
            self.assertEqual(found, expected, (before, after))

    def test_other_release(self) -> None:
        """Without a known reason the phase decides, and not the words of the message."""
        why = {"message": "it is not stored yet: it began late"}
        for problem in (why, why | {"reason": "NewOfAnotherRelease"}):
            for before, expected in (
                ({}, "RecordingNotStarted"),
                (RECORDING, "RecordingInterrupted"),
                (CLOSED, "RecordingIncomplete"),
            ):
                found = [reason for _, reason, _ in events_of(before, before | problem)]
                self.assertEqual(found, [expected])


class RequestTests(SynchronousTestCase):
    """Tests for :func:`request`, which goes through all recordings of a pool."""

    def test_demanded_by(self) -> None:
        """The runtime learns the user of a recording, and the policies that demand it."""
        metadata = {"uid": "1", "name": "rec", "namespace": "lab"}
        table = (
            ([], []),
            (["rec4"], ["lab/rec4"]),
            (["a", "b"], ["lab/a", "lab/b"]),
        )
        for policies, expected in table:
            spec = {"machine": "vm", "user": "ada", "policies": policies}
            message = messages.desired({"metadata": metadata, "spec": spec})
            self.assertEqual((message.user, list(message.policies)), ("ada", expected))

    def test_short_turns(self) -> None:
        """Thousands of recordings are gone through in short turns; those that are over are left out."""
        clock, made = Clock(), messages.desired

        def slow(recording: Object) -> pb.DesiredRecording:
            clock.rightNow += TURN_SECONDS / 10
            return made(recording)

        self.patch(messages, "desired", slow)
        recordings = [
            {
                "metadata": {"uid": f"{number:03}", "namespace": "lab", "name": f"r{number}"},
                "spec": {"machine": "vm", "machineUID": "1"},
                "status": CLOSED if number % 2 else {},
            }
            for number in range(200)
        ]
        making = messages.request("me", recordings, {"gone": "1"}, ShortTurns(clock))
        making = Deferred.fromCoroutine(making)
        turns = 0
        while not making.called:
            before = clock.rightNow
            clock.advance(REST_SECONDS)
            self.assertLess(clock.rightNow - before, REST_SECONDS + 2 * TURN_SECONDS)
            turns += 1
        self.assertGreater(turns, 5)
        message = self.successResultOf(making)
        self.assertEqual(len(message.recordings), 101)
        self.assertTrue(message.generation)
