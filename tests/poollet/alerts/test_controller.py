"""
Tests for :mod:`twisted_exec.poollet.alerts.controller`: with the alerts of a runtime, and a cluster in memory.
"""

from __future__ import annotations

import os
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.runtimes.alerts.searching import JobsAtOnce
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.kinds import CONSOLEALERTS, EVENTS
from twisted_exec.api.kinds.alert_patterns import AlertPattern
from twisted_exec.api.patterns import Pattern
from twisted_exec.api.selectors import LabelSelector
from twisted_exec.api.status import NotImplementedByBackend, ServiceUnavailable
from twisted_exec.api.times import timestamp
from twisted_exec.iri.interfaces import IConsoleAlerts
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.journal.journal import Journal
from twisted_exec.kube.recorder import BURST
from twisted_exec.poollet.alerts import controller, rules
from twisted_exec.poollet.alerts.controller import AlertController
from twisted_exec.program.turns import REST_SECONDS, TURN_SECONDS, ShortTurns
from twisted_exec.runtimes.alerts import search
from twisted_exec.runtimes.alerts.service import ConsoleAlerts
from twisted_exec.testing.cluster import MemoryClient, MemoryCluster

PANIC = b"[   1.5] Kernel panic - not syncing: test\r\n"
BEGIN = 1_800_000_000
ALERTS = CONSOLEALERTS.resource


def machine(name: str, namespace: str = "lab", **labels: str) -> dict[str, Any]:
    """A Machine of the pool."""
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels}
    return {"metadata": metadata, "spec": {}}


class SlowCluster(MemoryCluster):
    """
    An API server that does not answer patches.

    :ivar patches: how many it got.
    """

    patches = 0

    def client(self) -> MemoryClient:
        return SlowClient(self)


class SlowClient(MemoryClient):
    """A client of a :class:`SlowCluster`."""

    def __init__(self, cluster: SlowCluster) -> None:
        super().__init__(cluster)
        self.slow = cluster

    def patch(self, *arguments: Any, **more: Any) -> Deferred[Any]:
        self.slow.patches += 1
        return Deferred()


@implementer(IConsoleAlerts)
class OldRuntime:
    """A runtime without alerts."""

    def set_alerts(self, request: pb.SetAlertsRequest) -> Deferred[Any]:
        return fail(NotImplementedByBackend("unknown service"))

    list_matches = set_alerts  # type: ignore[assignment]


@implementer(IConsoleAlerts)
class AlertControllerTests(SynchronousTestCase):
    """One poollet, its runtime and its API server."""

    def setUp(self) -> None:
        os.mkdir(directory := self.mktemp())
        self.path = os.path.join(directory, "alerts.json")
        self.clock, self.cluster = Clock(), MemoryCluster()
        self.machines = [machine("vm"), machine("db", role="db"), machine("far", "elsewhere")]
        self.journals = {
            each["metadata"]["uid"]: Journal(self.now_nanoseconds) for each in self.machines
        }
        self.looked: list[str] = []
        self.reported: list[tuple[str, ...]] = []
        self.runtime: Any = self.make_runtime()
        self.poollet = self.start()

    def now_nanoseconds(self) -> int:
        return int((BEGIN + self.clock.seconds()) * 10**9)

    def make_runtime(self) -> ConsoleAlerts:
        made = ConsoleAlerts(self.path, self.clock, self.now_nanoseconds, JobsAtOnce)
        for uid, journal in self.journals.items():
            made.add(uid, journal)
        return made

    def start(self) -> AlertController:
        self.registry = CollectorRegistry()
        made = AlertController(
            self.cluster.client(),
            self,
            self.clock,
            IRONCORE,
            "pool-a",
            machines=lambda: self.machines,
            synced=lambda: True,
            look_again=self.looked.append,
            registry=self.registry,
            report=lambda about, *event: self.reported.append((about["metadata"]["name"], *event)),
            now=lambda: BEGIN + self.clock.seconds(),
        )
        made.start()
        self.run_for(1)
        return made

    # The runtime of the poollet: whichever there is now.

    def set_alerts(self, request: pb.SetAlertsRequest) -> Any:
        return self.runtime.set_alerts(request)

    def list_matches(self, request: pb.ListMatchesRequest) -> Any:
        return self.runtime.list_matches(request)

    def run_for(self, seconds: float) -> None:
        self.clock.pump([0.05] * round(seconds * 20))

    def alert(self, name: str = "linux", namespace: str = "lab", **spec: Any) -> None:
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "generation": 1,
            "creationTimestamp": timestamp(BEGIN + self.clock.seconds()),
        }
        spec = spec or {"presets": ["linux"]}
        self.cluster.put((ALERTS, namespace, name), {"metadata": metadata, "spec": spec})
        self.run_for(3)

    def print(self, data: bytes, name: str = "vm") -> None:
        self.journals[f"uid-{name}"].append(data)
        self.run_for(1)

    def events(self) -> list[dict[str, Any]]:
        return [obj for key, obj in self.cluster.objects.items() if key[0] == EVENTS.resource]

    def pools(self, name: str = "linux", namespace: str = "lab") -> list[dict[str, Any]]:
        self.run_for(3)
        alert = self.cluster.objects[ALERTS, namespace, name]
        return list((alert.get("status") or {}).get("pools") or ())

    def test_event(self) -> None:
        """
        A line becomes an Event within a second, a count, and a look at the machine's conditions.
        """
        self.alert()
        self.print(b"\x1b[1m" + PANIC)
        (event,) = self.events()
        self.assertEqual(
            (event["type"], event["reason"], event["involvedObject"]["uid"], event["message"]),
            (
                "Warning",
                "KernelPanic",
                "uid-vm",
                "Critical: pattern kernel-panic of alert linux at offset 0: "
                '"[ 1.5] Kernel panic - not syncing: test"',
            ),
        )
        self.assertEqual(self.looked, ["uid-vm"])
        labels = {
            "namespace": "lab",
            "alert": "linux",
            "pattern": "kernel-panic",
            "severity": "Critical",
        }
        name = "twisted_exec_console_alert_matches_total"
        self.assertEqual(self.registry.get_sample_value(name, labels), 1)

    def test_selection(self) -> None:
        """
        An alert applies to machines of its namespace with its labels.
        """
        self.alert(selector={"matchLabels": {"role": "db"}}, presets=["linux"])
        for name in ("vm", "db", "far"):
            self.print(PANIC, name)
        self.assertEqual([each["involvedObject"]["name"] for each in self.events()], ["db"])
        self.machines[0]["metadata"] = {**self.machines[0]["metadata"], "labels": {"role": "db"}}
        self.poollet.machine_changed(machine("vm"), self.machines[0])
        self.run_for(2)
        self.print(PANIC)
        self.assertEqual(len(self.events()), 2)

    def test_deleted_alert(self) -> None:
        """
        A deleted alert finds nothing any more.
        """
        self.alert()
        self.cluster.remove((ALERTS, "lab", "linux"))
        self.run_for(2)
        self.print(PANIC)
        self.assertEqual(self.events(), [])

    def test_status(self) -> None:
        """
        The pool's entry has counts and the last match; entries of other pools stay.
        """
        self.alert()
        other = {"resource": "machinepools.compute.ironcore.dev", "name": "pool-b"}
        alert = self.cluster.objects[ALERTS, "lab", "linux"]
        pools = [*alert["status"]["pools"], other]
        self.cluster.put((ALERTS, "lab", "linux"), {**alert, "status": {"pools": pools}})
        self.print(PANIC)
        kept, own = sorted(self.pools(), key=len)
        self.assertEqual(kept, other)
        self.assertEqual(
            (own["state"], own["machines"], own["matches"], own["lastMachine"], own["lastPattern"]),
            ("Watching", 2, 1, "vm", "kernel-panic"),
        )

    def test_unsupported(self) -> None:
        """
        Behind a runtime of another make the status says so; a later runtime is used.
        """
        working, self.runtime = self.runtime, OldRuntime()
        self.poollet.stop()
        self.poollet = self.start()
        self.alert()
        (own,) = self.pools()
        self.assertEqual(own["state"], "Unsupported")
        self.runtime = working
        self.run_for(70)
        self.print(PANIC)
        self.assertEqual((self.pools()[0]["state"], len(self.events())), ("Watching", 1))

    def test_old_runtime_for_a_while(self) -> None:
        """
        The same if the runtimes are exchanged while the poollet runs.
        """
        self.alert()
        working, self.runtime = self.runtime, OldRuntime()
        working.list_matches(pb.ListMatchesRequest(owner=self.poollet._owner))  # ends the wait
        self.run_for(5)
        self.assertEqual(self.pools()[0]["state"], "Unsupported")
        self.runtime = working
        self.run_for(130)
        self.print(PANIC)
        self.assertEqual((self.pools()[0]["state"], len(self.events())), ("Watching", 1))

    def test_bad_regex(self) -> None:
        """
        What the runtime cannot search is in the status.
        """
        self.alert(patterns=[{"name": "a", "regex": "a("}, {"name": "b", "literal": "panic"}])
        self.print(PANIC)
        (own,) = self.pools()
        self.assertEqual((own["state"], own["matches"]), ("Degraded", 1))
        self.assertTrue(own["message"])
        about, _ = self.events()
        self.assertEqual(
            (about["involvedObject"]["kind"], about["reason"], about["message"]),
            ("ConsoleAlert", "AlertDegraded", f"pool pool-a: {own['message']}"),
        )
        self.assertEqual(about["lastTimestamp"][:13], timestamp(BEGIN)[:13])

    def test_suspended(self) -> None:
        """
        An alert that the runtime has suspended is degraded, with one Event, and others go on; until
        its pattern changes.
        """
        self.alert("costly", patterns=[{"name": "a", "literal": "costly"}])
        self.patch(search, "BURST_SECONDS", -1.0)
        self.print(b"x\n")
        self.patch(search, "BURST_SECONDS", 1000.0)
        self.alert("other")
        self.run_for(5)
        (own,) = self.pools("costly")
        self.assertEqual((own["state"], own["message"]), ("Degraded", search.OVER_BUDGET))
        self.print(b"costly\n" + PANIC)
        self.assertEqual(
            [each["reason"] for each in self.events()], ["AlertDegraded", "KernelPanic"]
        )
        alert = self.cluster.objects[ALERTS, "lab", "costly"]
        changed = {"patterns": [{"name": "a", "literal": "cheap"}]}
        self.cluster.put((ALERTS, "lab", "costly"), {**alert, "spec": changed})
        self.run_for(3)
        self.print(b"cheap\n")
        self.assertEqual((self.pools("costly")[0]["state"], len(self.events())), ("Watching", 3))

    def test_too_many_patterns(self) -> None:
        """
        The oldest alerts are searched; those beyond the limit say so.
        """
        self.patch(rules, "MOST_PATTERNS", 1)
        self.alert("first", patterns=[{"name": "a", "literal": "x"}])
        self.alert("second", patterns=[{"name": "a", "literal": "y"}])
        self.assertEqual(self.pools("first")[0]["state"], "Watching")
        self.assertEqual(self.pools("second")[0]["state"], "Unsupported")

    def test_restarted_poollet(self) -> None:
        """
        A poollet that was killed after it wrote the Event, but before its acknowledgement, writes no second one.
        """
        self.alert()
        self.print(PANIC)
        (event,) = self.events()
        self.poollet.stop()
        os.unlink(self.path)  # as if both were killed before the acknowledgement
        self.runtime = self.make_runtime()
        self.journals["uid-vm"].cursor("alerts").save(0)
        self.poollet = self.start()
        self.run_for(5)
        self.assertEqual(
            [each["metadata"]["name"] for each in self.events()], [event["metadata"]["name"]]
        )

    def test_counted_after_a_restart(self) -> None:
        """
        The count of a new poollet continues that of the last one.
        """
        self.alert(patterns=[{"name": "a", "literal": "x", "throttleSeconds": 0}])
        self.print(b"x\n")
        self.assertEqual(self.pools()[0]["matches"], 1)
        self.poollet.stop()
        self.poollet = self.start()
        self.print(b"x\n")
        self.assertEqual((self.pools()[0]["matches"], len(self.events())), (2, 2))

    def test_restarted_runtime(self) -> None:
        """
        A new runtime gets the rules again, and searches what was printed meanwhile.
        """
        self.alert()
        self.print(b"before\n")
        self.runtime.stop()
        self.journals["uid-vm"].append(PANIC)
        self.runtime = self.make_runtime()
        self.run_for(30)
        self.assertEqual(len(self.events()), 1)

    def test_failing_server(self) -> None:
        """
        While the API server fails, matches wait; none is lost.
        """
        self.alert()
        self.cluster.problem = ServiceUnavailable("down")
        self.print(PANIC)
        self.run_for(60)
        self.cluster.problem = None
        self.run_for(60)
        self.assertEqual(len(self.events()), 1)

    def test_failing_match(self) -> None:
        """
        A match that cannot be handled is told on its machine and retried; others do not wait.
        """
        self.alert()
        event_of = controller.event_of

        def failing(match: pb.AlertMatch, about: dict[str, Any], *more: Any) -> dict[str, Any]:
            if about["metadata"]["name"] == "vm":
                raise ZeroDivisionError
            return event_of(match, about, *more)

        self.patch(controller, "event_of", failing)
        self.print(PANIC)
        self.print(PANIC, "db")
        self.run_for(5)
        self.assertEqual([each["involvedObject"]["name"] for each in self.events()], ["db"])
        ((name, *_, reason, why),) = self.reported
        self.assertEqual((name, reason), ("vm", controller.NOT_HANDLED))
        self.assertIn("its log says more", why)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.patch(controller, "event_of", event_of)
        self.run_for(60)
        self.assertEqual(len(self.events()), 2)

    def test_failing_rules(self) -> None:
        """
        An alert whose rules cannot be made says so; others are searched.
        """
        patterns_of = rules.patterns_of

        def failing(spec: dict[str, Any]) -> Any:
            if spec.get("broken"):
                raise ZeroDivisionError
            return patterns_of(spec)

        self.patch(rules, "patterns_of", failing)
        self.alert("broken", broken=True)
        self.alert()
        self.print(PANIC)
        self.assertEqual(len(self.events()), 1)
        self.assertIn("its log says more", self.pools("broken")[0]["message"])
        self.assertTrue(self.flushLoggedErrors(ZeroDivisionError))

    def test_failing_status(self) -> None:
        """
        An alert whose status cannot be made has an Event; others get theirs.
        """
        entry_of = controller.entry_of

        def failing(pool: Any, alert: dict[str, Any], *more: Any, **options: Any) -> Any:
            if alert["metadata"]["name"] == "broken":
                raise ZeroDivisionError
            return entry_of(pool, alert, *more, **options)

        self.patch(controller, "entry_of", failing)
        self.alert("broken")
        self.alert()
        self.assertEqual(self.pools()[0]["state"], "Watching")
        (about,) = self.events()
        self.assertEqual(about["involvedObject"]["name"], "broken")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_flood(self) -> None:
        """
        One machine cannot fill the API server with Events.
        """
        self.alert(patterns=[{"name": "a", "literal": "line", "throttleSeconds": 0}])
        for number in range(3 * BURST):
            self.journals["uid-vm"].append(b"line %d\n" % number)
        self.run_for(2)
        self.assertEqual(len(self.events()), BURST)
        self.assertEqual(self.pools()[0]["matches"], 3 * BURST)

    def test_old_server(self) -> None:
        """
        An API server without the kind has no alerts.
        """
        self.poollet.stop()
        del self.cluster.kinds[ALERTS]
        self.poollet = self.start()
        self.run_for(60)
        self.print(PANIC)
        self.assertEqual(self.events(), [])

    def test_stopped_while_writing(self) -> None:
        """
        A stop while a status is being written is no problem of the alert.
        """
        self.cluster = slow = SlowCluster()
        self.poollet.stop()
        self.poollet = self.start()
        self.alert()
        self.assertTrue(slow.patches)
        self.poollet.stop()
        self.assertEqual(self.events(), [])
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_stop(self) -> None:
        """
        After a stop nothing is pending.
        """
        self.alert()
        self.poollet.stop()
        self.runtime.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class MetricsTests(SynchronousTestCase):
    """The counter."""

    def test_many_labels(self) -> None:
        """
        The number of label values is limited.
        """
        registry = CollectorRegistry()
        metrics = controller.AlertMetrics(registry)
        for number in range(1010):
            alert = {"metadata": {"namespace": "a", "name": f"x{number}"}}
            metrics.matched(alert, AlertPattern("p", Pattern("t")))
        (family,) = registry.collect()
        counts = [each for each in family.samples if each.name.endswith("_total")]
        self.assertEqual((len(counts), sum(each.value for each in counts)), (1001, 1010))


class RulesTests(SynchronousTestCase):
    """Tests for :func:`make_rules`, which goes through all alerts and machines."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.compared = 0

    def alert(self, number: int, terms: int = 1, namespace: str = "lab") -> dict[str, Any]:
        """An alert that selects every machine of a namespace."""
        expressions = [{"key": f"k{term}", "operator": "DoesNotExist"} for term in range(terms)]
        metadata = {"name": f"a{number}", "namespace": namespace, "uid": f"{namespace}-{number:03}"}
        spec = {"selector": {"matchExpressions": expressions}, "presets": ["linux"]}
        return {"metadata": metadata, "spec": spec}

    def make(self, alerts: int, machines: int, *more: dict[str, Any]) -> Deferred[rules.PoolRules]:
        own = [machine(f"vm-{number}") for number in range(machines)]
        several = [self.alert(number, 4) for number in range(alerts)]
        turns = ShortTurns(self.clock)
        making = rules.make_rules(
            "me", [*several, *more], [*own, machine("far", "elsewhere")], turns
        )
        return Deferred.fromCoroutine(making)

    def test_short_turns(self) -> None:
        """Alerts are compared with machines in short turns, however many there are."""
        matches = LabelSelector.matches

        def slow(selector: LabelSelector, labels: Any) -> bool:
            self.compared += 1
            self.clock.rightNow += TURN_SECONDS / 100
            return matches(selector, labels)

        self.patch(LabelSelector, "matches", slow)
        making, most = self.make(20, 100), 0
        while not making.called:
            before = self.compared
            self.clock.advance(REST_SECONDS)
            most = max(most, self.compared - before)
        self.assertLess(most, 200)
        self.assertEqual(self.compared, 2000)
        self.assertEqual(len(self.successResultOf(making).alerts), 20)

    def test_unusable_selector(self) -> None:
        """An alert with a selector that is refused now is not searched, and says why; the others are."""
        bad = self.alert(9)
        bad["spec"]["selector"] = {"matchExpressions": [{"key": "a", "operator": "In"}]}
        made = self.successResultOf(self.make(1, 1, bad))
        problems = {uid: each.problem for uid, each in made.alerts.items()}
        problem = "spec.selector: the operator In of a label selector needs values"
        self.assertEqual(problems, {"lab-000": "", "lab-009": problem})

    def test_many_comparisons(self) -> None:
        """A namespace whose selectors take too long has its latest alerts unsearched; others have not."""
        self.patch(rules, "MOST_COMPARISONS", 100)
        made = self.successResultOf(self.make(4, 10, self.alert(0, 4, "elsewhere")))
        problems = {uid: each.problem for uid, each in made.alerts.items()}
        limit = rules.TOO_MANY_COMPARISONS
        expected = dict(
            zip([f"lab-{each:03}" for each in range(4)], ["", "", limit, limit], strict=True)
        )
        self.assertEqual(problems, {**expected, "elsewhere-000": ""})
        self.assertEqual(len(made.request.machines), 11)
