"""
Address, credentials and settings of an etcd cluster, as given in ``--storage``.

``etcd:https://HOST:PORT[,...]?prefix=...&ca=...&...``

Passwords are only given in files, because other users can read a command line.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, urlsplit

PREFIX = "/twisted-exec"
COMPACTION_SECONDS = 300.0
"""As kube-apiserver's ``--etcd-compaction-interval``."""

_KNOWN = ("prefix", "ca", "cert", "key", "user", "password-file", "compaction", "insecure")
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]{1,63}){1,4}")
_MOST_ENDPOINTS = 16
_PORT = 2379


@dataclass(frozen=True)
class Endpoint:
    """One member of a cluster."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True)
class EtcdTarget:
    """
    One etcd cluster, and our prefix in it.

    :param prefix: prefix of our keys; starts with a slash and ends without one.
    :param compaction_seconds: period of compaction, and age of what is compacted; 0 disables it.
    """

    endpoints: Sequence[Endpoint]
    secure: bool = True
    prefix: str = PREFIX
    ca: str = ""
    certificate: str = ""
    key: str = ""
    user: str = ""
    password_file: str = ""
    compaction_seconds: float = COMPACTION_SECONDS

    def __str__(self) -> str:
        return ",".join(map(str, self.endpoints))

    @property
    def location(self) -> str:
        return f"etcd:{self}?prefix={self.prefix}"


def same_location(first: str, second: str) -> bool:
    """
    Return whether two locations are the same prefix in the same etcd.

    One member in common is enough.
    """
    members, prefix = _members_and_prefix(first)
    other_members, other_prefix = _members_and_prefix(second)
    return prefix == other_prefix and not members.isdisjoint(other_members)


def _members_and_prefix(location: str) -> tuple[set[str], str]:
    members, _, prefix = location.removeprefix("etcd:").partition("?prefix=")
    return set(members.split(",")), prefix


def parse_target(text: str) -> EtcdTarget:
    """
    Read what comes after ``etcd:``.

    :raises ValueError: the message shows no secret.
    """
    urls, _, query = text.partition("?")
    parameters = _parameters(query)
    secure, endpoints = _endpoints(urls)
    compaction = parameters.get("compaction", "on")
    if compaction not in ("on", "off"):
        raise ValueError("compaction= is on, or off when another program sees to it")
    target = EtcdTarget(
        endpoints,
        secure,
        parameters.get("prefix", PREFIX),
        ca=_path(parameters, "ca"),
        certificate=_path(parameters, "cert"),
        key=_path(parameters, "key"),
        user=parameters.get("user", ""),
        password_file=_path(parameters, "password-file"),
        compaction_seconds=COMPACTION_SECONDS if compaction == "on" else 0.0,
    )
    _check(target, parameters.get("insecure", "false"))
    return target


def _path(parameters: dict[str, str], name: str) -> str:
    # Absolute, because twistd changes the working directory when it becomes a daemon.
    return os.path.abspath(parameters[name]) if name in parameters else ""


def _parameters(query: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=50)
    parameters = dict(pairs)
    for name, value in pairs:
        if name not in _KNOWN:
            known_names = ", ".join(f"{name}=" for name in _KNOWN)
            raise ValueError(f"{_shown(name)}= is nothing that etcd: knows: {known_names}")
        if not value:
            raise ValueError(f"{name}= has no value")
    if len(parameters) != len(pairs):
        twice = next(name for name in parameters if [key for key, _ in pairs].count(name) > 1)
        raise ValueError(f"{twice}= is given twice")
    return parameters


def _endpoints(urls: str) -> tuple[bool, tuple[Endpoint, ...]]:
    if not urls:
        raise ValueError("give etcd:https://HOST:PORT, and more of them after commas")
    parts = urls.split(",")
    if len(parts) > _MOST_ENDPOINTS:
        raise ValueError(f"these are more than {_MOST_ENDPOINTS} endpoints")
    # A URL without a scheme has that of the one before it.
    scheme = "https"
    endpoints: list[Endpoint] = []
    for part in parts:
        url = _split(part if "://" in part else f"{scheme}://{part}")
        if endpoints and url.scheme != scheme:
            raise ValueError("endpoints are all https, or all http")
        scheme = url.scheme
        endpoints.append(Endpoint(url.hostname or "", url.port or _PORT))
    return scheme == "https", tuple(endpoints)


def _split(text: str) -> SplitResult:
    """Parse one URL, without quoting it in errors, because it may hold a password."""
    try:
        url = urlsplit(text)
        is_valid = url.scheme in ("https", "http") and url.hostname and url.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ValueError("an endpoint of etcd is https://HOST:PORT")
    if "@" in url.netloc:
        raise ValueError("etcd's user and password are given as user= and password-file=")
    if url.path not in ("", "/") or url.fragment:
        raise ValueError("an endpoint of etcd is https://HOST:PORT; keys are told by prefix=")
    return url


def _check(target: EtcdTarget, insecure: str) -> None:
    if insecure not in ("true", "false"):
        raise ValueError("insecure= is true or false")
    if not _PREFIX.fullmatch(target.prefix):
        raise ValueError(
            f"prefix={_shown(target.prefix)}: give a path such as {PREFIX}, of letters, digits "
            "and ._~- between its slashes"
        )
    if bool(target.certificate) != bool(target.key):
        missing, present = ("key", "cert") if target.certificate else ("cert", "key")
        raise ValueError(f"{missing}= is missing: it belongs to {present}=")
    if bool(target.user) != bool(target.password_file):
        missing, present = ("password-file", "user") if target.user else ("user", "password-file")
        raise ValueError(f"{missing}= is missing: it belongs to {present}=")
    if target.secure:
        if not target.ca:
            raise ValueError("ca= is missing: the authority that signed etcd's certificate (PEM)")
        return
    if target.ca or target.certificate:
        raise ValueError("ca=, cert= and key= are for https endpoints")
    open_hosts = [endpoint.host for endpoint in target.endpoints if not _is_loopback(endpoint.host)]
    if open_hosts and insecure != "true":
        raise ValueError(
            f"http to {_shown(open_hosts[0])} would be open for all to read and change: use https, "
            "or say insecure=true"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _shown(text: str) -> str:
    return ascii(text[:100])[1:-1]
