"""
Alerts over any sequence of output, kills, stops and acknowledgements, against an oracle.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.runtimes.alerts.searching import JobsAtOnce
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.journal.journal import Journal
from twisted_exec.runtimes.alerts.service import ConsoleAlerts

PIECES = [b"MARK", b"MA", b"RK", b"\n", b"\r\n", b"\x1b[1m", b" x", b"MARK\nMARK\n", b"a" * 5000]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("print"), st.sampled_from(PIECES)),
        st.tuples(st.just("wait"), st.sampled_from([0.1, 0.3, 1.0, 40.0])),
        st.tuples(st.sampled_from(["kill", "stop", "list", "acknowledge"]), st.none()),
    ),
    max_size=40,
)


class _Play:
    """One journal, and the runtimes that search it one after another."""

    def __init__(self, path: str) -> None:
        self.path, self.clock = path, Clock()
        self.journal = Journal(self.now)
        self.printed = b""
        self.seen: set[int] = set()
        self.acknowledged: set[int] = set()
        self.begin()

    def now(self) -> int:
        return int((10**9 + self.clock.seconds()) * 10**9)

    def begin(self) -> None:
        self.alerts = ConsoleAlerts(self.path, self.clock, self.now, JobsAtOnce)
        self.alerts.add("uid", self.journal)
        self.alerts.set_alerts(
            pb.SetAlertsRequest(
                owner="a",
                patterns=[pb.AlertPattern(id="x", literal="MARK")],
                machines=[pb.AlertMachine(uid="uid", patterns=[0])],
            )
        )

    def list(self, *, acknowledge: bool) -> None:
        answers: list[Any] = []
        self.alerts.list_matches(pb.ListMatchesRequest(owner="a")).addCallback(answers.append)
        matches = answers[0].matches
        offsets = {match.offset for match in matches}
        assert not offsets & self.acknowledged, "listed after its acknowledgement"
        self.seen |= offsets
        if acknowledge and matches:
            acknowledged, instance = matches[-1].number, answers[0].instance
            self.alerts.list_matches(
                pb.ListMatchesRequest(owner="a", instance=instance, acknowledged=acknowledged)
            )
            self.acknowledged |= offsets

    def step(self, name: str, argument: Any) -> None:
        if name == "print":
            self.journal.append(argument)
            self.printed += argument
        elif name == "wait":
            self.clock.pump([0.05] * round(argument / 0.05))
        elif name in ("kill", "stop"):
            if name == "stop":
                self.alerts.stop()
            else:  # a killed process does nothing any more
                for call in self.clock.getDelayedCalls():
                    call.cancel()
                self.journal._watchers.clear()
            self.begin()
        else:
            self.list(acknowledge=name == "acknowledge")


class KillTests(SynchronousTestCase):
    """Any sequence of events."""

    @settings(deadline=None, max_examples=60)
    @given(STEPS)
    def test_nothing_lost_or_repeated(self, steps: list[tuple[str, Any]]) -> None:
        """
        Each line with the text is listed, and never again after its acknowledgement.
        """
        with tempfile.TemporaryDirectory() as directory:
            play = _Play(os.path.join(directory, "alerts.json"))
            for name, argument in steps:
                play.step(name, argument)
            play.step("print", b"\n")
            play.step("wait", 1.0)
            for _ in range(10):
                play.list(acknowledge=True)
            at = 0
            for line in play.printed.split(b"\n"):
                plain = line.replace(b"\x1b[1m", b"")[:4096]
                if b"MARK" in plain:
                    found = {each for each in play.seen if at <= each <= at + len(line)}
                    self.assertTrue(found, (at, line))
                at += len(line) + 1
