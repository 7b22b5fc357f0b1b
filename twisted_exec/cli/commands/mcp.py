"""
``twisted-exec mcp``: tools for an agent, over the Model Context Protocol.
"""

from __future__ import annotations

import argparse
import os

from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.failures import failed
from twisted_exec.cli.machine_options import add_namespace_option
from twisted_exec.cli.options import add_cluster_options, chosen_context, follow_config
from twisted_exec.cli.runner import server_command
from twisted_exec.cli.times import duration
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError

COMMAND = "mcp"
_DESCRIPTION = """\
Serve an agent on standard input and output, by the Model Context Protocol (MCP): tools that look at the consoles of
machines, ask people for access, and type. An agent's program runs this command. With your own kubeconfig only the
tools that read work.
"""
_NOT_BY_HAND = "an agent's program runs this command, on a pipe; docs/howto/agents-mcp.rst says how"


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``mcp``."""
    parser.description = _DESCRIPTION
    add_namespace_option(parser)
    add_cluster_options(parser)
    parser.set_defaults(run=_run)
    commands = parser.add_subparsers(metavar="COMMAND", required=False)
    description = "make an identity for an agent of yours, and write its kubeconfig"
    login = server_command(commands, COMMAND, "login", description, _login)
    login.add_argument(
        "agent", metavar="NAME", help="the agent's name: lower-case letters, digits and '-'"
    )
    login.add_argument(
        "--output",
        metavar="FILE",
        help="the kubeconfig to write, instead of NAME.kubeconfig; an earlier one of this agent is replaced",
    )
    login.add_argument(
        "--duration",
        metavar="TIME",
        type=duration,
        default="8h",
        help="how long the identity is good, such as 1h: 10m to 8h; default: 8h",
    )
    add_namespace_option(login)


async def _login(client: CommandClient, options: argparse.Namespace) -> str:
    from twisted_exec.cli.mcp.login import login

    return await login(client, options)


def _run(options: argparse.Namespace) -> int:
    # Imported here, because help needs no tools.
    from twisted_exec.cli.console.process import the_reactor
    from twisted_exec.cli.mcp.stdio import serve
    from twisted_exec.cli.mcp.tools import ConsoleTools
    from twisted_exec.kube.transport import IdleConnections

    if os.isatty(0):
        return failed(COMMAND, _NOT_BY_HAND)
    try:
        config = follow_config(options, chosen_context(options))
    except KubeConfigError as problem:
        return failed(COMMAND, str(problem))
    reactor = the_reactor()
    serve(ConsoleTools(config.current, reactor, IdleConnections(reactor)), reactor)
    return 0
