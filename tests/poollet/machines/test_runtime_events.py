"""Tests for :mod:`twisted_exec.poollet.machines.runtime_events`."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.poollet.doubles import MemoryRuntime
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.status import NotImplementedByBackend, ServiceUnavailable
from twisted_exec.poollet.machines.runtime_events import LOOK_SECONDS, MAX_EVENTS, RuntimeEvents

EPOCH = 1_700_000_000
MACHINE = {"metadata": {"name": "vm", "namespace": "lab", "uid": "u-1"}}


class _Record(list[tuple[Any, ...]]):
    """Keeps what is recorded: type, reason, message and time."""

    def record(self, about: Any, *arguments: str, at: float) -> None:
        self.append((about["metadata"]["name"], *arguments, at))


class RuntimeEventsTests(SynchronousTestCase):
    """Tests for :class:`RuntimeEvents`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.runtime = MemoryRuntime()
        self.record, self.synced = _Record(), True
        self.events = RuntimeEvents(
            self.runtime,
            self.clock,
            IRONCORE,
            machines=lambda: [MACHINE],
            synced=lambda: self.synced,
            recorder=self.record,  # type: ignore[arg-type]
        )
        self.events.start()
        self.addCleanup(self.events.stop)

    def happen(self, reason: str, at: int, uid: str = "u-1", type: str = "Normal") -> None:
        self.runtime.happen({IRONCORE.uid_label: uid}, type, reason, "it did", at)

    def reasons(self) -> list[str]:
        """Poll again; return the reasons of new events."""
        self.clock.advance(LOOK_SECONDS)
        new = [event[2] for event in self.record]
        self.record.clear()
        return new

    def test_passed_on(self) -> None:
        """Each event is forwarded once, oldest first, for Machines of this pool."""
        self.happen("B", 2 * 10**18)
        self.happen("A", 10**18, type="Warning")
        self.happen("Other", 3 * 10**18, uid="u-2")
        self.clock.advance(LOOK_SECONDS)
        self.assertEqual(
            self.record,
            [
                ("vm", "Warning", "A", "it did", 1e9),
                ("vm", "Normal", "B", "it did", 2e9),
            ],
        )
        self.record.clear()
        self.happen("C", 4 * 10**18)
        self.assertEqual(self.reasons(), ["C"])
        self.assertEqual(self.reasons(), [])

    def test_seconds(self) -> None:
        """A runtime that counts seconds may report several events of the same second at any time."""
        self.happen("A", EPOCH)
        self.assertEqual(self.reasons(), ["A"])
        self.happen("B", EPOCH)
        self.happen("A", EPOCH)
        self.assertEqual(self.reasons(), ["B", "A"])
        self.assertEqual(self.reasons(), [])
        self.happen("C", EPOCH + 1)
        self.clock.advance(LOOK_SECONDS)
        self.assertEqual(self.record, [("vm", "Normal", "C", "it did", EPOCH + 1.0)])

    def test_unknown_type(self) -> None:
        """An event of an unknown type counts as Normal; an event without a reason is skipped."""
        self.happen("A", EPOCH, type="Fatal")
        self.happen("", EPOCH)
        self.clock.advance(LOOK_SECONDS)
        self.assertEqual([event[1:3] for event in self.record], [("Normal", "A")])

    def test_many(self) -> None:
        """Of very many events only the newest are forwarded."""
        for number in range(MAX_EVENTS + 10):
            self.happen(f"R{number}", EPOCH + number)
        reasons = self.reasons()
        self.assertEqual((len(reasons), reasons[0]), (MAX_EVENTS, "R10"))

    def test_not_synced(self) -> None:
        """No event is lost while the Machines are unknown."""
        self.synced = False
        self.happen("A", EPOCH)
        self.assertEqual(self.reasons(), [])
        self.synced = True
        self.assertEqual(self.reasons(), ["A"])

    def test_away(self) -> None:
        """No event is lost while the runtime is unreachable."""
        self.happen("A", EPOCH)
        self.runtime.problem = ServiceUnavailable("away")
        self.assertEqual(self.reasons(), [])
        self.runtime.problem = None
        self.assertEqual(self.reasons(), ["A"])

    def test_none_kept(self) -> None:
        """A runtime without events gets one request."""
        self.runtime.refusals["list_events"] = NotImplementedByBackend("not supported")
        self.clock.pump([LOOK_SECONDS] * 5)
        call_count = self.runtime.calls.count("list_events")
        self.clock.pump([LOOK_SECONDS] * 5)
        self.assertEqual(self.runtime.calls.count("list_events"), call_count)
