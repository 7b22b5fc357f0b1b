"""
Tests for :mod:`twisted_exec.runtimes.lines.shared_line`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.endpoints import clientFromString
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from zope.interface import alsoProvides

from tests.console.doubles import MemoryStream
from tests.runtimes.peers import reactor
from tests.runtimes.support import RuntimeCase
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.console.notices import outage_of
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.console.shared_console_limits import ConsoleLimits
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.journal.interfaces import EventKind
from twisted_exec.journal.journal import Journal
from twisted_exec.runtimes.interfaces import CannotStart, IProbed, IShutdown
from twisted_exec.runtimes.lines.layer import LayeredEndpoint, LineLayer
from twisted_exec.runtimes.lines.shared_line import DEFAULT_TIMING, LineTiming, SharedLine
from twisted_exec.streaming.interfaces import LINE_LOST, Ending, IBreakable, TerminalSize
from twisted_exec.testing.drivers import QUICK, ConsoleContract, Far, Line, silent

LOST = b"[twisted-exec: the console line was lost"
BACK = b"[twisted-exec: the console line is back]"


class Switch:
    """A power switch that records its use."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def on(self) -> None:
        self.calls.append("on")

    async def off(self) -> None:
        self.calls.append("off")


class CountingJournal(Journal):
    """Counts the calls of ``lost``, which on a disk each begin a file."""

    losses = 0

    def lost(self) -> None:
        self.losses += 1
        super().lost()


class Endpoint:
    """
    An endpoint that can be replaced.

    :ivar links: the protocols that it has connected.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.links: list[Any] = []

    def connect(self, factory: Any) -> Deferred[Any]:
        def connected(link: Any) -> Any:
            self.links.append(link)
            return link

        connecting: Deferred[Any] = self.inner.connect(factory)
        return connecting.addCallback(connected)


class SharedLineCase(RuntimeCase):
    """Lines to a far end in this process."""

    def setUp(self) -> None:
        super().setUp()
        self.released: list[str] = []
        self.journal = CountingJournal()

    def run_of(
        self, endpoint: str, timing: LineTiming = QUICK, *, clock: Any = reactor, **options: Any
    ) -> SharedLine:
        self.opened = Endpoint(clientFromString(reactor, endpoint))
        run = SharedLine(
            replace(self.facts(), journal=self.journal),
            clock,
            lambda: ("line-1", self.opened),
            lambda: self.released.append("line-1"),
            timing=timing,
            **options,
        )
        self.addCleanup(run.stop)
        return run

    async def line(self, run: SharedLine) -> Line:
        line: Line = await run.connect(Factory.forProtocol(Line))
        return line


class ContractTests(ConsoleContract, SharedLineCase):
    """A line that exists is a console."""

    provoke = b"hello"
    answer = b"hello"

    def make_console(self) -> SharedLine:
        if not os.path.exists(os.path.join(self.directory, "far")):
            self.endpoint = self.far().endpoint
        return self.run_of(self.endpoint)

    def clean(self, console: SharedLine) -> Any:
        return console.stop()


class OpenTests(SharedLineCase):
    """Power on and off."""

    async def test_not_there(self) -> None:
        """A line that cannot be opened is reported by name, with the reason."""
        run = self.run_of(f"unix:{self.directory}/nobody")
        with self.assertRaises(CannotStart) as caught:
            await self.line(run)
        self.assertEqual(caught.exception.condition, "LineFailed")
        self.assertIn('line "line-1": ', caught.exception.message)
        self.assertIn("No such file", caught.exception.message)
        await run.stop()
        self.assertEqual(self.released, ["line-1"])

    async def test_reason(self) -> None:
        """The reason of an endpoint is that of the machine, with the line's name in its message."""
        run = self.run_of(self.far().endpoint)
        self.opened.inner = Refusing(CannotStart("LoginRefused", "the password is wrong"))
        with self.assertRaises(CannotStart) as caught:
            await self.line(run)
        self.assertEqual(caught.exception.condition, "LoginRefused")
        self.assertEqual(caught.exception.message, 'line "line-1": the password is wrong')

    async def test_slow(self) -> None:
        """An attempt that takes too long is cancelled."""
        run = self.run_of(self.far().endpoint, LineTiming(open_seconds=0.02))
        self.opened.inner = Never()
        with self.assertRaises(CannotStart) as caught:
            await self.line(run)
        self.assertIn("could not be opened in", caught.exception.message)

    async def test_stop(self) -> None:
        """Power off closes the line, and gives it back."""
        far = self.far()
        run = self.run_of(far.endpoint)
        line = await self.line(run)
        await self.until(lambda: far.peers)
        await run.stop()
        await self.until(lambda: far.peer.gone)
        self.assertEqual(len(line.lost), 1)
        self.assertEqual(self.released, ["line-1"])
        self.assertEqual(self.events, [])

    async def test_stop_while_full(self) -> None:
        """A peer that reads nothing does not delay the stop."""
        far = self.far(silent)
        line = await self.line(
            self.run_of(far.endpoint, LineTiming(open_seconds=600, close_seconds=0.05))
        )
        await self.until(lambda: far.peers)
        far.peer.transport.pauseProducing()
        line.transport.write(bytes(8 << 20))
        await line.transport.stop()
        self.assertEqual(len(line.lost), 1)

    async def test_power(self) -> None:
        """The machine's own switch is used before the line is opened, and when it shall be off."""
        switch = Switch()
        run = self.run_of(self.far().endpoint, power=switch)
        line = await self.line(run)
        self.assertEqual(switch.calls, ["on"])
        await run.shut_down()
        self.assertEqual((switch.calls, line.lost), (["on", "off"], []))

    async def test_let_go(self) -> None:
        """A machine that is only deleted, or whose runtime stops, is not switched off."""
        switch = Switch()
        run = self.run_of(self.far().endpoint, power=switch)
        await self.line(run)
        await run.stop()
        self.assertEqual(switch.calls, ["on"])
        self.assertTrue(IShutdown.providedBy(run))
        self.assertFalse(IShutdown.providedBy(self.run_of("unix:x")))

    async def test_stop_while_switched_on(self) -> None:
        """Power off is over when what the switch has begun is gone, such as a process."""
        slow = Slow()
        run = self.run_of(f"unix:{self.directory}/nobody", power=slow)
        connecting = run.connect(Factory.forProtocol(Line))
        connecting.cancel()
        stopping = run.stop()
        self.assertNoResult(stopping)
        slow.leave()
        await stopping
        self.failureResultOf(connecting, CancelledError)
        self.assertEqual(self.released, ["line-1"])

    async def test_no_break(self) -> None:
        """A line without BREAK does not promise it."""
        self.assertFalse(IBreakable.providedBy(self.run_of("unix:x")))
        self.assertTrue(IBreakable.providedBy(self.run_of("unix:x", breakable=True)))


class Never:
    """An endpoint to nowhere."""

    def connect(self, factory: Any) -> Deferred[Any]:
        return Deferred()


class Refusing:
    """An endpoint that fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.tries = 0

    def connect(self, factory: Any) -> Deferred[Any]:
        self.tries += 1
        return fail(self.error)


class Wordy:
    """An endpoint that fails with another text each time."""

    def __init__(self) -> None:
        self.tries = 0

    def connect(self, factory: Any) -> Deferred[Any]:
        self.tries += 1
        return fail(ServiceUnavailable(f"refusal {self.tries}"))


class Slow:
    """An endpoint, and a power switch, that takes its time, also to give up."""

    def __init__(self) -> None:
        self.tries = 0
        self._leaving: Deferred[None] = Deferred()

    def connect(self, factory: Any) -> Deferred[Any]:
        return Deferred.fromCoroutine(self.on())

    async def on(self) -> Any:
        self.tries += 1
        try:
            await Deferred()
        finally:
            await self._leaving

    def leave(self) -> None:
        self._leaving.callback(None)


class LostTests(SharedLineCase):
    """A line that is lost while the machine is on."""

    async def test_back(self) -> None:
        """Viewers read that it was lost and is back; the state, its reason and two events say it too."""
        far = self.far()
        line = await self.line(self.run_of(far.endpoint))
        await self.until(lambda: far.peers)
        far.peer.transport.loseConnection()
        await line.until(LOST)
        await line.until(BACK)
        line.transport.write(b"again")
        await line.until(b"again")
        self.assertEqual(line.lost, [])
        self.assertEqual(self.reasons(), ["LineLost", "LineBack"])
        (state, reason, message), *_, last = self.changes
        self.assertEqual((state, reason), (pb.MACHINE_RUNNING, "LineLost"))
        self.assertIn('line "line-1" was lost', message)
        self.assertEqual(last, (pb.MACHINE_RUNNING, "", ""))

    async def test_reason(self) -> None:
        """The reason of an endpoint that cannot be reached again is that of the machine's condition."""
        far = self.far()
        line = await self.line(self.run_of(far.endpoint))
        await self.until(lambda: far.peers)
        inner, self.opened.inner = self.opened.inner, Refusing(CannotStart("LoginRefused", "no"))
        far.peer.transport.loseConnection()
        await self.until(lambda: len(self.changes) == 2)
        told = 'line "line-1": no; trying again'
        self.assertEqual(self.changes[1], (pb.MACHINE_RUNNING, "LoginRefused", told))
        self.opened.inner = inner
        await line.until(BACK)
        self.assertEqual(self.changes[2:], [(pb.MACHINE_RUNNING, "", "")])

    async def test_other_reasons(self) -> None:
        """Each new reason, not each attempt, is an Event, a notice and the condition."""
        far = self.far()
        run = self.run_of(far.endpoint)
        line = await self.line(run)
        await self.until(lambda: far.peers)
        inner = self.opened.inner
        far.peer.transport.loseConnection()
        for why in ("the key is new", "the password is wrong"):
            refusing = self.opened.inner = Refusing(CannotStart("LoginRefused", why))
            await self.until(lambda: refusing.tries >= 3)  # noqa: B023
            self.assertEqual(self.events[-1][1:], ("LoginRefused", f'line "line-1": {why}'))
            self.assertEqual(line.got.count(f"was lost: {why};".encode()), 1)
            self.assertEqual(run.outage, f'line "line-1": {why}')
        self.opened.inner = inner
        await line.until(BACK)
        expected = ["LineLost", "LoginRefused", "LoginRefused", "LineBack"]
        self.assertEqual((self.reasons(), len(self.changes)), (expected, 4))

    async def test_many_reasons(self) -> None:
        """A peer that refuses with other words each time has few Events and notices; the condition has the last words."""
        far = self.far()
        run = self.run_of(far.endpoint, replace(QUICK, longest_delay_seconds=0.01))
        line = await self.line(run)
        await self.until(lambda: far.peers)
        inner = self.opened.inner
        refusing = self.opened.inner = Wordy()
        far.peer.transport.loseConnection()
        await self.until(lambda: refusing.tries >= 15)
        self.assertEqual((self.reasons(), line.got.count(LOST)), (["LineLost"] * 10, 10))
        self.assertEqual(run.outage, f'line "line-1": refusal {refusing.tries}')
        self.opened.inner = inner
        await line.until(BACK)
        self.assertEqual(self.reasons()[10:], ["LineBack"])
        far.peer.transport.loseConnection()
        await self.until(lambda: len(self.reasons()) > 11)
        self.assertEqual(self.reasons()[11], "LineLost")

    async def session(self, far: Far, clock: Any = reactor, timing: LineTiming = QUICK) -> None:
        """Open a console that writes the journal."""
        run = self.run_of(far.endpoint, timing, clock=clock)
        shared = SharedConsole(run, clock, journal=self.journal)
        self.addCleanup(shared.end, Ending("Over"))
        await shared.open()
        await self.until(lambda: far.peers)

    def gaps(self) -> list[int]:
        """The offsets of the gaps."""
        events = self.journal.events(0, self.journal.end, EventKind.GAP)
        return [each.offset for each in events]

    async def test_gap(self) -> None:
        """The journal has a gap before the output of the next connection, however long that is silent."""
        far = self.far(silent)
        await self.session(far)
        far.peer.says(b"before")
        await self.until(lambda: self.journal.end == 6)
        for count in (2, 3):
            far.peer.transport.loseConnection()
            await self.until(lambda: self.reasons()[-1:] == ["LineBack"])
            await self.until(lambda n=count: len(far.peers) == n)
            self.assertEqual((self.gaps(), self.journal.end), ([], 6))
            self.events.clear()
        far.peer.says(b"behind")
        await self.until(lambda: self.journal.end == 12)
        far.peer.says(b"more")
        await self.until(lambda: self.journal.end == 16)
        self.assertEqual((self.gaps(), self.journal.losses), ([6], 1))

    async def test_shutting_down(self) -> None:
        """A line that ends because the machine is powered off is lost for viewers, but is no Event."""
        far = self.far()
        run = self.run_of(far.endpoint, power=Switch())
        line = await self.line(run)
        await self.until(lambda: far.peers)
        await run.shut_down()
        far.peer.transport.loseConnection()
        await line.until(LOST)
        await line.until(BACK)
        self.assertEqual(self.events, [])

    async def test_many_gaps(self) -> None:
        """A peer that prints and hangs up for ever adds few gaps: each is a file of the journal."""
        clock, far = Clock(), self.far(silent)
        await self.session(far, clock, DEFAULT_TIMING)
        far.peer.says(b"x")
        await self.until(lambda: self.journal.end)
        for count in range(2, 16):
            far.peer.transport.loseConnection()
            await self.until(lambda: not self.opened.links[-1].transport.connected)
            clock.advance(DEFAULT_TIMING.longest_delay_seconds)
            await self.until(lambda n=count: len(far.peers) == n)
            before = self.journal.end
            far.peer.says(b"x")
            await self.until(lambda end=before: self.journal.end > end)
        self.assertEqual((len(self.gaps()), self.journal.losses), (14, 10))

    async def test_never_opened(self) -> None:
        """A line that cannot be opened after power on is not said to be lost; it is opened when that is possible."""
        run = self.run_of(f"unix:{self.directory}/late", power=Switch())
        line = await self.line(run)
        await self.until(lambda: run.outage)
        self.assertTrue(run.outage.startswith('line "line-1": '), run.outage)
        self.assertIn((pb.MACHINE_RUNNING, "LineLost", f"{run.outage}; trying again"), self.changes)
        self.assertEqual(outage_of(run.outage), run.outage)
        self.far(name="late")
        await line.until(BACK)
        self.assertEqual((self.reasons(), run.outage), (["LineLost", "LineBack"], ""))

    async def test_closed_at_once(self) -> None:
        """
        A peer that takes connections and closes them, like a ser2net without its device, is lost once, until it stays.
        """
        clock, far = Clock(), self.far()
        run = self.run_of(far.endpoint, DEFAULT_TIMING, clock=clock)
        line = await self.line(run)
        for count in range(1, 6):
            await self.until(lambda n=count: len(far.peers) == n == len(self.opened.links))
            far.peer.transport.loseConnection()
            await self.until(lambda: not self.opened.links[-1].transport.connected)
            clock.advance(DEFAULT_TIMING.longest_delay_seconds)
        self.assertEqual(self.reasons(), ["LineLost"])
        self.assertEqual(line.got.count(LOST), 1)
        await self.until(lambda: len(self.opened.links) == 6)
        self.opened.links[-1].transport.abortConnection()  # another reason
        await self.until(lambda: not self.opened.links[-1].transport.connected)
        self.assertEqual(self.reasons(), ["LineLost"] * 2)
        clock.advance(DEFAULT_TIMING.longest_delay_seconds)
        await self.until(lambda: len(self.opened.links) == 7)
        self.assertNotEqual(run.outage, "")
        clock.advance(DEFAULT_TIMING.settle_seconds)
        await line.until(BACK)
        self.assertEqual((self.reasons(), run.outage), (["LineLost"] * 2 + ["LineBack"], ""))

    async def test_away_for_long(self) -> None:
        """
        Attempts continue until the line is back; the reason is a condition of the machine, posted
        once.
        """
        far = self.far()
        line = await self.line(self.run_of(far.endpoint))
        await self.until(lambda: far.peers)
        await far.vanish()
        await self.until(lambda: len(self.changes) > 1)
        self.assertIn("No such file", self.changes[1][2])
        far.listen()
        await line.until(BACK)
        self.assertEqual(self.changes[2:], [(pb.MACHINE_RUNNING, "", "")])

    async def test_typed_meanwhile(self) -> None:
        """Keys do not arrive later, at another prompt."""
        far = self.far(silent)
        line = await self.line(self.run_of(far.endpoint))
        await self.until(lambda: far.peers)
        await far.vanish()
        await line.until(LOST)
        line.transport.write(b"reboot\r")
        far.listen()
        await line.until(BACK)
        line.transport.write(b"x")
        await self.until(lambda: far.peer.got)
        self.assertEqual(far.peer.got, b"x")

    async def test_stopped_meanwhile(self) -> None:
        """Power off ends the trying."""
        far = self.far()
        run = self.run_of(far.endpoint)
        line = await self.line(run)
        await self.until(lambda: far.peers)
        await far.vanish()
        await line.until(LOST)
        await run.stop()
        self.assertEqual(len(line.lost), 1)
        self.assertEqual(self.released, ["line-1"])

    async def test_stopped_in_a_try(self) -> None:
        """Power off is over when what was given up is gone, such as a process."""
        far = self.far()
        run = self.run_of(far.endpoint)
        line = await self.line(run)
        await self.until(lambda: far.peers)
        self.opened.inner = slow = Slow()
        far.peer.transport.abortConnection()
        await self.until(lambda: slow.tries)
        stopping = run.stop()
        self.assertEqual(len(line.lost), 1)
        self.assertNoResult(stopping)
        slow.leave()
        await stopping
        self.assertEqual(self.released, ["line-1"])

    async def test_session(self) -> None:
        """The session goes on, and its input flows however the lost connection left it."""
        far = self.far(silent)
        run = self.run_of(far.endpoint)
        shared = SharedConsole(run, reactor)
        self.addCleanup(shared.end, Ending("Over"))
        await shared.open()
        await self.until(lambda: far.peers)
        far.peer.transport.pauseProducing()
        run.write(bytes(8 << 20))
        await self.until(lambda: not shared.accepts_input)
        far.peer.transport.abortConnection()
        await self.until(lambda: self.reasons() == ["LineLost", "LineBack"])
        self.assertIsNone(shared.ending)
        self.assertTrue(shared.accepts_input)

    async def lost_console(self) -> SharedConsole:
        """Return the console of a line that is lost and does not come back."""
        far = self.far(silent)
        shared = SharedConsole(
            self.run_of(far.endpoint), reactor, limits=ConsoleLimits(quiet_seconds=0.01)
        )
        self.addCleanup(shared.end, Ending("Over"))
        await shared.open()
        await self.until(lambda: far.peers)
        await far.vanish()
        await self.until(lambda: "No such file" in str(self.changes))
        return shared

    async def test_script(self) -> None:
        """A script whose input a lost line discards fails with the reason."""
        shared = await self.lost_console()
        script = MemoryStream(shared.viewer())
        script.viewer.data_received(b"version\r")
        script.viewer.data_received(b"version\r")
        script.viewer.input_ended()
        assert script.ending is not None
        self.assertEqual(script.ending.reason, LINE_LOST)
        self.assertIn('the input was not sent: line "line-1": ', script.ending.message)
        self.assertIn("No such file", script.ending.message)
        self.assertEqual(script.got.count(b"what you type is not sent: line"), 1)
        self.assertEqual(script.viewer.bytes_to_machine, 0)

    async def test_script_that_reads(self) -> None:
        """A script without input fails if the line is lost at its end."""
        shared = await self.lost_console()
        script = MemoryStream(shared.viewer())
        script.viewer.input_ended()
        await self.until(lambda: script.ending)
        assert script.ending is not None
        self.assertEqual(script.ending.reason, LINE_LOST)
        self.assertIn('line "line-1": ', script.ending.message)

    async def test_script_after_outage(self) -> None:
        """Once the line is back, scripts succeed."""
        far = self.far(silent)
        shared = SharedConsole(
            self.run_of(far.endpoint), reactor, limits=ConsoleLimits(quiet_seconds=0.01)
        )
        self.addCleanup(shared.end, Ending("Over"))
        await shared.open()
        await self.until(lambda: far.peers)
        far.peer.transport.loseConnection()
        await self.until(lambda: self.reasons() == ["LineLost", "LineBack"])
        script = MemoryStream(shared.viewer())
        script.viewer.data_received(b"version\r")
        script.viewer.input_ended()
        await self.until(lambda: script.ending)
        assert script.ending is not None
        self.assertTrue(script.ending.is_success)

    async def test_paused(self) -> None:
        """A line that is paused is paused when it is back."""
        far = self.far()
        line = await self.line(self.run_of(far.endpoint))
        await self.until(lambda: far.peers)
        line.transport.pauseProducing()
        self.opened.links[-1].transport.abortConnection()
        await line.until(BACK)
        line.transport.write(b"hello")
        await self.until(lambda: far.peer.got)
        self.assertNotIn(b"hello", line.got)
        line.transport.resumeProducing()
        await line.until(b"hello")

    async def test_reason_is_bounded(self) -> None:
        """A peer's reason becomes one short line of text, which says that it was cut."""
        run = self.run_of(self.far().endpoint)
        self.opened.inner = Refusing(ServiceUnavailable("\x1b[2J" + "x" * 1000 + "\n"))
        with self.assertRaises(CannotStart) as caught:
            await self.line(run)
        shown = "[2J" + "x" * 296 + "\N{HORIZONTAL ELLIPSIS}"
        self.assertEqual(caught.exception.message, f'line "line-1": {shown}')


class ProbedEndpoint(Endpoint):
    """An endpoint that can be asked whether its far end has come back."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        alsoProvides(self, IProbed)
        self.asked = 0
        self.is_back = False

    def has_come_back(self) -> Deferred[bool]:
        self.asked += 1
        return succeed(self.is_back)


class ProbeTests(SharedLineCase):
    """A far end that is looked for before a long pause has ended."""

    async def test_back_early(self) -> None:
        """The line is opened as soon as its far end is seen again."""
        clock, far = Clock(), self.far()
        timing = LineTiming(first_delay_seconds=600, longest_delay_seconds=600)
        run = self.run_of(far.endpoint, timing, clock=clock)
        endpoint = self.opened = ProbedEndpoint(self.opened.inner)
        line = await self.line(run)
        await self.until(lambda: far.peers)
        clock.advance(20)  # the connection has lasted
        far.peer.transport.abortConnection()
        await line.until(LOST)
        await self.until(lambda: endpoint.asked)
        for _ in range(3):
            clock.advance(5)
        self.assertEqual((len(endpoint.links), endpoint.asked), (1, 4))
        endpoint.is_back = True
        clock.advance(5)
        await line.until(BACK)


class NoticeTests(SharedLineCase):
    """Notices of a layer."""

    async def test_told(self) -> None:
        """Users read what a layer tells them, as a notice."""

        class Telling(LineLayer):
            def write(self, data: bytes) -> None:
                self.notify("not sent")

        run = self.run_of(self.far().endpoint)
        self.opened.inner = LayeredEndpoint(self.opened.inner, Telling)
        line = await self.line(run)
        line.transport.write(b"x")
        await line.until(b"[twisted-exec: not sent]")


class ReleaseTests(SharedLineCase):
    """The end of a line that takes a while."""

    async def test_waits(self) -> None:
        """A machine is off when its line is released."""
        released: Deferred[None] = Deferred()
        run = SharedLine(self.facts(), reactor, lambda: ("x", None), lambda: released)  # type: ignore[arg-type, return-value]
        stopping = run.stop()
        self.assertFalse(stopping.called)
        released.callback(None)
        await stopping


class SizeTests(SharedLineCase):
    """The size of a line that has one."""

    async def test_told(self) -> None:
        """To each connection, also when it was known before."""
        sizes: list[TerminalSize] = []
        run = self.run_of(self.far().endpoint)
        run.window_changed(TerminalSize(100, 30))
        await self.line(run)
        self.opened.links[-1].transport.window_changed = sizes.append
        run.window_changed(TerminalSize(80, 24))
        self.assertEqual(sizes, [TerminalSize(80, 24)])


class FloodTests(SharedLineCase):
    """A peer that prints without end."""

    async def test_flood(self) -> None:
        """It is read no faster than a line may be."""
        far = self.far(silent)
        run = self.run_of(far.endpoint)
        line = await self.line(run)
        await self.until(lambda: far.peers)
        began = reactor.seconds()
        far.peer.says(bytes(3 << 20))
        await self.until(lambda: len(line.got) == 3 << 20)
        self.assertGreater(reactor.seconds() - began, 0.3)
