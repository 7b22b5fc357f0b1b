"""
The command of ``--run``, in the shell of a machine.

``--run`` runs one command in the shell of a machine (:class:`ShellRun`), a POSIX shell that waits
at its prompt.  It types a probe, which prints a mark, and then the command between two marks; the
second has its exit code (:mod:`twisted_exec.wire.shell_run`).  If no mark comes, the command is never typed: a login
prompt would take it for a user's name.

All viewers see the marks in the same order.  So of several runs at one shell, the first whose probe
is answered goes on, and the others fail.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

from twisted.internet.interfaces import IReactorTime

from twisted_exec.cli.console.script import (
    GOES_ON,
    HELD_BYTES,
    MOST_SETTLE_SECONDS,
    OCCUPIED_CODE,
    SETTLE_SECONDS,
    Script,
    ended_during,
)
from twisted_exec.cli.console.session import Outcome
from twisted_exec.cli.messages import FAILED_CODE
from twisted_exec.wire.shell_run import MARK, WAKE, command_lines, mark, probe, probe_mark
from twisted_exec.wire.terminal_modes import Modes

NO_SHELL_CODE = 122
"""
The command of ``--run`` did not run. It has not arrived whole at the shell, or was not typed: the machine is at the prompt of a login or a boot
loader, or at a question of a program, shows a full-screen program, or no shell answers.
"""
_OCCUPIED = (
    "another {run} has the shell, so the command was not typed: try again when that has "
    "ended; at the prompt of a shell {force} types in any case"
)
_NOT_ENDED = (
    "the command of an earlier {earlier_run} has not ended, so this command was not typed: try again when it has "
    "ended; {stop}; at the prompt of a shell {force} types in any case"
)
_NOT_WHOLE = "the command did not arrive whole at the shell, so it was not run: the line loses what is typed; try again"
LEFT = (
    "a probe (a line with printf) was typed and may wait in the input: a shell that reads it later shows no prompt "
    "until Enter"
)
PROBE_SECONDS = 10.0
"""Time for a shell to answer the probe, since the last sign that the input is on its way to the machine."""
_DELIVERY_SECONDS = 1.0
"""How often to look whether more of the input has been delivered: a policy may slow it down."""
_ATTENDANCE_SECONDS = 1.5
"""Time for the runtime to tell a new session how many sessions there are."""
_MOST_ECHO_BYTES = 256 << 10
_LOGIN = re.compile(
    rb"(?:(?:login|user ?name|password|passphrase|passcode)[^:\n]{0,80}|control-d to continue\)):[ \t]*\Z"
    rb"|(?:^|[\r\n])[ \t]*(?:[\w.-]+ )?login:[ \t]+[\w.@-]+\Z",
    re.IGNORECASE,
)
"""The prompt of a login; a user name may be half-typed."""
_BOOT_LOADER = re.compile(
    rb"(?:^|[\r\n])[ \t]*(?:(?:=>(?![^\r\n]*[$#%][ \t]*\Z)|U-Boot>|[\w-]+ u-boot>|barebox@[^\r\n]*|grub>|grub rescue>|grub2?-[\w-]+>"
    rb"|iPXE>|gPXE>|Shell>|FS\d+:\\?[^\r\n>]*>|CFE>|RedBoot>)(?:[ \t][^\r\n]*)?|(?:ok|\d+ >)[ \t]*)\Z",
    re.IGNORECASE,
)
"""
Prompts of U-Boot, barebox, GRUB, iPXE, the UEFI Shell, CFE, RedBoot and Open Firmware.

A command may be half-typed: U-Boot would discard it and repeat its last command. After ``ok`` or
``0 >`` a command is not matched, because other text may begin like that.
"""
_QUESTION = re.compile(
    rb"(?:[\[(](?:y(?:es)?|no?)/[^\s()]{1,40}[\])](?: \[[^\]\r\n]*\])?[ \t]*[?:]?(?:[ \t]+[\w-]{0,20})?|--More--[^\r\n]{0,80})\Z",
    re.IGNORECASE,
)
"""A question with its answers, such as ``[Y/n]`` or ``(yes/no/[fingerprint])?``, or the pager ``more``: Enter answers."""
_PROMPT = re.compile(rb"(?:[$#>]|(?<!\d)%)[ \t]*\Z")  # not the 33% of a pager
"""The prompt of a shell, which may be on the alternate screen, as in tmux."""
_SIGN = re.compile(rb"\x1b\]%d;([RBE][0-9a-f]{8})[:\x1b]|(?<=\n)[\w.-]{1,64} login: " % MARK)
"""A mark of any run, or the login of a machine that was booted, which ends the run before it."""
_SIGN_BYTES = 80


@dataclass(frozen=True)
class Remedies:
    """
    What the user can do if a command cannot run, in the words of the program that the user has.

    :ivar force: takes over from the writer, and from another run.
    :ivar stop: ends a program that does not end by itself.
    :ivar log_in: at the prompt of a login.
    :ivar boot: at the prompt of a boot loader.
    :ivar answer: at the question of a program.
    :ivar leave: leaves a full-screen program.
    :ivar run: another run, and ``earlier_run`` one before, by the name that the user knows.
    """

    force: str = "--force"
    stop: str = "--send '\\x03' sends it Ctrl-C"
    log_in: str = "log in first, as with --expect and --send"
    boot: str = "use --expect and --send, or boot a system first"
    answer: str = "answer it first, as with --send"
    leave: str = "open the console to leave it"
    run: str = "kubectl console --run"
    earlier_run: str = "--run"


def new_nonce() -> str:
    """Return the nonce of a session that runs commands; short, because other viewers see it."""
    return secrets.token_hex(4)


class ShellRun(Script):
    """
    Runs one command in the shell of a machine.

    :param command: see :func:`.command_lines`.
    :param force: run it also in a shell that another run has.
    :param machine: for messages.
    :param nonce: of the session, if it runs several commands; by default a new one.
    """

    def __init__(
        self,
        clock: IReactorTime,
        command: str,
        *,
        force: bool = False,
        remedies: Remedies = Remedies(),
        machine: str = Script.machine,
        nonce: str = "",
    ) -> None:
        super().__init__(clock)
        self._is_forced, self._remedies, self.machine = force, remedies, machine
        self.remedy, self.hint = remedies.stop, f"({remedies.force} takes over)"
        self._tail = self._holder = b""  # the mark of the run that has the shell
        self._has_waited = False  # for the number of sessions
        nonce = nonce or new_nonce()
        self._nonce = nonce.encode()
        self._lines = [line + b"\r" for line in command_lines(command, nonce)]
        self._probe, self._answer = probe(nonce), probe_mark(nonce)
        self._start = mark(b"B" + self._nonce)
        self._lost = mark(b"L" + self._nonce)
        self._end = re.compile(rb"\x1b\]%d;E%s:(\d{1,3})\x1b\\" % (MARK, self._nonce))
        self._buffer = b""
        self._modes = Modes()
        self._receive: Callable[[bytes], bytes] = self._ignore

    def received(self, data: bytes) -> bytes:
        self._modes.feed(data)
        if self._lines:
            self._look_for_runs(data)
        return super().received(data)

    def _look_for_runs(self, data: bytes) -> None:
        window = self._tail + data
        self._tail = window[1 - _SIGN_BYTES :]
        for match in _SIGN.finditer(window):
            found = match[1]
            if found is None or found.startswith(b"E"):
                self._holder = b""
            elif found.startswith(b"B") or not self._holder.startswith(b"R"):
                # An answered probe shows that an earlier command has ended.
                self._holder = found

    def _fail_if_occupied(self) -> bool:
        # The program of a command that has begun may be gone.
        has_begun = self._holder.startswith(b"B")
        is_own = self._holder[1:] == self._nonce and not has_begun
        if self._is_forced or not self._holder or is_own:
            return False
        line = _NOT_ENDED if has_begun else _OCCUPIED
        remedies = self._remedies
        self._fail(OCCUPIED_CODE, line.format(**asdict(remedies)))
        return True

    def _output(self, data: bytes, plain: bytes) -> bytes:
        return self._receive(data)

    def _begin(self) -> None:
        if self._fail_if_unanswerable():
            return
        viewers = 1 if self._session is None else self._session.viewers
        # A run that was killed before its command has no program any more, but a command that has
        # begun goes on. Ctrl-C at the machine leaves no mark, but a prompt.
        has_begun = self._holder.startswith(b"B")
        if _PROMPT.search(self._line) or (viewers == 1 and not has_begun):
            self._holder = self._tail = b""
        elif self._holder and not (viewers or has_begun or self._is_forced or self._has_waited):
            self._has_waited = True
            self._timers.after("attendance", _ATTENDANCE_SECONDS, self._begin)
            return
        if self._fail_if_occupied():
            return
        self.waiting = "no shell answered"
        # The line may have text of another user, which must not run.
        self._type(WAKE)
        self._receive = self._wake
        self._timers.after("quiet", SETTLE_SECONDS * 2, self._ask)
        self._timers.after("limit", MOST_SETTLE_SECONDS, self._ask)

    def _interrupted(self, why: str) -> None:
        if self.waiting == GOES_ON:
            line = ended_during(self.machine, why)
        else:
            line = f"{self.machine} ended before the command: {why}"
        self.waiting = self.left = ""
        self._fail(FAILED_CODE, line)

    def _wake(self, data: bytes) -> bytes:
        self._timers.after("quiet", SETTLE_SECONDS, self._ask)
        return b""

    def _ask(self) -> None:
        self._timers.cancel("quiet")
        self._timers.cancel("limit")
        if self._fail_if_unanswerable() or self._fail_if_occupied():
            return
        self._receive = self._answered
        self._type(self._probe + b"\r")
        self.left = LEFT
        self._limit_answer(self._unanswered)

    def _limit_answer(self, late: Callable[[], None]) -> None:
        """Limit the time for an answer to what was typed; the time begins anew with each part that is delivered."""
        self._timers.after("probe", PROBE_SECONDS, late)
        self._follow_delivery(0)

    def _follow_delivery(self, before: int) -> None:
        if self._session is None or "probe" not in self._timers:
            return
        undelivered = self._session.waiting_keys
        if undelivered < before:
            self._timers.restart("probe")
        if undelivered:
            follow = partial(self._follow_delivery, undelivered)
            self._timers.after("delivery", _DELIVERY_SECONDS, follow)

    def _answered(self, data: bytes) -> bytes:
        self._buffer = (self._buffer + data)[-HELD_BYTES:]
        if self._answer in self._buffer:
            self._timers.cancel("probe")
            self.left = ""
            if not self._fail_if_occupied():
                self._run()
        return b""

    def _wait_for_shell(self) -> None:
        """Type the next line when the shell is quiet: it may not have read the one before."""
        self._receive = self._await_quiet
        self._timers.after("quiet", SETTLE_SECONDS / 3, self._run)
        self._timers.after("limit", SETTLE_SECONDS * 2, self._run)

    def _await_quiet(self, data: bytes) -> bytes:
        self._timers.after("quiet", SETTLE_SECONDS / 3, self._run)
        return b""

    def _ignore(self, data: bytes) -> bytes:
        return b""

    def _unanswered(self) -> None:
        if not self._fail_if_unanswerable():
            line = f"no shell answered within {PROBE_SECONDS:.0f} s; a program may be running there ({self.remedy})"
            last = f'; the last line is "{self.last_line}"' if self.last_line else ""
            self._fail(NO_SHELL_CODE, line + last)

    def _fail_if_unanswerable(self) -> bool:
        if _LOGIN.search(self._line):
            prompt, remedy = "a login", self._remedies.log_in
        elif _BOOT_LOADER.search(self._line):
            prompt, remedy = "a boot loader's", self._remedies.boot
        elif _QUESTION.search(self._line):
            prompt, remedy = "a program's", self._remedies.answer
        elif self._modes.full_screen and not _PROMPT.search(self._line):
            typed = "the command was not typed" if self.waiting else "nothing was typed"
            line = (
                f"a full-screen program is open on {self.machine}; {typed}: {self._remedies.leave}"
            )
            self._fail(NO_SHELL_CODE, line)
            return True
        else:
            return False
        line = f'{self.machine} is at {prompt} prompt ("{self.last_line}"): {remedy}'
        self._fail(NO_SHELL_CODE, line)
        return True

    def _run(self) -> None:
        self._timers.cancel("quiet")
        self._timers.cancel("limit")
        line = self._lines.pop(0)
        if self._lines:
            self._wait_for_shell()
        else:
            self._buffer = b""
            self._receive = self._await_start
            self.waiting = GOES_ON
        self._type(line)
        if not self._lines:
            self._limit_answer(self._not_begun)

    def _await_start(self, data: bytes) -> bytes:
        self._buffer = (self._buffer + data)[-_MOST_ECHO_BYTES:]
        if self._lost in self._buffer:
            self._timers.cancel("probe")
            self._fail(NO_SHELL_CODE, _NOT_WHOLE)
            return b""
        _, mark, after = self._buffer.partition(self._start)
        if mark:
            self._timers.cancel("probe")
            self._receive, self._buffer = self._print, b""
            return self._print(after)
        # The kernel has printed into the mark: show the output with the echo before it.
        return self._print(b"") if self._end.search(self._buffer) else b""

    def _not_begun(self) -> None:
        # The kernel may have printed into the mark, whose other half is whole then; an echo has no Escape.
        if not any(half in self._buffer for half in (self._start[:9], self._start[9:])):
            line = f"the shell did not begin the command within {PROBE_SECONDS:.0f} s; the line may have lost a part of it"
            self._fail(NO_SHELL_CODE, f"{line} ({self.remedy})")

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
        size = len(self._buffer)
        whole = b"\x1b]%d;E%s:" % (MARK, self._nonce)
        at = self._buffer.find(b"\x1b", max(0, size - len(whole) - len(b"255\x1b")))
        while at >= 0:
            tail = self._buffer[at:]
            code = tail[len(whole) :].removesuffix(b"\x1b")
            if whole.startswith(tail) or (tail.startswith(whole) and (not code or code.isdigit())):
                return at
            at = self._buffer.find(b"\x1b", at + 1)
        return size - self._buffer.endswith(b"\r")


def _unix_lines(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n")
