"""
Headers of requests to one API server, from a configuration.

Token files are read for each request.  Credentials of plugins must be in the configuration, see
:mod:`twisted_exec.kube.kubeconfig.credentials`.
"""

from __future__ import annotations

import base64
import re
from urllib.parse import quote

from twisted_exec.kube.kubeconfig.client_config import (
    ClientConfig,
    ImpersonatedUser,
    KubeConfigError,
    read_file,
)

_TOKEN = re.compile(rb"[\x21-\x7e]+")


def host_header(config: ClientConfig) -> bytes:
    """Return the ``Host`` header (IPv6 addresses in brackets)."""
    return config.url.netloc.encode("ascii")


def identity_headers(config: ClientConfig) -> list[tuple[bytes, bytes]]:
    """
    Return the headers of authentication and impersonation.

    :raises KubeConfigError: as :func:`auth_headers`.
    """
    return [*auth_headers(config), *impersonation_headers(config.impersonate)]


def impersonation_headers(impersonation: ImpersonatedUser) -> list[tuple[bytes, bytes]]:
    """Return the ``Impersonate-`` headers."""
    if not impersonation:
        return []
    headers = [(b"Impersonate-User", impersonation.user.encode())]
    headers += [(b"Impersonate-Group", group.encode()) for group in impersonation.groups]
    if impersonation.uid:
        headers.append((b"Impersonate-Uid", impersonation.uid.encode()))
    for key, values in impersonation.extra:
        # Percent-encoded, and in lower case, because HTTP ignores the case of names (RFC 9110 5.1;
        # Kubernetes, "User impersonation").
        name = b"Impersonate-Extra-" + quote(key.lower(), safe="").encode("ascii")
        headers += [(name, value.encode()) for value in values]
    return headers


def auth_headers(config: ClientConfig) -> list[tuple[bytes, bytes]]:
    """
    Return the ``Authorization`` header, if there are credentials for it.

    :raises KubeConfigError: the token file cannot be read, or the token is not printable ASCII.
    """
    if config.token_file:
        try:
            return [(b"Authorization", b"Bearer " + _token(read_file(config.token_file), config))]
        except KubeConfigError:
            if not config.token:
                raise
    if config.token:
        return [(b"Authorization", b"Bearer " + _token(config.token.encode(), config))]
    if config.username:
        pair = f"{config.username}:{config.password}".encode()
        return [(b"Authorization", b"Basic " + base64.b64encode(pair))]
    return []


def _token(raw: bytes, config: ClientConfig) -> bytes:
    token = raw.strip()
    # Newlines would let a token file inject headers, so only printable ASCII is allowed.
    if not _TOKEN.fullmatch(token):
        where = config.token_file or config.source or config.server
        raise KubeConfigError(f"{where}: holds no token of printable ASCII characters")
    return token
