"""
The text of a closed recording by offsets, for stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from twisted.internet.interfaces import IReactorTime

from twisted_exec.program.tasks import ShortTurns, as_deferred


class TextReader:
    """
    Reads a text that is rendered, from one offset to the next; an earlier offset renders it anew.

    It is a :data:`twisted_exec.recording.stores.interfaces.ReadText`.

    :param render: returns the pieces of the text, which may be empty.
    """

    def __init__(self, render: Callable[[], Iterator[bytes]], clock: IReactorTime) -> None:
        self._render, self._clock = render, clock
        self._pieces: Iterator[bytes] | None = None
        self._offset = 0  # of the beginning of the buffer
        self._buffer = bytearray()

    @as_deferred
    async def __call__(self, offset: int, limit: int) -> bytes:
        if self._pieces is None or offset < self._offset:
            self._pieces, self._offset = self._render(), 0
            self._buffer.clear()
        turns = ShortTurns(self._clock)
        while self._offset + len(self._buffer) < offset + limit:
            try:
                piece = next(self._pieces, None)
            except BaseException:
                self._pieces = None  # it has ended, and would seem to be complete
                raise
            if piece is None:
                break
            self._buffer += piece
            self._drop(offset)
            await turns.breathe()
        self._drop(offset)
        return bytes(self._buffer[:limit])

    def _drop(self, offset: int) -> None:
        """Drop what is before an offset."""
        count = min(max(0, offset - self._offset), len(self._buffer))
        del self._buffer[:count]
        self._offset += count
