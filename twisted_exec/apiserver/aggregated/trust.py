"""
The host's authentication ConfigMap, parsed: trusted CAs, proxies and headers.

Every kube-apiserver publishes in ``kube-system/extension-apiserver-authentication`` the CA of
users, the CA and names of its own proxies, and the headers in which these name the user.  Source:
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
    """The host's settings cannot be used; one line, with the remedy."""


@dataclass(frozen=True)
class Overrides:
    """Settings that take precedence over the ConfigMap (``--requestheader-*``), where not empty."""

    names: tuple[str, ...] = ()
    user: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    uid: tuple[str, ...] = ()
    extra_prefix: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trust:
    """
    Trusted CAs and proxies.

    :param client_ca: PEM bundle of client CAs; empty disables client certificates.
    :param proxy_ca: PEM bundle of the CAs of proxies.
    :param names: common names of proxies; empty allows every certificate of ``proxy_ca``, which
        then must not sign users.
    :param warning: about a valid but risky configuration; otherwise empty.
    """

    client_ca: bytes
    proxy_ca: bytes
    names: tuple[str, ...]
    headers: HeaderNames = field(default_factory=HeaderNames)
    warning: str = ""

    @property
    def authorities(self) -> bytes:
        """All CAs of acceptable client certificates, PEM."""
        return self.client_ca + self.proxy_ca


def trust_of(configmap: Mapping[str, Any], overrides: Overrides | None = None) -> Trust:
    """
    :raises TrustError: not as written by a kube-apiserver, or every user could impersonate
        everyone.
    """
    settings = overrides or Overrides()
    data = configmap.get("data")
    data = data if isinstance(data, Mapping) else {}
    clients = _authorities(data, "client-ca-file")
    proxies = _authorities(data, "requestheader-client-ca-file")
    if not proxies:
        raise TrustError(
            f"{_TOLD} has no requestheader-client-ca-file: start kube-apiserver with "
            "--requestheader-client-ca-file and --proxy-client-cert-file"
        )
    names = settings.names or _names(data, "requestheader-allowed-names")
    return Trust(
        pem.pem_of(clients),
        pem.pem_of(proxies),
        names,
        HeaderNames(
            settings.user or _headers(data, "requestheader-username-headers", needed=True),
            settings.group or _headers(data, "requestheader-group-headers"),
            settings.uid or _headers(data, "requestheader-uid-headers"),
            settings.extra_prefix or _headers(data, "requestheader-extra-headers-prefix"),
        ),
        _check_apart(clients, proxies, names),
    )


def is_header_name(text: str) -> bool:
    """Return whether the text is a valid header name, or prefix of one: RFC 9110 section 5.1."""
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
    """Parse a JSON list of words."""
    try:
        words = json.loads(data.get(key) or "[]")
    except (ValueError, TypeError, RecursionError):
        words = None
    if not isinstance(words, list) or not all(isinstance(each, str) and each for each in words):
        raise TrustError(f"{key} of {_TOLD} is not a JSON list of words")
    if len(words) > _MOST_NAMES:
        raise TrustError(f"{key} of {_TOLD} has more than {_MOST_NAMES} words")
    return tuple(words)


def _headers(data: Mapping[str, Any], key: str, *, needed: bool = False) -> tuple[str, ...]:
    words = _names(data, key)
    for each in words:
        if not is_header_name(each):
            raise TrustError(f"{key} of {_TOLD}: no header can be called {each[:64]!r}")
    if needed and not words:
        raise TrustError(f"{_TOLD} has no {key}: requests of proxies would name no user")
    return words


def _check_apart(
    clients: list[x509.Certificate], proxies: list[x509.Certificate], names: tuple[str, ...]
) -> str:
    """
    Return a warning if one CA signs users and proxies and only names tell them apart.

    :raises TrustError: no names tell them apart either.
    """
    pairs = [(proxy, client) for proxy in proxies for client in clients]
    covered = any(_covers(*pair) for pair in pairs)
    # An intermediate CA below that of users signs users as well, whatever its purpose.
    if not names and (covered or any(_covers(client, proxy) for proxy, client in pairs)):
        raise TrustError(
            f"requestheader-allowed-names of {_TOLD} is empty, and requestheader-client-ca-file "
            "also signs users: every user could speak for everyone; start kube-apiserver with "
            "--requestheader-allowed-names, and best with a CA of its own for proxies"
        )
    if not covered:
        return ""
    return (
        f"by {_TOLD} one CA signs users and proxies: a user with a certificate for "
        f"{' or '.join(names)} can impersonate everyone; give proxies a CA of their own"
    )


def _covers(proxy: x509.Certificate, client: x509.Certificate) -> bool:
    """Return whether ``proxy`` also verifies certificates signed by ``client``."""
    return proxy.public_key() == client.public_key() or pem.has_issued(proxy, client)
