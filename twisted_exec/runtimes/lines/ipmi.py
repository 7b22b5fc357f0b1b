"""
The driver ``ipmi``: consoles by Serial over LAN (SOL) of BMCs, with ipmitool(1).

::

    - name: server
      driver: ipmi
      user: console
      password_file: /etc/twisted-exec/ipmi/password
      power: true
      lines:
        web-1: {host: 10.0.1.11}
        web-2: {host: 10.0.1.12, cipher_suite: 17, force: true}
      capabilities: {cpu: "16", memory: 64Gi}

With ``power: true``, power on and power off switch the chassis; power off first requests a
shutdown. Without that key, and when the machine is deleted or the runtime stops, only the line is
closed.

ipmitool reads the password from a file, because command lines and environments can be seen.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from zope.interface import implementer

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.control.polling import until
from twisted_exec.program.config_file import Reader
from twisted_exec.runtimes.interfaces import Build, CannotStart, IMachineDriver, MachineFacts
from twisted_exec.runtimes.lines.command import CommandEndpoint
from twisted_exec.runtimes.lines.driver import LineDriver
from twisted_exec.runtimes.lines.escapes import EscapedInput
from twisted_exec.runtimes.lines.line_list import bmc_lines
from twisted_exec.runtimes.lines.programs import last_line, run_program
from twisted_exec.runtimes.processes import ProcessTable
from twisted_exec.runtimes.pty import PtyDriver, PtyOptions, PtyRun

PROGRAM = "ipmitool"

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OFF_SECONDS = 60.0
"""Time for a chassis to go off that the BMC has switched off."""
_PATIENCE = ("-N", "2", "-R", "3")  # seconds per attempt, attempts
_PLAIN = re.compile(r"[^-\s\0][^\s\0]*")
_UP = re.compile(rb"\[SOL Session operational\.[^\n]*\n")
_WORDS = re.compile(
    rb"Error sending SOL data|SOL session closed by BMC|Error: [A-Z][^\r\n]*SOL[^\r\n]*"
)
_NO_SESSION = "Unable to establish IPMI v2 / RMCP+ session"
_TAKEN = b"SOL payload already active on another session"
TAKEN = "another client has the SOL session"
"""In the error of an endpoint whose BMC has a SOL session already."""


@dataclass(frozen=True)
class IPMILine:
    """
    One server's BMC.

    :param cipher_suite: 0 lets ipmitool negotiate with the BMC.
    :param shutdown_seconds: time for a shutdown before the chassis is switched off.
    """

    host: str
    port: int = 623
    user: str = ""
    password_file: str = ""
    cipher_suite: int = 0
    power: bool = False
    force: bool = False
    shutdown_seconds: float = 120.0


def configure(reader: Reader, resources: Mapping[str, int]) -> Build:
    """See :meth:`.IDriverMaker.configure`."""
    common = _shared(reader, IPMILine(""))
    lines = bmc_lines(reader, lambda line_reader: _line(line_reader, common), ("host", ""))
    return lambda reactor, table: IPMIDriver(lines, reactor, table)


def _shared(reader: Reader, default: IPMILine) -> IPMILine:
    return IPMILine(
        host="",
        port=int(reader.number("port", 1, 65535, default.port)),
        user=reader.take("user", str, default.user),
        password_file=reader.take("password_file", str, default.password_file),
        cipher_suite=int(reader.number("cipher_suite", 0, 17, default.cipher_suite)),
        power=reader.take("power", bool, default.power),
        force=reader.take("force", bool, default.force),
        shutdown_seconds=reader.number("shutdown_seconds", 0, 3600, default.shutdown_seconds),
    )


def _line(reader: Reader, common: IPMILine) -> IPMILine:
    host = reader.take("host", str)
    options = _shared(reader, common)
    for what, word in (("host", host), ("user", options.user)):
        if not _PLAIN.fullmatch(word):
            problem = f"{what} {word!r} is not a valid {what}" if word else f"{what} is missing"
            raise reader.error(problem)
    if not options.password_file.startswith("/"):
        raise reader.error("password_file must be the absolute path of a file with the password")
    port = options.port
    reader.reserve(("ipmi", host.lower(), port), f"the controller {host}, port {port},")
    return replace(options, host=host)


def arguments(line: IPMILine, *words: str) -> Sequence[str]:
    common = [PROGRAM, "-I", "lanplus", "-H", line.host, "-p", str(line.port)]
    common += ["-U", line.user, "-f", line.password_file, *_PATIENCE]
    if line.cipher_suite:
        common += ["-C", str(line.cipher_suite)]
    return [*common, *words]


@implementer(IMachineDriver)
class IPMIDriver(LineDriver[IPMILine]):
    """Runs a class of servers with IPMI."""

    name = "ipmi"
    exclusive = "one session of a BMC; ``force`` ends another"
    ask_seconds = 30.0
    leave_seconds = 20.0  # a slow BMC takes several seconds for a session
    look_seconds = 1.0

    def __init__(self, lines: Mapping[str, IPMILine], reactor: Any, table: ProcessTable) -> None:
        super().__init__(lines, reactor)
        self._table = table

    def missing(self) -> str:
        if shutil.which(PROGRAM, path=_PATH) is None:
            return f"this host has no {PROGRAM} (Debian package ipmitool)"
        return ""

    def _power(self, facts: MachineFacts, line: IPMILine) -> Chassis | None:
        return Chassis(self, facts, line) if line.power else None

    def ask(
        self, facts: MachineFacts, line: IPMILine, *words: str, seconds: float | None = None
    ) -> Deferred[bytes]:
        """
        Run one command of ipmitool.

        :return: fires with its output; fails with ``ServiceUnavailable`` and a reason.
        """
        return run_program(
            self.reactor,
            arguments(line, *words),
            path=_PATH,
            marker=facts.marker,
            seconds=self.ask_seconds if seconds is None else seconds,
        )

    def _claim(self, facts: MachineFacts) -> tuple[str, IStreamClientEndpoint]:
        name, line = self.lines.claim(facts)
        return name, self.endpoint(facts, line, lambda: None)

    def endpoint(
        self, facts: MachineFacts, line: IPMILine, stays: Callable[[], None]
    ) -> IStreamClientEndpoint:
        """
        Return the endpoint of a server's SOL session.

        :param stays: called if the session could not be ended, which an Event says.
        :raises CannotStart: the password cannot be read.
        """
        if not os.access(line.password_file, os.R_OK):
            raise CannotStart("NoPassword", f"{line.password_file} cannot be read")

        def make_run() -> PtyRun:
            options = PtyOptions(arguments(line, "sol", "activate"), same_user=True, raw=True)
            return PtyRun(PtyDriver(options, self.reactor, self._table), facts)

        return CommandEndpoint(
            PROGRAM,
            self.reactor,
            make_run,
            typing=EscapedInput,
            complaint=lambda printed: _explained(_complaint(printed), line),
            begins=_begins,
            prepare=(lambda: self._deactivate(facts, line)) if line.force else None,
            # Without deactivation a BMC refuses new sessions for about a minute.
            leave=lambda: self._leave(facts, line, stays),
        )

    async def _deactivate(
        self, facts: MachineFacts, line: IPMILine, seconds: float | None = None
    ) -> None:
        try:
            await self.ask(facts, line, "sol", "deactivate", seconds=seconds)
        except ServiceUnavailable as problem:
            if "already de-activated" not in problem.message:
                raise ServiceUnavailable(_explained(problem.message, line)) from None

    async def _leave(self, facts: MachineFacts, line: IPMILine, stays: Callable[[], None]) -> None:
        try:
            await self._deactivate(facts, line, self.leave_seconds)
        except ServiceUnavailable as problem:
            stays()
            facts.event(
                "Warning",
                "ConsoleNotReleased",
                f"the BMC {line.host} may keep the SOL session of this runtime, and refuse others, until it ends "
                f"that by itself: {problem.message}",
            )


def _begins(printed: bytes) -> int | None:
    up = _UP.search(printed)
    return None if up is None else up.end()


def _complaint(printed: bytes) -> str:
    """Return ipmitool's error: its last line before SOL is up, later only messages known to be its own."""
    if _begins(printed) is not None:
        return last_line(b"\n".join(_WORDS.findall(printed)))
    if _TAKEN in printed:
        return f"{TAKEN}; force: true would end it"
    return last_line(printed)


def _explained(why: str, line: IPMILine) -> str:
    """Complete an error of ipmitool, which says the same of a BMC that is away and of a wrong password."""
    if not why.endswith(_NO_SESSION):
        return why
    return (
        f"{why}: the BMC does not answer, or refuses user {line.user} or the password in "
        f"{line.password_file}"
    )


class Chassis:
    """The power of one server; see :class:`~.shared_line.Power`."""

    def __init__(self, driver: IPMIDriver, facts: MachineFacts, line: IPMILine) -> None:
        self._driver, self._facts, self._line = driver, facts, line

    async def on(self) -> None:
        try:
            if await self._is_off():
                await self._ask("on")
                self._facts.event("Normal", "PoweredOn", "the chassis was switched on")
                self._facts.booted()
        except ServiceUnavailable as problem:
            raise CannotStart("PowerFailed", problem.message) from None

    async def off(self) -> None:
        if await self._is_off() or await self._shut_down():
            return
        await self._ask("off")
        clock, seconds = self._driver.reactor, self._line.shutdown_seconds
        if not await until(self._is_off, clock, self._driver.look_seconds, _OFF_SECONDS):
            raise ServiceUnavailable("the chassis stays on, though the BMC has accepted power off")
        message = f"the machine did not shut down in {seconds:g} s: it was switched off"
        self._facts.event("Warning", "SwitchedOff", message)

    async def _shut_down(self) -> bool:
        clock = self._driver.reactor
        try:
            await self._ask("soft")
        except ServiceUnavailable:
            return False  # not every BMC supports it
        self._facts.shutting_down()
        return await until(
            self._is_off, clock, self._driver.look_seconds, self._line.shutdown_seconds
        )

    async def _is_off(self) -> bool:
        return b"is off" in await self._ask("status")

    def _ask(self, word: str) -> Deferred[bytes]:
        if self._driver.lines.options_of(self._facts) != self._line:
            raise ServiceUnavailable("the machine does not have this server any more")
        return self._driver.ask(self._facts, self._line, "chassis", "power", word)
