"""
The input of a session that can be resumed, until the server has settled it.

Input counts in pieces (see :mod:`twisted_exec.wire.resume`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.resize import Break, Role
from twisted_exec.wire.typed_keys import keys_of

Item = bytes | Break | Role | None
"""Input: bytes, a request, or ``None`` for the end."""

LIMIT_PIECES = 256 << 10
"""From here on the log is full; it accepts more, because its user may be about to pause."""

WINDOW_PIECES = 128 << 10
"""
Pieces that are sent without an Ack: less than a server buffers, so that it always reads, and
answers pings.
"""

_PART_BYTES = 32 << 10
_MERGED_BYTES = 1 << 10


class InputLog:
    """
    Input in order: first what was sent, then what is still to be sent.

    :ivar uncertain: pieces that were sent, and that the server has not settled.
    """

    def __init__(self) -> None:
        self.uncertain = self.unsent = 0
        self._settled = 0
        self._sent: deque[Item] = deque()
        self._waiting: deque[Item] = deque()

    @property
    def is_full(self) -> bool:
        return self.uncertain + self.unsent >= LIMIT_PIECES

    @property
    def has_room(self) -> bool:
        return self.uncertain + self.unsent <= LIMIT_PIECES // 2

    @property
    def keys(self) -> int:
        """Number of keys and requests that the server has not settled."""
        return sum(self.unconfirmed)

    @property
    def unconfirmed(self) -> tuple[int, int]:
        """The numbers of keys and requests that were sent and not settled, and that were not sent."""
        return keys_of(self._sent), keys_of(self._waiting)

    def put(self, item: Item) -> None:
        _append(self._waiting, item)
        self.unsent += _pieces(item)

    def sendable(self) -> Iterator[Item]:
        """Iterate over the input that may be sent now, and count it as sent."""
        while self._waiting and self.uncertain < WINDOW_PIECES:
            item = self._waiting.popleft()
            if isinstance(item, bytes):
                most = min(WINDOW_PIECES - self.uncertain, _PART_BYTES)
                if len(item) > most:
                    self._waiting.appendleft(item[most:])
                    item = item[:most]
            _append(self._sent, item)
            self.unsent -= _pieces(item)
            self.uncertain += _pieces(item)
            yield item

    def settle(self, count: int) -> None:
        """
        Forget what the server has settled.

        :raises RemoteProtocolError: that is less than before, or more than was sent.
        """
        settled = count - self._settled
        if not 0 <= settled <= self.uncertain:
            raise RemoteProtocolError(
                f"{count} pieces of input are settled, of {self._settled} to"
                f" {self._settled + self.uncertain}"
            )
        self._settled = count
        self.uncertain -= settled
        while settled:
            item = self._sent.popleft()
            if isinstance(item, bytes) and len(item) > settled:
                self._sent.appendleft(item[settled:])
                return
            settled -= _pieces(item)

    def send_again(self) -> None:
        """Send what is not settled again, over another connection."""
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()
        self.unsent += self.uncertain
        self.uncertain = 0

    def begin_anew(self, *, is_exact: bool) -> tuple[int, int]:
        """
        Count anew, because the number of settled pieces is unknown, or begins again.

        If anything is uncertain, all input is dropped: behind a hole it may mean something else to
        the machine.

        :param is_exact: nothing is uncertain: the machine has got none of the input that is not settled.
        """
        self._settled = 0
        return self.drop() if self.uncertain and not is_exact else (0, 0)

    def drop(self) -> tuple[int, int]:
        """
        Drop all input.  The end of the input is kept.

        :return: the numbers of dropped keys and requests that were sent, and that were not.
        """
        has_end = None in self._sent or None in self._waiting
        sent, unsent = self.unconfirmed
        self._sent.clear()
        self._waiting.clear()
        self.uncertain = self.unsent = 0
        if has_end:
            self.put(None)
        return sent, unsent


def _pieces(item: Item) -> int:
    return len(item) if isinstance(item, bytes) else 1


def _append(items: deque[Item], item: Item) -> None:
    last = items[-1] if items else None
    if isinstance(item, bytes) and isinstance(last, bytes) and len(last) < _MERGED_BYTES:
        items[-1] = last + item
    else:
        items.append(item)
