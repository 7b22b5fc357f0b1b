"""Excerpts of recordings: some of the blocks, which are as proven as in the whole recording."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import BinaryIO

from twisted_exec.recording.blocks import Blocks, Section
from twisted_exec.recording.export import NothingPrinted
from twisted_exec.recording.playback import BlockStart, block_from, check_beginning, extent
from twisted_exec.recording.proof_lines import (
    CERTIFICATE,
    HEAD,
    InvalidRecording,
    decode_head,
    omitted_line,
)

_COPY_BYTES = 1 << 20


class NotClosed(Exception):
    """The recording goes on, or its end is missing: the excerpt would prove less than it seems to."""


def excerpt(file: BinaryIO, first: int, last: int) -> Iterator[bytes]:
    """
    Iterate over the text of an excerpt, which has whole blocks.

    :param file: a closed recording; an excerpt is one, too.
    :param first: milliseconds since the epoch, as is ``last``.
    :raises NotARecording: the file is of another kind.
    :raises InvalidRecording: the recording is damaged.
    :raises NotClosed: it has no closing head.
    :raises NothingPrinted: it has nothing in the range.
    """
    check_beginning(file)
    file.seek(0)
    sections = list(Blocks(file))
    heads = [decode_head(line)[0] for line in sections[-1].lines if line.startswith(HEAD)]
    if not heads or not heads[-1].closed:
        raise NotClosed
    begins = [_begin(file, section) for section in sections]
    is_within = _within(begins, first, last)
    if not any(is_within):
        if any(section.omitted >= 0 for section in sections):
            raise NothingPrinted(
                "this excerpt has nothing between these times; cut the whole recording instead"
            )
        raise NothingPrinted("the recording has nothing between these times", *extent(file))
    for number, section in enumerate(sections[:-1]):
        has_facts = any(line.startswith((CERTIFICATE, b"{")) for line in section.lines)
        if section.omitted >= 0:
            yield section.line
        elif is_within[number] or has_facts:
            yield from _copy(file, section)
        else:
            yield omitted_line(number, section.digest)
    yield from sections[-1].lines


def _begin(file: BinaryIO, section: Section) -> BlockStart | None:
    if section.omitted >= 0:
        return None
    at = block_from(file, section.first)
    return at if at is not None and at.position < section.end else None


def _within(begins: list[BlockStart | None], first: int, last: int) -> list[bool]:
    is_within: list[bool] = []
    end = inf  # of the last block
    for begin in reversed(begins):
        # The events of a block happened before the next block began.
        is_within.append(begin is not None and begin.time <= last and end >= first)
        if begin is not None:
            end = begin.time
    return is_within[::-1]


def _copy(file: BinaryIO, section: Section) -> Iterator[bytes]:
    file.seek(section.first)
    left = section.end - section.first
    while left > 0:
        data = file.read(min(left, _COPY_BYTES))
        if not data:
            raise InvalidRecording("the recording became shorter")
        left -= len(data)
        yield data
