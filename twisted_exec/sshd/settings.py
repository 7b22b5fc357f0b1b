"""
Settings of ``exec-sshd``, each with the option of the command line that sets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from twisted_exec.program.options.declaration import OPTION, ProgramOption
from twisted_exec.program.options.shared import DRAIN_SECONDS, health_listen
from twisted_exec.program.options.values import seconds_between
from twisted_exec.ssh.key_exchange import EXCHANGES, POST_QUANTUM
from twisted_exec.sshd.limits import Limits
from twisted_exec.tls.endpoints import listening_address

LISTEN = "tcp:2222"


def _login_seconds(text: str) -> float:
    return seconds_between(text, least=1, most=600)


@dataclass(frozen=True)
class Settings:
    """
    Settings of the program.

    :param listen: a Twisted endpoint string for ssh.
    :param health_listen: one for probes and metrics; empty for none.
    :param login_seconds: from the begin of a connection until the login.
    :param only_post_quantum: refuse clients without a post-quantum key exchange.
    :param drain_seconds: limit for the last messages to open sessions when the program stops.
    """

    listen: str = field(
        default=LISTEN,
        metadata={
            OPTION: ProgramOption(
                "listen", "Endpoint for ssh.", listening_address, default=LISTEN, listens=True
            )
        },
    )
    health_listen: str = field(default="", metadata={OPTION: health_listen(10260)})
    login_seconds: float = field(
        default=30.0,
        metadata={
            OPTION: ProgramOption(
                "login-seconds",
                "Seconds from the begin of a connection until its login.",
                _login_seconds,
                group="Limits",
            )
        },
    )
    only_post_quantum: bool = field(
        default=False,
        metadata={
            OPTION: ProgramOption(
                "only-post-quantum",
                "Refuse clients without a post-quantum key exchange (OpenSSH before 9.9, PuTTY before 0.83).",
            )
        },
    )
    limits: Limits = field(default=Limits(), metadata={OPTION: Limits})
    drain_seconds: float = field(
        default=1.5, metadata={OPTION: replace(DRAIN_SECONDS, group="Limits")}
    )

    @property
    def exchanges(self) -> Sequence[bytes]:
        """Names of the key exchanges of SSH, the best one first."""
        return POST_QUANTUM if self.only_post_quantum else (*EXCHANGES,)
