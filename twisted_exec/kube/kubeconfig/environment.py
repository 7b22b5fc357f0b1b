"""
The parts of a configuration that the environment gives: the Pod of this process, and the proxy.

Sources: ``k8s.io/client-go/rest.InClusterConfig``, and for proxies
``golang.org/x/net/http/httpproxy``, which Go's HTTP client uses.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from twisted_exec.kube.kubeconfig.client_config import KubeConfigError, is_loopback
from twisted_exec.tls.files import regular

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where the kubelet mounts a pod's token, CA and namespace."""

_PROXY_SCHEMES = ("http", "https", "socks5")
_PORTS = {"https": 443, "http": 80}
_MAX_NAME_BYTES = 253


def in_cluster(environ: Mapping[str, str], directory: str) -> dict[str, Any] | None:
    """
    Return a kubeconfig for the Pod that this process runs in, or ``None``.

    It names the token's file instead of the token.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    token, ca = os.path.join(directory, "token"), os.path.join(directory, "ca.crt")
    if not host or not port or not os.path.isfile(token):
        return None
    cluster = {"server": f"https://{f'[{host}]' if ':' in host else host}:{port}"}
    if os.path.exists(ca):
        cluster["certificate-authority"] = ca
    context = {"cluster": "cluster", "user": "user", "namespace": _namespace(environ, directory)}
    return {
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "user", "user": {"tokenFile": token}}],
        "contexts": [{"name": "in-cluster", "context": context}],
        "current-context": "in-cluster",
    }


def _namespace(environ: Mapping[str, str], directory: str) -> str:
    if environ.get("POD_NAMESPACE"):
        return environ["POD_NAMESPACE"]
    try:
        path = os.path.join(directory, "namespace")
        with open(path, encoding="utf-8", opener=regular) as file:
            return file.read(_MAX_NAME_BYTES).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def proxy_for(url: SplitResult, environ: Mapping[str, str]) -> str:
    """
    Return the proxy for ``url`` by ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``, or an empty
    string.

    Loopback addresses do not use a proxy.

    :raises KubeConfigError: a variable is not the URL of a proxy.
    """
    name = f"{url.scheme}_proxy"
    proxy = (environ.get(name.upper()) or environ.get(name) or "").strip()
    if not proxy or is_loopback(url) or _is_excepted(url, environ):
        return ""
    return checked_proxy(
        proxy if "://" in proxy else f"http://{proxy}",
        lambda problem: KubeConfigError(f"{name.upper()} in the environment {problem}"),
    )


def checked_proxy(text: str, fail: Callable[[str], Exception]) -> str:
    """
    Check a proxy's URL and return it, or raise ``fail(problem)``; the problem does not quote the
    URL.
    """
    try:
        url = urlsplit(text)
        usable = url.scheme in _PROXY_SCHEMES and bool(url.hostname) and url.port != 0
    except ValueError:
        usable = False
    if not (usable and text.isascii() and text.isprintable() and " " not in text):
        raise fail("is not an http://, https:// or socks5:// URL of a host")
    return text


def _is_excepted(url: SplitResult, environ: Mapping[str, str]) -> bool:
    listed = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    return any(_matches(url, item.strip().lower()) for item in listed.split(","))


def _matches(url: SplitResult, pattern: str) -> bool:
    """Match ``*``, an address, a network, or a name with its subdomains, with an optional port."""
    host = (url.hostname or "").removesuffix(".")
    if pattern == "*":
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(pattern, strict=False)
    except ValueError:
        pass
    name, colon, port = pattern.rpartition(":")
    if colon and port.isdecimal():
        if int(port) != (url.port or _PORTS[url.scheme]):
            return False
        pattern = name
    bare = pattern.removeprefix("*").removeprefix(".").removeprefix("[").removesuffix("]")
    exact = bare == pattern or pattern.startswith("[")
    return bool(bare) and (host.endswith(f".{bare}") or (exact and host == bare))
