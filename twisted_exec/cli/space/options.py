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
    group = parser.add_argument_group("Spaces, which the API server has")
    group.add_argument(
        "--space",
        metavar="NAME",
        default="",
        help="the machine is in this Space: on its API server",
    )
    add_provider(group)
    add_viewpoint(group)
    group.add_argument(
        "--space-credentials",
        action="store_true",
        help="as the Space's own user, by its Secret, instead of as oneself; its server's audit says so",
    )
    group.add_argument(
        "--send-token-to",
        metavar="URL",
        type=_server,
        help="the Space's server, which is known, and may have our token or password: without, only a "
        "client certificate is shown to a server that only a Space names",
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
        help="whose Space: a SpaceProviderDesc, or the namespace of an imported one; without, the "
        "provider called default if that has it, else the one that has",
    )


def add_viewpoint(parser: argparse._ActionsContainer) -> None:
    """Add the option for the viewpoint."""
    parser.add_argument(
        "--in-cluster",
        action="store_true",
        help="as it is reached from within the cluster that has it, instead of from outside",
    )


def requires_space(options: argparse.Namespace) -> str:
    """Return an option that was given but needs ``--space``; empty if there is none."""
    given_options = [option for key, option in _WITH_SPACE.items() if getattr(options, key)]
    return given_options[0] if given_options else ""


def viewpoint_of(options: argparse.Namespace) -> str:
    """Return the selected viewpoint."""
    return IN_CLUSTER if options.in_cluster else EXTERNAL
