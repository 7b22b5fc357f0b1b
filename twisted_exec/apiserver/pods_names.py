"""
Which Pod is which machine, where a server has machines of several dialects.

The first dialect's machines are Pods of the same name.  Those of the others carry their
dialect's name behind a dot, such as ``vm-1.spheric``: names of machines have no dots, so no two
Pods are ever called the same, and no Pod's name comes to mean another machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted_exec.api.dialects import Dialect


class PodNames:
    """
    Names of Pods and names of machines.

    :param dialects: those of the server, in its order; at least one.
    """

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        self.dialects = tuple(dialects)
        self._suffixes = {f".{dialect.name}": dialect for dialect in self.dialects[1:]}

    def pod(self, dialect: Dialect, machine: str) -> str:
        """The name of the Pod that shows a machine."""
        return machine if dialect == self.dialects[0] else f"{machine}.{dialect.name}"

    def machine(self, pod: str) -> tuple[Dialect, str]:
        """The dialect and the name of the machine that a Pod of this name would show."""
        name, dot, suffix = pod.partition(".")
        dialect = self._suffixes.get(dot + suffix)
        return (self.dialects[0], pod) if dialect is None else (dialect, name)
