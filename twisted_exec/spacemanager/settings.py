"""
Settings of ``exec-spacemanager``, each with the option of the command line that sets it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from twisted_exec.program.options.declaration import OPTION, ProgramOption
from twisted_exec.program.options.shared import health_listen
from twisted_exec.spacemanager import PROGRAM

NAMESPACE, LEASE = "kube-system", PROGRAM


@dataclass(frozen=True)
class Settings:
    """
    Settings of a manager.

    :param state_directory: private to managers; created if it is missing.
    :param namespace: namespace of the Lease for leader election.
    :param lease: name of the Lease.
    :param identity: this replica's identity in the Lease; empty for a random one. It must be unique.
    :param health_listen: a Twisted endpoint string for probes and metrics; empty for none.
    """

    state_directory: str = field(
        metadata={
            OPTION: ProgramOption(
                "state-dir",
                "Directory for the state of providers on this host.",
                default="exec-spacemanager-state",
                is_path=True,
            )
        }
    )
    namespace: str = field(
        default=NAMESPACE,
        metadata={
            OPTION: ProgramOption(
                "namespace",
                "Namespace of the Lease for leader election.",
                group="Leader election",
            )
        },
    )
    lease: str = field(
        default=LEASE,
        metadata={
            OPTION: ProgramOption(
                "lease",
                "Name of the Lease, shared by all managers of a cluster.",
                group="Leader election",
            )
        },
    )
    identity: str = ""
    health_listen: str = field(default="", metadata={OPTION: health_listen(10258)})
