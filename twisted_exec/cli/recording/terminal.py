"""
Playing on a terminal: keys in, output out, in real time.
"""

from __future__ import annotations

import os
import select
import termios
import time
import tty
from collections.abc import Callable

from .player import Player

_SEEK_MILLISECONDS = 10_000
_LEFT, _RIGHT = b"\x1b[D", b"\x1b[C"
_KEY_BYTES = 16
_SHOW_CURSOR = b"\x1b[0m\x1b[?25h\r\n"


class Controls:
    """
    The keys of a user.

    :param ask: asks the user for a text to search for.
    """

    def __init__(self, player: Player, ask: Callable[[], bytes]) -> None:
        self._player, self._ask = player, ask
        self._text = b""
        self.quit = False

    def pressed(self, key: bytes) -> bytes:
        """Handle one key; return what to print."""
        player = self._player
        match key:
            case b"q" | b"\x03" | b"":
                self.quit = True
            case b" ":
                player.is_paused = not player.is_paused
            case b".":
                return player.step()
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
                output = player.search(self._text)
                return b"\a" if output is None else output
        return b""


def play(player: Player, keys: int, screen: int, at: int | None = None) -> int:
    """
    Play until the end, or until the user quits.

    :param keys: descriptor of the input, which may be no terminal; then there are no controls.
    :param screen: descriptor of the terminal.
    :param at: milliseconds since the epoch, where to begin.
    :return: the exit code.
    """
    settings = termios.tcgetattr(keys) if os.isatty(keys) else None

    def ask() -> bytes:
        _write(screen, b"\r\n/")
        text = b""
        while (mark := os.read(keys, 1)) not in (b"\r", b"\n", b""):
            if mark == b"\x03":
                return b""
            text = text[:-1] if mark in b"\x7f\b" else text + mark
            _write(screen, b"\r\x1b[K/" + text)
        return text

    try:
        if settings is not None:
            # Raw, because the terminal would show a newline as two characters.
            tty.setraw(keys, termios.TCSANOW)
        if at is not None:
            _write(screen, player.seek(at))
        _loop(player, Controls(player, ask), [keys] if settings is not None else [], screen)
    finally:
        _write(screen, _SHOW_CURSOR)
        if settings is not None:
            # Without waiting for output: the terminal may be stopped.
            termios.tcsetattr(keys, termios.TCSANOW, settings)
    return 0


def _loop(player: Player, controls: Controls, keys: list[int], screen: int) -> None:
    before = time.monotonic()
    while not controls.quit and not player.ended:
        ready, _, _ = select.select(keys, [], [], player.wait_seconds())
        now = time.monotonic()
        _write(screen, player.advance(now - before))
        before = now
        for each in ready:
            _write(screen, controls.pressed(os.read(each, _KEY_BYTES)))
            # Searching and asking take time, which is not that of the recording.
            before = time.monotonic()


def _write(screen: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(screen, view) :]
