"""
``twisted-exec ssh``: consoles through stock ssh.
"""

from __future__ import annotations

import argparse
import re
import sys

from twisted_exec.cli.failures import failed
from twisted_exec.cli.machine_options import add_namespace_option
from twisted_exec.cli.options import add_cluster_options
from twisted_exec.program.libraries import missing_library


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
    description = "print lines for known_hosts: the authorities and keys of an exec-sshd"
    lines = commands.add_parser(
        "known-hosts", help=description, description=f"{description[0].upper()}{description[1:]}."
    )
    lines.add_argument(
        "hosts",
        metavar="HOST[:PORT]",
        nargs="+",
        type=_host,
        help="a name of the server, as users type it, such as gate.example.org or gate.example.org:2222",
    )
    for name, text in (
        ("--host-key", "a private host key of the server"),
        ("--host-certificate", "a certificate of one of the keys"),
    ):
        lines.add_argument(
            name, metavar="F", action="append", default=[], help=f"{text}; may be repeated"
        )
    lines.set_defaults(run=_print_known_hosts)


_HOST = re.compile(r"([A-Za-z0-9.*?_-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")


def _host(text: str) -> tuple[str, int]:
    match = _HOST.fullmatch(text)
    port = int(match[2] or 22) if match else 0
    if match is None or not 0 < port < 1 << 16:
        raise argparse.ArgumentTypeError(f'"{text}" is no HOST or HOST:PORT')
    return match[1].strip("[]"), port


def _print_known_hosts(options: argparse.Namespace) -> int:
    # Imported here, because help needs no Conch.
    try:
        from twisted.internet.task import Clock

        from twisted_exec.ssh.door_keys import DoorKeyError, DoorKeys, known_hosts
    except ModuleNotFoundError as missing:
        return failed("ssh known-hosts", missing_library(missing))
    try:
        keys = DoorKeys(options.host_key, options.host_certificate, Clock()).load()
    except DoorKeyError as problem:
        return failed("ssh known-hosts", str(problem))
    sys.stdout.write(known_hosts(keys, options.hosts))
    return 0


def _run(options: argparse.Namespace) -> int:
    # Imported here, because help needs no Conch.
    from twisted_exec.cli.ssh import program

    return program.run(options)
