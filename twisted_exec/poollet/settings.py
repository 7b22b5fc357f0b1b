"""
Configuration of a poollet.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from twisted_exec.api.dialects import DEFAULT, Dialect
from twisted_exec.poollet.dialling import AllowedHost
from twisted_exec.poollet.machines.config import Downward, ReferencedKinds
from twisted_exec.poollet.pool import Address
from twisted_exec.program.descriptors import SessionLimits

SIGNER = "twisted-exec.dev/poollet-serving"
"""Signer of the serving certificates that poollets request."""


@dataclass(frozen=True)
class Settings:
    """
    Configuration of a poollet.  Paths are PEM files, read again when they change.

    :param listen: a Twisted endpoint string without TLS; port 0 picks a free port.
    :param client_ca: CA of user certificates; empty accepts no user certificates.
    :param requestheader_ca: CA of proxies that forward users; empty trusts no proxy.
    :param requestheader_names: common names of the trusted proxies.
    :param addresses: where the API server reaches this poollet; empty means this host's own.
    :param pool_proxy_suffices: users that need no permission on the machine.
    :param runtime_ca: CA of runtimes whose exec URLs are ``https``.
    :param trusted_uids: owners of UNIX sockets that may be dialled, besides root and our own user.
    :param runtime: gRPC target of the runtime, which limits its exec URLs; empty for a runtime in
        this process.
    :param exec_allowed: hosts that exec URLs may point to, besides this host and the runtime's.
    :param certificate_directory: directory of a certificate that the API server signs, instead of
        ``certificate`` and ``key``.
    :param signer: signerName of that certificate.
    :param downward: fields of Machines that the runtime gets as labels and annotations.
    :param about: the same for objects that Machines refer to; by default their names only.
    :param sessions: limits of concurrent sessions; ``None`` for as many as file descriptors allow.
    :param allowed_origins: other web sites whose pages may open consoles (CORS).
    :param strict_verbs: ``create`` on ``machines/exec`` includes no right at a console.
    """

    pool: str
    provider_id: str
    certificate: str = ""
    key: str = ""
    listen: str = "tcp:20250"
    client_ca: str = ""
    requestheader_ca: str = ""
    requestheader_names: Sequence[str] = ()
    addresses: Sequence[Address] = ()
    pool_proxy_suffices: Sequence[str] = ()
    runtime_ca: str = ""
    trusted_uids: Sequence[int] = ()
    runtime: str = ""
    drain_seconds: float = 5.0
    sessions: SessionLimits | None = None
    allowed_origins: Collection[bytes] = ()
    strict_verbs: bool = False
    exec_allowed: Sequence[AllowedHost] = ()
    certificate_directory: str = ""
    signer: str = SIGNER
    downward: Downward = field(default_factory=Downward)
    about: ReferencedKinds | None = None
    dialect: Dialect = field(default=DEFAULT)
