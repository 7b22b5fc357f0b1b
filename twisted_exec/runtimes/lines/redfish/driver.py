"""
The driver ``redfish``: consoles and power of servers behind BMCs.

:mod:`.options` shows a class. A machine has its BMC from power on to power off: one session there,
and one connection of the console for all users. Without ``power: true``, and when a machine is
deleted or the runtime stops, servers are not switched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IStreamClientEndpoint
from zope.interface import implementer

from twisted_exec.program.config_file import Reader
from twisted_exec.runtimes.interfaces import (
    Build,
    CannotStart,
    IKeepsState,
    IMachineDriver,
    MachineFacts,
)
from twisted_exec.runtimes.lines.driver import LineDriver
from twisted_exec.runtimes.lines.ipmi import IPMIDriver
from twisted_exec.runtimes.lines.redfish.bmc import BMC, BMCs
from twisted_exec.runtimes.lines.redfish.claim import Claim
from twisted_exec.runtimes.lines.redfish.endpoint import WITH_BREAK, ConsoleEndpoint
from twisted_exec.runtimes.lines.redfish.options import RedfishLine, read_lines
from twisted_exec.runtimes.lines.redfish.power import RedfishPower
from twisted_exec.runtimes.lines.redfish.quirks import Quirk, Transport
from twisted_exec.runtimes.lines.shared_line import LineTiming, Power
from twisted_exec.runtimes.lines.ssh import SSHDriver
from twisted_exec.runtimes.processes import ProcessTable

_TIMING = LineTiming(first_delay_seconds=1.0, longest_delay_seconds=60.0, open_seconds=180.0)

_LEFT_SECONDS = 60.0
"""A session of an earlier runtime that no machine uses after this time is deleted."""


def configure(reader: Reader, resources: Mapping[str, int]) -> Build:
    """See :meth:`.IDriverMaker.configure`."""
    lines, quirks = read_lines(reader)
    return lambda reactor, table: RedfishDriver(lines, quirks, reactor, table)


@implementer(IMachineDriver, IKeepsState)
class RedfishDriver(LineDriver[RedfishLine]):
    """Runs a class of servers behind BMCs."""

    name = "redfish"
    exclusive = "one runtime of a host; ``steal`` ends another client's session"

    def __init__(
        self,
        lines: Mapping[str, RedfishLine],
        quirks: Sequence[Quirk],
        reactor: Any,
        table: ProcessTable,
    ) -> None:
        super().__init__(lines, reactor)
        self.timing = _TIMING
        self._all, self._quirks = lines, quirks
        self._ssh = SSHDriver({}, reactor, table)
        self._ipmi = IPMIDriver({}, reactor, table)
        self._bmcs = BMCs(reactor)
        self._left: set[BMC] = set()  # with a session of an earlier runtime that no machine uses
        self._ending: IDelayedCall | None = None

    def missing(self) -> str:
        """Return what is missing if no way to a console can be used."""
        permitted = {each for line in self._all.values() for each in line.transports}
        if permitted & {Transport.WEBSOCKET, Transport.OPENBMC}:
            return ""
        problems = [self._ipmi.missing()] if Transport.IPMI in permitted else []
        if permitted & {Transport.SSH, Transport.VENDOR_SSH}:
            problems.append(self._ssh.missing())
        return problems[0] if problems and all(problems) else ""

    def use_directory(self, directory: str) -> None:
        self._left = set(self._bmcs.use_directory(directory, self._all.values()))
        if self._left:
            self._ending = self.reactor.callLater(_LEFT_SECONDS, self._end_left)

    def _end_left(self) -> None:
        left, self._left = self._left, set()
        for bmc in left:
            self._bmcs.end(bmc)

    def _keep(self, bmc: BMC) -> None:
        """Do not end the session of an earlier runtime: a machine uses it."""
        self._left.discard(bmc)
        if not self._left and self._ending is not None and self._ending.active():
            self._ending.cancel()

    # LineDriver.

    def _claim(self, facts: MachineFacts) -> tuple[str, IStreamClientEndpoint]:
        name, bmc, claim = self._claimed(facts)
        endpoint = ConsoleEndpoint(bmc, claim, self._quirks, self._ssh, self._ipmi, self.reactor)
        return name, endpoint

    def _claimed(self, facts: MachineFacts) -> tuple[str, BMC, Claim]:
        try:
            name, line = self.lines.claim(facts)
        except CannotStart:
            self._bmcs.release(facts)  # a list has no row for the machine any more
            raise
        bmc, claim = self._bmcs.claim(name, line, facts)
        self._keep(bmc)
        return name, bmc, claim

    def _line_changed(self, facts: MachineFacts, why: CannotStart) -> None:
        line = self.lines.options_of(facts)
        self._bmcs.changed(facts, line, why.condition, why.message)

    def _release(self, facts: MachineFacts) -> Deferred[None] | None:
        self.lines.release(facts)
        return self._bmcs.release(facts)

    def _has_break(self, line: RedfishLine) -> bool:
        return bool(set(line.transports) & set(WITH_BREAK))

    def _power(self, facts: MachineFacts, line: RedfishLine) -> Power | None:
        if not line.power:
            return None
        return RedfishPower(
            lambda: self._claimed(facts)[-1],
            facts,
            self.reactor,
            off_seconds=line.shutdown_seconds,
            force=line.force_off,
        )
