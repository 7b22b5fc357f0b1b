"""
The last line of each machine's console, as the message of the condition ``ConsoleOutput``.

All users who may read a machine read its conditions, and not all of them may watch its console.  So this
is off unless the runtime's operator asks for it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from twisted_exec.api.conditions import ConditionValue
from twisted_exec.journal.interfaces import IJournal
from twisted_exec.program.options import whole_seconds
from twisted_exec.wire.escape_sequences import PlainLines

LAST_LINE_SECONDS = [
    "last-line-seconds",
    None,
    0,
    "Least seconds between updates of the condition with a console's last line, which all users read who may read the machine; 0: no such condition.",
    whole_seconds,
]
"""The option of programs."""

MOST_CHARACTERS = 120

_READ_BYTES = 4 << 10
_NANOSECONDS = 10**9


def last_line(journal: IJournal) -> str:
    """
    Return the last line that is not blank, cut; empty if there is none in the last 4 KiB.

    Neither escape sequences nor characters that change the direction or the place of others are
    left.
    """
    first = journal.next_available(max(journal.start, journal.end - _READ_BYTES))
    if first >= journal.end:
        return ""
    text = PlainLines().feed(journal.read(first, _READ_BYTES))
    _, newline, behind = text.partition(b"\n")
    if newline and first > journal.start:
        text = behind  # the first line may begin within a sequence
    for line in reversed(text.decode("utf-8", "replace").split("\n")):
        if visible := _printable(line):
            return visible[:MOST_CHARACTERS]
    return ""


def _printable(line: str) -> str:
    visible = [
        character if character.isprintable() else " "
        for character in line
        if unicodedata.category(character) != "Cf"  # bidirectional controls, zero-width characters
    ]
    return " ".join("".join(visible).split())


@dataclass(frozen=True)
class _Line:
    end: int
    read_at: int
    text: str


class LastLines:
    """
    The conditions of the machines of one runtime.

    :param seconds: how often the line of a machine may change; 0 for no conditions.
    """

    def __init__(self, seconds: int, now_nanoseconds: Callable[[], int]) -> None:
        self._seconds, self._now = seconds, now_nanoseconds
        self._lines: dict[str, _Line] = {}

    def condition(self, machine_id: str, journal: IJournal) -> ConditionValue | None:
        """Return the condition of a machine; ``None`` without a line."""
        if not self._seconds:
            return None
        line, now = self._lines.get(machine_id), self._now()
        if line is None or (
            line.end != journal.end and not 0 <= now - line.read_at < self._seconds * _NANOSECONDS
        ):
            line = self._lines[machine_id] = _Line(journal.end, now, last_line(journal))
        return ("True", "LastLine", line.text) if line.text else None

    def forget(self, machine_id: str) -> None:
        """Forget a machine that was deleted."""
        self._lines.pop(machine_id, None)
