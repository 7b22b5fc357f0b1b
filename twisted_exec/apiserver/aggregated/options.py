"""
Options of an aggregated server, named as in Kubernetes' own aggregated servers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from twisted.python.usage import UsageError

from twisted_exec.apiserver.aggregated.control_plane import Aggregated
from twisted_exec.apiserver.aggregated.trust import Overrides, is_header_name
from twisted_exec.apiserver.identity.options import IdentityOptions
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.kubeconfig.reloading import ReloadingConfig
from twisted_exec.program.options import BrowserOptions

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

    optFlags = [
        [
            "aggregated",
            None,
            "Serve behind another cluster's API server, its host, by APIService: the host "
            "authenticates and authorizes, and its namespaces and Events are used.",
        ],
    ]
    optParameters = [
        [
            "kubeconfig",
            None,
            None,
            "How the host is reached; default: $KUBECONFIG, or the Pod's service account.",
        ],
        ["context", None, None, "Instead of the kubeconfig's current context."],
        *(
            [
                name,
                None,
                None,
                f"{description}, separated by commas; default: as the host's ConfigMap says.",
                _words if name == _NAMES else _headers,
            ]
            for name, description in _HEADERS.items()
        ),
    ]


def check(options: Mapping[str, Any]) -> None:
    """
    :raises UsageError: an option applies only to standalone, or only to aggregated servers.
    """
    if not options["aggregated"]:
        for name in ("kubeconfig", "context", *_HEADERS):
            if options[name] is not None:
                raise UsageError(f"--{name} needs --aggregated: there is no host")
        return
    for name, default, why in (*_known(), *((name, None, why) for name, why in _REFUSED.items())):
        if options[name] and options[name] != default:
            raise UsageError(f"--{name} cannot go with --aggregated: {why}")


def _known() -> Iterator[tuple[str, Any, str]]:
    """The identity options of a standalone server, with their defaults."""
    for each in IdentityOptions.__mro__:
        if issubclass(each, BrowserOptions) and each is not BrowserOptions:
            yield from (
                (name, parameter[1], _HOSTS)
                for name, *parameter in each.__dict__.get("optParameters", ())
            )
            yield from ((name, 0, _HOSTS) for name, *_ in each.__dict__.get("optFlags", ()))


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

    return Aggregated(host, Overrides(*(options[name] or () for name in _HEADERS)))
