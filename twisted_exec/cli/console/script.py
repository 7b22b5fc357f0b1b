"""
Sessions that a script drives: ``--expect`` and ``--send``, and ``--run``.

A console shows old output first.  So a script waits until that has arrived, and from then on it
considers only the current line and new output.

``--run`` runs one command in the shell of a machine (:class:`ShellRun`), a POSIX shell that waits
at its prompt.  It types a probe, which prints a mark, and then the command between two marks; the
second has its exit code (:mod:`twisted_exec.wire.shell_run`).  If no mark comes, the command is never typed: a login
prompt would take it for a user's name.

All viewers see the marks in the same order.  So of several runs at one shell, the first whose probe
is answered goes on, and the others fail.
"""

from __future__ import annotations

import argparse
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.patterns import Search
from twisted_exec.cli.console.display import SessionScript
from twisted_exec.cli.console.options import recorded_input_of
from twisted_exec.cli.console.session import NOT_SENT, TIMED_OUT_CODE, Outcome
from twisted_exec.cli.console.timers import Timers
from twisted_exec.cli.messages import FAILED_CODE
from twisted_exec.console.notices import RoleNotices
from twisted_exec.wire.endings import COMPLETED, MACHINE_DELETED, POOL_DELETED, POWERED_OFF
from twisted_exec.wire.escape_sequences import PlainLines, Stripper
from twisted_exec.wire.session_terms import MAY_ONLY_OBSERVE
from twisted_exec.wire.shell_run import MARK, WAKE, command_lines, mark, probe, probe_mark
from twisted_exec.wire.terminal_modes import Modes

if TYPE_CHECKING:
    from twisted_exec.cli.console.interfaces import Sink
    from twisted_exec.wire.resume import Notice


_MACHINE_ENDED = frozenset({COMPLETED, MACHINE_DELETED, POOL_DELETED, POWERED_OFF})
"""Reasons of endings after which the machine runs no command any more."""
OCCUPIED_CODE = 123
"""Exit code: another user is the writer of the console, or another ``--run`` has its shell."""
RECORDS_ON = "the recording that --record began goes on until the console has no session"
SETTLE_SECONDS = 0.3
"""Silence after which the old output has arrived."""
MOST_SETTLE_SECONDS = 2.0
_ATTENDANCE_SECONDS = 1.5
"""Time for the runtime to tell a new session how many sessions there are."""
EXPECT_SECONDS = 60.0
"""Limit of each ``--expect`` without ``--timeout``."""
NOT_READ = (
    "standard input is not sent to the machine: --run, --expect and --send have all of the input"
)

_HELD_BYTES = 16 << 10
_SHOWN_CHARACTERS = 60


class Driven(Protocol):
    """The session, as its script sees it."""

    @property
    def viewers(self) -> int: ...
    def typed(self, data: bytes) -> None: ...
    def input_ended(self) -> None: ...
    def conclude(self, outcome: Outcome) -> None: ...


class Script(SessionScript):
    """
    Decides what is typed and what is printed.

    :ivar outcome: how the script ended; ``None`` while it lasts, and if the session decides.
    :ivar is_over: the script has nothing left to do.
    :ivar waiting: what the script waits for, for the message after ``--timeout``.
    :ivar remedy: how to end a command that goes on.
    :ivar nonce: of ``--run``, for the server; empty for other scripts.
    :ivar machine: for messages.
    :ivar records: the session has begun a recording.
    """

    nonce = ""
    machine = "the machine"
    records = False

    def __init__(self, clock: IReactorTime) -> None:
        self._session: Driven | None = None
        self._notices = RoleNotices()
        self._stripper = Stripper()
        self._timers = Timers(clock)
        self._is_settled = False
        self._line = b""
        self._raw_line = b""
        self.outcome: Outcome | None = None
        self.is_over = False
        self.waiting = self.remedy = ""

    def drive(self, session: Driven) -> None:
        """Set the session; it resumes this source when it is attached."""
        self._session = session

    # The session's source.

    def resumeProducing(self) -> None:
        """Begin when the session is attached."""
        if not self._is_settled and "limit" not in self._timers:
            self._timers.after("quiet", SETTLE_SECONDS, self._settle)
            self._timers.after("limit", MOST_SETTLE_SECONDS, self._settle)

    def pauseProducing(self) -> None:
        """The session holds back what is typed until the stream takes it."""

    def stop(self) -> None:
        """Do nothing any more."""
        self._timers.cancel_all()
        self._session = None

    # Output.

    def received(self, data: bytes) -> bytes:
        """
        Handle one piece of output.

        :return: the part for the user.
        """
        plain = self._stripper.feed(data)
        self._line = _last_line(self._line + plain)
        if self._is_settled:
            return self._output(data, plain)
        self._raw_line = (self._raw_line + data).rpartition(b"\n")[2][-_HELD_BYTES:]
        self._timers.after("quiet", SETTLE_SECONDS, self._settle)
        return b""

    # Events of the session.

    def noticed(self, notice: Notice) -> None:
        self._notices.read(notice)
        if self._notices.not_sent:
            self._fail(FAILED_CODE, f"{NOT_SENT}: {self._notices.not_sent}")
        elif self._notices.is_denied and self._types:
            self._fail(FAILED_CODE, f"{NOT_SENT}: {MAY_ONLY_OBSERVE}")
        elif self._notices.is_observer and self._types:
            nothing = "" if self._is_settled else "nothing was typed: "
            self._fail(OCCUPIED_CODE, nothing + notice.for_script)
        elif self._notices.interruption:
            self._interrupted(self._notices.interruption)

    def _interrupted(self, why: str) -> None:
        """The machine has ended and may start again, which a script may wait for."""

    def skipped(self, text: str) -> None:
        if self._is_settled:
            self._fail(FAILED_CODE, f"output was lost: {text}")

    def outage(self) -> None:
        self._timers.pause()

    def resumed(self) -> None:
        self._timers.resume()

    def failed(self, line: str) -> None:
        if self.outcome is None or not self.outcome.line:
            self.is_over, self.outcome = True, Outcome(FAILED_CODE, line)

    def _settle(self) -> None:
        self._timers.cancel("quiet")
        self._timers.cancel("limit")
        self._is_settled = True
        self._begin()

    @property
    def last_line(self) -> str:
        """The current line, for messages: printable and cut."""
        text = self._line.decode("utf-8", "replace").strip()
        plain = "".join(char if char.isprintable() else "?" for char in text)
        return plain[-_SHOWN_CHARACTERS:]

    @property
    def _types(self) -> bool:
        return True

    def _begin(self) -> None:
        raise NotImplementedError

    def _output(self, data: bytes, plain: bytes) -> bytes:
        raise NotImplementedError

    # Actions.

    def _type(self, data: bytes) -> None:
        if self._session is not None:
            self._session.typed(data)

    def _fail(self, code: int, line: str) -> None:
        self._conclude(Outcome(code, line))

    def _conclude(self, outcome: Outcome) -> None:
        if self.is_over:
            return
        self._timers.cancel_all()
        self.is_over, self.outcome = True, outcome
        # Later, because the output that led here is not written yet.
        self._timers.after("end", 0, self._leave, steady=True)

    def _leave(self) -> None:
        if self._session is not None and self.outcome is not None:
            self._session.conclude(self.outcome)


class Expect(Script):
    """
    Types and waits, step by step.

    :param steps: bytes to type, or the text to wait for with its search.
    :param limited: each wait has a limit of its own: there is no ``--timeout``.
    """

    def __init__(
        self, clock: IReactorTime, steps: Sequence[bytes | tuple[str, Search]], *, limited: bool
    ) -> None:
        super().__init__(clock)
        self._steps = list(steps)
        self._is_limited = limited
        self._lines = PlainLines()
        self._buffer = b""  # each line ends with a newline alone
        self._to_print = b""

    @property
    def _types(self) -> bool:
        return any(isinstance(step, bytes) for step in self._steps)

    def _begin(self) -> None:
        self._buffer = self._lines.feed(self._line)
        if not _DRAWN.search(self._raw_line):  # a screen has no last line
            self._to_print = _ANY_RUN.sub(b"", self._raw_line)
        self._proceed()

    def _output(self, data: bytes, plain: bytes) -> bytes:
        text = self._lines.feed(plain)
        self._buffer = (self._buffer + text)[-_HELD_BYTES - len(text) :]
        printed, self._to_print = self._to_print + data, b""
        self._proceed()
        return printed

    def _proceed(self) -> None:
        while self._steps and not self.is_over and self._session is not None:
            step = self._steps[0]
            if isinstance(step, bytes):
                self._type(step)
            else:
                text, search = step
                end = search.end_in(self._buffer)
                if end < 0:
                    self._wait(text)
                    return
                self._buffer = self._buffer[end:]
                self._timers.cancel("expect")
            del self._steps[0]
            if not self._steps:
                self._finish(step)

    def _wait(self, text: str) -> None:
        self.waiting = f'"{text}" was not printed; the last line is "{self.last_line}"'
        if self._is_limited and "expect" not in self._timers:
            self._timers.after("expect", EXPECT_SECONDS, self._late)

    def _late(self) -> None:
        self._fail(TIMED_OUT_CODE, f"timed out after {EXPECT_SECONDS:.0f} s: {self.waiting}")

    def _finish(self, last: object) -> None:
        if isinstance(last, bytes):
            # As with a pipe: the input is sent, and the output printed until the machine is quiet.
            self.is_over = True
            if self._session is not None:
                self._session.input_ended()
        else:
            self._conclude(Outcome())

    def rest(self) -> bytes:
        """Return the current line, if no output followed it."""
        rest, self._to_print = self._to_print, b""
        return rest


class ScriptSink:
    """The user's output without what only the script needs."""

    def __init__(self, script: Script, sink: Sink) -> None:
        self._script, self._sink = script, sink
        self._last_byte = b""

    @property
    def mid_line(self) -> bool:
        """True if the output left the cursor inside a line."""
        return self._last_byte not in (b"", b"\n")

    def begin_line(self) -> None:
        """The cursor is at the beginning of a line now: a message was printed."""
        self._last_byte = b"\n"

    def write(self, data: bytes) -> None:
        """Pass output on that is for the user."""
        self._pass(self._script.received(data))

    def _pass(self, printed: bytes) -> None:
        if printed:
            self._last_byte = printed[-1:]
            self._sink.write(printed)

    def registerProducer(self, producer: object, streaming: bool) -> None:
        self._sink.registerProducer(producer, streaming)  # type: ignore[arg-type]

    def unregisterProducer(self) -> None:
        self._sink.unregisterProducer()

    def loseConnection(self) -> None:
        """Print the rest, and close."""
        if isinstance(self._script, Expect):
            self._pass(self._script.rest())
        self._sink.loseConnection()


def _last_line(text: bytes) -> bytes:
    line = text.rstrip(b"\r").rpartition(b"\n")[2]
    return line.rpartition(b"\r")[2][-_HELD_BYTES:] + (b"\r" if text.endswith(b"\r") else b"")


NO_SHELL_CODE = 122
"""
The command of ``--run`` did not run. It has not arrived whole at the shell, or was not typed: the machine is at the prompt of a login or a boot
loader, or at a question of a program, shows a full-screen program, or no shell answers.
"""

_OCCUPIED = (
    "another kubectl console --run has the shell, so the command was not typed: try again when that has "
    "ended; at the prompt of a shell --force types in any case"
)
_NOT_ENDED = (
    "the command of an earlier --run has not ended, so this command was not typed: try again when it has "
    "ended; {remedy}; at the prompt of a shell --force types in any case"
)
_NOT_WHOLE = "the command did not arrive whole at the shell, so it was not run: the line loses what is typed; try again"
_CTRL_C = "--send '\\x03' sends it Ctrl-C"
GOES_ON = "the command has not ended and goes on in the console"
MAY_GO_ON = "the command may still run in the console"

PROBE_SECONDS = 10.0
"""Time for a shell to answer the probe."""

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
_ANY_RUN = re.compile(rb"\x1b\]%d;[^\x1b]*\x1b\\" % MARK)
_DRAWN = re.compile(rb"\x1b\[[\d;]*[Hf]|\x1b\[\?1049")
"""Sequences of programs that draw a whole screen."""


class ShellRun(Script):
    """
    Runs one command in the shell of a machine.

    :param command: see :func:`.command_lines`.
    :param force: run it also in a shell that another run has.
    :param remedy: for the user of a program that does not end.
    :param machine: for messages.
    """

    def __init__(
        self,
        clock: IReactorTime,
        command: str,
        *,
        force: bool = False,
        remedy: str = _CTRL_C,
        machine: str = Script.machine,
    ) -> None:
        super().__init__(clock)
        self._is_forced, self.remedy, self.machine = force, remedy, machine
        self._tail = self._holder = b""  # the mark of the run that has the shell
        self._has_waited = False  # for the number of sessions
        self.nonce = secrets.token_hex(4)  # short: an earlier server leaves it on screens
        self._nonce = self.nonce.encode()
        self._lines = [line + b"\r" for line in command_lines(command, self.nonce)]
        self._probe = probe_mark(self.nonce)
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

    def _is_occupied(self) -> bool:
        if self._is_forced or self._holder[1:] in (b"", self._nonce):
            return False
        # The program of a command that has begun may be gone.
        has_begun = self._holder.startswith(b"B")
        line = _NOT_ENDED.format(remedy=self.remedy) if has_begun else _OCCUPIED
        self._fail(OCCUPIED_CODE, line)
        return True

    def _output(self, data: bytes, plain: bytes) -> bytes:
        return self._receive(data)

    def _begin(self) -> None:
        if self._cannot_answer():
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
        if self._is_occupied():
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
        self.waiting = ""
        self._fail(FAILED_CODE, line)

    def _wake(self, data: bytes) -> bytes:
        self._timers.after("quiet", SETTLE_SECONDS, self._ask)
        return b""

    def _ask(self) -> None:
        self._timers.cancel("quiet")
        self._timers.cancel("limit")
        if self._cannot_answer() or self._is_occupied():
            return
        self._receive = self._answered
        self._type(probe(self.nonce) + b"\r")
        self._timers.after("probe", PROBE_SECONDS, self._unanswered)

    def _answered(self, data: bytes) -> bytes:
        self._buffer = (self._buffer + data)[-_HELD_BYTES:]
        if self._probe in self._buffer:
            self._timers.cancel("probe")
            if not self._is_occupied():
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
        if not self._cannot_answer():
            line = f"no shell answered within {PROBE_SECONDS:.0f} s; a program may be running there ({self.remedy})"
            last = f'; the last line is "{self.last_line}"' if self.last_line else ""
            self._fail(NO_SHELL_CODE, line + last)

    def _cannot_answer(self) -> bool:
        if _LOGIN.search(self._line):
            prompt, remedy = "a login", "log in first, as with --expect and --send"
        elif _BOOT_LOADER.search(self._line):
            prompt, remedy = "a boot loader's", "use --expect and --send, or boot a system first"
        elif _QUESTION.search(self._line):
            prompt, remedy = "a program's", "answer it first, as with --send"
        elif self._modes.full_screen and not _PROMPT.search(self._line):
            typed = "the command was not typed" if self.waiting else "nothing was typed"
            line = f"a full-screen program is open on {self.machine}; {typed}: open the console to leave it"
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
            self._timers.after("probe", PROBE_SECONDS, self._not_begun)
        self._type(line)

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


def ended_during(machine: str, why: str) -> str:
    """Return the message about a machine, or the shell at its console, that ended during a command."""
    return f"{machine} ended during the command, whose exit code is not known: {why}"


def _unix_lines(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n")


def make_script(options: argparse.Namespace, clock: IReactorTime) -> Script:
    """Return the script of a command line that :func:`~.options.has_script`."""
    if options.script_command is not None:
        script: Script = ShellRun(
            clock,
            options.script_command,
            force=options.force,
            machine=f'machine "{options.name}"',
        )
    else:
        script = Expect(clock, options.steps, limited=options.timeout is None)
    script.records = bool(recorded_input_of(options))
    return script


def scripted_outcome(script: Script, outcome: Outcome) -> Outcome:
    """Return the outcome of a session that a script drove: other endings are failures."""
    ending = outcome.ending
    is_timed_out = ending is None and outcome.exit_code == TIMED_OUT_CODE
    has_machine_ended = ending is not None and ending.reason in _MACHINE_ENDED
    more = f"; {MAY_GO_ON}; {script.remedy}" * (script.waiting == GOES_ON and not has_machine_ended)
    if script.outcome is not None:
        if script.records and script.outcome.exit_code == OCCUPIED_CODE:
            more += f"; {RECORDS_ON}"
        if outcome.signal or is_timed_out:  # it ends the writing
            return outcome
        return replace(script.outcome, line=script.outcome.line and script.outcome.line + more)
    if outcome.signal and script.waiting == GOES_ON:
        return replace(outcome, line=f"interrupted: {GOES_ON}; {script.remedy}")
    if outcome.signal or script.is_over:
        return outcome
    if is_timed_out:
        line = f"{outcome.line}: {script.waiting}" if script.waiting else outcome.line
        line += f"; {script.remedy}" * (script.waiting == GOES_ON)
        return replace(outcome, line=line)
    why = ending.message if ending is not None and ending.reason == COMPLETED else ""
    if why and script.waiting == GOES_ON:
        line = ended_during(script.machine, why)
        return replace(outcome, exit_code=FAILED_CODE, line=line)
    if not outcome.line and not outcome.exit_code:  # the reader of the output closed it
        return outcome
    return replace(outcome, exit_code=FAILED_CODE, line=outcome.line + more)
