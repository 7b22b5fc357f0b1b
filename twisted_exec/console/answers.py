"""Answers to queries of a machine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from twisted_exec.streaming.interfaces import TerminalSize
from twisted_exec.wire.escape_sequences import QueryFilter

SESSION = "runtime"
"""In place of a session's id, where input is recorded."""

SIZE = TerminalSize(columns=80, rows=24)
"""The size of a line that has had no terminal."""

MOST_PER_SECOND = 8


class Answers:
    """
    The answers to one machine.

    Programs on a serial line ask the terminal for its size, and wait if no terminal answers:
    systemd 257 and later a third of a second for each of two questions, at every boot.

    A machine, or a file that it prints, may ask as well in order to have the answer typed into a
    program that reads input. So the answers are few and limited in rate, and have a fixed form: one
    escape sequence, which ends no line and is itself no query.
    """

    def __init__(
        self,
        clock: IReactorTime,
        size: Callable[[], TerminalSize | None],
        send: Callable[[bytes], None],
    ) -> None:
        self._clock, self._size, self._send = clock, size, send
        self._sent_at: deque[float] = deque(maxlen=MOST_PER_SECOND)
        self._queries: list[bytes] = []
        self._filter = QueryFilter(self._queries.append)

    def printed(self, data: bytes) -> None:
        self._filter.feed(data)
        # The same list, because the filter appends to it.
        queries, self._queries[:] = self._queries[:MOST_PER_SECOND], []
        for query in queries:
            answer = self._answer(query)
            if answer and self._count_if_allowed():
                self._send(answer)

    def forget(self) -> None:
        """Forget the first half of a query."""
        self._filter = QueryFilter(self._queries.append)

    def _answer(self, query: bytes) -> bytes:
        size = self._size() or SIZE
        if query == b"18t":
            return b"\x1b[8;%d;%dt" % (size.rows, size.columns)  # XTWINOPS 18 (ctlseqs)
        if query == b"6n":
            # Programs move the cursor as far as it goes before they ask.
            return b"\x1b[%d;%dR" % (size.rows, size.columns)
        return b"\x1b[?6c" if query in (b"c", b"0c") else b""  # a VT102, as the Linux console says

    def _count_if_allowed(self) -> bool:
        now = self._clock.seconds()
        sent_at = self._sent_at
        if len(sent_at) == MOST_PER_SECOND and now - sent_at[0] < 1:
            return False
        sent_at.append(now)
        return True
