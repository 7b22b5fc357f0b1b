"""
Tests for ``docs/reference/observing.rst`` and ``docs/reference/answers.rst``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.nodeserver.support import simple
from tests.shipping.doubles import MemorySink
from tests.spacemanager.support import Hub
from tests.streaming.session_streams import StreamDouble
from twisted_exec.api.dialects import DEFAULT
from twisted_exec.api.kinds.alert_patterns import AlertPattern
from twisted_exec.api.patterns import Pattern
from twisted_exec.api.spaces import SPACES
from twisted_exec.apiserver.aggregated.control_plane import Aggregated, Behind
from twisted_exec.apiserver.auditing.policy import DEFAULT_POLICY, load
from twisted_exec.apiserver.serving.fairness import ExpensiveRequestMetrics
from twisted_exec.auth.permission_watch import PermissionWatch
from twisted_exec.journal.store import JournalMetrics, JournalStore
from twisted_exec.mcp.service import AgentMetrics
from twisted_exec.mcp.sessions import Limits as AgentLimits
from twisted_exec.mcp.sessions import Sessions as AgentSessions
from twisted_exec.nodeserver.leaves.metrics import LeafMetrics
from twisted_exec.poollet.alerts.controller import AlertMetrics
from twisted_exec.poollet.machines import actor, loop, references
from twisted_exec.program.audit import SUBJECT_KEYS, Trail
from twisted_exec.program.interfaces import IAuditSink
from twisted_exec.program.metrics import (
    ExpiryMetrics,
    MetricsRegistry,
    register_build,
)
from twisted_exec.program.session_metrics import LatencyMetrics, SessionMetrics
from twisted_exec.racks.metrics import RackMetrics
from twisted_exec.recording.stores.uploads import UploadMetrics
from twisted_exec.runtimes.recordings.metrics import RecordingMetrics
from twisted_exec.runtimes.serving.kept_sessions import KeptSessions
from twisted_exec.shipping.metrics import ShippingMetrics
from twisted_exec.shipping.shipper import Shipper
from twisted_exec.spacemanager.metrics import ProviderCallMetrics, SpaceMetrics
from twisted_exec.sshd.limits import Admission, Limits
from twisted_exec.sshd.metrics import ConnectionMetrics, DoorMetrics
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.sessions.round_trips import RoundTripMetrics
from twisted_exec.streaming.subject import Subject
from twisted_exec.testing.cluster import MemoryCluster
from twisted_exec.wire.endings import EXIT_REASON, FAILURES

from . import pages


@implementer(IAuditSink)
class RecordingSink:
    """An audit sink that stores its records."""

    def __init__(self) -> None:
        self.records: list[Mapping[str, Any]] = []

    def record(self, event: Mapping[str, Any]) -> None:
        self.records.append(event)


def names(page: str, title: str) -> set[str]:
    """Return the literals in the first column of a table."""
    return pages.first_column(pages.table(page, title))


class ObservingPageTests(SynchronousTestCase):
    """The page names exactly the keys and metrics that exist."""

    def setUp(self) -> None:
        self.page = pages.page("reference/observing")

    def test_audit_keys(self) -> None:
        """The page lists the keys of a start record and the additional keys of an end record."""
        sink = RecordingSink()
        Trail(sink, "runtime", Clock()).refused(dict.fromkeys(SUBJECT_KEYS, "x"), 403, "forbidden")
        start, end = sink.records
        self.assertEqual(names(self.page, "Keys of every record"), set(start))
        self.assertEqual(
            names(self.page, "Additional keys of an end record"), set(end) - set(start)
        )

    def test_audit_policy(self) -> None:
        """The page shows the default policy."""
        path = pages.DOCS / "reference" / "audit-policy.yaml"
        self.assertEqual(load(str(path)), DEFAULT_POLICY)

    def test_metrics(self) -> None:
        """The page lists every metric with its labels, by the names that Prometheus shows."""
        registry = self.registry()
        samples = [sample for metric in registry.collect() for sample in metric.samples]
        named = {each.name for each in samples if not each.name.endswith("_created")}
        self.assertEqual(names(self.page, "Metrics"), named)
        table = pages.table(self.page, "Metrics")
        for sample in samples:
            for label in sample.labels:
                self.assertIn(f"``{label}``", table, sample.name)

    def registry(self) -> MetricsRegistry:
        """Return a registry with every metric of ours, and labels where a metric has some."""
        registry = MetricsRegistry(Clock())
        register_build(registry)
        registry.queues.of("scheduler")
        SessionMetrics(registry).refused(403)
        LatencyMetrics(registry)
        self.register_round_trips(registry)
        ExpensiveRequestMetrics(registry)
        ExpiryMetrics(registry, lambda: {"tls-cert-file": 0.0})
        UploadMetrics().register(registry)
        KeptSessions(Clock(), 60, registry)
        JournalMetrics(registry, JournalStore("", Clock()))
        RecordingMetrics(registry, lambda: None)
        LeafMetrics(registry, simple()[1])
        ProviderCallMetrics(registry).called("p", "get", 1.0, 502)
        RackMetrics(registry, lambda: {"listed": 1})
        DoorMetrics(registry)
        ConnectionMetrics(registry, Admission(Limits()))
        AgentMetrics(registry, AgentSessions(AgentLimits(), lambda _: None, Clock()))
        self.register_spaces(registry)
        self.register_shipping(registry)
        alert = {"metadata": {"namespace": "a", "name": "b"}}
        AlertMetrics(registry).matched(alert, AlertPattern("c", Pattern("d")))
        host = Aggregated(lambda reactor: MemoryCluster().client())
        Behind(host, MemoryStorage(), (DEFAULT,), Clock(), registry)
        PermissionWatch(MemoryCluster().client(), Clock(), registry, list)
        return registry

    def register_round_trips(self, registry: CollectorRegistry) -> None:
        """Register the round trips of a session."""
        sessions = Sessions(Trail(RecordingSink(), "runtime", Clock()))
        session = sessions.open(Subject("s"))
        session.carry(StreamDouble(transports=lambda: (0, 0)))
        RoundTripMetrics(registry, sessions, lambda _: 0.01)

    def register_shipping(self, registry: CollectorRegistry) -> None:
        """Add a sink without lines."""
        metrics = ShippingMetrics(registry)
        sink = MemorySink()
        metrics.watch(sink.name, Shipper(sink, Clock(), metrics.of(sink.name)))

    def register_spaces(self, registry: CollectorRegistry) -> None:
        """Register the metrics of a Space with expiring credentials."""
        hub = Hub()
        hub.desc("here")
        hub.space("a", "here", Type="managed")
        key = (SPACES, "spaceprovider-here", "a")
        hub.cluster.objects[key]["status"] = {"credentialsExpireTime": "2027-01-01T00:00:00Z"}
        providers = hub.providers()
        providers.startService()
        self.addCleanup(providers.stopService)
        SpaceMetrics(registry, lambda: (providers, hub.spaces), hub.now)

    def test_events(self) -> None:
        """The page lists every reason of a poollet's Events."""
        table = pages.table(self.page, "Events of poollets")
        lacking = (
            references.VOLUME_NOT_READY,
            references.INTERFACE_NOT_READY,
            references.IGNITION_NOT_READY,
            references.UNSUPPORTED,
            references.CLASS_NOT_READY,
            loop.FAILED,
        )
        for reason in (*actor.FAILURES.values(), *lacking):
            self.assertIn(f"``{reason}``", table)


class AnswersPageTests(SynchronousTestCase):
    """The page has every reason for the end of a session."""

    def test_causes(self) -> None:
        """The section lists exactly the reasons that a Status may have."""
        section = pages.section(pages.page("reference/answers"), "The end of a session")
        self.assertEqual(pages.first_column(section), FAILURES | {EXIT_REASON})
