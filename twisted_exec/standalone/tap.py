"""``twistd exec-standalone``: API server, poollet, machine runtime and Space Manager in one process."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from twisted.application.service import IService

from twisted_exec.program.config_file import ConfigError
from twisted_exec.program.start import make_service
from twisted_exec.standalone import PROGRAM
from twisted_exec.standalone.options import Options
from twisted_exec.standalone.options import settings as settings_from
from twisted_exec.standalone.parent_watch import stop_with_parent
from twisted_exec.standalone.service import Standalone
from twisted_exec.standalone.standard_output import FirstCommands, TerminalSummary


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
