"""
Whom a host tells the servers behind it to believe: its ConfigMap, made sense of.

Every kube-apiserver writes into ``kube-system/extension-apiserver-authentication`` which CA signs
users, which CA and names its own proxies have, and what these call the headers in which they say
for whom they speak.  Source:
``k8s.io/apiserver/pkg/server/options/authentication_dynamic_request_header.go`` and
``pkg/controlplane/controller/clusterauthenticationtrust`` of Kubernetes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509

from twisted_exec.api.resource import Resource
from twisted_exec.auth.request_header import HeaderNames
from twisted_exec.tls import pem
from twisted_exec.tls.errors import TLSConfigError

CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"

_TOLD = f"the ConfigMap {NAMESPACE}/{NAME}"
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_MOST_NAMES = 256


class TrustError(Exception):
    """What a host says cannot be used; one line, with what would help."""


@dataclass(frozen=True)
class Overrides:
    """What goes before the ConfigMap, as kube's ``--requestheader-`` options; empty does not."""

    names: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    uid: tuple[str, ...] = ()
    extra_prefix: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trust:
    """
    Whom to believe.

    :param client_ca: whose certificates are users, PEM; empty: nobody's are.
    :param proxy_ca: whose certificates may speak for others, PEM.
    :param names: common names of these; none: whatever ``proxy_ca`` signed, which then signs
        nobody else.
    :param warning: what is allowed and unwise; empty when nothing is.
    """

    client_ca: bytes
    proxy_ca: bytes
    names: tuple[str, ...]
    headers: HeaderNames = field(default_factory=HeaderNames)
    warning: str = ""

    @property
    def authorities(self) -> bytes:
        """All CAs of which clients may show certificates, PEM."""
        return self.client_ca + self.proxy_ca


def trust_of(configmap: Mapping[str, Any], overrides: Overrides | None = None) -> Trust:
    """
    :raises TrustError: it is not what a kube-apiserver writes, or would let anybody speak for
        everyone.
    """
    given = overrides or Overrides()
    data = configmap.get("data")
    data = data if isinstance(data, Mapping) else {}
    clients = _authorities(data, "client-ca-file")
    proxies = _authorities(data, "requestheader-client-ca-file")
    if not proxies:
        raise TrustError(
            f"{_TOLD} has no requestheader-client-ca-file: start kube-apiserver with "
            "--requestheader-client-ca-file and --proxy-client-cert-file"
        )
    names = given.names or _names(data, "requestheader-allowed-names")
    return Trust(
        pem.pem_of(clients),
        pem.pem_of(proxies),
        names,
        HeaderNames(
            given.user or _headers(data, "requestheader-username-headers", needed=True),
            given.group or _headers(data, "requestheader-group-headers"),
            given.uid or _headers(data, "requestheader-uid-headers"),
            given.extra_prefix or _headers(data, "requestheader-extra-headers-prefix"),
        ),
        _check_apart(clients, proxies, names),
    )


def is_header_name(text: str) -> bool:
    """Whether a header can be called so, or its name begin so: RFC 9110 section 5.1."""
    return bool(_TOKEN.fullmatch(text))


def _authorities(data: Mapping[str, Any], key: str) -> list[x509.Certificate]:
    text = data.get(key) or ""
    if not text:
        return []
    try:
        return pem.certificates(str(text).encode("utf-8", "replace"), f"{key} of {_TOLD}")
    except TLSConfigError as error:
        raise TrustError(str(error)) from None


def _names(data: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of words, as JSON."""
    try:
        told = json.loads(data.get(key) or "[]")
    except (ValueError, TypeError, RecursionError):
        told = None
    if not isinstance(told, list) or not all(isinstance(each, str) and each for each in told):
        raise TrustError(f"{key} of {_TOLD} is not a JSON list of words")
    if len(told) > _MOST_NAMES:
        raise TrustError(f"{key} of {_TOLD} has more than {_MOST_NAMES} words")
    return tuple(told)


def _headers(data: Mapping[str, Any], key: str, *, needed: bool = False) -> tuple[str, ...]:
    told = _names(data, key)
    for each in told:
        if not is_header_name(each):
            raise TrustError(f"{key} of {_TOLD}: no header can be called {each[:64]!r}")
    if needed and not told:
        raise TrustError(f"{_TOLD} has no {key}: nobody could be told by its headers")
    return told


def _check_apart(
    clients: list[x509.Certificate], proxies: list[x509.Certificate], names: tuple[str, ...]
) -> str:
    """
    A warning, when a CA signs users as well as proxies and only names keep them apart.

    :raises TrustError: not even names do.
    """
    pairs = [(proxy, client) for proxy in proxies for client in clients]
    covered = any(_covers(*pair) for pair in pairs)
    # A CA below that of users signs users, too, whatever else it is for.
    if not names and (covered or any(_covers(client, proxy) for proxy, client in pairs)):
        raise TrustError(
            f"requestheader-allowed-names of {_TOLD} is empty, and requestheader-client-ca-file "
            "also signs users: every user could speak for everyone; start kube-apiserver with "
            "--requestheader-allowed-names, and best with a CA of its own for proxies"
        )
    if not covered:
        return ""
    return (
        f"by {_TOLD} one CA signs users and proxies: whoever it gives the name "
        f"{' or '.join(names)} speaks for everyone; give proxies a CA of their own"
    )


def _covers(proxy: x509.Certificate, client: x509.Certificate) -> bool:
    """Whether what ``client`` has signed is vouched for by ``proxy`` as well."""
    return proxy.public_key() == client.public_key() or pem.has_issued(proxy, client)
