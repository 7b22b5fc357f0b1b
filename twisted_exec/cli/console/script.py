"""
Sessions that a script drives, such as the steps of ``--expect`` and ``--send``.

A console shows old output first.  So a script waits until that has arrived, and from then on it
considers only the current line and new output.  The current line counts until the script types: a prompt that comes
after that is an answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.patterns import Search
from twisted_exec.cli.console.display import SessionScript
from twisted_exec.cli.console.pausable_timers import PausableTimers
from twisted_exec.cli.console.session import NOT_SENT, TIMED_OUT_CODE, Outcome
from twisted_exec.cli.messages import FAILED_CODE
from twisted_exec.console.notices import ASK, WAIT, RoleNotices
from twisted_exec.wire.endings import COMPLETED, MACHINE_DELETED, POOL_DELETED, POWERED_OFF
from twisted_exec.wire.escape_sequences import PlainLines, Stripper, edited
from twisted_exec.wire.marks import OPTION
from twisted_exec.wire.session_terms import MAY_ONLY_OBSERVE
from twisted_exec.wire.shell_run import MARK

if TYPE_CHECKING:
    from twisted_exec.cli.console.interfaces import Sink
    from twisted_exec.wire.marks import Notice


_MACHINE_ENDED = frozenset({COMPLETED, MACHINE_DELETED, POOL_DELETED, POWERED_OFF})
"""Reasons of endings after which the machine runs no command any more."""
OCCUPIED_CODE = 123
"""Exit code: another user is the writer of the console, or another ``--run`` has its shell."""
RECORDS_ON = "the recording that --record began goes on until the console has no session"
GOES_ON = "the command has not ended and goes on in the console"
MAY_GO_ON = "the command may still run in the console"
SETTLE_SECONDS = 0.3
"""Silence after which the old output has arrived."""
MOST_SETTLE_SECONDS = 2.0
EXPECT_SECONDS = 60.0
"""Limit of each ``--expect`` without ``--timeout``."""
NOT_READ = (
    "standard input is not sent to the machine: --run, --expect and --send have all of the input"
)

HELD_BYTES = 16 << 10
_SHOWN_CHARACTERS = 60
_ANY_RUN = re.compile(rb"\x1b\]%d;[^\x1b]*\x1b\\" % MARK)
_DRAWN = re.compile(rb"\x1b\[[\d;]*[Hf]|\x1b\[\?1049")
"""Sequences of programs that draw a whole screen."""


class Driven(Protocol):
    """The session, as its script sees it."""

    @property
    def viewers(self) -> int: ...
    @property
    def waiting_keys(self) -> int: ...
    def typed(self, data: bytes) -> None: ...
    def input_ended(self) -> None: ...
    def conclude(self, outcome: Outcome) -> None: ...


class Script(SessionScript):
    """
    Decides what is typed and what is printed.

    :ivar outcome: how the script ended; ``None`` while it lasts, and if the session decides.
    :ivar is_over: the script has nothing left to do.
    :ivar waiting: what the script waits for.
    :ivar remedy: how to end a command that goes on.
    :ivar left: about a line that was typed and not answered, for messages; empty if there is none.
    :ivar machine: for messages.
    :ivar hint: how to take over, for a user who is an observer.
    :ivar denied: what a user reads who may not type.
    :ivar records: the session has begun a recording.
    """

    machine = "the machine"
    hint, denied = OPTION, MAY_ONLY_OBSERVE
    records = False

    def __init__(self, clock: IReactorTime) -> None:
        self._session: Driven | None = None
        self._notices = RoleNotices()
        self._stripper = Stripper()
        self._timers = PausableTimers(clock)
        self._is_settled = False
        self._unedited = b""  # the current line, with its backspaces
        self._raw_line = b""
        self.outcome: Outcome | None = None
        self.is_over = False
        self.waiting = self.remedy = self.left = ""

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
        self._unedited = _last_line(self._unedited + plain)
        if self._is_settled:
            return self._output(data, plain)
        self._raw_line = (self._raw_line + data).rpartition(b"\n")[2][-HELD_BYTES:]
        self._timers.after("quiet", SETTLE_SECONDS, self._settle)
        return b""

    # Events of the session.

    def noticed(self, notice: Notice) -> None:
        self._notices.read(notice)
        if self._notices.is_denied and self._types:
            self._fail(FAILED_CODE, f"{NOT_SENT}: {self.denied}")
        elif self._notices.not_sent:
            self._fail(FAILED_CODE, f"{NOT_SENT}: {self._notices.not_sent}")
        elif self._notices.is_observer and self._types:
            nothing = "" if self._is_settled else "nothing was typed: "
            line = notice.hinted(self.hint)
            if line.endswith(WAIT):
                line = f"{line.removesuffix(f' {WAIT}')} {ASK}"
            self._fail(OCCUPIED_CODE, nothing + line)
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
    def _line(self) -> bytes:
        return edited(self._unedited)

    @property
    def last_line(self) -> str:
        """The current line, for messages: printable and cut."""
        text = self._line.decode("utf-8", "replace").strip()
        plain = "".join(char if char.isprintable() else "?" for char in text)
        return plain[-_SHOWN_CHARACTERS:]

    @property
    def missing(self) -> str:
        """What the script waits for, and what there is instead; for the message when it is late."""
        return self.waiting

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
        self._text = b""  # the plain text of the last piece of output
        self._buffer = b""  # each line ends with a newline alone
        self._to_print = b""

    @property
    def _types(self) -> bool:
        return any(isinstance(step, bytes) for step in self._steps)

    def received(self, data: bytes) -> bytes:
        self._text = self._lines.feed(data)
        return super().received(data)

    @property
    def missing(self) -> str:
        return f'{self.waiting}; the last line is "{self.last_line}"' if self.waiting else ""

    def _begin(self) -> None:
        self._buffer = self._line.rstrip(b"\r")
        if not _DRAWN.search(self._raw_line):  # a screen has no last line
            self._to_print = _ANY_RUN.sub(b"", self._raw_line)
        self._proceed(is_old=True)

    def _output(self, data: bytes, plain: bytes) -> bytes:
        text = self._text
        self._buffer = (self._buffer + text)[-HELD_BYTES - len(text) :]
        printed, self._to_print = self._to_print + data, b""
        self._proceed()
        return printed

    def _proceed(self, *, is_old: bool = False) -> None:
        """
        Do the steps that can be done now.

        :param is_old: the buffer has only what the machine printed before the script began.
        """
        while self._steps and not self.is_over and self._session is not None:
            step = self._steps[0]
            if isinstance(step, bytes):
                self._type(step)
                if is_old:
                    self._buffer = b""
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
        self.waiting = f'"{text}" was not printed'
        if self._is_limited and "expect" not in self._timers:
            self._timers.after("expect", EXPECT_SECONDS, self._late)

    def _late(self) -> None:
        self._fail(TIMED_OUT_CODE, f"timed out after {EXPECT_SECONDS:.0f} s: {self.missing}")

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
    """
    The user's output without what only the script needs.

    :param printed: receives what the user gets.
    """

    def __init__(
        self, script: Script, sink: Sink, printed: Callable[[bytes], None] = lambda _: None
    ) -> None:
        self._script, self._sink, self._printed = script, sink, printed
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
            self._printed(printed)
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
    return line.rpartition(b"\r")[2][-HELD_BYTES:] + (b"\r" if text.endswith(b"\r") else b"")


def ended_during(machine: str, why: str) -> str:
    """Return the message about a machine, or the shell at its console, that ended during a command."""
    return f"{machine} ended during the command, whose exit code is not known: {why}"


def scripted_outcome(script: Script, outcome: Outcome) -> Outcome:
    """Return the outcome of a session that a script drove: other endings are failures."""
    ending = outcome.ending
    is_timed_out = ending is None and outcome.exit_code == TIMED_OUT_CODE
    has_machine_ended = ending is not None and ending.reason in _MACHINE_ENDED
    more = f"; {MAY_GO_ON}; {script.remedy}" * (script.waiting == GOES_ON and not has_machine_ended)
    left = f"; {script.left}" if script.left and not has_machine_ended else ""
    if script.outcome is not None:
        if script.records and script.outcome.exit_code == OCCUPIED_CODE:
            more += f"; {RECORDS_ON}"
        more += left
        if outcome.signal or is_timed_out:  # it ends the writing
            return outcome
        return replace(script.outcome, line=script.outcome.line and script.outcome.line + more)
    if outcome.signal and script.waiting == GOES_ON:
        return replace(outcome, line=f"interrupted: {GOES_ON}; {script.remedy}")
    if outcome.signal and left:
        return replace(outcome, line=f"interrupted{left}")
    if outcome.signal or script.is_over:
        return outcome
    if is_timed_out:
        line = f"{outcome.line}: {script.missing}" if script.missing else outcome.line
        line += f"; {script.remedy}" * (script.waiting == GOES_ON)
        return replace(outcome, line=line + left)
    why = ending.message if ending is not None and ending.reason == COMPLETED else ""
    if why and script.waiting == GOES_ON:
        line = ended_during(script.machine, why)
        return replace(outcome, exit_code=FAILED_CODE, line=line)
    if not outcome.line and not outcome.exit_code:  # the reader of the output closed it
        return outcome
    return replace(outcome, exit_code=FAILED_CODE, line=outcome.line + more + left)
