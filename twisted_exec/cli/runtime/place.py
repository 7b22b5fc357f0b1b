"""
Options of ``twisted-exec iri`` that name a machine runtime, and a client of the runtime that they name.
"""

from __future__ import annotations

import argparse
import getpass
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from twisted_exec.cli.times import duration
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.revisions import IRONCORE, REVISIONS, revision
from twisted_exec.iri.target import MutualTLS, TargetError, target_text
from twisted_exec.streaming.interfaces import UID_HEADER, USER_HEADER
from twisted_exec.tls.unix import uid_of

ENVIRONMENT: Mapping[str, str] = {
    "IRI_MACHINE_RUNTIME_ENDPOINT": "ironcore",
    "ORI_MACHINE_RUNTIME_ENDPOINT": "onmetal",
}
"""Environment variables with a gRPC target, in order, and the revision that each implies."""

SOCKETS: Mapping[str, str] = {
    "/var/run/iri-machinebroker.sock": "ironcore",
    "/var/run/iri-machineprovider.sock": "ironcore",
    "/var/run/ori-machinebroker.sock": "onmetal",
    "/var/run/ori-virtd.sock": "onmetal",
    "/var/run/iri-virtd.sock": "spheric",
}
"""Sockets of known programs, in order, and the revision that each implies."""


@dataclass(frozen=True)
class RuntimePlace:
    """Address and revision of a runtime."""

    target: str
    revision: str


class NoRuntimeError(ValueError):
    """No runtime was given or found; the message is for the user."""


def _revision(name: str) -> str:
    try:
        return revision(name).name
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_runtime_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command's parser."""
    group = parser.add_argument_group("machine runtime")
    group.add_argument(
        "--address",
        type=_address,
        metavar="TARGET",
        help="the runtime: unix:///PATH or dns:///HOST:PORT (default: "
        "$IRI_MACHINE_RUNTIME_ENDPOINT, $ORI_MACHINE_RUNTIME_ENDPOINT, or the first well-known "
        "socket that exists)",
    )
    group.add_argument(
        "--revision",
        type=_revision,
        choices=REVISIONS,
        metavar="NAME",
        help=f"the runtime's gRPC API: {', '.join(REVISIONS)} (default: that of the variable or "
        "well-known socket, else ironcore)",
    )
    group.add_argument("--ca-file", metavar="F", help="the CA of the runtime, for TCP and https")
    group.add_argument("--cert-file", metavar="F", help="your client certificate, for TCP")
    group.add_argument("--key-file", metavar="F", help="the private key of that certificate")
    group.add_argument(
        "--runtime-uid",
        metavar="UID",
        type=_user,
        action="append",
        default=[],
        help="a user, by number or name, whose UNIX sockets are trusted besides root's and your "
        "own; may be repeated",
    )
    group.add_argument(
        "--request-timeout",
        metavar="TIME",
        type=duration,
        help="the time limit of each answer, such as 5s (default: that of the method)",
    )


def _address(text: str) -> str:
    try:
        return target_text(text)
    except TargetError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def _user(text: str) -> int:
    try:
        return uid_of(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def place(
    options: argparse.Namespace,
    environment: Mapping[str, str] = os.environ,
    sockets: Mapping[str, str] = SOCKETS,
) -> RuntimePlace:
    """
    Return the selected runtime: the option's, the environment's, or a well-known socket.

    :raises NoRuntimeError: there is none.
    """
    target, implied = options.address or "", IRONCORE.name
    if not target:
        target, implied = _default_target(environment, sockets)
    return RuntimePlace(target, options.revision or implied)


def _default_target(environment: Mapping[str, str], sockets: Mapping[str, str]) -> tuple[str, str]:
    for variable, implied in ENVIRONMENT.items():
        if environment.get(variable):
            return environment[variable], implied
    for path, implied in sockets.items():
        if os.path.exists(path):
            return f"unix://{path}", implied
    raise NoRuntimeError(
        f"which machine runtime? Give --address, or set {next(iter(ENVIRONMENT))}; "
        "no well-known socket exists on this host"
    )


def connect(options: argparse.Namespace, where: RuntimePlace, reactor: Any) -> IRIClient:
    """
    Return a client of the selected runtime.

    :raises TargetError: its address is unusable, or a file for TLS is missing.
    """
    files = (options.ca_file, options.cert_file, options.key_file)
    if any(files[1:]) and not all(files):
        raise TargetError("--ca-file, --cert-file and --key-file go together")
    return IRIClient(
        where.target,
        reactor,
        tls=MutualTLS(*files) if all(files) else None,
        trusted_uids=options.runtime_uid,
        revision=where.revision,
        timeout_seconds=options.request_timeout,
    )


def explain_refusal(refusal: Any, client: IRIClient) -> str:
    """Return the message for an error, which may name the runtime's address."""
    if client.trouble:
        return f"{client.target}: {client.trouble}"
    message = str(refusal.message).replace('machines "', 'machine "')
    if refusal.retry_after_seconds:
        return f"{message}; try again in {refusal.retry_after_seconds} s"
    return message


def add_user_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--as-user",
        metavar="NAME",
        help="the user in the runtime's audit records (default: the user who runs this command)",
    )


def login() -> str:
    """Return the name of the local user."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user that has no name on this host
        return f"uid-{os.getuid()}"


def headers_for(login: str, machine_uid: str = "") -> list[tuple[bytes, bytes]]:
    """Return the headers of a request with a token."""
    headers = [(USER_HEADER, quote(login, safe="").encode("ascii"))]
    if machine_uid:
        headers.append((UID_HEADER, quote(machine_uid, safe="").encode("ascii")))
    return headers
