"""
Tests for :mod:`twisted_exec.apiserver.controllers.expiry`.
"""

from __future__ import annotations

from typing import Any

from tests.apiserver.support import EVENTS, MERGE, APITestCase, event
from tests.auth.test_bootstrap_tokens import token_secret
from twisted_exec.api import kinds
from twisted_exec.api.encoded import json_bytes
from twisted_exec.api.times import timestamp
from twisted_exec.apiserver.controllers.expiry import LOOK_SECONDS, EventExpiry, TokenExpiry
from twisted_exec.storage.memory import MemoryStorage

HOUR = kinds.EVENT_SECONDS


class EventExpiryTests(APITestCase):
    """Tests for :class:`EventExpiry`, within an API server."""

    def pass_time(self, seconds: float) -> None:
        self.clock.pump([LOOK_SECONDS] * int(seconds / LOOK_SECONDS))

    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.answer("GET", EVENTS)["items"]]

    def test_an_hour(self) -> None:
        """An Event goes after an hour, as a deletion that watchers see."""
        self.answer("POST", EVENTS, event("a"), code=201)
        self.pass_time(HOUR - LOOK_SECONDS)
        self.assertEqual(self.names(), ["a"])
        watch = self.watch(f"{EVENTS}?watch=1&resourceVersion={self.storage.version()}")
        self.pass_time(2 * LOOK_SECONDS)
        self.assertEqual(self.names(), [])
        told = [each for each in watch.events() if each["type"] != "BOOKMARK"]
        self.assertEqual([each["type"] for each in told], ["DELETED"])

    def test_written_again(self) -> None:
        """The hour begins again when the Event is written."""
        for name in "ab":
            self.answer("POST", EVENTS, event(name), code=201)
        self.pass_time(HOUR / 2)
        self.answer("PATCH", f"{EVENTS}/a", {"count": 2}, content_type=MERGE)
        self.pass_time(HOUR / 2 + LOOK_SECONDS)
        self.assertEqual(self.names(), ["a"])
        self.pass_time(HOUR / 2)
        self.assertEqual(self.names(), [])

    def test_deleted(self) -> None:
        """An Event that was deleted, and perhaps recreated, is left alone."""
        self.answer("POST", EVENTS, event("a"), code=201)
        self.pass_time(HOUR / 2)
        self.answer("DELETE", f"{EVENTS}/a")
        self.answer("POST", EVENTS, event("a"), code=201)
        self.pass_time(HOUR / 2 + LOOK_SECONDS)
        self.assertEqual(self.names(), ["a"])


class TooManyTests(APITestCase):
    """Events that would fill the store."""

    def setUp(self) -> None:
        super().setUp()
        self.expiry = EventExpiry(self.storage, self.clock, self.clock.seconds, 20_000)
        self.expiry.startService()
        self.addCleanup(self.expiry.stopService)

    def make(self, *names: str, **told: Any) -> None:
        for name in names:
            self.answer("POST", EVENTS, event(name, **told), code=201)

    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.answer("GET", EVENTS)["items"]]

    def test_oldest_go(self) -> None:
        """The total size is limited: the oldest Events are deleted soon."""
        self.make("a", "b")
        self.make("large", message="x" * 19_000)
        self.answer("PATCH", f"{EVENTS}/a", {"count": 2}, content_type=MERGE)
        self.clock.advance(1)
        self.assertEqual(self.names(), ["a"])
        self.make(*"bcdefgh")
        self.clock.advance(1)
        self.assertEqual(self.names(), list("abcdefgh"))
        for count in range(100):
            self.make(f"more-{count:03}")
            self.clock.advance(0.01)
        self.clock.advance(1)
        left = self.names()
        self.assertIn("more-099", left)
        self.assertNotIn("a", left)
        sizes = [len(json_bytes(item)) for item in self.answer("GET", EVENTS)["items"]]
        self.assertLessEqual(sum(sizes), 20_000)

    def test_found(self) -> None:
        """Events of an earlier process count too."""
        self.expiry.stopService()
        self.make("large", message="x" * 19_000)
        self.clock.advance(2)
        self.make("a", "b")
        self.clock.advance(2)
        self.assertEqual(self.names(), ["a", "b", "large"])
        self.expiry.startService()
        self.clock.advance(1)
        self.assertEqual(self.names(), ["a", "b"])

    def test_no_longer(self) -> None:
        """A service that was stopped deletes nothing."""
        self.make("a")
        self.make("large", message="x" * 20_000)
        self.expiry.stopService()
        self.clock.advance(2)
        self.assertEqual(self.names(), ["a", "large"])
        self.expiry.startService()


class TokenExpiryTests(APITestCase):
    """Tests for :class:`TokenExpiry`."""

    def test_clock_jumps(self) -> None:
        """While the clock is ahead nothing is deleted that is good when it is right again."""
        self.storage = MemoryStorage()
        secret = token_secret(expiration=timestamp(self.clock.seconds() + 86400))
        secret["metadata"]["namespace"] = "kube-system"
        self.successResultOf(self.storage.create(kinds.SECRETS.resource, secret))
        ahead = [0.0]
        expiry = TokenExpiry(self.storage, self.clock, lambda: self.clock.seconds() + ahead[0])
        expiry.startService()
        self.addCleanup(expiry.stopService)
        for seconds in (63_072_000.0, 0.0, 63_072_000.0):
            ahead[0] = seconds
            self.clock.pump([LOOK_SECONDS] * 31)
        found = self.successResultOf(self.storage.list(kinds.SECRETS.resource))
        self.assertEqual(len(found.items), 1)


class TakenUpTests(APITestCase):
    """Events that an earlier process left."""

    def left_behind(self, **told: Any) -> Any:
        """A store that has an Event from then."""
        storage = MemoryStorage()
        obj = event("a", **told)
        obj["metadata"] |= {"uid": "u", "namespace": "default"}
        self.successResultOf(storage.create(kinds.EVENTS.resource, obj))
        expiry = EventExpiry(storage, self.clock, self.clock.seconds)
        expiry.startService()
        self.addCleanup(expiry.stopService)
        return storage

    def count(self, storage: Any) -> int:
        return len(self.successResultOf(storage.list(kinds.EVENTS.resource)).items)

    def test_by_its_own_word(self) -> None:
        """They have what is left of their hour."""
        then = timestamp(self.clock.seconds() - HOUR / 2)
        storage = self.left_behind(lastTimestamp=then)
        self.clock.pump([LOOK_SECONDS] * 29)
        self.assertEqual(self.count(storage), 1)
        self.clock.pump([LOOK_SECONDS] * 2)
        self.assertEqual(self.count(storage), 0)

    def test_claims(self) -> None:
        """Timestamps in the future, or malformed ones, do not extend the life."""
        storage = self.left_behind(lastTimestamp="2999-01-01T00:00:00Z")
        self.clock.pump([LOOK_SECONDS] * 62)
        self.assertEqual(self.count(storage), 0)
        storage = self.left_behind(lastTimestamp="long ago")
        self.clock.pump([LOOK_SECONDS] * 2)
        self.assertEqual(self.count(storage), 0)
