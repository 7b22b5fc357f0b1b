"""Tests for :mod:`twisted_exec.spacemanager.metrics`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.spacemanager.support import EPOCH, Hub
from twisted_exec.api.spaces import SPACES
from twisted_exec.api.status import BadGateway
from twisted_exec.api.times import timestamp
from twisted_exec.program.metrics import metrics_text, new_registry
from twisted_exec.spacemanager.metrics import ProviderCallMetrics, SpaceMetrics


class FiguresTests(SynchronousTestCase):
    """Metrics of a manager."""

    def test_calls(self) -> None:
        """Finished calls are counted, failures by code; cancelled calls (499) are not counted."""
        registry = new_registry(process=False)
        figures = ProviderCallMetrics(registry)
        figures.called("p", "get", 0.02, 0)
        figures.called("p", "get", 3.0, 502)
        figures.called("p", "get", 3.0, 499)
        text = metrics_text(registry).decode()
        named = "twisted_exec_space_provider_call"
        self.assertIn(f'{named}_seconds_count{{call="get",provider="p"}} 2.0', text)
        self.assertIn(f'{named}_failures_total{{call="get",code="502",provider="p"}} 1.0', text)

    def test_spaces(self) -> None:
        """The leader exports Spaces by phase, provider reachability and credential expiry."""
        hub = Hub()
        hub.desc("up")
        hub.desc("down")
        hub.world("down").problem = BadGateway("away")
        providers = hub.providers()
        providers.startService()
        self.addCleanup(lambda: self.successResultOf(providers.stopService()))
        hub.pass_time(1)
        for number in range(3):
            hub.space(f"s{number}", "up", Type="managed")
            end = "soon" if number == 2 else timestamp(EPOCH + 60 * (number + 1))
            status = {"Phase": "Ready" if number else "NotReady", "credentialsExpireTime": end}
            key = (SPACES, "spaceprovider-up", f"s{number}")
            hub.cluster.objects[key]["status"] = status
        registry = new_registry(process=False)
        known = None

        def leads() -> object:
            return known

        SpaceMetrics(registry, leads, lambda: EPOCH)  # type: ignore[arg-type]
        self.assertNotIn("{", metrics_text(registry).decode())
        known = providers, hub.spaces
        text = metrics_text(registry).decode()
        for line in (
            'twisted_exec_spaces{phase="Ready",provider="up",type="managed"} 2.0',
            'twisted_exec_spaces{phase="NotReady",provider="up",type="managed"} 1.0',
            'twisted_exec_space_provider_reachable{provider="up"} 1.0',
            'twisted_exec_space_provider_reachable{provider="down"} 0.0',
            'credentials_expiry_seconds{namespace="spaceprovider-up",space="s1"} 120.0',
        ):
            self.assertIn(line, text)
        self.assertNotIn('space="s2"', text)
