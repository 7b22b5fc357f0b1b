"""
Between users and a BMC whose console has a shell behind it, sans I/O.

Input loses the bytes that would end the console, and output is searched for the prompt of the BMC's shell, which means
that the console has ended. Both work across the borders of reads. Keys that are already under way when the console ends
reach the shell: nobody can call them back; the prompt ends the connection one round trip later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from twisted_exec.runtimes.lines.redfish.quirks import Quirk

_LINE_START = rb"[\r\n]"
# What shows nothing: control characters, and CSI sequences such as colours.  The repetitions are possessive, and
# bounded, so that nothing a machine prints is scanned twice.
_CSI = rb"\x1b\[[0-?]{0,16}+[ -/]{0,4}+[@-~]"
_UNSEEN = rb"(?:[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]|" + _CSI + rb"){0,64}+"
_AT_END = rb"(?:[ \t]|" + _CSI + rb"){0,16}+\Z"

_MOST_KEPT = 2048
"""Limit for the start of a line that is kept for the next read: more than ``_UNSEEN`` and a prompt can be."""

_ELSEWHERE = b"x"
"""Stands for the start of a line that is no prompt."""


@lru_cache(64)
def prompt_pattern(prompts: tuple[bytes, ...], *, at_end: bool = False) -> re.Pattern[bytes]:
    """
    Return a pattern of linear cost for one of the prompts behind a line end; its first group is the prompt.

    :param prompts: at least one.
    :param at_end: only blanks follow it.
    """
    words = b"|".join(re.escape(prompt) for prompt in prompts)
    return re.compile(_LINE_START + _UNSEEN + b"(" + words + b")" + (_AT_END if at_end else b""))


@dataclass(frozen=True)
class Output:
    """
    A part of the machine's output.

    :param data: may be empty.
    :param has_ended: the BMC's prompt is behind ``data``: the console has ended, and nothing after the prompt is the
        machine's.
    """

    data: bytes
    has_ended: bool = False


class Guard:
    """
    The guard of one connection.

    :ivar dropped: number of bytes of users that were not sent.
    """

    def __init__(self, quirk: Quirk) -> None:
        self.dropped = 0
        self._prompts = quirk.prompts
        self._never_send = quirk.never_send
        self._state = 0
        # A connection begins at the start of a line.
        self._line = b"\n"
        self._has_ended = False

    def to_machine(self, data: bytes) -> bytes:
        """
        Return the input without the bytes that would complete a sequence in what was sent so far.

        So a sequence may come in several parts, and what is left cannot form another. After the end of the console
        nothing is sent.
        """
        if self._has_ended:
            return b""
        if not self._never_send or not data:
            return data
        table = _automaton(self._never_send)
        if not self._state and not any(byte in data for byte in table[0]):
            return data
        state, sent, start = self._state, bytearray(), 0
        for at, byte in enumerate(data):
            following = table[state].get(byte, 0)
            if following is None:
                sent += data[start:at]
                start = at + 1
            else:
                state = following
        self._state = state
        if not start:
            return data
        sent += data[start:]
        self.dropped += len(data) - len(sent)
        return bytes(sent)

    def from_machine(self, data: bytes) -> Output:
        """
        Return the machine's output in what the BMC sent.

        A prompt counts at the start of a line, whatever follows it: an echo may. Within a line it is text.
        """
        if self._has_ended:
            return Output(b"", True)
        if not self._prompts:
            return Output(data)
        text = self._line + data
        # The search for the words alone is ten times as fast, and mostly finds nothing.
        if any(prompt in text for prompt in self._prompts):
            found = prompt_pattern(self._prompts).search(text)
            if found is not None:
                self._has_ended = True
                return Output(data[: max(0, found.start(1) - len(self._line))], True)
        self._line = _last_line(text)
        return Output(data)


def _last_line(text: bytes) -> bytes:
    """Return the last line with the character before it, or a mark if it is too long for a prompt."""
    at = max(text.rfind(b"\n"), text.rfind(b"\r"))
    line = text[max(at, 0) :]
    return line if len(line) <= _MOST_KEPT else _ELSEWHERE


State = dict[int, int | None]


@lru_cache(64)
def _automaton(sequences: Sequence[bytes]) -> tuple[State, ...]:
    """
    Return the automaton of Aho and Corasick for the sequences: for each state a map of bytes to the next state, or to
    ``None`` where the byte would complete a sequence. Bytes that are missing lead to state 0.
    """
    prefixes = [b"", *_prefixes(sequences)]
    numbers = {prefix: number for number, prefix in enumerate(prefixes)}
    alphabet = sorted({byte for sequence in sequences for byte in sequence})
    table: list[State] = []
    for prefix in prefixes:
        row: State = {}
        for byte in alphabet:
            text = prefix + bytes((byte,))
            if text.endswith(tuple(sequences)):
                row[byte] = None
            elif following := _longest_suffix(text, numbers):
                row[byte] = following
        table.append(row)
    return tuple(table)


def _prefixes(sequences: Iterable[bytes]) -> list[bytes]:
    found = {sequence[:length] for sequence in sequences for length in range(1, len(sequence))}
    return sorted(found)


def _longest_suffix(text: bytes, numbers: dict[bytes, int]) -> int:
    for at in range(len(text)):
        if text[at:] in numbers:
            return numbers[text[at:]]
    return 0
