"""
Tests of every :class:`~twisted_exec.runtimes.interfaces.IMachineDriver`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from twisted.internet import reactor
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater
from zope.interface.verify import verifyObject

from twisted_exec.console.interfaces import ILineTransport
from twisted_exec.runtimes.interfaces import (
    IAdoptsMachines,
    IHardware,
    IHotPlug,
    IMachineDriver,
    IReleasable,
    IRestartPolicy,
    IRun,
    IShutdown,
)
from twisted_exec.streaming.interfaces import COMPLETED, Ending, IBreakable

from .console import Line

_OF_DRIVERS = (IHardware, IAdoptsMachines, IRestartPolicy)
_OF_RUNS = (IBreakable, IHotPlug, IReleasable, IShutdown)


class MachineDriverContract:
    """
    Mix in before a :class:`~tests.runtimes.support.RuntimeCase`.

    ``make_driver()`` returns a driver that can run the machine of ``self.facts()`` on this host.
    """

    machine_id = "m"

    def new_run(self: Any, driver: Any = None, **facts: Any) -> Any:
        """A run that is stopped after the test."""
        driver = self.make_driver() if driver is None else driver
        run = driver.run(replace(self.facts(self.machine_id), **facts))
        self.addCleanup(run.stop)
        return run

    def test_driver_interfaces(self: Any) -> None:
        """A driver has a name and all methods of the interfaces that it provides."""
        driver = self.make_driver()
        verifyObject(IMachineDriver, driver)
        self.assertRegex(driver.name, r"\A[a-z][a-z0-9-]*\Z")
        for interface in _OF_DRIVERS:
            if interface.providedBy(driver):
                verifyObject(interface, driver)

    def test_run_interfaces(self: Any) -> None:
        """A run has all methods of the interfaces that it provides."""
        run = self.new_run()
        verifyObject(IRun, run)
        self.assertIsInstance(run.paced, bool)
        for interface in _OF_RUNS:
            if interface.providedBy(run):
                verifyObject(interface, run)

    def test_nothing_missing(self: Any) -> None:
        """A driver that can run machines here reports nothing missing."""
        driver = self.make_driver()
        self.assertEqual((driver.missing(), driver.missing()), ("", ""))

    def test_restarts(self: Any) -> None:
        """A driver that decides on restarts answers yes or no for any ending."""
        driver = self.make_driver()
        if IRestartPolicy.providedBy(driver):
            for ending in (Ending(COMPLETED, "", 0), Ending(COMPLETED, "", 1), Ending("Other")):
                self.assertIsInstance(driver.restarts(ending), bool)

    def test_runs_are_lazy(self: Any) -> None:
        """Making a run starts no process, writes no file and reports nothing."""
        driver = self.make_driver()
        before = sorted(os.listdir(self.directory))
        first, second = self.new_run(driver), self.new_run(driver)
        self.assertIsNot(first, second)
        self.assertEqual(sorted(os.listdir(self.directory)), before)
        self.assertEqual((self.leaders, self.events, self.alive()), ([], [], []))

    async def test_stop_before_connect(self: Any) -> None:
        """A run that never started can be stopped, and stopped again."""
        run = self.new_run()
        await run.stop()
        await run.stop()
        self.assertEqual(self.alive(), [])

    async def test_transport(self: Any) -> None:
        """The line's protocol gets a transport with every method that a session calls."""
        line = await self.new_run().connect(Factory.forProtocol(Line))
        # Twisted's own transports have the methods and do not declare the interface.
        verifyObject(ILineTransport, line.transport, tentative=True)

    async def test_stop(self: Any) -> None:
        """After stop no process is left and the line has ended, once."""
        run = self.new_run()
        line = await run.connect(Factory.forProtocol(Line))
        await run.stop()
        await run.stop()
        await line.over()
        await deferLater(reactor, 0)
        self.assertEqual(len(line.lost), 1)
        self.assertEqual(self.alive(), [])

    async def test_stop_while_connecting(self: Any) -> None:
        """
        A machine that is switched off while it starts leaves no process.

        A supervisor cancels ``connect`` and then calls ``stop``.
        """
        run = self.new_run()
        connecting = run.connect(Factory.forProtocol(Line))
        connecting.addErrback(lambda failure: failure.trap(Exception))  # or it was in time
        connecting.cancel()
        await run.stop()
        self.assertEqual(self.alive(), [])

    async def test_power_cycle(self: Any) -> None:
        """The same driver starts the same machine again after power off."""
        driver = self.make_driver()
        for _ in range(2):
            run = self.new_run(driver)
            line = await run.connect(Factory.forProtocol(Line))
            self.assertEqual(line.lost, [])
            await run.stop()
            await line.over()
        self.assertEqual(self.alive(), [])
