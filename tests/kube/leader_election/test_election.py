"""
Tests for :mod:`twisted_exec.kube.leader_election.election`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
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
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.kube.interfaces import ILeader, ILeases, Object
from twisted_exec.kube.leader_election.election import (
    ClientLeases,
    Election,
    ElectionTimings,
    claimed,
    holder_of,
    new_lease,
    released,
)
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
        """What was silent is answered now."""
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
    """Acts, or does not; takes its time to end when told to."""

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
    """Candidates over one Lease, each with a clock of its own."""

    def setUp(self) -> None:
        self.leases = OneLease()
        self.clocks: list[Clock] = []

    def candidate(self, name: str, leases: Any = None, ahead: float = 0) -> tuple[Election, Acting]:
        """One that stands for election now; its clock began at another time than others'."""
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
        """Time goes by, for everyone."""
        for _ in range(round(seconds * 2)):
            for clock in self.clocks:
                clock.advance(0.5)

    @property
    def holder(self) -> str:
        return holder_of(self.leases.lease or {})

    def test_doors(self) -> None:
        """What is asked through the doors has them."""
        self.assertTrue(verifyObject(ILeases, self.leases))
        self.assertTrue(verifyObject(ILeader, Acting()))

    def test_alone(self) -> None:
        """Where nobody leads one leads at once, and goes on."""
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
        """Another waits as long as the Lease is renewed, whatever either's clock says."""
        self.candidate("a", ahead=-7200)
        _, other = self.candidate("b", ahead=7200)
        self.pass_(120)
        self.assertEqual((self.holder, other.terms), ("a", 0))

    def test_at_the_same_moment(self) -> None:
        """Of two that begin at once one leads."""
        self.leases.silent = True
        _, one = self.candidate("a")
        _, other = self.candidate("b")
        self.leases.answer()
        self.leases.answer()
        self.assertEqual(one.acts + other.acts, 1)
        self.pass_(30)
        self.assertEqual((one.acts, other.acts), (self.holder == "a", self.holder == "b"))

    def test_dies(self) -> None:
        """What a leader leaves behind is taken 15 s after it was seen to change last."""
        dead, _ = self.candidate("a")
        dying = self.clocks.pop()
        _, other = self.candidate("b")
        self.pass_(14.5)
        self.assertFalse(other.acts)
        self.pass_(2)
        self.assertTrue(other.acts)
        self.assertEqual((self.leases.lease or {})["spec"]["leaseTransitions"], 1)
        dying.advance(20)  # it was only asleep
        self.assertFalse(dead.leading)
        self.assertEqual(self.holder, "b")

    def test_released(self) -> None:
        """A leader that stops is followed at once by whoever hears of it."""
        first, acting = self.candidate("a")
        second, other = self.candidate("b")
        self.successResultOf(first.stopService())
        self.assertFalse(acting.acts)
        self.assertEqual(self.holder, "")
        second.heard(self.leases.lease or {})
        self.assertTrue(other.acts)

    def test_released_and_not_heard(self) -> None:
        """Whoever does not hear of it looks soon anyway."""
        first, _ = self.candidate("a")
        _, other = self.candidate("b")
        self.successResultOf(first.stopService())
        self.pass_(2)
        self.assertTrue(other.acts)

    def test_stops_acting_first(self) -> None:
        """The Lease is let go of when all that was done under it is over, not before."""
        first, acting = self.candidate("a")
        acting.lasting = Deferred()
        stopping = first.stopService()
        self.assertEqual((acting.acts, self.holder), (False, "a"))
        acting.lasting.callback(None)
        self.successResultOf(stopping)
        self.assertEqual(self.holder, "")

    def test_cannot_renew(self) -> None:
        """Whoever is refused acts no longer 10 s after the last time that they were not."""
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
        """It counts from when it asked, not from when it was answered, and needs no answer to end."""
        _, acting = self.candidate("a")
        self.leases.silent = True
        self.pass_(9.5)
        self.assertTrue(acting.acts)
        self.pass_(0.5)
        self.assertFalse(acting.acts)

    def test_late_answer(self) -> None:
        """A renewal that is granted while the leader withdraws does not make it lead."""
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
        """Whoever finds another in the Lease acts no longer."""
        _, acting = self.candidate("a")
        lease = self.leases.lease or {}
        spec = claimed(lease, "somebody", ElectionTimings(), EPOCH)
        self.successResultOf(self.leases.update({**lease, "spec": spec}))
        self.pass_(2)
        self.assertFalse(acting.acts)
        self.assertEqual(self.holder, "somebody")

    def test_deleted(self) -> None:
        """A Lease that is gone is nobody's: its leader withdraws, and stands again."""
        _, acting = self.candidate("a")
        self.leases.lease = None
        self.pass_(2)
        self.assertEqual((acting.acts, self.leases.lease), (False, None))
        self.pass_(2)
        self.assertEqual((acting.acts, acting.terms), (True, 2))

    def test_annotated(self) -> None:
        """Somebody else may write to it, as long as the holder stays."""
        _, acting = self.candidate("a")
        lease = self.leases.lease or {}
        noted = {**lease, "metadata": {**lease["metadata"], "annotations": {"a": "b"}}}
        self.successResultOf(self.leases.update(noted))
        self.pass_(30)
        self.assertEqual((acting.acts, acting.terms), (True, 1))
        self.assertEqual((self.leases.lease or {})["metadata"]["annotations"], {"a": "b"})

    def test_granted_while_stopping(self) -> None:
        """What was asked for before the stop and granted after it is released, too."""
        self.leases.silent = True
        election, acting = self.candidate("a")
        stopping = election.stopService()
        self.assertNoResult(stopping)
        self.leases.answer()
        self.successResultOf(stopping)
        self.assertEqual((acting.terms, self.holder), (0, ""))
        self.assertIsNotNone(self.leases.lease)

    def test_stops_without_an_answer(self) -> None:
        """Stopping does not wait for a server that is gone."""
        election, _ = self.candidate("a")
        self.leases.silent = True
        stopping = election.stopService()
        self.assertNoResult(stopping)
        self.pass_(2)
        self.successResultOf(stopping)
        self.assertEqual(self.clocks[0].getDelayedCalls(), [])

    def test_own_from_before(self) -> None:
        """A claim whose answer was lost is known as one's own, and taken up."""
        spec = claimed(None, "a", ElectionTimings(), EPOCH)
        self.successResultOf(self.leases.create(spec))
        _, acting = self.candidate("a")
        self.assertTrue(acting.acts)
        self.assertEqual((self.leases.lease or {})["spec"]["leaseTransitions"], 0)

    def test_fault(self) -> None:
        """A fault of ours is logged, and tried again."""
        self.leases.broken = ZeroDivisionError("x")
        _, acting = self.candidate("a")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.leases.broken = None
        self.pass_(2)
        self.assertTrue(acting.acts)


class SentElectionTests(ElectionTests):
    """The same, where a client tells refusals apart by their codes alone."""

    def setUp(self) -> None:
        super().setUp()
        self.leases.sent = True


class LeaseTests(SynchronousTestCase):
    """What a Lease holds is what a cluster's Leases may hold."""

    def test_valid(self) -> None:
        """Claimed or released: an API server takes it."""
        one = claimed(None, "host/1", ElectionTimings(), EPOCH)
        lease = strategy.for_create(
            LEASES, new_lease("kube-system", "x", one), namespace="kube-system", now=EPOCH
        )
        lease["metadata"]["resourceVersion"] = "1"
        strategy.for_update(LEASES, {**lease, "spec": released(lease, EPOCH)}, lease)

    def test_foreign(self) -> None:
        """What is missing in a Lease that somebody made by hand is made up for."""
        spec = claimed(
            {"metadata": {}, "spec": {"holderIdentity": "b"}}, "a", ElectionTimings(), EPOCH
        )
        self.assertEqual(spec["leaseTransitions"], 1)
        self.assertEqual(holder_of({"metadata": {}}), "")


class ClientLeasesTests(SynchronousTestCase):
    """A Lease of a cluster, through clients of it."""

    def test_elected(self) -> None:
        """One of two leads, and then the other; a write over another's is refused."""
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
