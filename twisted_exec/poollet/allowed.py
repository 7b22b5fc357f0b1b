"""
Which hosts exec URLs may lead to: this one, the runtime's, and those that an operator names.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?", re.ASCII)


@dataclass(frozen=True)
class Place:
    """
    A host that may be dialled.

    :param port: the only one; 0 for any.
    """

    host: str
    port: int = 0


def place(text: str) -> Place:
    """
    ``HOST``, ``HOST:PORT``, with an IPv6 address in brackets or bare.

    :raises ValueError: it is none of these, in words for an operator.
    """
    try:
        return Place(same_host(str(ipaddress.ip_address(text.strip("[]")))))
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
        raise ValueError(f"{text!r} names no host")
    return Place(host, int(port))


def same_host(host: str) -> str:
    """One spelling of each host: addresses as numbers are, names in lower case without a last dot."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower().removesuffix(".")


def is_loopback(host: str) -> bool:
    """This very host, by address or as ``localhost``: no other name is asked for."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Allowed:
    """
    The places that may be dialled.

    :param loopback: this host, too, at any port.
    """

    places: tuple[Place, ...] = ()
    loopback: bool = True

    @classmethod
    def of(cls, places: Iterable[Place], *, loopback: bool = True) -> Allowed:
        """Those and no others."""
        return cls(tuple(places), loopback)

    def allows(self, host: str, port: int) -> bool:
        """Whether this may be dialled."""
        host = same_host(host)
        return (self.loopback and is_loopback(host)) or any(
            one.host == host and one.port in (0, port) for one in self.places
        )
