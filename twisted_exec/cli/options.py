"""Options that commands share: the API server, the credentials, and the Space."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from twisted_exec.api.spaces import EXTERNAL, IN_CLUSTER
from twisted_exec.cli.times import duration

if TYPE_CHECKING:
    from twisted_exec.kube.kubeconfig.client_config import ClientConfig
    from twisted_exec.kube.kubeconfig.loader import Overrides
    from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig

_TEXTS = (
    ("--context", "C", "a context of the kubeconfig, instead of the current one"),
    ("--cluster", "NAME", "a cluster of the kubeconfig, instead of the context's"),
    ("--user", "NAME", "a user of the kubeconfig, instead of the context's"),
    ("--certificate-authority", "F", "the CA of the API server (PEM)"),
    ("--tls-server-name", "NAME", "the name that the API server's certificate must have"),
    ("--client-certificate", "F", "your client certificate (PEM)"),
    ("--client-key", "F", "the private key of that certificate"),
    ("--token", "TOKEN", "a bearer token"),
    ("--username", "NAME", "the user name for basic authentication"),
    ("--password", "PASSWORD", "the password for basic authentication"),
    ("--as-uid", "UID", "the UID of the user to impersonate"),
)

_WITH_SPACE = {
    "provider": "--provider",
    "space_credentials": "--space-credentials",
    "send_token_to": "--send-token-to",
    "in_cluster": "--in-cluster",
}


def add_cluster_options(parser: argparse.ArgumentParser, limit: str = "30s") -> None:
    """
    Add the options to a command's parser.

    :param limit: of requests, by default; for the help.
    """
    group = parser.add_argument_group("API server, as kubectl's options of these names")
    group.add_argument("--kubeconfig", metavar="F", help="the kubeconfig, instead of $KUBECONFIG")
    for name, metavar, text in _TEXTS:
        group.add_argument(name, metavar=metavar, help=text)
    group.add_argument("-s", "--server", metavar="URL", help="the URL of the API server")
    group.add_argument(
        "--insecure-skip-tls-verify",
        action="store_true",
        help="do not verify the API server's certificate: any server is accepted",
    )
    group.add_argument(
        "--as", dest="impersonate", metavar="USER", help="a user to impersonate, with permission"
    )
    group.add_argument(
        "--as-group",
        metavar="GROUP",
        action="append",
        help="a group to impersonate; may be repeated",
    )
    group.add_argument(
        "--request-timeout",
        metavar="TIME",
        type=duration,
        help="the time limit to connect, and again for the answer, such as 5s or 1m; 0 means "
        f"{limit}",
    )


def config_of(options: argparse.Namespace) -> ClientConfig:
    """
    Return the configuration that the options select.

    :raises KubeConfigError: it cannot be used.
    """
    from twisted_exec.kube.kubeconfig.loader import load

    return load(options.kubeconfig, options.context, overrides=overrides_of(options))


def chosen_context(options: argparse.Namespace) -> str:
    """Return the name of the context that the options select; empty if there is none."""
    from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
    from twisted_exec.kube.kubeconfig.loader import context_name

    try:
        return context_name(options.kubeconfig, options.context)
    except KubeConfigError:
        return ""


def follow_config(options: argparse.Namespace, context: str) -> ReloadingConfig:
    """
    Return the configuration that the options select, kept current.

    :param context: name of the context, which stays the same: ``kubectl config use-context`` must
        not take an open page, or an agent, elsewhere.
    :raises KubeConfigError: it cannot be used.
    """
    from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig

    return ReloadingConfig(options.kubeconfig, context or None, overrides=overrides_of(options))


def overrides_of(options: argparse.Namespace) -> Overrides:
    """Return the values that override the kubeconfig."""
    from twisted_exec.kube.kubeconfig.client_config import ImpersonatedUser
    from twisted_exec.kube.kubeconfig.loader import Overrides

    return Overrides(
        cluster=options.cluster,
        user=options.user,
        namespace=options.namespace,
        server=options.server,
        certificate_authority=options.certificate_authority,
        insecure_skip_tls_verify=options.insecure_skip_tls_verify,
        tls_server_name=options.tls_server_name,
        client_certificate=options.client_certificate,
        client_key=options.client_key,
        token=options.token,
        username=options.username,
        password=options.password,
        impersonate=ImpersonatedUser(
            options.impersonate or "", options.as_uid or "", tuple(options.as_group or ())
        ),
    )


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
        raise argparse.ArgumentTypeError(f'"{text}" is no https:// URL')
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
    """Return an option that was given but needs ``--space``, or empty."""
    given_options = [option for key, option in _WITH_SPACE.items() if getattr(options, key)]
    return given_options[0] if given_options else ""


def viewpoint_of(options: argparse.Namespace) -> str:
    """Return the selected viewpoint."""
    return IN_CLUSTER if options.in_cluster else EXTERNAL
