"""
The controller in a package of its own, of ``docs/howto/add-a-controller.rst``.

A real kube-apiserver serves its definition in ``tests/interop/example_crd.py``.
"""

from __future__ import annotations

import re

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.examples.test_controller import example
from tests.examples.test_examples import EXAMPLES
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Kind
from twisted_exec.clients import timestamp
from twisted_exec.testing.cluster import MemoryCluster

window_controller = example("window_controller")
WINDOWS = window_controller.WINDOWS


class WindowTests(SynchronousTestCase):
    """The program, with a cluster in memory and a clock."""

    def setUp(self) -> None:
        kind = Kind(WINDOWS, "maintenancewindow", has_status=True)
        self.cluster = MemoryCluster((*kinds.ALL, kind))
        self.client, self.clock = self.cluster.client(), Clock()
        self.clock.advance(1_800_000_000)
        elected = window_controller.program(self.client, self.clock, self.clock.seconds)
        elected.start()
        self.addCleanup(lambda: self.successResultOf(elected.stop()))

    def create(self, start: float, end: float) -> None:
        now = self.clock.seconds()
        spec = {"startTime": timestamp(now + start), "endTime": timestamp(now + end)}
        window = {"metadata": {"name": "w"}, "spec": {"machines": ["vm"], **spec}}
        self.successResultOf(self.client.create(WINDOWS, window, "default"))
        self.clock.advance(0)

    def state(self) -> str:
        window = self.successResultOf(self.client.get(WINDOWS, "w", "default"))
        return str(window["status"]["state"])

    def test_life(self) -> None:
        """The state follows the clock, and one Event says that the window begins."""
        self.create(90, 120)
        for seconds, state in ((0, "Pending"), (89, "Pending"), (1, "Active"), (30, "Over")):
            self.clock.pump([1] * seconds)
            self.assertEqual(self.state(), state)
        events = self.successResultOf(self.client.list(kinds.EVENTS.resource))["items"]
        self.assertEqual([each["message"] for each in events], ["maintenance of vm"])

    def test_lost_watch(self) -> None:
        """A change while the watch is broken is not missed."""
        self.cluster.end_watches()
        self.create(-1, 60)
        self.clock.pump([1] * 10)
        self.assertEqual(self.state(), "Active")


class ImportTests(SynchronousTestCase):
    """The package has a release of its own."""

    def test_stable(self) -> None:
        """The controller and its program import only from modules with stable names."""
        for name in ("window_controller.py", "window_application.py"):
            found = set(re.findall(r"^from (twisted_exec\S*)", (EXAMPLES / name).read_text(), re.M))
            stable = {f"twisted_exec.{each}" for each in ("clients", "interfaces", "stores")}
            self.assertEqual(found - stable, set())
