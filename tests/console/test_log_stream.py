"""
Tests for :mod:`twisted_exec.console.log`, in memory.
"""

from __future__ import annotations

import errno
import itertools
import random
from collections.abc import Callable
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.audits import AuditList
from tests.journal.support import SlowDisk, close_segments
from tests.retained import instances
from twisted_exec.api.logs import LogOptions
from twisted_exec.console.log import LogStream
from twisted_exec.journal.journal import Journal
from twisted_exec.program.audit import Trail
from twisted_exec.streaming.http.responses import Dispatcher
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import COMPLETED, MACHINE_DELETED, REVOKED, Ending
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.testing.network import MemoryClient, MemoryServer
from twisted_exec.wire.log_frames import FrameDecoder, Framing


class UnreadableJournal(Journal):
    """A journal on a disk that fails."""

    def read(self, offset: int, limit: int) -> bytes:
        if offset < self.end:
            raise OSError(errno.EIO, "Input/output error")
        return b""


class Logs(Dispatcher):
    """Answers with a journal's log, with the options that the test says."""

    def __init__(self, sessions: Sessions, journal: Journal) -> None:
        super().__init__()
        self._sessions, self.journal = sessions, journal
        self.options = LogOptions()

    async def dispatch(self, request: Request) -> None:
        session = self._sessions.open(request.subject)
        await LogStream(request, self.journal, self.options).run(session)


class LogStreamCase(SynchronousTestCase):
    """A runtime that answers with logs."""

    def setUp(self) -> None:
        self.journal = Journal(lambda: 0)
        self.records = AuditList()
        self.sessions = Sessions(Trail(self.records, "runtime", Clock()))
        self.logs = Logs(self.sessions, self.journal)
        self.clock = Clock()
        self.server = MemoryServer(self.logs, self.clock)

    def ask(self, **options: Any) -> MemoryClient:
        self.logs.options = LogOptions(**options)
        client = self.server.connect()
        client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        return client


class LogStreamTests(LogStreamCase):
    """Tests for :class:`LogStream`."""

    def follow(self) -> MemoryClient:
        """A follower that has the head."""
        client = self.ask(follow=True)
        client.received()
        return client

    def test_large(self) -> None:
        """A log of many pieces comes whole, in order."""
        printed = b"".join(b"%09d\n" % number for number in range(30_000))
        for at in range(0, len(printed), 7_777):
            self.journal.append(printed[at : at + 7_777])
        client = self.ask()
        self.clock.pump([0] * 9)
        (answer,) = client.responses()
        self.assertEqual(answer.body, printed)
        self.assertEqual(self.records.ends(), [(COMPLETED, None)])

    def test_each_byte(self) -> None:
        """Each byte of output is passed on at once."""
        client = self.follow()
        for byte in (b"a", b"b"):
            self.journal.append(byte)
            self.assertEqual(client.received(), b"1\r\n" + byte + b"\r\n")

    def test_paused(self) -> None:
        """A client that takes no more gets no more, until it does."""
        client = self.follow()
        producer = client.transport.producer
        producer.pauseProducing()
        self.journal.append(b"one")
        self.journal.append(b"two")
        self.assertEqual(client.received(), b"")
        producer.resumeProducing()
        self.clock.advance(0)
        self.assertEqual(client.received(), b"6\r\nonetwo\r\n")

    def test_ends_with_machine(self) -> None:
        """The end of the machine is the end of the log, behind what it printed last."""
        client = self.follow()
        client.transport.producer.pauseProducing()
        self.journal.append(b"last words")
        self.journal.close()
        self.assertEqual(client.received(), b"")
        client.transport.producer.resumeProducing()
        self.clock.advance(0)
        self.assertEqual(client.received(), b"a\r\nlast words\r\n0\r\n\r\n")
        self.assertEqual(self.records.ends(), [(MACHINE_DELETED, None)])

    def test_limit(self) -> None:
        """A limit ends a log that is followed."""
        client = self.ask(follow=True, limit_bytes=3)
        self.journal.append(b"abcdef")
        (answer,) = client.responses()
        self.assertEqual(answer.body, b"abc")
        self.assertEqual(instances(self.journal, LogStream), [])

    def test_withdrawn(self) -> None:
        """An ending from this side is reported in the text, and is not a complete log."""
        client = self.follow()
        self.sessions.end(lambda _: True, Ending(REVOKED, "why"))
        self.assertIn(b"[twisted-exec: AuthorizationWithdrawn: why]", client.received())
        self.assertTrue(client.closed)
        self.assertEqual(instances(self.journal, LogStream), [])

    def test_unreadable(self) -> None:
        """A journal that cannot be read ends the log; the console goes on."""
        self.journal = self.logs.journal = UnreadableJournal()
        client = self.follow()
        self.journal.append(b"more\n")
        self.assertIn(
            b"[twisted-exec: InternalError: the journal cannot be read]", client.received()
        )
        self.assertTrue(client.closed)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)

    def test_leaves(self) -> None:
        """A follower that leaves is forgotten."""
        self.follow().lose()
        self.assertEqual(instances(self.journal, LogStream), [])
        self.assertEqual(self.records.ends(), [("client closed", None)])

    def test_short_turns(self) -> None:
        """Much output that becomes little text is read in several turns."""
        self.journal.append(b"\x1b[m" * 200_000)
        self.journal.append(b"end")
        client = self.ask(plain=True, follow=True)
        self.assertNotIn(b"end", client.received())
        self.clock.pump([0] * 9)
        self.assertIn(b"end", client.received())
        client.lose()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_frames(self) -> None:
        """Frames come with their header, and each has the offset behind its text."""
        self.journal.append(b"one\n")
        (answer,) = self.ask(frames=True).responses()
        framing = Framing.of(
            [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        )
        self.assertEqual(framing, Framing(self.journal.epoch, 0, 4))
        self.assertEqual(FrameDecoder().feed(answer.body), [(b"one\n", 4, 0, 0)])

    def test_frames_withdrawn(self) -> None:
        """An ending from this side is not written between frames."""
        client = self.ask(frames=True, follow=True)
        client.received()
        self.sessions.end(lambda _: True, Ending(REVOKED, "why"))
        self.assertEqual(client.received(), b"")
        self.assertTrue(client.closed)


class SlowDiskTests(LogStreamCase):
    """Logs of a machine whose output is on a disk that does not answer at once."""

    def printed(self, late: Callable[[int], bool]) -> None:
        """Print, and forget in memory what is on disk."""
        self.addCleanup(close_segments)
        now = itertools.count(1_800_000_000 * 10**9, 10**8)
        self.disk = SlowDisk(self.mktemp(), self.clock, late)
        journal = self.journal = self.logs.journal = Journal(lambda: next(now), self.disk)
        for number in range(300):
            if number % 100 == 0:
                journal.booted("Started")
            journal.append(b"\x1b[1m line %d\r\n" % number)
            if number == 150:
                journal.missed()
        journal.rest()

    def answer(self, **options: Any) -> tuple[int, bytes]:
        client = self.ask(**options)
        self.clock.pump([0.1] * 400)
        (answer,) = client.responses()
        return answer.code, answer.body

    def test_late_calls(self) -> None:
        """A log whose calls of the disk are late has the same text: each line, and its time."""
        moment = (1_800_000_000 + 10) * 10**9
        for options in (
            {"timestamps": True},
            {"timestamps": True, "tail_lines": 3},
            {"tail_lines": 250, "plain": True},
            {"timestamps": True, "plain": True, "frames": True},
            {"since_nanoseconds": moment},
            {"until_nanoseconds": moment, "timestamps": True},
            {"previous": True, "timestamps": True},
            {"boot": 1, "frames": True},
        ):
            self.printed(lambda call: False)
            expected = self.answer(**options)
            self.assertIn(b"line", expected[1])
            for seed in range(5):
                with self.subTest(seed=seed, **options):
                    chance = random.Random(seed)
                    self.printed(lambda call, chance=chance: call == 1 or chance.random() < 0.3)
                    code, body = self.answer(**options)
                    self.assertGreater(self.disk.refusals, 0)
                    epoch = self.journal.epoch.encode()
                    self.assertEqual((code, body.replace(epoch, b"")), expected)

    def test_no_answer(self) -> None:
        """A disk that does not answer is a reason to try again, which names the disk."""
        self.printed(lambda call: True)
        code, body = self.answer(tail_lines=3)
        self.assertEqual(code, 503)
        self.assertIn(b"cannot be read from the disk: the disk does not answer; try again", body)
        self.assertEqual(len(self.records.ends()), 1)

    def test_leaves(self) -> None:
        """A reader that leaves while the disk does not answer is forgotten."""
        self.printed(lambda call: True)
        client = self.ask()
        client.lose()
        self.assertEqual(instances(self.journal, LogStream), [])
        self.assertEqual(self.records.ends(), [("client closed", 499)])
