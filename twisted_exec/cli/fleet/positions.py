"""
The positions of a machine's output, by the output that is not printed yet.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from twisted_exec.wire.resume import Position


class _Piece(NamedTuple):
    size: int
    before: Position
    after: Position

    @property
    def is_whole(self) -> bool:
        is_same = self.before.epoch == self.after.epoch
        return is_same and self.after.offset - self.before.offset == self.size


class Positions:
    """
    Remembers where the pieces of a machine's output begin.

    Output is printed in order, so the number of bytes that are not printed yet determines where the
    log has to continue.

    :param start: where the output begins.
    """

    def __init__(self, start: Position) -> None:
        self._last = start
        self._pieces: deque[_Piece] = deque()

    def add(self, size: int, after: Position) -> None:
        """Append a piece of output."""
        self._pieces.append(_Piece(size, self._last, after))
        self._last = after

    def settle(self, waiting: int) -> Position:
        """
        Forget the pieces that are printed, and return where the log has to continue.

        If a piece with a notice of a gap is printed only in part, the log continues before that
        piece: some output is printed again, and none is lost.

        :param waiting: number of bytes that are not printed yet, never more than added.
        """
        left = waiting
        position = self._last
        for index in range(len(self._pieces) - 1, -1, -1):
            piece = self._pieces[index]
            if not left:
                self._forget(index + 1)
                return position
            position = piece.before
            if left < piece.size:
                if piece.is_whole:
                    position = Position(piece.after.epoch, piece.after.offset - left)
                self._forget(index)
                return position
            left -= piece.size
        return position

    def _forget(self, count: int) -> None:
        for _ in range(count):
            self._pieces.popleft()
