"""
Tests for :mod:`twisted_exec.program.audit`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from twisted_exec.program.audit import Trail
from twisted_exec.program.interfaces import IAuditSink


@implementer(IAuditSink)
class Kept:
    """Keeps records in memory."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def record(self, event: dict[str, Any]) -> None:
        self.records.append(event)


SUBJECT = {
    "session": "s1",
    "user": "jane",
    "namespace": "default",
    "machine": "vm-1",
    "resource": "machines.compute.ironcore.dev",
    "uid": "u-1",
    "subresource": "log",
    "pool": "pool-a",
    "caller": "",
    "agent": "",
    "address": "192.0.2.7",
    "reason": "INC-7",
    "password": "not audited",
}


class TrailTests(SynchronousTestCase):
    """Tests for :class:`Trail`."""

    def setUp(self) -> None:
        self.sink, self.clock = Kept(), Clock()
        start = datetime(2026, 11, 20, 12, 0, tzinfo=timezone(timedelta(hours=1)))
        self.trail = Trail(
            self.sink,
            "poollet",
            self.clock,
            now=lambda: start + timedelta(seconds=self.clock.seconds()),
        )

    def test_start_and_end(self) -> None:
        """A session is one start and one end with the same facts."""
        session = self.trail.start(SUBJECT)
        self.clock.advance(2.5)
        session.end(
            "Completed", bytes_to_machine=3, bytes_to_user=70, right="drive", policy="lab/p"
        )
        other = {"password", "reason"}
        facts = {key: value for key, value in SUBJECT.items() if key not in other}
        facts["declared_reason"] = "INC-7"
        self.assertEqual(
            self.sink.records,
            [
                {
                    "time": "2026-11-20T11:00:00.000Z",
                    "hop": "poollet",
                    "event": "start",
                    **facts,
                },
                {
                    "time": "2026-11-20T11:00:02.500Z",
                    "hop": "poollet",
                    "event": "end",
                    **facts,
                    "bytes_to_machine": 3,
                    "bytes_to_user": 70,
                    "seconds": 2.5,
                    "right": "drive",
                    "policy": "lab/p",
                    "reason": "Completed",
                },
            ],
        )

    def test_one_end(self) -> None:
        """However often a session ends, one end is written: the first."""
        session = self.trail.start(SUBJECT)
        session.end("PoweredOff")
        session.end("LineLost")
        self.assertEqual([each.get("reason") for each in self.sink.records], [None, "PoweredOff"])

    def test_refused(self) -> None:
        """A refusal is a start and an end as well, with its code."""
        self.trail.refused(SUBJECT, 403, "forbidden")
        self.assertEqual([each["event"] for each in self.sink.records], ["start", "end"])
        self.assertEqual(self.sink.records[1]["code"], 403)
        self.assertNotIn("code", self.sink.records[0])

    def test_optional_facts(self) -> None:
        """A record has the extra of the user, and the recording, if there are any."""
        self.trail.start({**SUBJECT, "extra": "ssh-key=SHA256:abc", "recording": ""})
        [record] = self.sink.records
        self.assertEqual(record["extra"], "ssh-key=SHA256:abc")
        self.assertNotIn("recording", record)

    def test_unknown_facts(self) -> None:
        """A request refused before anything is known has all keys, empty."""
        self.trail.refused({"session": "s1"}, 401, "Unauthorized")
        self.assertEqual(self.sink.records[0]["user"], "")

    def test_clock_jumps_back(self) -> None:
        """A session does not last less than no time."""
        session = self.trail.start(SUBJECT)
        self.clock.rightNow = -100.0
        session.end("Completed")
        self.assertEqual(self.sink.records[1]["seconds"], 0.0)

    def test_now(self) -> None:
        """By default records carry the time of day, in UTC."""
        before = datetime.now(UTC)
        Trail(self.sink, "runtime", self.clock).start(SUBJECT)
        told = datetime.fromisoformat(self.sink.records[0]["time"])
        # A record has milliseconds.
        self.assertTrue(before - timedelta(milliseconds=1) <= told <= datetime.now(UTC))
