"""
A command in a new pseudo-terminal, as its parent starts it.

The keeper imports this module without the rest of the project.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import termios
import tty

from .protocol import BadMessage, Message

_EXEC_FAILED = 127


class KeeperCommand:
    """
    A command to start, from a request.

    :raises BadMessage: a field is missing or wrong.
    """

    def __init__(self, message: Message) -> None:
        self._path = message.text("path")
        self._arguments = message.all("arg")
        self._environment = dict(each.partition(b"=")[::2] for each in message.all("env"))
        self._directory = message.text("cwd", b"/")
        self._size = message.number("rows", 24), message.number("columns", 80)
        self._is_raw = message.number("raw", 0) == 1
        self._uid, self._gid = message.number("uid", -1), message.number("gid", -1)
        self._tty_gid = message.number("tty-gid", -1)
        try:
            self._groups = [int(each) for each in message.all("group")]
        except ValueError:
            raise BadMessage("group is no number") from None
        self._limits = message.number("soft", -1), message.number("hard", -1)
        if not self._arguments or b"" in self._environment:
            raise BadMessage("there is no command, or a variable without a name")
        if any(not 0 <= each < 1 << 16 for each in self._size):
            raise BadMessage("the size is not possible")

    def prepare(self, master: int, slave: int) -> None:
        termios.tcsetwinsize(master, self._size)
        if self._is_raw:
            tty.setraw(slave)
        if self._uid >= 0:
            # As login(1) does, so that the user can open the terminal by name.
            os.fchown(slave, self._uid, self._tty_gid)
            os.fchmod(slave, 0o620)

    def execute(self, slave: int, problems: int) -> None:
        """Become the command; called in the child, and never returns."""
        try:
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            for standard in range(3):
                os.dup2(slave, standard)
            # Python ignores some signals, and the runtime may have been started with others ignored.
            for number in range(1, signal.NSIG):
                if signal.getsignal(number) == signal.SIG_IGN:
                    signal.signal(number, signal.SIG_DFL)
            # Before setuid: only root may raise a hard limit (setrlimit(2)).
            if self._limits != (-1, -1):
                resource.setrlimit(resource.RLIMIT_NOFILE, self._limits)
            os.chdir(self._directory)
            # setuid comes last, because it takes away the right to the other two.
            if self._uid >= 0:
                os.setgroups(self._groups)
                os.setgid(self._gid)
                os.setuid(self._uid)
            # All are closed by exec; this is for descriptors that a future change forgets.
            os.closerange(3, problems)
            os.closerange(problems + 1, 1 << 20)
            os.execve(self._path, self._arguments, self._environment)
        except OSError as error:
            os.write(problems, str(error.errno or errno.EIO).encode())
        except BaseException:
            os.write(problems, str(errno.EINVAL).encode())
        finally:
            os._exit(_EXEC_FAILED)
