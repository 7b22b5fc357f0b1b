"""The rules for the machine runtime, from the ConsoleAlerts of a pool."""

from __future__ import annotations

import hashlib
from collections import Counter as Counts
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from twisted.logger import Logger

from twisted_exec.api import selectors, times
from twisted_exec.api.kinds.alert_patterns import AlertPattern, patterns_of
from twisted_exec.api.selectors import LabelSelector
from twisted_exec.control.runs import readable
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.kube.interfaces import Object
from twisted_exec.program.turns import ShortTurns

_log = Logger()

MOST_PATTERNS = 1024
"""Limit of the patterns of a pool; our runtimes have the same limit for each owner."""
TOO_MANY = f"the alerts of the pool's machines have more than {MOST_PATTERNS} patterns in all"
MOST_COMPARISONS = 2_000_000
"""Limit of the terms of a namespace's selectors, times its machines in the pool."""
TOO_MANY_COMPARISONS = (
    "the selectors of the namespace's older alerts and its machines in the pool need "
    f"{MOST_COMPARISONS} comparisons already: use fewer alerts, or fewer terms in their selectors"
)
_MACHINES_AT_ONCE = 16


@dataclass
class Selected:
    """
    One alert in this pool.

    :param patterns: indices of its patterns in the message.
    """

    alert: Object
    machines: int = 0
    problem: str = ""
    patterns: tuple[int, ...] = ()


@dataclass(frozen=True)
class PoolRules:
    """
    The patterns for a runtime.

    :param by_id: the alert and the pattern, by the pattern's id in the message.
    """

    request: pb.SetAlertsRequest = field(default_factory=pb.SetAlertsRequest)
    by_id: Mapping[str, tuple[Object, AlertPattern]] = field(default_factory=dict)
    alerts: Mapping[str, Selected] = field(default_factory=dict)


async def make_rules(
    owner: str, alerts: Iterable[Object], machines: Iterable[Object], turns: ShortTurns
) -> PoolRules:
    """Return the rules of a pool."""
    by_namespace: dict[str, list[Object]] = {}
    for machine in machines:
        by_namespace.setdefault(machine["metadata"].get("namespace", ""), []).append(machine)
    request = pb.SetAlertsRequest(owner=owner)
    by_id: dict[str, tuple[Object, AlertPattern]] = {}
    selected: dict[str, Selected] = {}
    per_machine: dict[str, pb.AlertMachine] = {}
    compared: Counts[str] = Counts()
    for alert in await _by_age(alerts, turns):
        namespace = alert["metadata"].get("namespace", "")
        own = by_namespace.get(namespace)
        if not own:
            continue
        await turns.breathe()
        try:
            selector = selectors.of_object(alert.get("spec", {}).get("selector"))
        except ValueError as error:  # of another release
            selected[alert["metadata"]["uid"]] = Selected(alert, problem=f"spec.selector: {error}")
            continue
        try:
            several = patterns_of(alert.get("spec", {}))
        except ValueError:  # of another version of the API server
            continue
        except Exception as error:  # the other alerts do not wait
            _log.failure("console alerts: a rule")
            selected[alert["metadata"]["uid"]] = Selected(alert, problem=readable(error).message)
            continue
        compared[namespace] += len(own) * max(1, len(selector.requirements))
        if compared[namespace] > MOST_COMPARISONS:
            selected[alert["metadata"]["uid"]] = Selected(alert, problem=TOO_MANY_COMPARISONS)
            continue
        matching = await _matching(selector, own, turns)
        if not matching:
            continue
        entry = Selected(alert, len(matching))
        selected[alert["metadata"]["uid"]] = entry
        if len(request.patterns) + len(several) > MOST_PATTERNS:
            entry.problem = TOO_MANY
            continue
        first = len(request.patterns)
        entry.patterns = tuple(range(first, first + len(several)))
        for pattern in several:
            request.patterns.append(_pattern_message(alert, pattern))
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


async def _by_age(alerts: Iterable[Object], turns: ShortTurns) -> list[Object]:
    aged = []
    for alert in list(alerts):
        await turns.breathe()
        aged.append((_created(alert), alert["metadata"]["uid"], alert))
    return [alert for _, _, alert in sorted(aged, key=itemgetter(0, 1))]


async def _matching(
    selector: LabelSelector, machines: Sequence[Object], turns: ShortTurns
) -> list[Object]:
    matching = []
    for number, machine in enumerate(machines):
        if number % _MACHINES_AT_ONCE == 0:
            await turns.breathe()
        if selector.matches(machine["metadata"].get("labels") or {}):
            matching.append(machine)
    return matching


def _pattern_message(alert: Object, pattern: AlertPattern) -> pb.AlertPattern:
    text = pattern.pattern.text
    return pb.AlertPattern(
        id=f"{alert['metadata']['uid']}/{pattern.name}",
        literal="" if pattern.pattern.is_regex else text,
        regex=text if pattern.pattern.is_regex else "",
        condition=pattern.condition,
        throttle_seconds=pattern.throttle_seconds,
    )


def _created(alert: Object) -> int:
    try:
        return times.nanoseconds(alert["metadata"].get("creationTimestamp") or "")
    except ValueError:
        return 0
