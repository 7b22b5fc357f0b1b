"""
Names of the Pods that machines are shown as.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted_exec.api.dialects import Dialect


class PodNames:
    """
    Maps names of Pods to names of machines.

    Machines of the first dialect are Pods of the same name; others append the dialect's name, such
    as ``vm-1.spheric``.
    """

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        self.dialects = tuple(dialects)
        self._suffixes = {f".{dialect.name}": dialect for dialect in self.dialects[1:]}

    def pod(self, dialect: Dialect, machine: str) -> str:
        """Return the Pod's name for a machine."""
        return machine if dialect == self.dialects[0] else f"{machine}.{dialect.name}"

    def machine(self, pod: str) -> tuple[Dialect, str]:
        """Return the dialect and name of the machine that a Pod's name stands for."""
        name, dot, suffix = pod.partition(".")
        dialect = self._suffixes.get(dot + suffix)
        return (self.dialects[0], pod) if dialect is None else (dialect, name)
