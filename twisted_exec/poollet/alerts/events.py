"""
Events about matches.

The name of an Event is derived from the match, so that a match that the runtime lists again, after a
crash of either side, is no second Event.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import EVENTS
from twisted_exec.api.kinds.alerts.presets import INFO, AlertPattern
from twisted_exec.api.status import one_line
from twisted_exec.api.times import timestamp
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.kube.interfaces import Object

REASON = "ConsoleAlert"
"""Reason of Events of patterns without a condition."""

BURST = 25
"""Events of one machine at once; after that one more each :data:`REFILL_SECONDS`."""
REFILL_SECONDS = 10.0
_MOST_MACHINES = 4096
_MOST_LINE_CHARACTERS = 512
_MOST_MESSAGE_BYTES = 1024
_NANOSECONDS = 10**9


def event_of(
    match: pb.AlertMatch,
    machine: Object,
    alert: Object,
    pattern: AlertPattern,
    dialect: Dialect,
    pool: str,
) -> Object:
    """Return the Event about a match."""
    metadata, workload = machine["metadata"], dialect.workload
    identity = (match.machine_uid, match.pattern_id, match.epoch, match.offset)
    digest = hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
    at = timestamp(match.time / _NANOSECONDS)
    return {
        "apiVersion": EVENTS.resource.api_version,
        "kind": EVENTS.resource.kind,
        "metadata": {
            "name": f"{metadata['name'][:200]}.{digest}",
            "namespace": metadata.get("namespace") or "default",
        },
        "involvedObject": {
            "apiVersion": workload.api_version,
            "kind": workload.kind,
            "namespace": metadata.get("namespace", ""),
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
        "type": "Normal" if pattern.severity == INFO else "Warning",
        "reason": pattern.condition or REASON,
        "message": _message(match, alert, pattern),
        "source": {"component": dialect.poollet, "host": pool},
        "reportingComponent": dialect.poollet,
        "reportingInstance": pool,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def _message(match: pb.AlertMatch, alert: Object, pattern: AlertPattern) -> str:
    line = one_line(match.line.decode("utf-8", "replace"))[:_MOST_LINE_CHARACTERS]
    more = f" ({match.suppressed} more since the last Event)" if match.suppressed else ""
    name = alert["metadata"]["name"]
    where = f"pattern {pattern.name} of alert {name} at offset {match.offset}"
    text = f'{pattern.severity}: {where}{more}: "{line}"'
    return text.encode()[:_MOST_MESSAGE_BYTES].decode(errors="ignore")


@dataclass
class _Bucket:
    left: float
    at: float


class EventLimit:
    """Limits the Events of each machine."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def allows(self, uid: str, now: float) -> bool:
        """
        Count one Event of a machine, unless the limit is reached.

        :param now: in seconds, of a clock that is never set.
        """
        bucket = self._buckets.setdefault(uid, _Bucket(BURST, now))
        self._buckets.move_to_end(uid)
        if len(self._buckets) > _MOST_MACHINES:
            self._buckets.popitem(last=False)
        bucket.left = min(BURST, bucket.left + (now - bucket.at) / REFILL_SECONDS)
        bucket.at = now
        if bucket.left < 1:
            return False
        bucket.left -= 1
        return True
