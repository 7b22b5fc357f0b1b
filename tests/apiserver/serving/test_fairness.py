"""
Tests for :mod:`twisted_exec.apiserver.serving.fairness`: expensive requests take turns.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet import defer
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.support import MACHINES, MERGE, APITestCase
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object
from twisted_exec.api.status import BadRequest, TooManyRequests
from twisted_exec.apiserver.serving import verbs
from twisted_exec.apiserver.serving.costs import CHEAP
from twisted_exec.apiserver.serving.fairness import ExpensiveRequestMetrics, FairQueue, Work
from twisted_exec.auth.interfaces import User
from twisted_exec.program import turns
from twisted_exec.program.metrics import metrics_text, new_registry
from twisted_exec.testing.network import MemoryClient

ANN, BOB, EVE = User("ann"), User("bob"), User("eve")
SECRETS = "/api/v1/namespaces/default/secrets"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ALERTS = "/apis/console.twisted-exec.dev/v1alpha1/namespaces/default/consolealerts"
APPLY = "application/apply-patch+yaml"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class Hand:
    """Runs functions when the test says so, as a thread would in its own time."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Callable[[], Any], Deferred[Any]]] = deque()

    def execute(self, function: Callable[[], Any]) -> Deferred[Any]:
        """See :data:`~twisted_exec.apiserver.serving.fairness.Execute`."""
        done: Deferred[Any] = Deferred()
        self.waiting.append((function, done))
        return done

    def run_one(self) -> None:
        """Run the oldest function."""
        function, done = self.waiting.popleft()
        defer.execute(function).addBoth(done.callback)

    def run_all(self) -> int:
        """Run until nothing waits; return how many functions that were."""
        count = 0
        while self.waiting:
            self.run_one()
            count += 1
        return count


class QueueTests(SynchronousTestCase):
    """Users take turns."""

    def setUp(self) -> None:
        self.hand = Hand()
        self.registry = new_registry(process=False)
        self.clock = Clock()
        self.queue = FairQueue(
            self.hand.execute,
            ExpensiveRequestMetrics(self.registry),
            per_user=3,
            total=5,
            seconds=self.clock.seconds,
        )
        self.called: list[str] = []

    def call(self, user: User, name: str) -> Deferred[Any]:
        """Queue a call that notes its name."""
        return self.queue.call(user, lambda: self.called.append(name))

    def metric(self, name: str) -> float | None:
        """A metric's value."""
        return self.registry.get_sample_value(f"twisted_exec_expensive_requests_{name}")

    def test_turns(self) -> None:
        """A user with many queued requests waits behind users with few."""
        for user, name in (
            (ANN, "a1"),
            (ANN, "a2"),
            (ANN, "a3"),
            (BOB, "b1"),
            (BOB, "b2"),
            (EVE, "e1"),
        ):
            self.call(user, name)
        self.hand.run_all()
        self.assertEqual(self.called, ["a1", "a2", "b1", "e1", "a3", "b2"])

    def test_shares(self) -> None:
        """Users get equal shares of the time: slow calls of a user wait for quick ones of another."""

        def call(user: User, name: str, seconds: float) -> None:
            def function() -> None:
                self.called.append(name)
                self.clock.advance(seconds)

            self.queue.call(user, function)

        for number in range(3):
            call(ANN, f"a{number}", 3)
        for number in range(4):
            call(BOB, f"b{number}", 1)
        self.hand.run_all()
        self.assertEqual(self.called, ["a0", "b0", "b1", "b2", "a1", "b3", "a2"])
        self.called.clear()
        call(ANN, "a3", 9)
        call(ANN, "a4", 9)
        call(BOB, "b4", 9)
        self.hand.run_one()
        call(EVE, "e1", 1)  # she begins with the share of the user whose call is running
        call(EVE, "e2", 1)
        self.hand.run_all()
        self.assertEqual(self.called, ["a3", "b4", "e1", "e2", "a4"])

    def test_one_at_a_time(self) -> None:
        """The next call is made when the one before is done."""
        for name in ("1", "2"):
            self.call(ANN, name)
        self.assertEqual((len(self.hand.waiting), len(self.queue)), (1, 1))
        self.hand.run_one()
        self.assertEqual((len(self.hand.waiting), len(self.queue)), (1, 0))

    def test_results(self) -> None:
        """A result and an error go to their own caller."""

        def refuse() -> None:
            raise BadRequest("no")

        good, bad = self.queue.call(ANN, lambda: 42), self.queue.call(ANN, refuse)
        self.hand.run_all()
        self.assertEqual(self.successResultOf(good), 42)
        self.failureResultOf(bad, BadRequest)

    def test_cancelled(self) -> None:
        """A client that leaves gives up its turn, and loses a result that comes later."""
        running, waiting = self.call(ANN, "a1"), self.call(ANN, "a2")
        self.call(BOB, "b1")
        for each in (running, waiting):
            each.cancel()
            self.failureResultOf(each, CancelledError)
        self.assertEqual(len(self.queue), 1)
        self.hand.run_all()
        self.assertEqual(self.called, ["a1", "b1"])

    def test_bounded(self) -> None:
        """A user may wait with so many requests, and all users with so many; 429 beyond."""
        for number in range(4):  # the first does not wait, it runs
            self.queue.check_room(ANN)
            self.call(ANN, str(number))
        with self.assertRaises(TooManyRequests) as caught:
            self.queue.check_room(ANN)
        self.assertIn('user "ann" has 3 waiting', caught.exception.message)
        self.assertEqual(caught.exception.retry_after_seconds, 1)
        for _ in range(2):
            self.queue.check_room(BOB)
            self.call(BOB, "b")
        with self.assertRaises(TooManyRequests):
            self.queue.check_room(EVE)
        self.assertEqual((self.metric("waiting"), self.metric("refused_total")), (5, 2))
        self.hand.run_all()
        self.queue.check_room(ANN)
        self.assertEqual(self.metric("waiting"), 0)
        self.assertIn(b"twisted_exec_expensive_requests_waiting 0.0", metrics_text(self.registry))

    def test_admitted(self) -> None:
        """A request that had its first turn is not refused at its second."""
        work = Work(self.queue, ANN, CHEAP + 1)

        async def twice() -> list[int]:
            return [await work.run(int, "1"), await work.run(int, "2")]

        done = Deferred.fromCoroutine(twice())
        for number in range(3):
            self.call(ANN, str(number))
        self.hand.run_all()
        self.assertEqual(self.successResultOf(done), [1, 2])


class WorkTests(SynchronousTestCase):
    """Cheap work is done at once."""

    def test_at_once(self) -> None:
        """Neither cheap work nor work without a queue waits."""
        hand = Hand()
        for work in (Work(FairQueue(hand.execute), ANN, CHEAP), Work()):
            done = Deferred.fromCoroutine(work.run(int, "3"))
            self.assertEqual(self.successResultOf(done), 3)
        self.assertEqual(len(hand.waiting), 0)


class RequestTests(APITestCase):
    """Expensive requests leave the reactor to others."""

    def setUp(self) -> None:
        self.hand = Hand()
        super().setUp()
        for name in ("jane", "bob"):
            self.bind(name, "edit")

    def context(self) -> dict[str, Any]:
        return {"execute": self.hand.execute}

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        kind: str = "application/json",
        user: str = "jane",
        accept: str = "application/json",
        raw: bytes = b"",
    ) -> MemoryClient:
        """Send a request, and return its connection."""
        raw = raw if body is None else json.dumps(body).encode()
        client = self.server.connect()
        head = f"{method} {path} HTTP/1.1\r\nHost: server\r\nAuthorization: Bearer {user}\r\n"
        head += f"Accept: {accept}\r\nContent-Type: {kind}\r\nContent-Length: {len(raw)}\r\n\r\n"
        client.send(head.encode() + raw)
        return client

    def finished(self, client: MemoryClient) -> Any:
        """Work until nothing waits, while others are served; return the answer."""
        self.assertTrue(self.hand.waiting, "the request did not leave the reactor")
        while self.hand.waiting:
            self.assertEqual(client.received(), b"")
            self.answer("GET", MACHINES, user="bob")
            self.hand.run_one()
        (response,) = client.responses()
        return response

    def secrets(self) -> Sequence[Object]:
        """The stored Secrets."""
        return self.successResultOf(self.storage.list(kinds.SECRETS.resource)).items

    def test_writes(self) -> None:
        """Whatever is large about a write, its work is done elsewhere."""
        self.answer("POST", SECRETS, {"metadata": {"name": "old"}}, code=201)
        keys = {f"k{number}": "" for number in range(1000)}
        owners = [
            {"apiVersion": "v1", "kind": "Secret", "name": f"n{number}", "uid": f"u{number}"}
            for number in range(300)
        ]
        copies: list[Any] = [{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}]
        copies += [
            {"op": "copy", "from": "/metadata/annotations/a", "path": f"/metadata/annotations/a{n}"}
            for n in range(200)
        ]
        applied = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "new"}, "data": keys}
        patterns = [{"name": f"p{number}", "regex": f"a{number}"} for number in range(64)]
        alert = {"metadata": {"name": "a"}, "spec": {"patterns": patterns}}
        changed = {"spec": {"patterns": [{"name": "a", "regex": "a"}]}}
        for code, method, path, body, kind in (
            (201, "POST", ALERTS, alert, ""),
            (200, "PATCH", f"{ALERTS}/a", changed, MERGE),
            (201, "POST", SECRETS, {"metadata": {"name": "a"}, "x": [1] * 2000}, ""),
            (201, "POST", SECRETS, {"metadata": {"name": "b"}, "data": keys}, ""),
            (201, "POST", SECRETS, {"metadata": {"name": "c", "labels": keys}}, ""),
            (201, "POST", SECRETS, {"metadata": {"name": "d", "finalizers": list(keys)}}, ""),
            (201, "POST", SECRETS, {"metadata": {"name": "e"}, "data": {"a": "QUJD" * 99_999}}, ""),
            (200, "PUT", f"{SECRETS}/old", {"metadata": {"name": "old"}, "data": keys}, ""),
            (201, "PATCH", f"{SECRETS}/new?fieldManager=m", applied, APPLY),
            (200, "PATCH", f"{SECRETS}/old", {"metadata": {"ownerReferences": owners}}, STRATEGIC),
            (200, "PATCH", f"{SECRETS}/old", copies, JSON_PATCH),
            (200, "PATCH", f"{SECRETS}/old", {"metadata": {"labels": {"a": "b"}}}, MERGE),
            (200, "GET", f"{SECRETS}/old?pretty=true", None, ""),
            (200, "GET", f"{SECRETS}?pretty=true", None, ""),
        ):
            client = self.send(method, path, body, kind or "application/json")
            self.assertEqual(self.finished(client).code, code, (method, path))

    def test_selectors(self) -> None:
        """A list with selectors takes turns, and too many comparisons are refused."""
        for number in range(20):
            self.answer("POST", SECRETS, {"metadata": {"name": f"s{number:02}"}}, code=201)
        self.patch(verbs, "SHORT_COMPARISONS", 20)
        client = self.send("GET", f"{SECRETS}?labelSelector=!b&limit=1")
        self.assertEqual(client.received(), b"")  # it begins in a turn of its own
        self.clock.advance(0)
        self.assertEqual(len(client.responses()), 1)
        self.patch(turns, "SHARED_TURN_SECONDS", 0.0)
        client = self.send("GET", f"{SECRETS}?labelSelector=!b&limit=12")
        self.assertEqual(client.received(), b"")
        self.answer("GET", "/version", user="bob")
        self.clock.pump([0.0] * 3)
        (response,) = client.responses()
        page = response.json()
        self.assertEqual([len(page["items"]), bool(page["metadata"]["continue"])], [12, True])
        self.patch(verbs, "MOST_COMPARISONS", 39)
        message = self.refused(400, "GET", f"{SECRETS}?labelSelector=!b,!c")
        self.assertIn("2 terms for 20 objects, and 39 comparisons are the limit", message)

    def test_delete_collection(self) -> None:
        """The objects of a collection are deleted in short turns, also in a dry run."""
        for number in range(20):
            self.answer("POST", SECRETS, {"metadata": {"name": f"s{number:02}"}}, code=201)
        self.patch(turns, "SHARED_TURN_SECONDS", 0.0)
        for query, left in (("?dryRun=All", 20), ("", 0)):
            client = self.send("DELETE", f"{SECRETS}{query}")
            self.assertEqual(client.received(), b"")
            self.answer("GET", "/version", user="bob")
            self.clock.pump([0.0] * 30)
            (response,) = client.responses()
            self.assertEqual((response.code, len(response.json()["items"])), (200, 20))
            stored = self.successResultOf(self.storage.list(kinds.SECRETS.resource, "default"))
            self.assertEqual(len(stored.items), left)

    def test_pretty(self) -> None:
        """A large object is indented for people, and a list that would take a second is not."""
        data = {f"k{number}": "" for number in range(4000)}
        for name in "abc":
            self.finished(self.send("POST", SECRETS, {"metadata": {"name": name}, "data": data}))
        response = self.finished(self.send("GET", f"{SECRETS}/a?pretty=true"))
        self.assertIn(b'\n    "k0": ""', response.body)
        response = self.finished(self.send("GET", f"{SECRETS}?pretty=true&limit=2"))
        self.assertIn(b'\n        "k0": ""', response.body)
        (response,) = self.send("GET", f"{SECRETS}?pretty=true").responses()
        self.assertEqual(len(response.json()["items"]), 3)
        self.assertNotIn(b"\n    ", response.body)

    def test_yaml(self) -> None:
        """A large object is YAML for people; a list that would take a second is JSON, which is YAML."""
        data = {f"k{number}": "" for number in range(4000)}
        for name in "abc":
            self.finished(self.send("POST", SECRETS, {"metadata": {"name": name}, "data": data}))
        accept = "application/yaml"
        response = self.finished(self.send("GET", f"{SECRETS}/a", accept=accept))
        self.assertIn(b'\n  k0: ""\n', response.body)
        (response,) = self.send("GET", SECRETS, accept=accept).responses()
        self.assertEqual(response.headers["content-type"], accept)
        self.assertEqual(len(response.json()["items"]), 3)

    def test_turns(self) -> None:
        """A user with many such requests does not delay another user by more than one call."""
        data = {f"k{number}": "" for number in range(1000)}
        many = [
            self.send("POST", SECRETS, {"metadata": {"name": f"j{n}"}, "data": data})
            for n in range(10)
        ]
        one = self.send("POST", SECRETS, {"metadata": {"name": "b"}, "data": data}, user="bob")
        for _ in range(9):  # four calls of his request, each after one of hers, which began
            self.hand.run_one()
        self.assertEqual([each.code for each in one.responses()], [201])
        self.assertEqual([each.received() for each in many], [b""] * 10)
        self.hand.run_all()
        self.assertEqual([each.responses()[0].code for each in many], [201] * 10)

    def test_reviews(self) -> None:
        """Large bodies of requests that store nothing leave the reactor, too."""
        review = "# a\n" * 900 + "spec: {resourceAttributes: {verb: get, resource: machines}}"
        self.answer("POST", SECRETS, {"metadata": {"name": "a"}}, code=201)
        options = "# a\n" * 900 + "kind: DeleteOptions"
        for code, method, path, body in (
            (201, "POST", REVIEWS, review),
            (200, "DELETE", f"{SECRETS}/a", options),
            (200, "DELETE", SECRETS, options),
        ):
            client = self.send(method, path, kind="application/yaml", raw=body.encode())
            self.assertEqual(self.finished(client).code, code, path)

    def test_full(self) -> None:
        """429 with Retry-After when too many of a user's requests wait; a client may leave."""
        data = {f"k{number}": "" for number in range(1000)}

        def create(name: str, user: str = "jane") -> MemoryClient:
            return self.send("POST", SECRETS, {"metadata": {"name": name}, "data": data}, user=user)

        waiting = [create(f"j{number}") for number in range(21)]
        (refused,) = create("k").responses()
        self.assertEqual((refused.code, refused.headers["retry-after"]), (429, "1"))
        self.assertIn('user "jane" has 20 waiting', refused.json()["message"])
        self.assertEqual(create("b", "bob").received(), b"")
        waiting[-1].lose()
        self.assertEqual(create("l").received(), b"")
        self.answer("POST", SECRETS, {"metadata": {"name": "small"}}, code=201, user="jane")
        self.hand.run_all()
        names = [item["metadata"]["name"] for item in self.secrets()]
        self.assertEqual(len(names), 23)
        self.assertNotIn("j20", names)

    def test_deleted(self) -> None:
        """A large object that finalizers keep is marked without copying it."""
        data = {f"k{number}": "" for number in range(1000)}
        meta = {"name": "a", "finalizers": ["example.org/a"]}
        self.finished(self.send("POST", SECRETS, {"metadata": meta, "data": data}))
        (before,) = self.secrets()
        self.answer("DELETE", f"{SECRETS}/a")
        (after,) = self.secrets()
        self.assertIn("deletionTimestamp", after["metadata"])
        self.assertIs(after["data"], before["data"])

    def test_changed_meanwhile(self) -> None:
        """A write that happens during the work is not lost: the work is done again."""
        data = {f"k{number}": "" for number in range(1000)}
        self.answer("POST", SECRETS, {"metadata": {"name": "a"}}, code=201)
        client = self.send("PATCH", f"{SECRETS}/a", {"data": data}, MERGE)
        label = {"metadata": {"labels": {"a": "b"}}}
        self.answer("PATCH", f"{SECRETS}/a", label, content_type=MERGE)
        self.hand.run_all()
        (response,) = client.responses()
        self.assertEqual(response.code, 200)
        (obj,) = self.secrets()
        self.assertEqual((obj["metadata"]["labels"], len(obj["data"])), ({"a": "b"}, 1000))
