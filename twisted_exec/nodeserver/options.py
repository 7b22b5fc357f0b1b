"""
What the command line of a node server says about the server itself: the root, who may come, what it shows.

The other rooms of the program have options of their own (leaves, upkeep of Nodes, mirroring Pods), and the
tap joins them.

What the command line of a node server says about the syncer.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from twisted.python.usage import UsageError

from twisted_exec.api import names
from twisted_exec.api.kinds.spaces import provider_name
from twisted_exec.api.selectors import parse_labels
from twisted_exec.api.spaces import EXTERNAL, VIEWPOINTS
from twisted_exec.api.status import APIError
from twisted_exec.nodeserver.leaves.registry import RegistrySettings
from twisted_exec.nodeserver.leaves.spaces import SpaceChoice
from twisted_exec.nodeserver.ownership import DEFAULT_ROOT, OWNED, POLICIES
from twisted_exec.nodeserver.service import Settings
from twisted_exec.program.start import ProgramOptions, seconds
from twisted_exec.streaming.sessions.idle import IDLE_SECONDS


class SyncOptions(ProgramOptions):
    """Options of the syncer, to be joined with others."""

    optFlags = [["sync-pods", None, "Make the root's Pods in their leaves: Kosmos does it itself."]]

    def postOptions(self) -> None:
        """
        :raises UsageError: somebody else does that.
        """
        super().postOptions()
        if self["sync-pods"] and self.get("kosmos"):
            raise UsageError(
                "--sync-pods and --kosmos exclude each other: Kosmos makes the Pods of its leaves"
                " itself"
            )


FILES = ("tls-cert-file", "tls-private-key-file", "cert-dir", "client-ca-file")
"""The options that name files and directories."""

ENVIRONMENT = {
    "tls-cert-file": "APISERVER_CERT_LOCATION",
    "tls-private-key-file": "APISERVER_KEY_LOCATION",
}
"""Variables that say what an option did not: Kosmos has its certificate by them."""

_NO_CERTIFICATE = (
    "--tls-cert-file is missing: the serving certificate to show to the root; give it with "
    "--tls-private-key-file, or --cert-dir for one that the root signs"
)
_NO_CLIENTS = (
    "--client-ca-file is missing: the CA of the certificate by which the root's API server comes "
    "(its --kubelet-client-certificate)"
)


_WEEK_SECONDS = 604_800


def _count(text: str) -> int:
    """
    :raises ValueError: it is no number from 1 to 100000.
    """
    if not (text.isascii() and text.isdigit() and len(text) < 7 and 1 <= int(text) <= 100_000):
        raise ValueError(f"{text!r} is no number from 1 to 100000")
    return int(text)


def _idle_seconds(text: str) -> float:
    """
    :raises ValueError: it is neither 0 nor a number from 1 to a week's seconds.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if seconds and not 1 <= seconds <= _WEEK_SECONDS:
        raise ValueError(f"{text!r} is neither 0 nor a number of seconds from 1 to {_WEEK_SECONDS}")
    return seconds


class ServerOptions(ProgramOptions):
    """
    Options of the server itself.

    :cvar environ: where :data:`ENVIRONMENT` is looked up.
    """

    environ: Mapping[str, str] = os.environ

    optParameters = [
        ["kubeconfig", None, None, "Of the root cluster; else $KUBECONFIG, or the Pod's own."],
        ["context", None, None, "Instead of the kubeconfig's current context."],
        ["listen", None, "tcp:10250", "Where to listen: a Twisted endpoint without TLS."],
        ["tls-cert-file", None, "", "Serving certificate; else $APISERVER_CERT_LOCATION."],
        ["tls-private-key-file", None, "", "Its private key; else $APISERVER_KEY_LOCATION."],
        ["cert-dir", None, "", "Instead: where to keep a certificate that the root signs."],
        ["client-ca-file", None, "", "The CA of the root's API server as a client (required)."],
        ["client-allowed-names", None, "", "Common names that may come, with commas; else all."],
        [
            "health-listen",
            None,
            "tcp:10248:interface=127.0.0.1",
            "Where probes are answered, in the clear; empty for nowhere.",
        ],
        ["max-sessions", None, 4096, "How many streams and logs at once.", _count],
        [
            "shutdown-delay-seconds",
            None,
            0.0,
            "How long to serve on when told to stop, while not ready any more.",
            seconds,
        ],
        [
            "stream-idle-seconds",
            None,
            IDLE_SECONDS,
            "How long nothing may pass on a stream; 0 for as long as it likes.",
            _idle_seconds,
        ],
        ["drain-seconds", None, 5.0, "How long sessions may take to end at the end.", seconds],
        ["audit-log", None, "-", "Where session records go: a file, or - for standard output."],
    ]

    def postOptions(self) -> None:
        """
        :raises UsageError: something is missing or cannot be meant.
        """
        variables = [name for name in ENVIRONMENT if self[name]]
        if self["cert-dir"] and variables:
            raise UsageError(f"--cert-dir and --{variables[0]} exclude each other")
        if not self["cert-dir"]:
            self._look_around(variables)
        if not self["client-ca-file"]:
            raise UsageError(_NO_CLIENTS)
        super().postOptions()

    def _look_around(self, variables: list[str]) -> None:
        """Take certificate and key from the environment, both or none."""
        for name, variable in ENVIRONMENT.items():
            if not variables:
                self[name] = self.environ.get(variable, "")
        missing = [name for name in ENVIRONMENT if not self[name]]
        if len(missing) == len(ENVIRONMENT):
            raise UsageError(_NO_CERTIFICATE)
        if missing:
            other = "" if variables else f" (or {ENVIRONMENT[missing[0]]})"
            raise UsageError(f"--{missing[0]}{other} is missing: certificate and key go together")

    def server(self, **more: Any) -> Settings:
        """
        The command line as the service wants it.

        :param more: what other options say of it.
        """
        names = (name.strip() for name in self["client-allowed-names"].split(","))
        return Settings(
            listen=self["listen"],
            certificate=self["tls-cert-file"],
            key=self["tls-private-key-file"],
            certificate_directory=self["cert-dir"],
            client_ca=self["client-ca-file"],
            client_names=frozenset(filter(None, names)),
            health_listen=self["health-listen"],
            shutdown_delay_seconds=self["shutdown-delay-seconds"],
            drain_seconds=self["drain-seconds"],
            stream_idle_seconds=self["stream-idle-seconds"],
            sessions=self["max-sessions"],
            **more,
        )


class LeafOptions(ProgramOptions):
    """Options that say which leaves there are."""

    optParameters = [
        ["leaves", None, "", "The leaf clusters: a YAML file."],
        ["root-name", None, DEFAULT_ROOT, "What this root is called in its leaves."],
        ["spaces", None, "", "Leaf clusters are Spaces, too: of these providers; * for all."],
        ["space-selector", None, "", "Only Spaces with these labels: a label selector."],
        ["space-viewpoint", None, EXTERNAL, f"How Spaces are seen: {' or '.join(VIEWPOINTS)}."],
        ["space-pods", None, OWNED, f"Pods of Spaces: {', '.join(POLICIES)}."],
    ]
    optFlags = [["kosmos", None, "The leaf clusters are those of Kosmos's Cluster objects, too."]]

    def postOptions(self) -> None:
        """
        :raises UsageError: no leaf could ever be known, or the root cannot be called so.
        """
        if not self["leaves"] and not self["kosmos"] and not self["spaces"]:
            raise UsageError(
                "--leaves is missing: which leaf clusters there are; give it, or --kosmos, or "
                "--spaces, or several"
            )
        if not self["root-name"]:
            raise UsageError("--root-name must not be empty")
        for problem in names.label_value(self["root-name"]):
            raise UsageError(f"--root-name {self['root-name']!r}: {problem}")
        self._chosen_spaces()
        super().postOptions()

    def _chosen_spaces(self) -> SpaceChoice | None:
        """:raises UsageError: what is said of Spaces cannot be meant."""
        for name, choices in (("space-viewpoint", VIEWPOINTS), ("space-pods", POLICIES)):
            if self[name] not in choices:
                raise UsageError(f"--{name} {self[name]!r} is none of {', '.join(choices)}")
        if not self["spaces"]:
            if self["space-selector"]:
                raise UsageError("--space-selector chooses of --spaces, which is missing")
            return None
        providers = [each.strip() for each in self["spaces"].split(",")]
        for each in providers if providers != ["*"] else ():
            for problem in provider_name(each):
                raise UsageError(f"--spaces {each!r}: {problem}")
        try:
            selector = parse_labels(self["space-selector"])
        except APIError as problem:
            raise UsageError(f"--space-selector: {problem.message}") from None
        return SpaceChoice(
            () if providers == ["*"] else tuple(providers),
            selector,
            self["space-viewpoint"],
            self["space-pods"],
        )

    def registry(self) -> RegistrySettings:
        """The command line as the registry wants it."""
        return RegistrySettings(
            self["leaves"], bool(self["kosmos"]), self["root-name"], self._chosen_spaces()
        )
