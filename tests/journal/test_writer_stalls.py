"""
Tests for a disk that does not answer: what :mod:`twisted_exec.journal.writer` does then; and for
:mod:`twisted_exec.journal.front`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests import soak
from tests.journal.store_case import KEY, OTHER, StallCase
from tests.journal.support import check, close_segments, contents
from tests.program.disks import FreezableThread
from twisted_exec.journal import front, program_run
from twisted_exec.journal.interfaces import Event, EventKind, missing_bytes
from twisted_exec.journal.store import STOP_SECONDS
from twisted_exec.journal.writer import STALL_SECONDS, WRITE_SECONDS
from twisted_exec.program.disk_thread import Unanswered


class StallTests(StallCase):
    """Consoles go on while the disk does not answer."""

    def test_short(self) -> None:
        """A pause of the disk is not noticed."""
        store = self.store()
        journal = store.journal(KEY)
        journal.append(b"one\n")
        self.clock.advance(WRITE_SECONDS)
        self.thread.is_frozen = True
        for number in range(100):
            journal.append(b"line %d\n" % number)
            self.clock.advance(STALL_SECONDS / 200)
        self.assertEqual((journal.failure, store.stalled), ("", ""))
        self.thaw()
        self.assertEqual((self.events, journal.failure), ([], ""))
        self.assertEqual(journal.end, journal.open_files().end)
        self.assertEqual(contents(self.store().journal(KEY)).count(b"\n"), 101)

    def test_long(self) -> None:
        """A stall is reported for each console that prints; when it is over, nothing is lost."""
        store = self.store()
        journal, other, quiet = (store.journal(key) for key in (KEY, OTHER, "1" * 32))
        for each in (journal, other, quiet):
            each.append(b"one\n")
        self.clock.advance(WRITE_SECONDS)
        self.thread.is_frozen = True
        journal.append(b"two\n")
        self.clock.pump([WRITE_SECONDS, STALL_SECONDS])
        why = "the disk does not answer"
        self.assertEqual((self.events, store.stalled), ([(KEY, why)], why))
        other.append(b"two\n")
        self.assertEqual(self.events[1:], [(OTHER, why)])
        self.assertFalse(journal.typed("s-1", b"x", echoed=False))
        self.assertEqual((journal.read(4, 99), store.failing), (b"two\n", 2))
        journal.booted("Started")
        journal.append(b"three\n")
        self.assertRaises(Unanswered, journal.boots)
        self.thaw()
        self.assertEqual([each.number for each in journal.boots()], [1])
        self.assertEqual(sorted(self.events[2:]), [(KEY, "lost 0"), (OTHER, "lost 0")])
        self.assertEqual((store.failing, store.stalled, journal.failure), (0, "", ""))
        again = self.store().journal(KEY)
        self.assertEqual(contents(again), b"one\ntwo\nthree\n")
        self.assertEqual([each.offset for each in again.boots()], [8])

    def test_failing(self) -> None:
        """While a failing disk is slow, too, the reason stays the last answer of the disk."""
        first = self.store()
        first.journal(KEY).append(b"past\n")
        self.stop(first)
        store = self.store()
        self.layer.unreadable = errno.EIO
        journal = store.journal(KEY)
        journal.append(b"one\n")
        failure = os.strerror(errno.EIO)
        self.assertEqual(journal.failure, failure)
        self.thread.is_frozen = True
        self.clock.pump([1] * 4)
        self.assertEqual(journal.failure, failure)
        self.layer.unreadable = 0
        self.thaw()
        self.clock.pump([1] * 60)
        self.assertEqual((journal.failure, store.failing), ("", 0))

    def test_much(self) -> None:
        """What does not fit into memory is a gap with its size."""
        store = self.store()
        journal = store.journal(KEY)
        journal.append(b"one\n")
        self.clock.advance(WRITE_SECONDS)
        self.thread.is_frozen = True
        for number in range(1200):
            journal.append(b"%07d\n" % number * 1024)
            self.clock.advance(0.01)
        end = journal.end
        self.thaw()
        (lost,) = [text for _, text in self.events if text.startswith("lost")]
        size = int(lost.removeprefix("lost "))
        self.assertGreater(size, 4_000_000)
        again = self.store().journal(KEY)
        self.assertEqual(missing_bytes(again, 0, again.end), size)
        self.assertEqual((again.end, len(contents(again))), (end, end - size))
        self.assertEqual(again.read(end - 8, 8), b"0001199\n")

    def test_opened(self) -> None:
        """A console that is opened meanwhile works in memory, and its past is there later."""
        first = self.store()
        first.journal(KEY).append(b"past\n")
        self.stop(first)
        store = self.store()
        self.thread.is_frozen = True
        journal = store.journal(KEY)
        journal.append(b"present\n")
        self.assertEqual(journal.read(journal.end - 8, 8), b"present\n")
        self.clock.advance(STALL_SECONDS)
        self.thaw()
        self.clock.pump([1] * 4)
        self.assertEqual(contents(journal), b"past\npresent\n")
        self.assertEqual(self.events[-1], (KEY, "lost 0"))

    def test_readers(self) -> None:
        """A reader of older output waits until the disk answers."""
        store = self.store()
        journal = store.journal(KEY)
        for _ in range(20):
            journal.append(b"older\n" * 1000)
        self.clock.advance(WRITE_SECONDS)
        journal.append(b"newest\n")
        self.thread.is_frozen = True
        self.clock.advance(WRITE_SECONDS)
        told: list[bytes] = []
        journal.watch(lambda: told.append(journal.read(0, 6)))
        self.assertEqual((journal.read(0, 6), journal.next_available(0)), (b"", 0))
        self.assertEqual(journal.read(120_000, 7), b"newest\n")
        self.thaw()
        self.assertEqual(told, [b"older\n"])

    def test_stop(self) -> None:
        """A stop waits a while; the next start writes what is missing."""
        store = self.store()
        store.journal(KEY).append(b"one\n")
        self.thread.is_frozen = True
        closing = Deferred.fromCoroutine(store.close())
        self.assertNoResult(closing)
        with capturedLogs() as logs:
            self.clock.advance(STOP_SECONDS)
        self.successResultOf(closing)
        self.assertIn(f"before: output of the machines {KEY}", formatEvent(logs[-1]))
        self.thread = FreezableThread()
        again = self.store().journal(KEY)
        self.assertEqual((contents(again), again.end), (b"one\n", 4))

    def test_stop_without_memory(self) -> None:
        """A stop does not promise what the next start cannot write."""
        self.patch(front, "MOST_BYTES", 0)
        store = self.store()
        store.journal(KEY).append(b"one\n")
        self.thread.is_frozen = True
        closing = Deferred.fromCoroutine(store.close())
        with capturedLogs() as logs:
            self.clock.advance(STOP_SECONDS)
        self.successResultOf(closing)
        self.assertIn("the next start cannot write the rest", formatEvent(logs[-1]))

    def test_stop_while_forcing(self) -> None:
        """A stop waits no longer for a disk that takes output, but is not forced to."""
        hung: Deferred[None] = Deferred()
        store = self.store(in_thread=lambda function: hung)
        store.journal(KEY).append(b"one\n")
        closing = Deferred.fromCoroutine(store.close())
        self.assertNoResult(closing)
        with capturedLogs() as logs:
            self.clock.advance(STOP_SECONDS)
        self.successResultOf(closing)
        self.assertIn("before: the output of the last seconds", formatEvent(logs[-1]))
        self.assertEqual(contents(self.store().journal(KEY)), b"one\n")

    def test_stop_while_a_directory_fails(self) -> None:
        """A stop that could not force everything ends, and is not clean; the next one is."""
        broken = self.break_directory()
        store = self.store()
        store.journal(KEY).append(b"one\n")
        self.stop(store)
        self.assertFalse(self.is_clean())
        self.assertEqual(self.clock.getDelayedCalls(), [])
        broken.clear()
        store = self.begin()
        self.assertEqual(contents(store.journal(KEY)), b"one\n")
        self.stop(store)
        self.assertTrue(self.is_clean())

    def test_stop_while_reading(self) -> None:
        """A stop waits for a disk that answers a reader late; if it answers nothing, the run is not clean."""
        for answers in (True, False):
            store = self.store()
            store.journal(KEY).append(b"one\n")
            self.clock.advance(WRITE_SECONDS)
            self.thread.is_frozen = True
            self.assertRaises(Unanswered, self.thread.call, lambda: None)
            closing = Deferred.fromCoroutine(store.close())
            self.assertNoResult(closing)
            if answers:
                self.thaw()
            self.clock.advance(STOP_SECONDS)
            self.successResultOf(closing)
            self.assertIs(self.is_clean(), answers)

    def in_thread(self, function: Callable[[], Any]) -> Deferred[Any]:
        """Let a function in the other thread wait for :meth:`answer`."""
        self.waiting.append((function, Deferred()))
        return self.waiting[-1][1]

    def answer(self) -> None:
        """Run the functions in the other thread, and what comes after them."""
        for function, answer in self.waiting:  # grows meanwhile
            maybeDeferred(function).chainDeferred(answer)
        self.waiting.clear()

    def test_stop_is_not_late(self) -> None:
        """A run whose stop was given up is never marked clean, or that would hide a newer run."""
        store = self.store(in_thread=self.in_thread)
        closing = Deferred.fromCoroutine(store.close())
        self.clock.advance(STOP_SECONDS)
        self.assertFalse(self.successResultOf(closing))
        again = self.store(in_thread=self.in_thread)
        again.journal(KEY).append(b"one\n")
        self.answer()
        self.assertFalse(self.is_clean())
        self.assertEqual(contents(self.store().journal(KEY)), b"one\n")

    def test_marked_late(self) -> None:
        """The file of a run that waits for the disk within a stop is not renamed after that."""
        store = self.store(in_thread=self.in_thread)
        closing = Deferred.fromCoroutine(store.close())
        self.layer.called = lambda: closing.called or self.clock.advance(STOP_SECONDS)
        self.answer()
        self.assertFalse(self.successResultOf(closing))
        self.assertFalse(self.is_clean())

    def test_written_late(self) -> None:
        """After a stop was given up, nothing is written: another process may own the files."""
        store = self.store()
        journal, other = store.journal(KEY), store.journal(OTHER)
        for each in (journal, other):
            each.append(b"one\n")
        self.clock.advance(WRITE_SECONDS)
        for each in (journal, other):
            each.append(b"two\n")
        self.thread.is_frozen = True
        closing = Deferred.fromCoroutine(store.close())
        self.clock.advance(STOP_SECONDS)
        self.assertFalse(self.successResultOf(closing))
        paths = [Path(each.open_files().open.path) for each in (journal, other)]
        before = [path.read_bytes() for path in paths]
        self.assertNotIn(b"two", b"".join(before))
        self.thaw()
        self.clock.pump([1] * 10)
        self.assertEqual([path.read_bytes() for path in paths], before)
        self.assertEqual(len(self.front_files()), 1)

    def test_killed_at_its_start(self) -> None:
        """A run that is killed as soon as the disk has its name has what the run before left."""

        class Killed(Exception):
            pass

        def write_run(*args: Any) -> None:
            write(*args)
            raise Killed

        self.store().journal(KEY).append(b"one\n")
        write = program_run.write_run
        patch = self.patch(program_run, "write_run", write_run)
        with self.assertRaises(Killed):
            self.begin()
        patch.restore()
        self.assertEqual(contents(self.begin().journal(KEY)), b"one\n")

    def test_deleted(self) -> None:
        """A machine that is deleted and created meanwhile keeps its journal."""
        store = self.store()
        journal = store.journal(KEY)
        journal.append(b"one\n")
        self.thread.is_frozen = True
        self.clock.advance(WRITE_SECONDS)
        store.deleted(KEY)
        store.revive(KEY)
        again = store.journal(KEY)
        again.append(b"two\n")
        self.assertEqual(contents(again), b"one\ntwo\n")
        self.thaw()
        self.clock.pump([1] * 20)
        self.assertEqual(contents(self.store().journal(KEY)), b"one\ntwo\n")


class FrontTests(StallCase):
    """A program that is killed before its output is on disk."""

    def test_killed(self) -> None:
        """The next run has every byte, and every event once, at the same offsets."""
        journal = self.store().journal(KEY)
        journal.append(b"one\n")
        self.clock.advance(WRITE_SECONDS)
        journal.booted("Started")
        journal.append(b"two\n")
        epoch = journal.epoch
        for _ in range(3):  # and so on, if they are killed as well
            again = self.store().journal(KEY)
        self.assertEqual((again.epoch, contents(again)), (epoch, b"one\ntwo\n"))
        self.assertEqual([(each.number, each.offset) for each in again.boots()], [(1, 4)])
        self.assertEqual(missing_bytes(again, 0, again.end), 0)
        self.assertEqual(len(self.front_files()), 1)

    def test_killed_while_frozen(self) -> None:
        """Whatever viewers have seen of a disk that does not answer is there after a kill."""
        store = self.store()
        journal = store.journal(KEY)
        journal.append(b"one\n")
        self.clock.advance(WRITE_SECONDS)
        self.thread.is_frozen = True
        for number in range(1000):
            journal.append(b"line %d\n" % number)
            self.clock.advance(0.01)
        self.thread = FreezableThread()
        again = self.store().journal(KEY)
        self.assertEqual(again.end, journal.end)
        self.assertTrue(contents(again).endswith(b"line 998\nline 999\n"))
        self.assertEqual(contents(again).count(b"\n"), 1001)

    def test_nothing_can_be_written(self) -> None:
        """
        Runs that follow each other on a read-only disk have every byte, and use no offset twice, although the
        disk does not take the names of their files.
        """
        for stops in (True, False):
            self.setUp()
            store = self.begin()
            journal, text = store.journal(KEY), b"one\n"
            journal.append(text)
            shown = {journal.epoch: [(0, text)]}
            self.clock.advance(WRITE_SECONDS)
            if stops:
                self.stop(store)
            self.layer.error = errno.EROFS
            for number in range(3):
                journal = self.begin().journal(KEY)
                self.assertEqual(contents(journal), text)
                printed = (
                    b"run %d\n" % number * 10_000
                )  # more than the time that has passed allows for
                journal.append(printed)
                shown[journal.epoch].append((journal.end - len(printed), printed))
                text += printed
            self.assertEqual(len(self.front_files()), 1 if stops else 2)
            self.layer.error = 0
            journal = self.begin().journal(KEY)
            journal.append(b"last\n")
            self.clock.advance(WRITE_SECONDS)
            self.assertEqual(len(self.front_files()), 1)
            check(
                self,
                journal,
                shown | {journal.epoch: [*shown[journal.epoch], (journal.end - 5, b"last\n")]},
            )
            self.assertEqual(contents(self.begin().journal(KEY)), text + b"last\n")

    def test_works_again(self) -> None:
        """Once the disk takes its name, the file of a run is found under that, and nothing is left of others."""
        self.begin().journal(KEY).append(b"one\n")
        self.clock.advance(WRITE_SECONDS)
        self.layer.error = errno.EROFS
        self.begin().journal(KEY).append(b"two\n")
        self.clock.advance(WRITE_SECONDS)
        self.layer.error = 0
        self.clock.pump([1] * 20)
        self.assertEqual(len(self.front_files()), 1)
        again = self.begin().journal(KEY)
        self.assertEqual(contents(again), b"one\ntwo\n")

    def test_too_much(self) -> None:
        """If the file of such a run was given up, the next run uses no offset twice."""
        self.stop(self.store())
        self.layer.error = errno.EROFS
        self.patch(front, "MOST_BYTES", 10_000)
        journal = self.store().journal(KEY)
        journal.append(bytes(20_000))
        again = self.store().journal(KEY)
        self.assertTrue(again.epoch != journal.epoch or again.end >= journal.end)

    def test_lost(self) -> None:
        """If the file is gone, no offset is used twice, and readers are told of a gap."""
        journal = self.store().journal(KEY)
        journal.append(b"one\n")
        self.clock.advance(WRITE_SECONDS)
        journal.append(b"two\n")
        (name,) = self.front_files()
        os.unlink(os.path.join(self.memory, name))
        again = self.store().journal(KEY)
        self.assertGreater(again.end, 8)
        self.assertIsNone(missing_bytes(again, 0, again.end))

    def test_removed(self) -> None:
        """A stop leaves no file in memory."""
        store = self.store()
        store.journal(KEY).append(b"one\n")
        self.stop(store)
        self.assertEqual(self.front_files(), [])

    def test_emptied(self) -> None:
        """The file has nothing once everything is on disk."""
        self.store().journal(KEY).append(b"one\n")
        (name,) = self.front_files()
        path = os.path.join(self.memory, name)
        self.assertGreater(os.path.getsize(path), 0)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.clock.advance(WRITE_SECONDS)
        self.assertEqual(os.path.getsize(path), 0)

    def test_other_journal(self) -> None:
        """Output of a journal that was removed meanwhile is not put into its successor."""
        store = self.store()
        store.journal(OTHER).append(b"other\n")
        self.clock.advance(WRITE_SECONDS)
        store.journal(KEY).append(b"old\n")
        os.rename(os.path.join(self.path, KEY), self.mktemp())
        again = self.store().journal(KEY)
        again.append(b"new\n")
        self.assertEqual(contents(again), b"new\n")

    def test_no_memory(self) -> None:
        """Without a file system in memory, the journals work, and a kill counts as a power cut."""
        os.rmdir(self.memory)
        store = self.store()
        store.journal(KEY).append(b"one\n")
        self.clock.advance(WRITE_SECONDS)
        self.assertGreater(self.store().journal(KEY).end, 1 << 20)


class FrontFileTests(SynchronousTestCase):
    """The file by itself."""

    def setUp(self) -> None:
        self.directory = self.mktemp()
        os.mkdir(self.directory)

    def test_content(self) -> None:
        """Output and events are read as they were written, up to the first damage."""
        file = front.Front(self.directory)
        epoch = bytes(8)
        event = Event(3, 7, EventKind.BOOT, {"number": 1, "reason": "Started"})
        file.add_output(KEY, epoch, 3, 5, b"x" * 70_000)
        file.add_event(KEY, epoch, event)
        file.add_output(OTHER, epoch, 0, 9, b"last")
        read = front.read(file.path)
        assert read is not None
        self.assertEqual(
            b"".join(e.entry for e in read[:3] if isinstance(e.entry, bytes)), b"x" * 70_000
        )
        self.assertEqual([each.offset for each in read], [3, 3 + 32768, 3 + 65536, 3, 0])
        self.assertEqual((read[3].entry, read[3].time_ns), (event, 7))
        self.assertEqual((read[4].key, read[4].entry), (OTHER, b"last"))
        with open(file.path, "r+b") as damaged:
            damaged.truncate(os.path.getsize(file.path) - 1)
        self.assertEqual(front.read(file.path), read[:-1])
        file.remove()
        self.assertIsNone(front.read(file.path))

    def test_full(self) -> None:
        """A file that is too large is removed."""
        self.patch(front, "MOST_BYTES", 10_000)
        file = front.Front(self.directory)
        for _ in range(3):
            file.add_output(KEY, bytes(8), 0, 0, bytes(5000))
        self.assertEqual(os.listdir(self.directory), [])
        file.clear()
        file.remove()


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from([1, 700, 60_000, 300_000])),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.1, 0.5, 1.0, 5.0, 40.0])),
        st.tuples(st.just("disk"), st.sampled_from([0, errno.ENOSPC, errno.EROFS])),
        st.tuples(st.sampled_from(["boot", "freeze", "thaw", "kill", "stop"]), st.none()),
    ),
    max_size=40,
)


class StallTortureTests(StallCase):
    """A disk that freezes and is full, below a program that is killed: each byte is read, or in a gap."""

    def pass_time(self, seconds: float) -> None:
        self.clock.pump([min(seconds, 0.1)] * max(1, round(seconds / 0.1)))

    @settings(
        max_examples=soak.figure_of("journal.test_writer_stalls.StallTortureTests.test_every_byte"),
        deadline=None,
    )
    @given(_STEPS, st.booleans())
    def test_every_byte(self, steps: list[tuple[str, Any]], takes_changes: bool) -> None:
        """Whatever happens, nothing is lost without a gap, and no offset has two bytes."""
        self.setUp()
        self.layer.takes_changes = takes_changes
        store = self.begin()
        journal, shown = store.journal(KEY), {}
        for number, (step, value) in enumerate([*steps, ("kill", None), ("append", 9)]):
            if step == "append":
                text = (b"%d " % number) * (value // 3 + 1)
                journal.append(text)
                shown.setdefault(journal.epoch, []).append((journal.end - len(text), text))
            elif step == "wait":
                self.pass_time(value)
            elif step == "disk":
                self.layer.error = value
            elif step == "boot":
                journal.booted("Started")
            elif step == "freeze":
                self.thread.is_frozen = True
            elif step == "thaw":
                self.thread.thaw()
                self.pass_time(0.5)
            else:
                if step == "stop":
                    self.thread.thaw()
                    closing = Deferred.fromCoroutine(store.close())
                    self.pass_time(STOP_SECONDS)
                    self.successResultOf(closing)
                close_segments()
                store = self.begin()
                journal = store.journal(KEY)
                check(self, journal, shown)
        self.layer.error = 0
        self.thread.thaw()
        self.pass_time(120)
        self.assertEqual(journal.failure, "")
        check(self, journal, shown)
