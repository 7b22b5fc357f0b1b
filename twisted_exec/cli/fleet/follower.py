"""
One machine of a fleet: its log, opened again for as long as that may help.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from twisted_exec.api.logs import LogOptions
from twisted_exec.api.status import APIError
from twisted_exec.cli.explanations import hindrance
from twisted_exec.cli.fleet.output import Lane
from twisted_exec.cli.fleet.positions import Positions
from twisted_exec.cli.fleet.targets import FleetTarget
from twisted_exec.control.backoff import Backoff
from twisted_exec.kube.downloads import MachineLog
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.streaming.text.resumption import RETRIED, ResumedLog
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.wire.resume import Position

FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 30.0


Lost = Callable[[str | None], None]
"""Called at the start of an outage with the reason, and with ``None`` at its end."""


class FollowerState(Enum):
    """The state of one machine's log."""

    OPENING = "opening"
    OPEN = "open"
    RETRYING = "retrying"
    REFUSED = "refused"
    """Waiting does not help."""
    ENDED = "ended"
    """The machine was deleted."""


class Follower:
    """
    Prints the log of one machine until the machine is deleted, or until a refusal is final.

    :param open_log: returns the log.
    :param position: where to begin; ``None`` for the last lines.
    :param tail_lines: number of the last lines.
    :param changed: called after each change of the state.
    :ivar problem: why the log cannot be read; empty if nothing failed.
    """

    def __init__(
        self,
        target: FleetTarget,
        lane: Lane,
        open_log: Callable[[FleetTarget, Lost], MachineLog],
        clock: IReactorTime,
        *,
        position: Position | None,
        tail_lines: int,
        turns: DeferredSemaphore,
        changed: Callable[[Follower], None],
        needs_position: bool,
    ) -> None:
        self.target, self.lane = target, lane
        self.state, self.problem = FollowerState.OPENING, ""
        self._open_log, self._clock = open_log, clock
        self._position, self._tail_lines = position, tail_lines
        self._turns, self._changed = turns, changed
        self._needs_position = needs_position
        self._base = LogOptions(follow=True, frames=True)
        self._has_turn = False
        self._was_open = False
        self._log: Any = None

    @property
    def is_failed(self) -> bool:
        """True if the log is not open, and has not ended."""
        return self.state in (FollowerState.OPENING, FollowerState.RETRYING, FollowerState.REFUSED)

    async def run(self) -> None:
        """Follow the log; cancelling ends it."""
        # Not a WorkQueue: a log that is followed is work without end, and shares turns.
        backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS)
        while True:
            await self._turns.acquire()
            self._has_turn = True
            self._was_open = False
            try:
                log = self._open_log(self.target, self._outage)
                await log.read(self._options(), self._received, self._opened)
            except (APIError, KubeConfigError, TLSConfigError) as error:
                if isinstance(error, APIError) and error.code not in RETRIED:
                    self._become(FollowerState.REFUSED, self._explain(error))
                    return
                if self._was_open:
                    backoff.reset()
                self._become(FollowerState.RETRYING, self._explain(error))
            except _NoPosition:
                self._become(
                    FollowerState.REFUSED,
                    "its server is of another make and sends no offsets, which --state needs",
                )
                return
            else:
                self._become(FollowerState.ENDED)
                return
            finally:
                self._release()
                self._log = self.lane.source = None
            # Spread, because an API server that comes back meets the whole fleet.
            await deferLater(self._clock, backoff.pause())

    def _options(self) -> LogOptions:
        at = self._position
        if at is None:
            return replace(self._base, tail_lines=self._tail_lines)
        return replace(self._base, from_offset=at.offset, epoch=at.epoch)

    def _opened(self, log: Any) -> None:
        self._release()
        is_exact = isinstance(log, ResumedLog)
        if self._needs_position and not is_exact:
            log.abort()
            raise _NoPosition
        if not is_exact and self._log is None and self.state is FollowerState.RETRYING:
            self.lane.remark("output may be missing here")
        self._log, self._was_open = log, True
        if is_exact and self._needs_position and self.lane.positions is None:
            self.lane.positions = Positions(log.position)
        self.lane.opened(log)
        self._become(FollowerState.OPEN)

    def _outage(self, why: str | None) -> None:
        if why is None:
            self._become(FollowerState.OPEN)
        else:
            self._become(FollowerState.RETRYING, why)

    def _received(self, data: bytes) -> None:
        position = None
        if isinstance(self._log, ResumedLog):
            position = self._position = self._log.position
        else:
            self._tail_lines = 0
        self.lane.feed(data, position)

    def _release(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._turns.release()

    def _explain(self, error: BaseException) -> str:
        if isinstance(error, TLSConfigError):
            return str(error)
        return hindrance(error, self.target.namespace)

    def failed(self, failure: Failure) -> None:
        """Give up after an error of ours, such as one that a hostile server's answer provokes."""
        assert failure.value is not None
        self._become(FollowerState.REFUSED, self._explain(failure.value))

    def _become(self, state: FollowerState, problem: str = "") -> None:
        self.state, self.problem = state, problem
        self._changed(self)


class _NoPosition(Exception):
    """The server sends no offsets."""


def start(follower: Follower) -> Deferred[None]:
    """Run a follower; the result does not fail."""

    def failed(failure: Failure) -> None:
        if not failure.check(CancelledError):
            follower.failed(failure)

    return Deferred.fromCoroutine(follower.run()).addErrback(failed)
