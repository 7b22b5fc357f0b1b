"""
A runtime with alerts for one machine that is a journal.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.journal.support import LateJournal
from tests.runtimes.alerts.searching import JobsAtOnce
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.runtimes.alerts.service import ConsoleAlerts

PANIC = b"[   1.5] Kernel panic - not syncing: test\r\n"
HOUR = 3600 * 10**9
BEGIN = 500_000 * HOUR


class AlertsCase(SynchronousTestCase):
    """The alerts of a runtime with machines that are journals."""

    def setUp(self) -> None:
        self.path = os.path.join(self.mktemp())
        os.mkdir(self.path)
        self.path += "/alerts.json"
        self.clock = Clock()
        self.journal = LateJournal(self.now)
        self.alerts = self.make()

    def now(self) -> int:
        return BEGIN + int(self.clock.seconds() * 10**9)

    def make(self, make_jobs: Callable[[Any], JobsAtOnce] = JobsAtOnce) -> ConsoleAlerts:
        """A runtime, also after a kill of the last one: nothing of that is stopped."""
        alerts = ConsoleAlerts(self.path, self.clock, self.now, make_jobs)
        alerts.add("uid-1", self.journal)
        return alerts

    def set(
        self, *several: pb.AlertPattern, since: int = 0, uid: str = "uid-1", owner: str = "a"
    ) -> pb.SetAlertsResponse:
        given = several or (
            pb.AlertPattern(
                id="alert/panic",
                literal="Kernel panic",
                condition="KernelPanic",
                throttle_seconds=60,
            ),
        )
        machine = pb.AlertMachine(uid=uid, patterns=list(range(len(given))), since=since)
        request = pb.SetAlertsRequest(
            owner=owner, generation="1", patterns=given, machines=[machine]
        )
        return self.successResultOf(self.alerts.set_alerts(request))

    def list(self, acknowledged: int = 0, wait: int = 0, owner: str = "a") -> Deferred[Any]:
        request = pb.ListMatchesRequest(
            owner=owner,
            instance=self.instance(owner),
            acknowledged=acknowledged,
            wait_seconds=wait,
        )
        return self.alerts.list_matches(request)

    def instance(self, owner: str) -> str:
        """Return what the runtime calls this process."""
        request = pb.ListMatchesRequest(owner=owner)
        return str(self.successResultOf(self.alerts.list_matches(request)).instance)

    def found(self, acknowledged: int = 0) -> list[pb.AlertMatch]:
        return list(self.successResultOf(self.list(acknowledged)).matches)

    def print(self, data: bytes, seconds: float = 1.0) -> None:
        self.journal.append(data)
        self.run_for(seconds)

    def run_for(self, seconds: float) -> None:
        self.clock.pump([0.01] * round(seconds * 100))
