"""Opening a console at a busy server, which names a time to come again."""

from __future__ import annotations

import random
from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from twisted_exec.api.status import APIError
from twisted_exec.cli.messages import one_line
from twisted_exec.streaming.remotecommand.stream import ConsoleStream

PATIENCE_SECONDS = 60.0
"""How long ``Retry-After`` is obeyed."""
_BUSY = (429, 503)


def patiently(
    attempt: Callable[[], Deferred[ConsoleStream]], clock: IReactorTime, say: Callable[[str], None]
) -> Deferred[ConsoleStream]:
    """
    Open the console, again for as long as a busy server names a time to come again.

    :return: fails with any other error, and when the waits exceed :data:`PATIENCE_SECONDS`;
        cancelling ends the wait.
    """

    async def opened() -> ConsoleStream:
        # Not a PokedLoop: the server says how long to wait, and the user for how long in all.
        left = PATIENCE_SECONDS
        while True:
            try:
                return await attempt()
            except APIError as error:
                seconds = error.retry_after_seconds or 0
                if error.code not in _BUSY or not 0 < seconds <= left:
                    raise
                say(f"{one_line(error.message)}; trying again in {seconds} s")
            # Not all at the same time, or the server would refuse the same number again.
            pause = seconds + random.uniform(0, 1)
            left -= pause
            await deferLater(clock, pause)

    return Deferred.fromCoroutine(opened())
