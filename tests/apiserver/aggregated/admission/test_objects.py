"""
Tests for :mod:`twisted_exec.apiserver.aggregated.admission.objects`.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.aggregated.admission.webhooks import hosted, kind_of
from twisted_exec.api.kinds import Object
from twisted_exec.api.status import Forbidden, ServiceUnavailable
from twisted_exec.apiserver.aggregated.admission.objects import (
    ABSENT_SECONDS,
    READY_SECONDS,
    VALIDATING_POLICIES,
    FollowedKind,
)

NEWEST, OLDER = VALIDATING_POLICIES[:2]


class FollowedTests(SynchronousTestCase):
    """Tests for :class:`FollowedKind`."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.cluster = hosted()
        self.client = self.cluster.client()
        self.followed = self.follow()

    def follow(self) -> FollowedKind:
        """Not started yet."""
        followed = FollowedKind(self.client, VALIDATING_POLICIES, self.clock)
        self.addCleanup(lambda: followed.running and followed.stopService())
        return followed

    def names(self) -> list[str]:
        """Names in the copy, available at once."""
        found = self.successResultOf(Deferred.fromCoroutine(self.followed.objects()))
        return [each["metadata"]["name"] for each in found]

    def make(self, name: str, resource: object = NEWEST) -> None:
        """One more of them."""
        obj: Object = {"metadata": {"name": name}}
        self.successResultOf(self.client.create(resource, obj))  # type: ignore[arg-type]

    def test_followed(self) -> None:
        """The existing objects, and each change."""
        self.make("a")
        self.followed.startService()
        self.assertEqual(self.names(), ["a"])
        before = self.followed.generation
        self.make("b")
        self.assertEqual(self.names(), ["a", "b"])
        self.assertGreater(self.followed.generation, before)

    def test_stale(self) -> None:
        """The copy stays while the host is away."""
        self.make("a")
        self.followed.startService()
        self.cluster.problem = Forbidden("no")
        self.cluster.end_watches(Forbidden("no"))
        self.assertEqual(self.names(), ["a"])
        self.assertEqual(self.followed.problem, "no")

    def test_not_known_yet(self) -> None:
        """
        A request waits for a while and then fails with the reason; it succeeds once the host is
        back.
        """
        self.cluster.problem = Forbidden("exec-apiserver may not list them")
        self.followed.startService()
        asking = Deferred.fromCoroutine(self.followed.objects())
        self.clock.pump([0.5] * int(READY_SECONDS * 2))
        error = self.failureResultOf(asking, ServiceUnavailable).value
        self.assertIn("not yet ready to handle request", error.message)
        self.assertIn("exec-apiserver may not list them", error.message)
        self.assertEqual(error.retry_after_seconds, 1)
        self.assertEqual(self.followed.problem, "exec-apiserver may not list them")
        self.cluster.problem = None
        answers: list[object] = []
        for _ in range(4):  # how long it pauses between two looks is up to chance
            asking = Deferred.fromCoroutine(self.followed.objects())
            asking.addCallbacks(answers.append, lambda failure: failure.trap(ServiceUnavailable))
            self.clock.pump([1] * 9)
        self.assertEqual(answers[-1], [])
        self.assertEqual(self.followed.problem, "")

    def test_older_version(self) -> None:
        """A host that knows an older version only is followed in that."""
        self.cluster = hosted(NEWEST)
        self.cluster.kinds[OLDER] = kind_of(OLDER)
        self.client = self.cluster.client()
        self.followed = self.follow()
        self.followed.startService()
        self.make("a", OLDER)
        self.assertEqual(self.names(), ["a"])

    def test_absent(self) -> None:
        """A host that does not know the kind has none of it, until it learns it."""
        self.cluster = hosted(NEWEST)
        self.client = self.cluster.client()
        self.followed = self.follow()
        self.assertEqual(self.followed.problem, "not known yet")
        self.followed.startService()
        self.assertEqual(self.names(), [])
        self.assertEqual(self.followed.problem, "")
        self.cluster.kinds[NEWEST] = kind_of(NEWEST)
        self.make("a")
        self.clock.advance(ABSENT_SECONDS)
        self.assertEqual(self.names(), ["a"])
        self.successResultOf(self.followed.stopService())
        self.assertEqual(self.cluster.watches, 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])
