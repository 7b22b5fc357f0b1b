"""
``twisted-exec token``: bootstrap tokens for new poollets.

A token is printed once, when it is created; lists have no secrets.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import string
import sys
import time
from typing import Any

from twisted_exec.api import times
from twisted_exec.api.dialects import DEFAULT, DIALECTS, by_name
from twisted_exec.api.kinds import SECRETS, bootstrap_tokens
from twisted_exec.api.kinds.bootstrap_tokens import NAME_PREFIX, NAMESPACE
from twisted_exec.api.kinds.secrets import values_of
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.failures import InputError
from twisted_exec.cli.messages import one_line
from twisted_exec.cli.runner import nothing_found, server_command
from twisted_exec.cli.table import table
from twisted_exec.cli.times import duration
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.kubeconfig.writer import written
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.private_files import write_private

_MARKS = string.ascii_lowercase + string.digits


def register(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``token``."""
    parser.description = "Create, list and delete the bootstrap tokens of an API server."
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    create = server_command(
        commands,
        "token",
        "create",
        "create a token, and print it, which no other command does",
        _create,
    )
    create.add_argument(
        "--ttl",
        metavar="TIME",
        type=lambda text: duration(text) or 0.0,
        default="24h",
        help="the lifetime of the token, such as 1h; 0 means for ever (default: %(default)s)",
    )
    create.add_argument(
        "--description", metavar="TEXT", default="", help="the purpose of the token"
    )
    create.add_argument(
        "--group",
        metavar="GROUP",
        action="append",
        help="a group of the token's user, system:bootstrappers:..., instead of the group that may "
        "request certificates of poollets; may be repeated",
    )
    create.add_argument(
        "--dialect",
        choices=[dialect.name for dialect in DIALECTS],
        default=DEFAULT.name,
        help="the API of the machines (default: %(default)s)",
    )
    create.add_argument(
        "--bootstrap-kubeconfig",
        metavar="FILE",
        help="also write the file for exec-poollet --bootstrap-kubeconfig",
    )
    create.add_argument("--force", action="store_true", help="replace an existing FILE")
    server_command(commands, "token", "list", "list the tokens, without their secret parts", _list)
    delete = server_command(commands, "token", "delete", "delete tokens", _delete)
    delete.add_argument("id", metavar="ID", nargs="+", help="a token, or the part before its dot")


async def _create(client: CommandClient, options: argparse.Namespace) -> str:
    path = options.bootstrap_kubeconfig
    if path and os.path.lexists(path) and not options.force:
        raise InputError(f'"{path}" exists already: give --force to replace it')
    token_id, token_secret = _random(6), _random(16)
    body = _secret(token_id, token_secret, options)
    await client.create(SECRETS.resource, body, NAMESPACE)
    token = f"{token_id}.{token_secret}"
    if path:
        try:
            _write_kubeconfig(path, client, token)
        except TLSConfigError:
            # The token was never printed, so nobody could use it.
            await client.delete(SECRETS.resource, f"{NAME_PREFIX}{token_id}", NAMESPACE)
            raise
    print(_command_line(path), file=sys.stderr)
    return f"{token}\n"


def _random(length: int) -> str:
    return "".join(secrets.choice(_MARKS) for _ in range(length))


def _secret(token_id: str, token_secret: str, options: argparse.Namespace) -> dict[str, Any]:
    # Only here: the roles bring the modules of a server.
    from twisted_exec.auth.default_roles import bootstrappers

    groups = options.group or [bootstrappers(by_name(options.dialect))]
    values = {
        bootstrap_tokens.ID: token_id,
        bootstrap_tokens.SECRET: token_secret,
        bootstrap_tokens.AUTHENTICATION: "true",
        bootstrap_tokens.EXTRA_GROUPS: ",".join(groups),
        bootstrap_tokens.DESCRIPTION: options.description,
        bootstrap_tokens.EXPIRATION: times.timestamp(time.time() + options.ttl)
        if options.ttl
        else "",
    }
    return {
        "metadata": {"name": f"{bootstrap_tokens.NAME_PREFIX}{token_id}"},
        "type": bootstrap_tokens.SECRET_TYPE,
        "stringData": {key: value for key, value in values.items() if value},
    }


def _command_line(path: str | None) -> str:
    file = path or "bootstrap.kubeconfig"
    words = (
        *("twistd", "exec-poollet", f"--bootstrap-kubeconfig={file}", "--cert-dir=certificates"),
        *("--machine-pool-name=POOL", "--machine-runtime-endpoint=unix:///run/iri.sock"),
        # Without these the poollet accepts consoles from no API server.
        "--requestheader-client-ca-file=requestheader-ca.crt",
        "--requestheader-allowed-names=exec-apiserver",
    )
    advice = "on the poollet's host, with names of its own:"
    if not path:
        advice = f"write {file} with --bootstrap-kubeconfig={file}; {advice}"
    return f"{advice}\n    {shlex.join(words)}"


def _write_kubeconfig(path: str, client: CommandClient, token: str) -> None:

    ours = client.config
    theirs = ClientConfig(
        server=ours.server, ca=ours.ca, tls_server_name=ours.tls_server_name, token=token
    )
    write_private(path, written(theirs, "bootstrap"))


async def _list(client: CommandClient, options: argparse.Namespace) -> str:
    selector = f"type={bootstrap_tokens.SECRET_TYPE}"
    secrets = await client.list(
        SECRETS.resource, bootstrap_tokens.NAMESPACE, field_selector=selector
    )
    rows = []
    for secret in secrets["items"]:
        values = {
            key: one_line(value.decode("utf-8", "replace"))
            for key, value in values_of(secret).items()
            if key != bootstrap_tokens.SECRET
        }
        rows.append(
            (
                values.get(bootstrap_tokens.ID, ""),
                _left(values.get(bootstrap_tokens.EXPIRATION, "")),
                "yes" if values.get(bootstrap_tokens.AUTHENTICATION) == "true" else "no",
                values.get(bootstrap_tokens.EXTRA_GROUPS) or "<none>",
                values.get(bootstrap_tokens.DESCRIPTION) or "<none>",
            )
        )
    if not rows:
        return nothing_found("tokens")
    return table(("ID", "LEFT", "KNOWN", "GROUPS", "DESCRIPTION"), rows)


def _left(expiration: str) -> str:
    if not expiration:
        return "<forever>"
    try:
        left = times.seconds(expiration) - time.time()
    except ValueError:
        return "<invalid>"
    return times.human(left) if left > 0 else "<over>"


async def _delete(client: CommandClient, options: argparse.Namespace) -> str:
    from twisted_exec.api.kinds import SECRETS

    for text in options.id:
        token_id = text.partition(".")[0]
        if len(token_id) != 6 or not set(token_id) <= set(_MARKS):
            # The value is not printed, as it may be secret.
            raise InputError(
                "ID: six small letters and digits are expected, as twisted-exec token list shows them"
            )
        await client.delete(SECRETS.resource, f"{NAME_PREFIX}{token_id}", NAMESPACE)
        sys.stdout.write(f"token {token_id} deleted\n")
    return ""
