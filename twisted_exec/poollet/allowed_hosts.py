"""
The hosts that exec URLs of a runtime may point to.

:mod:`twisted_exec.poollet.exec_urls` refuses other URLs, and connects.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?", re.ASCII)


@dataclass(frozen=True)
class AllowedHost:
    """
    A host that exec URLs may point to.

    :param port: the only permitted port; 0 for any.
    """

    host: str
    port: int = 0


def parse_host(text: str) -> AllowedHost:
    """
    Parse ``HOST`` or ``HOST:PORT``; an IPv6 address may be in brackets.

    :raises ValueError: invalid text.
    """
    try:
        return AllowedHost(same_host(str(ipaddress.ip_address(text.strip("[]")))))
    except ValueError:
        pass
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, "0"
    if not (
        port.isascii() and port.isdigit() and int(port) <= 65535 and (port != "0" or not colon)
    ):
        raise ValueError(f"{text!r} is not HOST or HOST:PORT")
    host = same_host(host.removeprefix("[").removesuffix("]"))
    if ":" not in host and not _NAME.fullmatch(host):
        raise ValueError(f"{text!r} has no host")
    return AllowedHost(host, int(port))


def same_host(host: str) -> str:
    """Normalize a host: addresses numerically, names in lower case without the trailing dot."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower().removesuffix(".")


@lru_cache
def is_loopback(host: str) -> bool:
    """Return whether this is a loopback address or ``localhost``; names are not looked up."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class AllowedHosts:
    """
    The hosts and ports that may be dialled.

    :param loopback: any port of this host as well.
    """

    hosts: tuple[AllowedHost, ...] = ()
    loopback: bool = True

    @classmethod
    def of(cls, hosts: Iterable[AllowedHost], *, loopback: bool = True) -> AllowedHosts:
        return cls(tuple(hosts), loopback)

    def allows(self, host: str, port: int) -> bool:
        host = same_host(host)
        return (self.loopback and is_loopback(host)) or any(
            each.host == host and each.port in (0, port) for each in self.hosts
        )
