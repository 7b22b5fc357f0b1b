"""Tests for :mod:`twisted_exec.apiserver.controllers.expiry`."""

from __future__ import annotations

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.support import EVENTS, APITestCase, event
from twisted_exec.api import kinds
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.apiserver.controllers.expiry import EXPIRED_SECONDS, ExpiryCandidates, delete_all


class ExpiredTests(SynchronousTestCase):
    """Objects are due an hour after they first look expired."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.expired = ExpiryCandidates[str](self.clock)

    def test_an_hour(self) -> None:
        """An object is due after an hour, and not earlier."""
        self.assertEqual(self.expired.due(["a"]), [])
        self.clock.advance(EXPIRED_SECONDS - 1)
        self.assertEqual(self.expired.due(["a", "b"]), [])
        self.clock.advance(1)
        self.assertEqual(self.expired.due(["a", "b"]), ["a"])

    def test_wrong_time_of_day(self) -> None:
        """The hour begins anew if the object did not look expired in between."""
        self.expired.due(["a"])
        self.clock.advance(EXPIRED_SECONDS - 1)
        self.expired.due([])
        self.clock.advance(1)
        self.assertEqual(self.expired.due(["a"]), [])

    def test_cleared(self) -> None:
        """The hour begins anew when the controller starts again."""
        self.expired.due(["a"])
        self.clock.advance(EXPIRED_SECONDS)
        self.expired.clear()
        self.assertEqual(self.expired.due(["a"]), [])


class DeleteTests(APITestCase):
    """Deleting objects by their keys."""

    def test_missing(self) -> None:
        """Objects that are gone meanwhile do not stop the run."""
        self.answer("POST", EVENTS, event("e"), code=201)
        keys = [("default", "gone"), ("default", "e")]
        deleting = delete_all(self.storage, kinds.EVENTS.resource, keys)
        self.successResultOf(Deferred.fromCoroutine(deleting))
        self.assertEqual(self.answer("GET", EVENTS)["items"], [])

    def test_one_fails(self) -> None:
        """An object that cannot be deleted holds up no other; the run fails in the end."""
        for name in ("a", "b"):
            self.answer("POST", EVENTS, event(name), code=201)
        delete = self.storage.delete

        def failing(resource: Resource, obj: kinds.Object) -> Deferred[kinds.Object]:
            if obj["metadata"]["name"] == "a":
                return fail(ServiceUnavailable("not now"))
            return delete(resource, obj)

        self.storage.delete = failing  # type: ignore[method-assign]
        keys = [("default", "a"), ("default", "b")]
        deleting = Deferred.fromCoroutine(delete_all(self.storage, kinds.EVENTS.resource, keys))
        self.failureResultOf(deleting, ServiceUnavailable)
        (left,) = self.answer("GET", EVENTS)["items"]
        self.assertEqual(left["metadata"]["name"], "a")
