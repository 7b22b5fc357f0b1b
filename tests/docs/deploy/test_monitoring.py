"""
Tests for ``docs/deploy/prometheus`` and ``docs/deploy/grafana``.
"""

from __future__ import annotations

import re

import yaml
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.docs import pages
from tests.docs.test_observing import ObservingPageTests
from twisted_exec.program.metrics import new_registry

from .monitoring import CONFIG, RULES, Query, panels, queries_of_panels, queries_of_rules, rules

OF_PROMETHEUS = {"job", "instance"}


class ScrapeCase(SynchronousTestCase):
    """
    A scrape of every metric that our programs have.

    :ivar labels: the labels of each name.
    """

    def setUp(self) -> None:
        clock = Clock()
        own, process = ObservingPageTests().registry(), new_registry(clock)
        self.labels: dict[str, set[str]] = {}
        for registry in (own, process):
            for metric in registry.collect():
                for sample in metric.samples:
                    self.labels.setdefault(sample.name, set()).update(sample.labels)

    def check(self, query: Query) -> None:
        """Check that all metrics of a query exist, and have the labels that it mentions."""
        self.assertTrue(query.metrics or query.expression.startswith("up{"), query.name)
        labels = set(OF_PROMETHEUS)
        for name in query.metrics:
            self.assertIn(name, self.labels, query.name)
            labels |= self.labels[name]
        self.assertEqual(query.labels - labels, set(), query.name)


class AlertTests(ScrapeCase):
    """The alert rules."""

    def test_metrics(self) -> None:
        """Every rule is about metrics and labels that exist."""
        for query in queries_of_rules():
            self.check(query)

    def test_page(self) -> None:
        """The page lists exactly the alerts."""
        page = pages.section(pages.page("howto/monitor"), "Alerts")
        listed = pages.first_column(page)
        self.assertEqual(listed, {rule["alert"] for rule in rules()})

    def test_complete(self) -> None:
        """Every alert has a severity, and says what is wrong and what to do."""
        for rule in rules():
            self.assertIn(rule["labels"]["severity"], ("critical", "warning"))
            self.assertEqual(set(rule["annotations"]), {"summary", "description"})

    def test_configuration(self) -> None:
        """The configuration loads the rules, and its jobs have the names that they expect."""
        config = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
        self.assertEqual(config["rule_files"], [RULES.name])
        for job in config["scrape_configs"]:
            self.assertRegex(job["job_name"], r"\Atwisted-exec-")


class DashboardTests(ScrapeCase):
    """The dashboard."""

    def test_metrics(self) -> None:
        """Every panel is about metrics and labels that exist."""
        for query in queries_of_panels():
            self.check(query)

    def test_layout(self) -> None:
        """Panels have different ids and do not overlap."""
        cells: set[tuple[int, int]] = set()
        for panel in panels():
            place = panel["gridPos"]
            covered = {
                (place["x"] + x, place["y"] + y)
                for x in range(place["w"])
                for y in range(place["h"])
            }
            self.assertFalse(covered & cells, panel["title"])
            self.assertTrue(all(x < 24 for x, _ in covered))
            cells |= covered
        self.assertEqual(len({panel["id"] for panel in panels()}), len(panels()))

    def test_source(self) -> None:
        """Every query goes to the source that the user selects."""
        for panel in panels():
            for target in panel.get("targets", ()):
                self.assertEqual(target["datasource"]["uid"], "${datasource}")


class CardinalityTests(ScrapeCase):
    """The labels of metrics about latency."""

    def test_labels(self) -> None:
        """No metric about latency has a label with many values."""
        latency = re.compile("twisted_exec_(echo|ping|tcp_round_trip|reactor_lag)_")
        found = {name for name in self.labels if latency.match(name)}
        self.assertTrue(found)
        for name in found:
            self.assertLessEqual(self.labels[name], {"le", "side", "quantile"}, name)

    def test_scrape(self) -> None:
        """A scrape has the same metrics, as text."""
        clock = Clock()
        registry = new_registry(clock, process=False)
        scraped = Deferred.fromCoroutine(registry.scrape())
        clock.pump([0.01] * 5)
        text = self.successResultOf(scraped).decode()
        self.assertIn("\ntwisted_exec_reactor_lag_seconds ", text)
