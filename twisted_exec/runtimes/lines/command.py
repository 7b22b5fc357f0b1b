"""
The driver ``command``: consoles behind a command of this host, such as conserver's console(1).

::

    - name: rack
      driver: command
      same_user: true
      lines:
        web-1:
          command: [console, -M, conserver.lab, -f, web-1]
          break: "\\x05cl0"
      capabilities: {cpu: "1", memory: 1Gi}

With the driver ``pty`` the command *is* the machine; here it only leads to one.  So each machine has a command
of its own, and the end of the command is a lost line, which :mod:`.shared_line` reopens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twisted.internet.interfaces import IStreamClientEndpoint
from zope.interface import implementer

from twisted_exec.program.config_file import Reader
from twisted_exec.runtimes.interfaces import Build, IMachineDriver, MachineFacts
from twisted_exec.runtimes.lines.command_endpoint import EARLY_END_SECONDS, CommandEndpoint, Typing
from twisted_exec.runtimes.lines.line_driver import LineDriver
from twisted_exec.runtimes.processes import ProcessTable
from twisted_exec.runtimes.pty import PtyDriver, PtyOptions, PtyRun

_MAX_BREAK_BYTES = 64


@dataclass(frozen=True)
class CommandLineOptions:
    """
    One line.

    :param break_keys: input that makes the command send BREAK; empty if it cannot.
    """

    pty: PtyOptions
    break_keys: bytes = b""


def configure(reader: Reader, resources: Mapping[str, int]) -> Build:
    """Read the keys of a class; see :meth:`.IDriverMaker.configure`."""
    user = reader.take("user", str, "")
    same_user = reader.take("same_user", bool, False)
    environment = reader.environment("environment")
    if bool(user) == same_user:
        raise reader.error(
            "a command class needs either user: NAME, or same_user: true to run as the runtime's own"
        )
    lines = {}
    for name, line_reader in reader.mappings("lines").items():
        pty = PtyOptions(line_reader.words("command"), user, same_user, environment)
        lines[name] = CommandLineOptions(pty, _break_keys(line_reader))
        line_reader.done()
    reader.quantity = len(lines)
    return lambda reactor, table: CommandDriver(lines, reactor, table)


def _break_keys(reader: Reader) -> bytes:
    keys = reader.take("break", str, "").encode("utf-8")
    if len(keys) > _MAX_BREAK_BYTES:
        raise reader.error(f"break has more than {_MAX_BREAK_BYTES} bytes")
    return bytes(keys)


@implementer(IMachineDriver)
class CommandDriver(LineDriver[CommandLineOptions]):
    """
    Runs a class of machines behind commands.

    :ivar settle_seconds: a command that still runs after this time has reached its machine.
    :ivar early_end_seconds: see :class:`.CommandEndpoint`.
    """

    name = "command"
    settle_seconds = 1.0
    early_end_seconds = EARLY_END_SECONDS

    def __init__(
        self, lines: Mapping[str, CommandLineOptions], reactor: Any, table: ProcessTable
    ) -> None:
        super().__init__(lines, reactor)
        self._table = table
        self._drivers = [self._pty(line) for line in lines.values()]

    def _pty(self, line: CommandLineOptions) -> PtyDriver:
        return PtyDriver(line.pty, self.reactor, self._table)

    def missing(self) -> str:
        """Report only what all lines lack; a single line's problem fails its machine's start."""
        problems = [driver.missing() for driver in self._drivers]
        return problems[0] if all(problems) else ""

    def _has_break(self, line: CommandLineOptions) -> bool:
        return bool(line.break_keys)

    def _claim(self, facts: MachineFacts) -> tuple[str, IStreamClientEndpoint]:
        name, line = self.lines.claim(facts)
        driver = self._pty(line)

        def make_run() -> PtyRun:
            return PtyRun(driver, facts)

        program = line.pty.command[0]
        return name, CommandEndpoint(
            program,
            self.reactor,
            make_run,
            typing=lambda: Typing(line.break_keys),
            settle_seconds=self.settle_seconds,
            early_end_seconds=self.early_end_seconds,
        )
