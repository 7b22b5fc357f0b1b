"""
The command line of ``exec-spacemanager``: options beside those of :mod:`.settings`, and checks of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from twisted.python.usage import UsageError

from twisted_exec.api.names import dns_label, dns_subdomain
from twisted_exec.api.spaces import PROVIDER_TYPES
from twisted_exec.program.options.command_line import ProgramOptions
from twisted_exec.program.options.declaration import ProgramOption, settings_of
from twisted_exec.program.options.shared import SPACE_PORT_RANGE
from twisted_exec.spacemanager import PROGRAM
from twisted_exec.spacemanager.settings import Settings


class Options(ProgramOptions):
    """Command line of the space manager."""

    program = PROGRAM
    settings_class = Settings
    more = (
        ProgramOption(
            "kubeconfig",
            "Kubeconfig for the cluster with the Spaces; default: $KUBECONFIG, or in-cluster.",
            group="Cluster with the Spaces",
        ),
        ProgramOption(
            "context",
            "Context of the kubeconfig; default: the current context.",
            group="Cluster with the Spaces",
        ),
        ProgramOption(
            "providers",
            "Comma-separated list of the enabled provider types.",
            default=",".join(PROVIDER_TYPES),
        ),
        replace(SPACE_PORT_RANGE, group=""),
    )
    group = "Space Manager"
    groups = dict.fromkeys(("Cluster with the Spaces", "Leader election"), ())
    synopsis = "[options]"
    longdesc = (
        "Manages Spaces: creates and discovers control planes, and manages their credentials."
    )

    def postOptions(self) -> None:
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
        return settings_of(Settings, self)
