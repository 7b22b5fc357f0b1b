"""
Processes of local spaces.

A process (:class:`ProcessRun`) stops when its standard input ends.  So it ends with its manager,
however that ends: the kernel closes the pipe.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

import twisted_exec
from twisted_exec.api.status import one_line

PROGRAM = "exec-standalone"
STOP_SECONDS = 10.0
"""Timeout for ending sessions and machines before the process is killed."""
_LOOK_SECONDS = 0.02
_LONGEST_LOG = 1 << 20
_TAIL_BYTES = 8 << 10
_ERROR_LEVELS = ("warn", "error", "critical")
# The format of Twisted's textFileLogObserver.
_LOGGED = re.compile(r"\S+ \[[^]]*#(?P<level>[a-z]+)\] (?P<message>.*)")
# "PROGRAM: message" or "Exception: message"; further lines of one message are indented.
_WRITTEN = re.compile(r"[\w.-]+: \S")
_KEPT_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "XDG_RUNTIME_DIR")


def argv(state_directory: str, port: int, client_ca: str = "") -> list[str]:
    """Return the command line of a space's process."""
    # In a process group of its own, and without a pidfile: see the module.
    module = "twisted_exec.spacemanager.providers.local.child"
    options = ["--without-demo", "--without-spaces", "--with-parent"]
    options.append("--no-keep-machines")  # nothing of a deleted Space may be left
    where = ["--state-dir", state_directory, "--port", str(port)]
    if client_ca:
        where += ["--client-ca-file", client_ca]
    return [sys.executable, "-m", module, PROGRAM, *where, *options]


def environment(ours: Mapping[str, str] = os.environ) -> dict[str, str]:
    """
    Return the environment of the process, without variables that may be secret or are meant for the
    manager.
    """
    variables = {name: ours[name] for name in _KEPT_VARIABLES if name in ours}
    variables |= {name: value for name, value in ours.items() if name.startswith(("LC_", "PYTHON"))}
    # The same installation of this program, wherever it was started from.
    root = os.path.dirname(os.path.dirname(os.path.abspath(twisted_exec.__file__)))
    path = [root, *filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))]
    return {**variables, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, path))}


class ProcessRun(ProcessProtocol):
    """
    One run of a process.

    :ivar how: how it ended, in words; empty while it runs.
    """

    transport: Any
    _log = Logger()

    def __init__(self, log: str, reactor: Any) -> None:
        self._path, self._reactor = log, reactor
        self.how = ""
        self._waiting: list[Deferred[str]] = []
        self._killing: IDelayedCall | None = None

    def start(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """
        Start the process.

        :raises OSError: the process cannot be started.
        """
        log = open_log(self._path)
        try:
            self._reactor.spawnProcess(
                self,
                argv[0],
                list(argv),
                env=dict(env),
                path="/",
                childFDs={0: "w", 1: log, 2: log},
            )
        finally:
            os.close(log)

    @property
    def pid(self) -> int | None:
        """Process ID."""
        return None if self.how else self.transport.pid

    def ended(self) -> Deferred[str]:
        """Return a Deferred that fires with how the process ended."""
        waiting: Deferred[str] = Deferred(self._waiting.remove)
        self._waiting.append(waiting)
        if self.how:
            self._tell()
        return waiting

    def until(self, true: Callable[[], bool], seconds: float) -> Deferred[bool]:
        """
        Wait for a condition.  Fires with ``False`` if the process ends first, or after a timeout.
        """
        deadline = self._reactor.seconds() + seconds
        waiting: Deferred[bool] = Deferred(lambda _: call[0].cancel())
        call: list[IDelayedCall] = []

        def look() -> None:
            if self.how or true() or self._reactor.seconds() > deadline:
                waiting.callback(not self.how and true())
            else:
                call[:] = [self._reactor.callLater(_LOOK_SECONDS, look)]

        look()
        return waiting

    def stop(self) -> Deferred[str]:
        """Stop the process; fires when it has ended."""
        if not self.how and self._killing is None:
            self.transport.closeStdin()
            self._signal(signal.SIGTERM)
            self._killing = self._reactor.callLater(STOP_SECONDS, self.kill)
        return self.ended()

    def kill(self) -> None:
        if self.how or self.transport.pid is None:
            return
        try:
            os.killpg(self.transport.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has no process group yet
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.transport.pid is not None:
            os.kill(self.transport.pid, number)

    def trim(self) -> None:
        try:
            if os.path.getsize(self._path) > _LONGEST_LOG:
                os.truncate(self._path, 0)
        except OSError:
            pass  # there is no log

    def processExited(self, reason: Failure) -> None:
        if self._killing is not None and self._killing.active():
            self._killing.cancel()
        self.how = _how(reason, self._path)
        self._tell()

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(self.how)


def _how(reason: Failure, log: str) -> str:
    value: Any = reason.value
    if value.signal is not None:
        return f"killed by signal {value.signal} ({_signal_name(value.signal)})"
    how, error = f"exited with code {value.exitCode}", last_error(log)
    return f"{how}: {error}" if error and value.exitCode else how


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return signal.strsignal(number) or "unknown"


def open_log(path: str) -> int:
    """Open a log file for a new run, without the output of earlier runs."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)


def last_error(path: str) -> str:
    """Return the last message of a log that explains a failure, or empty."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - _TAIL_BYTES))
            tail = file.read(_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    errors = (_error_in(line) for line in reversed(tail.splitlines()))
    return one_line(next(filter(None, errors), "").removeprefix(f"{PROGRAM}: "))


def _error_in(line: str) -> str:
    if logged := _LOGGED.match(line):
        return logged["message"] if logged["level"] in _ERROR_LEVELS else ""
    return line if _WRITTEN.match(line) else ""
