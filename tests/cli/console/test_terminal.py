"""
Tests for :mod:`twisted_exec.cli.console.terminal`.

A pseudo-terminal of our own plays the user's.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios

from twisted.trial.unittest import SynchronousTestCase

from tests.heard import hear_signals
from tests.tiers import PROGRAMS
from twisted_exec.cli.console.terminal import Signals, Terminal, nonblocking
from twisted_exec.wire.resize import TerminalSize


def set_size(fd: int, columns: int, rows: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class PtyCase(SynchronousTestCase):
    """A pseudo-terminal: ``self.far`` is the window, ``self.near`` the program's side."""

    def setUp(self) -> None:
        hear_signals(self)
        self.far, self.near = os.openpty()
        self.addCleanup(os.close, self.near)
        self.addCleanup(self._close_far)

    def _close_far(self) -> None:
        if self.far >= 0:
            os.close(self.far)
            self.far = -1

    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self.near)[3] & termios.ECHO)


class TerminalTests(PtyCase):
    """Tests for :class:`Terminal`."""

    def test_raw_and_back(self) -> None:
        """The terminal is raw inside the context, and restored exactly afterwards."""
        before = termios.tcgetattr(self.near)
        with Terminal(self.near) as terminal:
            terminal.make_raw()
            self.assertFalse(self.echoes())
        self.assertEqual(termios.tcgetattr(self.near), before)

    def test_restored_after_an_error(self) -> None:
        """After an exception the terminal is restored."""
        with self.assertRaises(RuntimeError), Terminal(self.near) as terminal:
            terminal.make_raw()
            raise RuntimeError("anything")
        self.assertTrue(self.echoes())

    def test_type_ahead_is_kept(self) -> None:
        """Bytes typed before the terminal became raw can still be read afterwards."""
        os.write(self.far, b"early")
        with Terminal(self.near) as terminal:
            terminal.make_raw()
            self.assertEqual(os.read(self.near, 100), b"early")

    def test_lines_of_others(self) -> None:
        """No key ends a line at a terminal that is another program's, such as the foreground's."""
        before = termios.tcgetattr(self.near)
        with Terminal(self.near) as terminal:
            self.assertFalse(terminal.end_lines_at(b"\x1d"))
            self.assertEqual(termios.tcgetattr(self.near), before)

    def test_restore_does_not_wait_for_a_reader(self) -> None:
        """The terminal is restored even if its output is not read."""
        with Terminal(self.near) as terminal:
            terminal.make_raw()
            with nonblocking(self.near, os.O_WRONLY) as fd, self.assertRaises(BlockingIOError):
                while True:
                    os.write(fd, b"x" * 4096)
        self.assertTrue(self.echoes())

    def test_hung_up(self) -> None:
        """Restoring a closed terminal is not an error."""
        with Terminal(self.near) as terminal:
            terminal.make_raw()
            self._close_far()
        self.assertFalse(terminal.raw)

    def test_size(self) -> None:
        """The size is the terminal's current size, or None if unknown."""
        terminal = Terminal(self.near)
        self.assertIsNone(terminal.size())
        set_size(self.far, 132, 43)
        self.assertEqual(terminal.size(), TerminalSize(132, 43))

    def test_has_data(self) -> None:
        """Data waits in a pipe, and in a file of which no program has read a part."""
        os.write(self.far, b"typed\n")
        self.assertFalse(Terminal(self.near).has_data)
        with open(os.devnull, "rb") as null:
            self.assertFalse(Terminal(null.fileno()).has_data)
        near, far = os.pipe()
        self.addCleanup(os.close, near)
        self.addCleanup(os.close, far)
        self.assertFalse(Terminal(near).has_data)
        os.write(far, b"x")
        self.assertTrue(Terminal(near).has_data)
        with open(__file__, "rb", buffering=0) as file:
            self.assertTrue(Terminal(file.fileno()).has_data)
            file.read(1)
            self.assertFalse(Terminal(file.fileno()).has_data)

    def test_no_terminal(self) -> None:
        """On a pipe there is no size, and setting raw mode does nothing."""
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        self.addCleanup(os.close, write)
        with Terminal(read) as terminal:
            terminal.make_raw()
            self.assertFalse(terminal.is_terminal)
            self.assertIsNone(terminal.size())


class NonblockingTests(PtyCase):
    """Tests for :func:`nonblocking`."""

    def test_terminal_is_opened_again(self) -> None:
        """The descriptor that the shell shares is never made non-blocking."""
        with nonblocking(self.near, os.O_RDONLY) as fd:
            self.assertNotEqual(fd, self.near)
            self.assertFalse(os.get_blocking(fd))
            self.assertTrue(os.get_blocking(self.near))
            with Terminal(self.near) as terminal:
                terminal.make_raw()
                os.write(self.far, b"key")
                self.assertTrue(select.select([fd], [], [], 600)[0])
                self.assertEqual(os.read(fd, 100), b"key")
        with self.assertRaises(OSError):
            os.fstat(fd)

    def test_pipe_is_put_back(self) -> None:
        """A pipe does not block meanwhile and blocks again after, also after an error."""
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        self.addCleanup(os.close, write)
        with self.assertRaises(RuntimeError), nonblocking(read, os.O_RDONLY) as fd:
            self.assertEqual((fd, os.get_blocking(read)), (read, False))
            raise RuntimeError("anything")
        self.assertTrue(os.get_blocking(read))

    def test_file_is_left_alone(self) -> None:
        """Files never block, so their flags are left unchanged."""
        with tempfile.TemporaryFile() as file, nonblocking(file.fileno(), os.O_RDONLY) as fd:
            self.assertEqual(fd, file.fileno())
            self.assertTrue(os.get_blocking(fd))


class SignalsTests(PtyCase):
    """Tests for :class:`Signals`."""

    def test_resize(self) -> None:
        """SIGWINCH reports a resize; the previous signal handler is restored afterwards."""
        before = signal.getsignal(signal.SIGWINCH)
        told: list[str] = []
        with Signals(Terminal(self.near), lambda: told.append("resized"), lambda _: None):
            os.kill(os.getpid(), signal.SIGWINCH)
        self.assertEqual(told, ["resized"])
        self.assertEqual(signal.getsignal(signal.SIGWINCH), before)

    def test_first_deadly_signal_is_told(self) -> None:
        """
        The first deadly signal is passed to the callback, so that the program can end in order.
        """
        told: list[int] = []
        terminal = Terminal(self.near)
        with Signals(terminal, lambda: None, told.append):
            os.kill(os.getpid(), signal.SIGHUP)
        self.assertEqual(told, [signal.SIGHUP])

    def test_closed_window(self) -> None:
        """The kernel and the shell both send SIGHUP for a window that is closed: the program ends in order."""
        told: list[int] = []
        with Signals(Terminal(self.near), lambda: None, told.append):
            os.kill(os.getpid(), signal.SIGHUP)
            # Or the second one would end the test runner.
            self.assertIs(signal.getsignal(signal.SIGHUP), signal.SIG_IGN)
            os.kill(os.getpid(), signal.SIGHUP)
        self.assertEqual(told, [signal.SIGHUP])

    def test_ignored_signals_stay_ignored(self) -> None:
        """``nohup kubectl console`` survives the hang-up it was protected from."""
        self.addCleanup(signal.signal, signal.SIGHUP, signal.signal(signal.SIGHUP, signal.SIG_IGN))
        told: list[int] = []
        with Signals(Terminal(self.near), lambda: None, told.append):
            os.kill(os.getpid(), signal.SIGHUP)
        self.assertEqual(told, [])

    def test_continued(self) -> None:
        """After SIGCONT, the terminal is raw again and a resize is reported."""
        told: list[str] = []
        with Terminal(self.near) as terminal:
            terminal.make_raw()
            before = termios.tcgetattr(self.near)
            with Signals(terminal, lambda: told.append("resized"), lambda _: None):
                terminal_modes = before[:]
                terminal_modes[3] |= termios.ECHO  # as a shell does
                termios.tcsetattr(self.near, termios.TCSANOW, terminal_modes)
                os.kill(os.getpid(), signal.SIGCONT)
            self.assertFalse(self.echoes())
        self.assertEqual(told, ["resized"])


_CHILD = """
import os, signal, sys, time
from twisted_exec.cli.console.terminal import Signals, Terminal, die_of
got = []
def resized(): os.write(1, b"resized;")
def continued(): os.write(1, b"continued;")
with Terminal(0) as terminal, Signals(terminal, resized, got.append, continued):
    terminal.make_raw()
    os.write(1, b"%d ready;" % os.getpid())
    while len(got) < int(sys.argv[1]):
        time.sleep(0.01)
if got:
    die_of(got[0])
"""


_SUSPENDED = """
import os
from twisted_exec.cli.console.terminal import Signals, Terminal
with Terminal(0) as terminal, Signals(terminal, lambda: None, print) as signals:
    terminal.make_raw()
    was_stopped = signals.suspend()
    os.write(1, b"stopped: %d, raw: %d;" % (was_stopped, terminal.raw))
"""


class ProcessTests(PtyCase):
    """A whole process on a terminal, as the shell sees it."""

    starts = PROGRAMS

    def start(self, signals_wanted: int) -> subprocess.Popen[bytes]:
        child = self.spawn([sys.executable, "-c", _CHILD, str(signals_wanted)])
        self.read_until(b"ready;")
        self.assertFalse(self.echoes())
        return child

    def spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Start a session of its own, with our pseudo-terminal as its terminal."""
        child = subprocess.Popen(
            command,
            stdin=self.near,
            stdout=self.near,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child

    def read_until(self, wanted: bytes) -> bytes:
        got = b""
        while wanted not in got:
            readable, _, _ = select.select([self.far], [], [], 600)
            self.assertTrue(readable, got)
            got += os.read(self.far, 4096)
        return got

    def test_dies_of_the_signal_with_the_terminal_restored(self) -> None:
        """A shell sees SIGTERM, and a terminal that echoes."""
        child = self.start(1)
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(600), -signal.SIGTERM)
        self.assertTrue(self.echoes())

    def test_second_signal_waits_for_nobody(self) -> None:
        """A second signal kills a program that does not end, and the terminal is restored."""
        child = self.start(99)
        child.send_signal(signal.SIGTERM)
        while child.poll() is None:
            child.send_signal(signal.SIGHUP)
        self.assertIn(child.returncode, (-signal.SIGHUP, -signal.SIGTERM))
        self.assertTrue(self.echoes())

    def test_stopped_and_continued(self) -> None:
        """SIGTSTP gives the terminal back before the program stops; SIGCONT takes it again."""
        # Only a job that a shell controls stops by SIGTSTP.
        script = f'set -m; {sys.executable} -c "$0" 1; echo "stopped"; read line; fg; exit $?'
        shell = self.spawn(["/bin/sh", "-c", script, _CHILD])
        child = int(self.read_until(b"ready;").split(b"ready")[0])
        os.kill(child, signal.SIGTSTP)
        self.read_until(b"stopped")
        self.assertTrue(self.echoes())
        os.write(self.far, b"\n")
        self.read_until(b"resized;continued;")
        self.assertFalse(self.echoes())
        os.kill(child, signal.SIGTERM)
        shell.wait(600)
        self.assertTrue(self.echoes())

    def test_suspended(self) -> None:
        """A program that suspends itself goes on with a raw terminal."""
        script = f'set -m; {sys.executable} -c "$0"; echo "suspended"; read line; fg'
        self.spawn(["/bin/sh", "-c", script, _SUSPENDED])
        self.read_until(b"suspended")
        self.assertTrue(self.echoes())
        os.write(self.far, b"\n")
        self.read_until(b"stopped: 1, raw: 1;")

    def test_suspended_without_job_control(self) -> None:
        """A program that no shell could continue is not stopped, and knows it."""
        self.spawn([sys.executable, "-c", _SUSPENDED])
        self.read_until(b"stopped: 0, raw: 1;")
