"""
Names that certificates carry and servers are asked for.
"""

from __future__ import annotations

import ipaddress
import re

import idna

from twisted_exec.tls.errors import TLSConfigError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Underscores are no host names, but live in DNS all the same.
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")


def server_name(text: str) -> Address | str:
    """
    An IP address, or a DNS name in ASCII without its final dot.

    :param text: an address, perhaps in the brackets of a URL, or a DNS name, perhaps beyond ASCII.
    :raises TLSConfigError: it is neither.
    """
    try:
        return ipaddress.ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        pass
    try:
        name = text if text.isascii() else idna.encode(text, uts46=True).decode("ascii")
    except idna.IDNAError:
        name = ""
    name = name.removesuffix(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise TLSConfigError(f"{text!r} is no DNS name or IP address")
    return name
