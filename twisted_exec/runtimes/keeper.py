"""
One machine under power: it keeps the line open as long as the machine is wanted on.

A machine that ends by itself is started again, at once the first time and then
more and more slowly while it keeps ending early.  Each start is a new session on the same journal:
viewers of the old one have been told how it ended, and whoever comes next sees what was
printed before.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.status import APIError
from twisted_exec.console.journal import Journal
from twisted_exec.console.session import DEFAULT_LIMITS, Limits, Session
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.streaming.interfaces import INTERNAL, POWERED_OFF, Ending

from .interfaces import IMachineDriver, IRun, MachineFacts

_FIRST_DELAY_SECONDS = 0.1
_LONGEST_DELAY_SECONDS = 30.0
_LONG_RUN_SECONDS = 10.0
_BUG = "internal error of the machine runtime"


class Keeper:
    """
    Keeps one machine as it is wanted.

    :param state_changed: called with each new ``pb.MachineState``, and the reason (one word) and
        the message when the machine does not run although it was switched on; else they are empty.
    """

    _log = Logger()

    def __init__(
        self,
        driver: IMachineDriver,
        facts: MachineFacts,
        clock: IReactorTime,
        state_changed: Callable[[int, str, str], None],
        *,
        limits: Limits = DEFAULT_LIMITS,
        now_nanoseconds: Callable[[], int] = time.time_ns,
    ) -> None:
        self._driver = driver
        self._facts = facts
        self._clock = clock
        self._state_changed = state_changed
        self._limits = limits
        self.journal = Journal(now_nanoseconds)
        """What the machine printed, through all restarts."""
        self._keeping: Deferred[None] | None = None
        self._wanted = False
        self._rest: Deferred[None] | None = None
        self._delay_seconds = 0.0
        self.session: Session | None = None
        """To attach to; ``None`` while the machine is off."""

    def power_on(self) -> None:
        """Start the machine, unless it is on already."""
        self._wanted = True
        if self._keeping is None:
            self._delay_seconds = 0.0
            self._state_changed(pb.MACHINE_PENDING, "", "")
            keeping = Deferred.fromCoroutine(self._keep())
            keeping.addErrback(self._failed)
            self._keeping = None if keeping.called else keeping

    def power_off(self, ending: Ending) -> Deferred[None]:
        """
        Stop the machine and tell its viewers why.

        :return: fires when nothing of it runs any more.
        """
        self._wanted = False
        keeping = self._keeping
        if self.session is not None:
            self.session.end(ending)
        if self._rest is not None:
            self._rest.cancel()
        stopped: Deferred[None] = Deferred()
        if keeping is None:
            self._state_changed(pb.MACHINE_STOPPED, "", "")
            stopped.callback(None)
        else:
            keeping.addBoth(lambda _: stopped.callback(None))
        return stopped

    async def _keep(self) -> None:
        """Run the machine, again and again, until it is switched off."""
        run, session = self._prepare()
        while session.ending is None:
            began = self._clock.seconds()
            started = await session.open().addCallbacks(self._started, self._not_started)
            ending = await session.when_over()
            self._plan_delay(self._clock.seconds() - began)
            why = self._note_end(ending) if started else ("", "")
            ended = run
            if self._wanted:
                # Whoever attaches from here on waits for the next line.
                run, session = self._prepare()
            await ended.stop()
            if session.ending is None:
                await self._wait()
        self.session = self._keeping = None
        self._state_changed(pb.MACHINE_STOPPED, *why)
        if self._wanted:  # it was switched on again while it was going off
            self.power_on()

    def _prepare(self) -> tuple[IRun, Session]:
        run = self._driver.run(self._facts)
        size = None if self.session is None else self.session.size
        self.session = Session(
            run, self._clock, journal=self.journal, size=size, limits=self._limits
        )
        return run, self.session

    def _started(self, _: object) -> bool:
        self._state_changed(pb.MACHINE_RUNNING, "", "")
        self._facts.event("Normal", "Started", f"machine {self._facts.label} is running")
        return True

    def _not_started(self, failure: Failure) -> bool:
        if self._wanted:  # else it was switched off while it was starting
            error = failure.value
            why = error.message if isinstance(error, APIError) else failure.getErrorMessage()
            self._state_changed(pb.MACHINE_PENDING, "StartFailed", why)
            self._facts.event("Warning", "StartFailed", why)
        return False

    def _note_end(self, ending: Ending) -> tuple[str, str]:
        """
        A machine that powered itself off stays off; any other end was not wanted.

        :return: reason and message of why it is off although it was switched on.
        """
        if not self._wanted:
            return "", ""
        self._facts.event("Normal", "Ended", ending.message)
        if ending.reason == POWERED_OFF:
            self._wanted = False
            return ending.reason, ending.message
        if self._delay_seconds > _FIRST_DELAY_SECONDS:
            # It keeps ending early, and rests longer than it runs.
            self._state_changed(pb.MACHINE_PENDING, "Ended", ending.message)
        return "", ""

    def _plan_delay(self, ran_seconds: float) -> None:
        """Before the next start: the first time little, then twice the last time."""
        last = 0.0 if ran_seconds >= _LONG_RUN_SECONDS else self._delay_seconds
        self._delay_seconds = min(max(_FIRST_DELAY_SECONDS, last * 2), _LONGEST_DELAY_SECONDS)

    async def _wait(self) -> None:
        """Rest before another start; switching off ends the rest."""
        self._rest = deferLater(self._clock, self._delay_seconds)
        try:
            await self._rest
        except CancelledError:
            pass
        finally:
            self._rest = None

    def _failed(self, failure: Failure) -> None:
        """A bug of ours: whoever is there or asks is told; switched off and on it is tried again."""
        self._log.failure("keeping machine {label}", failure=failure, label=self._facts.label)
        self._keeping = None
        session, self.session = self.session, None
        if session is not None:
            session.end(Ending(INTERNAL, _BUG))
        self._state_changed(pb.MACHINE_PENDING, "Failed", f"{_BUG}, see its log")
