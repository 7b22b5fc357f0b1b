"""The entry of a pool in the status of a ConsoleAlert."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twisted_exec.api.kinds.consolealerts import DEGRADED, MOST_POOLS, UNSUPPORTED, WATCHING
from twisted_exec.api.status import one_line
from twisted_exec.kube.interfaces import Object
from twisted_exec.poollet.alerts.rules import Selected

NO_SERVICE = "the machine runtime of the pool does not search what machines print"
_MOST_MESSAGE = 1024


@dataclass
class Tally:
    """The matches of one alert that the status does not have yet."""

    count: int = 0
    last: Mapping[str, str] | None = None


@dataclass(frozen=True)
class PoolEntry:
    """The pool whose entry it is."""

    resource: str
    name: str

    def is_own(self, entry: Mapping[str, Any]) -> bool:
        return (entry.get("resource"), entry.get("name")) == (self.resource, self.name)


def entry_of(
    pool: PoolEntry,
    alert: Object,
    selected: Selected | None,
    tally: Tally,
    problems: Mapping[int, str],
    *,
    is_supported: bool,
) -> Object | None:
    """
    Return the pool's entry, if there is one.

    :param tally: is added to the counts in the present entry.
    :param problems: of patterns, by their indices in the rules.
    """
    before = next((each for each in pools_of(alert) if pool.is_own(each)), {})
    if selected is None:
        return None
    entry: Object = {"resource": pool.resource, "name": pool.name}
    wrong = sorted({problems[number] for number in selected.patterns if number in problems})
    if not is_supported or selected.problem:
        entry |= {"state": UNSUPPORTED, "message": selected.problem or NO_SERVICE}
    elif wrong:
        entry |= {"state": DEGRADED, "message": one_line("; ".join(wrong))[:_MOST_MESSAGE]}
    else:
        entry["state"] = WATCHING
    generation = alert["metadata"].get("generation")
    if generation is not None:
        entry["observedGeneration"] = generation
    entry["machines"] = selected.machines
    entry["matches"] = int(before.get("matches", 0)) + tally.count
    retained_keys = ("lastMatchTime", "lastMachine", "lastPattern")
    entry |= tally.last or {key: before[key] for key in retained_keys if key in before}
    return entry


def is_degraded(pool: PoolEntry, alert: Object, entry: Object) -> bool:
    """Return whether patterns are not searched for a new reason."""
    before = next((each for each in pools_of(alert) if pool.is_own(each)), {})
    return bool(entry["state"] == DEGRADED and before.get("message") != entry["message"])


def pools_of(alert: Object) -> list[Object]:
    """Return the entries of the pools in an alert's status."""
    return list((alert.get("status") or {}).get("pools") or ())


def new_pools(pool: PoolEntry, alert: Object, entry: Object | None) -> list[Object] | None:
    """
    Return the entries with this pool's changed; ``None`` if nothing changes, or the list is full.
    """
    before = pools_of(alert)
    if next((each for each in before if pool.is_own(each)), None) == entry:
        return None
    after = [each for each in before if not pool.is_own(each)]
    if entry is not None:
        after.append(entry)
    return after if len(after) <= MOST_POOLS else None
