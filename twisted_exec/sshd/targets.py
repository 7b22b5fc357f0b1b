"""
The machines that user names of ssh select: ``NAME``, ``NAMESPACE/NAME`` and ``SPACE/NAMESPACE/NAME``.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted_exec.api.names import dns_label, dns_subdomain

DEFAULT_NAMESPACE = "default"
_MOST_CHARACTERS = 3 * 253 + 2
_MOST_SHOWN = 80
_FORM = (
    "the user name of ssh is a machine: NAME, NAMESPACE/NAME or SPACE/NAMESPACE/NAME; "
    "the command list shows the machines"
)


@dataclass(frozen=True)
class Target:
    """
    A machine, or with an empty ``name`` a namespace.

    :param space: the Space with the machine; empty for the API server of the door.
    """

    name: str
    namespace: str = DEFAULT_NAMESPACE
    space: str = ""


def parse_target(text: str) -> Target:
    """
    Parse a user name.

    :raises ValueError: it names no machine; the message is for the user.
    """
    parts = text.split("/") if len(text) <= _MOST_CHARACTERS else []
    if not 1 <= len(parts) <= 3:
        raise _no_machine(text)
    target = Target(*reversed(parts))
    wrong = dns_subdomain(target.name) + dns_label(target.namespace)
    if len(parts) == 3:
        wrong += dns_subdomain(target.space)
    if wrong:
        raise _no_machine(text)
    return target


def parse_namespace(text: str) -> Target:
    """
    Parse the argument of the command ``list``: ``NAMESPACE``, or ``SPACE/NAMESPACE``.

    :raises ValueError: it names no namespace; the message is for the user.
    """
    space, slash, namespace = text.rpartition("/")
    wrong = dns_label(namespace) + (dns_subdomain(space) if slash else [])
    if wrong:
        raise ValueError(f'"{shown(text)}" is no NAMESPACE or SPACE/NAMESPACE')
    return Target("", namespace, space)


def _no_machine(text: str) -> ValueError:
    return ValueError(f'"{shown(text)}" names no machine: {_FORM}')


def shown(text: str, most: int = _MOST_SHOWN) -> str:
    """Return the beginning of a user's text for a message: one line without control characters."""
    return "".join(each if each.isprintable() else "?" for each in text[:most])
