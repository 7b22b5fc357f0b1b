"""
Start and end of programs under twistd.  Errors take one line and exit code 1, not a traceback.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable
from errno import EACCES, EADDRINUSE, EADDRNOTAVAIL
from socket import gaierror
from typing import Any, Protocol, cast

from twisted.application.service import IService
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IReactorCore
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec import build
from twisted_exec.program.descriptors import raise_descriptor_limit
from twisted_exec.program.garbage import GarbagePolicy
from twisted_exec.program.listening import LISTENING
from twisted_exec.program.maker import stop_on_interrupt
from twisted_exec.program.options.command_line import ProgramOptions, refusal
from twisted_exec.program.session_limits import Limiting, SessionLimits
from twisted_exec.program.systemd import READY, STOPPING, activated_sockets, notify
from twisted_exec.tls.fast.loop import shorten_turns, use_monotonic_clock

_log = Logger()
_failure = ""

_REMEDIES = {
    EADDRINUSE: "free it, or choose another{option}",
    EADDRNOTAVAIL: "choose an address of this host{option}",
    EACCES: "choose an address at which this user may listen{option}; a port below 1024 needs "
    "CAP_NET_BIND_SERVICE",
}


class Startable(Protocol):
    """A service that reports the end of its start."""

    def when_ready(self) -> Deferred[None]:
        """Fires when the service is ready; fails with the reason if it cannot start."""


def make_service(
    program: str,
    make: Callable[[Any], Startable],
    refused: tuple[type[Exception], ...] = (),
    *,
    options: ProgramOptions | None = None,
    limits: Limiting | None = None,
) -> IService:
    """
    Return the service for a program's ``makeService``.

    The process's limit of file descriptors is raised first, and its umask denies users outside
    the group to write to anything that it creates.  Unless the reactor runs already, garbage is collected by
    :class:`~twisted_exec.program.garbage.GarbagePolicy` once the service is ready, and the program listens at the sockets that
    systemd has opened.

    :param refused: exceptions that ``make`` raises for unusable options.
    :param limits: returns the limits of sessions, which the log shows when the program is ready.
    :raises SystemExit: the options or the limits cannot be used.
    """
    from twisted.internet import reactor

    _log.info("{program} {build}", program=program, build=build())
    use_monotonic_clock(reactor)
    shorten_turns(reactor)
    stop_once(reactor)
    # Files have modes of their own; but the parents of a directory get what the umask leaves.
    os.umask(os.umask(0o077) | 0o002)
    raise_descriptor_limit()
    # A running reactor belongs to an application, which has its own policy and sockets.
    is_own = not reactor.running
    try:
        sessions = None if limits is None else limits()
    except ValueError as problem:
        raise refusal(program, str(problem)) from None
    try:
        program_service = make(reactor)
    except refused as problem:
        raise refusal(program, str(problem)) from None
    ready = program_service.when_ready()
    if is_own:
        LISTENING.inherit(activated_sockets())
        ready.addCallback(lambda _: LISTENING.close_unused())
        ready.addCallback(lambda _: GarbagePolicy(reactor).start())
    if sessions is not None:
        ready.addCallback(announce, program, sessions)
    report_start(ready, program, cast(IReactorCore, reactor), options)
    service: IService = cast(IService, program_service)
    return service


def announce(_result: None, program: str, limits: SessionLimits) -> None:
    """Log the limits of sessions."""
    _log.info("{program}: {limits}", program=program, limits=limits)


def report_start(
    ready: Deferred[None],
    program: str,
    reactor: IReactorCore,
    options: ProgramOptions | None = None,
) -> None:
    """
    Notify systemd when the program is ready, or end the program if it cannot start.

    The end is one line in the log, with the text of the exception and no traceback, and exit code 1.

    :param ready: ``when_ready()`` of the program's service, or ``gatherResults`` of several.
    :param program: its name, for the line.
    :param options: the line names the one that gave an address at which the program cannot listen.
    """
    ready.addCallbacks(_begun, fail_program, errbackArgs=(program, reactor, options))


def _begun(_result: None) -> None:
    notify(READY)


def fail_program(
    failure: Failure,
    program: str,
    reactor: IReactorCore,
    options: ProgramOptions | None = None,
) -> None:
    """
    End the program because it cannot start.

    The message is logged, which for ``twistd -n`` means standard output.  On a terminal it is also
    the last line, because services log their end after it.
    """
    global _failure
    # gatherResults() wraps the failure.
    line = _explain(getattr(failure.value, "subFailure", failure).value, options)
    _failure = f"{program}: {line}"
    _log.critical("{program}: {line}", program=program, line=line)
    # Services start before the reactor runs, and a reactor that does not run cannot be stopped.
    reactor.callWhenRunning(reactor.stop)


def stop_once(reactor: Any) -> None:
    """
    Stop on SIGHUP (a closed terminal) as well, and only once.

    A SIGINT (Ctrl-C) during the stop ends the process.  Only SIGINT is impatience: a closed terminal sends SIGHUP
    more than once.
    """
    stop_on_interrupt(reactor)
    reactor.callWhenRunning(_stop_on_hangup, reactor)
    reactor.addSystemEventTrigger("before", "shutdown", _stopping, reactor)


def _stop_on_hangup(reactor: Any) -> None:
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # nohup sets SIG_IGN, which must stay
        signal.signal(signal.SIGHUP, lambda *_: reactor.callFromThread(reactor.stop))


def _stopping(reactor: Any) -> None:
    notify(STOPPING)
    signals: list[int] = []

    def again(number: int, frame: object) -> None:
        if not signals:
            signals.append(number)
            reactor.callFromThread(_log.info, "already stopping")

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, again)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _explain(error: BaseException | None, options: ProgramOptions | None) -> str:
    if isinstance(error, CannotListenError):
        is_path = isinstance(error.port, str | bytes)
        port = os.fsdecode(error.port) if is_path else str(error.port)
        place = port if is_path else f"{error.interface or 'any'}:{port}"
        code = getattr(error.socketError, "errno", 0)
        why = os.strerror(code) if code else str(error.socketError)
        if isinstance(error.socketError, gaierror):
            code, why = EADDRNOTAVAIL, str(error.socketError.strerror)
        chosen_by = [] if options is None else options.listening_at(port)
        option = f" with {' or '.join(f'--{each}' for each in chosen_by)}" if chosen_by else ""
        remedy = _REMEDIES.get(code, _REMEDIES[EADDRINUSE]).format(option=option)
        return f"cannot listen on {place}: {why}: {remedy}"
    return " ".join(str(error).split()) or type(error).__name__


@atexit.register
def _exit_with_code() -> None:
    # twistd has no way to set an exit code; its pidfile is removed by now.
    if _failure:
        sys.stdout.flush()
        sys.stderr.flush()
        # twistd has replaced sys.stderr by its log, which has the message already.
        if sys.__stderr__ is not None and sys.__stderr__.isatty():
            print(_failure, file=sys.__stderr__, flush=True)
        os._exit(1)
