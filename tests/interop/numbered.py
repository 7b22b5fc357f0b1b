"""
Numbered lines, as a busy machine prints them and as its users type them, checked byte for byte as
they arrive.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import partial

from tests.flows.busy_machine import LINE_BYTES, plain_line

_NUMBER = re.compile(rb"(?:^|\n)(\d+)")
_NOTICE = re.compile(rb"\r\n\[twisted-exec: ((?:[^\r\n]|\r\n  )*)\]\r\n")
_MOST_EARLY_BYTES = 1000
END = b"END\n"


class WrongBytesError(AssertionError):
    """Bytes are missing, repeated or altered."""


class Stream:
    """
    Compares a stream with numbered lines, and sums both.

    :param line: returns a line by its number; all have the same size.
    :param offset: where the stream begins.
    :ivar size: the number of bytes so far.
    """

    def __init__(self, line: Callable[[int], bytes], offset: int = 0) -> None:
        self._line, self._offset, self._line_bytes = line, offset, len(line(0))
        self.size = 0
        self._sums = hashlib.sha256(), hashlib.sha256()

    def add(self, data: bytes) -> None:
        """:raises WrongBytesError: these are not the next bytes."""
        expected = self._piece(len(data))
        if data != expected:
            at = next(
                (n for n, pair in enumerate(zip(data, expected, strict=True)) if pair[0] != pair[1])
            )
            around = slice(max(0, at - 40), at + 120)
            raise WrongBytesError(
                f"at {self._offset + at}: {data[around]!r}, expected {expected[around]!r}"
            )
        for each, added in zip(self._sums, (data, expected), strict=True):
            each.update(added)
        self._offset += len(data)
        self.size += len(data)

    def report(self, what: str) -> None:
        """
        Print size and sums.

        :raises AssertionError: the sums differ.
        """
        got, expected = (each.hexdigest() for each in self._sums)
        print(f"{what}: {self.size} bytes, SHA-256 {got[:16]}... of {expected[:16]}...")
        assert got == expected, what

    def _piece(self, size: int) -> bytes:
        first, skipped = divmod(self._offset, self._line_bytes)
        last = (self._offset + size) // self._line_bytes
        lines = b"".join(self._line(number) for number in range(first, last + 1))
        return lines[skipped : skipped + size]


class Output:
    """
    The output that one client got of a busy machine.

    It may begin anywhere, with the earlier output that the console shows first.  Notices are left out.

    :param line: returns a line by its number.
    :ivar notices: messages for the user among the output.
    :ivar stream: the check; ``None`` before the first complete line.
    :ivar has_ended: the machine has printed its last line.
    """

    def __init__(self, line: Callable[[int], bytes] = plain_line) -> None:
        self._line = line
        self.stream: Stream | None = None
        self.has_ended = False
        self.notices: list[str] = []
        self._early = self._notice = self._end = b""

    @property
    def size(self) -> int:
        return self.stream.size if self.stream is not None else 0

    def add(self, data: bytes) -> None:
        """:raises WrongBytesError: see :meth:`Stream.add`."""
        data = self._without_notices(data)
        if self.stream is None:
            data = self._begin(data)
        data = self._without_end(data)
        if self.stream is not None:
            self.stream.add(data)

    def _without_notices(self, data: bytes) -> bytes:
        data = self._notice + data
        self.notices += [text.decode() for text in _NOTICE.findall(data)]
        data, carriage_return, rest = _NOTICE.sub(b"", data).partition(b"\r")
        self._notice = carriage_return + rest  # the machine prints no carriage returns
        return data

    def _without_end(self, data: bytes) -> bytes:
        """Keep the machine's last line, of which a part may be in each of several pieces."""
        data, letter, rest = (b"", b"", data) if self._end else data.partition(END[:1])
        self._end += letter + rest
        if not END.startswith(self._end):
            raise WrongBytesError(f"{self._end[:80]!r} at the end")
        self.has_ended = self._end == END
        return data

    def _begin(self, data: bytes) -> bytes:
        early = self._early = self._early + data
        for found in _NUMBER.finditer(early):
            number, first = int(found[1]), found.start(1)
            if early.startswith(self._line(number), first):
                self._early = b""
                self.stream = Stream(self._line, number * LINE_BYTES)
                return early[first:]
        if len(early) > _MOST_EARLY_BYTES:
            raise WrongBytesError(f"no line of the machine in {early[:120]!r}")
        return b""


def typed_line(typist: int, number: int) -> bytes:
    """Return a line that a user types."""
    return b"%03d:%011d\n" % (typist, number)


class Typed:
    """
    The input of a machine, of one typist after another.

    Of each typist but the last one a prefix may be there, because it was killed.

    :ivar typists: how many there have been.
    :ivar streams: the check of each typist of whom something has arrived.
    """

    def __init__(self) -> None:
        self.typists = 0
        self.streams: dict[int, Stream] = {}
        self._rest = b""
        self._next = 0

    def arrived(self, typist: int) -> int:
        """Return how many bytes of a typist have arrived."""
        return self.streams[typist].size if typist in self.streams else 0

    def add(self, data: bytes) -> None:
        """:raises WrongBytesError: see :meth:`Stream.add`."""
        data, self._rest = self._rest + data, b""
        while starts := self._starts(data):
            start, typist = min(starts)
            self._pass(data[:start])
            data = data[start:]
            self._next = typist + 1
            self.streams[typist] = Stream(partial(typed_line, typist))
        if self._next < self.typists:
            # The first line of the next typist may be among the last bytes.
            data, self._rest = data[: 1 - LINE_BYTES], data[1 - LINE_BYTES :]
        self._pass(data)

    def _starts(self, data: bytes) -> list[tuple[int, int]]:
        """Return where typists begin, with their numbers."""
        found = [(data.find(typed_line(each, 0)), each) for each in range(self._next, self.typists)]
        return [each for each in found if each[0] >= 0]

    def _pass(self, data: bytes) -> None:
        if data and not self.streams:
            raise WrongBytesError(f"nobody has typed {data[:80]!r}")
        if data:
            self.streams[self._next - 1].add(data)
