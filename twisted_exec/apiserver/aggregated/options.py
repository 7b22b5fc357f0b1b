"""
Options of an aggregated server, named as those of Kubernetes' aggregated servers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twisted.python.usage import UsageError

from twisted_exec.apiserver.aggregated.control_plane import Aggregated
from twisted_exec.apiserver.aggregated.trust import RequestHeaderOverrides, is_header_name
from twisted_exec.apiserver.identity.oidc_options import is_given
from twisted_exec.apiserver.identity.options import LIST_OPTIONS, IdentityOptions
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig
from twisted_exec.program.options.declaration import ProgramOption
from twisted_exec.program.options.sessions import BrowserOptions

_AGENT = "exec-apiserver"
_NAMES = "requestheader-allowed-names"
_HEADERS = {
    _NAMES: "Common names of the host's proxies",
    "requestheader-username-headers": "Headers with the user's name",
    "requestheader-group-headers": "Headers with the user's groups",
    "requestheader-uid-headers": "Headers with the user's UID",
    "requestheader-extra-headers-prefix": "Prefixes of headers with the user's extra fields",
}
_HOSTS = "behind a host, that says who is known, and its ConfigMap by which CA"
_REFUSED = {
    "client-ca-file": _HOSTS,
    **dict.fromkeys(LIST_OPTIONS, _HOSTS),
    "cluster-signing-cert-file": "behind a host, that signs certificates",
    "cluster-signing-key-file": "behind a host, that signs certificates",
    "cluster-signing-kube-apiserver-client-cert-file": "behind a host, that signs certificates",
    "cluster-signing-kube-apiserver-client-key-file": "behind a host, that signs certificates",
    "pods-view": "behind a host, Pods are the host's",
    "kubelet-client-certificate": "behind a host, Pods are the host's",
    "kubelet-client-key": "behind a host, Pods are the host's",
    "kubelet-certificate-authority": "behind a host, Pods are the host's",
}


def _words(text: str) -> tuple[str, ...]:
    words = tuple(word for each in text.split(",") if (word := each.strip()))
    if not words:
        raise ValueError("give one or more, joined by commas")
    return words


def _headers(text: str) -> tuple[str, ...]:
    words = _words(text)
    for word in words:
        if not is_header_name(word):
            raise ValueError(f"no header can be called {word!r}")
    return words


class AggregatedOptions(IdentityOptions):
    """Options of a server that may be behind a host."""

    group = "Behind another API server"

    more: Sequence[ProgramOption] = (
        ProgramOption(
            "kubeconfig",
            "How the host is reached; default: $KUBECONFIG, or the Pod's service account.",
            is_path=True,
        ),
        ProgramOption("context", "Instead of the kubeconfig's current context."),
        *(
            ProgramOption(
                name,
                f"{description}, separated by commas; default: as the host's ConfigMap says.",
                _words if name == _NAMES else _headers,
            )
            for name, description in _HEADERS.items()
        ),
        ProgramOption(
            "aggregated",
            "Serve behind another cluster's API server, its host, by APIService: the host "
            "authenticates and authorizes, and its namespaces and Events are used.",
            default=False,
        ),
    )


def check_aggregated(options: Mapping[str, Any]) -> None:
    """
    Check that the options suit a standalone or an aggregated server.

    :raises UsageError: an option applies only to standalone, or only to aggregated servers.
    """
    if not options["aggregated"]:
        for name in ("kubeconfig", "context", *_HEADERS):
            if options[name] is not None:
                raise UsageError(f"--{name} needs --aggregated: there is no host")
        return
    refused = {**dict.fromkeys(_identity_options(), _HOSTS), **_REFUSED}
    for name, why in refused.items():
        if is_given(options, name, IdentityOptions.all_declared()):
            raise UsageError(f"--{name} cannot go with --aggregated: {why}")


def _identity_options() -> list[str]:
    shared = [each.name for each in BrowserOptions.all_declared()]
    return [each.name for each in IdentityOptions.all_declared() if each.name not in shared]


def aggregated(options: Mapping[str, Any]) -> Aggregated | None:
    """
    Settings by :class:`AggregatedOptions`; ``None`` for a standalone server.

    :raises KubeConfigError: there is no usable configuration for the host.
    """
    if not options["aggregated"]:
        return None
    config = ReloadingConfig(options["kubeconfig"], options["context"])

    def host(reactor: Any) -> KubeClient:
        return KubeClient(config.current(), reactor, renew=config.current, agent=_AGENT)

    return Aggregated(host, RequestHeaderOverrides(*(options[name] or () for name in _HEADERS)))
