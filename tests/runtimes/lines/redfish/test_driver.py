"""Tests for :mod:`twisted_exec.runtimes.lines.redfish.driver`, with a small BMC."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import groupby
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.internet.protocol import Factory

from tests.runtimes.bmc.faults import deep
from tests.runtimes.bmc.server import SESSIONS
from tests.runtimes.lines.redfish.support import RedfishCase
from tests.tls.support import write
from twisted_exec.runtimes.interfaces import CannotStart, IKeepsState, IShutdown
from twisted_exec.runtimes.lines.redfish import claim as claim_module
from twisted_exec.runtimes.lines.redfish import driver as driver_module
from twisted_exec.runtimes.lines.redfish import sessions
from twisted_exec.runtimes.lines.redfish.driver import RedfishDriver
from twisted_exec.runtimes.lines.redfish.line_mark import LineMark
from twisted_exec.runtimes.lines.shared_line import SharedLine
from twisted_exec.testing.drivers import ConsoleContract, Line, MachineDriverContract


class LineTests(MachineDriverContract, ConsoleContract, RedfishCase):
    """The console of a BMC is a console."""

    provoke = b"hello"
    answer = b"hello"

    def clean(self, console: SharedLine) -> Any:
        return console.stop()

    async def test_condition(self) -> None:
        """The machine's condition names the way that was chosen, and why others were not."""
        await self.opened_line()
        status, reason, message = self.conditions[-1]
        self.assertEqual((status, reason), ("True", "WebSocket"))
        self.assertIn("the console is open by websocket", message)
        self.assertIn("not ssh: the server announces none", message)

    async def test_lost(self) -> None:
        """A lost console is opened again, in the same session."""
        _, line = await self.opened_line()
        self.bmc.console.vanish()
        await line.until(b"line is back")
        self.assertIn("LineLost", self.reasons())
        self.assertEqual(self.bmc.logins, 1)
        states = [status for status, _ in groupby(each[0] for each in self.conditions)]
        self.assertEqual(states, ["False", "True"] * 2)

    async def test_stopped(self) -> None:
        """A console that its machine has closed is closed, not lost."""
        run, _ = await self.opened_line()
        await run.stop()
        self.assertEqual(self.conditions[-1], ("False", "Closed", "the console is closed"))

    async def test_not_for_console(self) -> None:
        """A BMC whose console refuses its sessions keeps none of them."""
        self.bmc.console.tokens = {}  # type: ignore[assignment]
        driver = self.make_driver()
        for _ in range(3):
            self.assertIn("refuses its user the console", (await self.refusal(driver)).message)
            self.assertEqual(self.bmc.sessions, {})

    async def test_session_dies(self) -> None:
        """A console whose session has ended comes back with one new login."""
        _, line = await self.opened_line()
        self.bmc.expire()
        self.bmc.console.vanish()
        await line.until(b"line is back")
        self.assertEqual(self.bmc.logins, 2)


class SessionTests(RedfishCase):
    """Sessions of the BMC."""

    async def test_none_left(self) -> None:
        """A machine that is stopped leaves no session, and no file."""
        run, _ = await self.opened_line()
        self.assertEqual(len(self.bmc.sessions), 1)
        await run.stop()
        self.assertEqual(self.bmc.sessions, {})
        self.assertEqual(os.listdir(self.state), [])

    async def test_killed(self) -> None:
        """After a kill of the runtime, the next one goes on in the same session, and deletes it."""
        await self.opened_line()
        os.unlink(os.path.join(self.directory, self._lock_name()))  # as its process had ended
        run, _ = await self.opened_line()
        self.assertEqual((self.bmc.logins, len(self.bmc.sessions)), (1, 1))
        await run.stop()
        self.assertEqual(self.bmc.sessions, {})

    async def test_killed_and_unused(self) -> None:
        """A session that no machine of the next runtime uses is deleted."""
        await self.opened_line()
        self.patch(driver_module, "_LEFT_SECONDS", 0.0)
        driver = self.make_driver()
        verifies = IKeepsState.providedBy(driver)
        await self.until(lambda: not self.bmc.sessions)
        self.assertTrue(verifies)

    async def test_used(self) -> None:
        """The session is used before half of its timeout, also while nobody types."""
        self.patch(claim_module, "LEAST_LOOK_SECONDS", 0.0)
        self.bmc.documents["/redfish/v1/SessionService"]["SessionTimeout"] = 1
        await self.opened_line()
        system = ("GET", "/redfish/v1/Systems/1")
        before = self.bmc.requests.count(system)
        await self.until(lambda: self.bmc.requests.count(system) >= before + 2)

    async def test_limit(self) -> None:
        """The machine waits for a session, and its condition says so."""
        self.bmc.session_limit = 0
        driver = self.make_driver()
        self.assertEqual((await self.refusal(driver)).condition, "SessionLimit")
        self.assertEqual(self.conditions[-1][:2], ("False", "SessionLimit"))
        self.bmc.session_limit = 1
        await self.opened_line(driver)

    async def test_refused(self) -> None:
        """While a login waits behind a refusal, the condition has that, with what to do, also for a new run."""
        self.bmc.password = "another"
        for power in (False, True):
            driver = self.make_driver(power=power)
            self.assertEqual((await self.refusal(driver)).condition, "LoginRefused")
            run = driver.run(self.facts())
            self.conditions.clear()
            opening = run.connect(Factory.forProtocol(Line))
            opening.addErrback(lambda failure: failure.trap(CannotStart, CancelledError))
            status, reason, message = self.conditions[-1]
            self.assertEqual((status, reason), ("False", "LoginRefused"))
            self.assertIn(f"see {self.password}; it is tried again when that has changed", message)
            opening.cancel()
            await run.stop()

    async def test_unknown_power(self) -> None:
        """While a BMC refuses looks and the console is open, its condition and one Event warn of that."""
        self.patch(claim_module, "LOOK_SECONDS", 0.0)
        await self.opened_line()
        told = self.conditions[-1]
        self.bmc.password = "another"
        self.bmc.expire()
        await self.until(lambda: self.conditions[-1] != told)
        unknown = "the power of the server is not known: the BMC refuses the login of user admin"
        self.assertEqual(self.conditions[-1][:2], told[:2])
        self.assertIn(f"{unknown} (401", self.conditions[-1][2])
        self.assertIn(f"; {told[2]}", self.conditions[-1][2])
        (event,) = (each for each in self.events if each[1] == "LoginRefused")
        self.assertEqual((event[0], event[2].startswith(unknown)), ("Warning", True))
        write(self.directory, "password", b"another\n")
        await self.until(lambda: self.conditions[-1] == told)

    async def test_busy(self) -> None:
        """A BMC that is busy for a moment is no warning; one that stays so is."""
        self.patch(claim_module, "LOOK_SECONDS", 0.0)
        _, line = await self.opened_line()
        told = self.conditions[-1]
        system = f"GET {self.bmc.system}"
        self.bmc.requests.clear()
        self.bmc.faults.codes = {system: 503}
        await self.until(lambda: ("GET", self.bmc.system) in self.bmc.requests)
        self.bmc.faults.codes = {}
        self.bmc.requests.clear()
        await self.until(lambda: ("GET", self.bmc.system) in self.bmc.requests)
        self.assertEqual(self.conditions[-1], told)
        self.bmc.faults.codes = {system: 503}
        await self.until(lambda: self.conditions[-1] != told)
        self.assertIn("BMCFailed", self.reasons())
        line.transport.write(b"still here")
        await line.until(b"still here")

    async def test_stopped_at_each_step(self) -> None:
        """A machine that is stopped while its BMC hangs leaves no session, whatever the step."""
        paths = ["/redfish/v1/", f"POST {SESSIONS}", *sorted(self.bmc.documents)]
        for path in paths:
            self.bmc.faults.hangs = {path}
            run = self.make_driver().run(self.facts())
            opening = run.connect(Factory.forProtocol(Line))
            opening.addErrback(lambda failure: failure.trap(CannotStart, CancelledError))
            asked = path.split()[-1]
            if asked == "/redfish/v1/Managers":
                self.bmc.faults.hangs = set()  # nobody asks for it
            else:
                await self.until(lambda: self.bmc.waiting)
            opening.cancel()
            stopping = run.stop()
            self.bmc.faults.hangs = set()
            self.bmc.answer()
            await stopping
            self.assertEqual(self.bmc.sessions, {}, path)

    async def test_no_secret(self) -> None:
        """Neither the password nor the token is in a condition, an Event or a file but the session's."""
        self.bmc.faults.codes = {"/redfish/v1/Systems": 500}
        await self.refusal()
        self.bmc.faults.codes = {}
        await self.opened_line()
        (token,) = self.bmc.sessions
        told = repr((self.conditions, self.events, self.changes))
        self.assertNotIn("canary", told)
        self.assertNotIn(token, told)
        (name,) = (each for each in os.listdir(self.state) if each.endswith(".session"))
        self.assertEqual(os.stat(os.path.join(self.state, name)).st_mode & 0o077, 0)

    def _lock_name(self) -> str:
        (name,) = (each for each in os.listdir(self.directory) if each.startswith("LCK.."))
        return name


class ExclusiveTests(RedfishCase):
    """A BMC that has one console."""

    async def test_two_runtimes(self) -> None:
        """A second runtime on the host learns it from the lock file."""
        run, _ = await self.opened_line()
        second = self.make_driver()
        refusal = await self.refusal(second)
        self.assertEqual(refusal.condition, "BMCInUse")
        await run.stop()
        await self.opened_line(second)

    async def test_mark(self) -> None:
        """An open console is noted on disk; a note that is old says nothing."""
        run, _ = await self.opened_line()
        (name,) = (each for each in os.listdir(self.state) if each.endswith(".line"))
        mark = LineMark(os.path.join(self.state, name))
        self.assertTrue(mark.is_recent())
        os.utime(os.path.join(self.state, name), (1e9, 1e9))
        self.assertFalse(mark.is_recent())
        await run.stop()
        self.assertEqual(os.listdir(self.state), [])


class PowerTests(RedfishCase):
    """The server's power."""

    def make_driver(self, **keys: Any) -> RedfishDriver:
        return super().make_driver(**{"power": True, **keys})

    async def test_on_and_off(self) -> None:
        """A user's switch switches the server; the end of the machine does not."""
        self.bmc.set_power("Off")
        run, _ = await self.opened_line()
        self.assertEqual(self.bmc.resets, ["On"])
        await run.stop()
        self.assertEqual(self.bmc.resets, ["On"])
        run, _ = await self.opened_line()
        await run.shut_down()
        self.assertEqual(self.bmc.resets, ["On", "GracefulShutdown"])

    async def test_adopted(self) -> None:
        """A machine that no user has switched leaves its server as it is."""
        self.bmc.set_power("Off")
        facts = replace(self.facts(), switches=lambda: 0)
        run = self.make_driver().run(facts)
        self.addCleanup(run.stop)
        await run.connect(Factory.forProtocol(Line))
        self.assertEqual(self.bmc.resets, [])
        self.assertIn("the server is off", self.conditions[-1][2])

    async def test_late_look(self) -> None:
        """An answer from before a switch, which comes late, is no change of the power."""
        self.patch(claim_module, "LOOK_SECONDS", 0.01)
        run, _ = await self.opened_line()
        system = f"GET {self.bmc.system}"
        self.bmc.faults.hangs = {system}
        await self.until(lambda: self.bmc.waiting)
        (late,), self.bmc.waiting = self.bmc.waiting, []
        self.bmc.faults.hangs = set()
        await run.shut_down()
        self.bmc.set_power("On")  # what the late answer has
        self.bmc.waiting = [late]
        self.bmc.answer()
        self.bmc.set_power("Off")
        await self.until(lambda: self.bmc.requests.count(("GET", self.bmc.system)) > 5)
        self.assertEqual((self.reasons(), self.boots), ([], []))

    async def test_stopped_while_shutting_down(self) -> None:
        """A machine that is deleted while its server shuts down leaves no session, and forces nothing."""
        self.bmc.faults.ignores_graceful = True
        run, _ = await self.opened_line(self.make_driver(force_off=True, shutdown_seconds=600))
        off = run.shut_down()
        await self.until(lambda: self.bmc.resets)
        await run.stop()
        with self.assertRaises(CannotStart):
            await off
        self.assertEqual((self.bmc.sessions, self.bmc.resets), ({}, ["GracefulShutdown"]))

    async def test_without(self) -> None:
        """Without power: true there is no switch."""
        run = self.make_driver(power=False).run(self.facts())
        self.assertFalse(IShutdown.providedBy(run))

    async def test_by_hand(self) -> None:
        """A server that others switch off and on has a mark in its journal, and its console goes on."""
        self.patch(claim_module, "LOOK_SECONDS", 0.05)
        _, line = await self.opened_line()
        self.bmc.set_power("Off")
        await self.until(lambda: "ServerOff" in self.reasons())
        self.assertIn("the server is off", self.conditions[-1][2])
        self.bmc.set_power("On")
        await self.until(lambda: self.boots)
        line.transport.write(b"still here")
        await line.until(b"still here")


class FaultTests(RedfishCase):
    """A BMC that is wrong, at each of its documents."""

    async def fails(self, driver: RedfishDriver, path: str, fault: str) -> None:
        refusal = await self.refusal(driver)
        status, reason, message = self.conditions[-1]
        self.assertEqual((status, reason), ("False", refusal.condition), f"{fault} {path}")
        self.assertRegex(message, "BMC|answer is larger than", f"{fault} {path}")
        self.assertNotIn("canary", refusal.message + message)

    async def test_each(self) -> None:
        """Each fault is a condition without a secret; without it the console opens, in one session."""
        needed = [
            "/redfish/v1/",
            "/redfish/v1/Systems",
            "/redfish/v1/Systems/1",
            "/redfish/v1/Managers/1",
            f"POST {SESSIONS}",
        ]
        self.patch(sessions, "_FIRST_PAUSE_SECONDS", 0.001)
        self.patch(sessions, "_LONGEST_PAUSE_SECONDS", 0.001)
        driver = self.make_driver()
        faults = self.bmc.faults
        for path in needed:
            for code in (429, 500, 503):
                faults.codes = {path: code}
                await self.fails(driver, path, str(code))
            faults.codes = {}
            for name, value in (
                ("empty", {path}),
                ("bodies", {path: deep()}),
                ("huge", {path}),
                ("redirects", {path: "https://evil.example/"}),
            ):
                setattr(faults, name, value)
                await self.fails(driver, path, name)
                setattr(faults, name, type(value)())
        run, _ = await self.opened_line(driver)
        self.assertEqual(len(self.bmc.sessions), 1)
        await run.stop()
        self.assertEqual(self.bmc.sessions, {})
