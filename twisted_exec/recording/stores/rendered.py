"""
Text that is rendered whenever it is read, for a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_exec.program.tasks import ShortTurns


class RenderedText:
    """
    Reads a text in order, in short turns; from an earlier offset it is rendered again.

    :param render: iterates over the text; pieces may be empty, and there is work for each of them.
    """

    def __init__(self, render: Callable[[], Iterator[bytes]], clock: IReactorTime) -> None:
        self._render, self._clock = render, clock
        self._pieces: Iterator[bytes] = iter(())
        self._rest = b""
        self._offset = -1

    def read(self, offset: int, limit: int) -> Deferred[bytes]:
        """As :data:`~.interfaces.ReadText`; also fails with the exceptions of ``render``."""
        return Deferred.fromCoroutine(self._read(offset, limit))

    async def _read(self, offset: int, limit: int) -> bytes:
        turns = ShortTurns(self._clock)
        if not 0 <= self._offset <= offset:
            self._pieces, self._rest, self._offset = self._render(), b"", 0
        while True:
            skipped = self._rest[: offset - self._offset]
            self._rest = self._rest[len(skipped) :]
            self._offset += len(skipped)
            if self._rest:
                break
            await turns.breathe()
            try:
                piece = next(self._pieces, None)
            except BaseException:
                self._offset = -1
                raise
            if piece is None:
                break
            self._rest = piece
        data, self._rest = self._rest[:limit], self._rest[limit:]
        self._offset += len(data)
        return data
