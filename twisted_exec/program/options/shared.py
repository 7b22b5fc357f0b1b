"""
Options that several programs share: serving certificates, probes, limits, allowed origins, time for draining and before a
shutdown, verbs of consoles, ports of Spaces.
"""

from __future__ import annotations

from twisted_exec.program.options.declaration import ProgramOption, Required
from twisted_exec.program.options.values import (
    COMPATIBLE,
    STRICT,
    console_verbs,
    number_of_sessions,
    port_range,
    seconds,
)
from twisted_exec.tls.endpoints import listening_address_or_none
from twisted_exec.wire.cross_site import read_origin

SERVING_CERTIFICATE = ProgramOption(
    "tls-cert-file",
    "Serving certificate (PEM).",
    is_path=True,
    required=Required("the serving certificate"),
)
SERVING_KEY = ProgramOption(
    "tls-private-key-file",
    "Private key of the serving certificate (PEM).",
    is_path=True,
    required=Required("the private key of the serving certificate"),
)


def health_listen(port: int) -> ProgramOption:
    """
    Return the option for the endpoint of probes and metrics.

    :param port: of the loopback address, by default.
    """
    return ProgramOption(
        "health-listen",
        "Endpoint for probes and metrics, without TLS; empty: none.",
        listening_address_or_none,
        default=f"tcp:{port}:interface=127.0.0.1",
        listens=True,
    )


def limit(name: str, description: str) -> ProgramOption:
    """Return the option for a number of connections, sessions or calls."""
    return ProgramOption(name, description, number_of_sessions, group="Limits")


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
    "drain-seconds", "Limit for the last messages to open sessions when the program stops.", seconds
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
