"""
A recording as an animated picture.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import BinaryIO

from twisted_exec.cli.failures import InputError
from twisted_exec.cli.recording.player import CONTEXT_BYTES
from twisted_exec.recording.export import NothingPrinted
from twisted_exec.recording.playback import (
    block_before,
    block_from,
    extent,
    frames,
)
from twisted_exec.screens.screen import Screen
from twisted_exec.screens.svg import Animation, AnimationTooLarge

MAX_OUTPUT_BYTES = 64 << 20
"""Most bytes of a recording that are read for a picture."""

_SCREEN_MILLISECONDS = 50
"""A picture shows at most one screen in this time."""
_HOLD_MILLISECONDS = 2000
_SIZE = re.compile(rb"(\d{1,5})x(\d{1,5})")
_SHORTER = "choose a shorter time with --between"


def animated_svg(file: BinaryIO, first: int, last: int, idle_seconds: float) -> bytes:
    """
    Return an SVG that shows the output of a recording again and again.

    :param first: only what was printed at this time or later, in milliseconds since the epoch.
    :param idle_seconds: pauses of the console are shortened to this.
    :raises NothingPrinted: nothing was printed then.
    :raises InputError: too much was printed.
    :raises ModuleNotFoundError: the package pyavt is missing.
    :raises InvalidRecording: a line is not of the format.
    """
    animation, idle, time = Animation(), round(idle_seconds * 1000), 0
    before: int | None = None
    try:
        for now, screen in _screens(file, first, last):
            if before is not None:
                time += min(now - before, idle)
            before = now
            animation.show(time, screen)
    except AnimationTooLarge as error:
        raise InputError(f"the picture would have {error}: {_SHORTER}") from None
    if before is None:
        raise NothingPrinted("the console printed nothing in this time", *extent(file))
    return animation.svg(time + _HOLD_MILLISECONDS)


def _screens(file: BinaryIO, first: int, last: int) -> Iterator[tuple[int, Screen]]:
    from twisted_exec.screens.emulator import AvtScreen  # pyavt is not on every system

    block = block_before(file, first)
    if block is None:
        return
    start = block_from(file, max(0, block.position - CONTEXT_BYTES)) or block
    screen = AvtScreen(start.columns, start.rows)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    changed: int | None = None
    read = 0
    for frame in frames(file, start.position):
        if frame.time > last:
            break
        if changed is not None and frame.time - changed >= _SCREEN_MILLISECONDS:
            yield changed, screen.screen()
            changed = None
        read += len(frame.data)
        if read > MAX_OUTPUT_BYTES:
            raise InputError(f"there are more than {MAX_OUTPUT_BYTES >> 20} MiB: {_SHORTER}")
        if frame.code == "o":
            screen.feed(decoder.decode(frame.data))
        elif frame.code == "r" and (size := _SIZE.fullmatch(frame.data)):
            screen.resize(int(size[1]), int(size[2]))
        else:
            continue
        if changed is None and frame.time >= first:
            changed = frame.time
    if changed is not None:
        yield changed, screen.screen()
