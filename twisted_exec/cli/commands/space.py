"""
``twisted-exec space``: access to a Space's API server.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from twisted_exec.api import times
from twisted_exec.api.spaces import ROTATE, SPACES
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.failures import InputError
from twisted_exec.cli.messages import for_stdout
from twisted_exec.cli.options import add_provider, add_viewpoint, viewpoint_of
from twisted_exec.cli.runner import Ask, server_command
from twisted_exec.cli.space.exec_credential import credential
from twisted_exec.cli.space.kubeconfig import kubeconfig_content
from twisted_exec.cli.space.rotation import CredentialRotation, check_provider
from twisted_exec.cli.times import duration
from twisted_exec.spaces.kubeconfigs import config_in
from twisted_exec.spaces.lookup import find_space
from twisted_exec.tls.private_files import write_private


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``space``."""
    parser.description = "Use the API server of a Space, and rotate its credentials."
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    command = _command(commands, "kubeconfig", "write a kubeconfig for a Space", _kubeconfig)
    add_viewpoint(command)
    command.add_argument(
        "--static",
        action="store_true",
        help="write the current credentials into it, which expire; without this option it runs "
        "twisted-exec space exec-credential for the current ones whenever it is used",
    )
    command.add_argument(
        "--output", metavar="FILE", help="the kubeconfig, instead of standard output; mode 0600"
    )
    command.add_argument("--force", action="store_true", help="replace an existing FILE")
    exec_credential = _command(
        commands,
        "exec-credential",
        "print the credentials of a Space for kubectl and client-go",
        credential,
    )
    add_viewpoint(exec_credential)
    rotated = _command(commands, "rotate", "rotate the credentials of a Space", _rotate)
    rotated.add_argument(
        "--wait",
        action="store_true",
        help="wait until the Secrets of the Space have new credentials",
    )
    rotated.add_argument(
        "--timeout",
        metavar="TIME",
        type=duration,
        default="60s",
        help="the time limit of --wait, such as 2m (default: %(default)s); 0 means for ever",
    )


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    description: str,
    ask: Ask,
) -> argparse.ArgumentParser:
    parser = server_command(commands, "space", name, description, ask)
    parser.add_argument("name", metavar="NAME", help="the Space")
    add_provider(parser)
    return parser


async def _kubeconfig(client: CommandClient, options: argparse.Namespace) -> str:
    path = options.output
    if path and os.path.lexists(path) and not options.force:
        raise InputError(f'"{path}" exists already: give --force to replace it')
    location = await find_space(client, options.name, options.provider)
    config = await config_in(client, location.space, viewpoint_of(options))
    content = kubeconfig_content(config, location.name, options)
    if not path:
        return content.decode()
    write_private(path, content)
    print(f"space {location.name}: wrote {path}", file=sys.stderr)
    return ""


async def _rotate(client: CommandClient, options: argparse.Namespace) -> str:
    location = await find_space(client, options.name, options.provider)
    check_provider(location.space, location.name)
    rotation = CredentialRotation(client, location, options.reactor, options.timeout)
    if options.wait:
        await rotation.note()
    requested_at = times.precise_timestamp(time.time())
    patch = {"metadata": {"annotations": {ROTATE: requested_at}}}
    await client.patch(SPACES, location.name.name, patch, location.name.namespace)
    message = await rotation.wait(requested_at) if options.wait else "asked for new credentials"
    return f"{for_stdout(f'space {location.name}: {message}')}\n"
