"""
The patterns for the machines of a pool.

Pure.  The result is the message for the machine runtime, and what is needed to understand its matches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from twisted_exec.api import selectors, times
from twisted_exec.api.kinds.alerts.presets import AlertPattern, patterns_of
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.kube.interfaces import Object

MOST_PATTERNS = 1024
"""Limit of the patterns of a pool, as of the runtime's."""
TOO_MANY = f"the alerts of the pool's machines have more than {MOST_PATTERNS} patterns in all"


@dataclass
class Selected:
    """
    One alert in this pool.

    :param machines: number of selected machines.
    :param problem: why none of its patterns is searched, or empty.
    :param patterns: indices of its patterns in the message.
    """

    alert: Object
    machines: int = 0
    problem: str = ""
    patterns: tuple[int, ...] = ()


@dataclass(frozen=True)
class PoolRules:
    """
    :param by_id: the alert and the pattern, by the pattern's id in the message.
    :param alerts: alerts that select machines, by UID.
    """

    request: pb.SetAlertsRequest = field(default_factory=pb.SetAlertsRequest)
    by_id: Mapping[str, tuple[Object, AlertPattern]] = field(default_factory=dict)
    alerts: Mapping[str, Selected] = field(default_factory=dict)


def make_rules(owner: str, alerts: Iterable[Object], machines: Iterable[Object]) -> PoolRules:
    """
    Return the rules of a pool.

    :param owner: identifies the poollet at the runtime.
    :param alerts: all that the poollet sees.
    :param machines: of the pool.
    """
    by_namespace: dict[str, list[Object]] = {}
    for machine in machines:
        by_namespace.setdefault(machine["metadata"].get("namespace", ""), []).append(machine)
    request = pb.SetAlertsRequest(owner=owner)
    by_id: dict[str, tuple[Object, AlertPattern]] = {}
    selected: dict[str, Selected] = {}
    per_machine: dict[str, pb.AlertMachine] = {}
    for alert in sorted(alerts, key=_age):
        own = by_namespace.get(alert["metadata"].get("namespace", ""), [])
        matching = _matching(alert, own)
        if not matching:
            continue
        entry = Selected(alert, len(matching))
        selected[alert["metadata"]["uid"]] = entry
        several = patterns_of(alert.get("spec", {}))
        if len(request.patterns) + len(several) > MOST_PATTERNS:
            entry.problem = TOO_MANY
            continue
        first = len(request.patterns)
        entry.patterns = tuple(range(first, first + len(several)))
        for pattern in several:
            request.patterns.append(_message(alert, pattern))
            by_id[request.patterns[-1].id] = alert, pattern
        for machine in matching:
            uid = machine["metadata"]["uid"]
            # The oldest alert comes first: its machines may have printed since its creation.
            message = per_machine.setdefault(uid, pb.AlertMachine(uid=uid, since=_created(alert)))
            message.patterns.extend(entry.patterns)
    request.machines.extend(per_machine[uid] for uid in sorted(per_machine))
    digest = hashlib.sha256(request.SerializeToString(deterministic=True))
    request.generation = digest.hexdigest()[:32]
    return PoolRules(request, by_id, selected)


def _matching(alert: Object, machines: Iterable[Object]) -> list[Object]:
    try:
        selector = selectors.of_object(alert.get("spec", {}).get("selector"))
    except ValueError:  # of another version of the API server
        return []
    return [each for each in machines if selector.matches(each["metadata"].get("labels") or {})]


def _message(alert: Object, pattern: AlertPattern) -> pb.AlertPattern:
    text = pattern.pattern.text
    return pb.AlertPattern(
        id=f"{alert['metadata']['uid']}/{pattern.name}",
        literal="" if pattern.pattern.is_regex else text,
        regex=text if pattern.pattern.is_regex else "",
        condition=pattern.condition,
        throttle_seconds=pattern.throttle_seconds,
    )


def _age(alert: Object) -> tuple[int, str]:
    return _created(alert), alert["metadata"]["uid"]


def _created(alert: Object) -> int:
    try:
        return times.nanoseconds(alert["metadata"].get("creationTimestamp") or "")
    except ValueError:
        return 0
