"""
Options that ``exec-runtime`` and ``exec-broker`` share: of the runtime interface, and of the server for consoles.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from twisted.python.usage import UsageError

from twisted_exec.iri.revisions import IRONCORE, REVISIONS, revision
from twisted_exec.iri.target import MutualTLS, TargetError, target_text
from twisted_exec.program.options.audit import AuditOptions
from twisted_exec.program.options.declaration import (
    OPTION,
    ProgramOption,
    Required,
    options_of,
    settings_of,
)
from twisted_exec.program.options.sessions import BrowserOptions
from twisted_exec.program.options.shared import ALLOWED_ORIGIN, DRAIN_SECONDS
from twisted_exec.tls.endpoints import listening_address_or_none
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.unix import checked_socket_path, uid_of

IRI_LISTEN = ProgramOption(
    "iri-listen",
    "gRPC target: unix:///PATH, or dns:///HOST:PORT.",
    target_text,
    required=Required(),
    listens=True,
)
IRI_REVISION = ProgramOption(
    "iri-revision",
    f"Revision of machine.v1alpha1 to serve: {', '.join(REVISIONS)}.",
    default=IRONCORE.name,
)
ALLOW_UID = ProgramOption(
    "allow-uid",
    "User (id or name) that may use the UNIX sockets, besides root and this program's own; "
    "repeatable.",
    uid_of,
    several=True,
)
SERVING_DRAIN_SECONDS = replace(DRAIN_SECONDS, default=1.5, group="Sessions")


def unix_path(address: str) -> str:
    """
    Return the path of ``unix:PATH``; colons in the path may be escaped.

    :raises TargetError: there are options, or the path is not absolute.
    :raises TLSConfigError: the path is too long for a socket.
    """
    path = address.removeprefix("unix:").replace("\\:", "\0")
    if ":" in path:
        raise TargetError(f"{address!r}: unix:PATH takes no options here")
    path = path.replace("\0", ":")
    if not path.startswith("/"):
        raise TargetError(f"{address!r}: the path of a UNIX socket must be absolute")
    return checked_socket_path(path)


def _streaming_address(text: str) -> str:
    if not text.startswith("unix:"):
        return listening_address_or_none(text)
    try:
        unix_path(text)
    except TLSConfigError as problem:
        raise ValueError(str(problem)) from None
    return text


@dataclass(frozen=True)
class Listening:
    """
    The address of a stream server.

    :param address: ``unix:PATH``, or a Twisted endpoint string for TCP.
    :param base_url: URL for clients, as a prefix of exec URLs; by default from ``address``.
    :param certificate: PEM file; required for TCP, except on loopback addresses.
    :param allowed_uids: users besides root and the server's own that may use a UNIX socket.
    :param allowed_origins: origins of web pages besides the server's own that may open a console.
    """

    address: str = field(
        metadata={
            OPTION: ProgramOption(
                "streaming-listen",
                "Address of consoles: unix:PATH or a TCP endpoint; default: a private UNIX socket.",
                _streaming_address,
                default="",
                group="Consoles",
                listens=True,
            )
        }
    )
    base_url: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "base-url",
                "URL of consoles for poollets; default: from the address.",
                group="Consoles",
            )
        },
    )
    certificate: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "tls-cert-file",
                "Serving certificate of the consoles, for TCP.",
                group="Consoles",
                is_path=True,
            )
        },
    )
    key: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "tls-private-key-file",
                "Private key of that certificate.",
                group="Consoles",
                is_path=True,
            )
        },
    )
    allowed_uids: Sequence[int] = ()
    allowed_origins: Collection[bytes] = field(default=(), metadata={OPTION: ALLOWED_ORIGIN})


class ServingOptions(BrowserOptions, AuditOptions):
    """
    Addresses, certificates and clients of the runtime interface and of the stream server.
    """

    group = "Runtime interface"
    groups = dict.fromkeys(("Consoles", "Sessions"), ())
    more = (
        IRI_LISTEN,
        IRI_REVISION,
        *options_of(Listening),
        ProgramOption(
            "iri-ca-file",
            "CA of the poollets' certificates, for a TCP --iri-listen.",
            default="",
            is_path=True,
        ),
        ProgramOption(
            "iri-cert-file",
            "Serving certificate for a TCP --iri-listen.",
            default="",
            is_path=True,
        ),
        ProgramOption(
            "iri-private-key-file", "Private key of that certificate.", default="", is_path=True
        ),
        ProgramOption(
            "iri-client-names",
            "Common names of permitted poollets over TCP, separated by commas.",
            default="",
        ),
        SERVING_DRAIN_SECONDS,
        ALLOW_UID,
    )

    def postOptions(self) -> None:
        self.check_required()
        try:
            revision(self["iri-revision"])
        except ValueError as problem:
            raise UsageError(f"--iri-revision: {problem}") from None
        if bool(self["tls-cert-file"]) != bool(self["tls-private-key-file"]):
            raise UsageError("--tls-cert-file and --tls-private-key-file go together")
        if self["base-url"] and "://" not in self["base-url"]:
            raise UsageError(
                f"--base-url {self['base-url']!r} is not a URL such as https://HOST:PORT"
            )

    def listening(self) -> Listening:
        """
        Return the address of the stream server.

        :raises TargetError: the options contradict each other.
        """
        address = self["streaming-listen"]
        if set(self["allow-uid"]) - {0, os.getuid()} and not address:
            raise TargetError(
                "--allow-uid needs --streaming-listen, such as unix:/run/twisted-exec/stream.sock: "
                "no other user can enter the private directory of the consoles"
            )
        if self["tls-cert-file"] and (not address or address.startswith("unix:")):
            raise TargetError("--tls-cert-file is for a TCP --streaming-listen")
        return settings_of(Listening, self)

    def iri_tls(self) -> MutualTLS | None:
        """
        Return the certificates of a TCP target, or ``None``.

        :raises TargetError: a file or the names of the poollets are missing, or the target is a
            UNIX socket.
        """
        files = [self[f"iri-{name}"] for name in ("ca-file", "cert-file", "private-key-file")]
        names = self["iri-client-names"]
        if not any(files):
            if names:
                raise TargetError(
                    "--iri-client-names needs --iri-ca-file: the names are those of certificates"
                )
            return None
        if not all(files):
            raise TargetError(
                "--iri-ca-file, --iri-cert-file and --iri-private-key-file go together"
            )
        allowed = frozenset(name.strip() for name in names.split(",") if name.strip())
        if not allowed:
            # The same CA signs users' certificates: without names every user could control machines.
            raise TargetError(
                "--iri-client-names is missing: the common names of the permitted poollets"
            )
        if self["iri-listen"].startswith("unix:"):
            raise TargetError("--iri-ca-file is for a TCP --iri-listen")
        ca, certificate, key = files
        return MutualTLS(ca, certificate, key, client_names=allowed)
