"""
Tests for :mod:`twisted_exec.kube.election`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from twisted_exec.api import strategy
from twisted_exec.api.kinds import LEASES
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    Conflict,
    Forbidden,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.kube.election import (
    Election,
    ElectionTimings,
    ILeader,
    ILeases,
    claimed,
    holder_of,
    released,
)
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.leases import ClientLeases, new_lease
from twisted_exec.testing.cluster import MemoryCluster

EPOCH = 1_700_000_000.0


@implementer(ILeases)
class OneLease:
    """
    A Lease in memory, under optimistic concurrency.

    :ivar broken: nothing is answered but this.
    :ivar silent: nothing is answered until :meth:`answer`.
    :ivar sent: refusals come over a wire, which keeps their codes and not their types.
    """

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.version = 0
        self.broken: Exception | None = None
        self.silent = self.sent = False
        self.waiting: list[Deferred[Any]] = []

    def get(self) -> Deferred[Object]:
        return self._answered(lambda: self._there())

    def create(self, spec: Object) -> Deferred[Object]:
        def create() -> Object:
            if self.lease is not None:
                raise AlreadyExists("leases", "x")
            return self._store(new_lease("kube-system", "x", spec))

        return self._answered(create)

    def update(self, lease: Object) -> Deferred[Object]:
        def update() -> Object:
            there = self._there()["metadata"]["resourceVersion"]
            if lease["metadata"]["resourceVersion"] != there:
                raise Conflict("changed")
            return self._store(lease)

        return self._answered(update)

    def answer(self) -> None:
        """Answer the held requests."""
        self.silent = False
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done.callback(None)

    def _there(self) -> Object:
        if self.lease is None:
            raise NotFound("leases", "x")
        return self.lease

    def _store(self, lease: Object) -> Object:
        self.version += 1
        told = {**lease["metadata"], "resourceVersion": str(self.version)}
        self.lease = {**lease, "metadata": told}
        return self.lease

    def _answered(self, work: Any) -> Deferred[Any]:
        if self.broken is not None:
            return fail(self.broken)
        done: Deferred[Any] = Deferred()
        done.addCallback(lambda _: work())
        if self.sent:
            done.addErrback(_as_sent)
        if self.silent:
            self.waiting.append(done)
        else:
            done.callback(None)
        return done


def _as_sent(failure: Failure) -> None:
    failure.trap(APIError)
    refused: Any = failure.value
    raise APIError(refused.message, code=refused.code, reason=refused.reason)


@implementer(ILeader)
class Acting:
    """A leader that records its terms; ``lasting`` delays the end of a term."""

    def __init__(self) -> None:
        self.acts = False
        self.terms = 0
        self.lasting: Deferred[None] | None = None

    def elected(self) -> None:
        self.acts = True
        self.terms += 1

    def deposed(self) -> Deferred[None]:
        self.acts = False
        return self.lasting or succeed(None)


class ElectionTests(SynchronousTestCase):
    """Several candidates for one Lease, each with its own clock."""

    def setUp(self) -> None:
        self.leases = OneLease()
        self.clocks: list[Clock] = []

    def candidate(self, name: str, leases: Any = None, ahead: float = 0) -> tuple[Election, Acting]:
        """Start a candidate whose clock differs from the others'."""
        clock, acting = Clock(), Acting()
        clock.advance(1000 * len(self.clocks))
        self.clocks.append(clock)
        election = Election(
            leases or self.leases,
            name,
            acting,
            clock,
            lambda: EPOCH + clock.seconds() + ahead,
            chance=lambda: 0.0,
        )
        election.startService()
        return election, acting

    def pass_(self, seconds: float) -> None:
        """Advance every clock."""
        for _ in range(round(seconds * 2)):
            for clock in self.clocks:
                clock.advance(0.5)

    @property
    def holder(self) -> str:
        return holder_of(self.leases.lease or {})

    def test_doors(self) -> None:
        """The doubles provide ILeases and ILeader."""
        self.assertTrue(verifyObject(ILeases, self.leases))
        self.assertTrue(verifyObject(ILeader, Acting()))

    def test_alone(self) -> None:
        """A lone candidate leads at once and renews its Lease."""
        election, acting = self.candidate("a")
        self.assertTrue(acting.acts)
        self.assertTrue(election.leading)
        spec = (self.leases.lease or {})["spec"]
        self.assertEqual(spec["holderIdentity"], "a")
        self.assertEqual(spec["leaseDurationSeconds"], 15)
        self.assertEqual(spec["leaseTransitions"], 0)
        acquired, renewed = spec["acquireTime"], spec["renewTime"]
        self.pass_(60)
        self.assertEqual(acting.terms, 1)
        spec = (self.leases.lease or {})["spec"]
        self.assertEqual(spec["acquireTime"], acquired)
        self.assertGreater(spec["renewTime"], renewed)

    def test_only_one(self) -> None:
        """The other candidate waits while the Lease is renewed, whatever their clocks say."""
        self.candidate("a", ahead=-7200)
        _, other = self.candidate("b", ahead=7200)
        self.pass_(120)
        self.assertEqual((self.holder, other.terms), ("a", 0))

    def test_at_the_same_moment(self) -> None:
        """Only one of two simultaneous candidates leads."""
        self.leases.silent = True
        _, one = self.candidate("a")
        _, other = self.candidate("b")
        self.leases.answer()
        self.leases.answer()
        self.assertEqual(one.acts + other.acts, 1)
        self.pass_(30)
        self.assertEqual((one.acts, other.acts), (self.holder == "a", self.holder == "b"))

    def test_dies(self) -> None:
        """A dead leader's Lease is taken over 15 s after its last observed change."""
        dead, _ = self.candidate("a")
        dying = self.clocks.pop()
        _, other = self.candidate("b")
        self.pass_(14.5)
        self.assertFalse(other.acts)
        self.pass_(2)
        self.assertTrue(other.acts)
        self.assertEqual((self.leases.lease or {})["spec"]["leaseTransitions"], 1)
        dying.advance(20)  # the process was only suspended
        self.assertFalse(dead.leading)
        self.assertEqual(self.holder, "b")

    def test_released(self) -> None:
        """A released Lease is taken over at once by a candidate that hears of the release."""
        first, acting = self.candidate("a")
        second, other = self.candidate("b")
        self.successResultOf(first.stopService())
        self.assertFalse(acting.acts)
        self.assertEqual(self.holder, "")
        second.heard(self.leases.lease or {})
        self.assertTrue(other.acts)

    def test_released_and_not_heard(self) -> None:
        """A candidate that does not hear of the release takes over within 2 s."""
        first, _ = self.candidate("a")
        _, other = self.candidate("b")
        self.successResultOf(first.stopService())
        self.pass_(2)
        self.assertTrue(other.acts)

    def test_stops_acting_first(self) -> None:
        """The leader releases the Lease only after its work has ended."""
        first, acting = self.candidate("a")
        acting.lasting = Deferred()
        stopping = first.stopService()
        self.assertEqual((acting.acts, self.holder), (False, "a"))
        acting.lasting.callback(None)
        self.successResultOf(stopping)
        self.assertEqual(self.holder, "")

    def test_cannot_renew(self) -> None:
        """A leader whose renewals fail steps down 10 s after the last success."""
        _, acting = self.candidate("a")
        self.leases.broken = ServiceUnavailable("etcd has no leader")
        self.pass_(9.5)
        self.assertTrue(acting.acts)
        self.pass_(0.5)
        self.assertFalse(acting.acts)
        self.leases.broken = None
        self.pass_(2)
        self.assertEqual((acting.acts, acting.terms), (True, 2))

    def test_unanswered(self) -> None:
        """The 10 s start when the last granted renewal was sent, and need no answer to end."""
        _, acting = self.candidate("a")
        self.leases.silent = True
        self.pass_(9.5)
        self.assertTrue(acting.acts)
        self.pass_(0.5)
        self.assertFalse(acting.acts)

    def test_late_answer(self) -> None:
        """A renewal granted while the leader steps down does not make it lead again."""
        election, acting = self.candidate("a")
        acting.lasting = Deferred()
        self.pass_(2)
        self.leases.silent = True
        self.pass_(8)
        self.pass_(1.5)
        self.leases.answer()
        self.pass_(2)
        self.leases.silent = True
        self.pass_(12)
        self.assertFalse(acting.acts)
        self.leases.answer()
        self.assertFalse(acting.acts)
        acting.lasting.callback(None)
        self.pass_(5)
        self.assertTrue(election.leading)
        self.assertEqual(acting.terms, 2)

    def test_taken_away(self) -> None:
        """A leader steps down when the Lease names another holder."""
        _, acting = self.candidate("a")
        lease = self.leases.lease or {}
        spec = claimed(lease, "somebody", ElectionTimings(), EPOCH)
        self.successResultOf(self.leases.update({**lease, "spec": spec}))
        self.pass_(2)
        self.assertFalse(acting.acts)
        self.assertEqual(self.holder, "somebody")

    def test_deleted(self) -> None:
        """If its Lease is deleted, the leader steps down and then runs again."""
        _, acting = self.candidate("a")
        self.leases.lease = None
        self.pass_(2)
        self.assertEqual((acting.acts, self.leases.lease), (False, None))
        self.pass_(2)
        self.assertEqual((acting.acts, acting.terms), (True, 2))

    def test_annotated(self) -> None:
        """Others may write to the Lease as long as the holder stays the same."""
        _, acting = self.candidate("a")
        lease = self.leases.lease or {}
        noted = {**lease, "metadata": {**lease["metadata"], "annotations": {"a": "b"}}}
        self.successResultOf(self.leases.update(noted))
        self.pass_(30)
        self.assertEqual((acting.acts, acting.terms), (True, 1))
        self.assertEqual((self.leases.lease or {})["metadata"]["annotations"], {"a": "b"})

    def test_granted_while_stopping(self) -> None:
        """A claim granted after ``stopService`` is released again."""
        self.leases.silent = True
        election, acting = self.candidate("a")
        stopping = election.stopService()
        self.assertNoResult(stopping)
        self.leases.answer()
        self.successResultOf(stopping)
        self.assertEqual((acting.terms, self.holder), (0, ""))
        self.assertIsNotNone(self.leases.lease)

    def test_stops_without_an_answer(self) -> None:
        """Stopping does not wait for an unresponsive server."""
        election, _ = self.candidate("a")
        self.leases.silent = True
        stopping = election.stopService()
        self.assertNoResult(stopping)
        self.pass_(2)
        self.successResultOf(stopping)
        self.assertEqual(self.clocks[0].getDelayedCalls(), [])

    def test_own_from_before(self) -> None:
        """A candidate whose name is already in the Lease takes it up again."""
        spec = claimed(None, "a", ElectionTimings(), EPOCH)
        self.successResultOf(self.leases.create(spec))
        _, acting = self.candidate("a")
        self.assertTrue(acting.acts)
        self.assertEqual((self.leases.lease or {})["spec"]["leaseTransitions"], 0)

    def test_fault(self) -> None:
        """An unexpected exception is logged, and the election goes on."""
        self.leases.broken = ZeroDivisionError("x")
        _, acting = self.candidate("a")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.leases.broken = None
        self.pass_(2)
        self.assertTrue(acting.acts)


class FailingElectionTests(SynchronousTestCase):
    """A candidate whose attempts fail."""

    def setUp(self) -> None:
        self.leases, self.clock = OneLease(), Clock()
        self.reports: list[str] = []
        self.acting = Acting()
        self.election = Election(
            self.leases,
            "a",
            self.acting,
            self.clock,
            lambda: EPOCH + self.clock.seconds(),
            chance=lambda: 0.0,
            lease="Lease lab/x",
            on_failure=self.reports.append,
        )
        self.addCleanup(self.election.stopService)

    def pass_(self, seconds: int) -> list[str]:
        """Advance the clock; return what was logged."""
        with capturedLogs() as logged:
            self.clock.pump([1.0] * seconds)
        return [formatEvent(event) for event in logged]

    def begin(self) -> list[str]:
        """Start the candidate; return what was logged."""
        with capturedLogs() as logged:
            self.election.startService()
        return [formatEvent(event) for event in logged]

    def test_forbidden(self) -> None:
        """
        A candidate that may not read the Lease logs and reports that with a remedy, again with
        back-off, and its probe fails after 30 seconds.
        """
        self.leases.broken = Forbidden("leases is forbidden")
        text = (
            "a cannot become the leader: Lease lab/x: leases is forbidden; "
            "allow its user to get, create and update this Lease"
        )
        self.assertEqual(self.begin(), [text])
        self.election.probe()
        self.assertEqual(self.pass_(29), [])
        self.election.probe()
        self.pass_(1)
        self.assertEqual(str(self.assertRaises(ServiceUnavailable, self.election.probe)), text)
        logged = self.pass_(8 * 60)
        self.assertIn(len(logged), (3, 4))
        self.assertEqual(self.reports, [text, *logged])
        self.assertEqual({*logged}, {text})
        self.assertTrue(24 <= len(self.pass_(86400)) <= 60, "in the end each half hour at most")

    def test_works_again(self) -> None:
        """When the Lease is allowed the probe passes, the log says so, and the next failure is new."""
        self.leases.broken = Forbidden("leases is forbidden")
        self.begin()
        self.pass_(40)
        self.leases.broken = None
        self.assertEqual(self.pass_(2), ["a leads", "leader election with Lease lab/x works again"])
        self.election.probe()
        self.leases.broken = ServiceUnavailable("no quorum")
        first, second = self.pass_(20)
        self.assertEqual(first, "a leads, but cannot renew Lease lab/x: no quorum")
        self.assertEqual(second, "a leads no longer: its lease could not be renewed")
        self.election.probe()
        self.pass_(20)
        self.assertRaises(ServiceUnavailable, self.election.probe)

    def test_other_reason(self) -> None:
        """Another reason is logged at once."""
        self.leases.broken = ServiceUnavailable("no quorum")
        self.begin()
        self.leases.broken = ServiceUnavailable("etcd is full")
        self.assertEqual(self.pass_(10), ["a cannot become the leader: Lease lab/x: etcd is full"])

    def test_waits_for_its_turn(self) -> None:
        """A candidate that only waits for another one passes its probe."""
        spec = claimed(None, "b", ElectionTimings(), EPOCH)
        self.successResultOf(self.leases.create(spec))
        self.assertEqual(self.begin(), [])
        for moment in range(1, 6):
            self.assertEqual(self.pass_(12), [])
            lease = self.leases.lease or {}
            renewed = claimed(lease, "b", ElectionTimings(), EPOCH + moment)
            self.successResultOf(self.leases.update({**lease, "spec": renewed}))
        self.election.probe()
        self.assertFalse(self.acting.acts)

    def test_stopped(self) -> None:
        """A candidate that stopped is no problem."""
        self.leases.broken = Forbidden("leases is forbidden")
        self.begin()
        self.pass_(40)
        self.successResultOf(self.election.stopService())
        self.election.probe()


class SentElectionTests(ElectionTests):
    """The same tests, with refusals that keep their code but lose their type."""

    def setUp(self) -> None:
        super().setUp()
        self.leases.sent = True


class LeaseTests(SynchronousTestCase):
    """Leases are valid for an API server."""

    def test_valid(self) -> None:
        """A claimed and a released Lease pass validation."""
        one = claimed(None, "host/1", ElectionTimings(), EPOCH)
        lease = strategy.for_create(
            LEASES, new_lease("kube-system", "x", one), namespace="kube-system", now=EPOCH
        )
        lease["metadata"]["resourceVersion"] = "1"
        strategy.for_update(LEASES, {**lease, "spec": released(lease, EPOCH)}, lease)

    def test_foreign(self) -> None:
        """Claiming a Lease fills in the fields that a handmade one lacks."""
        spec = claimed(
            {"metadata": {}, "spec": {"holderIdentity": "b"}}, "a", ElectionTimings(), EPOCH
        )
        self.assertEqual(spec["leaseTransitions"], 1)
        self.assertEqual(holder_of({"metadata": {}}), "")


class ClientLeasesTests(SynchronousTestCase):
    """Elections over clients of a cluster."""

    def test_elected(self) -> None:
        """The first candidate leads; after it stops, the second does."""
        cluster, clock = MemoryCluster(), Clock()
        leases = [ClientLeases(cluster.client(), "kube-system", "x") for _ in range(2)]
        self.assertTrue(verifyObject(ILeases, leases[0]))
        acting = [Acting(), Acting()]
        elections = [
            Election(lease, name, leader, clock, lambda: EPOCH + clock.seconds())
            for lease, name, leader in zip(leases, "ab", acting, strict=True)
        ]
        for each in elections:
            each.startService()
        clock.pump([0.5] * 60)
        self.assertEqual([each.acts for each in acting], [True, False])
        self.successResultOf(elections[0].stopService())
        clock.pump([0.5] * 10)
        self.assertEqual([each.acts for each in acting], [False, True])
        self.successResultOf(elections[1].stopService())
        found = self.successResultOf(leases[0].get())
        self.assertEqual((found["metadata"]["name"], holder_of(found)), ("x", ""))
