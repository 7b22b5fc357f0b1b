"""
Tests for :mod:`twisted_exec.runtimes.alerts.service`.
"""

from __future__ import annotations

import itertools
from typing import Any
from unittest import skipUnless

from twisted.internet.defer import Deferred

from tests.linear import assert_linear
from tests.runtimes.alerts.alerts_case import PANIC, AlertsCase
from tests.runtimes.alerts.searching import JobsAtOnce
from twisted_exec.api import patterns
from twisted_exec.api.status import BadRequest, TooManyRequests
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.journal.journal import Journal
from twisted_exec.program import turns
from twisted_exec.runtimes.alerts import rules, search, service
from twisted_exec.runtimes.alerts.lines import READ_BYTES, LineReader


class Held(JobsAtOnce):
    """
    Processes whose jobs are done when a test says so.

    :param held: gets a function for each job.
    """

    def __init__(self, held: list[Any]) -> None:
        super().__init__()
        self._held = held

    def do(self, message: bytes, key: str) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        answer = super().do(message, key)
        self._held.append(lambda: answer.chainDeferred(done))
        return done


class ConsoleAlertsTests(AlertsCase):
    """The alerts of a runtime with machines that are journals."""

    def test_match(self) -> None:
        """
        A waiting poollet learns of a line at once, with its offset, time and text.
        """
        self.set()
        self.print(b"booting\r\n")
        listing = self.list(wait=20)
        self.journal.append(b"\x1b[31m" + PANIC)
        self.assertNoResult(listing)
        self.run_for(0.3)
        (match,) = self.successResultOf(listing).matches
        self.assertEqual(
            (match.machine_uid, match.pattern_id, match.offset, match.line),
            ("uid-1", "alert/panic", 9, PANIC.rstrip()),
        )
        self.assertEqual((match.epoch, match.time), (self.journal.epoch, self.journal.time_at(9)))

    def test_wait_ends(self) -> None:
        """
        Without a match a call is answered after its time, and when the same owner calls again.
        """
        self.set()
        first = self.list(wait=20)
        second = self.list(wait=20)
        self.assertEqual(list(self.successResultOf(first).matches), [])
        self.assertNoResult(second)
        self.clock.advance(20)
        self.assertEqual(list(self.successResultOf(second).matches), [])

    def test_acknowledged(self) -> None:
        """
        A match is listed until it is acknowledged.
        """
        self.set()
        self.print(PANIC)
        (match,) = self.found()
        self.assertEqual(self.found(), [match])
        self.assertEqual(self.found(match.number), [])

    def test_throttle(self) -> None:
        """
        Matches within the throttle time are counted and listed with the next one.
        """
        self.set()
        for _ in range(3):
            self.print(PANIC, 10)
        (match,) = self.found()
        self.run_for(61)
        self.print(PANIC)
        (later,) = self.found(match.number)
        self.assertEqual((match.suppressed, later.suppressed), (0, 2))

    def test_several_texts(self) -> None:
        """
        A line that two texts of one pattern match is one match.
        """
        several = [pb.AlertPattern(id="x", literal=text) for text in ("Kernel", "panic")]
        self.set(*several)
        self.print(PANIC)
        self.assertEqual(len(self.found()), 1)

    def test_prompt(self) -> None:
        """
        A line without an end is searched when the machine is quiet, and only once.
        """
        self.set(pb.AlertPattern(id="x", literal="grub rescue>"))
        self.print(b"error: no such partition.\r\ngrub re", 0.1)
        self.print(b"scue> ")
        (match,) = self.found()
        self.assertEqual((match.offset, match.line), (27, b"grub rescue> "))
        self.print(b"ls\r\n")
        self.assertEqual(self.found(match.number), [])

    def test_killed_before_acknowledgement(self) -> None:
        """
        After a kill of the runtime an unacknowledged match is found again at the same offset; the
        throttle time does not hide it.
        """
        self.set()
        self.print(PANIC)
        (match,) = self.found()
        self.alerts = self.make()
        self.set()
        self.run_for(1)
        (again,) = self.found()
        self.assertEqual(
            (again.epoch, again.offset, again.time), (match.epoch, match.offset, match.time)
        )

    def test_killed_after_acknowledgement(self) -> None:
        """
        After an acknowledgement a kill repeats nothing, and output meanwhile is searched.
        """
        self.set(pb.AlertPattern(id="x", literal="panic"))
        self.print(PANIC)
        self.assertEqual(self.found(self.found()[0].number), [])
        self.journal.append(b"down: panic\n")
        self.alerts = self.make()
        self.assertEqual(self.found(), [])
        self.set(pb.AlertPattern(id="x", literal="panic"))
        self.run_for(1)
        self.assertEqual([match.line for match in self.found()], [b"down: panic"])

    def test_stopped(self) -> None:
        """
        An orderly stop writes the positions; the next runtime searches only what follows.
        """
        self.set()
        self.print(b"harmless\n")
        self.alerts.stop()
        self.assertEqual(self.journal.cursor("alerts").load(), 9)

    def test_late_disk(self) -> None:
        """A search whose position is on a disk that does not answer begins when it answers."""
        self.set()
        self.print(b"harmless\n")
        self.alerts.stop()
        self.journal.append(PANIC)
        self.journal.is_late = True
        self.alerts = self.make()
        self.set()
        self.run_for(1)
        self.assertEqual(self.found(), [])
        self.journal.is_late = False
        self.journal.became_readable()
        self.run_for(1)
        self.assertEqual(len(self.found()), 1)

    def test_new_alert(self) -> None:
        """
        Output from before the alert is not searched; of a first search, not that of an hour ago.
        """
        self.print(PANIC, 10)
        self.set(since=self.now())
        self.print(b"x\n")
        self.assertEqual(self.found(), [])
        self.clock.advance(3600)
        self.journal = Journal(self.now)
        self.journal.append(PANIC)
        self.clock.advance(3600)
        self.alerts.add("uid-2", self.journal)
        self.set(uid="uid-2")
        self.run_for(1)
        self.assertEqual(self.found(), [])

    def test_rules_before_the_machine(self) -> None:
        """
        A machine that is created after its alert is searched from its first line on.
        """
        self.set(uid="uid-3")
        journal = Journal(self.now)
        journal.append(PANIC)
        self.alerts.add("uid-3", journal)
        self.run_for(1)
        self.assertEqual(len(self.found()), 1)

    def test_many_machines(self) -> None:
        """
        New rules for many machines are applied in short turns.
        """
        journals = {f"m-{number}": Journal(self.now) for number in range(100)}
        for uid, journal in journals.items():
            journal.append(PANIC)
            self.alerts.add(uid, journal)
        opened: list[Any] = []
        self.patch(service, "LineReader", lambda *args: opened.append(args) or LineReader(*args))
        pattern = pb.AlertPattern(id="x", literal="panic")
        machines = [pb.AlertMachine(uid=uid, patterns=[0]) for uid in journals]
        request = pb.SetAlertsRequest(owner="a", patterns=[pattern], machines=machines)
        self.alerts.set_alerts(request)
        self.assertEqual(opened, [])
        self.run_for(1)
        self.assertEqual((len(opened), len(self.found())), (100, 100))

    def test_damaged_file(self) -> None:
        """
        A damaged file is ignored.
        """
        damaged = b'{"reports": {"a": {"b": []}}, "unhealthy": {}}'
        for content in (b"", b"{", b"[]", b'{"reports": [1], "unhealthy": {}}', damaged, b"\xff"):
            with open(self.path, "wb") as file:
                file.write(content)
            self.make()

    def test_too_many_waiting(self) -> None:
        """
        While too many matches wait, the machine is not searched; nothing is lost.
        """
        self.patch(service, "MOST_WAITING", 5)
        self.set(pb.AlertPattern(id="x", literal="line"))
        for number in range(12):
            self.print(b"line %d\n" % number, 0.3)
        lines, found = [], self.found()
        while found:
            lines += [match.line for match in found]
            self.found(found[-1].number)
            self.run_for(1)
            found = self.found()
        self.assertEqual(lines, [b"line %d" % number for number in range(12)])

    def test_deleted_machine(self) -> None:
        """
        The last lines of a deleted machine are searched, and nothing is remembered of it.
        """
        self.set()
        self.journal.append(PANIC)
        self.alerts.remove("uid-1")
        self.run_for(1)
        self.assertEqual(len(self.found()), 1)
        self.assertIsNone(self.alerts.condition("uid-1"))
        self.journal.append(PANIC)
        self.run_for(1)
        self.assertEqual(len(self.found()), 1)

    def test_owners(self) -> None:
        """
        Two poollets at one runtime have machines and matches of their own.
        """
        other = Journal(self.now)
        self.alerts.add("uid-2", other)
        self.set(uid="uid-1", owner="a")
        self.set(uid="uid-2", owner="b")
        other.append(PANIC)
        self.run_for(1)
        self.assertEqual(self.found(), [])
        (match,) = self.successResultOf(self.list(owner="b")).matches
        self.assertEqual(match.machine_uid, "uid-2")

    def test_limits(self) -> None:
        """
        Too many owners, patterns and machines are refused, and bad patterns.
        """
        self.patch(service, "MOST_OWNERS", 1)
        self.patch(rules, "MOST_PATTERNS", 2)
        self.set()
        self.assertRaises(TooManyRequests, self.set, owner="b")
        self.clock.advance(service.EXPIRY_SECONDS)
        self.set(owner="b")
        self.assertRaises(TooManyRequests, self.set, owner="a")
        self.clock.advance(service.EXPIRY_SECONDS)
        self.set()
        for several in (
            [pb.AlertPattern(id="x", literal="x")] * 3,
            [pb.AlertPattern(id="x")],
            [pb.AlertPattern(id="x", literal="x", regex="x")],
            [pb.AlertPattern(id="x", literal="x" * 1025)],
        ):
            self.assertRaises(BadRequest, self.set, *several)
        machine = pb.AlertMachine(uid="u", patterns=[0])
        request = pb.SetAlertsRequest(owner="a", machines=[machine])
        self.failureResultOf(self.alerts.set_alerts(request), BadRequest)

    @skipUnless(patterns.SUPPORTED, patterns.UNSUPPORTED)
    def test_regexes(self) -> None:
        """
        Expressions are searched in each line.
        """
        response = self.set(pb.AlertPattern(id="x", regex=r"^\[ *\d+\.\d+\] usb .* \d+$"))
        self.assertEqual(list(response.problems), [])
        self.print(b"[   1.0] usb 1-1 number 5\r\n[   1.0] usb 1-1 number 5x\r\n")
        self.assertEqual(len(self.found()), 1)

    @skipUnless(patterns.SUPPORTED, patterns.UNSUPPORTED)
    def test_bad_regex(self) -> None:
        """
        An expression that an API server without google-re2 accepted does not end the search for others.
        """
        response = self.set(
            pb.AlertPattern(id="x", regex="a("), pb.AlertPattern(id="y", literal="panic")
        )
        (problem,) = response.problems
        self.assertEqual((problem.pattern, problem.message), (0, "character 2: missing ): a("))
        self.print(PANIC)
        self.assertEqual([match.pattern_id for match in self.found()], ["y"])

    def test_without_the_extra(self) -> None:
        """
        Without google-re2 literal texts are searched, and the owner learns of it.
        """
        self.patch(rules, "SUPPORTED", False)
        self.patch(patterns, "SUPPORTED", False)
        response = self.set(
            pb.AlertPattern(id="x", regex="panic"), pb.AlertPattern(id="y", literal="panic")
        )
        self.assertIn("pip install google-re2", response.problems[0].message)
        self.print(PANIC)
        self.assertEqual([match.pattern_id for match in self.found()], ["y"])

    def test_suspended(self) -> None:
        """
        An alert over its budget of CPU time is searched no more, its owner learns of it, and the
        others are searched.  It is searched again when it has changed.
        """
        hostile, other = (
            pb.AlertPattern(id=f"{uid}/x", literal=text)
            for uid, text in (("a", "nic"), ("b", "panic"))
        )
        self.set(hostile, other)
        self.patch(search, "BURST_SECONDS", -1.0)
        self.print(b"none\n")
        self.patch(search, "BURST_SECONDS", 1000.0)
        self.assertEqual(self.successResultOf(self.list()).generation, "")
        response = self.set(hostile, other)
        expected = [(number, search.OVER_BUDGET) for number in (0, 1)]
        self.assertEqual([(each.pattern, each.message) for each in response.problems], expected)
        changed = pb.AlertPattern(id="b/x", literal="Kernel panic")
        response = self.set(hostile, changed)
        self.assertEqual([each.pattern for each in response.problems], [0])
        self.print(PANIC)
        self.assertEqual([match.pattern_id for match in self.found()], ["b/x"])

    def test_bounded_memory(self) -> None:
        """
        While processes search, only so much output is held; the rest is found later.
        """
        self.patch(service, "MOST_HELD_BYTES", 10_000)
        held: list[Any] = []
        self.alerts = self.make(lambda _: Held(held))
        journals = {f"m-{number}": Journal(self.now) for number in range(20)}
        for uid, journal in journals.items():
            journal.append(b"x" * 3000 + b"\nend\n")
            self.alerts.add(uid, journal)
        patterns = [pb.AlertPattern(id=f"{uid}/x", literal="end") for uid in journals]
        machines = [
            pb.AlertMachine(uid=uid, patterns=[number]) for number, uid in enumerate(journals)
        ]
        request = pb.SetAlertsRequest(owner="a", patterns=patterns, machines=machines)
        self.successResultOf(self.alerts.set_alerts(request))
        self.run_for(1)
        self.assertEqual(len(held), 4)
        while held:
            held.pop(0)()
            self.run_for(0.1)
        self.assertEqual(len(self.found()), 20)

    def test_stopped_while_searching(self) -> None:
        """
        Output that a process was searching at an orderly stop is searched by the next runtime.
        """
        self.alerts = self.make(lambda _: Held([]))
        self.set()
        self.print(b"harmless\n" + PANIC)
        self.alerts.stop()
        self.assertEqual(self.journal.cursor("alerts").load(), 0)
        self.alerts = self.make()
        self.set()
        self.run_for(1)
        self.assertEqual(len(self.found()), 1)

    def test_newest_rules(self) -> None:
        """
        Patterns are checked in short turns; of two calls the later one holds.
        """
        several = [pb.AlertPattern(id=f"{n}/x", literal=f"panic{n}") for n in range(3)]
        requests = [
            pb.SetAlertsRequest(
                owner="a",
                generation=str(n),
                patterns=[each],
                machines=[pb.AlertMachine(uid="uid-1", patterns=[0])],
            )
            for n, each in enumerate(several)
        ]
        self.patch(turns, "TURN_SECONDS", -1.0)
        answers = [self.alerts.set_alerts(each) for each in requests]
        self.assertNoResult(answers[0])
        self.run_for(1)
        for answer in answers:
            self.successResultOf(answer)
        self.assertEqual(self.successResultOf(self.list()).generation, "2")

    def test_many_busy_machines(self) -> None:
        """
        No turn is long, whatever machines print.
        """
        self.set(
            *[pb.AlertPattern(id=str(number), literal=f"never {number}") for number in range(64)]
        )
        for _ in range(20):
            self.journal.append(b"a\n" * 32768)
        # Each look at the time is half a turn later than the one before.
        looks = itertools.count(step=service.TURN_SECONDS / 2)
        self.patch(service, "perf_counter", lambda: next(looks))
        positions, take_turn = [0], self.alerts._take_turn

        def counted() -> None:
            take_turn()
            positions.append(self.alerts._machines["uid-1"].reader.position)  # type: ignore[union-attr]

        self.patch(self.alerts, "_take_turn", counted)
        self.alerts._turn.cancel()  # type: ignore[union-attr]
        counted()
        while positions[-1] < self.journal.end:
            self.clock.advance(0.05)
        longest = max(after - before for before, after in itertools.pairwise(positions))
        self.assertLessEqual(longest, 2 * READ_BYTES)

    def test_cost_of_much_output(self) -> None:
        """
        Output of a busy machine costs no more than its bytes.
        """
        self.set(
            *[pb.AlertPattern(id=str(number), literal=f"never {number}") for number in range(64)]
        )

        def search(pieces: int) -> None:
            for _ in range(pieces):
                self.journal.append(b"a\n" * 32768)
            self.run_for(0.3)

        assert_linear(search, 4)
        self.print(b"never 7\n")
        self.assertEqual([match.pattern_id for match in self.found()], ["7"])
