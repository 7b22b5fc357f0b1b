"""
From the prompt of a BMC's shell to the console, sans I/O.

The dialogue waits for the prompt, types the command byte by byte as its echo comes, because some shells lose bytes that
come faster, and waits until the console begins. What the BMC prints before is not the machine's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from twisted_exec.runtimes.lines.programs import last_line
from twisted_exec.runtimes.lines.redfish.guard import prompt_pattern
from twisted_exec.runtimes.lines.redfish.quirks import Entry, Quirk

TOTAL_SECONDS = 15.0
"""Limit for the dialogue: less than a line may take to open."""
ECHO_SECONDS = 0.5
"""How long the dialogue waits for the echo of a byte; some shells echo less than what is typed."""
QUIET_SECONDS = 1.0
"""How long a prompt must be the last output to be the answer to a command."""
SILENT_BEGIN_SECONDS = 1.5
BEGIN_SECONDS = 5.0
"""How long after the command the console begins, if the BMC says nothing, or not what its row expects."""

TAKEN, REFUSED = "ConsoleTaken", "EntryFailed"
TAKEN_MESSAGE = (
    "another client has the console, and the BMC has one only: end its session there, or set steal: true in the classes "
    "file, and reload the runtime"
)

_MOST_KEPT = 64 << 10
_MOST_PROMPT = 512
_MOST_LINE = 1024
_ENTER = b"\r"
_OF_SSH = re.compile(rb"^Connection to [^\r\n]+ closed\.\r*$", re.MULTILINE)
_LINE_END = re.compile(rb"\r\n|\r|\n")
_IN_USE = re.compile(
    rb"in use|already (?:active|open|connected)|another (?:session|user|client)", re.IGNORECASE
)


@dataclass(frozen=True)
class Type:
    """Type this."""

    data: bytes


@dataclass(frozen=True)
class Begin:
    """The console has begun; ``data`` is the machine's first output, and may be empty."""

    data: bytes


@dataclass(frozen=True)
class Fail:
    """
    The console cannot be reached.

    :param reason: of a condition: :data:`TAKEN` or :data:`REFUSED`.
    """

    reason: str
    message: str


Step = Type | Begin | Fail


class _State(Enum):
    PROMPT = auto()
    TYPING = auto()
    ANSWER = auto()
    OVER = auto()


class EntryDialogue:
    """
    One dialogue; its caller tells it what the BMC prints, and the time.

    :param entries: at least one.
    :param quirk: has at least one prompt.
    :param releases: also type the commands that end another session; only if that session is known to be ours, or the
        operator wants it.
    :ivar wake_at: when :meth:`wake` must be called, in the seconds of ``now``, unless output comes before.
    """

    def __init__(
        self, entries: Sequence[Entry], quirk: Quirk, now: float, *, releases: bool = False
    ) -> None:
        assert entries and quirk.prompts
        self._entries, self._quirk, self._releases = entries, quirk, releases
        self._ending = prompt_pattern(quirk.prompts, at_end=True)
        self._number = 0
        self._commands: list[bytes] = []
        self._typed = self._untyped = b""
        self._printed = bytearray()
        self._echoed = 0  # offset behind the echo so far
        self._answer = 0  # offset behind the line of the command
        self._sought = 0  # offset of what was not yet searched, for an echo or a text of begins
        self._begun = 0  # offset behind a text of begins
        self._since = now  # of the state, or of the byte that was typed last
        self._printed_at = now
        self._until = now + TOTAL_SECONDS
        self._state = _State.PROMPT
        self.wake_at = self._until
        self._choose(0)

    def receive(self, data: bytes, now: float) -> Sequence[Step]:
        """Return what follows from output of the BMC; not after :class:`Begin` or :class:`Fail`."""
        self._printed += data
        self._printed_at = now
        surplus = len(self._printed) - _MOST_KEPT
        if surplus > 0:
            del self._printed[:surplus]
            self._echoed = max(0, self._echoed - surplus)
            self._answer = max(0, self._answer - surplus)
            self._sought = max(0, self._sought - surplus)
            self._begun = max(0, self._begun - surplus)
        return self._go_on(now)

    def wake(self, now: float) -> Sequence[Step]:
        """Return what follows from the time."""
        return self._go_on(now)

    def lost(self) -> Fail | None:
        """Return why the BMC has closed the connection; ``None`` if its output does not tell."""
        text = _OF_SSH.sub(b"", bytes(memoryview(self._printed)[self._answer :]))
        if _IN_USE.search(text):
            return self._taken()
        said = last_line(text)
        return Fail(REFUSED, f"the BMC closed the connection: {said}") if said else None

    def _go_on(self, now: float) -> Sequence[Step]:
        steps: list[Step] = []
        while self._state is not _State.OVER:
            step = self._next(now)
            if step is None:
                break
            steps.append(step)
            if not isinstance(step, Type):
                self._state = _State.OVER
        return steps

    def _next(self, now: float) -> Step | None:
        if now >= self._until:
            return self._late()
        if self._state is _State.PROMPT:
            return self._await_prompt(now)
        if self._state is _State.TYPING:
            return self._await_echo(now)
        return self._await_console(now) if not self._commands else self._await_prompt(now)

    # The states.

    def _await_prompt(self, now: float) -> Step | None:
        """Type the next command at the prompt."""
        if not self._is_at_prompt():
            self.wake_at = self._until
            return None
        if self._state is _State.ANSWER and self._is_refused():
            return self._alternative(now)
        self._untyped = self._commands.pop(0) + _ENTER
        self._state = _State.TYPING
        self._echoed = self._answer = self._sought = len(self._printed)
        self._begun = 0
        return self._type(now)

    def _await_echo(self, now: float) -> Step | None:
        """Type the next byte when the last one has been echoed, or has not been in time."""
        is_late = now - self._since >= ECHO_SECONDS
        at = self._end_of_echo()
        if at is None and not is_late:
            self.wake_at = min(self._until, self._since + ECHO_SECONDS)
            return None
        if at is not None:
            self._echoed = self._sought = at
        if self._untyped:
            return self._type(now)
        self._state, self._since = _State.ANSWER, now
        self._answer = self._sought = self._echoed
        return self._next(now)

    def _await_console(self, now: float) -> Step | None:
        """Decide on the answer to the last command."""
        if (start := self._start_of_console()) is not None:
            return Begin(bytes(memoryview(self._printed)[start:]))
        if self._is_at_prompt():
            if self._is_refused():
                return self._alternative(now)
            if now - self._printed_at >= QUIET_SECONDS:
                return self._refusal()
            self.wake_at = min(self._until, self._printed_at + QUIET_SECONDS)
            return None
        wait = BEGIN_SECONDS if self._quirk.begins else SILENT_BEGIN_SECONDS
        if now - self._since >= wait:
            return Begin(bytes(memoryview(self._printed)[self._answer :]).removeprefix(b"\n"))
        self.wake_at = min(self._until, self._since + wait)
        return None

    # Their parts.

    def _choose(self, number: int) -> None:
        entry = self._entries[number]
        self._number = number
        self._commands = [*(entry.release if self._releases else ()), *entry.commands]

    def _alternative(self, now: float) -> Step | None:
        """Go on with the next entry; the BMC does not know the command of this one."""
        if self._number + 1 == len(self._entries):
            return self._refusal()
        self._choose(self._number + 1)
        self._state = _State.PROMPT
        return self._next(now)

    def _type(self, now: float) -> Type:
        self._typed, self._untyped = self._untyped[:1], self._untyped[1:]
        self._since = now
        return Type(self._typed)

    def _end_of_echo(self) -> int | None:
        """Return the offset behind the echo of the byte that was typed last."""
        pattern = _LINE_END if self._typed == _ENTER else re.compile(re.escape(self._typed))
        found = pattern.search(self._printed, self._sought)
        self._sought = len(self._printed)
        return None if found is None else found.end()

    def _start_of_console(self) -> int | None:
        """Return the offset behind the line that is the last before the console."""
        if not self._begun:
            for text in self._quirk.begins:
                at = self._printed.find(text, max(self._answer, self._sought - len(text)))
                if at >= 0:
                    self._begun = at + len(text)
            self._sought = len(self._printed)
        if not self._begun:
            return None
        end = _LINE_END.search(self._printed, self._begun, self._begun + _MOST_LINE)
        return None if end is None else end.end()

    def _is_at_prompt(self) -> bool:
        """Return whether a prompt is the last output; the answer begins at the start of a line."""
        start = len(self._printed) - _MOST_PROMPT
        lead = b"" if start > self._answer else b"\n"
        text = lead + memoryview(self._printed)[max(start, self._answer) :]
        if not any(prompt in text for prompt in self._quirk.prompts):
            return False
        return self._ending.search(text) is not None

    def _is_refused(self) -> bool:
        return any(self._printed.find(text, self._answer) >= 0 for text in self._quirk.refusals)

    def _refusal(self) -> Fail:
        text = bytes(memoryview(self._printed)[self._answer :])
        if _IN_USE.search(text):
            return self._taken()
        said = last_line(self._ending.sub(b"", b"\n" + text))
        return Fail(
            REFUSED,
            "the BMC does not open the console"
            + (f": {said}" if said else ", and does not say why"),
        )

    def _taken(self) -> Fail:
        return Fail(TAKEN, TAKEN_MESSAGE)

    def _late(self) -> Fail:
        waited = f"within {TOTAL_SECONDS:g} s"
        if self._state is _State.PROMPT:
            prompts = b" or ".join(self._quirk.prompts).decode("latin-1")
            return Fail(REFUSED, f"the BMC's prompt ({prompts}) did not come {waited}")
        return Fail(REFUSED, f"the BMC did not open the console {waited}")
