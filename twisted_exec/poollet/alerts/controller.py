"""
The controller of ConsoleAlerts: sends rules to the machine runtime, and reports their matches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client import Counter as MetricCounter
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLEALERTS, EVENTS
from twisted_exec.api.kinds.alert_patterns import AlertPattern
from twisted_exec.api.status import AlreadyExists, APIError, NotFound
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
from twisted_exec.poollet.alerts.events import (
    MOST_MACHINES,
    REFILL_SECONDS,
    degraded_event,
    event_of,
)
from twisted_exec.poollet.alerts.rules import PoolRules, make_rules
from twisted_exec.poollet.alerts.status import PoolEntry, Tally, entry_of, is_degraded, new_pools
from twisted_exec.poollet.runtime_controller import WAIT_SECONDS, RuntimeController, RuntimeReports
from twisted_exec.program.turns import ShortTurns

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
        clock: IReactorTime,
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
        if self._allow_event(match):
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

    def _allow_event(self, match: pb.AlertMatch) -> bool:
        """Count one more Event, unless the machine has had too many; return whether to write it."""
        last, may = self._last
        if match != last:  # else it is handled again, and counted already
            may = self._limit.allow(match.machine_uid, self._clock.seconds())
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
