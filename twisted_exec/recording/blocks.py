"""The blocks of a recording file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import BinaryIO

from twisted_exec.recording.proof_lines import (
    BLOCK,
    CERTIFICATE,
    HEAD,
    MAX_LINE_BYTES,
    OMITTED,
    InvalidRecording,
    decode_omitted,
)

_READ_BYTES = 1 << 20
_MARK = b"\n" + BLOCK
_MAX_FIRST_LINES = 8


@dataclass
class Section:
    """
    The text of one block, without most of it.

    :ivar line: the line that ends the block; empty if the file ends before it.
    :ivar omitted: the number of a block that was left out; else -1.
    """

    first: int
    lines: list[bytes] = field(default_factory=list)
    digest: bytes = b""
    line: bytes = b""
    omitted: int = -1
    end: int = 0


class Blocks:
    """Reads blocks from the present position of a file, which counts as 0."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._buffer, self._at = b"", 0
        self._begin = 0

    def __iter__(self) -> Iterator[Section]:
        """
        Iterate over the sections; the last one has no line.

        :raises InvalidRecording: the text is not of the format.
        """
        section = self._section(2)
        yield section
        while section.line:
            section = self._section(0)
            yield section

    def _section(self, header_lines: int) -> Section:
        section = Section(self._position)
        digest = sha256()
        while line := self._whole_line():
            is_own = line.startswith((HEAD, CERTIFICATE)) or len(section.lines) < header_lines
            if not is_own:
                break
            if len(section.lines) == _MAX_FIRST_LINES:
                raise InvalidRecording(
                    f"the block at byte {section.first} begins with too many heads"
                )
            section.lines.append(line)
            digest.update(line)
            self._at += len(line)
        if line.startswith(OMITTED) and not any(each.startswith(b"{") for each in section.lines):
            # The heads before the line are in the text that was left out.
            section.omitted, section.digest = decode_omitted(line)
            section.line = line
            self._at += len(line)
        else:
            if self._text(digest):
                section.line = self._whole_line()
                self._at += len(section.line)
            section.digest = digest.digest()
        section.end = self._position
        return section

    @property
    def _position(self) -> int:
        return self._begin + self._at

    def _fill(self) -> bool:
        data = self._file.read(_READ_BYTES)
        self._begin += self._at
        self._buffer, self._at = self._buffer[self._at :] + data, 0
        return bool(data)

    def _whole_line(self) -> bytes:
        while True:
            end = self._buffer.find(b"\n", self._at, self._at + MAX_LINE_BYTES)
            if end >= 0:
                return self._buffer[self._at : end + 1]
            if len(self._buffer) - self._at >= MAX_LINE_BYTES or not self._fill():
                return b""

    def _text(self, digest: object) -> bool:
        update = digest.update  # type: ignore[attr-defined]
        if self._whole_line().startswith(BLOCK):
            return True
        while True:
            position = self._buffer.find(_MARK, self._at)
            end = position + 1 if position >= 0 else max(self._at, len(self._buffer) - len(_MARK))
            update(memoryview(self._buffer)[self._at : end])
            self._at = end
            if position >= 0:
                return True
            if not self._fill():
                update(self._buffer)
                self._at = len(self._buffer)
                return False
