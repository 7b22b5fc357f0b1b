"""
One command in the shell of a machine: ``--run``.

It needs a POSIX shell that waits at its prompt.  It types two lines:

1. a probe, which prints a mark.  If no mark comes, the command is never typed: a login prompt would
   take it for a user's name.  At a boot loader's prompt not even the probe is typed.
2. the command, between two marks; the second has its exit code.

A mark is an operating system command (OSC) with a number that no terminal knows, so no viewer sees
it, and neither alerts nor plain logs contain it.  (Not an APC, which tmux takes for a title.)  The
shell's ``printf`` makes its Escape characters, so the echo of a typed line contains no mark.  The
command is typed in octal where necessary: a quote cannot end the line early, and a tab does not
complete a word.  Each mark but the first of the command is printed twice, because the kernel may print
a line into the middle of it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from twisted_exec.cli.console.script import (
    MOST_SETTLE_SECONDS,
    SETTLE_SECONDS,
    Script,
)
from twisted_exec.cli.console.script_options import FAILED_CODE
from twisted_exec.cli.console.session import Outcome

NO_SHELL_CODE = 122
"""The machine is at the prompt of a login or a boot loader, or no shell answers."""

PROBE_SECONDS = 10.0
"""Time for a shell to answer the probe."""
MOST_COMMAND_BYTES = 16 << 10
"""Limit of a command as it is typed."""

_LINE_BYTES = 900
"""busybox takes lines of 1023 bytes, a terminal without line editing 4095."""

_HELD_BYTES = 16 << 10
_MOST_ECHO_BYTES = 256 << 10
_LOGIN = re.compile(
    rb"(?:(?:login|user ?name|password|passphrase|passcode)[^:\n]{0,80}|control-d to continue\)):[ \t]*\Z",
    re.IGNORECASE,
)
_BOOT_LOADER = re.compile(
    rb"(?:^|[\r\n])[ \t]*(?:=>|U-Boot>|[\w-]+ u-boot>|barebox@[^\r\n]*|grub>|grub rescue>|grub2?-[\w-]+>"
    rb"|iPXE>|gPXE>|Shell>|FS\d+:\\?[^\r\n>]*>|CFE>|RedBoot>|ok|\d+ >)[ \t]*\Z",
    re.IGNORECASE,
)
"""U-Boot, barebox, GRUB, iPXE, the UEFI Shell, CFE, RedBoot and Open Firmware."""
_MARK = 28747
"""The number of the OSC."""
_KILL_LINE = b"\x15"
_PLAIN = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 +,-./:;<=>?@_|&()[]{}#*$~^"
)


class Run(Script):
    """
    Runs one command in the shell of a machine.

    :param command: see :func:`typed_command`.
    """

    def __init__(self, clock: IReactorTime, command: str) -> None:
        super().__init__(clock)
        self._nonce = secrets.token_hex(8).encode()
        self._lines = typed_command(command, self._nonce.decode())
        self._probe = _mark(b"R" + self._nonce)
        self._start = _mark(b"B" + self._nonce)
        self._end = re.compile(rb"\x1b\]%d;E%s:(\d{1,3})\x1b\\" % (_MARK, self._nonce))
        self._buffer = b""
        self._receive: Callable[[bytes], bytes] = self._ignore

    def _output(self, data: bytes, plain: bytes) -> bytes:
        return self._receive(data)

    def _begin(self) -> None:
        if self._cannot_answer():
            return
        self.waiting = "no shell answered"
        # The line may have text of another user, which must not run.
        self._type(_KILL_LINE + b"\r")
        self._receive = self._wake
        self._timers.after("quiet", SETTLE_SECONDS * 2, self._ask)
        self._timers.after("limit", MOST_SETTLE_SECONDS, self._ask)

    def _interrupted(self, why: str) -> None:
        self._fail(FAILED_CODE, f"the machine ended before the command: {why}")

    def _wake(self, data: bytes) -> bytes:
        self._timers.after("quiet", SETTLE_SECONDS, self._ask)
        return b""

    def _ask(self) -> None:
        self._timers.cancel("quiet")
        self._timers.cancel("limit")
        if self._cannot_answer():
            return
        self._receive = self._answered
        mark = _printed(f"R{self._nonce.decode()}")
        self._type(f" printf '{mark}{mark}'\r".encode())
        self._timers.after("probe", PROBE_SECONDS, self._unanswered)

    def _answered(self, data: bytes) -> bytes:
        self._buffer = (self._buffer + data)[-_HELD_BYTES:]
        if self._probe in self._buffer:
            self._timers.cancel("probe")
            self._wait_for_prompt()
        return b""

    def _wait_for_prompt(self) -> None:
        """Type the next line when the shell is quiet: it may discard what comes before its prompt."""
        self._receive = self._await_prompt
        self._timers.after("quiet", SETTLE_SECONDS / 3, self._run)
        self._timers.after("limit", SETTLE_SECONDS * 2, self._run)

    def _await_prompt(self, data: bytes) -> bytes:
        self._timers.after("quiet", SETTLE_SECONDS / 3, self._run)
        return b""

    def _ignore(self, data: bytes) -> bytes:
        return b""

    def _unanswered(self) -> None:
        if not self._cannot_answer():
            line = f'no shell answered within {PROBE_SECONDS:.0f} s; the last line is "{self.last_line}"'
            self._fail(NO_SHELL_CODE, line)

    def _cannot_answer(self) -> bool:
        """Fail if the machine asks for a user's name, a password, or commands of its boot loader."""
        if _LOGIN.search(self._line):
            prompt, remedy = "a login", "log in first, as with --expect and --send"
        elif _BOOT_LOADER.search(self._line):
            prompt, remedy = "a boot loader's", "use --expect and --send, or boot a system first"
        else:
            return False
        line = f'the machine is at {prompt} prompt ("{self.last_line}"): {remedy}'
        self._fail(NO_SHELL_CODE, line)
        return True

    def _run(self) -> None:
        self._timers.cancel("quiet")
        self._timers.cancel("limit")
        line = self._lines.pop(0)
        if self._lines:
            self._wait_for_prompt()
        else:
            self._buffer = b""
            self._receive = self._await_start
            self.waiting = "the command has not ended"
        self._type(line)

    def _await_start(self, data: bytes) -> bytes:
        self._buffer = (self._buffer + data)[-_MOST_ECHO_BYTES:]
        _, mark, after = self._buffer.partition(self._start)
        if mark:
            self._receive, self._buffer = self._print, b""
            return self._print(after)
        # The kernel has printed into the mark: show the output with the echo before it.
        return self._print(b"") if self._end.search(self._buffer) else b""

    def _print(self, data: bytes) -> bytes:
        self._buffer += data
        match = self._end.search(self._buffer)
        if match is not None:
            printed = self._buffer[: match.start()]
            self._buffer, self._receive = b"", self._ignore
            self._conclude(Outcome(int(match[1]) & 0xFF))
            return _unix_lines(printed)
        held = self._held()
        printed, self._buffer = self._buffer[:held], self._buffer[held:]
        return _unix_lines(printed)

    def _held(self) -> int:
        """Return where a part begins that may become the last mark, or the end of a line."""
        size = len(self._buffer)
        whole = b"\x1b]%d;E%s:" % (_MARK, self._nonce)
        at = self._buffer.find(b"\x1b", max(0, size - len(whole) - len(b"255\x1b")))
        while at >= 0:
            tail = self._buffer[at:]
            code = tail[len(whole) :].removesuffix(b"\x1b")
            if whole.startswith(tail) or (tail.startswith(whole) and (not code or code.isdigit())):
                return at
            at = self._buffer.find(b"\x1b", at + 1)
        return size - self._buffer.endswith(b"\r")


def typed_command(command: str, nonce: str) -> list[bytes]:
    """
    Return the lines that run a command and print marks around its output.

    The command runs in a subshell, so that its ``exit`` does not end the shell.

    :raises ValueError: it is too long; the message is for the user.
    """
    octal = [_octal(byte) for byte in command.rstrip("\n").encode("utf-8", "surrogateescape")]
    size = sum(map(len, octal))
    if size > MOST_COMMAND_BYTES:
        raise ValueError(
            f"the command is too long: {size} bytes when typed, more than {MOST_COMMAND_BYTES}; "
            "put it into a file on the machine"
        )
    lines, part = [], ""
    for each in octal:
        part += each
        if len(part) >= _LINE_BYTES:
            # The x, because a substitution drops newlines at its end.
            lines.append(f" _te=${{_te%x}}$(printf '{part}x')\r".encode())
            part = ""
    if not lines:
        return [_last(f"$(printf '{part}')", nonce)]
    lines[0] = lines[0].replace(b"${_te%x}", b"")
    lines.append(f" _te=${{_te%x}}$(printf '{part}')\r".encode())
    return [*lines, _last("$_te", nonce)]


def _last(text: str, nonce: str) -> bytes:
    # printf repeats its format for the second exit code.
    return (
        f" printf '{_printed(f'B{nonce}')}'; (eval \"{text}\"); "
        f"printf '{_printed(f'E{nonce}:%s')}' $? $?\r"
    ).encode()


def _mark(text: bytes) -> bytes:
    return b"\x1b]%d;%s\x1b\\" % (_MARK, text)


def _printed(text: str) -> str:
    """Return the format with which ``printf`` prints a mark."""
    return f"\\033]{_MARK};{text}\\033\\\\"


def _octal(byte: int) -> str:
    if byte == 0x25:
        return "%%"  # shells differ in whether \045 begins a conversion
    return chr(byte) if byte in _PLAIN else f"\\{byte:03o}"


def _unix_lines(text: bytes) -> bytes:
    """Undo the terminal's translation of newlines."""
    return text.replace(b"\r\n", b"\n")
