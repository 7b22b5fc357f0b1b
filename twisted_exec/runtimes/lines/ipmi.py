"""
Servers whose consoles are Serial over LAN of their management controllers (BMC), by ipmitool(1).

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

With ``power: true`` the machine's power is the chassis's: on is switched on, and off is asked to shut down and
switched off when it does not.  Otherwise, and whenever the machine is deleted or the runtime stops, only
the line is closed.

A BMC has one SOL session.  One that somebody else has is left to them, unless ``force`` is set.

The password is in a file, and ipmitool reads it there; it is on no command line and in no environment.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import deferLater
from zope.interface import implementer

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.program.config_file import Reader
from twisted_exec.runtimes.interfaces import Build, CannotStart, IMachineDriver, MachineFacts
from twisted_exec.runtimes.lines.claims import Lines
from twisted_exec.runtimes.lines.command_endpoint import CommandEndpoint, EscapedInput, last_line
from twisted_exec.runtimes.lines.shared_line import SharedLine
from twisted_exec.runtimes.processes import ProcessTable
from twisted_exec.runtimes.programs import run_program
from twisted_exec.runtimes.pty import PtyDriver, PtyOptions, PtyRun

PROGRAM = "ipmitool"

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PATIENCE = ("-N", "2", "-R", "3")  # seconds for an answer, and how often
_ASK_SECONDS = 30.0
_LOOK_SECONDS = 1.0
_LEAVE_SECONDS = 5.0
_PLAIN = re.compile(r"[^-\s\0][^\s\0]*")
_UP = re.compile(rb"\[SOL Session operational\.[^\n]*\n")
_WORDS = re.compile(
    rb"Error sending SOL data|SOL session closed by BMC|Error: [A-Z][^\r\n]*SOL[^\r\n]*"
)
_TAKEN = b"SOL payload already active on another session"


@dataclass(frozen=True)
class IPMILine:
    """
    One server's BMC.

    :param password_file: its first line is the password.
    :param cipher_suite: 0 leaves it to ipmitool, which asks the BMC.
    :param power: whether the machine's power is the chassis's.
    :param force: whether the SOL session of somebody else is ended.
    :param shutdown_seconds: how long a machine may take to shut down.
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
    """A class's keys, as :class:`~twisted_exec.runtimes.drivers.IDriverMaker` asks."""
    common = _shared(reader, IPMILine(""))
    lines = {}
    for name, one in reader.mappings("lines").items():
        lines[name] = _line(one, common)
        one.done()
    reader.quantity = len(lines)
    return lambda reactor, table: IPMIDriver(lines, reactor, table)


def _shared(reader: Reader, default: IPMILine) -> IPMILine:
    """What may be said of the class, and of each line."""
    return IPMILine(
        host="",
        user=reader.take("user", str, default.user),
        password_file=reader.take("password_file", str, default.password_file),
        cipher_suite=int(reader.number("cipher_suite", 0, 17, default.cipher_suite)),
        power=reader.take("power", bool, default.power),
        force=reader.take("force", bool, default.force),
        shutdown_seconds=reader.number("shutdown_seconds", 0, 3600, default.shutdown_seconds),
    )


def _line(reader: Reader, common: IPMILine) -> IPMILine:
    host = reader.take("host", str)
    port = int(reader.number("port", 1, 65535, 623))
    told = _shared(reader, common)
    for what, word in (("host", host), ("user", told.user)):
        if not _PLAIN.fullmatch(word):
            raise reader.error(f"{what} {word!r} is no {what}" if word else f"{what} is missing")
    if not told.password_file.startswith("/"):
        raise reader.error("password_file must be the absolute path of a file with the password")
    return IPMILine(**{**told.__dict__, "host": host, "port": port})


def arguments(line: IPMILine, *words: str) -> Sequence[str]:
    """ipmitool's command line."""
    common = [PROGRAM, "-I", "lanplus", "-H", line.host, "-p", str(line.port)]
    common += ["-U", line.user, "-f", line.password_file, *_PATIENCE]
    if line.cipher_suite:
        common += ["-C", str(line.cipher_suite)]
    return [*common, *words]


@implementer(IMachineDriver)
class IPMIDriver:
    """Runs a class of servers with IPMI."""

    name = "ipmi"

    def __init__(self, lines: Mapping[str, IPMILine], reactor: Any, table: ProcessTable) -> None:
        self.lines = Lines(lines)
        self.reactor, self._table = reactor, table

    def missing(self) -> str:
        if shutil.which(PROGRAM, path=_PATH) is None:
            return f"this host has no {PROGRAM} (Debian package ipmitool)"
        return ""

    def run(self, facts: MachineFacts) -> SharedLine:
        line = self.lines.look(facts)
        power = Chassis(self, facts, line) if line is not None and line.power else None
        return SharedLine(
            facts,
            self.reactor,
            lambda: self._claim(facts),
            lambda: self.lines.release(facts),
            breakable=True,
            power=power,
        )

    def ask(
        self, facts: MachineFacts, line: IPMILine, *words: str, seconds: float | None = None
    ) -> Deferred[bytes]:
        """
        Run one command of ipmitool.

        :return: fires with what it printed; fails with ``ServiceUnavailable`` and its last words.
        """
        return run_program(
            self.reactor,
            arguments(line, *words),
            path=_PATH,
            marker=facts.marker,
            seconds=_ASK_SECONDS if seconds is None else seconds,
        )

    def _claim(self, facts: MachineFacts) -> tuple[str, IStreamClientEndpoint]:
        name, line = self.lines.claim(facts)
        if not os.access(line.password_file, os.R_OK):
            raise CannotStart("NoPassword", f"{line.password_file} cannot be read")

        def make_run() -> PtyRun:
            options = PtyOptions(arguments(line, "sol", "activate"), same_user=True, raw=True)
            return PtyDriver(options, self.reactor, self._table).run(facts)

        endpoint = CommandEndpoint(
            PROGRAM,
            self.reactor,
            make_run,
            typing=EscapedInput,
            complaint=_complaint,
            begins=_begins,
            prepare=(lambda: self._deactivate(facts, line)) if line.force else None,
            # A BMC believes in a session that nobody has any more for a minute.
            leave=lambda: self._leave(facts, line),
        )
        return name, endpoint

    async def _deactivate(
        self, facts: MachineFacts, line: IPMILine, seconds: float | None = None
    ) -> None:
        """End the session of whoever has it; that nobody has it is no failure."""
        try:
            await self.ask(facts, line, "sol", "deactivate", seconds=seconds)
        except ServiceUnavailable as problem:
            if "already de-activated" not in problem.message:
                raise

    async def _leave(self, facts: MachineFacts, line: IPMILine) -> None:
        """End our own session, if the BMC can be reached."""
        with contextlib.suppress(ServiceUnavailable):
            await self._deactivate(facts, line, _LEAVE_SECONDS)


def _begins(printed: bytes) -> int | None:
    """Behind the line that says that SOL works."""
    up = _UP.search(printed)
    return None if up is None else up.end()


def _complaint(printed: bytes) -> str:
    """Before the machine is reached ipmitool alone speaks; afterwards its words must be known."""
    if _begins(printed) is not None:
        return last_line(b"\n".join(_WORDS.findall(printed)))
    if _TAKEN in printed:
        return "somebody else has the SOL session; force: true would end theirs"
    return last_line(printed)


class Chassis:
    """The switch of one server, as :class:`~.held.Power` asks."""

    def __init__(self, driver: IPMIDriver, facts: MachineFacts, line: IPMILine) -> None:
        self._driver, self._facts, self._line = driver, facts, line

    async def on(self) -> None:
        try:
            if not await self._is_on():
                await self._ask("on")
                self._facts.event("Normal", "PoweredOn", "the chassis was switched on")
        except ServiceUnavailable as problem:
            raise CannotStart("PowerFailed", problem.message) from None

    async def off(self) -> None:
        try:
            if not await self._is_on():
                return
            if not await self._shut_down():
                await self._ask("off")
                told = f"the machine did not shut down in {self._line.shutdown_seconds:g} s"
                self._facts.event("Warning", "SwitchedOff", f"{told}: it was switched off")
        except ServiceUnavailable as problem:
            self._facts.event("Warning", "PowerFailed", problem.message)

    async def _shut_down(self) -> bool:
        """Ask the system to; :return: whether it did."""
        clock = self._driver.reactor
        until = clock.seconds() + self._line.shutdown_seconds
        try:
            await self._ask("soft")
        except ServiceUnavailable:
            return False  # not every BMC can
        while await self._is_on():
            if clock.seconds() >= until:
                return False
            await deferLater(clock, _LOOK_SECONDS)
        return True

    async def _is_on(self) -> bool:
        return b"is on" in await self._ask("status")

    def _ask(self, word: str) -> Deferred[bytes]:
        return self._driver.ask(self._facts, self._line, "chassis", "power", word)
