"""
Kubeconfig files: where an API server is, and who we are to it.

Merging follows ``k8s.io/client-go/tools/clientcmd``: of several files the
first that defines a name wins, ``current-context`` comes from the first that
sets it, and a relative path is relative to the file that holds it.  What is
not supported is refused when it would be used, never ignored: a client that
quietly drops a credential or a proxy reaches the wrong place as the wrong user.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

import yaml

MAX_FILE_BYTES = 4 << 20

_T = TypeVar("_T")

_UNSUPPORTED_USER = (
    "exec",
    "auth-provider",
    "as",
    "as-uid",
    "as-groups",
    "as-user-extra",
)
_UNSUPPORTED_CLUSTER = ("proxy-url",)


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
            told = os.stat(self.path)
        except OSError:
            return (0, 0, 0)
        return (told.st_ino, told.st_mtime_ns, told.st_size)


@dataclass(frozen=True)
class ClientConfig:
    """
    One API server and one identity.

    :param server: URL, ``https://host:port`` with an optional path prefix.
    :param ca: who signs the server's certificate; empty means the system's roots.
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
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    source: str = ""

    @property
    def url(self) -> SplitResult:
        """The server's URL in parts."""
        return urlsplit(self.server)

    @property
    def has_credentials(self) -> bool:
        """Something secret would travel with a request."""
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


def load(
    path: str | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> ClientConfig:
    """
    The configuration that kubectl would use.

    :param path: one file, as ``--kubeconfig`` names it; else ``$KUBECONFIG``
        (a list, missing files are skipped), else ``~/.kube/config``.
    :param context: instead of ``current-context``.
    :raises KubeConfigError: no file, not readable, or not usable.
    """
    environ = os.environ if environ is None else environ
    files = _Files([_File.read(name) for name in file_names(path, environ)])
    return _assemble(files, context or files.current_context())


def file_names(path: str | None, environ: Mapping[str, str]) -> list[str]:
    """
    The files that :func:`load` reads, absolute.

    :raises KubeConfigError: none exists.
    """
    if path:
        return [os.path.abspath(path)]
    listed = [name for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    if not listed:
        home = environ.get("HOME") or os.path.expanduser("~")
        listed = [os.path.join(home, ".kube", "config")]
    found = [os.path.abspath(name) for name in dict.fromkeys(listed) if os.path.exists(name)]
    if not found:
        raise KubeConfigError(
            f"no kubeconfig: {os.pathsep.join(listed)} does not exist; "
            "set KUBECONFIG or give --kubeconfig"
        )
    return found


@dataclass(frozen=True)
class _Entry:
    """One cluster, user or context, and the file that holds it."""

    kind: str
    name: str
    file: str
    value: Mapping[str, Any]

    def fail(self, problem: str) -> KubeConfigError:
        return KubeConfigError(f'{self.file}: {self.kind} "{self.name}": {problem}')

    def get(self, key: str, kind: type[_T], default: _T) -> _T:
        """The value of ``key``, which must be of ``kind`` when it is there."""
        value = self.value.get(key)
        if value is None:
            return default
        if not isinstance(value, kind):
            raise self.fail(f"{key} must be a {_TYPE_NAMES[kind]}")
        return value

    def text(self, key: str) -> str:
        value = self.get(key, str, "")
        # Also half a surrogate pair, which no path and no header can hold.
        if not value.isprintable():
            raise self.fail(f"{key} holds a character that cannot be printed")
        return value

    def path(self, key: str) -> str:
        name = self.text(key)
        return os.path.join(os.path.dirname(self.file), os.path.expanduser(name)) if name else ""

    def material(self, key: str) -> Material:
        """``KEY-data`` (base64) or the file ``KEY``, which must be readable now."""
        encoded = self.get(f"{key}-data", str, "")
        if encoded:
            try:
                return Material(data=base64.b64decode("".join(encoded.split()), validate=True))
            except (binascii.Error, ValueError):
                raise self.fail(f"{key}-data is not base64") from None
        path = self.path(key)
        if path:
            self.check_readable(key, path)
        return Material(path=path)

    def check_readable(self, key: str, path: str) -> None:
        try:
            read_file(path)
        except KubeConfigError as error:
            raise self.fail(f"{key}: {error}") from None

    def refuse(self, keys: Sequence[str]) -> None:
        """What we do not support is an error where it would be used."""
        for key in keys:
            if self.value.get(key):
                raise self.fail(f"{key} is not supported; use a certificate, token or tokenFile")


_TYPE_NAMES: dict[type, str] = {str: "string", bool: "boolean", list: "list", dict: "mapping"}


@dataclass(frozen=True)
class _File:
    name: str
    document: Mapping[str, Any]

    @classmethod
    def read(cls, name: str) -> _File:
        try:
            document = yaml.safe_load(read_file(name))
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise KubeConfigError(f"{name}: not YAML: {_first_line(error)}") from None
        if document is None:
            document = {}
        if not isinstance(document, dict):
            raise KubeConfigError(f"{name}: not a kubeconfig: a mapping is expected")
        kind = document.get("kind", "Config")
        if kind != "Config":
            raise KubeConfigError(f"{name}: not a kubeconfig: its kind is {kind}")
        return cls(name, document)

    def entries(self, section: str, noun: str) -> list[_Entry]:
        """All entries of ``clusters``, ``users`` or ``contexts``."""
        listed = self.document.get(section) or []
        if not isinstance(listed, list):
            raise KubeConfigError(f"{self.name}: {section} must be a list")
        entries = []
        for number, item in enumerate(listed):
            if not isinstance(item, dict) or not isinstance(item.get("name"), str):
                raise KubeConfigError(f"{self.name}: {section}[{number}] has no name")
            value = item.get(noun) or {}
            if not isinstance(value, dict):
                raise KubeConfigError(f"{self.name}: {section}[{number}].{noun} must be a mapping")
            entries.append(_Entry(noun, item["name"], self.name, value))
        return entries


def _first_line(error: Exception) -> str:
    """YAML errors span lines; where it is and what is wrong fit into one."""
    problem = getattr(error, "problem", None) or str(error)
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    return place + (str(problem).splitlines() or ["unreadable"])[0]


class _Files:
    """The merged files, first definition first."""

    def __init__(self, files: Sequence[_File]) -> None:
        self._files = files
        self.names = os.pathsep.join(file.name for file in files)

    def current_context(self) -> str:
        for file in self._files:
            name = file.document.get("current-context")
            if isinstance(name, str) and name:
                return name
        raise KubeConfigError(f"{self.names}: no current-context is set; choose one with --context")

    def find(self, section: str, noun: str, name: str, wanted_by: str = "") -> _Entry:
        for file in self._files:
            for entry in file.entries(section, noun):
                if entry.name == name:
                    return entry
        why = f" (of {wanted_by})" if wanted_by else ""
        raise KubeConfigError(f'{self.names}: no {noun} "{name}"{why}')


def _assemble(files: _Files, context_name: str) -> ClientConfig:
    context = files.find("contexts", "context", context_name)
    cluster_name, user_name = context.text("cluster"), context.text("user")
    if not cluster_name:
        raise context.fail("no cluster is named")
    cluster = files.find("clusters", "cluster", cluster_name, f'context "{context.name}"')
    user = _Entry("user", "", context.file, {})
    if user_name:
        user = files.find("users", "user", user_name, f'context "{context.name}"')
    cluster.refuse(_UNSUPPORTED_CLUSTER)
    user.refuse(_UNSUPPORTED_USER)
    config = _with_user(_with_cluster(cluster, context), user)
    if config.url.scheme == "http" and config.has_credentials and not is_loopback(config.url):
        raise cluster.fail("credentials would travel in the clear; use an https:// server")
    return config


def _with_cluster(cluster: _Entry, context: _Entry) -> ClientConfig:
    server = cluster.text("server").rstrip("/")
    check_server(server, cluster.fail)
    ca = cluster.material("certificate-authority")
    insecure = cluster.get("insecure-skip-tls-verify", bool, False)
    if ca and insecure:
        raise cluster.fail("insecure-skip-tls-verify cannot go with a certificate-authority")
    return ClientConfig(
        server=server,
        namespace=context.text("namespace") or "default",
        ca=ca,
        tls_server_name=cluster.text("tls-server-name"),
        insecure_skip_tls_verify=insecure,
        source=f'{context.file} (context "{context.name}")',
    )


def _with_user(config: ClientConfig, user: _Entry) -> ClientConfig:
    certificate = user.material("client-certificate")
    key = user.material("client-key")
    if bool(certificate) != bool(key):
        missing = "client-key" if certificate else "client-certificate"
        raise user.fail(f"{missing} is missing")
    token_file = user.path("tokenFile")
    if token_file:
        user.check_readable("tokenFile", token_file)
    given = {
        "certificate": certificate,
        "key": key,
        "token": user.text("token"),
        "token_file": token_file,
        "username": user.text("username"),
        "password": user.text("password"),
    }
    if given["username"] and (given["token"] or token_file):
        raise user.fail("username cannot go with a token")
    return ClientConfig(**{**vars(config), **given})


def check_server(server: str, fail: Callable[[str], Exception]) -> None:
    """
    Raise ``fail(problem)`` unless ``server`` is an ``http`` or ``https`` URL of a host.
    """
    try:
        url = urlsplit(server)
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        usable = usable and server.isascii() and " " not in server
    except ValueError:
        usable = False
    if not usable:
        raise fail(f'server "{server}" is not an https:// URL' if server else "no server is given")
    if url.username or url.password or url.query or url.fragment:
        raise fail("server must not hold a user, a query or a fragment")


def is_loopback(url: SplitResult) -> bool:
    """The URL's host is this machine, as ``localhost`` or by number."""
    host = url.hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
