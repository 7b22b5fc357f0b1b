"""
Options for a Space: its name, its provider and the viewpoint.
"""

from __future__ import annotations

import argparse

from twisted_exec.api.spaces import EXTERNAL, IN_CLUSTER

_WITH_SPACE = {
    "provider": "--provider",
    "space_credentials": "--space-credentials",
    "send_token_to": "--send-token-to",
    "in_cluster": "--in-cluster",
}


def add_space_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a command's parser."""
    group = parser.add_argument_group("Spaces of the API server")
    group.add_argument(
        "--space",
        metavar="NAME",
        default="",
        help="the Space with the machine; the console is opened at the Space's API server",
    )
    add_provider(group)
    add_viewpoint(group)
    group.add_argument(
        "--space-credentials",
        action="store_true",
        help="log in as the Space's own user, with the credentials of its Secret, instead of as "
        "yourself; audit records at the Space name that user",
    )
    group.add_argument(
        "--send-token-to",
        metavar="URL",
        type=_server,
        help="the URL of a Space's server that may receive your token or password; without this "
        "option the server of a Space receives only a client certificate",
    )


def _server(text: str) -> str:
    from twisted_exec.kube.kubeconfig.loader import check_server

    check_server(text, argparse.ArgumentTypeError)
    if not text.startswith("https://"):
        raise argparse.ArgumentTypeError(f"{text!r} is no https:// URL")
    return text


def add_provider(parser: argparse._ActionsContainer) -> None:
    """Add the option for the Space's provider."""
    parser.add_argument(
        "--provider",
        metavar="P",
        default="",
        help="the provider of the Space: a SpaceProviderDesc, or the namespace of an imported one "
        "(default: the provider called default if it has the Space, else the only one that has it)",
    )


def add_viewpoint(parser: argparse._ActionsContainer) -> None:
    """Add the option for the viewpoint."""
    parser.add_argument(
        "--in-cluster",
        action="store_true",
        help="use the Space's address for clients inside the cluster, instead of the external one",
    )


def requires_space(options: argparse.Namespace) -> str:
    """Return an option that was given but needs ``--space``; empty if there is none."""
    given_options = [option for key, option in _WITH_SPACE.items() if getattr(options, key)]
    return given_options[0] if given_options else ""


def viewpoint_of(options: argparse.Namespace) -> str:
    """Return the selected viewpoint."""
    return IN_CLUSTER if options.in_cluster else EXTERNAL
