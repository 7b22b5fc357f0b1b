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
from twisted.logger import Logger
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
from twisted_exec.runtimes.lines.redfish.bmc import BMC
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
    _log = Logger()

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
        self._bmcs: dict[tuple[str, int], BMC] = {}
        self._used: dict[str, BMC] = {}  # by the ids of machines, also after their row has changed
        self._directory = ""
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
        self._directory = directory
        bmcs = map(self._bmc, self._all.values())
        self._left = {bmc for bmc in bmcs if bmc.has_left_session}
        if self._left:
            self._ending = self.reactor.callLater(_LEFT_SECONDS, self._end_left)

    def _end_left(self) -> None:
        left, self._left = self._left, set()
        for bmc in left:
            ending = bmc.release()
            ending.addErrback(lambda failure: self._log.failure("a BMC", failure=failure))

    def _keep(self, bmc: BMC) -> None:
        """Do not end the session of an earlier runtime: a machine uses it."""
        self._left.discard(bmc)
        if not self._left and self._ending is not None and self._ending.active():
            self._ending.cancel()

    def _bmc(self, line: RedfishLine) -> BMC:
        key = line.host.lower(), line.port
        bmc = self._bmcs.get(key)
        if bmc is None or bmc.line != line:  # a row of a list may have got another system
            bmc = self._bmcs[key] = BMC(line, self._directory, self.reactor)
        return bmc

    # LineDriver.

    def _claim(self, facts: MachineFacts) -> tuple[str, IStreamClientEndpoint]:
        try:
            name, line = self.lines.claim(facts)
        except CannotStart:
            self._leave(facts)  # a list has no row for the machine any more
            raise
        bmc = self._bmc(line)
        if self._used.get(facts.id) is not bmc:
            self._leave(facts)
        bmc.claim(name, facts)
        self._used[facts.id] = bmc
        self._keep(bmc)
        endpoint = ConsoleEndpoint(bmc, facts, self._quirks, self._ssh, self._ipmi, self.reactor)
        return name, endpoint

    def _leave(self, facts: MachineFacts) -> None:
        """Give back the BMC that the machine has had, if any."""
        bmc = self._used.pop(facts.id, None)
        leaving = None if bmc is None else bmc.release_from(facts)
        if leaving is not None:
            leaving.addErrback(lambda failure: self._log.failure("a BMC", failure=failure))

    def _release(self, facts: MachineFacts) -> Deferred[None] | None:
        self.lines.release(facts)
        bmc = self._used.pop(facts.id, None)
        return None if bmc is None else bmc.release_from(facts)

    def _has_break(self, line: RedfishLine) -> bool:
        return bool(set(line.transports) & set(WITH_BREAK))

    def _power(self, facts: MachineFacts, line: RedfishLine) -> Power | None:
        if not line.power:
            return None
        bmc = self._bmc(line)
        return RedfishPower(
            bmc.sessions,
            bmc.server,
            facts,
            bmc.note_power,
            self.reactor,
            off_seconds=line.shutdown_seconds,
            force=line.force_off,
        )
