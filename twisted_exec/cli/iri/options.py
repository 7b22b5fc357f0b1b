"""
Options for the machine runtime and its revision.

Without ``--address`` the runtime is found as by the command lines of ironcore and onmetal: by
environment variables, then by the sockets of known programs.  Both imply a revision, which
``--revision`` overrides.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from twisted_exec.cli.cluster_options import duration
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
"""Sockets of known programs, in order, likewise."""

REVISIONS = ("ironcore", "ironcore-0.2", "onmetal", "onmetal-0.1", "spheric")
"""Copied from :mod:`twisted_exec.iri.revisions.registry`, which is slow to import."""


@dataclass(frozen=True)
class Place:
    """Address and revision of a runtime."""

    target: str
    revision: str


class NoRuntimeError(ValueError):
    """No runtime was given or found; the message is for the user."""


def add_runtime_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command's parser."""
    group = parser.add_argument_group("machine runtime")
    group.add_argument(
        "--address",
        metavar="TARGET",
        help="the runtime: unix:///PATH or dns:///HOST:PORT (default: "
        "$IRI_MACHINE_RUNTIME_ENDPOINT, $ORI_MACHINE_RUNTIME_ENDPOINT, or the first well-known "
        "socket that exists)",
    )
    group.add_argument(
        "--revision",
        choices=REVISIONS,
        metavar="NAME",
        help=f"the runtime's gRPC API: {', '.join(REVISIONS)} (default: that of the well-known "
        "socket, else ironcore)",
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


def _user(text: str) -> int:
    try:
        return uid_of(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def place(
    options: argparse.Namespace,
    environment: Mapping[str, str] = os.environ,
    sockets: Mapping[str, str] = SOCKETS,
) -> Place:
    """
    Return the selected runtime.

    :raises NoRuntimeError: there is none.
    """
    target, hint = options.address or "", REVISIONS[0]
    if not target:
        target, hint = _found(environment, sockets)
    return Place(target, options.revision or hint)


def _found(environment: Mapping[str, str], sockets: Mapping[str, str]) -> tuple[str, str]:
    for variable, revision in ENVIRONMENT.items():
        if environment.get(variable):
            return environment[variable], revision
    for path, revision in sockets.items():
        if os.path.exists(path):
            return f"unix://{path}", revision
    names: Sequence[str] = list(ENVIRONMENT)
    raise NoRuntimeError(
        f"which machine runtime? Give --address, or set {names[0]}; "
        "no well-known socket exists on this host"
    )
