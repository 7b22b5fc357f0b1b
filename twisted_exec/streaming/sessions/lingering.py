"""
The sessions of a process whose place a successor has taken.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall

from twisted_exec.streaming.interfaces import SHUTTING_DOWN, Ending
from twisted_exec.streaming.sessions.registry import Session, Sessions

LAST_WORD_SECONDS = 3.0
"""Longest wait for a session to end after it was told to."""

_LOOK_SECONDS = 1.0


async def linger(
    sessions: Sessions,
    clock: IReactorTime,
    seconds: float,
    reason: str,
    lost: Deferred[str] | None = None,
) -> None:
    """
    Cut the sessions that go on at the successor, and serve the others until they end.

    :param seconds: after which those that are left end.
    :param reason: for their users.
    :param lost: fires with the reason if they have to end earlier.
    """
    cut: set[Session] = set()

    def cut_movable() -> None:
        # Again and again, for sessions that were being opened.
        for session in sessions.live():
            if session.is_movable and session not in cut:
                cut.add(session)
                session.cut(SHUTTING_DOWN)

    over: Deferred[str] = Deferred()

    def end(why: str) -> None:
        if not over.called:
            over.callback(why)

    cutting = LoopingCall(cut_movable)
    cutting.clock = clock
    cutting.start(_LOOK_SECONDS)
    sessions.when_empty().addCallback(lambda _: end(""))
    limit = clock.callLater(seconds, end, reason)
    if lost is not None:
        lost.addCallback(end)
    try:
        why = await over
    finally:
        cutting.stop()
        if limit.active():
            limit.cancel()
    if why:
        await sessions.drain(clock, LAST_WORD_SECONDS, Ending(SHUTTING_DOWN, why))
