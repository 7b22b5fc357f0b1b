"""
Settings of ``exec-broker``, each with the option of the command line that sets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from twisted_exec.iri.revisions import IRONCORE
from twisted_exec.iri.target import MutualTLS
from twisted_exec.program.options.declaration import OPTION, ProgramOption
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.runtimes.machinebroker.place import BrokerIdentity, BrokerPlace
from twisted_exec.runtimes.serving.options import (
    ALLOW_UID,
    IRI_LISTEN,
    IRI_REVISION,
    SERVING_DRAIN_SECONDS,
    Listening,
)


@dataclass(frozen=True)
class Settings:
    """
    Settings of a broker.

    :param place: namespace and pools of the machines in the target.
    :param state_directory: for the socket of consoles without another address.
    :param sessions: limits of concurrent sessions; ``None`` for as many as file descriptors allow, up
        to 10000.
    :param token_key: path of the key that all replicas share; empty for a single broker.
    """

    place: BrokerPlace
    identity: BrokerIdentity
    state_directory: str = field(
        metadata={
            OPTION: ProgramOption(
                "state-dir",
                "Directory for the private socket of consoles.",
                default="exec-broker-state",
                group="Program",
                is_path=True,
            )
        }
    )
    iri_target: str = field(metadata={OPTION: IRI_LISTEN})
    streaming: Listening = Listening("")
    iri_tls: MutualTLS | None = None
    iri_revision: str = field(default=IRONCORE.name, metadata={OPTION: IRI_REVISION})
    allowed_uids: Sequence[int] = field(default_factory=tuple, metadata={OPTION: ALLOW_UID})
    token_key: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "token-key-file",
                "File with a key that all replicas behind one address share.",
                group="Program",
                is_path=True,
            )
        },
    )
    drain_seconds: float = field(default=1.5, metadata={OPTION: SERVING_DRAIN_SECONDS})
    sessions: SessionLimits | None = None
