"""A double of the stream of a session."""

from __future__ import annotations

from collections.abc import Callable

from twisted_exec.streaming.interfaces import Ending
from twisted_exec.streaming.sessions.stream import SessionStream
from twisted_exec.wire.session_terms import Terms


class StreamDouble(SessionStream):
    """Passes what the session asks for to functions; what has none is as in the base class."""

    def __init__(
        self,
        end: Callable[[Ending], object] = lambda _: None,
        cut: Callable[[], object] = lambda: None,
        counts: Callable[[], tuple[int, int]] = lambda: (0, 0),
        hold_to: Callable[[Terms], object] | None = None,
        supersede: Callable[[], object] | None = None,
        transports: Callable[[], tuple[object, object]] = lambda: (None, None),
    ) -> None:
        self._end, self._cut, self._counts = end, cut, counts
        self._hold_to, self._supersede, self._transports = hold_to, supersede, transports

    def end(self, ending: Ending) -> None:
        self._end(ending)

    def cut(self) -> None:
        self._cut()

    def counts(self) -> tuple[int, int]:
        return self._counts()

    def hold_to(self, terms: Terms) -> bool:
        if self._hold_to is None:
            return False
        self._hold_to(terms)
        return True

    def supersede(self) -> bool:
        if self._supersede is None:
            return False
        self._supersede()
        return True

    def transports(self) -> tuple[object, object]:
        return self._transports()
