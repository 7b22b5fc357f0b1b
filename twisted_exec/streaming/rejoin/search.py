"""
The search for another connection to the machine's end of a stream.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.obstacles import Obstacle, obstacles_of
from twisted_exec.api.status import APIError, Unauthorized, one_line
from twisted_exec.control.retries import RETRIED, Retries
from twisted_exec.program.tasks import as_deferred
from twisted_exec.streaming.http.upgrade_client import Upgraded, UpgradeRefused
from twisted_exec.streaming.rejoin.splice import RejoinableSplice
from twisted_exec.streaming.sessions.resume_headers import REJOIN
from twisted_exec.streaming.splice import LOST
from twisted_exec.wire.endings import INTERNAL, Ending
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.rejoin import Rejoin, Rejoinable, parse_received
from twisted_exec.wire.upgrade import last_value

_RETRIED = RETRIED | {Unauthorized.code}
"""The next hop may not know yet by which CA this hop's new certificate was issued (401)."""


class Rejoiner:
    """
    Looks for another connection to the machine's end of a stream.

    :param reach: sends a request with a header of this value to the next hop; its limits of time
        are multiplied by the second argument (:attr:`.Retries.patience`). Fails with
        :class:`~twisted_exec.streaming.http.upgrade_client.UpgradeRefused` or an
        :class:`~twisted_exec.api.status.APIError`.
    """

    _splice: RejoinableSplice
    _retries: Retries[Upgraded] | None = None

    def __init__(
        self,
        clock: IReactorTime,
        answer: Rejoinable,
        reach: Callable[[str, int], Awaitable[Upgraded]],
        rejoined: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock, self._answer = clock, answer
        self._reach, self._rejoined = reach, rejoined

    def start(self, splice: RejoinableSplice) -> None:
        self._splice = splice
        self._retries = Retries(
            self._ask,
            self._answered,
            self._failed,
            self._clock,
            limit_seconds=self._answer.seconds,
            retried=_RETRIED,
        )
        self._retries.start(at_once=True)

    def cancel(self) -> None:
        retries, self._retries = self._retries, None
        if retries is not None:
            retries.stop()

    def _failed(self, error: APIError) -> None:
        self._retries = None
        self._splice.give_up(_lost(f": {one_line(error.message)}", obstacles_of(error)))

    @as_deferred
    async def _ask(self) -> Upgraded:
        assert self._retries is not None
        request = Rejoin(self._answer.key, self._splice.machine.received)
        try:
            return await self._reach(request.text(), self._retries.patience)
        except UpgradeRefused as refusal:
            raise refusal.as_api_error() from None

    def _answered(self, upgraded: Upgraded) -> None:
        self._retries = None
        text = last_value(upgraded.headers, REJOIN).decode("ascii", "replace")
        try:
            received = parse_received(text)
        except RemoteProtocolError:
            received = -1
        if received >= 0 and self._splice.can_rejoin(received):
            upgraded.hand_over(self._splice.rejoined(received))
            self._rejoined()
        else:
            upgraded.abort()
            self._splice.give_up(_lost())


def _lost(reason: str = "", obstacles: tuple[Obstacle, ...] = ()) -> Ending:
    message = f"{LOST}{reason}; open the console again"
    return Ending(INTERNAL, message, causes=tuple(each.value for each in obstacles))
