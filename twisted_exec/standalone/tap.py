"""``twistd exec-standalone``: API server, poollet, machine runtime and Space Manager in one process."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from twisted.application.service import IService
from twisted.internet.error import ReactorNotRunning
from twisted.internet.interfaces import IReadDescriptor
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.program.config_file import ConfigError
from twisted_exec.program.start import make_service
from twisted_exec.standalone import PROGRAM
from twisted_exec.standalone.options import Options
from twisted_exec.standalone.options import settings as settings_from
from twisted_exec.standalone.service import Standalone
from twisted_exec.standalone.standard_output import FirstCommands, TerminalSummary

_log = Logger()
_STDIN = 0
_BYTES = 4096


def stop_with_parent(reactor: Any, descriptor: int = _STDIN) -> None:
    """
    Stop the reactor at the end of a descriptor's input.

    :param descriptor: a pipe or a socket.
    """
    reactor.addReader(_Input(reactor, descriptor))


@implementer(IReadDescriptor)
class _Input:
    def __init__(self, reactor: Any, descriptor: int) -> None:
        self._reactor, self._descriptor = reactor, descriptor

    def fileno(self) -> int:
        return self._descriptor

    def logPrefix(self) -> str:
        return "stdin"

    def doRead(self) -> None:
        try:
            data = os.read(self._descriptor, _BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.connectionLost(None)

    def connectionLost(self, reason: object) -> None:
        self._reactor.removeReader(self)
        if self._reactor.running:
            _log.info("standard input has ended: stopping with the parent process")
            self._reactor.callLater(0, self._stop)

    def _stop(self) -> None:
        with contextlib.suppress(ReactorNotRunning):  # it is stopping already, as after SIGTERM
            self._reactor.stop()


def makeService(options: Options) -> IService:
    """Return the service, without opening anything."""
    return make_service(
        PROGRAM,
        lambda reactor: _program(options, reactor),
        (ConfigError,),
        options=options,
        limits=options.session_limits,
    )


def _program(options: Options, reactor: Any) -> Standalone:
    settings = settings_from(options)
    if settings.has_parent:
        reactor.callWhenRunning(stop_with_parent, reactor)
    has_summary = not settings.verbose and _logs_on_terminal(options.parent)
    summary = TerminalSummary() if has_summary else None
    standalone = Standalone(settings, reactor, summary=summary)
    first = FirstCommands(reactor)
    standalone.when_ready().addCallbacks(
        lambda _: first.show(standalone.first_commands, lambda: bool(standalone.running)),
        lambda failure: None,  # reported by make_service
    )
    return standalone


def _logs_on_terminal(twistd: Mapping[str, Any] | None) -> bool:
    """Return whether twistd would write the log on a terminal, by its own options."""
    if twistd is None or any(map(twistd.get, ("logfile", "logger", "syslog"))):
        return False
    return bool(twistd.get("nodaemon")) and sys.stdout is not None and sys.stdout.isatty()
