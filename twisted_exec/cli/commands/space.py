"""
``twisted-exec space``: access to a Space's API server.

Credentials of Spaces are rotated while they are in use.  So a kubeconfig has none without
``--static``, but an exec plugin, ``exec-credential``, which reads the Space's Secret with the
user's own rights.  ``$KUBECONFIG`` may then be the Space's, so the plugin's entry selects the
cluster with the Space.

Source: ``k8s.io/client-go/pkg/apis/clientauthentication``, and ``plugin/pkg/client/auth/exec`` for
when client-go runs the plugin.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from twisted.internet.task import deferLater

from twisted_exec.api import times
from twisted_exec.api.kinds.events import EVENTS
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.spaces import ROTATE, SPACES, VIEWPOINTS
from twisted_exec.api.status import APIError, Forbidden
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.failures import InputError
from twisted_exec.cli.messages import for_stdout
from twisted_exec.cli.options import add_provider, add_viewpoint, duration, viewpoint_of
from twisted_exec.cli.runner import Ask, server_command
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import (
    NEVER,
    ClientConfig,
    ExecPlugin,
    KubeConfigError,
    Material,
)
from twisted_exec.kube.kubeconfig.entries import NoKubeConfig
from twisted_exec.kube.kubeconfig.expiry import expiry_of
from twisted_exec.kube.kubeconfig.loader import EXEC_V1, context_name
from twisted_exec.kube.kubeconfig.writer import written
from twisted_exec.spaces.interfaces import SpaceName
from twisted_exec.spaces.kubeconfigs import config_in, read
from twisted_exec.spaces.lookup import FoundSpace, find_space
from twisted_exec.spaces.space_view import secret_of
from twisted_exec.tls.pki import write_private

LOOK_SECONDS = 0.5
SETTLE_SECONDS = 3.0
"""Time after the manager's answer for the Secrets to change and for an Event to come."""
CANNOT = "CannotRotate"
NO_PROVIDER = "NoProvider"
"""Reason of a condition without the SpaceProviderDesc: nothing will answer a request."""


class CredentialRotation:
    """
    The rotation of one Space's credentials.

    ``status.rotated`` does not say whether the rotation succeeded, so this compares Secrets.
    """

    def __init__(
        self, client: IKubeClient, location: FoundSpace, clock: Any, limit_seconds: float | None
    ) -> None:
        self._client, self._found, self._clock = client, location, clock
        self._limit = limit_seconds
        self._before: dict[str, bytes] | None = {}
        self._answered: float | None = None

    async def note(self) -> None:
        self._before = await _digests(self._client, self._found.space)

    async def wait(self, requested_at: str) -> str:
        """
        Wait until the credentials differ from the noted ones; without the right to read them, until
        the manager has answered.

        :return: the message for the user.
        :raises InputError: they cannot be rotated, or not in time.
        """
        # Not control.polling: what is awaited is the message that says how it ended.
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
    Check that the Space has a provider, which can rotate its credentials.

    :raises InputError: it has none.
    """
    for each in _problems(space):
        if each.get("reason") == NO_PROVIDER:
            raise InputError(f"space {name} cannot get new credentials: {each['message']}")


def _trouble(space: Object) -> str:
    return next((str(each["message"]) for each in _problems(space)), "")


def _problems(space: Object) -> Iterator[Object]:
    for each in (space.get("status") or {}).get("conditions") or ():
        if each.get("status") != "True" and each.get("message"):
            yield each


async def _digests(client: IKubeClient, space: Object) -> dict[str, bytes] | None:
    """Return digests of the Space's kubeconfigs by viewpoint, or ``None`` without the right."""
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
    from twisted_exec.spaces.lookup import find_space

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


PROGRAM = "twisted-exec"
_HINT = "Install the client of twisted-exec as its page docs/howto/install-client.rst says."

_KEPT = ("cluster", "user", "tls_server_name", "server", "as_uid")
_PATHS = ("certificate_authority", "client_certificate", "client_key")
_SECRET = ("token", "password")


def kubeconfig_content(
    config: ClientConfig,
    name: SpaceName,
    options: argparse.Namespace,
    environ: Mapping[str, str] | None = None,
) -> bytes:
    """
    Return the kubeconfig.

    :raises InputError: a kubeconfig cannot express it, or would have a secret of the command line.
    """

    if options.static:
        return written(config, str(name))
    if config.username:
        raise InputError(
            f"space {name} is reached with a password, which cannot be asked for; give --static"
        )
    return written(asking(config, name, options, environ), str(name))


def asking(
    config: ClientConfig,
    name: SpaceName,
    options: argparse.Namespace,
    environ: Mapping[str, str] | None = None,
) -> ClientConfig:
    """Return a configuration for the same server with a credential plugin."""
    _check_no_secrets(options)
    environ = os.environ if environ is None else environ
    plugin = ExecPlugin(
        command=_program(),
        api_version=EXEC_V1,
        args=tuple(_words("exec-credential", name, options, environ)),
        env=(("KUBECONFIG", _files(options, environ)),),
        interactive_mode=NEVER,
        provide_cluster_info=True,
        install_hint=_HINT,
    )
    return replace(config, token="", certificate=Material(), key=Material(), plugin=plugin)


def command_line(name: SpaceName, options: argparse.Namespace, *more: str) -> str:
    """Return the shell command that writes a kubeconfig for a Space to a file."""
    files = _files(options, os.environ)
    variable = "" if files == os.devnull else f"KUBECONFIG={shlex.quote(files)} "
    words = [PROGRAM, *_words("kubeconfig", name, options, os.environ), *more]
    return f"{variable}{shlex.join(words)} --output FILE --force"


def _words(
    command: str, name: SpaceName, options: argparse.Namespace, environ: Mapping[str, str]
) -> Iterator[str]:
    yield from ("space", command, name.name, f"--provider={name.provider or name.namespace}")
    if options.in_cluster:
        yield "--in-cluster"
    yield from _hub_words(options, environ)


def _program() -> str:
    own = os.path.abspath(sys.argv[0])
    if os.path.basename(own) == PROGRAM and os.access(own, os.X_OK):
        return own
    return shutil.which(PROGRAM) or PROGRAM


def _files(options: argparse.Namespace, environ: Mapping[str, str]) -> str:
    from twisted_exec.kube.kubeconfig.entries import file_names

    try:
        return os.pathsep.join(file_names(options.kubeconfig, environ))
    except NoKubeConfig:
        # A service account, or everything is on the command line; it must never be the Space's kubeconfig.
        return os.devnull


def _check_no_secrets(options: argparse.Namespace) -> None:
    for key in _SECRET:
        if getattr(options, key):
            raise InputError(
                f"--{key} would stand in the kubeconfig for all to read; "
                "put it into a kubeconfig of its own and name that with --kubeconfig"
            )


def _hub_words(options: argparse.Namespace, environ: Mapping[str, str]) -> Iterator[str]:
    try:
        context = context_name(options.kubeconfig, options.context, environ=environ)
    except KubeConfigError:
        context = ""
    if context:
        yield f"--context={context}"
    for key in _KEPT:
        if getattr(options, key):
            yield f"--{key.replace('_', '-')}={getattr(options, key)}"
    for key in _PATHS:
        if getattr(options, key):
            yield f"--{key.replace('_', '-')}={os.path.abspath(getattr(options, key))}"
    if options.insecure_skip_tls_verify:
        yield "--insecure-skip-tls-verify"
    if options.username:
        yield f"--username={options.username}"
    if options.impersonate:
        yield f"--as={options.impersonate}"
    for group in options.as_group or ():
        yield f"--as-group={group}"


INFO = "KUBERNETES_EXEC_INFO"
KIND = "ExecCredential"
GROUP = "client.authentication.k8s.io"
VERSIONS = (f"{GROUP}/v1", f"{GROUP}/v1beta1")

ASK_AGAIN_SECONDS = 300.0
"""Longest time until a client notices rotated credentials."""
BEFORE_END_SECONDS = 60.0
SHORTEST_SECONDS = 10.0
"""Shortest time between two runs, also for expired credentials."""


async def credential(client: CommandClient, options: argparse.Namespace) -> str:
    """
    Return the output: one ``ExecCredential``.

    :raises InputError: the request is not supported or is for another server, or the credentials do
        not fit the format.
    """
    from twisted_exec.spaces.lookup import find_space

    request = asked_for(os.environ)
    location = await find_space(client, options.name, options.provider)
    config = await config_in(client, location.space, viewpoint_of(options))
    check_server(request, config, location.name, options)
    answer = answered(request["apiVersion"], config, location.name, options, time.time())
    return json.dumps(answer) + "\n"


def asked_for(environ: Mapping[str, str]) -> dict[str, Any]:
    """
    Return the request in ``KUBERNETES_EXEC_INFO``, or a default without it.

    :raises InputError: the request is malformed, or has an unknown version.
    """
    text = environ.get(INFO, "")
    if not text:
        return {"apiVersion": VERSIONS[0], "kind": KIND}
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise InputError(f"${INFO} is no {KIND}")
    if document.get("apiVersion") not in VERSIONS:
        raise InputError(f"${INFO} has none of the apiVersions {' and '.join(VERSIONS)}")
    return document


def check_server(
    request: Mapping[str, Any], config: ClientConfig, name: SpaceName, options: argparse.Namespace
) -> None:
    """
    Check that a request is for the Space's server, if it names one.

    :raises InputError: another server must not get these credentials.
    """
    spec = request.get("spec")
    cluster = spec.get("cluster") if isinstance(spec, dict) else None
    server = cluster.get("server") if isinstance(cluster, dict) else None
    if server and str(server).rstrip("/") != config.server:
        raise InputError(
            f"space {name} is at {config.server}, and not at {server}; "
            f"write its kubeconfig again: {command_line(name, options)}"
        )


def answered(
    version: str, config: ClientConfig, name: SpaceName, options: argparse.Namespace, now: float
) -> dict[str, Any]:
    """
    Return the ``ExecCredential`` of a configuration.

    :param now: seconds since the epoch.
    :raises InputError: the format cannot express its credentials.
    """
    status = {
        "token": config.token,
        "clientCertificateData": config.certificate.data.decode("utf-8", "replace"),
        "clientKeyData": config.key.data.decode("utf-8", "replace"),
    }
    status = {key: value for key, value in status.items() if value}
    if not status:
        raise InputError(
            f"space {name} is reached with neither a token nor a certificate; "
            f"write a kubeconfig that contains its credentials: "
            f"{command_line(name, options, '--static')}"
        )
    status["expirationTimestamp"] = times.timestamp(ask_again(config, now))
    return {"apiVersion": version, "kind": KIND, "status": status}


def ask_again(config: ClientConfig, now: float) -> float:
    """
    Return the ``expirationTimestamp`` in seconds since the epoch, early enough to notice rotated
    credentials.
    """

    end = expiry_of(config)
    latest = now + ASK_AGAIN_SECONDS
    if end is None:
        return latest
    return max(min(latest, end - BEFORE_END_SECONDS), now + SHORTEST_SECONDS)
