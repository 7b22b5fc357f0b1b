"""
The driver ``ssh``: consoles behind ssh(1), on console servers and hypervisors.

::

    - name: rack
      driver: ssh
      user: console
      identity_file: /etc/twisted-exec/ssh/id_ed25519
      known_hosts: /etc/twisted-exec/ssh/known_hosts
      lines:
        web-1: {host: conserver.lab, command: "console -f web-1"}
        web-2: {host: digi.lab, port: 3002}
      capabilities: {cpu: "1", memory: 1Gi}

The client never prompts: unknown host keys are refused, and a password comes from a file
(``password_file``), which ssh(1) reads through a helper (SSH_ASKPASS).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.interfaces import IStreamClientEndpoint
from zope.interface import implementer

from twisted_exec.program.config_file import Reader
from twisted_exec.runtimes.interfaces import Build, IMachineDriver, MachineFacts
from twisted_exec.runtimes.lines.command import CommandEndpoint
from twisted_exec.runtimes.lines.driver import LineDriver
from twisted_exec.runtimes.lines.escapes import EscapedInput
from twisted_exec.runtimes.lines.password_file import (
    askpass_environment,
    read_password,
    write_askpass,
)
from twisted_exec.runtimes.lines.programs import last_line
from twisted_exec.runtimes.processes import ProcessTable
from twisted_exec.runtimes.pty import PtyDriver, PtyOptions, PtyRun

PROGRAM = "ssh"

_LOOK_SECONDS = 0.1
_MAX_LOG_BYTES = 64 << 10
_MOST_LOGS = 8
_UP = re.compile(rb"^Authenticated to ", re.MULTILINE)
_CHATTER = re.compile(
    rb"^(Authenticated to |Transferred: |Bytes per second|Killed by signal|Warning: Permanently).*$",
    re.MULTILINE,
)
_PLAIN = re.compile(r"[^-\s\0][^\s\0]*")

_PATHS = ("identity_file", "known_hosts", "config", "password_file")
_SHARED = ("user", *_PATHS)


@dataclass(frozen=True)
class SSHLine:
    """
    One line.

    :param command: for the remote shell; empty for the user's login shell.
    :param config: file in the form of ssh_config(5); empty for none, not even the system's.
    :param password_file: file whose first line is the password; empty for none.
    """

    host: str
    port: int = 22
    user: str = ""
    command: str = ""
    identity_file: str = ""
    known_hosts: str = ""
    config: str = ""
    password_file: str = ""


def configure(reader: Reader, resources: Mapping[str, int]) -> Build:
    """See :meth:`.IDriverMaker.configure`."""
    common = {key: reader.take(key, str, "") for key in _SHARED}
    lines = {}
    for name, line_reader in reader.lines().items():
        lines[name] = _line(line_reader, common)
    return lambda reactor, table: SSHDriver(lines, reactor, table)


def _line(reader: Reader, common: Mapping[str, str]) -> SSHLine:
    options = {key: reader.take(key, str, common[key]) for key in _SHARED}
    host = reader.take("host", str)
    for what, word in (("host", host), ("user", options["user"])):
        if word and not _PLAIN.fullmatch(word):
            raise reader.error(f"{what} {word!r} is not a valid {what}")
    for key in _PATHS:
        if options[key] and not options[key].startswith("/"):
            raise reader.error(f"{key} {options[key]!r} is not an absolute path")
    if not options["known_hosts"]:
        raise reader.error("known_hosts is missing: the file with the host's key (ssh-keyscan)")
    port = int(reader.number("port", 1, 65535, 22))
    line = SSHLine(host, port, command=reader.take("command", str, ""), **options)
    reader.reserve(line, f"the same command on {host}, port {port},")
    return line


def arguments(line: SSHLine, log: str) -> Sequence[str]:
    """Return ssh's command line; options there take precedence over those in files."""
    # Without -t ssh requests no remote terminal for a command (ssh(1)).
    words = [PROGRAM, "-tt", "-F", line.config or "none", "-E", log]
    options = {
        "IgnoreUnknown": "EnableEscapeCommandline",  # unknown before OpenSSH 9.2
        # _UP needs it: ssh logs that line from this level on.
        "LogLevel": "VERBOSE",
        **(_PASSWORD if line.password_file else {"BatchMode": "yes"}),
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": _quoted(line.known_hosts),
        "GlobalKnownHostsFile": "none",
        "UpdateHostKeys": "no",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "ClearAllForwardings": "yes",
        "PermitLocalCommand": "no",
        "ControlPath": "none",
        # EscapedInput relies on it, whatever a configuration file says.
        "EscapeChar": "~",
        "EnableEscapeCommandline": "no",
        "ConnectTimeout": "15",
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "3",
    }
    for name, value in options.items():
        words += ["-o", f"{name}={value}"]
    if line.identity_file:
        words += ["-o", "IdentitiesOnly=yes", "-i", line.identity_file]
    elif line.password_file:
        # Keys of the runtime's user would use up the attempts.
        words += ["-o", "PubkeyAuthentication=no"]
    if line.user:
        words += ["-l", line.user]
    words += ["-p", str(line.port), "--", line.host]
    return [*words, line.command] if line.command else words


_PASSWORD = {
    # BatchMode would not ask for a password, and what else ssh asks the helper refuses to answer.
    "BatchMode": "no",
    # BMCs lock an account after a few attempts.
    "NumberOfPasswordPrompts": "1",
    "PreferredAuthentications": "publickey,keyboard-interactive,password",
}


def _quoted(path: str) -> str:
    """Quote a path: the option is a list of files, separated by blanks."""
    return f'"{path}"'


@implementer(IMachineDriver)
class SSHDriver(LineDriver[SSHLine]):
    """Runs a class of machines behind ssh."""

    name = "ssh"

    def __init__(self, lines: Mapping[str, SSHLine], reactor: Any, table: ProcessTable) -> None:
        super().__init__(lines, reactor)
        self._table = table
        # A machine has one connection at a time; of the earlier ones a few logs stay.
        self._slots = itertools.cycle(range(_MOST_LOGS))

    def missing(self) -> str:
        missing = PtyDriver(
            PtyOptions([PROGRAM], same_user=True), self.reactor, self._table
        ).missing()
        return f"{missing} (Debian package openssh-client)" if missing else ""

    def _claim(self, facts: MachineFacts) -> tuple[str, IStreamClientEndpoint]:
        name, line = self.lines.claim(facts)
        return name, self.endpoint(facts, line)

    def endpoint(
        self, facts: MachineFacts, line: SSHLine, *, is_shell: bool = False
    ) -> IStreamClientEndpoint:
        """
        Return an endpoint that runs ssh for each connection; see :class:`~.command.CommandEndpoint`.

        Its ``connect`` fails with :class:`~twisted_exec.interfaces.CannotStart` if the password
        cannot be read.

        :param is_shell: the far end reads lines, and nothing is sent before it has printed. Its
            terminal gets the modes of ours: those of a raw one would leave it without echo, and
            Enter without effect.
        """
        log = os.path.join(facts.directory, f"ssh-{next(self._slots)}.log")

        def make_run() -> PtyRun:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(log)
            environment = {}
            if line.password_file:
                # ssh would say that it got no password; this says why.
                read_password(line.password_file)
                helper = write_askpass(facts.directory)
                environment = askpass_environment(helper, line.password_file)
            options = PtyOptions(
                arguments(line, log), same_user=True, raw=not is_shell, environment=environment
            )
            return PtyRun(PtyDriver(options, self.reactor, self._table), facts)

        return CommandEndpoint(
            PROGRAM,
            self.reactor,
            make_run,
            typing=EscapedInput,
            complaint=lambda _: last_line(_CHATTER.sub(b"", _read(log))),
            begins=lambda _: 0 if _UP.search(_read(log)) else None,
            look_seconds=_LOOK_SECONDS,
        )


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _MAX_LOG_BYTES))
            return file.read(_MAX_LOG_BYTES)
    except OSError:
        return b""
