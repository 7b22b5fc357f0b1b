"""
Reading a journal whose disk may not answer at this moment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.display import reason_of
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.journal.interfaces import IReadableJournal
from twisted_exec.program.disk_thread import Unanswered

ANSWER_SECONDS = 3.0
"""
Longest wait for a disk to answer a reader: less than an API server waits for a poollet's answer.
"""
_Answer = TypeVar("_Answer")


async def when_answered(
    journal: IReadableJournal, clock: IReactorTime, read: Callable[[], Awaitable[_Answer]]
) -> _Answer:
    """
    Read a journal; if the disk does not answer, wait, and read again.

    :param read: called once or more, so it changes nothing until it returns.
    :raises ServiceUnavailable: the files cannot be read at present, or the disk does not answer
        within :data:`ANSWER_SECONDS`.
    """
    until = clock.seconds() + ANSWER_SECONDS
    while True:
        try:
            return await read()
        except OSError as error:
            left = until - clock.seconds()
            if left <= 0 or not isinstance(error, Unanswered):
                why = reason_of(error)
                raise ServiceUnavailable(
                    f"the output of the console cannot be read from the disk: {why}; try again",
                    retry_after_seconds=1,
                ) from None
        await _changed(journal, clock, left)


async def _changed(journal: IReadableJournal, clock: IReactorTime, seconds: float) -> None:
    changed: Deferred[None] = Deferred()

    def wake() -> None:
        journal.unwatch(wake)
        changed.callback(None)

    journal.watch(wake)
    try:
        await changed.addTimeout(seconds, clock)
    except TimeoutError:
        pass
    finally:
        journal.unwatch(wake)
