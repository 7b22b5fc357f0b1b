"""The player of a recording."""

from __future__ import annotations

import os
import select
import signal
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import BinaryIO

from twisted_exec.recording.playback import (
    PlayedFrame,
    block_before,
    block_from,
    extent,
    first_block,
    frames,
)

CONTEXT_BYTES = 384 << 10
"""How much output the terminal gets before the new position."""
_RESET = b"\x1bc"
_SPEEDS = 0.25, 64.0

_SEEK_MILLISECONDS = 10_000
_LEFT, _RIGHT = b"\x1b[D", b"\x1b[C"
_KEY_BYTES = 16
_KEYS = b"[space pauses, . steps, arrows go 10 s, + - change speed, / searches, q quits]\r\n"
# In the last row, with this program's colours and characters; the recording's come back behind it.
_LAST_ROW = b"\x1b7\x1b[?6l\x1b[999;1H\x1b(B\x0f\x1b[0m\x1b[2K\x1b[7m"
_BACK = b"\x1b[0m\x1b8"
_SHOW_CURSOR = b"\x1b[0m\x1b[?25h\r\n"


class Player:
    """
    A recording that is played. Times are milliseconds since the epoch.

    :param idle_seconds: pauses are shortened to this; 0 keeps them.
    :ivar time: the moment that is shown.
    """

    def __init__(self, file: BinaryIO, *, speed: float = 1.0, idle_seconds: float = 0.0) -> None:
        self._file = file
        self.speed, self._idle = speed, idle_seconds * 1000
        first = first_block(file)
        self.begin, self.end = extent(file)
        self._frames: Iterator[PlayedFrame] = iter(())
        self._next: PlayedFrame | None = None
        self.time: float = self.begin
        self.is_paused = False
        if first is not None:
            self._read_from(first.position)

    @property
    def ended(self) -> bool:
        return self._next is None

    def _read_from(self, position: int) -> None:
        self._frames = frames(self._file, position)
        self._next = next(self._frames, None)

    def _take(self) -> bytes:
        frame = self._next
        assert frame is not None
        self._next = next(self._frames, None)
        return frame.data if frame.code == "o" else b""

    def wait_seconds(self) -> float | None:
        """Return the time until the next event; ``None`` if none comes by itself."""
        if self._next is None or self.is_paused:
            return None
        return max(0.0, (self._next.time - self.time) / 1000 / self.speed)

    def advance(self, seconds: float) -> bytes:
        if self.is_paused:
            return b""
        self.time += seconds * 1000 * self.speed
        output = []
        while self._next is not None and self._next.time <= self.time:
            frame = self._next
            output.append(self._take())
            self._skip_idle(frame.time)
        return b"".join(output)

    def _skip_idle(self, time: int) -> None:
        if self._idle and self._next is not None and self._next.time - time > self._idle:
            self.time = max(self.time, self._next.time - self._idle)

    def step(self) -> bytes:
        if self._next is None:
            return b""
        self.time = self._next.time
        return self._take()

    def faster(self, factor: float) -> None:
        self.speed = min(max(self.speed * factor, _SPEEDS[0]), _SPEEDS[1])

    def seek(self, time: float) -> bytes:
        """
        Go to a time; return the output that shows it.

        The output is a reset and some hundred kilobytes from before that time; earlier drawing is
        missing.
        """
        time = min(max(time, self.begin), self.end)
        block = block_before(self._file, int(time))
        if block is None:
            return b""
        earlier = block_from(self._file, max(0, block.position - CONTEXT_BYTES))
        self._read_from((earlier or block).position)
        output = [_RESET]
        while self._next is not None and self._next.time <= time:
            output.append(self._take())
        self.time = time
        return b"".join(output)

    def search(self, text: bytes) -> bytes | None:
        """
        Go to the next output with a text.

        :return: the output that shows it; ``None`` if there is no such output.
        """
        if self._next is None or not text:
            return None
        # The last bytes of the events before: a text is often printed in parts.
        before = b""
        for frame in self._ahead():
            if frame.code != "o":
                continue
            if text in before + frame.data:
                return self.seek(frame.time)
            before = (before + frame.data)[-len(text) + 1 :] if len(text) > 1 else b""
        return None

    def _ahead(self) -> Iterator[PlayedFrame]:
        assert self._next is not None
        after = self._next.time
        waiting = self._next
        skip = True
        for frame in frames(self._file, waiting.block):
            skip = skip and frame != waiting
            if not skip and frame.time >= after:
                yield frame


class Controls:
    """The keys of a user."""

    def __init__(self, player: Player, ask: Callable[[], bytes]) -> None:
        self._player, self._ask = player, ask
        self._text = b""
        self._news = ""  # for the row that says that the player is paused
        self.quit = False

    def pressed(self, key: bytes) -> bytes:
        """Do what a key asks for; return what the terminal gets."""
        output = self._act(key)
        if self._player.is_paused and not self._player.ended and not self.quit:
            output += _paused(self._player, self._news)
        self._news = ""
        return output

    def resized(self) -> bytes:
        """Return what draws the screen in another window: the row of a paused player is not the last one there."""
        if not self._player.is_paused or self._player.ended:
            return b""
        return self._screen() + _paused(self._player, "")

    def _act(self, key: bytes) -> bytes:
        player = self._player
        was_paused = player.is_paused
        match key:
            case b"q" | b"\x03" | b"":
                self.quit = True
                return self._screen() if was_paused else b""
            case b" ":
                player.is_paused = not was_paused
                return self._screen() if was_paused else b""
            case b".":
                output = player.step()
                return self._screen() if was_paused else output
            case b"+":
                player.faster(2)
            case b"-":
                player.faster(0.5)
            case _ if key in (_LEFT, _RIGHT):
                step = _SEEK_MILLISECONDS if key == _RIGHT else -_SEEK_MILLISECONDS
                return player.seek(player.time + step)
            case b"/" | b"n":
                if key == b"/":
                    self._text = self._ask()
                found = player.search(self._text)
                return self._not_found() if found is None else found
        return b""

    def _not_found(self) -> bytes:
        """Pause, so that the user can read that the text is not there."""
        if self._player.ended:
            return b"\a"
        if not self._text:
            return b"\a" + self._screen()
        self._player.is_paused, self._news = True, "not found from here on; "
        return b"\a" + self._screen()

    def _screen(self) -> bytes:
        """Return what draws the screen again, without the row that says that it is paused."""
        return self._player.seek(self._player.time)


def _paused(player: Player, news: str) -> bytes:
    at, length = (_clock(each - player.begin) for each in (player.time, player.end))
    return _LAST_ROW + f" {news}paused at {at} of {length}; space plays ".encode() + _BACK


def _clock(milliseconds: float) -> str:
    """Return a time in the recording as the web console shows it, such as ``1:02:03`` or ``0:07``."""
    minutes, seconds = divmod(int(milliseconds / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def play(player: Player, keys: int, screen: int, at: int | None = None) -> int:
    """
    Play until the end, or until the user quits; return the exit code.

    :param keys: descriptor of the input; only a terminal has controls.
    :param at: where to begin, in milliseconds since the epoch.
    """
    settings = termios.tcgetattr(keys) if os.isatty(keys) else None

    try:
        if settings is not None:
            # Raw, because the terminal would show a newline as two characters.
            tty.setraw(keys, termios.TCSANOW)
            if os.isatty(screen):  # a file gets only what the machine printed
                _write(screen, _KEYS)
        if at is not None:
            _write(screen, player.seek(at))
        controls = Controls(player, partial(ask, keys, screen))
        with resizes() as resized:
            _loop(player, controls, [keys] if settings is not None else [], screen, resized)
    finally:
        _write(screen, _SHOW_CURSOR)
        if settings is not None:
            # Without waiting for output: the terminal may be stopped.
            termios.tcsetattr(keys, termios.TCSANOW, settings)
    return 0


def ask(keys: int, screen: int) -> bytes:
    """Return the text that the user types in the last row; empty after Ctrl-C."""
    text = b""
    _write(screen, _LAST_ROW + b"/")
    while (mark := os.read(keys, 1)) not in (b"\r", b"\n", b"", b"\x03"):
        text = text[:-1] if mark in b"\x7f\b" else text + mark
        _write(screen, b"\r\x1b[2K/" + text)
    _write(screen, b"\r\x1b[0m\x1b[2K" + _BACK)
    return b"" if mark == b"\x03" else text


@contextmanager
def resizes() -> Iterator[int]:
    """A descriptor that is readable when the window of the terminal has another size."""
    resized, end = os.pipe()
    os.set_blocking(end, False)

    def note(*_: object) -> None:
        with suppress(BlockingIOError):  # it is readable already
            os.write(end, b".")

    before = signal.signal(signal.SIGWINCH, note)
    try:
        yield resized
    finally:
        signal.signal(signal.SIGWINCH, before)
        os.close(resized)
        os.close(end)


def _loop(player: Player, controls: Controls, keys: list[int], screen: int, resized: int) -> None:
    before = time.monotonic()
    while not controls.quit and not player.ended:
        ready, _, _ = select.select([*keys, resized], [], [], player.wait_seconds())
        now = time.monotonic()
        _write(screen, player.advance(now - before))
        before = now
        for each in ready:
            typed = os.read(each, _KEY_BYTES)
            _write(screen, controls.resized() if each == resized else controls.pressed(typed))
            # Searching and asking take time, which is not that of the recording.
            before = time.monotonic()


def _write(screen: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(screen, view) :]
