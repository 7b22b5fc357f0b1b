"""
Tests for :mod:`twisted_exec.screens.from_journal`: journals in memory, and the emulator in this process.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.journal.support import ManualDisk, SlowDisk, close_segments
from tests.screens.doubles import MemoryRenderer
from twisted_exec.api.screens import ScreenForm, ScreenOptions
from twisted_exec.api.status import BadRequest, ServiceUnavailable
from twisted_exec.journal.journal import Journal
from twisted_exec.screens import from_journal
from twisted_exec.screens.from_journal import SECONDS, Screens
from twisted_exec.screens.interfaces import CannotRender, Resize
from twisted_exec.screens.process import render

SECOND = 10**9


class HistoryCase(SynchronousTestCase):
    """A console that printed something."""

    def setUp(self) -> None:
        self.now = SECOND
        self.journal = Journal(lambda: self.now)
        self.renderer, self.clock = MemoryRenderer(render), Clock()
        self.screens = Screens(self.renderer, self.clock)

    def rendering(self, **options: Any) -> Deferred[bytes]:
        wanted = ScreenOptions(**options)
        return Deferred.fromCoroutine(self.screens.render(self.journal, wanted, "uid"))

    def shown(self, **options: Any) -> str:
        return self.successResultOf(self.rendering(**options)).decode()

    def refusal(self, **options: Any) -> str:
        return str(self.failureResultOf(self.rendering(**options), BadRequest).value.message)


class TimeTests(HistoryCase):
    """The time of a screen."""

    def test_present(self) -> None:
        """Without an offset or a time it is the present screen; that of a new machine is empty."""
        self.assertEqual(self.shown(), "")
        self.journal.append(b"one\r\n")
        self.journal.append(b"two")
        self.assertEqual(self.shown(), "one\ntwo\n")

    def test_offset(self) -> None:
        """The screen has the output before the offset, and not the byte at it."""
        self.journal.append(b"one\x1b[2Jtwo")
        self.assertEqual(self.shown(at_offset=2), "on\n")
        self.assertEqual(self.shown(at_offset=10), "   two\n")
        self.assertIn("it retains the offsets 0 to 10", self.refusal(at_offset=11))

    def test_time(self) -> None:
        """The screen has all that was printed up to the time."""
        for word in (b"one ", b"two ", b"three"):
            self.journal.append(word)
            self.now += SECOND
        self.assertEqual(self.shown(at_nanoseconds=0), "")
        self.assertEqual(self.shown(at_nanoseconds=SECOND), "one\n")
        self.assertEqual(self.shown(at_nanoseconds=3 * SECOND - 1), "one two\n")
        self.assertEqual(self.shown(at_nanoseconds=99 * SECOND), "one two three\n")

    def test_discarded(self) -> None:
        """A time or offset whose output was discarded is refused."""
        for _ in range(40):
            self.journal.append(b"x" * 16384)
            self.now += SECOND
        self.journal.discard_before(self.journal.end - 5000)
        self.assertGreater(self.journal.start, 5)
        self.assertIn("any more: the oldest is of 1970-", self.refusal(at_nanoseconds=SECOND))
        self.assertIn("no output at offset 5", self.refusal(at_offset=5))

    def test_facts(self) -> None:
        """The form JSON says of which offset and time the screen is."""
        self.journal.append(b"one")
        shown = self.shown(at_offset=2, form=ScreenForm.JSON)
        self.assertIn(
            f'{{"epoch":"{self.journal.epoch}","offset":2,"time":"1970-01-01T00:00:01.000000000Z",',
            shown,
        )


class SizeTests(HistoryCase):
    """The size of a screen."""

    def test_changes(self) -> None:
        """It changes where the terminal's size was changed."""
        self.journal.append(b"ab")
        self.journal.resized(5, 4)
        self.journal.append(b"cdef")
        self.journal.resized(3, 7)
        self.assertEqual(self.shown(), "abcdef\n")
        (job,) = self.renderer.jobs
        self.assertEqual((job.columns, job.rows), (80, 24))
        self.assertEqual(job.resizes, [Resize(2, 4, 5), Resize(6, 7, 3)])

    def test_before(self) -> None:
        """A size that was set before the oldest output of the screen counts, too."""
        self.patch(from_journal, "LOOK_BACK", 1000)
        self.journal.resized(5, 30)
        for _ in range(100):
            self.journal.append(b"x" * 49 + b"\n")
        self.shown()
        (job,) = self.renderer.jobs
        self.assertEqual((job.columns, job.rows), (30, 5))


class KeyFrameTests(HistoryCase):
    """Where an emulator begins."""

    def test_nearest(self) -> None:
        """A screen after another one needs only the output between."""
        self.journal.append(b"one \xc3")
        self.shown()
        self.journal.append(b"\xa9 two")
        self.assertEqual(self.shown(), "one é two\n")
        self.assertEqual(self.renderer.jobs[-1].output, b"\xc3\xa9 two")
        self.assertEqual(self.shown(at_offset=2), "on\n")
        self.assertEqual(self.renderer.jobs[-1].output, b"on")

    def test_look_back(self) -> None:
        """Without a key frame the emulator begins at a line that is not too long ago."""
        self.patch(from_journal, "LOOK_BACK", 1000)
        for number in range(400):
            self.journal.append(b"line %d\r\n" % number)
        self.assertTrue(self.shown().endswith("line 398\nline 399\n"))
        (job,) = self.renderer.jobs
        self.assertTrue(job.output.startswith(b"line "), job.output[:20])
        self.assertLessEqual(len(job.output), 1000)

    def test_other_journal(self) -> None:
        """A journal that began anew has no key frames yet."""
        self.journal.append(b"one")
        self.shown()
        self.journal = Journal(lambda: self.now)
        self.journal.append(b"four")
        self.assertEqual(self.shown(), "four\n")

    def test_failure(self) -> None:
        """A failure leaves no key frame."""
        self.journal.append(b"one")
        self.renderer.problem = ServiceUnavailable("crashed")
        self.failureResultOf(self.rendering(), ServiceUnavailable)
        self.renderer.problem = None
        self.assertEqual(self.shown(), "one\n")

    def test_cannot_render(self) -> None:
        """A job that a process cannot do costs its key frame, and the next screen is built anew."""
        self.journal.append(b"one")
        self.shown()
        self.journal.append(b" two")
        for problem, output in (
            (ServiceUnavailable("full"), b" two"),
            (CannotRender("crashed"), b"one two"),
        ):
            self.renderer.problem = problem
            self.failureResultOf(self.rendering(), ServiceUnavailable)
            self.renderer.problem = None
            self.assertEqual(self.shown(), "one two\n")
            self.assertEqual(self.renderer.jobs[-1].output, output)
            self.screens = Screens(self.renderer, self.clock)
            self.shown(at_offset=3)

    def test_late(self) -> None:
        """A screen that waits too long is refused before the hops in front give up."""
        self.renderer.waits = True
        rendering = self.rendering()
        self.clock.advance(SECONDS)
        message = self.failureResultOf(rendering, ServiceUnavailable).value.message
        self.assertEqual(message, "the screen was not rendered within 8 s; try again")

    def test_gap(self) -> None:
        """Missing output ends an escape sequence that it interrupts."""
        journal: Any = Gapped(b"one\x1b[31", b"two")
        self.journal = journal
        self.assertEqual(self.shown(), "onetwo\n")

    def test_power_cut(self) -> None:
        """A screen has what was printed before a power cut, although the offsets have jumped."""
        self.addCleanup(close_segments)
        path = self.mktemp()
        self.journal = Journal(lambda: self.now, ManualDisk(path))
        self.journal.append(b"one\r\ntwo ")
        self.journal = Journal(lambda: self.now, ManualDisk(path, run=2, cut=1))
        self.assertEqual(self.shown(), "one\ntwo\n")
        self.journal.append(b"three")
        self.assertEqual(self.shown(), "one\ntwo three\n")


class Gapped(Journal):
    """A journal with 100 missing bytes."""

    def __init__(self, before: bytes, after: bytes) -> None:
        super().__init__(lambda: SECOND)
        self._before, self._after = before, after

    @property
    def end(self) -> int:
        return len(self._before) + 100 + len(self._after)

    def next_available(self, offset: int) -> int:
        return offset if offset < len(self._before) else max(offset, len(self._before) + 100)

    def read(self, offset: int, limit: int) -> bytes:
        if offset < len(self._before):
            return self._before[offset : offset + limit]
        return self._after[offset - len(self._before) - 100 :][:limit]

    def time_at(self, offset: int) -> int:
        return SECOND


class SlowDiskTests(HistoryCase):
    """Screens of a machine whose output is on a disk that does not answer at once."""

    def printed(self, late: Callable[[int], bool]) -> None:
        """Print, and forget in memory what is on disk."""
        self.addCleanup(close_segments)
        self.now = SECOND
        self.disk = SlowDisk(self.mktemp(), self.clock, late)
        self.journal = Journal(lambda: self.now, self.disk)
        self.screens = Screens(self.renderer, self.clock)
        for number in range(100):
            self.now += SECOND
            self.journal.append(b"line %d\r\n" % number)
            if number == 60:
                self.journal.resized(10, 30)
        self.journal.rest()

    def slowly(self, **options: Any) -> Deferred[bytes]:
        rendering = self.rendering(**options)
        self.clock.pump([0.1] * 100)
        return rendering

    def test_late_calls(self) -> None:
        """A screen whose calls of the disk are late has all of the output, in the right size."""
        for options in (
            {},
            {"at_nanoseconds": 50 * SECOND},
            {"at_offset": 700, "form": ScreenForm.JSON},
        ):
            self.printed(lambda call: False)
            expected = self.successResultOf(self.slowly(**options))
            for seed in range(5):
                with self.subTest(seed=seed, **options):
                    chance = random.Random(seed)
                    self.printed(lambda call, chance=chance: call == 1 or chance.random() < 0.2)
                    body = self.successResultOf(self.slowly(**options))
                    self.assertGreater(self.disk.refusals, 0)
                    self.assertEqual(
                        *(re.sub(rb'"epoch":"\w+"', b"", each) for each in (body, expected))
                    )

    def test_no_answer(self) -> None:
        """A disk that does not answer is a reason to try again."""
        self.printed(lambda call: True)
        failure = self.failureResultOf(self.slowly(), ServiceUnavailable)
        self.assertIn("the disk does not answer; try again", failure.value.message)

    def test_slow_twice(self) -> None:
        """The wait for the disk is part of the time of a screen."""
        self.printed(lambda call: self.clock.seconds() < 2)
        self.renderer.waits = True
        rendering = self.rendering()
        self.clock.pump([0.1] * int(10 * SECONDS - 5))
        self.assertNoResult(rendering)
        self.clock.advance(1)
        self.failureResultOf(rendering, ServiceUnavailable)
