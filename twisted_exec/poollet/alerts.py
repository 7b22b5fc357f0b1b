"""ConsoleAlerts: patterns for the machine runtime, and Events about their matches."""

from __future__ import annotations

import hashlib
import time
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client import Counter as MetricCounter
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.logger import Logger

from twisted_exec.api import selectors, times
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLEALERTS, EVENTS
from twisted_exec.api.kinds.alert_patterns import INFO, AlertPattern, patterns_of
from twisted_exec.api.kinds.consolealerts import DEGRADED, MOST_POOLS, UNSUPPORTED, WATCHING
from twisted_exec.api.kinds.events import cut_message, new_event
from twisted_exec.api.selectors import LabelSelector
from twisted_exec.api.status import AlreadyExists, APIError, NotFound, one_line
from twisted_exec.api.times import timestamp
from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.control.queue import Again
from twisted_exec.control.runs import readable
from twisted_exec.iri.interfaces import IConsoleAlerts
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.recorder import EventLimit
from twisted_exec.poollet.runtime_controller import WAIT_SECONDS, RuntimeController, RuntimeReports
from twisted_exec.program.tasks import ShortTurns

_log = Logger()

STATUS_SECONDS = 1.0
"""Time from a change to the update of the status."""
MOST_ALERTS = 10_000
NOT_HANDLED = "AlertNotHandled"
"""Reason of the Event about a machine with a match that cannot be handled."""

_MOST_LABELS = 1000
_NANOSECONDS = 10**9


class AlertMetrics:
    """Counts matches, with a limited number of label values."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._matches = MetricCounter(
            "twisted_exec_console_alert_matches",
            "Matches of the patterns of ConsoleAlerts, without those that were throttled.",
            ["namespace", "alert", "pattern", "severity"],
            registry=registry,
        )
        self._labels: set[tuple[str, ...]] = set()

    def matched(self, alert: Object, pattern: AlertPattern) -> None:
        """Count one match."""
        metadata = alert["metadata"]
        labels = (metadata["namespace"], metadata["name"], pattern.name, pattern.severity)
        if labels not in self._labels and len(self._labels) >= _MOST_LABELS:
            labels = ("", "", "", pattern.severity)
        self._labels.add(labels)
        self._matches.labels(*labels).inc()


class AlertController(RuntimeController):
    """
    The alerts of one pool.

    :param synced: whether ``machines`` is complete.
    :param look_again: called with the UID of a Machine whose condition may have changed.
    :param report: records an Event about a Machine.
    :param metrics: of the program's queues.
    """

    label = "console alerts"
    service = IConsoleAlerts
    no_service = "the machine runtime has no alerts"

    def __init__(
        self,
        client: IKubeClient,
        runtime: object,
        clock: Any,
        dialect: Dialect,
        pool: str,
        *,
        machines: Callable[[], Iterable[Object]],
        synced: Callable[[], bool],
        look_again: Callable[[str], None],
        registry: CollectorRegistry,
        report: Callable[[Object, str, str, str], None],
        now: Callable[[], float] = time.time,
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        self._client, self._dialect, self._pool_name = client, dialect, pool
        self._now, self._record_event = now, report
        self._machines, self._look_again = machines, look_again
        self._metrics = AlertMetrics(registry)
        self._pool = PoolEntry(f"{dialect.pool.plural}.{dialect.pool.group}", pool)
        self._owner = f"{self._pool.resource}/{pool}"
        self.alerts = Reflector(
            client,
            CONSOLEALERTS.resource,
            clock,
            on_change=self._alert_changed,
            max_objects=MOST_ALERTS,
            optional=True,
        )
        super().__init__(runtime, clock, self.alerts, synced, metrics)
        self._rules = PoolRules()
        self._problems: dict[int, str] = {}
        self._limit = EventLimit(REFILL_SECONDS, MOST_MACHINES)
        self._tallies: dict[str, Tally] = {}
        self._last: tuple[pb.AlertMatch, bool] = pb.AlertMatch(), False
        """The last match, and whether its machine may have an Event."""
        self._troubled: set[str] = set()
        """UIDs of alerts with an Event about an unexpected failure."""
        self._statuses = PokedLoop(
            self._write_statuses,
            clock,
            soon_seconds=STATUS_SECONDS,
            metrics=metrics.of("console-alerts-status"),
        )

    def start(self) -> None:
        self._statuses.start(None)
        super().start()

    def stop(self) -> Deferred[Any]:
        return DeferredList([super().stop(), self._statuses.stop()])

    def machine_changed(self, before: Object | None, after: Object | None) -> None:
        """Handle a change of a Machine (reflector listener)."""
        if _selectable(before) != _selectable(after):
            self._send_soon()

    def _alert_changed(self, before: Object | None, after: Object | None) -> None:
        if _searched(before) != _searched(after):
            self._send_soon()

    # Rules.

    async def _send(self, sent: str) -> str:
        rules = await self._made_rules()
        try:
            if rules.request.generation != sent:
                answer = await self._provider().set_alerts(rules.request)
                self._problems = {each.pattern: each.message for each in answer.problems}
        finally:
            self._rules = rules
            self._report_soon()
        return rules.request.generation

    async def _made_rules(self) -> PoolRules:
        turns = ShortTurns(self._clock)
        return await make_rules(self._owner, self.alerts, self._machines(), turns)

    async def _unsupported(self) -> None:
        self._report_soon()

    def _send_soon(self) -> None:
        super()._send_soon()
        if not self._is_supported:  # the next attempt is a minute away, but the status says so now
            self._report_soon()

    # Matches.

    async def _list_reports(self, instance: str, acknowledged: int) -> RuntimeReports:
        request = pb.ListMatchesRequest(
            owner=self._owner,
            instance=instance,
            acknowledged=acknowledged,
            wait_seconds=WAIT_SECONDS,
        )
        answer = await self._provider().list_matches(request)
        return RuntimeReports(answer.instance, answer.generation, answer.matches)

    async def _handle(self, match: pb.AlertMatch) -> None:
        alert, pattern = self._rules.by_id.get(match.pattern_id, (None, None))
        machine = self._machine(match.machine_uid)
        if alert is None or pattern is None or machine is None:
            return  # deleted meanwhile
        self._look_again(match.machine_uid)
        is_new = True
        if self._may_have_event(match):
            event = event_of(match, machine, alert, pattern, self._dialect, self._pool_name)
            is_new = await self._write(event)
        tally = self._tallies.setdefault(alert["metadata"]["uid"], Tally())
        if is_new:
            self._metrics.matched(alert, pattern)
            tally.count += 1
        tally.last = {
            "lastMatchTime": timestamp(match.time / _NANOSECONDS),
            "lastMachine": machine["metadata"]["name"],
            "lastPattern": pattern.name,
        }
        self._report_soon()

    def _may_have_event(self, match: pb.AlertMatch) -> bool:
        last, may = self._last
        if match != last:  # else it is handled again, and counted already
            may = self._limit.allows(match.machine_uid, self._clock.seconds())
            self._last = match, may
        return may

    def _machine(self, uid: str) -> Object | None:
        return next((each for each in self._machines() if each["metadata"]["uid"] == uid), None)

    async def _write(self, event: Object) -> bool:
        """:raises APIError: the server may take the Event later."""
        try:
            await self._client.create(EVENTS.resource, event, event["metadata"]["namespace"])
        except APIError as error:
            if error.code in (429, *range(500, 600)):
                raise
            if error.reason == AlreadyExists.reason:
                return False
            self._log.warn("console alerts: an Event: {why}", why=error.message)
        return True

    def _key(self, match: pb.AlertMatch) -> tuple[str, int]:
        return self._instance, match.number

    def _failed(self, match: pb.AlertMatch, why: str) -> None:
        machine = self._machine(match.machine_uid)
        if machine is not None:
            self._record_event(machine, "Warning", NOT_HANDLED, why)

    # Status.

    def _report_soon(self) -> None:
        self._statuses.poke()

    async def _write_statuses(self) -> None:
        if not self._is_supported:
            self._rules = await self._made_rules()
        turns, bug, is_refused = ShortTurns(self._clock), None, False
        for alert in list(self.alerts):
            await turns.breathe()
            try:
                await self._write_status(alert)
                self._troubled.discard(alert["metadata"]["uid"])
            except APIError as error:
                self._log.debug("console alerts: the status: {why}", why=error.message)
                is_refused = True  # another pool's poollet was faster, or the server fails
            except CancelledError:
                raise  # the poollet stops
            except Exception as error:  # the others do not wait
                bug = error
                if (uid := alert["metadata"]["uid"]) not in self._troubled:
                    self._troubled.add(uid)
                    await self._report_problem(alert, readable(error).message)
        if bug is not None:
            raise bug
        if is_refused:
            raise Again

    async def _write_status(self, alert: Object) -> None:
        uid, metadata = alert["metadata"]["uid"], alert["metadata"]
        tally = self._tallies.get(uid, Tally())
        entry = entry_of(
            self._pool,
            alert,
            self._rules.alerts.get(uid),
            tally,
            self._problems,
            is_supported=self._is_supported,
        )
        pools = new_pools(self._pool, alert, entry)
        if pools is None:
            return
        patch = {
            "metadata": {"resourceVersion": metadata.get("resourceVersion", "")},
            "status": {"pools": pools},
        }
        count, last = tally.count, tally.last
        try:
            await self._client.patch(
                CONSOLEALERTS.resource,
                metadata["name"],
                patch,
                metadata.get("namespace", ""),
                subresource="status",
            )
        except NotFound:
            self._tallies.pop(uid, None)
            return
        if entry is not None and is_degraded(self._pool, alert, entry):
            await self._report_problem(alert, entry["message"])
        tally.count -= count
        if not tally.count and tally.last == last:
            self._tallies.pop(uid, None)

    async def _report_problem(self, alert: Object, problem: str) -> None:
        event = degraded_event(alert, problem, self._dialect, self._pool_name, self._now())
        try:
            await self._client.create(EVENTS.resource, event, event["metadata"]["namespace"])
        except APIError as error:  # the status says it, too
            self._log.warn("console alerts: an Event: {why}", why=error.message)


def _selectable(machine: Object | None) -> tuple[Any, ...] | None:
    if machine is None:
        return None
    metadata = machine["metadata"]
    return metadata["uid"], metadata.get("labels")


def _searched(alert: Object | None) -> tuple[Any, ...] | None:
    return None if alert is None else (alert["metadata"]["uid"], alert.get("spec"))


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
    kept = ("lastMatchTime", "lastMachine", "lastPattern")
    entry |= tally.last or {key: before[key] for key in kept if key in before}
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
