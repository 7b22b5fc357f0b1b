"""
``twisted-exec space``: a Space's API server, for kubectl and whatever else reads kubeconfigs.

Credentials of Spaces are exchanged while they are in use.  So what ``kubeconfig`` writes holds none: whoever
uses it asks ``exec-credential`` each time, which reads the Space's Secret as the user who typed that.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

from twisted_exec.api import times
from twisted_exec.api.spaces import ROTATE, SPACES
from twisted_exec.cli import space_credential, space_kubeconfig
from twisted_exec.cli.asking import InputError, server_command
from twisted_exec.cli.cluster_options import duration
from twisted_exec.cli.space_options import add_provider, add_viewpoint, viewpoint_of

if TYPE_CHECKING:
    from twisted_exec.cli.asking import Ask
    from twisted_exec.kube.client import KubeClient


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``space`` to a program's commands.  Its options have ``run(options) -> int``."""
    parser = subparsers.add_parser(
        "space",
        help="API servers by the names of their Spaces",
        description="Reach the API server of a Space, and have its credentials exchanged.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    told = _command(commands, "kubeconfig", "a kubeconfig that leads to a Space", _kubeconfig)
    add_viewpoint(told)
    told.add_argument(
        "--static",
        action="store_true",
        help="with the credentials in it, which are then good as long as they are; without, they "
        "are asked for with twisted-exec space exec-credential whenever it is used",
    )
    told.add_argument("--output", metavar="FILE", help="instead of standard output; mode 0600")
    told.add_argument("--force", action="store_true", help="replace that file")
    shown = _command(
        commands,
        "exec-credential",
        "the credentials of a Space, for kubectl and client-go to ask",
        space_credential.credential,
    )
    add_viewpoint(shown)
    rotated = _command(commands, "rotate", "have new credentials made for a Space", _rotate)
    rotated.add_argument("--wait", action="store_true", help="until its Secrets have them")
    rotated.add_argument(
        "--timeout",
        metavar="TIME",
        type=duration,
        default="60s",
        help="for how long, such as 2m (default: %(default)s); 0 means for ever",
    )


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, told: str, ask: Ask
) -> argparse.ArgumentParser:
    parser = server_command(commands, "space", name, told, ask)
    parser.add_argument("name", metavar="NAME", help="the Space")
    add_provider(parser)
    return parser


async def _kubeconfig(client: KubeClient, options: argparse.Namespace) -> str:
    from twisted_exec.spaces.found import config_in, find_space
    from twisted_exec.tls.authority import write_private

    path = options.output
    if path and os.path.lexists(path) and not options.force:
        raise InputError(f"{path!r} exists already: give --force to replace it")
    found = await find_space(client, options.name, options.provider)
    config = await config_in(client, found.space, viewpoint_of(options))
    content = space_kubeconfig.content(config, found.name, options)
    if not path:
        return content.decode()
    write_private(path, content)
    print(f"space {found.name}: wrote {path}", file=sys.stderr)
    return ""


async def _rotate(client: KubeClient, options: argparse.Namespace) -> str:
    from twisted_exec.cli.space_rotation import Rotation
    from twisted_exec.spaces.found import find_space

    found = await find_space(client, options.name, options.provider)
    rotation = Rotation(client, found, options.reactor, options.timeout)
    if options.wait:
        await rotation.note()
    asked = times.precise_timestamp(time.time())
    patch = {"metadata": {"annotations": {ROTATE: asked}}}
    await client.patch(SPACES, found.name.name, patch, found.name.namespace)
    told = await rotation.wait(asked) if options.wait else "asked for new credentials"
    return f"space {found.name}: {told}\n"
