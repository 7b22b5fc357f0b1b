"""
Settings of ``exec-nodeserver``, each with the option of the command line that sets it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from twisted_exec.program.options.declaration import OPTION, ProgramOption, Required
from twisted_exec.program.options.shared import DRAIN_SECONDS, SHUTDOWN_DELAY_SECONDS
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.streaming.sessions.idleness import IDLE_SECONDS
from twisted_exec.tls.endpoints import listening_address, listening_address_or_none

_WEEK_SECONDS = 604_800

USERS_SHARE = 1
"""All sessions through a root have one user, who may have all of them."""


def _idle_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if seconds and not 1 <= seconds <= _WEEK_SECONDS:
        raise ValueError(f"{text!r} is neither 0 nor a number of seconds from 1 to {_WEEK_SECONDS}")
    return seconds


@dataclass(frozen=True)
class Settings:
    """
    Configuration of a node server.  PEM files are read again when they change.

    :param listen: a Twisted endpoint string without TLS; port 0 picks a free port.
    :param certificate_directory: directory of a certificate that the root signs, instead of
        ``certificate`` and ``key``.
    :param names: DNS names and IP addresses in that certificate: where the root reaches us.
    :param client_ca: CA of client certificates, such as that of the root's API server.
    :param client_names: accepted common names; empty accepts all of that CA.
    :param health_listen: endpoint for probes, like ``listen``; empty for none.
    :param shutdown_delay_seconds: how long to serve after readiness fails.
    :param stream_idle_seconds: idle timeout of streams; 0 for none.
    :param sessions: limits of concurrent sessions; ``None`` for as many as file descriptors allow.
    :param requires_reason: refuse commands without a declared reason.
    """

    listen: str = field(
        default="tcp:10250",
        metadata={
            OPTION: ProgramOption(
                "listen",
                "Listening address: a Twisted endpoint string, to which TLS is added.",
                listening_address,
                listens=True,
            )
        },
    )
    certificate: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "tls-cert-file",
                "Serving certificate (PEM); default: $APISERVER_CERT_LOCATION.",
                is_path=True,
                required=Required(
                    "the serving certificate for the root; give it with --tls-private-key-file, or "
                    "--cert-dir for one that the root signs",
                    unless=["cert-dir"],
                ),
            )
        },
    )
    key: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "tls-private-key-file",
                "Private key of the serving certificate (PEM); default: $APISERVER_KEY_LOCATION.",
                is_path=True,
            )
        },
    )
    certificate_directory: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "cert-dir",
                "Directory for a serving certificate that the root signs; instead of --tls-cert-file.",
                is_path=True,
            )
        },
    )
    names: Sequence[str] = ()
    client_ca: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "client-ca-file",
                "CA of the client certificate of the root's API server (PEM).",
                is_path=True,
                required=Required(
                    "the CA of the client certificate of the root's API server (its "
                    "--kubelet-client-certificate)"
                ),
            )
        },
    )
    client_names: Collection[str] = field(
        default=(),
        metadata={
            OPTION: ProgramOption(
                "client-allowed-names",
                "Accepted common names of clients, separated by commas; default: all.",
                default="",
                convert=lambda names: frozenset(
                    filter(None, (each.strip() for each in names.split(",")))
                ),
            )
        },
    )
    health_listen: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "health-listen",
                "Endpoint for health probes, without TLS; empty for none.",
                listening_address_or_none,
                default="tcp:10248:interface=127.0.0.1",
                listens=True,
            )
        },
    )
    shutdown_delay_seconds: float = field(default=0.0, metadata={OPTION: SHUTDOWN_DELAY_SECONDS})
    drain_seconds: float = field(default=1.5, metadata={OPTION: DRAIN_SECONDS})
    stream_idle_seconds: float = field(
        default=IDLE_SECONDS,
        metadata={
            OPTION: ProgramOption(
                "stream-idle-seconds",
                "Seconds without data after which a stream ends; 0 for never.",
                _idle_seconds,
            )
        },
    )
    sessions: SessionLimits | None = None
    requires_reason: bool = field(
        default=False,
        metadata={
            OPTION: ProgramOption(
                "declare-reason", "Refuse exec, attach and run without a declared reason."
            )
        },
    )
