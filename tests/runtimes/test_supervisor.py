"""
Tests for :mod:`twisted_exec.runtimes.supervisor`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone, ProcessDone, ProcessTerminated
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.console.doubles import MemoryConsole, MemoryStream
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.console.line import LineEnded
from twisted_exec.console.shared_console_limits import ConsoleLimits
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.journal.interfaces import EventKind
from twisted_exec.journal.journal import Journal
from twisted_exec.runtimes.interfaces import (
    CannotStart,
    IAdoptsMachines,
    IMachineDriver,
    IReleasable,
    IReopenable,
    IRestartPolicy,
    IRun,
    IShutdown,
    MachineFacts,
)
from twisted_exec.runtimes.processes import Leader
from twisted_exec.runtimes.supervisor import Supervisor
from twisted_exec.streaming.interfaces import MACHINE_DELETED, POWERED_OFF, Ending, TerminalSize
from twisted_exec.wire.stream_options import CONSOLE

OFF = Ending(POWERED_OFF, "off")


@implementer(IRun)
class MemoryRun(MemoryConsole):
    """A run whose machine is the test."""

    def __init__(self, driver: MemoryDriver) -> None:
        super().__init__(paced=True, later=driver.later)
        self._driver = driver
        self.stops = 0
        self.stopping: Deferred[None] | None = None

    def stop(self) -> Deferred[None]:
        self.stops += 1
        return succeed(None) if self.stopping is None else self.stopping

    def connect(self, factory: Any) -> Deferred[Any]:
        if self._driver.refuses:
            self._driver.refusals += 1
            raise_ = Deferred()  # type: Deferred[Any]
            raise_.errback(self._driver.refusal)
            return raise_
        return super().connect(factory).addCallback(self._print_early)

    def _print_early(self, line: Any) -> Any:
        if self._driver.early:
            line.dataReceived(self._driver.early)
        return line


@implementer(IMachineDriver)
class MemoryDriver:
    """Makes runs and keeps them."""

    name = "memory"

    def __init__(self) -> None:
        self.runs: list[MemoryRun] = []
        self.later = False
        self.refuses = False
        self.refusal = ServiceUnavailable("no QEMU here")
        self.refusals = 0
        self.early = b""

    def missing(self) -> str:
        return ""

    def run(self, facts: MachineFacts) -> MemoryRun:
        self.runs.append(MemoryRun(self))
        return self.runs[-1]


class SupervisorTests(SynchronousTestCase):
    """Tests for :class:`Supervisor`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.driver = MemoryDriver()
        self.states: list[int] = []
        self.reasons: list[tuple[str, str]] = []
        self.events: list[tuple[str, str, str]] = []
        self.facts = MachineFacts(
            id="m",
            label="default/m",
            hostname="",
            directory="",
            marker=("", ""),
            started=lambda _: None,
            event=lambda *arguments: self.events.append(arguments),
        )
        self.supervisor = Supervisor(self.driver, self.facts, self.clock, self.changed)

    def changed(self, state: int, reason: str, message: str) -> None:
        self.states.append(state)
        self.reasons.append((reason, message))

    @property
    def run_(self) -> MemoryRun:
        """The latest that was connected."""
        return [each for each in self.driver.runs if each.line is not None][-1]

    def attach(self) -> MemoryStream:
        assert self.supervisor.console is not None
        return MemoryStream(self.supervisor.console.viewer())

    def test_on(self) -> None:
        """A machine that is switched on runs; switching on again changes nothing."""
        self.supervisor.power_on()
        self.supervisor.power_on()
        self.assertEqual(len(self.driver.runs), 1)
        self.assertEqual(self.states, [pb.MACHINE_PENDING, pb.MACHINE_RUNNING])
        self.run_.says(b"hello")
        self.assertEqual(self.attach().since(), b"hello")

    def test_early_output(self) -> None:
        """Output from before the line counts as open belongs to the new boot."""
        self.driver.early = b"# "
        self.supervisor.power_on()
        self.run_.says(b"hello")
        self.run_.close(ConnectionDone())
        self.clock.advance(1)
        found = [(boot.number, boot.offset) for boot in self.supervisor.journal.boots()]
        self.assertEqual(found, [(1, 0), (2, 7)])

    def test_off(self) -> None:
        """Power off ends the viewers with the reason, stops the run, and leaves no session."""
        self.supervisor.power_on()
        viewer = self.attach()
        self.successResultOf(self.supervisor.power_off(OFF))
        self.assertEqual(viewer.ending, OFF)
        self.assertEqual(self.run_.stops, 1)
        self.assertIsNone(self.supervisor.console)
        self.assertEqual(self.states[-1], pb.MACHINE_STOPPED)
        self.assertEqual(self.events[1:], [("Normal", "PoweredOff", "off")])
        self.successResultOf(self.supervisor.power_off(OFF))
        self.assertEqual(len(self.events), 2)

    def test_off_takes_time(self) -> None:
        """It is off when nothing of it runs any more, not before."""
        self.supervisor.power_on()
        self.run_.stopping = Deferred()
        off = self.supervisor.power_off(OFF)
        again = self.supervisor.power_off(OFF)
        self.assertNoResult(off)
        self.run_.stopping.callback(None)
        self.successResultOf(off)
        self.successResultOf(again)

    def test_on_while_going_off(self) -> None:
        """The last wish counts: it is started again when it is off."""
        self.supervisor.power_on()
        first = self.run_
        first.stopping = Deferred()
        off = self.supervisor.power_off(OFF)
        self.supervisor.power_on()
        self.assertEqual(len(self.driver.runs), 1)
        first.stopping.callback(None)
        self.successResultOf(off)
        self.assertIsNot(self.run_, first)
        self.assertEqual(self.states[-1], pb.MACHINE_RUNNING)

    def test_ends_by_itself(self) -> None:
        """A command that ends is started again; its viewers got its exit code; the state stays."""
        self.supervisor.power_on()
        viewer = self.attach()
        self.run_.close(ProcessTerminated(exitCode=7))
        assert viewer.ending is not None
        self.assertEqual(viewer.ending.exit_code, 7)
        self.clock.advance(0.1)
        self.assertEqual([each.line is not None for each in self.driver.runs], [True, True])
        self.assertEqual(set(self.states[1:]), {pb.MACHINE_RUNNING})

    def test_attach_while_it_rests(self) -> None:
        """A viewer between two runs reads the old output and waits for the new line."""
        self.supervisor.power_on()
        self.run_.says(b"old ")
        self.run_.close(ProcessTerminated(exitCode=1))
        early = self.attach()
        self.assertTrue(early.input_paused)
        self.clock.advance(0.1)
        self.assertFalse(early.input_paused)
        self.run_.says(b"new")
        self.assertEqual(early.since(), b"old new")

    def test_size_is_kept(self) -> None:
        """The next line has the size that the last one had."""
        self.supervisor.power_on()
        self.attach().viewer.window_changed(TerminalSize(132, 50))
        self.run_.close(ProcessTerminated(exitCode=1))
        self.clock.advance(0.1)
        self.assertEqual(self.run_.sizes, [TerminalSize(132, 50)])

    def test_ends_early_again_and_again(self) -> None:
        """Starts become rarer, up to one in half a minute, and come at once again after a long run."""
        self.supervisor.power_on()
        delays = []
        for _ in range(12):
            self.run_.close(ProcessTerminated(exitCode=1))
            (rest,) = self.clock.getDelayedCalls()
            delays.append(rest.getTime() - self.clock.seconds())
            self.clock.advance(delays[-1] + 0.001)
        for delay, longest in zip(delays, [0.1, 0.2, 0.4, 0.8], strict=False):
            self.assertTrue(longest / 2 <= delay <= longest + 0.001, delays)
        self.assertTrue(15 <= delays[-1] <= 30, delays)
        self.clock.advance(10.001)  # a difference of two times is not exact
        self.run_.close(ProcessTerminated(exitCode=1))
        self.clock.advance(0.101)
        self.assertFalse(self.run_.closed)

    def test_state_while_it_rests(self) -> None:
        """Only a machine that keeps ending early is not running while it rests; it says why."""
        self.supervisor.power_on()
        self.run_.close(ProcessTerminated(exitCode=1))
        self.clock.advance(0.1)
        self.run_.close(ProcessTerminated(exitCode=2))
        self.assertEqual(self.states[-1], pb.MACHINE_PENDING)
        self.assertEqual(self.reasons[-1], ("Ended", "the process ended with exit code 2"))
        self.clock.advance(0.2)
        self.assertEqual(self.states[-1], pb.MACHINE_RUNNING)
        self.assertEqual(self.reasons[-1], ("", ""))

    def test_off_while_it_rests(self) -> None:
        """Switching off ends the rest, and leaves no timer."""
        self.supervisor.power_on()
        self.run_.close(ProcessTerminated(exitCode=1))
        early = self.attach()
        self.successResultOf(self.supervisor.power_off(OFF))
        self.assertEqual(early.ending, OFF)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_off_and_on_while_it_rests(self) -> None:
        """It comes back, with a session that is not over."""
        self.supervisor.power_on()
        self.run_.close(ProcessTerminated(exitCode=1))
        self.supervisor.power_off(OFF)
        self.supervisor.power_on()
        self.clock.advance(1)
        self.assertFalse(self.run_.closed)
        self.assertIsNone(self.attach().ending)

    def test_cannot_start(self) -> None:
        """It stays pending, says why once, and is tried again."""
        self.driver.refuses = True
        self.supervisor.power_on()
        self.assertEqual(set(self.states), {pb.MACHINE_PENDING})
        self.assertEqual(self.reasons[-1], ("StartFailed", "no QEMU here"))
        self.assertEqual(self.events, [("Warning", "StartFailed", "no QEMU here")])
        self.driver.refuses = False
        self.clock.advance(0.1)
        self.assertEqual(self.states[-1], pb.MACHINE_RUNNING)

    def test_why_it_cannot_start(self) -> None:
        """The problem is known from the first failure until the machine starts or is switched on again."""
        self.driver.refuses = True
        self.supervisor.power_on()
        self.assertEqual(self.supervisor.start_problem, "no QEMU here")
        self.clock.advance(0.1)
        self.assertEqual(self.supervisor.start_problem, "no QEMU here")
        self.successResultOf(self.supervisor.power_off(OFF))
        self.driver.later, self.driver.refuses = True, False
        self.supervisor.power_on()
        self.assertEqual(self.supervisor.start_problem, "")

    def test_off_while_starting(self) -> None:
        """Starting is given up, and is no failure."""
        self.driver.later = True
        self.supervisor.power_on()
        self.successResultOf(self.supervisor.power_off(OFF))
        self.assertEqual(self.events, [])
        self.assertEqual(self.states, [pb.MACHINE_PENDING, pb.MACHINE_STOPPED])

    def test_guest_powers_off(self) -> None:
        """A machine that switched itself off stays off until it is switched on."""
        self.supervisor.power_on()
        viewer = self.attach()
        self.run_.close(LineEnded(Ending(POWERED_OFF, "powered itself off")))
        assert viewer.ending is not None
        self.assertEqual(viewer.ending.reason, POWERED_OFF)
        self.clock.advance(100)
        self.assertEqual(self.states[-1], pb.MACHINE_STOPPED)
        self.assertEqual(self.reasons[-1], ("PoweredOff", "powered itself off"))
        self.assertEqual(len(self.driver.runs), 1)
        self.supervisor.power_on()
        self.assertEqual(self.states[-1], pb.MACHINE_RUNNING)

    def test_bug(self) -> None:
        """A machine that cannot be kept says so, its viewers too; it can be switched off and on."""
        self.supervisor.power_on()
        self.run_.stopping = fail(LookupError("ours"))
        self.run_.close(ProcessTerminated(exitCode=1))
        self.assertEqual(len(self.flushLoggedErrors(LookupError)), 1)
        self.assertEqual(self.states[-1], pb.MACHINE_PENDING)
        self.assertEqual(self.reasons[-1][0], "Failed")
        self.assertIsNone(self.supervisor.console)
        self.successResultOf(self.supervisor.power_off(OFF))
        self.assertEqual(self.states[-1], pb.MACHINE_STOPPED)
        self.supervisor.power_on()
        self.assertEqual(self.states[-1], pb.MACHINE_RUNNING)

    def test_deleted_in_every_state(self) -> None:
        """Off for good works from wherever it is."""
        deleted = Ending(MACHINE_DELETED, "deleted")
        for act in (
            lambda: None,
            self.supervisor.power_on,
            lambda: self.run_.close(ProcessTerminated(exitCode=1)),
        ):
            act()
            self.successResultOf(self.supervisor.power_off(deleted))
            self.supervisor.power_on()
        self.successResultOf(self.supervisor.power_off(deleted))
        self.assertEqual(self.clock.getDelayedCalls(), [])


@implementer(IShutdown, IReleasable)
class GentleRun(MemoryRun):
    """A run that supports shutdown and release."""

    def __init__(self, driver: MemoryDriver) -> None:
        super().__init__(driver)
        self.asked: Deferred[None] | None = None
        self.released = 0

    def shut_down(self) -> Deferred[None]:
        self.asked = Deferred()
        return self.asked

    def release(self) -> Deferred[None]:
        self.released += 1
        return succeed(None)


@implementer(IAdoptsMachines)
class GentleDriver(MemoryDriver):
    """A driver of such runs, which can adopt one."""

    adopted: tuple[Leader, ...] = ()

    def run(self, facts: MachineFacts) -> MemoryRun:
        self.runs.append(GentleRun(self))
        return self.runs[-1]

    def adopt(self, facts: MachineFacts, leaders: Any) -> MemoryRun:
        self.adopted = tuple(leaders)
        return self.run(facts)


class GentleTests(SupervisorTests):
    """A machine that supports shutdown and release; otherwise it behaves like any other."""

    def setUp(self) -> None:
        super().setUp()
        self.driver = GentleDriver()
        self.supervisor = Supervisor(self.driver, self.facts, self.clock, self.changed)

    @property
    def gentle(self) -> GentleRun:
        run = self.run_
        assert isinstance(run, GentleRun)
        return run

    def test_asked(self) -> None:
        """Shutdown comes first; viewers stay until it is over and get the reason."""
        self.supervisor.power_on()
        viewer = self.attach()
        off = self.supervisor.power_off(OFF, gently=True)
        self.assertEqual(self.reasons[-1][0], "ShuttingDown")
        self.run_.says(b"going down")
        self.assertEqual(viewer.since(), b"going down")
        self.supervisor.power_off(OFF, gently=True)  # once more changes nothing
        assert self.gentle.asked is not None
        self.gentle.asked.callback(None)
        self.successResultOf(off)
        self.assertEqual(viewer.ending, OFF)
        self.assertEqual(self.states[-1], pb.MACHINE_STOPPED)

    def test_ends_itself(self) -> None:
        """A machine that ends meanwhile is off, and is not restarted."""
        self.supervisor.power_on()
        off = self.supervisor.power_off(OFF, gently=True)
        self.run_.close(LineEnded(Ending(POWERED_OFF, "powered itself off")))
        self.successResultOf(off)
        self.assertEqual(len(self.driver.runs), 1)
        self.assertEqual(self.states[-1], pb.MACHINE_STOPPED)
        self.assertEqual(self.events[-1], ("Normal", "PoweredOff", "powered itself off"))

    def test_on_again(self) -> None:
        """Switched on again while it goes down, it comes up when it is down."""
        self.supervisor.power_on()
        self.supervisor.power_off(OFF, gently=True)
        self.supervisor.power_on()
        self.run_.close(LineEnded(Ending(POWERED_OFF, "powered itself off")))
        self.clock.advance(1)
        self.assertEqual(self.states[-1], pb.MACHINE_RUNNING)

    def test_hurry(self) -> None:
        """Deleted while it goes down, it is ended at once."""
        self.supervisor.power_on()
        self.supervisor.power_off(OFF, gently=True)
        self.successResultOf(self.supervisor.power_off(OFF))
        self.assertEqual(self.run_.stops, 1)

    def test_released(self) -> None:
        """A released machine is not stopped, and its state is not changed."""
        self.supervisor.power_on()
        viewer = self.attach()
        self.successResultOf(self.supervisor.release(OFF, keep=True))
        self.assertEqual((self.gentle.released, self.gentle.stops), (1, 0))
        self.assertEqual(viewer.ending, OFF)
        self.assertEqual(self.states[-1], pb.MACHINE_RUNNING)

    def test_released_while_going_down(self) -> None:
        """A machine that is released while it goes down is not stopped."""
        self.supervisor.power_on()
        self.supervisor.power_off(OFF, gently=True)
        self.successResultOf(self.supervisor.release(OFF, keep=True))
        self.assertEqual((self.gentle.released, self.gentle.stops), (1, 0))

    def test_released_while_starting(self) -> None:
        """A machine that is starting or is being adopted is not stopped either."""
        self.driver.later = True
        self.supervisor.power_on()
        self.successResultOf(self.supervisor.release(OFF, keep=True))
        run = self.driver.runs[-1]
        assert isinstance(run, GentleRun)
        self.assertEqual((run.released, run.stops), (1, 0))

    def test_released_while_it_rests(self) -> None:
        """A machine that has crashed starts with the next runtime."""
        self.supervisor.power_on()
        self.run_.close(ConnectionDone())
        self.successResultOf(self.supervisor.release(OFF, keep=True))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.states[-1], pb.MACHINE_RUNNING)
        self.assertEqual(sum(each.stops for each in self.driver.runs), 1)

    def test_adopted(self) -> None:
        """A running machine is adopted once; its driver knows whether output is missing."""
        leaders = [Leader(1, 2)]
        self.supervisor = Supervisor(
            self.driver, self.facts, self.clock, self.changed, adopted=leaders
        )
        self.supervisor.power_on()
        assert isinstance(self.driver, GentleDriver)
        self.assertEqual(self.driver.adopted, (Leader(1, 2),))
        self.assertIn(("Normal", "Adopted"), [event[:2] for event in self.events])
        self.assertEqual(list(self.supervisor.journal.events(0, 0)), [])
        self.assertEqual(self.supervisor.journal.boots(), ())
        self.driver.adopted = ()
        self.run_.close(ConnectionDone())
        self.clock.advance(1)
        self.assertEqual(self.driver.adopted, ())
        self.assertEqual(self.states[-1], pb.MACHINE_RUNNING)

    def test_noticed(self) -> None:
        """Changes that the driver observes are reported while the machine is on."""
        self.supervisor.noticed(pb.MACHINE_SUSPENDED, "Paused", "x")
        self.assertEqual(self.states, [])
        self.supervisor.power_on()
        self.supervisor.noticed(pb.MACHINE_SUSPENDED, "Paused", "x")
        self.assertEqual(self.reasons[-1], ("Paused", "x"))


@implementer(IReopenable)
class LineRun(MemoryRun):
    """A run of a line that exists without the runtime."""


@implementer(IMachineDriver)
class OneLineDriver(MemoryDriver):
    """Runs of a line."""

    def run(self, facts: MachineFacts) -> MemoryRun:
        self.runs.append(LineRun(self))
        return self.runs[-1]


class LineTests(SynchronousTestCase):
    """Lines that existed before this process."""

    def output(self, printed: bytes) -> list[Any]:
        """
        Read a line whose machine has printed before, twice.

        :return: where its journal has gaps.
        """
        journal, driver, clock = Journal(), OneLineDriver(), Clock()
        if printed:
            journal.append(printed)
        driver.early = b"early"
        facts = MachineFacts("m", "default/m", "", "", ("", ""), lambda _: None, lambda *_: None)
        supervisor = Supervisor(driver, facts, clock, lambda *_: None, journal=journal)
        supervisor.power_on()
        self.assertEqual(journal.end, len(printed) + 5)
        self.successResultOf(supervisor.power_off(OFF))
        supervisor.power_on()
        self.assertEqual(journal.end, len(printed) + 10)
        return [each.offset for each in journal.events(0, journal.end, EventKind.GAP)]

    def test_not_read(self) -> None:
        """What it has printed since an earlier process is missing, before the first new output."""
        self.assertEqual(self.output(b"before"), [6])

    def test_new(self) -> None:
        """Nothing is missing from the journal of a new machine."""
        self.assertEqual(self.output(b""), [])

    def test_far_end_hangs(self) -> None:
        """A line that does not close holds up the stop of the runtime for a short time only."""
        driver, clock = OneLineDriver(), Clock()
        facts = MachineFacts("m", "default/m", "", "", ("", ""), lambda _: None, lambda *_: None)
        supervisor = Supervisor(driver, facts, clock, lambda *_: None)
        supervisor.power_on()
        driver.runs[-1].stopping = closing = Deferred()
        released = supervisor.release(OFF, keep=True)
        clock.advance(1.9)
        self.assertNoResult(released)
        clock.advance(0.1)
        self.successResultOf(released)
        closing.callback(None)
        self.assertEqual(driver.runs[-1].stops, 1)


@implementer(IRestartPolicy)
class PolicyDriver(MemoryDriver):
    """Starts nothing again that ended well."""

    def restarts(self, ending: Ending) -> bool:
        return ending.exit_code != 0


class RestartTests(SupervisorTests):
    """A driver that says what is started again."""

    def setUp(self) -> None:
        super().setUp()
        self.driver = PolicyDriver()
        self.supervisor = Supervisor(self.driver, self.facts, self.clock, self.changed)

    def test_stays_off(self) -> None:
        """A machine that the driver does not restart stays off, with the reason, until power on."""
        self.supervisor.power_on()
        self.run_.close(ProcessDone(0))
        self.clock.advance(60)
        self.assertEqual(self.states[-1], pb.MACHINE_STOPPED)
        self.assertEqual(self.reasons[-1], ("Completed", "the process ended"))
        self.supervisor.power_on()
        self.assertEqual(self.states[-1], pb.MACHINE_RUNNING)

    def test_why(self) -> None:
        """The reason of a failed start is the driver's, posted once for all attempts."""
        self.driver.refuses, self.driver.refusal = True, CannotStart("ImageMissing", "no image")
        self.supervisor.power_on()
        self.clock.pump([1] * 60)
        self.assertEqual(self.reasons[-1], ("ImageMissing", "no image"))
        self.assertEqual([event[1] for event in self.events], ["ImageMissing"])


class WaitingViewersTests(SynchronousTestCase):
    """Viewers at terminals, over the restarts of their machine."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.use(GentleDriver())

    def use(self, driver: MemoryDriver) -> None:
        """Set the driver of the machine, which is switched on."""
        self.driver = driver
        self.states: list[int] = []
        facts = MachineFacts(
            id="m",
            label="default/m",
            hostname="",
            directory="",
            marker=("", ""),
            started=lambda _: None,
            event=lambda *arguments: None,
        )
        self.supervisor = Supervisor(
            driver,
            facts,
            self.clock,
            lambda state, reason, message: self.states.append(state),
            limits=ConsoleLimits(restart_seconds=60),
        )
        self.supervisor.power_on()

    @property
    def run_(self) -> MemoryRun:
        """The latest that was connected."""
        return [each for each in self.driver.runs if each.line is not None][-1]

    def attach(self) -> MemoryStream:
        assert self.supervisor.console is not None
        return MemoryStream(self.supervisor.console.viewer(), options=CONSOLE)

    def test_crash(self) -> None:
        """After a crash the same session sees the next boot, which has a record of its own."""
        viewer = self.attach()
        self.run_.says(b"old ")
        self.run_.close(ProcessTerminated(signal=9))
        viewer.viewer.data_received(b"lost")
        self.clock.advance(0.1)
        viewer.since()
        viewer.viewer.data_received(b"kept")
        self.assertEqual(self.run_.heard(), b"kept")
        self.run_.says(b"new")
        self.assertEqual((viewer.since(), viewer.ending), (b"new", None))
        boots = [(boot.number, boot.offset) for boot in self.supervisor.journal.boots()]
        self.assertEqual(boots, [(1, 0), (2, 4)])

    def test_exit(self) -> None:
        """A command that ends itself ends the session with its code; the next start is a new console."""
        viewer = self.attach()
        self.run_.close(ProcessTerminated(exitCode=3))
        assert viewer.ending is not None
        self.assertEqual(viewer.ending.exit_code, 3)
        late = self.attach()
        self.clock.advance(0.1)
        self.run_.says(b"# ")
        self.assertEqual(late.since(), b"# ")

    def test_no_restart(self) -> None:
        """A machine that its driver does not restart ends the session at once."""
        self.use(NoRestart())
        viewer = self.attach()
        self.run_.close(ProcessTerminated(signal=9))
        assert viewer.ending is not None
        self.assertEqual(viewer.ending.exit_code, 137)

    def test_guest_powers_off(self) -> None:
        """So does a machine that has switched itself off."""
        viewer = self.attach()
        self.run_.close(LineEnded(Ending(POWERED_OFF, "powered itself off")))
        self.assertEqual(viewer.ending, Ending(POWERED_OFF, "powered itself off"))

    def test_power_cycle(self) -> None:
        """A session waits while the machine is off, and goes on when it is on again."""
        for gentle in (True, False):
            self.use(GentleDriver() if gentle else MemoryDriver())
            viewer = self.attach()
            off = self.supervisor.power_off(OFF, gently=True)
            if gentle:
                self.run_.says(b"going down")
                self.run_.close(LineEnded(Ending(POWERED_OFF, "powered itself off")))
            self.successResultOf(off)
            self.assertTrue(self.supervisor.is_off)
            self.assertEqual(self.states[-1], pb.MACHINE_STOPPED)
            self.clock.advance(30)
            self.supervisor.power_on()
            self.assertFalse(self.supervisor.is_off)
            viewer.since()
            self.run_.says(b"# ")
            self.assertEqual((viewer.since(), viewer.ending), (b"# ", None))

    def test_stays_off(self) -> None:
        """After its time the session ends with the reason."""
        viewer = self.attach()
        self.supervisor.power_off(OFF, gently=True)
        asked = self.run_
        assert isinstance(asked, GentleRun) and asked.asked is not None
        asked.asked.callback(None)
        self.clock.advance(59)
        self.assertIsNone(viewer.ending)
        self.clock.advance(1)
        self.assertEqual(viewer.ending, OFF)
        self.supervisor.power_on()
        self.assertEqual(self.states[-1], pb.MACHINE_RUNNING)

    def test_on_while_going_off(self) -> None:
        """A machine that is switched on while it goes off keeps its sessions."""
        viewer = self.attach()
        self.supervisor.power_off(OFF, gently=True)
        self.supervisor.power_on()
        self.run_.close(LineEnded(Ending(POWERED_OFF, "powered itself off")))
        self.clock.advance(1)
        self.run_.says(b"# ")
        self.assertIsNone(viewer.ending)
        self.assertTrue(viewer.since().endswith(b"# "))

    def test_off_while_it_rests(self) -> None:
        """A machine that is switched off after a crash is not started, and its sessions wait."""
        viewer = self.attach()
        self.run_.close(ProcessTerminated(signal=9))
        self.successResultOf(self.supervisor.power_off(OFF, gently=True))
        self.clock.advance(30)
        self.assertTrue(self.run_.closed)
        self.clock.advance(30)
        self.assertEqual(viewer.ending, OFF)

    def test_deleted(self) -> None:
        """Deletion ends sessions at once, in every state."""
        deleted = Ending(MACHINE_DELETED, "deleted")
        for act in (
            lambda: None,
            lambda: self.run_.close(ProcessTerminated(signal=9)),
            lambda: self.supervisor.power_off(OFF, gently=True),
        ):
            self.use(MemoryDriver())
            viewer = self.attach()
            act()
            self.successResultOf(self.supervisor.power_off(deleted))
            self.assertEqual(viewer.ending, deleted)
            self.assertIsNone(self.supervisor.console)
            self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_cannot_start(self) -> None:
        """Failed attempts end no session before its time, and are repeated after it."""
        viewer = self.attach()
        self.driver.refuses = True
        self.run_.close(ProcessTerminated(signal=9))
        self.clock.pump([1] * 59)
        self.assertIsNone(viewer.ending)
        self.assertEqual(self.supervisor.start_problem, "no QEMU here")
        self.clock.advance(1)
        assert viewer.ending is not None
        self.assertEqual(viewer.ending.exit_code, 137)
        self.driver.refuses = False
        self.clock.advance(30)
        self.assertEqual(self.states[-1], pb.MACHINE_RUNNING)
        self.assertIsNone(self.attach().ending)


@implementer(IRestartPolicy)
class NoRestart(MemoryDriver):
    """Starts nothing again."""

    def restarts(self, ending: Ending) -> bool:
        return False
