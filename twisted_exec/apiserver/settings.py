"""
Settings of ``exec-apiserver``, each with the option of the command line that sets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from twisted_exec.api import kinds
from twisted_exec.api.kinds.certificates import SHORTEST_SECONDS
from twisted_exec.apiserver import PROGRAM
from twisted_exec.apiserver.aggregated.control_plane import Aggregated
from twisted_exec.apiserver.controllers.signer import DEFAULT_LIFE_SECONDS
from twisted_exec.apiserver.identity.credentials import Identities
from twisted_exec.apiserver.node_pods.options import KubeletAccess
from twisted_exec.apiserver.serving_settings import ServingSettings
from twisted_exec.apiserver.signing.authority import CAPair
from twisted_exec.program.options.declaration import OPTION, ProgramOption, Required
from twisted_exec.program.options.shared import (
    DRAIN_SECONDS,
    SERVING_CERTIFICATE,
    SERVING_KEY,
    SHUTDOWN_DELAY_SECONDS,
)
from twisted_exec.program.options.values import duration, seconds
from twisted_exec.tls.endpoints import listening_address
from twisted_exec.web.oidc import WebClient

_POOLLETS = "Poollets"


def _address_types(text: str) -> tuple[str, ...]:
    types = tuple(item.strip() for item in text.split(","))
    unknown = [item for item in types if item not in kinds.ADDRESS_TYPES]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(kinds.ADDRESS_TYPES)}")
    return types


def _lifetime(text: str) -> float:
    with suppress(ValueError):
        if (seconds := duration(text)) >= SHORTEST_SECONDS:
            return seconds
    raise ValueError("give a duration such as 8760h, of 10m or more")


PODS_VIEW = ProgramOption(
    "pods-view",
    "Serve each machine as a Pod too, for clients that know only Pods.  The default.",
    reverse="Serve machines only.",
    group="API server",
)
WEB = ProgramOption(
    "web",
    "Serve the web console under /console/.  The default.",
    reverse="Do not serve the web console.",
    group="API server",
)


@dataclass(frozen=True)
class Settings(ServingSettings):
    """
    Settings of an API server; every path is a PEM file unless it says otherwise.

    :param listen: a Twisted endpoint string without TLS; port 0 picks a free port.
    :param client_ca: CA of users; behind a host its ConfigMap replaces this.
    :param poollet_certificate: client certificate for poollets; its CN may forward identities.
    :param poollet_ca: CA of poollets' serving certificates.
    :param address_types: preferred types of pools' addresses, in order.
    :param poollet_seconds: as :attr:`.Backend.seconds`.
    :param pools_named: poollets' certificates must name their pool.
    :param drain_seconds: limit for the last messages to open sessions when the server stops.
    :param program: its name, for users whose sessions end because it stops.
    :param shutdown_delay_seconds: time to serve as not ready before the drain.
    :param pods_view: serve each machine as a Pod too; never behind a host.
    :param signing: CA of serving certificates of poollets and node servers; ``None`` to sign none.
    :param client_signing: CA of client certificates; ``None`` to sign none.
    :param signing_seconds: longest lifetime of these certificates.
    :param kubelets: access to kubelets; ``None`` for no Nodes.
    :param aggregated: the host; ``None`` for a standalone server.
    :param web: serve the web console under ``/console/``; never behind a host.
    :param web_client: the web console as a client of the OIDC issuers; ``None`` to offer no login
        there.
    """

    listen: str = field(
        metadata={
            OPTION: ProgramOption(
                "listen",
                "Listening address: a Twisted endpoint string.",
                listening_address,
                default="tcp:6443",
                listens=True,
                short="l",
            )
        }
    )
    certificate: str = field(metadata={OPTION: SERVING_CERTIFICATE})
    key: str = field(metadata={OPTION: SERVING_KEY})
    client_ca: str = field(
        metadata={
            OPTION: ProgramOption(
                "client-ca-file",
                "CA of users and poollets (PEM).",
                is_path=True,
                required=Required("the CA of users and poollets", unless=["aggregated"]),
                convert=lambda path: path or "",
            )
        }
    )
    poollet_certificate: str = field(
        metadata={
            OPTION: ProgramOption(
                "machinepoollet-client-certificate",
                "Client certificate for poollets (PEM).",
                group=_POOLLETS,
                is_path=True,
                required=Required("the client certificate for poollets"),
            )
        }
    )
    poollet_key: str = field(
        metadata={
            OPTION: ProgramOption(
                "machinepoollet-client-key",
                "Private key of that certificate (PEM).",
                group=_POOLLETS,
                is_path=True,
                required=Required("the private key of the client certificate"),
            )
        }
    )
    poollet_ca: str = field(
        metadata={
            OPTION: ProgramOption(
                "machinepoollet-certificate-authority",
                "CA of poollets (PEM).",
                group=_POOLLETS,
                is_path=True,
                required=Required("the CA of poollets' serving certificates"),
            )
        }
    )
    identities: Identities = Identities()
    address_types: Sequence[str] = field(
        default=kinds.ADDRESS_TYPES,
        metadata={
            OPTION: ProgramOption(
                "preferred-address-types",
                "Types of pools' addresses, separated by commas, in order of preference.",
                _address_types,
                default=",".join(kinds.ADDRESS_TYPES),
                group=_POOLLETS,
            )
        },
    )
    poollet_seconds: float = field(
        default=5.0,
        metadata={
            OPTION: ProgramOption(
                "machinepoollet-timeout",
                "Seconds to connect to each address of a poollet, and again for its response.",
                seconds,
                group=_POOLLETS,
            )
        },
    )
    pools_named: bool = field(
        default=True,
        metadata={
            OPTION: ProgramOption(
                "any-pool-name",
                "Accept poollet certificates that name only their address (third-party poollets).",
                group=_POOLLETS,
            )
        },
    )
    drain_seconds: float = field(
        default=1.5, metadata={OPTION: replace(DRAIN_SECONDS, group="Start and stop")}
    )
    shutdown_delay_seconds: float = field(
        default=0.0, metadata={OPTION: replace(SHUTDOWN_DELAY_SECONDS, group="Start and stop")}
    )
    pods_view: bool = field(default=True, metadata={OPTION: PODS_VIEW})
    signing: CAPair | None = None
    client_signing: CAPair | None = None
    signing_seconds: float = field(
        default=DEFAULT_LIFE_SECONDS,
        metadata={
            OPTION: ProgramOption(
                "cluster-signing-duration",
                "Longest lifetime of signed certificates, such as 720h or 30m.",
                _lifetime,
                default="8760h",
                group="Certificates that the server signs",
            )
        },
    )
    kubelets: KubeletAccess | None = None
    aggregated: Aggregated | None = None
    web: bool = field(default=True, metadata={OPTION: WEB})
    web_client: WebClient | None = None
    program: str = PROGRAM
