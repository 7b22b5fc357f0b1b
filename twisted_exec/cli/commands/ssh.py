"""
``twisted-exec ssh``: consoles through stock ssh.
"""

from __future__ import annotations

import argparse

from twisted_exec.cli.machine_options import add_namespace_option
from twisted_exec.cli.options import add_cluster_options


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``ssh``."""
    parser.description = "Serve consoles to ssh. kubectl console --ssh-config prints the configuration of ssh for this."
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    description = "serve one connection of ssh on standard input and output, as its ProxyCommand"
    proxy = commands.add_parser(
        "proxy", help=description, description=f"{description[0].upper()}{description[1:]}."
    )
    proxy.add_argument(
        "host", metavar="HOST", help="the machine: NAME.console, or NAME.NAMESPACE.console"
    )
    add_namespace_option(proxy)
    add_cluster_options(proxy)
    proxy.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    # Imported here, because help needs no Conch.
    from twisted_exec.cli.ssh import program

    return program.run(options)
