"""Tests for :mod:`twisted_exec.program.audit_file`."""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.program.disks import FreezableThread
from tests.tiers import PROGRAMS
from twisted_exec.program import audit_file
from twisted_exec.program.audit_file import AuditUnavailable, JSONLinesAudit, Rotation, to_line
from twisted_exec.program.interfaces import IAuditSink


class LineTests(SynchronousTestCase):
    """Tests for :func:`to_line`."""

    @given(st.dictionaries(st.text(max_size=20), st.text(max_size=200), max_size=5))
    def test_one_line(self, event: dict[str, str]) -> None:
        """Any text becomes one line of printable ASCII, and comes back."""
        line = to_line(event)
        self.assertTrue(line.endswith(b"\n"))
        self.assertTrue(all(32 <= byte < 127 for byte in line[:-1]))
        self.assertEqual(json.loads(line), event)

    def test_forged(self) -> None:
        """A user name cannot write a record of its own, nor move a terminal's cursor."""
        line = to_line({"user": 'x"}\n{"event":"end"}\r\x1b[2J\x7f\x9b\u2028'})
        self.assertEqual(line.count(b"\n"), 1)
        self.assertNotIn(b"\x1b", line)
        self.assertNotIn(b"\x7f", line)

    def test_bounded(self) -> None:
        """A long value is cut."""
        self.assertLess(len(to_line({"user": "x" * 1_000_000})), 3000)


class JSONLinesAuditTests(SynchronousTestCase):
    """Tests for :class:`JSONLinesAudit`."""

    starts = PROGRAMS

    def setUp(self) -> None:
        self.directory = self.mktemp()
        os.makedirs(self.directory)
        self.path = os.path.join(self.directory, "audit.jsonl")
        self.audit = JSONLinesAudit(self.path)

    def lines(self, path: str = "") -> list[Any]:
        with open(path or self.path) as stream:
            return [json.loads(line) for line in stream]

    def test_door(self) -> None:
        """It is an audit sink."""
        verifyObject(IAuditSink, self.audit)

    def test_nothing_is_opened_early(self) -> None:
        """The file is made with the first record."""
        self.assertFalse(os.path.exists(self.path))

    def test_private(self) -> None:
        """The file is ours alone, whatever the umask."""
        before = os.umask(0)
        try:
            self.audit.record({"event": "start"})
        finally:
            os.umask(before)
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)

    def test_appended(self) -> None:
        """Records are added to those that are there."""
        self.audit.record({"n": 1})
        JSONLinesAudit(self.path).record({"n": 2})
        self.assertEqual(self.lines(), [{"n": 1}, {"n": 2}])

    def test_rotated(self) -> None:
        """A file that was moved away gets no more records; a new one does."""
        self.audit.record({"n": 1})
        os.rename(self.path, self.path + ".1")
        self.audit.record({"n": 2})
        self.assertEqual(self.lines(self.path + ".1"), [{"n": 1}])
        self.assertEqual(self.lines(), [{"n": 2}])

    def test_size(self) -> None:
        """A file is renamed before it exceeds its size; old files are numbered, and few are kept."""
        line = len(b'{"n":1}\n')
        audit = JSONLinesAudit(self.path, Rotation(2 * line + 1, old_files=2))
        for number in range(1, 8):
            audit.record({"n": number})
        names = sorted(os.listdir(self.directory))
        self.assertEqual(names, ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"])
        self.assertEqual(self.lines(), [{"n": 7}])
        self.assertEqual(self.lines(self.path + ".1"), [{"n": 5}, {"n": 6}])
        self.assertEqual(self.lines(self.path + ".2"), [{"n": 3}, {"n": 4}])
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)

    def test_large_record(self) -> None:
        """A record that is larger than the limit gets a file of its own."""
        audit = JSONLinesAudit(self.path, Rotation(4))
        audit.record({"n": 1})
        audit.record({"n": 2})
        self.assertEqual(self.lines(), [{"n": 2}])
        self.assertEqual(self.lines(self.path + ".1"), [{"n": 1}])

    def test_shared_size(self) -> None:
        """Two writers that share a file lose no record when either of them renames it."""
        program = (
            "import sys\nfrom twisted_exec.program.audit_file import JSONLinesAudit, Rotation\n"
            "audit = JSONLinesAudit(sys.argv[1], Rotation(500, old_files=900))\n"
            "for number in range(300): audit.record({'n': number, 'who': sys.argv[2]})\n"
        )
        argv = [sys.executable, "-c", program, self.path]
        writers = [subprocess.Popen([*argv, name]) for name in ("a", "b")]
        self.assertEqual([writer.wait(600) for writer in writers], [0, 0])
        paths = [os.path.join(self.directory, name) for name in os.listdir(self.directory)]
        self.assertGreater(len(paths), 20)
        self.assertTrue(all(os.path.getsize(path) <= 500 for path in paths))
        records = [(each["who"], each["n"]) for path in paths for each in self.lines(path)]
        self.assertEqual(sorted(records), [(who, n) for who in "ab" for n in range(300)])

    def test_cannot_rename(self) -> None:
        """If the file cannot be renamed, records go on into it."""
        audit = JSONLinesAudit(self.path, Rotation(10, old_files=1))
        os.mkdir(self.path + ".1")
        for number in range(3):
            audit.record({"n": number})
        self.assertEqual(len(self.lines()), 3)
        os.rmdir(self.path + ".1")
        audit.record({"n": 3})
        self.assertEqual(self.lines(), [{"n": 3}])

    def test_one_write(self) -> None:
        """A record is one write, so that processes sharing a file do not mix lines."""
        with mock.patch("os.write", wraps=os.write) as write:
            self.audit.record({"n": 1})
        self.assertEqual(write.call_count, 1)

    def test_stream(self) -> None:
        """A stream takes records too, each flushed."""
        stream = io.StringIO()
        JSONLinesAudit(stream).record({"n": 1})
        self.assertEqual(stream.getvalue(), '{"n":1}\n')

    def test_link(self) -> None:
        """A planted link is not followed."""
        target = os.path.join(self.directory, "target")
        os.symlink(target, self.path)
        with self.assertRaises(AuditUnavailable):
            self.audit.check()
        self.audit.record({"n": 1})
        self.assertFalse(os.path.exists(target))
        self.flushLoggedErrors()

    def test_check(self) -> None:
        """A file that cannot be written is told in one line when the service starts."""
        self.audit.check()
        for path in ("/nowhere/audit.jsonl", self.directory):
            with self.assertRaises(AuditUnavailable) as caught:
                JSONLinesAudit(path).check()
            self.assertIn(
                f"cannot write audit file {os.path.abspath(path)!r}", str(caught.exception)
            )

    def test_other_files(self) -> None:
        """Of what is no regular file only /dev/null is accepted; a FIFO could block the program."""
        fifo, read, link = (os.path.join(self.directory, name) for name in ("fifo", "read", "link"))
        socket_path = os.path.join(tempfile.mkdtemp(), "s")
        self.addCleanup(shutil.rmtree, os.path.dirname(socket_path))
        os.mkfifo(fifo)
        os.mkfifo(read)
        reader = os.open(read, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        os.symlink("/dev/stdout", link)
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(socket_path)
        for path, why in (
            (fifo, "not a regular file"),
            (read, "not a regular file"),
            (socket_path, "not a regular file"),
            ("/dev/zero", "not a regular file"),
            (link, "a symbolic link"),
        ):
            with self.assertRaises(AuditUnavailable) as caught:
                JSONLinesAudit(path).check()
            self.assertIn(f"{why} (give a file, - for standard output, or ", str(caught.exception))

    def test_dev_null(self) -> None:
        """/dev/null keeps no records, and is never rotated."""
        audit = JSONLinesAudit(os.devnull, Rotation(max_bytes=1))
        audit.check()
        self.patch(fcntl, "flock", None)
        audit.record({"n": 1})
        audit.record({"n": 2})
        self.assertFalse(audit._broken)

    def test_stalled_disk(self) -> None:
        """Records wait for a disk that does not answer, in order; too many go to the log."""
        thread = FreezableThread()
        sink = JSONLinesAudit(self.path, thread=thread)
        thread.is_frozen = True
        with mock.patch.object(audit_file, "MOST_WAITING", 3), capturedLogs() as logs:
            for number in range(4):
                sink.record({"session": str(number)})
        self.assertEqual([each["line"] for each in logs if "line" in each], ['{"session":"3"}'])
        self.assertFalse(os.path.exists(self.path))
        thread.thaw()
        self.assertEqual([each["session"] for each in self.lines()], ["0", "1", "2"])
        sink.record({"session": "4"})
        self.assertEqual(self.lines()[-1]["session"], "4")

    def test_full_disk(self) -> None:
        """A torn record does not spoil the next one, and nothing is raised."""
        self.audit.record({"n": 1})
        real = os.write
        with mock.patch("os.write", lambda fd, data: real(fd, data[:3])):
            self.audit.record({"n": 2})
        self.audit.record({"n": 3})
        with open(self.path) as stream:
            self.assertEqual(stream.read(), '{"n":1}\n{"n\n{"n":3}\n')
        self.flushLoggedErrors()
