"""Tests for :mod:`twisted_exec.testing.lying`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.poollet.doubles import MemoryRuntime
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.iri.interfaces import IMachineRuntime
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.testing.lying import LyingRuntime, at, crowd, in_state, nothing, twice


class LyingRuntimeTests(SynchronousTestCase):
    """Tests for :class:`LyingRuntime`."""

    def setUp(self) -> None:
        self.truth = MemoryRuntime()
        self.runtime = LyingRuntime(self.truth)
        self.one = self.truth.add()

    def listed(self) -> list[pb.Machine]:
        answer = self.successResultOf(self.runtime.list_machines(pb.ListMachinesRequest()))
        return list(answer.machines)

    def test_door(self) -> None:
        """It is a runtime like any other."""
        verifyObject(IMachineRuntime, self.runtime)

    def test_truth(self) -> None:
        """By default, every answer is true."""
        self.assertEqual(self.listed(), [self.one])
        answer = self.successResultOf(self.runtime.version(pb.VersionRequest()))
        self.assertEqual(answer.runtime_name, "memory")

    def test_lies(self) -> None:
        """Lists that are too long, too short, double, or of another state."""
        for lie, number in ((crowd(5, a="b"), 6), (nothing, 0), (twice, 2)):
            self.runtime.lies["list_machines"] = lie
            self.assertEqual(len(self.listed()), number)
        self.runtime.lies["list_machines"] = in_state(pb.MACHINE_PENDING, pb.MACHINE_STOPPED)
        states = [self.listed()[0].status.state for _ in range(3)]
        self.assertEqual(states, [pb.MACHINE_PENDING, pb.MACHINE_STOPPED, pb.MACHINE_STOPPED])
        self.assertEqual(self.one.status.state, pb.MACHINE_RUNNING)

    def test_url(self) -> None:
        """A console that is elsewhere."""
        self.runtime.lies["exec"] = at("http://192.0.2.1/")
        asked = self.runtime.exec(pb.ExecRequest(machine_id=self.one.metadata.id), user="jane")
        self.assertEqual(self.successResultOf(asked).url, "http://192.0.2.1/")
        self.assertEqual(self.truth.execs[0][1], "jane")

    def test_silence(self) -> None:
        """A silent method never answers; a dead runtime fails with ServiceUnavailable."""
        self.runtime.silent = {"version"}
        self.assertNoResult(self.runtime.version(pb.VersionRequest()))
        self.runtime.dead = True
        self.failureResultOf(self.runtime.status(pb.StatusRequest()), ServiceUnavailable)
