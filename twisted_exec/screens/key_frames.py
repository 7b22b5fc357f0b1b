"""Key frames of screens: states from which an emulator can go on."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

MAX_BYTES = 8 << 20
_ENTRY_BYTES = 512
"""Memory of a key frame beside its content."""


@dataclass(frozen=True)
class KeyFrame:
    """
    The state of a screen.

    :param offset: of the first byte that is not in the state.
    :param content: see :meth:`.AvtScreen.key_frame`; in UTF-8: an emoji in a ``str`` makes each character four bytes.
    """

    offset: int
    columns: int
    rows: int
    content: bytes


class KeyFrames:
    """Key frames of all journals; the least recently used ones are discarded."""

    def __init__(self, limit_bytes: int = MAX_BYTES) -> None:
        self._limit_bytes, self._bytes = limit_bytes, 0
        self._frames: OrderedDict[tuple[str, int], KeyFrame] = OrderedDict()

    def add(self, epoch: str, frame: KeyFrame) -> None:
        old = self._frames.pop((epoch, frame.offset), None)
        self._frames[epoch, frame.offset] = frame
        self._bytes += _size(frame) - (_size(old) if old is not None else 0)
        while self._bytes > self._limit_bytes:
            _, oldest = self._frames.popitem(last=False)
            self._bytes -= _size(oldest)

    def discard(self, epoch: str, offset: int) -> None:
        if frame := self._frames.pop((epoch, offset), None):
            self._bytes -= _size(frame)

    def nearest(self, epoch: str, first: int, last: int) -> KeyFrame | None:
        """Return the last key frame of a journal at an offset from ``first`` to ``last``."""
        offsets = [
            offset for each, offset in self._frames if each == epoch and first <= offset <= last
        ]
        if not offsets:
            return None
        key = epoch, max(offsets)
        self._frames.move_to_end(key)
        return self._frames[key]


def _size(frame: KeyFrame) -> int:
    return _ENTRY_BYTES + len(frame.content)
