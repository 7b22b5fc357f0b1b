"""
What the command line of a manager says.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.python.usage import UsageError

from twisted_exec.api.names import dns_label, dns_subdomain
from twisted_exec.api.spaces import PROVIDER_TYPES
from twisted_exec.program.start import ProgramOptions
from twisted_exec.spacemanager import PROGRAM
from twisted_exec.spacemanager.service import LEASE, NAMESPACE, Settings


class Options(ProgramOptions):
    """Command line of the space manager."""

    program = PROGRAM
    paths = ("state-dir",)
    synopsis = "[options]"
    longdesc = "Keeps Spaces: has control planes made, finds them, and keeps their credentials."

    optParameters = [
        [
            "kubeconfig",
            None,
            None,
            "Of the cluster with the Spaces; else $KUBECONFIG, or the Pod's own.",
        ],
        ["context", None, None, "Instead of the kubeconfig's current context."],
        ["state-dir", None, "exec-spacemanager-state", "What adaptors keep on this host."],
        [
            "providers",
            None,
            ",".join(PROVIDER_TYPES),
            "The types of providers that may be used, with commas.",
        ],
        ["namespace", None, NAMESPACE, "Of the Lease by which one of the replicas is elected."],
        ["lease", None, LEASE, "Its name: one for all managers of one cluster."],
        [
            "health-listen",
            None,
            "tcp:10258:interface=127.0.0.1",
            "Where probes and figures are answered, in the clear; empty for nowhere.",
        ],
    ]

    def postOptions(self) -> None:
        """
        :raises UsageError: something cannot be meant.
        """
        if not self["state-dir"]:
            raise UsageError("--state-dir must not be empty")
        if dns_label(self["namespace"]):
            raise UsageError(f"--namespace: {self['namespace']!r} is no name")
        if dns_subdomain(self["lease"]):
            raise UsageError(f"--lease: {self['lease']!r} is no name")
        self.types()

    def types(self) -> Sequence[str]:
        """
        The types that may be used, in the order given.

        :raises UsageError: there is none, or one that nobody knows.
        """
        told = [each.strip() for each in self["providers"].split(",") if each.strip()]
        if not told:
            raise UsageError(f"--providers is empty; give some of {', '.join(PROVIDER_TYPES)}")
        for each in told:
            if each not in PROVIDER_TYPES:
                raise UsageError(
                    f"--providers: {each!r} is no type of providers; there are "
                    f"{', '.join(PROVIDER_TYPES)}"
                )
        return tuple(dict.fromkeys(told))

    def settings(self) -> Settings:
        """The command line as the service wants it."""
        return Settings(
            state_directory=self["state-dir"],
            namespace=self["namespace"],
            lease=self["lease"],
            health_listen=self["health-listen"],
        )
