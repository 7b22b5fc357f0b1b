"""
Command line of the Space Manager.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.python.usage import UsageError

from twisted_exec.api.names import dns_label, dns_subdomain
from twisted_exec.api.spaces import PROVIDER_TYPES
from twisted_exec.program.options import ReplaceableOptions, port_range
from twisted_exec.spacemanager import PROGRAM
from twisted_exec.spacemanager.service import LEASE, NAMESPACE, Settings


class Options(ReplaceableOptions):
    """Command line of the space manager."""

    program = PROGRAM
    paths = ("state-dir",)
    group = "Space Manager"
    groups = {
        "Cluster with the Spaces": ["kubeconfig", "context"],
        "Leader election": ["namespace", "lease"],
    }
    synopsis = "[options]"
    longdesc = (
        "Manages Spaces: creates and discovers control planes, and manages their credentials."
    )

    optParameters = [
        [
            "kubeconfig",
            None,
            None,
            "Kubeconfig for the cluster with the Spaces; default: $KUBECONFIG, or in-cluster.",
        ],
        ["context", None, None, "Context of the kubeconfig; default: the current context."],
        [
            "state-dir",
            None,
            "exec-spacemanager-state",
            "Directory for the state of providers on this host.",
        ],
        [
            "providers",
            None,
            ",".join(PROVIDER_TYPES),
            "Comma-separated list of the enabled provider types.",
        ],
        [
            "space-port-range",
            None,
            None,
            "Ports of 127.0.0.1 for the API servers of local Spaces: FIRST-LAST.",
            port_range,
        ],
        ["namespace", None, NAMESPACE, "Namespace of the Lease for leader election."],
        ["lease", None, LEASE, "Name of the Lease, shared by all managers of a cluster."],
        [
            "health-listen",
            None,
            "tcp:10258:interface=127.0.0.1",
            "Endpoint for probes and metrics, without TLS; empty: none.",
        ],
    ]

    def postOptions(self) -> None:
        """
        Check the options.

        :raises UsageError: an option is invalid.
        """
        if not self["state-dir"]:
            raise UsageError("--state-dir must not be empty")
        if dns_label(self["namespace"]):
            raise UsageError(f"--namespace: {self['namespace']!r} is not a name")
        if dns_subdomain(self["lease"]):
            raise UsageError(f"--lease: {self['lease']!r} is not a name")
        self.types()

    def types(self) -> Sequence[str]:
        """
        Return the enabled provider types, in order.

        :raises UsageError: the list is empty, or has an unknown type.
        """
        types = [each.strip() for each in self["providers"].split(",") if each.strip()]
        if not types:
            raise UsageError(f"--providers is empty; give some of {', '.join(PROVIDER_TYPES)}")
        for each in types:
            if each not in PROVIDER_TYPES:
                raise UsageError(
                    f"--providers: {each!r} is not a provider type; use some of "
                    f"{', '.join(PROVIDER_TYPES)}"
                )
        return tuple(dict.fromkeys(types))

    def settings(self) -> Settings:
        """Return the settings for the service."""
        return Settings(
            state_directory=self["state-dir"],
            namespace=self["namespace"],
            lease=self["lease"],
            health_listen=self["health-listen"],
        )
