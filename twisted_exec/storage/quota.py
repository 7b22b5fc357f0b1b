"""
Limits of what objects use, per namespace and in total.

The size of an object is that of its JSON.  These rules keep users from locking out the system:

* Some kinds, such as Leases and Events, have budgets of their own, each half as large as that of
  all other kinds and outside the total.
* The total does not apply to cluster-scoped objects and to namespaces ``kube-...``.
* Updates that add little, such as a status, may exceed the budget of the namespace by a tenth, and
  ignore the total.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from twisted_exec.api import quantity
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Forbidden
from twisted_exec.program.options.declaration import OPTION, ProgramOption
from twisted_exec.storage.interfaces import Object

NAMESPACE_BYTES = "64Mi"
"""Default limit of a namespace."""

TOTAL_BYTES = "256Mi"
"""Default limit of all namespaces together."""

_OWN_BUDGETS = frozenset(
    [
        "leases",
        "events",
        "consolesessions",
        "consolerecordings",
        "deletedconsoles",
        "certificatesigningrequests",
    ]
)
_SYSTEM = "kube-"
_LITTLE_BYTES = 64 << 10
_MOST_BYTES = 1 << 50

Budget = tuple[str, str]
"""Namespace, and the kind if it has a budget of its own."""


def size_option(text: str) -> int:
    """
    Read a size, such as ``64Mi``; 0 is no limit.

    :raises ValueError: it is not a size.
    """
    try:
        size = quantity.value(text)
    except ValueError:
        size = -1
    if not 0 <= size <= _MOST_BYTES:
        raise ValueError(f"{text!r} is not a size such as 64Mi, or 0 for no limit")
    return size


@dataclass(frozen=True)
class QuotaLimits:
    """Limits in bytes; 0 for none."""

    namespace_bytes: int = field(
        default=0,
        metadata={
            OPTION: ProgramOption(
                "storage-quota-namespace",
                "Limit of the size of the objects in a namespace, as JSON; 0 for none.",
                size_option,
                default=NAMESPACE_BYTES,
                group="Storage",
            )
        },
    )
    total_bytes: int = field(
        default=0,
        metadata={
            OPTION: ProgramOption(
                "storage-quota-total",
                "Limit of the size of the objects in all namespaces; 0 for none.",
                size_option,
                default=TOTAL_BYTES,
                group="Storage",
            )
        },
    )


NO_LIMITS = QuotaLimits()


class StoreUsage:
    """Sizes of the objects of a store."""

    def __init__(self) -> None:
        self._bytes: Counter[Budget] = Counter()
        self._total = 0

    def add(self, table: str, namespace: str, size: int) -> None:
        """
        Count a change.

        :param size: negative if objects shrink.
        """
        budget = _budget(table, namespace)
        self._bytes[budget] += size
        if not self._bytes[budget]:
            del self._bytes[budget]
        if _counts_in_total(table, namespace):
            self._total += size

    def clear(self) -> None:
        self._bytes.clear()
        self._total = 0

    def of(self, table: str, namespace: str) -> int:
        return self._bytes[_budget(table, namespace)]

    @property
    def total(self) -> int:
        """Size of all objects to which the total applies."""
        return self._total


class Quota:
    """
    Decides whether a write may make objects larger.

    Writes that have begun count, too.
    """

    def __init__(self, limits: QuotaLimits) -> None:
        self._limits = limits
        self._begun = StoreUsage()

    @property
    def is_limited(self) -> bool:
        """``False`` if every write is allowed."""
        return self._limits != NO_LIMITS

    def begin(
        self, usage: StoreUsage, resource: Resource, obj: Object, growth: int, *, is_new: bool
    ) -> Callable[[], None]:
        """
        Count a write that makes objects larger.

        :param growth: in bytes, more than 0.
        :return: to be called when the write failed or its object is in ``usage``.
        :raises Forbidden: a quota is exceeded.
        """
        table, name = resource.qualified, obj["metadata"]["name"]
        namespace = obj["metadata"].get("namespace", "")
        for scope, used, limit in self._applicable(usage, table, namespace, growth, is_new):
            if limit and used + growth > limit:
                raise Forbidden(
                    f'{table} "{name}" is forbidden: exceeded quota: {scope}, requested: '
                    f"bytes={growth}, used: bytes={used}, limited: bytes={limit}; delete objects "
                    "or make them smaller",
                    details={"name": name, "group": resource.group, "kind": resource.plural},
                )
        self._begun.add(table, namespace, growth)
        return partial(self._begun.add, table, namespace, -growth)

    def _applicable(
        self, usage: StoreUsage, table: str, namespace: str, growth: int, is_new: bool
    ) -> Iterable[tuple[str, int, int]]:
        scope = f"namespace {namespace}" if namespace else "cluster-scoped objects"
        used = usage.of(table, namespace) + self._begun.of(table, namespace)
        limit = self._limits.namespace_bytes
        if _has_own_budget(table):
            scope, limit = f"{table} in {scope}", limit // 2
        if not is_new and growth < _LITTLE_BYTES:
            yield scope, used, limit + limit // 10
            return
        yield scope, used, limit
        if _counts_in_total(table, namespace):
            yield "all namespaces", usage.total + self._begun.total, self._limits.total_bytes


def _has_own_budget(table: str) -> bool:
    return table.partition(".")[0] in _OWN_BUDGETS


def _budget(table: str, namespace: str) -> Budget:
    return namespace, table if _has_own_budget(table) else ""


def _counts_in_total(table: str, namespace: str) -> bool:
    return bool(namespace) and not namespace.startswith(_SYSTEM) and not _has_own_budget(table)
