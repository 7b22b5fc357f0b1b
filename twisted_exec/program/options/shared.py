"""
Options that several programs share: allowed origins, time for draining and before a shutdown, verbs of consoles, ports
of Spaces.
"""

from __future__ import annotations

from twisted_exec.program.options.declaration import ProgramOption
from twisted_exec.program.options.values import (
    COMPATIBLE,
    STRICT,
    console_verbs,
    port_range,
    seconds,
)
from twisted_exec.wire.cross_site import read_origin

ALLOWED_ORIGIN = ProgramOption(
    "allowed-origin",
    "A site besides this server's own whose pages may send requests, such as https://HOST:PORT; may be "
    "repeated.",
    read_origin,
    several=True,
    convert=tuple,
)

SPACE_PORT_RANGE = ProgramOption(
    "space-port-range",
    "Ports of 127.0.0.1 for the API servers of local Spaces: FIRST-LAST.",
    port_range,
    group="Spaces",
)

DRAIN_SECONDS = ProgramOption(
    "drain-seconds", "Seconds that sessions may take to end at shutdown.", seconds
)

SHUTDOWN_DELAY_SECONDS = ProgramOption(
    "shutdown-delay-seconds",
    "Seconds to serve as not ready when stopping, before sessions drain.",
    seconds,
)

CONSOLE_VERBS = ProgramOption(
    "console-verbs",
    "Whether create on machines/exec includes the verbs of machines/console (compatible) or not "
    "(strict).",
    console_verbs,
    default=COMPATIBLE,
    convert=STRICT.__eq__,
)
