"""Tests for :mod:`twisted_exec.cli.fleet.progress`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.dialects import DEFAULT
from twisted_exec.cli.fleet.follower import FollowerState
from twisted_exec.cli.fleet.progress import FleetProgress
from twisted_exec.cli.fleet.targets import Cluster, FleetTarget
from twisted_exec.kube.kubeconfig.client_config import ClientConfig

CLUSTER = Cluster("", ClientConfig("http://127.0.0.1:1"))


class Machine:
    """A machine in some state."""

    def __init__(self, name: str) -> None:
        self.target = FleetTarget(CLUSTER, DEFAULT, "default", name, name, name)
        self.state, self.problem = FollowerState.OPENING, ""


class ProgressTests(SynchronousTestCase):
    """Messages about many machines."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.said: list[str] = []
        self.informed: list[str] = []
        self.progress = FleetProgress(self.clock, self.said.append, self.informed.append)
        self.machines = [Machine(f"web-{number}") for number in range(6)]
        self.progress.add(self.machines)

    def become(self, state: FollowerState, problem: str = "", first: int = 0, end: int = 6) -> None:
        for each in self.machines[first:end]:
            each.state, each.problem = state, problem.replace("NAME", each.target.name)
            self.progress.changed(each)

    def test_opening(self) -> None:
        """The number of open consoles is reported each second, and at once when all are open."""
        self.become(FollowerState.OPEN, end=2)
        self.clock.pump([1, 1])
        self.become(FollowerState.OPEN)
        self.assertEqual(
            self.informed,
            ["opened 2 of 6 consoles"] * 2
            + ["following 6 of 6 machines after 2.0 s; Ctrl-C leaves"],
        )
        self.clock.advance(10)
        self.assertEqual((len(self.informed), self.said), (3, []))

    def test_folded(self) -> None:
        """Machines that fail for the same reason share a message, whatever their names."""
        self.become(FollowerState.OPEN, end=1)
        self.become(FollowerState.RETRYING, 'machine "NAME" is starting', first=1)
        self.clock.advance(1)
        self.assertEqual(
            self.said, ['web-1, web-2, web-3 and 2 more: machine "web-1" is starting; trying again']
        )
        self.become(FollowerState.OPEN, first=1)
        self.clock.advance(1)
        self.assertEqual(self.informed[-1], "web-1, web-2, web-3 and 2 more: open again")

    def test_short_outage(self) -> None:
        """An outage that ends within a second is not reported."""
        self.become(FollowerState.OPEN)
        self.become(FollowerState.RETRYING, "lost")
        self.become(FollowerState.OPEN)
        self.clock.advance(5)
        self.assertEqual((self.said, len(self.informed)), ([], 1))

    def test_last_changes(self) -> None:
        """What happened in the last second is reported at the end."""
        self.become(FollowerState.REFUSED, "no\x1b[2J")
        self.progress.close()
        self.assertEqual(self.said, ["web-0, web-1, web-2 and 3 more: no?[2J"])
        self.assertEqual(self.clock.getDelayedCalls(), [])
