"""
The command line of ``exec-racks``: options beside those of :mod:`.settings`, and checks of all of them.
"""

from __future__ import annotations

from twisted.python.usage import UsageError

from twisted_exec.api.dialects import DEFAULT, DIALECTS, by_name
from twisted_exec.api.names import dns_label, dns_subdomain
from twisted_exec.api.selectors import parse_labels
from twisted_exec.api.status import APIError
from twisted_exec.program.options.command_line import ProgramOptions
from twisted_exec.program.options.declaration import ProgramOption, Required, settings_of
from twisted_exec.racks import PROGRAM
from twisted_exec.racks.plan import Target
from twisted_exec.racks.settings import POWER, Settings

_SERVERS, _MACHINES = "Servers", "Machines"


class Options(ProgramOptions):
    """Command line of the program."""

    program = PROGRAM
    settings_class = Settings
    more = (
        ProgramOption(
            "kubeconfig",
            "Kubeconfig for the cluster with the Servers; default: $KUBECONFIG, or in-cluster.",
            group=_SERVERS,
        ),
        ProgramOption("context", "Context of it; default: the current context.", group=_SERVERS),
        ProgramOption(
            "machine-kubeconfig",
            "Kubeconfig for the API server with the Machines; default: that of the Servers.",
            group=_MACHINES,
        ),
        ProgramOption(
            "machine-context", "Context of it; default: the current context.", group=_MACHINES
        ),
        ProgramOption(
            "namespace", "Namespace of the Machines.", required=Required(), group=_MACHINES
        ),
        ProgramOption(
            "machine-class", "Class of new Machines.", required=Required(), group=_MACHINES
        ),
        ProgramOption(
            "machine-pool",
            "Pool of the Machines: that of the runtime that reads the list.",
            required=Required(),
            group=_MACHINES,
        ),
        POWER,
        ProgramOption(
            "dialect",
            f"API of the Machines: {', '.join(each.name for each in DIALECTS)}.",
            default=DEFAULT.name,
            group=_MACHINES,
        ),
    )
    group = "List"
    groups = dict.fromkeys((_SERVERS, _MACHINES), ())
    synopsis = "--list=FILE --namespace=NAME --machine-class=NAME --machine-pool=NAME [options]"
    longdesc = "Creates Machines, and a list of lines, from the Servers and BMCs of metal-operator."

    def postOptions(self) -> None:
        self.check_required()
        for name, rule in (
            ("namespace", dns_label),
            ("machine-class", dns_subdomain),
            ("machine-pool", dns_subdomain),
        ):
            if rule(self[name]):
                raise UsageError(f"--{name}: {self[name]!r} is not a name")
        if not self["list"].lower().endswith(".csv"):
            raise UsageError(
                f"--list: {self['list']!r} must end with .csv, the form that is written"
            )
        try:
            parse_labels(self["server-selector"])
        except (APIError, ValueError) as problem:
            raise UsageError(f"--server-selector: {problem}") from None
        try:
            by_name(self["dialect"])
        except ValueError as problem:
            raise UsageError(f"--dialect: {problem}") from None

    def settings(self) -> Settings:
        target = Target(
            by_name(self["dialect"]),
            self["namespace"],
            self["machine-class"],
            self["machine-pool"],
            self["machine-power"],
        )
        return settings_of(Settings, self, target=target)
