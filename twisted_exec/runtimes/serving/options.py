"""
The options of programs that are a runtime in front: where it is served, and to whom.
"""

from __future__ import annotations

import os

from twisted.python.usage import UsageError

from twisted_exec.iri.revisions.registry import IRONCORE, REVISIONS, revision
from twisted_exec.iri.target import MutualTLS, TargetError
from twisted_exec.program.start import BrowserOptions, seconds
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


class ServingOptions(BrowserOptions):
    """
    :cvar required: options that must be given.
    """

    required: tuple[str, ...] = ("iri-listen",)

    optParameters = [
        ["iri-listen", None, None, "gRPC target: unix:///PATH, or dns:///HOST:PORT (required)."],
        [
            "iri-revision",
            None,
            IRONCORE.name,
            f"What machine.v1alpha1 is to be there: {', '.join(REVISIONS)}.",
        ],
        ["streaming-listen", None, "", "Consoles: unix:PATH or a TCP endpoint; default: private."],
        ["base-url", None, "", "How poollets reach the consoles; default: as it listens."],
        ["tls-cert-file", None, "", "Serving certificate of the consoles, for TCP."],
        ["tls-private-key-file", None, "", "Its private key."],
        ["iri-ca-file", None, "", "The CA of poollets, for a TCP --iri-listen."],
        ["iri-cert-file", None, "", "Our certificate for a TCP --iri-listen."],
        ["iri-private-key-file", None, "", "Its private key."],
        [
            "iri-client-names",
            None,
            "",
            "Common names of poollets that may ask over TCP, with commas.",
        ],
        ["drain-seconds", None, 5.0, "How long sessions may take to end at the end.", seconds],
        ["audit-log", None, "-", "Where session records go: a file, or - for standard output."],
    ]

    def __init__(self) -> None:
        super().__init__()
        self["allow-uid"] = []

    def opt_allow_uid(self, told: str) -> None:
        """A user, by number or name, that may use the UNIX sockets besides root and our own; may be repeated."""
        try:
            self["allow-uid"].append(uid_of(told))
        except ValueError as problem:
            raise UsageError(f"--allow-uid: {problem}") from None

    def postOptions(self) -> None:
        """
        :raises UsageError: something is missing or cannot be meant.
        """
        for name in self.required:
            if not self[name]:
                raise UsageError(f"--{name} is missing")
        try:
            revision(self["iri-revision"])
        except ValueError as problem:
            raise UsageError(f"--iri-revision: {problem}") from None
        if bool(self["tls-cert-file"]) != bool(self["tls-private-key-file"]):
            raise UsageError("--tls-cert-file and --tls-private-key-file go together")
        if self["base-url"] and "://" not in self["base-url"]:
            raise UsageError(f"--base-url {self['base-url']!r} is no URL such as https://HOST:PORT")

    def listening(self) -> Listening:
        """
        Where consoles are served.

        :raises TargetError: it cannot be used, or not by everyone who was named.
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
        The files of a TCP target, or none.

        :raises TargetError: one is missing, or none is needed.
        """
        given = [self[f"iri-{name}"] for name in ("ca-file", "cert-file", "private-key-file")]
        names = self["iri-client-names"]
        if not any(given):
            if names:
                raise TargetError("--iri-client-names needs --iri-ca-file: names are certificates'")
            return None
        if not all(given):
            raise TargetError(
                "--iri-ca-file, --iri-cert-file and --iri-private-key-file go together"
            )
        allowed = frozenset(name.strip() for name in names.split(",") if name.strip())
        if not allowed:
            # The CA of poollets is that of users; without names all of them could command machines.
            raise TargetError(
                "--iri-client-names is missing: the common names of the poollets that may ask"
            )
        if self["iri-listen"].startswith("unix:"):
            raise TargetError("--iri-ca-file is for a TCP --iri-listen")
        ca, certificate, key = given
        return MutualTLS(ca, certificate, key, client_names=allowed)
