"""
``twisted-exec space``: access to a Space's API server, for programs that read kubeconfigs.

Credentials of Spaces are rotated while they are in use.  So a kubeconfig of ``space kubeconfig``
contains none: its exec plugin is ``exec-credential``, which reads the Space's Secret with the
user's own rights.

After a request to rotate credentials, the Space Manager copies the annotation to
``status.rotated``, also if it cannot rotate them, and explains that in an Event.  So this program
compares the Secrets.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from twisted_exec.api import times
from twisted_exec.api.spaces import ROTATE, SPACES
from twisted_exec.cli.cluster_options import duration
from twisted_exec.cli.command import InputError, server_command
from twisted_exec.cli.space import credential, kubeconfig
from twisted_exec.cli.space.options import add_provider, add_viewpoint, viewpoint_of

if TYPE_CHECKING:
    from twisted_exec.cli.client import CommandClient
    from twisted_exec.cli.command import Ask
import hashlib
from typing import TYPE_CHECKING, Any

from twisted_exec.api.kinds.events import EVENTS
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.spaces import VIEWPOINTS
from twisted_exec.api.status import APIError, Forbidden
from twisted_exec.spaces.kubeconfigs import read
from twisted_exec.spaces.space_view import secret_of

if TYPE_CHECKING:
    from twisted_exec.kube.interfaces import IKubeClient, Object
    from twisted_exec.spaces.interfaces import SpaceName
    from twisted_exec.spaces.lookup import FoundSpace


LOOK_SECONDS = 0.5
SETTLE_SECONDS = 3.0
"""Time limit for the Secrets after the status, and for an Event after them."""
CANNOT = "CannotRotate"
NO_PROVIDER = "NoProvider"
"""Reason of a condition without the SpaceProviderDesc: nothing will answer a request."""


class Rotation:
    """
    The rotation of one Space's credentials.

    :param clock: a reactor's time.
    :param limit_seconds: time limit; ``None`` for none.
    """

    def __init__(
        self, client: IKubeClient, location: FoundSpace, clock: Any, limit_seconds: float | None
    ) -> None:
        self._client, self._found, self._clock = client, location, clock
        self._limit = limit_seconds
        self._before: dict[str, bytes] | None = {}
        self._answered: float | None = None

    async def note(self) -> None:
        """Note the current credentials, before the rotation."""
        self._before = await _digests(self._client, self._found.space)

    async def wait(self, requested_at: str) -> str:
        """
        Wait until the credentials differ from the noted ones.

        :param requested_at: value of the annotation.
        :return: the message for the user.
        :raises InputError: they cannot be rotated, or not in time.
        """
        from twisted.internet.task import deferLater

        end = self._clock.seconds() + (self._limit or float("inf"))
        name = self._found.name
        while True:
            space = await self._client.get(SPACES, name.name, name.namespace)
            if message := await self._look(space, requested_at):
                return message
            if self._clock.seconds() >= end:
                why = _trouble(space) or (
                    "kubectl describe tells what its manager did, if there is one"
                )
                raise InputError(
                    f"space {name} has no new credentials after {self._limit:g} s; {why}"
                )
            await deferLater(self._clock, LOOK_SECONDS)

    async def _look(self, space: Object, requested_at: str) -> str:
        check_provider(space, self._found.name)
        seconds = self._clock.seconds()
        if self._answered is None and (space.get("status") or {}).get("rotated") == requested_at:
            self._answered = seconds
        now, before = await _digests(self._client, space), self._before
        if now is None or before is None:
            is_over = self._answered is not None
            return (
                "its manager has answered; who may read its Secrets sees with what"
                if is_over
                else ""
            )
        if now and all(now.get(each) != digest for each, digest in before.items()):
            return "has new credentials"
        if self._answered is not None and seconds >= self._answered + SETTLE_SECONDS:
            why = await _why(self._client, self._found)
            raise InputError(f"space {self._found.name} has no new credentials: {why}")
        return ""


def check_provider(space: Object, name: SpaceName) -> None:
    """
    Check that the Space has a provider.

    :raises InputError: it has none, so its manager cannot rotate its credentials.
    """
    for each in _problems(space):
        if each.get("reason") == NO_PROVIDER:
            raise InputError(f"space {name} cannot get new credentials: {each['message']}")


def _trouble(space: Object) -> str:
    """Return the message of the first condition that is not true; or empty."""
    return next((str(each["message"]) for each in _problems(space)), "")


def _problems(space: Object) -> Iterator[Object]:
    """Return the conditions with a message that are not true."""
    for each in (space.get("status") or {}).get("conditions") or ():
        if each.get("status") != "True" and each.get("message"):
            yield each


async def _digests(client: IKubeClient, space: Object) -> dict[str, bytes] | None:
    """Return digests of the Space's kubeconfigs by viewpoint; ``None`` without the right to read them."""
    digests = {}
    for viewpoint in VIEWPOINTS:
        ref, _ = secret_of(space, viewpoint)
        if ref is not None:
            try:
                secret = await client.get(SECRETS.resource, ref.name, ref.namespace)
            except APIError as refused:
                if refused.code == Forbidden.code:
                    return None
                raise
            digests[viewpoint] = hashlib.sha256(read(secret)).digest()
    return digests


async def _why(client: IKubeClient, location: FoundSpace) -> str:
    """Return the message of the manager's Event, or empty without the right to read it."""
    selector = f"involvedObject.uid={location.space['metadata'].get('uid', '')}"
    try:
        listed = await client.list(
            EVENTS.resource, location.name.namespace, field_selector=selector
        )
    except APIError:
        listed = {"items": []}
    for each in listed["items"]:
        if each.get("reason") == CANNOT and each.get("message"):
            return str(each["message"])
    return "its manager has answered that this cannot be done"


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``space`` to a program's commands.  Its options have ``run(options) -> int``."""
    parser = subparsers.add_parser(
        "space",
        help="use the API server of a Space by the Space's name",
        description="Use the API server of a Space, and rotate its credentials.",
    )
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
        credential.credential,
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
    from twisted_exec.spaces.lookup import config_in, find_space
    from twisted_exec.tls.pki.authority import write_private

    path = options.output
    if path and os.path.lexists(path) and not options.force:
        raise InputError(f"{path!r} exists already: give --force to replace it")
    location = await find_space(client, options.name, options.provider)
    config = await config_in(client, location.space, viewpoint_of(options))
    content = kubeconfig.content(config, location.name, options)
    if not path:
        return content.decode()
    write_private(path, content)
    print(f"space {location.name}: wrote {path}", file=sys.stderr)
    return ""


async def _rotate(client: CommandClient, options: argparse.Namespace) -> str:
    from twisted_exec.spaces.lookup import find_space

    location = await find_space(client, options.name, options.provider)
    check_provider(location.space, location.name)
    rotation = Rotation(client, location, options.reactor, options.timeout)
    if options.wait:
        await rotation.note()
    requested_at = times.precise_timestamp(time.time())
    patch = {"metadata": {"annotations": {ROTATE: requested_at}}}
    await client.patch(SPACES, location.name.name, patch, location.name.namespace)
    message = await rotation.wait(requested_at) if options.wait else "asked for new credentials"
    return f"space {location.name}: {message}\n"
