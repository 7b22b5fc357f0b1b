"""
What a client must know of one API server: where it is, and who we are to it.

:mod:`.kubeconfig` reads it from files; whoever has no file makes it by hand.
Everything here is frozen and compares by value, so that a change is noticed and
what was found out for one configuration is found again.

When credentials end, as they say themselves.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import os
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from cryptography import x509

MAX_FILE_BYTES = 4 << 20

NEVER, IF_AVAILABLE, ALWAYS = "Never", "IfAvailable", "Always"
"""Whether a credential plugin may talk to the person at the terminal."""


class KubeConfigError(Exception):
    """A kubeconfig cannot be used; the message is one line that names the file and the entry."""

    def __init__(self, message: str) -> None:
        # Names come from the file: they may hold line ends and terminal controls.
        super().__init__("".join(mark if mark.isprintable() else " " for mark in message))


@dataclass(frozen=True)
class Material:
    """PEM that is given as ``data`` or lies in the file ``path``; of both, ``data`` wins."""

    data: bytes = field(default=b"", repr=False)
    path: str = ""

    def __bool__(self) -> bool:
        return bool(self.data or self.path)

    def read(self) -> bytes:
        """
        The PEM as it is now: files change when certificates are renewed.

        :raises KubeConfigError: the file cannot be read.
        """
        if self.data or not self.path:
            return self.data
        return read_file(self.path)

    def stamp(self) -> tuple[int, int, int]:
        """Changes when the file does; all zeros without one."""
        if self.data or not self.path:
            return (0, 0, 0)
        try:
            stats = os.stat(self.path)
        except OSError:
            return (0, 0, 0)
        return (stats.st_ino, stats.st_mtime_ns, stats.st_size)


@dataclass(frozen=True)
class Impersonation:
    """Whom to act as; empty without ``user``."""

    user: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Keys and values of ``as-user-extra``."""

    def __bool__(self) -> bool:
        return bool(self.user)


@dataclass(frozen=True)
class ExecPlugin:
    """
    A program that knows who we are (``exec`` of a user).

    :param command: a path, or a name to look for in ``PATH``.
    :param env: added to this process's environment.
    :param api_version: of the ``ExecCredential`` that it answers.
    :param interactive_mode: :data:`NEVER`, :data:`IF_AVAILABLE` or :data:`ALWAYS`.
    :param provide_cluster_info: it is told which server this is for.
    :param cluster_config: JSON that the kubeconfig keeps for it at the cluster, or empty.
    :param install_hint: for people who do not have it.
    """

    command: str
    api_version: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    interactive_mode: str = IF_AVAILABLE
    provide_cluster_info: bool = False
    cluster_config: str = field(default="", repr=False)
    install_hint: str = ""


@dataclass(frozen=True)
class ClientConfig:
    """
    One API server and one identity.

    :param server: URL, ``https://host:port`` with an optional path prefix.
    :param ca: who signs the server's certificate; empty means the system's roots.
    :param token_file: wins over ``token`` for as long as it can be read.
    :param plugin: asked who we are, unless something above says it.
    :param proxy_url: ``http``, ``https`` or ``socks5``, with user and password if need be.
    :param source: what to name in messages: the files and the context.
    """

    server: str
    namespace: str = "default"
    ca: Material = Material()
    certificate: Material = Material()
    key: Material = Material()
    token: str = field(default="", repr=False)
    token_file: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    plugin: ExecPlugin | None = None
    impersonate: Impersonation = Impersonation()
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    proxy_url: str = field(default="", repr=False)
    source: str = ""

    @property
    def url(self) -> SplitResult:
        """The server's URL in parts."""
        return urlsplit(self.server)

    @property
    def has_credentials(self) -> bool:
        """Something secret would travel with a request."""
        return self._has_own or self.plugin is not None

    @property
    def in_the_clear(self) -> bool:
        """
        Others could read what travels: there is no TLS, and not all of the way is on this machine.

        Behind a proxy, a loopback address is the proxy's own.
        """
        ways = [self.url, *([urlsplit(self.proxy_url)] if self.proxy_url else [])]
        return self.url.scheme == "http" and not all(map(is_loopback, ways))

    @property
    def needs_plugin(self) -> bool:
        """It is the plugin's to say who we are: no other credential goes before it."""
        return self.plugin is not None and not self._has_own

    @property
    def _has_own(self) -> bool:
        return bool(self.token or self.token_file or self.username or self.certificate)


def read_file(path: str) -> bytes:
    """
    A small file whole.

    :raises KubeConfigError: it cannot be read, or is larger than 4 MiB.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise KubeConfigError(f"{path}: {error.strerror or error}") from None
    except ValueError:
        raise KubeConfigError(f"{path}: not a path") from None
    if len(content) > MAX_FILE_BYTES:
        raise KubeConfigError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB")
    return content


def is_loopback(url: SplitResult) -> bool:
    """The URL's host is this machine, as ``localhost`` or by number."""
    host = url.hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_LONGEST_TOKEN = 64 << 10


def expiry_of(config: ClientConfig) -> float | None:
    """
    When the first of its credentials ends, in seconds since the epoch, as far as they say so themselves.

    Nothing is believed because of it: whoever takes them decides.
    """
    ends = [end for end in (_token_end(config.token), _certificate_end(config)) if end is not None]
    return min(ends, default=None)


def _token_end(token: str) -> float | None:
    parts = token.split(".")
    if len(parts) != 3 or len(token) > _LONGEST_TOKEN:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return None
    end = claims.get("exp") if isinstance(claims, dict) else None
    if isinstance(end, bool) or not isinstance(end, int | float) or not 0 < end < 1 << 40:
        return None
    return float(end)


def _certificate_end(config: ClientConfig) -> float | None:
    if not config.certificate.data:
        return None
    try:
        certificate = x509.load_pem_x509_certificate(config.certificate.data)
        return certificate.not_valid_after_utc.timestamp()
    except ValueError:
        return None
