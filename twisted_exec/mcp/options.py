"""
The command line of ``exec-mcp``: options beside those of :mod:`.settings`.
"""

from __future__ import annotations

from twisted_exec.mcp import PROGRAM
from twisted_exec.mcp.settings import Settings
from twisted_exec.program.options.command_line import ProgramOptions
from twisted_exec.program.options.declaration import ProgramOption, Required, settings_of
from twisted_exec.program.options.shared import ALLOWED_ORIGIN


class Options(ProgramOptions):
    """Command line of the program."""

    program = PROGRAM
    settings_class = Settings
    more = (
        ProgramOption(
            "kubeconfig",
            "Kubeconfig of this program for the API server; default: $KUBECONFIG, or in-cluster.",
            group="API server",
        ),
        ProgramOption(
            "context", "Context of it; default: the current context.", group="API server"
        ),
        ProgramOption(
            "authentication-config",
            "Identity providers, as an AuthenticationConfiguration (YAML), whose audiences are this "
            "server's own.",
            is_path=True,
            required=Required("the identity providers"),
            group="Users",
        ),
        ALLOWED_ORIGIN,
    )
    group = "Server"
    synopsis = (
        "--resource-url=URL --tls-cert-file=FILE --tls-private-key-file=FILE "
        "--authentication-config=FILE [options]"
    )
    longdesc = "Serves tools for agents at consoles, by the Model Context Protocol over HTTP."

    def postOptions(self) -> None:
        self.check_required()

    def settings(self) -> Settings:
        return settings_of(Settings, self)
