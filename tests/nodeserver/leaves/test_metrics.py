"""Tests for :mod:`twisted_exec.nodeserver.leaves.metrics`."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry
from twisted.trial.unittest import SynchronousTestCase

from tests.nodeserver.support import simple
from tests.tls.support import client_identity
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.nodeserver.leaves.metrics import LeafMetrics, certificate_ends
from twisted_exec.tls.pem import certificates


class LeafMetricsTests(SynchronousTestCase):
    """Tests for :class:`LeafMetrics` and :func:`certificate_ends`."""

    def setUp(self) -> None:
        _, self.leaves = simple()
        (self.leaf,) = self.leaves.leaves

    def test_reached(self) -> None:
        """A leaf counts as reached while it has no problem, and not at all when it is gone."""
        registry = CollectorRegistry()
        LeafMetrics(registry, self.leaves)

        def value() -> float | None:
            return registry.get_sample_value("twisted_exec_leaf_reached", {"leaf": "one"})

        self.assertEqual(value(), 1)
        self.leaf.problem = "connection refused"
        self.assertEqual(value(), 0)
        self.leaves.leaves.clear()
        self.assertIsNone(value())

    def test_ends(self) -> None:
        """Our client certificate for a leaf has an expiry; a token has none."""
        self.assertEqual(certificate_ends(self.leaves), {})
        pem = client_identity("us").certificate_pem
        assert isinstance(self.leaf.told, ClientConfig)
        self.leaf.told = replace(self.leaf.told, token="", certificate=Material(data=pem))
        (end,) = certificates(pem, "it")[:1]
        self.assertEqual(
            certificate_ends(self.leaves), {"leaf/one": end.not_valid_after_utc.timestamp()}
        )

    def test_none(self) -> None:
        """A leaf without credentials, or with some that cannot be read, is left out."""
        self.leaf.told = ServiceUnavailable("none yet")
        self.assertEqual(certificate_ends(self.leaves), {})
        self.leaf.told = ClientConfig("https://x", certificate=Material(path="/nonexistent"))
        self.assertEqual(certificate_ends(self.leaves), {})
