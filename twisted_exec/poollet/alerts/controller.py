"""
Carries ConsoleAlerts to the machine runtime, and its matches to the API server.

A match is acknowledged after its Event is written.  An API server without the kind, or without permission
to read it, has no alerts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import deferLater

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLEALERTS, EVENTS
from twisted_exec.api.kinds.alerts.presets import AlertPattern
from twisted_exec.api.status import AlreadyExists, APIError
from twisted_exec.api.times import timestamp
from twisted_exec.iri.interfaces import IConsoleAlerts
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.kube.informers.reflector import Backoff, Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.recorder import EventLimit
from twisted_exec.poollet.alerts.events import (
    MOST_MACHINES,
    REFILL_SECONDS,
    degraded_event,
    event_of,
)
from twisted_exec.poollet.alerts.rules import PoolRules, make_rules
from twisted_exec.poollet.alerts.status import Pool, Tally, entry_of, is_degraded, new_pools
from twisted_exec.poollet.runtime_controller import WAIT_SECONDS, Reports, RuntimeController
from twisted_exec.program.tasks import ShortTurns

STATUS_SECONDS = 1.0
"""Interval of status updates."""
MOST_ALERTS = 10_000

_MOST_LABELS = 1000
_NANOSECONDS = 10**9


class AlertMetrics:
    """Counts matches; the number of label values is limited."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._matches = Counter(
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

    :param machines: returns the pool's Machines as last seen.
    :param synced: whether ``machines`` is complete.
    :param look_again: called with the UID of a Machine whose condition may have changed.
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
    ) -> None:
        self._client, self._dialect, self._pool_name = client, dialect, pool
        self._machines, self._look_again = machines, look_again
        self._metrics = AlertMetrics(registry)
        self._pool = Pool(f"{dialect.pool.plural}.{dialect.pool.group}", pool)
        self._owner = f"{self._pool.resource}/{pool}"
        self.alerts = Reflector(
            client,
            CONSOLEALERTS.resource,
            clock,
            on_change=self._alert_changed,
            max_objects=MOST_ALERTS,
            optional=True,
        )
        super().__init__(runtime, clock, self.alerts, synced)
        self._rules = PoolRules()
        self._problems: dict[int, str] = {}
        self._limit = EventLimit(REFILL_SECONDS, MOST_MACHINES)
        self._tallies: dict[str, Tally] = {}
        self._status_call: IDelayedCall | None = None
        self._writing: Deferred[None] | None = None

    def stop(self) -> Deferred[Any]:
        """See :meth:`RuntimeController.stop`."""
        stopping = super().stop()
        if self._status_call is not None and self._status_call.active():
            self._status_call.cancel()
        if self._writing is None:
            return stopping
        self._writing.cancel()
        return DeferredList([stopping, self._writing])

    def machine_changed(self, before: Object | None, after: Object | None) -> None:
        """Handle a Machine that appeared, changed or was deleted (reflector listener)."""
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

    async def _list_reports(self, instance: str, acknowledged: int) -> Reports:
        request = pb.ListMatchesRequest(
            owner=self._owner,
            instance=instance,
            acknowledged=acknowledged,
            wait_seconds=WAIT_SECONDS,
        )
        answer = await self._provider().list_matches(request)
        return Reports(answer.instance, answer.generation, answer.matches)

    async def _handle(self, match: pb.AlertMatch) -> None:
        alert, pattern = self._rules.by_id.get(match.pattern_id, (None, None))
        machine = self._machine(match.machine_uid)
        if alert is None or pattern is None or machine is None:
            return  # deleted meanwhile
        self._look_again(match.machine_uid)
        is_new = True
        if self._limit.allows(match.machine_uid, self._clock.seconds()):
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

    def _machine(self, uid: str) -> Object | None:
        return next((each for each in self._machines() if each["metadata"]["uid"] == uid), None)

    async def _write(self, event: Object) -> bool:
        """
        Write an Event; repeat while the API server fails.

        :return: false if the API server has it already.
        """
        backoff = Backoff()
        while True:
            try:
                await self._client.create(EVENTS.resource, event, event["metadata"]["namespace"])
            except APIError as error:
                if error.reason == AlreadyExists.reason:
                    return False
                if error.code not in (429, *range(500, 600)):
                    self._log.warn("console alerts: an Event: {why}", why=error.message)
                    return True
                await deferLater(self._clock, backoff.pause())
            else:
                return True

    # Status.

    def _report_soon(self) -> None:
        waits = self._status_call is not None and self._status_call.active()
        if not (waits or self._stopped):
            self._status_call = self._clock.callLater(STATUS_SECONDS, self._report)

    def _report(self) -> None:
        if self._writing is not None:
            self._report_soon()
            return
        self._writing = Deferred.fromCoroutine(self._write_status()).addErrback(self._failed)
        self._writing.addBoth(self._was_written)

    def _was_written(self, _: object) -> None:
        self._writing = None

    async def _write_status(self) -> None:
        if not self._is_supported:
            self._rules = await self._made_rules()
        turns = ShortTurns(self._clock)
        for alert in list(self.alerts):
            await turns.breathe()
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
                continue
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
            except APIError as error:
                if error.code == 404:
                    self._tallies.pop(uid, None)
                else:
                    self._log.debug("console alerts: the status: {why}", why=error.message)
                    self._report_soon()  # another pool's poollet was faster, or the server fails
                continue
            if entry is not None and is_degraded(self._pool, alert, entry):
                await self._report_problem(alert, entry["message"])
            tally.count -= count
            if not tally.count and tally.last == last:
                self._tallies.pop(uid, None)

    async def _report_problem(self, alert: Object, problem: str) -> None:
        now = self._clock.seconds()
        event = degraded_event(alert, problem, self._dialect, self._pool_name, now)
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
