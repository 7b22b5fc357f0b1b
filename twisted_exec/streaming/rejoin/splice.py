"""
A splice whose connection to the machine can be replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from twisted_exec.streaming.kept_bytes import KeptBytes
from twisted_exec.streaming.lifecycle import Living
from twisted_exec.streaming.splice import Splice, SpliceEnd
from twisted_exec.wire.endings import Ending
from twisted_exec.wire.frame_boundaries import FrameBoundaries

KEPT_BYTES = 256 << 10
"""How much of the user's input is kept, because the machine's end may not have got it."""

_USER_CLOSED = "client closed"


class SpliceLife(Enum):
    """The phases of a splice's life; :data:`SPLICE_TRANSITIONS` has their order."""

    OPENING = "opening"
    """A connection, or both, are not up yet."""
    CARRIED = "carried"
    """Both connections are up."""
    WAITING = "waiting"
    """The machine's connection was lost before the status; the owner looks for another."""
    LEAVING = "leaving"
    """The user's connection was lost before the status; the machine's end does not know yet."""
    TOLD = "told"
    """The user gets the reason from this hop; the machine's end is to close its connection."""
    ENDING = "ending"
    """An end has closed, or this hop closes both."""
    CLOSING = "closing"
    """The user's connection closes, and there is none to the machine."""
    OVER = "over"
    """Both connections are lost."""


SPLICE_TRANSITIONS: Mapping[SpliceLife, frozenset[SpliceLife]] = {
    SpliceLife.OPENING: frozenset({SpliceLife.CARRIED, SpliceLife.ENDING}),
    SpliceLife.CARRIED: frozenset(
        {SpliceLife.WAITING, SpliceLife.LEAVING, SpliceLife.TOLD, SpliceLife.ENDING}
    ),
    SpliceLife.WAITING: frozenset({SpliceLife.CARRIED, SpliceLife.CLOSING}),
    SpliceLife.LEAVING: frozenset({SpliceLife.ENDING}),
    SpliceLife.TOLD: frozenset({SpliceLife.ENDING}),
    SpliceLife.ENDING: frozenset({SpliceLife.TOLD, SpliceLife.OVER}),
    SpliceLife.CLOSING: frozenset({SpliceLife.OVER}),
    SpliceLife.OVER: frozenset(),
}
"""What may follow each phase of a splice's life."""

_ENDS = frozenset({SpliceLife.ENDING, SpliceLife.CLOSING, SpliceLife.OVER})


class RejoinableSplice(Splice, Living[SpliceLife]):
    """
    A splice whose connection to the machine can be replaced.

    :param on_loss: called when it has to be replaced; :meth:`rejoined` or :meth:`give_up` must
        follow, unless the splice ends before.
    :param on_leave: called when the user has left and the machine's end does not know yet;
        :meth:`left` must follow.
    """

    transitions = SPLICE_TRANSITIONS

    def __init__(
        self,
        clock: IReactorTime,
        on_end: Callable[[str], None],
        on_loss: Callable[[], None],
        on_leave: Callable[[], None],
        boundaries: FrameBoundaries,
        **more: Any,
    ) -> None:
        super().__init__(clock, on_end, **more)
        self.life = SpliceLife.OPENING
        self._on_loss, self._on_leave = on_loss, on_leave
        self._kept = KeptBytes(KEPT_BYTES)
        self._again = b""
        self.follow(boundaries)

    @property
    def has_machine(self) -> bool:
        """Return whether there is a connection to the machine, or will be the first."""
        return self.life is not SpliceLife.WAITING and self.life is not SpliceLife.CLOSING

    def can_rejoin(self, received: int) -> bool:
        """Return whether a machine's end that got so many of the user's bytes can go on."""
        return self.life is SpliceLife.WAITING and self._kept.has(received)

    def rejoined(self, received: int) -> SpliceEnd:
        self._kept.forget_until(received)
        self._again = b"".join(self._kept)
        return self.machine

    def give_up(self, ending: Ending) -> None:
        if self.life is SpliceLife.WAITING:
            self._explain(ending)
            self.cut(ending.reason)

    def tell_user(self, ending: Ending) -> None:
        """
        End the user's part of the session with the reason, at the end of the current message.

        The machine's connection stays, because a hop that was asked to end the session must still
        find it.
        """
        if self.has_machine and self.can_say:
            self._become(SpliceLife.TOLD)
            self.say(ending)

    def cut(self, reason: str) -> None:
        self._end()
        super().cut(reason)

    def left(self) -> None:
        """Close the machine's connection: its end knows that the user has left."""
        if self._ends and not self.machine.gone:
            self.lost(self.user, Failure(ConnectionDone()))

    # Called by the ends

    def _from_user(self, data: bytes) -> bytes:
        self._kept.add(data)
        if self.user.is_tracked and self._boundaries is not None:
            self.user.is_tracked = self._boundaries.from_user(data)
        return data

    def _survives(self, end: SpliceEnd) -> bool:
        if end not in self._ends:
            return True  # another connection has taken its place
        if self.life is SpliceLife.TOLD and end is self.user:
            return True
        if (
            self.life is SpliceLife.CARRIED
            and self._boundaries is not None
            and self._boundaries.owed
        ):
            if end is self.machine:
                self._wait(end)
                return True
            if end.gone:
                self._leave()
                return True
        if self.life is SpliceLife.WAITING and end is self.user:
            self._reason = _USER_CLOSED
        self._end()
        return False

    def _wait(self, end: SpliceEnd) -> None:
        self._become(SpliceLife.WAITING)
        self.user.hold()
        self.machine = end.replacement()
        self._ends = (self.user, self.machine)
        end.retire()
        self._on_loss()

    def _leave(self) -> None:
        self._become(SpliceLife.LEAVING)
        self._reason = _USER_CLOSED
        self._on_leave()

    def _end(self) -> None:
        if self.life is SpliceLife.WAITING:
            self.machine.gone = True  # it gets no connection
            self._become(SpliceLife.CLOSING)
        elif self.life not in _ENDS:
            self._become(SpliceLife.ENDING)

    def _finish(self) -> None:
        self._become(SpliceLife.OVER)
        super()._finish()
        # Sessions are freed by reference counts; the callbacks' owner refers to this splice.
        self._on_loss = self._on_leave = _ignore

    def _hush(self) -> None:
        if self.life is not SpliceLife.TOLD:
            super()._hush()
            return
        self.machine.drop()
        self.user.shut()
        self.machine.transport.resumeProducing()  # it may have waited for the user
        self._drain()

    def _send_again(self) -> None:
        if self.life is SpliceLife.OPENING or self.life is SpliceLife.WAITING:
            self._become(SpliceLife.CARRIED)
        again, self._again = self._again, b""
        if again:
            self.machine.transport.write(again)


def _ignore() -> None:
    """Do nothing."""
