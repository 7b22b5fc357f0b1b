"""
Host names of consoles: ``NAME.console`` and ``NAME.NAMESPACE.console``.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted_exec.api.names import dns_label, dns_subdomain

SUFFIX = "console"
_MOST_SHOWN = 100
_FORM = f"a host name of a console is NAME.{SUFFIX} or NAME.NAMESPACE.{SUFFIX}"


@dataclass(frozen=True)
class ConsoleHost:
    """
    A machine.

    :param namespace: empty for that of the context.
    """

    name: str
    namespace: str


def console_host(text: str) -> ConsoleHost:
    """
    Parse a host name.  Its last label may be any word: an edited ssh configuration chooses it.

    The label before it is a namespace, unless it is the only one.  So the name of a machine with
    dots needs its namespace.

    :raises ValueError: it names no machine; the message is for the user.
    """
    name, _, suffix = text.rpartition(".")
    namespace, wrong = "", dns_label(suffix)
    if "." in name:
        name, _, namespace = name.rpartition(".")
        wrong += dns_label(namespace)
    if wrong or dns_subdomain(name):
        raise ValueError(f'"{text[:_MOST_SHOWN]}" names no machine: {_FORM}')
    return ConsoleHost(name, namespace)
