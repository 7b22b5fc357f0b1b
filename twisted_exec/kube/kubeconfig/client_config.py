"""
The configuration of a client: one API server and one identity.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from twisted_exec.tls.files import regular

MAX_FILE_BYTES = 4 << 20

NEVER, IF_AVAILABLE, ALWAYS = "Never", "IfAvailable", "Always"
"""Whether a credential plugin may interact with the user at the terminal."""

_DESCRIPTORS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""Beginnings of paths that a shell makes of ``<(command)``: somebody writes to such a pipe."""


class KubeConfigError(Exception):
    """
    A kubeconfig cannot be used; the message is one line that names the source.

    :param remedy: the end of the message; empty if users get a general one.
    :ivar reason: the message without the remedy.
    """

    def __init__(self, reason: str, remedy: str = "") -> None:
        # Names come from the file and may contain newlines and terminal control characters.
        self.reason = "".join(mark if mark.isprintable() else " " for mark in reason)
        self.remedy = remedy
        super().__init__("; ".join(filter(None, (self.reason, remedy))))


@dataclass(frozen=True)
class Material:
    """
    PEM, either ``data`` or the content of the file ``path``.

    :param origin: of ``data``, for messages; may be empty.
    """

    data: bytes = field(default=b"", repr=False)
    path: str = ""
    origin: str = field(default="", compare=False)

    def __bool__(self) -> bool:
        return bool(self.data or self.path)

    def read(self) -> bytes:
        """
        Return the current PEM.

        :raises KubeConfigError: the file cannot be read.
        """
        if self.data or not self.path:
            return self.data
        return read_file(self.path)

    def stamp(self) -> tuple[int, int, int]:
        """Return a value that changes with the file; all zeros without one."""
        if self.data or not self.path:
            return (0, 0, 0)
        try:
            stats = os.stat(self.path)
        except OSError:
            return (0, 0, 0)
        return (stats.st_ino, stats.st_mtime_ns, stats.st_size)


@dataclass(frozen=True)
class ImpersonatedUser:
    """The user to impersonate; none if ``user`` is empty."""

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
    A credential plugin (``exec`` of a user).

    :param env: added to this process's environment.
    :param interactive_mode: :data:`NEVER`, :data:`IF_AVAILABLE` or :data:`ALWAYS`.
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

    :param server: URL, such as ``https://host:port``, with an optional path prefix.
    :param ca: CA of the server's certificate; empty for the system's roots.
    :param token_file: takes precedence over ``token`` while it can be used.
    :param proxy_url: ``http``, ``https`` or ``socks5``, with user and password if needed.
    :param expires: end of a plugin's credential, if known, in seconds since the epoch.
    :param plugin: used only if there are no other credentials.
    :param source: name for messages: the files and the context.
    :param credentials_source: for messages: where the credentials come from.
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
    impersonate: ImpersonatedUser = ImpersonatedUser()
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    proxy_url: str = field(default="", repr=False)
    source: str = ""
    credentials_source: str = field(default="", compare=False)
    expires: float | None = field(default=None, compare=False)

    @property
    def url(self) -> SplitResult:
        return urlsplit(self.server)

    @property
    def has_credentials(self) -> bool:
        """True if there are credentials, perhaps those of a plugin."""
        return self._has_own or self.plugin is not None

    @property
    def kind_of_credentials(self) -> str:
        """The kind for messages, such as ``bearer token``; may be empty."""
        if self.needs_plugin:
            assert self.plugin is not None
            return f"credential of the plugin {self.plugin.command}"
        if self.token or self.token_file:
            return "bearer token"
        if self.username:
            return "user name and password"
        return "client certificate" if self.certificate else ""

    @property
    def in_the_clear(self) -> bool:
        """
        True if requests cross a network without TLS.

        A loopback address behind a proxy on another host is that host's own.
        """
        ways = [self.url, *([urlsplit(self.proxy_url)] if self.proxy_url else [])]
        return self.url.scheme == "http" and not all(map(is_loopback, ways))

    @property
    def needs_plugin(self) -> bool:
        """True if the plugin has to run because there are no other credentials."""
        return self.plugin is not None and not self._has_own

    @property
    def _has_own(self) -> bool:
        return bool(self.token or self.token_file or self.username or self.certificate)


def read_file(path: str) -> bytes:
    """
    Return the content of a small regular file.

    :raises KubeConfigError: it cannot be read, is not a regular file, or is too large.
    """
    opener = None if path.startswith(_DESCRIPTORS) else regular
    try:
        with open(path, "rb", opener=opener) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise KubeConfigError(f"{path}: {error.strerror or error}") from None
    except ValueError:
        raise KubeConfigError(f"{path}: not a path") from None
    if len(content) > MAX_FILE_BYTES:
        raise KubeConfigError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB")
    return content


def is_loopback(url: SplitResult) -> bool:
    """Return whether the URL's host is ``localhost`` or a loopback address."""
    host = url.hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
