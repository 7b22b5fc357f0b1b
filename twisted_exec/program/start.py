"""
How a program that twistd runs says no: one line, exit code 1, never a traceback.

Left alone, twistd prints all of a plugin's help before a usage error, a traceback for
whatever ``makeService`` or ``startService`` raises, and ends with code 0 when
something that starts later fails.

Telling systemd how a program does, so that whoever waits for it waits for the right thing.

A service of ``Type=notify`` has begun when it says ``READY=1``, not when its process
exists: what is ordered after it finds it listening.  Source: sd_notify(3); one datagram to the
socket that ``NOTIFY_SOCKET`` names, where a leading ``@`` stands for the NUL of an abstract one.

Timers that count seconds, whatever the wall clock is set to.

Twisted's reactors time their calls by ``time.time``: when the clock is set back by an hour, no
timer is due for an hour, and no heartbeat is sent; when it is set forward, every time-out is over
at once.  See https://github.com/twisted/twisted/issues/2424.  Whoever wants the time of day asks
for that, not the reactor.
"""

from __future__ import annotations

import atexit
import os
import re
import signal
import socket
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from errno import EACCES, EADDRINUSE, EADDRNOTAVAIL
from functools import wraps
from socket import gaierror
from typing import Any, Protocol, cast

from twisted.application.service import IService
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IReactorCore
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.usage import Options, UsageError

from twisted_exec.wire.upgrade import read_origin


def use_monotonic_clock(reactor: Any) -> None:
    """
    Let a reactor count by the clock that is never set.

    Does nothing when the reactor has timers already, or runs: it is not this program's alone,
    and times by the other clock would be among those timers.
    """
    if not reactor.running and not reactor.getDelayedCalls():
        reactor.seconds = time.monotonic


VARIABLE = "NOTIFY_SOCKET"
READY, STOPPING = "READY=1", "STOPPING=1"


def notify(state: str, environ: Mapping[str, str] = os.environ) -> bool:
    """
    Say something, if anyone listens; that nobody does is no mistake.

    :param state: an assignment as sd_notify(3) lists them, such as :data:`READY`.
    :return: whether it was said.
    """
    path = environ.get(VARIABLE, "")
    if not path.startswith(("/", "@")):
        return False
    address = f"\0{path[1:]}" if path.startswith("@") else path
    try:
        with socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
        ) as notify_socket:
            # It never waits: the reactor's thread is the only one.
            notify_socket.setblocking(False)
            notify_socket.sendto(state.encode(), address)
    except OSError:
        return False
    return True


_log = Logger()
_CERTIFICATES = ("cert-file", "ca-file", "client-certificate", "certificate-authority")
_exit_code = 0


class ProgramOptions(Options):
    """
    Options whose mistakes take one line, which names the option.

    :cvar program: the plugin's name, for messages.
    :cvar paths: the options that are made absolute at once: a daemon's working
        directory is another one.
    """

    program = ""
    paths: Sequence[str] = ()
    optParameters: list[list[Any]] = []

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.optParameters = [_naming(*each) for each in cls.__dict__.get("optParameters", [])]

    def parseArgs(self, *surplus: str) -> None:
        """:raises UsageError: there is a word that belongs to no option."""
        if surplus:
            raise UsageError(f"{surplus[0]!r} belongs to no option")

    def getUsage(self, width: int | None = None) -> str:
        """
        The help text.  That an option is empty by default goes without saying.

        :param width: in columns; by default that of the terminal.
        """
        width = width or _columns()
        longest = max(map(len, self.longOpt))
        if width - longest >= _LEAST_COLUMNS:
            return _NO_DEFAULT.sub("", super().getUsage(width))
        # Beside names that long Twisted would leave room for two words: below them there is more.
        lines = _NO_DEFAULT.sub("", super().getUsage(_ENDLESS_COLUMNS)).splitlines()
        return "".join(f"{_below(line, width)}\n" for line in lines)

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """
        Read the command line.

        :raises SystemExit: 1, after the line, when it makes no sense.
        """
        try:
            super().parseOptions(options)
        except UsageError as error:
            why = str(error).removeprefix("Parameter type enforcement failed: ")
            raise refusal(self.program, why) from None
        for name in self.paths:
            if self[name]:
                self[name] = os.path.abspath(self[name])

    def certificates(self) -> dict[str, str]:
        """The paths of certificates and CAs that are given, by the names of their options."""
        return {
            name: self[name] for name in self.paths if name.endswith(_CERTIFICATES) and self[name]
        }


_NO_DEFAULT = re.compile(r"\s*\[default:\s*\]")
_OPTION = re.compile(r"(.{6}--\S+) +(\S.*)")
_LEAST_COLUMNS = 50
_ENDLESS_COLUMNS = 100_000


def _columns() -> int:
    columns = os.environ.get("COLUMNS", "")
    return (
        int(columns)
        if columns.isdecimal() and columns.isascii() and 20 <= int(columns) <= 500
        else 80
    )


def _below(line: str, width: int) -> str:
    """A line of help, and what an option means below its name."""
    option = _OPTION.fullmatch(line)
    if option is None:
        return textwrap.fill(line, width)
    indent = " " * 10
    help_text = textwrap.fill(
        option[2],
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return f"{option[1]}\n{help_text}"


class BrowserOptions(ProgramOptions):
    """Options of a program that browsers may ask."""

    def __init__(self) -> None:
        super().__init__()
        self["allowed-origin"] = []

    def opt_allowed_origin(self, origin: str) -> None:
        """A site besides this server's own whose pages may ask here, such as https://HOST:PORT; may be repeated."""
        try:
            self["allowed-origin"].append(read_origin(origin))
        except ValueError as error:
            raise UsageError(f"--allowed-origin: {error}") from None


def _naming(name: str, *rest: Any) -> list[Any]:
    """A parameter whose coercion, if it has one, names it when it fails."""
    if len(rest) < 4:
        return [name, *rest]
    coerce: Callable[[str], Any] = rest[3]

    @wraps(coerce)
    def named(text: str) -> Any:
        try:
            return coerce(text)
        except ValueError as error:
            raise ValueError(f"--{name}: {error}") from None

    return [name, *rest[:3], named]


def seconds(text: str) -> float:
    """
    A coercion for options that are times.

    :raises ValueError: it is none from 0 to 3600.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise ValueError(f"{text!r} is no number of seconds from 0 to 3600")
    return seconds


_DURATION = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s)?", re.ASCII)


def duration(text: str) -> float:
    """
    A coercion for longer times, as Go writes them: ``8760h``, ``1h30m``.

    :return: seconds.
    :raises ValueError: it is none.
    """
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise ValueError(f"{text!r} is no duration such as 8760h, 1h30m or 45s")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return hours * 3600.0 + minutes * 60.0 + seconds


def refusal(program: str, why: str) -> SystemExit:
    """What to raise from ``postOptions`` or ``makeService``: Python prints the line, exits with 1."""
    line = " ".join(why.split())
    return SystemExit(f"{program}: {line}; see twistd {program} --help")


class Startable(Protocol):
    """A service that says when it has begun."""

    def when_ready(self) -> Deferred[None]:
        """Fires when it has; fails with why it cannot."""


def make_service(
    program: str,
    make: Callable[[Any], Startable],
    refused: tuple[type[Exception], ...] = (),
) -> IService:
    """
    What each program's ``makeService`` answers; nothing is opened yet.

    :param make: makes the service, given the reactor.
    :param refused: what it raises when the command line cannot work; the text is the line.
    :raises SystemExit: with that line.
    """
    from twisted.internet import reactor

    use_monotonic_clock(reactor)
    stop_once(reactor)
    try:
        program_service = make(reactor)
    except refused as problem:
        raise refusal(program, str(problem)) from None
    report_start(program_service.when_ready(), program, cast(IReactorCore, reactor))
    service: IService = cast(IService, program_service)
    return service


def report_start(ready: Deferred[None], program: str, reactor: IReactorCore) -> None:
    """
    Tell whoever started the program that it has begun, or end it because it cannot.

    :param ready: fires when it has, or fails with why not.
    """
    ready.addCallbacks(_begun, fail_program, errbackArgs=(program, reactor))


def _begun(_result: None) -> None:
    notify(READY)


def fail_program(failure: Failure, program: str, reactor: IReactorCore) -> None:
    """
    End the program because it cannot start.  An errback of what starts it.

    The line is logged, which for ``twistd -n`` means standard output.

    :param failure: its exception's text is the line.
    """
    global _exit_code
    _exit_code = 1
    line = _explain(failure.value)
    _log.critical("{program}: {line}", program=program, line=line)
    # Services start before the reactor runs, when it cannot be stopped yet.
    reactor.callWhenRunning(reactor.stop)


def stop_once(reactor: Any) -> None:
    """
    Stop when the terminal is closed, too, and once only.

    Signals that come while the program stops already are answered with a line, sessions may need
    their time; Twisted would log a traceback for each.
    """
    reactor.callWhenRunning(_stop_on_hangup, reactor)
    reactor.addSystemEventTrigger("before", "shutdown", _stopping, reactor)


def _stop_on_hangup(reactor: Any) -> None:
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # it is ignored under nohup
        signal.signal(signal.SIGHUP, lambda *_: reactor.callFromThread(reactor.stop))


def _stopping(reactor: Any) -> None:
    notify(STOPPING)
    signals: list[int] = []

    def again(number: int, frame: object) -> None:
        if not signals:
            signals.append(number)
            reactor.callFromThread(_log.info, "already stopping; sessions get their time to end")

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, again)


_REMEDIES = {
    EADDRINUSE: "free it, or choose another address or port",
    EADDRNOTAVAIL: "choose an address of this host",
    EACCES: "choose a place that this user may listen on; a port below 1024 needs "
    "CAP_NET_BIND_SERVICE",
}


def _explain(error: BaseException | None) -> str:
    if isinstance(error, CannotListenError):
        place = f"{error.interface or 'any'}:{error.port}"
        if isinstance(error.port, str | bytes):
            place = os.fsdecode(error.port)
        if isinstance(error.socketError, gaierror):
            return f"cannot listen on {place}: {error.socketError.strerror}: {_REMEDIES[EADDRNOTAVAIL]}"
        code = getattr(error.socketError, "errno", None)
        why = os.strerror(code) if code else str(error.socketError)
        remedy = _REMEDIES.get(code or EADDRINUSE, _REMEDIES[EADDRINUSE])
        return f"cannot listen on {place}: {why}: {remedy}"
    return " ".join(str(error).split()) or type(error).__name__


@atexit.register
def _exit_with_code() -> None:
    # twistd has no other way to end with a code of ours; its pidfile is gone by now.
    if _exit_code:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_exit_code)
