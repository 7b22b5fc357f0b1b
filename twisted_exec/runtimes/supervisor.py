"""
The supervisor of one machine.

The supervisor restarts a machine that ends although it should be on, with exponential back-off. A
machine that powers itself off, or that the driver does not restart, stays off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.conditions import SERVER_OFF
from twisted_exec.api.status import APIError, message_of
from twisted_exec.console.acts import Act, ignore
from twisted_exec.console.interfaces import IConsoleRecorder, IRecoveringTransport
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.console.shared_console_limits import DEFAULT_LIMITS, ConsoleLimits
from twisted_exec.control.backoff import Backoff
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.journal.interfaces import IJournal
from twisted_exec.journal.journal import Journal
from twisted_exec.runtimes.interfaces import (
    CannotStart,
    IJournalWriter,
    IMachineDriver,
    IReleasable,
    IReopenable,
    IRestartPolicy,
    IRun,
    IRunsHostProcesses,
    IShutdown,
    MachineFacts,
)
from twisted_exec.runtimes.processes import Leader
from twisted_exec.streaming.interfaces import INTERNAL, POWERED_OFF, Ending

_FIRST_DELAY_SECONDS = 0.1
_LONGEST_DELAY_SECONDS = 30.0
_LONG_RUN_SECONDS = 10.0
_FIRST_ASK_SECONDS = 1.0
_LONGEST_ASK_SECONDS = 30.0
"""Longest pause before a server that could not be powered off is asked again."""
_LINE_SECONDS = 2.0
"""Longest wait for a line at the stop of the runtime."""
_MOST_PROBLEMS = 10
"""Limit for the Events of one power-off: a BMC may refuse with other words each time."""
_BUG = "internal error of the machine runtime"

_SHUTTING_DOWN = "ShuttingDown"
_ASKING = "its server is being asked to shut down"
_ASKED = "the guest was asked to shut down"
_CONSOLE_CLOSED = "ConsoleClosed"
_ON_AGAIN = "the server is on again"
_NEW_PROCESS = b"\r\n[the process has ended; a new one starts]\r\n"


class _Course(Enum):
    """What follows the present run of a machine."""

    RESTART = "the machine starts again, unless its driver lets it stay off"
    STOP = "the machine stays off"
    SHUT_DOWN = "the machine stays off, and its guest was asked to shut down"
    RELEASE = "the machine runs on without this process"


@dataclass
class _PowerOff:
    """
    The power-off of a machine that goes on until it is switched off.

    It lasts until the machine is off, shall be on again, or is deleted.

    :ivar why: reason and message of the condition of a machine that is not off yet; empty if it shall be on again.
    :ivar has_event: its Event ``ShuttingDown`` was posted.
    :ivar waiters: called at its end.
    """

    why: tuple[str, str] = (_SHUTTING_DOWN, _ASKING)
    has_event: bool = False
    waiters: list[Deferred[None]] = field(default_factory=list)
    work: Deferred[None] = field(default_factory=Deferred)


class Supervisor:
    """
    Keeps one machine on or off.

    :ivar console: the console; ``None`` while the machine is off, unless viewers may wait there.
    """

    _log = Logger()

    def __init__(
        self,
        driver: IMachineDriver,
        facts: MachineFacts,
        clock: IReactorTime,
        state_changed: Callable[[int, str, str], None],
        *,
        limits: ConsoleLimits = DEFAULT_LIMITS,
        journal: IJournal | None = None,
        adopted: Sequence[Leader] | None = None,
        acted: Callable[[Act], None] = ignore,
        recorder: IConsoleRecorder | None = None,
        answers_queries: bool = False,
    ) -> None:
        self._driver = driver
        self._answers_queries = answers_queries
        self._acted, self._recorder = acted, recorder
        self._facts = facts
        self._clock = clock
        self._state_changed = state_changed
        self._limits = limits
        self.journal = Journal() if journal is None else journal
        self._keeping: Deferred[None] | None = None
        self._should_run = False
        self._rest: Deferred[None] | None = None
        self._backoff = Backoff(_FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS)
        self._ends = 0  # since power on, or the last long run
        self._adopted = adopted
        self._start_problem = ("", "")
        self._is_boot = False  # the next output is that of a new boot
        self._is_unread = True  # this process has not read the machine's output yet
        self._course = _Course.RESTART
        self._condition: tuple[int, str, str] = (
            pb.MACHINE_PENDING,
            "",
            "",
        )  # but for a request for power-off
        self._power_off: _PowerOff | None = None
        self._found_off = ""  # what to do, of a machine that is to be on
        self.is_starting = False
        self.run: IRun | None = None
        self._opening: Any = None  # the run whose line is being opened, or was last
        self.console: SharedConsole | None = None

    @property
    def start_problem(self) -> str:
        """Why the last start failed; empty if it did not."""
        return self._start_problem[1]

    @property
    def is_on(self) -> bool:
        """True until the machine is to be off, and is: also while it waits for its next start."""
        return self._should_run or self._power_off is not None

    @property
    def is_off(self) -> bool:
        """True if the machine is switched off and its line is closed."""
        return not self.is_on and (self.console is None or not self.console.is_live)

    @property
    def switches_power(self) -> bool:
        """False if a power-off only closes the machine's line."""
        run = self.run or self._opening or self._driver.run(self._facts)
        return IShutdown.providedBy(run) or not IReopenable.providedBy(run)

    def power_on(self) -> None:
        self._should_run = True
        if self._power_off is not None and self._rest is not None:
            self._rest.cancel()  # a request that has failed is not repeated
        if self._keeping is not None:
            return
        self._begin_anew()
        self._start_problem = ("", "")
        self._report(pb.MACHINE_PENDING, "", "")
        keeping = Deferred.fromCoroutine(self._keep())
        keeping.addErrback(self._failed)
        self._keeping = None if keeping.called else keeping

    def power_off(self, ending: Ending, *, gently: bool = False) -> Deferred[None]:
        """
        Stop the machine.

        :param ending: the status of its viewers.
        :param gently: request a shutdown first, if the machine supports that, and let its viewers
            wait for the next start. A machine that exists without the runtime goes on until it is off.
        :return: fires when the machine has stopped.
        """
        self._should_run = False
        keeping = self._keeping
        is_asked = False
        if self._course is _Course.RESTART:
            is_asked = gently and keeping is not None and self._is_switched()
            self._course = _Course.RESTART if is_asked else _Course.STOP
        if self._power_off is not None and not gently:
            self._power_off.work.cancel()
        if is_asked:
            self._ask(ending)
        elif gently and self.run is not None and IShutdown.providedBy(self.run):
            self._shut_down(self.run, ending)
        elif self.console is not None and not gently:
            self.console.end(ending)
            if keeping is None:
                self.console = None
        elif self.console is not None and keeping is not None:
            self.console.interrupt(ending)
        if self._rest is not None and not is_asked:
            self._rest.cancel()
        stopped: Deferred[None] = Deferred()
        if keeping is None:
            self._state_changed(pb.MACHINE_STOPPED, "", "")
            stopped.callback(None)
        else:
            keeping.addBoth(lambda _: stopped.callback(None))
        return stopped

    def release(self, ending: Ending, *, keep: bool) -> Deferred[None]:
        """
        End the viewers, and let go of the machine, because the runtime stops.

        :param keep: leave the machine running, or starting, if it can outlive the runtime; otherwise
            stop it.
        :return: fires when the machine is released or stopped; for a line after a short time at the
            latest, because its far end may hang.
        """
        run = self.run or self._opening
        if keep and IReleasable.providedBy(run):
            self._course = _Course.RELEASE
        released = self.power_off(ending)
        if IReopenable.providedBy(run):
            released.addTimeout(_LINE_SECONDS, self._clock)
            released.addErrback(lambda failure: failure.trap(TimeoutError) and None)
        return released

    def noticed(self, state: int, reason: str, message: str) -> None:
        if self.run is not None and self._course is not _Course.SHUT_DOWN:
            self._report(state, reason, message)

    def found_off(self, message: str) -> None:
        """See :class:`.MachineFacts`."""
        if not self._should_run or message == self._found_off:
            return
        self._found_off = message
        self._report(*self._condition)
        is_running = self._condition[0] == pb.MACHINE_RUNNING
        if not message and is_running and self.console is not None:
            self.console.tell(_ON_AGAIN)

    def _report(self, state: int, reason: str, message: str) -> None:
        """
        Note the state of the machine.

        Why it is not off as it is to be comes first, and that it is off although it is to be on last.
        """
        self._condition = (state, reason, message)
        off = self._found_off if state == pb.MACHINE_RUNNING else ""  # else it is being switched on
        why_on = ("", "") if self._power_off is None else self._power_off.why
        problems = (why_on, (reason, message), (off and SERVER_OFF, off))
        self._state_changed(state, *next((each for each in problems if each[0]), ("", "")))
        if self.console is not None:
            self.console.announce(off)

    # Power off.

    def _is_switched(self) -> bool:
        """Return whether the machine goes on behind the end of its run, until it is switched off."""
        run = self.run or self._opening
        return IShutdown.providedBy(run) and IReopenable.providedBy(run)

    def _ask(self, ending: Ending) -> None:
        if self._power_off is not None:
            return
        power_off = self._power_off = _PowerOff()  # a run may answer at once
        self._report(*self._condition)
        if self._rest is not None:
            self._rest.cancel()
        work = power_off.work = Deferred.fromCoroutine(self._until_off(power_off, ending))
        work.addErrback(lambda failure: failure.trap(CancelledError))
        work.addErrback(lambda failure: self._log.failure("powering off", failure=failure))
        work.addCallback(lambda _: self._asked(power_off))

    def _asked(self, power_off: _PowerOff) -> None:
        self._power_off = None
        for waiter in power_off.waiters:
            waiter.callback(None)

    async def _when_asked(self) -> None:
        """Wait until the machine is off, or is no longer to be off."""
        if self._power_off is not None:
            waiter: Deferred[None] = Deferred()
            self._power_off.waiters.append(waiter)
            await waiter

    def shutting_down(self) -> None:
        """See :class:`.MachineFacts`."""
        power_off = self._power_off
        if power_off is not None:
            self._note_why_on(power_off, _SHUTTING_DOWN, _ASKED)
            if not power_off.has_event:
                power_off.has_event = True
                self._facts.event("Normal", _SHUTTING_DOWN, _ASKED)

    async def _when_off(self, run: IRun) -> None:
        """Let a request for power-off end before a start, which would switch the machine on."""
        await self._when_asked()
        if self._is_ending:
            await self._leave(run)  # it may have claimed its line for the request

    async def _until_off(self, power_off: _PowerOff, ending: Ending) -> None:
        """Request a shutdown until the machine is off, or is to be on again."""
        backoff = Backoff(_FIRST_ASK_SECONDS, _LONGEST_ASK_SECONDS)
        problems: set[str] = set()
        while why := await self._problem_of_shutdown():
            if not (self._should_run or self._is_ending):
                message = f"{why}; it may be on; trying again"
                self._note_why_on(power_off, "PowerFailed", message)
                if why not in problems and len(problems) < _MOST_PROBLEMS:
                    problems.add(why)
                    self._facts.event("Warning", "PowerFailed", why)
                await self._wait(backoff)
            if self._is_ending:  # deleted, or the runtime stops: it is not asked again
                return
            if self._should_run:
                self._note_why_on(power_off, "", "")
                return
        if self._is_ending:
            return
        self._course = _Course.SHUT_DOWN
        if self.run is None:
            self._facts.event("Normal", POWERED_OFF, ending.message)
        if self.console is not None:
            self.console.interrupt(ending)

    async def _problem_of_shutdown(self) -> str:
        """Request a shutdown; return why the machine is not known to be off."""
        run: Any = self.run or self._opening
        try:
            await run.shut_down()
        except CancelledError:
            raise
        except APIError as problem:
            return f"the server could not be powered off: {problem.message}"
        except Exception:
            self._log.failure("powering off {label}", label=self._facts.label)
            return f"the server could not be powered off: {_BUG}, see its log"
        return ""

    def _note_why_on(self, power_off: _PowerOff, reason: str, message: str) -> None:
        power_off.why = (reason, message)
        self._report(*self._condition)

    def _shut_down(self, run: Any, ending: Ending) -> None:
        if self._course in (_Course.SHUT_DOWN, _Course.RELEASE):
            return
        self._course = _Course.SHUT_DOWN
        self._state_changed(pb.MACHINE_RUNNING, _SHUTTING_DOWN, _ASKED)
        self._facts.event("Normal", _SHUTTING_DOWN, _ASKED)
        console = self.console
        assert console is not None
        shutdown: Deferred[None] = run.shut_down()
        shutdown.addErrback(lambda failure: self._log.failure("shutting down", failure=failure))
        shutdown.addBoth(lambda _: console.interrupt(ending))

    async def _keep(self) -> None:
        # Not a PokedLoop: one round is a whole life of the machine, from its start to its end.
        self._course = _Course.RESTART
        why = ("", "")
        run, console = self._prepare()
        while not self._is_ending:
            if self._power_off is not None:
                await self._when_off(run)
                continue
            began = self._clock.seconds()
            self.is_starting = True
            started = await console.open().addCallbacks(
                self._started, self._not_started, callbackArgs=(run,)
            )
            self.is_starting = False
            ending = await console.when_line_over()
            await self._when_asked()
            ended, self.run = run, None
            if self._clock.seconds() - began >= _LONG_RUN_SECONDS:
                self._begin_anew()
            self._ends += 1
            why = self._note_end(ending) if started else ("", "")
            if self._should_run and not self._is_ending:
                # Viewers that attach from here on wait for the next line.
                run, console = self._prepare()
            elif self._course is not _Course.RELEASE:
                self._course = _Course.STOP
            await self._leave(ended)
            if not self._is_ending and self._power_off is None:
                await self._wait(self._backoff)
        self._keeping = None
        if self.console is not None and self.console.ending is not None:
            self.console = None
        if self._course is _Course.RELEASE:
            return
        self._state_changed(pb.MACHINE_STOPPED, *why)
        if self._should_run:  # switched on again during power off
            self.power_on()

    @property
    def _is_ending(self) -> bool:
        return self._course is not _Course.RESTART

    async def _leave(self, run: Any) -> None:
        await (run.release() if self._course is _Course.RELEASE else run.stop())

    def _prepare(self) -> tuple[IRun, SharedConsole]:
        self._found_off = ""  # its run looks anew
        driver: Any = self._driver
        if self._adopted is not None:
            run: IRun = driver.adopt(self._facts, self._adopted)
        else:
            run = driver.run(self._facts)
        self._opening = run
        # A line that recovers leads to a machine that runs anyway.
        is_new_boot = self._adopted is None and not IRecoveringTransport.providedBy(run)
        self._is_boot = is_new_boot and not IJournalWriter.providedBy(run)
        console = self.console
        if console is not None and console.ending is None:
            console.use(run)
            console.is_new_boot = is_new_boot
            return run, console
        console = self.console = SharedConsole(
            run,
            self._clock,
            journal=self.journal,
            size=None if console is None else console.size,
            limits=self._limits,
            before_output=self._begin_output,
            acted=self._acted,
            restarts=self._restarts_after,
            recorder=self._recorder,
            answers_queries=self._answers_queries,
        )
        console.is_new_boot = is_new_boot
        return run, console

    def _begin_output(self) -> None:
        """Record what is between the output so far and that of this run."""
        is_unread, self._is_unread = self._is_unread, False
        if is_unread and IReopenable.providedBy(self._opening) and self.journal.end:
            self.journal.lost()
        if self._is_boot:
            self._is_boot = False
            is_first = not self.journal.end
            self.journal.booted("Started")
            # A shell prints only its prompt, which looks like that of the former shell.
            if IRunsHostProcesses.providedBy(self._driver) and not is_first:
                self.journal.append(_NEW_PROCESS)

    def _started(self, _: object, run: IRun) -> bool:
        self.run = run
        self._start_problem = ("", "")
        self._report(pb.MACHINE_RUNNING, "", "")
        label = self._facts.label
        if self._adopted is not None:
            self._is_unread = False
            reason, message = "Adopted", f'machine "{label}" has been running without the runtime'
        else:
            reason, message = "Started", f'machine "{label}" is running'
            self._begin_output()
        self._adopted = None
        self._facts.event("Normal", reason, message)
        return True

    def _not_started(self, failure: Failure) -> bool:
        if self._should_run:  # else the start was cancelled
            error = failure.value
            why = error.message if isinstance(error, APIError) else message_of(error)
            reason = error.condition if isinstance(error, CannotStart) else "StartFailed"
            self._report(pb.MACHINE_PENDING, reason, why)
            if self._start_problem != (reason, why):  # one Event for many attempts
                self._start_problem = reason, why
                self._facts.event("Warning", reason, why)
        self._adopted = None
        return False

    def _note_end(self, ending: Ending) -> tuple[str, str]:
        """Decide whether the machine stays off; if so, return the reason and a message."""
        if not self._should_run and ending.reason == POWERED_OFF:
            reason = POWERED_OFF if self.switches_power else _CONSOLE_CLOSED
            self._facts.event("Normal", reason, ending.message)
        if self._course is _Course.SHUT_DOWN or not self._should_run:
            return "", ""
        self._facts.event("Normal", "Ended", ending.message)
        if ending.reason == POWERED_OFF or not self._restarts(ending):
            self._should_run = False
            return ending.reason, ending.message
        if self._ends > 1:
            # It keeps ending early, and spends more time in back-off than running.
            self._report(pb.MACHINE_PENDING, "Ended", ending.message)
        return "", ""

    def _restarts_after(self, ending: Ending, has_exited: bool) -> bool:
        if self._course is _Course.SHUT_DOWN:
            return True
        if has_exited or ending.reason == POWERED_OFF:
            return False
        return self._should_run and self._restarts(ending)

    def _restarts(self, ending: Ending) -> bool:
        driver: Any = self._driver
        return not IRestartPolicy.providedBy(driver) or driver.restarts(ending)

    def _begin_anew(self) -> None:
        self._backoff.reset()
        self._ends = 0

    async def _wait(self, backoff: Backoff) -> None:
        self._rest = deferLater(self._clock, backoff.pause())
        try:
            await self._rest
        except CancelledError:
            pass
        finally:
            self._rest = None

    def _failed(self, failure: Failure) -> None:
        self._log.failure("keeping machine {label}", failure=failure, label=self._facts.label)
        self._keeping = self.run = None
        self.is_starting = False
        console, self.console = self.console, None
        if console is not None:
            console.end(Ending(INTERNAL, _BUG))
        self._state_changed(pb.MACHINE_PENDING, "Failed", f"{_BUG}, see its log")
