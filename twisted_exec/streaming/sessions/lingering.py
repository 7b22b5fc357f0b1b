"""
The end of the sessions that a hand-over has left behind.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_exec.streaming.interfaces import SHUTTING_DOWN, Ending
from twisted_exec.streaming.sessions.registry import Session, Sessions

LAST_WORD_SECONDS = 3.0
"""Longest wait for a session to end after it was told to."""


def leave_to_successor(
    sessions: Sessions, clock: IReactorTime, seconds: float, program: str
) -> Deferred[None]:
    """Return a Deferred for :func:`linger`, as the last part of ``IHandsOver.retire``."""
    reason = f"{program} was replaced, and the time for sessions that it left behind is over"
    return Deferred.fromCoroutine(linger(sessions, clock, seconds, reason))


async def linger(
    sessions: Sessions,
    clock: IReactorTime,
    seconds: float,
    reason: str,
    lost: Deferred[str] | None = None,
) -> None:
    """
    Cut the sessions that go on at the successor, and serve the others until they end, or for
    ``seconds``.

    :param lost: fires with the reason to end them earlier.
    """

    def cut(session: Session) -> None:
        if session.is_movable:
            session.cut(SHUTTING_DOWN)

    def carried(session: Session) -> None:
        # It was being opened; the owner of its stream is still setting the stream up.
        clock.callLater(0, cut, session)

    over: Deferred[str] = Deferred()

    def end(why: str) -> None:
        if not over.called:
            over.callback(why)

    sessions.on_carried.append(carried)
    sessions.each(sessions.live(), cut)
    sessions.when_empty().addCallback(lambda _: end(""))
    limit = clock.callLater(seconds, end, reason)
    if lost is not None:
        lost.addCallback(end)
    try:
        why = await over
    finally:
        sessions.on_carried.remove(carried)
        if limit.active():
            limit.cancel()
    if why:
        await sessions.drain(clock, LAST_WORD_SECONDS, Ending(SHUTTING_DOWN, why))
