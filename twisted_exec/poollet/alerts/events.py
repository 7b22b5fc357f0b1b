"""Events about matches of alerts."""

from __future__ import annotations

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLEALERTS
from twisted_exec.api.kinds.alert_patterns import INFO, AlertPattern
from twisted_exec.api.kinds.events import cut_message, new_event
from twisted_exec.api.status import one_line
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.kube.interfaces import Object

_NANOSECONDS = 10**9

REASON = "ConsoleAlert"
"""Reason of Events of patterns without a condition."""

DEGRADED_REASON = "AlertDegraded"
"""Reason of Events about alerts of which some patterns are not searched."""

REFILL_SECONDS = 10.0
"""A machine may have one more Event after each such interval."""
MOST_MACHINES = 4096
_MOST_LINE_CHARACTERS = 512


def event_of(
    match: pb.AlertMatch,
    machine: Object,
    alert: Object,
    pattern: AlertPattern,
    dialect: Dialect,
    pool: str,
) -> Object:
    """
    Return the Event about a match.

    Its name is derived from the match, so that a match that the runtime lists again is no second
    Event.
    """
    event = new_event(
        machine,
        dialect.workload,
        (match.machine_uid, match.pattern_id, match.epoch, match.offset),
        type="Normal" if pattern.severity == INFO else "Warning",
        reason=pattern.condition or REASON,
        component=dialect.poollet,
        host=pool,
        at=match.time / _NANOSECONDS,
    )
    return {**event, "message": _event_message(match, alert, pattern), "count": 1}


def degraded_event(alert: Object, problem: str, dialect: Dialect, pool: str, at: float) -> Object:
    """
    Return the Event about an alert of which some patterns are not searched.

    :param at: in seconds since the epoch.
    """
    event = new_event(
        alert,
        CONSOLEALERTS.resource,
        (pool, alert["metadata"].get("generation"), problem, int(at)),
        type="Warning",
        reason=DEGRADED_REASON,
        component=dialect.poollet,
        host=pool,
        at=at,
    )
    return {**event, "message": cut_message(f"pool {pool}: {problem}"), "count": 1}


def _event_message(match: pb.AlertMatch, alert: Object, pattern: AlertPattern) -> str:
    line = one_line(match.line.decode("utf-8", "replace"))[:_MOST_LINE_CHARACTERS]
    more = f" ({match.suppressed} more since the last Event)" if match.suppressed else ""
    name = alert["metadata"]["name"]
    where = f"pattern {pattern.name} of alert {name} at offset {match.offset}"
    text = f'{pattern.severity}: {where}{more}: "{line}"'
    return cut_message(text)
