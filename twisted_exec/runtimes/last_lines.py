"""
The last line that each machine has printed, for its condition.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from twisted_exec.api.conditions import ConditionValue
from twisted_exec.journal.interfaces import IReadableJournal, recent_offset
from twisted_exec.program.options.declaration import ProgramOption
from twisted_exec.program.options.values import whole_seconds
from twisted_exec.wire.escape_sequences import PlainLines

LAST_LINE_SECONDS = ProgramOption(
    "last-line-seconds",
    "Least seconds between updates of the condition with a console's last line, which all users read who may read the machine; 0: no such condition.",
    whole_seconds,
    default=0,
)

MOST_CHARACTERS = 120
_READ_BYTES = 4 << 10
_NANOSECONDS = 10**9


def last_line(journal: IReadableJournal) -> str:
    """
    Return the last line that is not blank, without control characters, at most 120 characters;
    empty if the last 4 KiB have none.
    """
    first = offset = recent_offset(journal, _READ_BYTES)
    text, lines = b"", PlainLines()
    while data := journal.read(offset, _READ_BYTES):  # a read ends with a boot, or with a segment
        text += lines.feed(data)
        offset = journal.next_available(offset + len(data))
    if first > journal.start and b"\n" in text:
        text = text.partition(b"\n")[2]  # the first line may begin within a sequence
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
    The conditions ``ConsoleOutput`` of the machines of one runtime, with the last line of the
    console as message.

    Users who may read a machine but not watch its console see these conditions: they are off by
    default.

    :param seconds: least time between changes of the line of a machine; 0 for no conditions.
    """

    def __init__(self, seconds: int, now_nanoseconds: Callable[[], int]) -> None:
        self._seconds, self._now = seconds, now_nanoseconds
        self._lines: dict[str, _Line] = {}

    def condition(self, machine_id: str, journal: IReadableJournal) -> ConditionValue | None:
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
        self._lines.pop(machine_id, None)
