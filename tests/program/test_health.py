"""
Tests for :mod:`twisted_exec.program.health`.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.health import Health, ProbeResult, is_ready, listing
from twisted_exec.program.service import SUMMARY


class HealthTests(SynchronousTestCase):
    """Tests for :class:`Health`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.health = Health(self.clock)

    def ready(self) -> bool:
        return is_ready(self.successResultOf(self.health.check()))

    def test_no_probe(self) -> None:
        """Without a probe that could have failed nothing is ready."""
        self.assertFalse(self.ready())

    def test_all_pass(self) -> None:
        """Ready is when every probe passed, at once or later."""
        self.health.add("at once", lambda: None)
        self.health.add("later", lambda: succeed(object()))
        self.assertTrue(self.ready())

    def test_limit(self) -> None:
        """A probe that passes with a limit is ready, and its listing tells everybody the limit."""
        self.health.add("storage", lambda: succeed("the disk is\nfull"))
        results = self.successResultOf(self.health.check())
        self.assertTrue(is_ready(results))
        self.assertEqual(
            listing(results), "[+]storage ok, but the disk is full\nreadyz check passed\n"
        )

    def test_one_fails(self) -> None:
        """One that fails, by raising or later, is enough."""

        def broken() -> None:
            raise ValueError("the disk\nis gone")

        self.health.add("good", lambda: None)
        self.health.add("broken", broken)
        self.health.add("unwell", lambda: fail(ValueError()))
        results = self.successResultOf(self.health.check())
        self.assertEqual(
            [(each.name, each.error) for each in results],
            [("good", None), ("broken", "the disk is gone"), ("unwell", "ValueError")],
        )
        self.assertFalse(is_ready(results))

    def test_slow(self) -> None:
        """A probe that does not answer fails after its time."""
        self.health.add("slow", Deferred)
        asked = self.health.check()
        self.assertNoResult(asked)
        self.clock.advance(5)
        results = self.successResultOf(asked)
        self.assertEqual(results, [ProbeResult("slow", "no answer within 5 seconds")])

    def test_shared(self) -> None:
        """Questions at the same time share one round; later ones ask again."""
        rounds: list[Deferred[object]] = []

        def probe() -> Deferred[object]:
            rounds.append(Deferred())
            return rounds[-1]

        self.health.add("slow", probe)
        first, second = self.health.check(), self.health.check()
        self.assertEqual(len(rounds), 1)
        rounds[0].callback(None)
        for asked in (first, second):
            self.assertTrue(is_ready(self.successResultOf(asked)))
        self.health.check()
        self.assertEqual(len(rounds), 2)
        rounds[1].callback(None)

    def test_cancelled(self) -> None:
        """Someone who stops waiting does not disturb the others."""
        answer: Deferred[object] = Deferred()
        self.health.add("slow", lambda: answer)
        first, second = self.health.check(), self.health.check()
        first.addErrback(lambda failure: None)
        first.cancel()
        answer.callback(None)
        self.assertTrue(is_ready(self.successResultOf(second)))

    def test_log(self) -> None:
        """
        However often somebody asks, the log has one line when a probe fails and one when it passes
        again.
        """
        problems: list[Exception | None] = [None, ValueError("full"), ValueError("full")]
        problems += [ValueError("gone"), None, None]

        def probe() -> Deferred[object]:
            problem = problems.pop(0)
            return succeed(None) if problem is None else fail(problem)

        self.health.add("disk", probe)
        with capturedLogs() as events:
            while problems:
                self.successResultOf(self.health.check())
        self.assertEqual(
            [formatEvent(event) for event in events],
            ["probe disk failed: full", "probe disk failed: gone", "probe disk passes again"],
        )
        self.assertTrue(events[-1][SUMMARY])  # a terminal that had the warning has the end

    def test_asked_by_anyone(self) -> None:
        """Whoever asks again and again makes no work: an answer counts for a second."""
        asked: list[int] = []
        self.health.add("probe", lambda: asked.append(1))
        for _ in range(10):
            self.successResultOf(Deferred.fromCoroutine(self.health.ready()))
        self.assertEqual(len(asked), 1)
        self.clock.advance(1)
        self.successResultOf(Deferred.fromCoroutine(self.health.ready()))
        self.assertEqual(len(asked), 2)

    def test_ready(self) -> None:
        """The answer and its listing come together."""
        self.health.add("storage", lambda: None)
        ready = Deferred.fromCoroutine(self.health.ready())
        self.assertEqual(
            self.successResultOf(ready), (True, "[+]storage ok\nreadyz check passed\n")
        )

    def test_reason_withheld(self) -> None:
        """Anyone may ask, so the listing does not tell why."""
        text = listing([ProbeResult("storage", "secret path"), ProbeResult("iri")])
        self.assertEqual(
            text,
            "[-]storage failed: reason withheld\n[+]iri ok\nreadyz check failed\n",
        )

    def test_reason(self) -> None:
        """For clients that may read it, the listing has the reason in one line."""
        results = [ProbeResult("storage", "disk\nfull"), ProbeResult("iri")]
        text = listing(results, with_reasons=True)
        self.assertEqual(text, "[-]storage failed: disk full\n[+]iri ok\nreadyz check failed\n")
