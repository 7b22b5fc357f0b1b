"""
Options of programs that serve a machine runtime: ``exec-runtime`` and ``exec-broker``.
"""

from __future__ import annotations

import os

from twisted.python.usage import UsageError

from twisted_exec.iri.revisions import IRONCORE, REVISIONS, revision
from twisted_exec.iri.target import MutualTLS, TargetError
from twisted_exec.program.options import AuditOptions, BrowserOptions, Required, seconds
from twisted_exec.runtimes.serving.server import Listening, unix_path
from twisted_exec.tls.unix import uid_of

FILES = (
    "state-dir",
    "tls-cert-file",
    "tls-private-key-file",
    "iri-ca-file",
    "iri-cert-file",
    "iri-private-key-file",
)


class ServingOptions(BrowserOptions, AuditOptions):
    """
    Addresses, certificates and clients of the runtime interface and of the stream server.
    """

    required = {"iri-listen": Required()}
    group = "Runtime interface"
    groups = {
        "Consoles": ["streaming-listen", "base-url", "tls-cert-file", "tls-private-key-file"],
        "Sessions": ["drain-seconds"],
    }

    optParameters = [
        ["iri-listen", None, None, "gRPC target: unix:///PATH, or dns:///HOST:PORT."],
        [
            "iri-revision",
            None,
            IRONCORE.name,
            f"Revision of machine.v1alpha1 to serve: {', '.join(REVISIONS)}.",
        ],
        [
            "streaming-listen",
            None,
            "",
            "Address of consoles: unix:PATH or a TCP endpoint; default: a private UNIX socket.",
        ],
        ["base-url", None, "", "URL of consoles for poollets; default: from the address."],
        ["tls-cert-file", None, "", "Serving certificate of the consoles, for TCP."],
        ["tls-private-key-file", None, "", "Private key of that certificate."],
        ["iri-ca-file", None, "", "CA of the poollets' certificates, for a TCP --iri-listen."],
        ["iri-cert-file", None, "", "Serving certificate for a TCP --iri-listen."],
        ["iri-private-key-file", None, "", "Private key of that certificate."],
        [
            "iri-client-names",
            None,
            "",
            "Common names of permitted poollets over TCP, separated by commas.",
        ],
        ["drain-seconds", None, 5.0, "Seconds that sessions may take to end at shutdown.", seconds],
    ]

    def __init__(self) -> None:
        super().__init__()
        self["allow-uid"] = []

    def opt_allow_uid(self, user: str) -> None:
        """
        User (id or name) that may use the UNIX sockets, besides root and this program's own;
        repeatable.
        """
        try:
            self["allow-uid"].append(uid_of(user))
        except ValueError as problem:
            raise UsageError(f"--allow-uid: {problem}") from None

    def postOptions(self) -> None:
        """
        Check the options.

        :raises UsageError: an option is missing or wrong.
        """
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

        :raises TargetError: the options contradict each other, or the path is not valid.
        """
        address = self["streaming-listen"]
        if address.startswith("unix:"):
            unix_path(address)
        if set(self["allow-uid"]) - {0, os.getuid()} and not address:
            raise TargetError(
                "--allow-uid needs --streaming-listen, such as unix:/run/twisted-exec/stream.sock: "
                "no other user can enter the private directory of the consoles"
            )
        if self["tls-cert-file"] and (not address or address.startswith("unix:")):
            raise TargetError("--tls-cert-file is for a TCP --streaming-listen")
        return Listening(
            address,
            base_url=self["base-url"],
            certificate=self["tls-cert-file"],
            key=self["tls-private-key-file"],
            allowed_origins=self["allowed-origin"],
        )

    def iri_tls(self) -> MutualTLS | None:
        """
        Return the certificates of a TCP target, or ``None``.

        :raises TargetError: a file is missing, or the target is a UNIX socket.
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
