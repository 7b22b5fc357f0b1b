"""
One machine under power: it keeps the line open as long as the machine is wanted on.

A machine that ends by itself is started again, at once the first time and then
more and more slowly while it keeps ending early.  Each start is a new session on the same journal:
viewers of the old one have been told how it ended, and whoever comes next sees what was
printed before.

Switching off is gentle where the machine can be asked to end itself: its viewers see it
go down.  And a machine that can outlive the runtime is let go of instead of stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

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

from .interfaces import (
    CannotStart,
    IKept,
    IMachineDriver,
    IRestarting,
    IRun,
    IShutdown,
    MachineFacts,
)
from .processes import Leader

_FIRST_DELAY_SECONDS = 0.1
_LONGEST_DELAY_SECONDS = 30.0
_LONG_RUN_SECONDS = 10.0
_ADOPTED = b"\r\n[the machine runtime was restarted; what the machine printed before is lost]\r\n"
_BUG = "internal error of the machine runtime"


class Keeper:
    """
    Keeps one machine as it is wanted.

    :param state_changed: called with each new ``pb.MachineState``, and the reason (one word) and
        the message when the machine does not run although it was switched on; else they are empty.
    :param adopted: processes of the machine, which runs since before us; none when it does not.
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
        adopted: Sequence[Leader] = (),
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
        self._adopted = adopted
        self._told = ("", "")
        self._asked = self._released = False
        self.is_starting = False
        """Whether it is neither off nor on."""
        self.run: IRun | None = None
        """Of the machine that is on; ``None`` while it is starting or off."""
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

    def power_off(self, ending: Ending, *, gently: bool = False) -> Deferred[None]:
        """
        Stop the machine and tell its viewers why.

        :param gently: a machine that can be asked to end itself is given time for that.
        :return: fires when nothing of it runs any more.
        """
        self._wanted = False
        keeping = self._keeping
        if gently and self.run is not None and IShutdown.providedBy(self.run):
            self._ask(self.run, ending)
        elif self.session is not None:
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

    def release(self, ending: Ending) -> Deferred[None]:
        """
        Tell its viewers why, and let go of the machine, which goes on; one that cannot is stopped.

        :return: fires when nothing is left of what cannot.
        """
        self._released = self.run is not None and IKept.providedBy(self.run)
        return self.power_off(ending)

    def noticed(self, state: int, reason: str, message: str) -> None:
        """What the driver learned of the machine, as of ``MachineFacts.changed``."""
        if self.run is not None and not self._asked:
            self._state_changed(state, reason, message)

    def _ask(self, run: Any, ending: Ending) -> None:
        """Have the machine shut itself down; what is left of it then is stopped."""
        if self._asked:
            return
        self._asked = True
        told = "the guest was asked to shut down"
        self._state_changed(pb.MACHINE_RUNNING, "ShuttingDown", told)
        self._facts.event("Normal", "ShuttingDown", told)
        session = self.session
        assert session is not None
        asking: Deferred[None] = run.shut_down()
        asking.addErrback(lambda failure: self._log.failure("shutting down", failure=failure))
        asking.addBoth(lambda _: session.end(ending))

    async def _keep(self) -> None:
        """Run the machine, again and again, until it is switched off."""
        run, session = self._prepare()
        while session.ending is None:
            began = self._clock.seconds()
            self.is_starting = True
            started = await session.open().addCallbacks(
                self._started, self._not_started, callbackArgs=(run,)
            )
            self.is_starting = False
            ending = await session.when_over()
            self.run = None
            self._plan_delay(self._clock.seconds() - began)
            why = self._note_end(ending) if started else ("", "")
            ended = run
            if self._wanted:
                # Whoever attaches from here on waits for the next line.
                run, session = self._prepare()
            self._asked = False
            await self._leave(ended)
            if session.ending is None:
                await self._wait()
        self.session = self._keeping = None
        if self._released:
            return
        self._state_changed(pb.MACHINE_STOPPED, *why)
        if self._wanted:  # it was switched on again while it was going off
            self.power_on()

    async def _leave(self, run: Any) -> None:
        if self._released:
            run.release()
        else:
            await run.stop()

    def _prepare(self) -> tuple[IRun, Session]:
        driver: Any = self._driver
        if self._adopted:
            run: IRun = driver.adopt(self._facts, self._adopted)
        else:
            run = driver.run(self._facts)
        size = None if self.session is None else self.session.size
        self.session = Session(
            run, self._clock, journal=self.journal, size=size, limits=self._limits
        )
        return run, self.session

    def _started(self, _: object, run: IRun) -> bool:
        self.run = run
        self._told = ("", "")
        self._state_changed(pb.MACHINE_RUNNING, "", "")
        if self._adopted:
            self.journal.append(_ADOPTED)
            told = "Adopted", f"machine {self._facts.label} has been running without us"
        else:
            told = "Started", f"machine {self._facts.label} is running"
        self._adopted = ()
        self._facts.event("Normal", *told)
        return True

    def _not_started(self, failure: Failure) -> bool:
        if self._wanted:  # else it was switched off while it was starting
            error = failure.value
            why = error.message if isinstance(error, APIError) else failure.getErrorMessage()
            reason = error.condition if isinstance(error, CannotStart) else "StartFailed"
            self._state_changed(pb.MACHINE_PENDING, reason, why)
            if self._told != (reason, why):  # it is tried again and again, and told once
                self._told = reason, why
                self._facts.event("Warning", reason, why)
        self._adopted = ()
        return False

    def _note_end(self, ending: Ending) -> tuple[str, str]:
        """
        A machine that powered itself off stays off, and so does one whose driver says so; any
        other end was not wanted.

        :return: reason and message of why it is off although it was switched on.
        """
        if self._asked or not self._wanted:
            return "", ""
        self._facts.event("Normal", "Ended", ending.message)
        if ending.reason == POWERED_OFF or not self._restarts(ending):
            self._wanted = False
            return ending.reason, ending.message
        if self._delay_seconds > _FIRST_DELAY_SECONDS:
            # It keeps ending early, and rests longer than it runs.
            self._state_changed(pb.MACHINE_PENDING, "Ended", ending.message)
        return "", ""

    def _restarts(self, ending: Ending) -> bool:
        driver: Any = self._driver
        return not IRestarting.providedBy(driver) or driver.restarts(ending)

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
        self._keeping = self.run = None
        self.is_starting = False
        session, self.session = self.session, None
        if session is not None:
            session.end(Ending(INTERNAL, _BUG))
        self._state_changed(pb.MACHINE_PENDING, "Failed", f"{_BUG}, see its log")
