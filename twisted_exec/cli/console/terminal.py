"""
The user's terminal: raw while a console is open, itself again whatever happens.

Three things outlive a program that dies carelessly: the terminal's modes, the ``O_NONBLOCK`` flag
(it belongs to the open file that the shell shares with us), and a stopped terminal.  So
:meth:`Terminal.restore` may be called at any time, also from a signal handler; :func:`nonblocking`
opens the terminal a second time, or puts the flag back; and :class:`Signals` handles stops.

:class:`TerminalInput` and :class:`TerminalOutput` are standard input and output as Twisted
descriptors.  :class:`twisted.internet.stdio.StandardIO` sets ``O_NONBLOCK`` on what the shell
shares with us, and does not tell why writing failed, such as a full disk.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import stat
import struct
import termios
import tty
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from twisted.internet.abstract import FileDescriptor
from twisted.internet.interfaces import IReactorFDSet
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.python.failure import Failure

from twisted_exec.wire.resize import TerminalSize

DEADLY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

_Handler = Callable[[int, FrameType | None], None]


class Terminal:
    """
    The terminal behind a descriptor, if it is one; a context manager, which restores the terminal.

    :param fd: usually 0.  Without a terminal nothing is changed.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.is_terminal = os.isatty(fd)
        self.raw = self._is_changed = False
        self._saved = termios.tcgetattr(fd) if self.is_terminal else None

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()

    @property
    def has_data(self) -> bool:
        """
        True if the descriptor is no terminal, and has data that no program has read.

        A file that was read in part belongs to another reader, such as a loop of a shell.
        """
        is_file = stat.S_ISREG(os.fstat(self.fd).st_mode)
        if self.is_terminal or (is_file and os.lseek(self.fd, 0, os.SEEK_CUR)):
            return False
        try:
            count = fcntl.ioctl(self.fd, termios.FIONREAD, bytes(4))
        except OSError:  # such as /dev/null
            return False
        return any(count)

    def make_raw(self) -> None:
        """Set raw mode, so that every key goes to the machine.  Input typed before is kept."""
        if self._saved is None:
            return
        self.raw = self._is_changed = True
        with _ignoring_hangup():
            tty.setraw(self.fd, termios.TCSADRAIN)

    def end_lines_at(self, key: bytes) -> bool:
        """
        Have a key end a line, as Enter does, so that the terminal is readable when it is typed.

        :return: false if a line waits already, or if the terminal is in use by another program.
        """
        if self._saved is None or select.select([self.fd], [], [], 0)[0]:
            return False
        try:
            if os.tcgetpgrp(self.fd) != os.getpgrp():
                return False
        except OSError:  # it is not the controlling terminal
            return False
        *modes, characters = self._saved
        characters = [*characters]
        characters[termios.VEOL] = key
        self._is_changed = True
        with _ignoring_hangup():
            termios.tcsetattr(self.fd, termios.TCSANOW, [*modes, characters])
        return True

    def restore(self) -> None:
        if self._saved is None or not self._is_changed:
            return
        # From the background tcsetattr would stop us, raw terminal and all.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            with _ignoring_hangup():
                # Not TCSADRAIN, which waits forever on a terminal whose output is stuck.
                termios.tcsetattr(self.fd, termios.TCSANOW, self._saved)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        self.raw = self._is_changed = (
            False  # last, because a signal handler may run in between and restore as well
        )

    def size(self) -> TerminalSize | None:
        if self._saved is None:
            return None
        try:
            winsize = fcntl.ioctl(self.fd, termios.TIOCGWINSZ, bytes(8))
        except OSError:
            return None
        rows, columns, _, _ = struct.unpack("HHHH", winsize)
        return TerminalSize(columns, rows) if columns and rows else None


@contextmanager
def _ignoring_hangup() -> Iterator[None]:
    try:
        yield
    except termios.error:
        pass


@contextmanager
def nonblocking(fd: int, flags: int) -> Iterator[int]:
    """
    Yield a descriptor for the same file that does not block.

    It is ``fd`` itself, with the flag for a while, unless ``fd`` is a terminal that can be opened
    again.

    :param flags: ``os.O_RDONLY`` or ``os.O_WRONLY``, for opening a terminal again.
    """
    if os.isatty(fd):
        own = _opened_again(fd, flags)
        if own >= 0:
            try:
                yield own
            finally:
                os.close(own)
            return
    if stat.S_ISREG(os.fstat(fd).st_mode):
        yield fd
        return
    before = os.get_blocking(fd)
    os.set_blocking(fd, False)
    try:
        yield fd
    finally:
        os.set_blocking(fd, before)


def _opened_again(fd: int, flags: int) -> int:
    # By its name only where there is no /proc, as on macOS: in a container the name may be another's.
    for path in (lambda: f"/proc/self/fd/{fd}", lambda: os.ttyname(fd)):
        try:
            return os.open(path(), flags | os.O_NOCTTY | os.O_NONBLOCK)
        except FileNotFoundError:
            continue
        except OSError:
            break
    return -1


class Signals:
    """
    Signal handlers while a console is open.  A context manager.

    :param resized: called in the signal handler; must pass the call on to the reactor's thread.
    :param deadly: likewise, for the first of :data:`DEADLY`, with its number; a second one ends the
        program, but no second SIGHUP.
    :param continued: likewise, when the program goes on after another has suspended it.
    """

    def __init__(
        self,
        terminal: Terminal,
        resized: Callable[[], None],
        deadly: Callable[[int], None],
        continued: Callable[[], None] = lambda: None,
    ) -> None:
        self._terminal = terminal
        self._resized = resized
        self._deadly, self._continued = deadly, continued
        self._before: dict[int, _Handler | int | None] = {}
        self._raw_when_stopped = self._was_continued = False

    def __enter__(self) -> Signals:
        self._set(signal.SIGWINCH, lambda *_: self._resized())
        if self._terminal.is_terminal:
            self._set(signal.SIGTSTP, self._stop)
            self._set(signal.SIGCONT, self._continue)
        for number in DEADLY:
            # nohup and background jobs of plain shells ignore some on purpose.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._set(number, self._die)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before if before is not None else signal.SIG_DFL)

    def _set(self, number: int, handler: _Handler) -> None:
        self._before.setdefault(number, signal.getsignal(number))
        signal.signal(number, handler)

    def suspend(self) -> bool:
        """
        Stop this program, as job control does.

        :return: whether it was stopped, and has continued; a shell may have no job control.
        """
        self._raw_when_stopped, self._was_continued = self._terminal.raw, False
        self._terminal.restore()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(
            os.getpid(), signal.SIGTSTP
        )  # returns after SIGCONT, or at once in an orphaned process group
        signal.signal(signal.SIGTSTP, self._stop)
        was_stopped = self._was_continued
        self._continue()
        return was_stopped

    def _stop(self, *_: object) -> None:
        if self.suspend():
            self._continued()

    def _continue(self, *_: object) -> None:
        self._was_continued = True
        # SIGSTOP cannot be handled, so the modes were not restored before, and the shell has set its own.
        if self._raw_when_stopped or self._terminal.raw:
            self._raw_when_stopped = False
            self._terminal.make_raw()
            self._resized()

    def _die(self, number: int, frame: FrameType | None) -> None:
        for each in DEADLY:
            if each in self._before:
                signal.signal(each, self._die_now)
        if number == signal.SIGHUP:
            # The kernel and the shell each send it when the window is closed: that is no impatience.
            signal.signal(number, signal.SIG_IGN)
        self._deadly(number)

    def _die_now(self, number: int, frame: FrameType | None) -> None:
        self._terminal.restore()
        die_of(number)


def die_of(number: int) -> None:
    """End this process by a signal, so that the shell sees which one."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


# As much as one message carries.
_READ_BYTES = 32 << 10


class TerminalInput(FileDescriptor):
    """
    Reads a descriptor; ``pauseProducing`` and ``resumeProducing`` as any producer.

    :param ended: called once, at the end of input or when reading failed.
    """

    def __init__(
        self,
        fd: int,
        received: Callable[[bytes], None],
        ended: Callable[[], None],
        reactor: IReactorFDSet,
    ) -> None:
        super().__init__(reactor)
        self._fd = fd
        self._received = received
        self._ended = ended
        self.connected = 1

    def fileno(self) -> int:
        return self._fd

    def doRead(self) -> Exception | None:
        try:
            data = os.read(self._fd, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:  # EIO: the terminal's window was closed
            return CONNECTION_LOST
        if not data:
            return CONNECTION_DONE
        self._received(data)
        return None

    def connectionLost(self, reason: Failure) -> None:
        super().connectionLost(reason)
        self._ended()

    def stop(self) -> None:
        """Read no more, without a call of ``ended``."""
        self.stopReading()
        self.connected = 0


class TypedLine(FileDescriptor):
    """
    Tells that a line is typed, which stays for the program that reads the terminal next.

    :param typed: called once.
    """

    def __init__(self, fd: int, typed: Callable[[], None], reactor: IReactorFDSet) -> None:
        super().__init__(reactor)
        self._fd, self._typed = fd, typed

    def fileno(self) -> int:
        return self._fd

    def doRead(self) -> None:
        self.stopReading()
        self._typed()


class TerminalOutput(FileDescriptor):
    """
    Writes a descriptor, with the queue and the producer of any Twisted transport.

    :param lost: called once, when nothing can be written any more: with the system's message, or
        with ``None`` if everything was flushed or the reader went away.
    :ivar unsent: bytes in the queue.
    """

    def __init__(
        self, fd: int, lost: Callable[[OSError | None], None], reactor: IReactorFDSet
    ) -> None:
        super().__init__(reactor)
        self._fd = fd
        self._lost = lost
        self._error: OSError | None = None
        self.unsent = 0
        self.connected = 1

    def fileno(self) -> int:
        return self._fd

    def write(self, data: bytes) -> None:
        if self.connected:
            self.unsent += len(data)
        super().write(data)

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        self.write(b"".join(iovec))

    def writeSomeData(self, data: bytes) -> int | Exception:
        try:
            sent = os.write(self._fd, data)
            self.unsent -= sent
            return sent
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                self._error = error
            return CONNECTION_LOST

    def connectionLost(self, reason: Failure) -> None:
        super().connectionLost(reason)
        self._lost(self._error)
