"""
Settings of ``exec-poollet``, each with the option of the command line that sets it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from twisted.python.usage import UsageError

from twisted_exec.api.dialects import DEFAULT, NAMES, Dialect, by_name
from twisted_exec.api.kinds import ADDRESS_TYPES
from twisted_exec.iri.target import target_text
from twisted_exec.poollet.allowed_hosts import AllowedHost, parse_host
from twisted_exec.poollet.machines.downward import Downward
from twisted_exec.poollet.machines.references import ReferencedKinds
from twisted_exec.poollet.pool import Address
from twisted_exec.program.options.declaration import OPTION, ProgramOption, Required
from twisted_exec.program.options.shared import ALLOWED_ORIGIN, CONSOLE_VERBS, DRAIN_SECONDS
from twisted_exec.program.session_limits import SessionLimits
from twisted_exec.tls.endpoints import listening_address
from twisted_exec.tls.unix import uid_of

SIGNER = "twisted-exec.dev/poollet-serving"
"""Signer of the serving certificates that poollets request."""

_POOL, _RUNTIME, _SERVING = "Pool", "Machine runtime", "Serving"


def _addresses(text: str) -> list[Address]:
    addresses = []
    for part in text.split(","):
        kind, equals, address = part.strip().partition("=")
        if kind not in ADDRESS_TYPES or not equals or not address:
            raise UsageError(
                f"--addresses {part!r} is not TYPE=ADDRESS with a TYPE of {', '.join(ADDRESS_TYPES)}"
            )
        addresses.append((kind, address))
    return addresses


@dataclass(frozen=True)
class Settings:
    """
    Configuration of a poollet.  Certificates, keys and CAs are paths of PEM files, read again when they
    change.

    :param listen: a Twisted endpoint string without TLS; port 0 picks a free port.
    :param client_ca: CA of user certificates; empty accepts no user certificates.
    :param requestheader_ca: CA of proxies that forward users; empty trusts no proxy.
    :param requestheader_names: common names of the trusted proxies.
    :param addresses: where the API server reaches this poollet; empty means this host's own.
    :param pool_proxy_suffices: users that need no permission on the machine.
    :param runtime_ca: CA of runtimes whose exec URLs are ``https``.
    :param trusted_uids: further owners of UNIX sockets that may be dialled.
    :param runtime: gRPC target of the runtime, which limits its exec URLs; empty for a runtime in
        this process.
    :param exec_allowed: hosts that exec URLs with ``https`` may point to, besides the runtime's.
    :param certificate_directory: directory of a certificate that the API server signs, instead of
        ``certificate`` and ``key``.
    :param signer: signerName of that certificate.
    :param downward: fields of Machines that the runtime gets as labels and annotations.
    :param about: the same for objects that Machines refer to; by default UIDs, namespaces and names.
    :param sessions: limits of concurrent sessions; ``None`` for as many as file descriptors allow.
    :param allowed_origins: other web sites whose pages may open consoles (CORS).
    :param strict_verbs: ``create`` on ``machines/exec`` includes no right at a console.
    """

    pool: str = field(
        metadata={
            OPTION: ProgramOption(
                "machine-pool-name",
                "Name of the MachinePool to serve.",
                group=_POOL,
                required=Required(),
            )
        }
    )
    provider_id: str = field(
        metadata={
            OPTION: ProgramOption(
                "provider-id",
                "providerID of the pool; default: twisted-exec://NAME.",
                group=_POOL,
            )
        }
    )
    certificate: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "tls-cert-file",
                "Serving certificate.",
                group=_SERVING,
                is_path=True,
                required=Required(unless=["cert-dir"]),
            )
        },
    )
    key: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "tls-private-key-file",
                "Private key of that certificate.",
                group=_SERVING,
                is_path=True,
                required=Required(unless=["cert-dir"]),
            )
        },
    )
    listen: str = field(
        default="tcp:20250",
        metadata={
            OPTION: ProgramOption(
                "listen",
                "Listening address: a Twisted endpoint string, to which TLS is added.",
                listening_address,
                group=_SERVING,
                listens=True,
            )
        },
    )
    client_ca: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "client-ca-file",
                "CA of client certificates of users.",
                group=_SERVING,
                is_path=True,
            )
        },
    )
    requestheader_ca: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "requestheader-client-ca-file",
                "CA of proxies that forward users.",
                group=_SERVING,
                is_path=True,
            )
        },
    )
    requestheader_names: Sequence[str] = field(
        default=(),
        metadata={
            OPTION: ProgramOption(
                "requestheader-allowed-names",
                "Common names of these proxies, separated by commas.",
                default="",
                group=_SERVING,
                convert=lambda names: [each.strip() for each in names.split(",") if each.strip()],
            )
        },
    )
    addresses: Sequence[Address] = field(
        default=(),
        metadata={
            OPTION: ProgramOption(
                "addresses",
                "TYPE=ADDRESS that the MachinePool publishes, separated by commas or repeated; default: "
                "this host's addresses.",
                _addresses,
                group=_POOL,
                several=True,
            )
        },
    )
    pool_proxy_suffices: Sequence[str] = field(
        default=(),
        metadata={
            OPTION: ProgramOption(
                "pool-proxy-suffices",
                "User that needs no permission on machines, such as an API server that forwards no "
                "users; may be repeated.",
                group=_SERVING,
                several=True,
            )
        },
    )
    runtime_ca: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "runtime-ca-file",
                "CA of runtimes whose exec URLs are https.",
                group=_RUNTIME,
                is_path=True,
            )
        },
    )
    trusted_uids: Sequence[int] = field(
        default=(),
        metadata={
            OPTION: ProgramOption(
                "runtime-uid",
                "User, by number or name, that the runtime runs as, besides root and our own; may be "
                "repeated.",
                uid_of,
                group=_RUNTIME,
                several=True,
            )
        },
    )
    runtime: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "machine-runtime-endpoint",
                "gRPC target of the machine runtime.",
                target_text,
                default=None,
                group=_RUNTIME,
                required=Required(),
            )
        },
    )
    drain_seconds: float = field(default=1.5, metadata={OPTION: DRAIN_SECONDS})
    sessions: SessionLimits | None = None
    allowed_origins: Collection[bytes] = field(default=(), metadata={OPTION: ALLOWED_ORIGIN})
    strict_verbs: bool = field(
        default=False,
        metadata={OPTION: replace(CONSOLE_VERBS, group=_SERVING)},
    )
    exec_allowed: Sequence[AllowedHost] = field(
        default=(),
        metadata={
            OPTION: ProgramOption(
                "exec-url-allowed",
                "HOST[:PORT] that https exec URLs may point to, besides the runtime's host; "
                "separated by commas or repeated.",
                lambda text: [parse_host(part.strip()) for part in text.split(",")],
                group=_RUNTIME,
                several=True,
            )
        },
    )
    certificate_directory: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "cert-dir",
                "Directory for certificates that the API server signs.",
                group=_SERVING,
                is_path=True,
            )
        },
    )
    signer: str = field(
        default=SIGNER,
        metadata={
            OPTION: ProgramOption(
                "serving-cert-signer",
                "signerName for the serving certificate.",
                group=_SERVING,
            )
        },
    )
    downward: Downward = field(default_factory=Downward)
    about: ReferencedKinds | None = None
    dialect: Dialect = field(
        default=DEFAULT,
        metadata={
            OPTION: ProgramOption(
                "dialect",
                f"API group and kinds of machines: {NAMES}.",
                by_name,
                group="API server",
            )
        },
    )
