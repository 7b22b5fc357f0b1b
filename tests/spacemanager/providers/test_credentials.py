"""Tests for :mod:`twisted_exec.spacemanager.providers.credentials`."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.kinds import CLUSTERROLEBINDINGS, NAMESPACES, SERVICEACCOUNTS
from twisted_exec.api.status import BadGateway, Conflict, Forbidden
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.providers.credentials import (
    NAMESPACE,
    CachedTokens,
    Token,
    account_name,
    ensure_account,
    request_token,
)
from twisted_exec.testing.cluster import MemoryClient, MemoryCluster

NAME = account_name("lab")


class Granting(MemoryClient):
    """A client of a cluster that answers TokenRequests with ``answer``."""

    def __init__(self, cluster: MemoryCluster, answer: Any) -> None:
        super().__init__(cluster)
        self.answer = answer
        self.asked: list[Object] = []

    def create(self, resource: Any, obj: Any, namespace: str = "", **more: Any) -> Deferred[Any]:
        if more.get("subresource") != "token":
            return super().create(resource, obj, namespace, **more)
        self.asked.append({"namespace": namespace, "name": more["name"], **obj["spec"]})
        return succeed({**obj, "status": self.answer})


class AccountTests(SynchronousTestCase):
    """Tests for :func:`ensure_account`."""

    def setUp(self) -> None:
        self.cluster = MemoryCluster((NAMESPACES, SERVICEACCOUNTS, CLUSTERROLEBINDINGS))

    def make(self) -> Deferred[None]:
        making = ensure_account(self.cluster.client(), NAME, lambda resource: resource)
        return Deferred.fromCoroutine(making)

    def test_made(self) -> None:
        """The only new objects are a ServiceAccount, its namespace and one binding."""
        self.successResultOf(self.make())
        self.assertEqual(
            sorted((key[0].plural, key[1], key[2]) for key in self.cluster.objects),
            [
                ("clusterrolebindings", "", NAME),
                ("namespaces", "", NAMESPACE),
                ("serviceaccounts", NAMESPACE, NAME),
            ],
        )

    def test_again(self) -> None:
        """Existing objects stay unchanged; missing objects are created."""
        self.successResultOf(self.make())
        before = self.cluster.version
        self.successResultOf(self.make())
        self.assertEqual(self.cluster.version, before)
        self.cluster.remove((SERVICEACCOUNTS.resource, NAMESPACE, NAME))
        self.successResultOf(self.make())
        self.assertIn((SERVICEACCOUNTS.resource, NAMESPACE, NAME), self.cluster.objects)

    def test_somebody_elses_binding(self) -> None:
        """A binding of that name with another role or subject is refused."""
        self.successResultOf(self.make())
        key = (CLUSTERROLEBINDINGS.resource, "", NAME)
        for changed in (
            {"roleRef": {"kind": "ClusterRole", "name": "view"}},
            {"subjects": [{"kind": "User", "name": "eve"}]},
            {"subjects": "x"},
        ):
            self.cluster.objects[key] = {**self.cluster.objects[key], **changed}
            refused = self.failureResultOf(self.make(), Conflict).value
            self.assertIn(NAME, refused.message)


class TokenTests(SynchronousTestCase):
    """Tests for :func:`request_token`."""

    def ask(self, answer: Any) -> Deferred[Token]:
        self.client = Granting(MemoryCluster(()), answer)
        asking = request_token(self.client, NAME, lambda resource: resource, lambda: 100.0)
        return Deferred.fromCoroutine(asking)

    def test_asked(self) -> None:
        """A token is requested for a day; its expiry comes from the response."""
        told = {"token": "a.b.c", "expirationTimestamp": "1970-01-01T00:20:00Z"}
        token = self.successResultOf(self.ask(told))
        self.assertEqual((token.secret, token.issued, token.expires), ("a.b.c", 100.0, 1200.0))
        self.assertEqual(
            self.client.asked,
            [{"namespace": NAMESPACE, "name": NAME, "expirationSeconds": 86400}],
        )
        self.assertNotIn("a.b.c", repr(token))

    def test_nonsense(self) -> None:
        """An invalid token response fails with 502, without quoting it."""
        for answer in (
            None,
            {},
            {"token": "s3cret"},
            {"token": "s3cret", "expirationTimestamp": "soon"},
            {"token": "s3cret\r\nX: y", "expirationTimestamp": "1970-01-01T00:20:00Z"},
            {"token": "", "expirationTimestamp": "1970-01-01T00:20:00Z"},
            {"token": 7, "expirationTimestamp": 7},
        ):
            refused = self.failureResultOf(self.ask(answer), BadGateway).value
            self.assertNotIn("s3cret", refused.message)


class KeptTests(SynchronousTestCase):
    """Tests for :class:`CachedTokens`."""

    def setUp(self) -> None:
        self.now = 1000.0
        self.asked: list[Hashable] = []
        self.problem: Exception | None = None
        self.tokens = CachedTokens(self.ask, lambda: self.now)

    def ask(self, what: Hashable) -> Deferred[Token]:
        self.asked.append(what)
        if self.problem is not None:
            return fail(self.problem)
        return succeed(Token(f"{what}-{len(self.asked)}", self.now, self.now + 100))

    def current(self, what: str = "red") -> Deferred[Token]:
        return Deferred.fromCoroutine(self.tokens.current(what))

    def test_kept(self) -> None:
        """A token is used until half of its lifetime is over."""
        self.assertEqual(self.tokens.stamp("red"), "due")
        first = self.successResultOf(self.current())
        stamp = self.tokens.stamp("red")
        self.now += 49
        self.assertIs(self.successResultOf(self.current()), first)
        self.assertEqual((self.tokens.stamp("red"), self.tokens.due()), (stamp, []))

    def test_renewed_before_its_end(self) -> None:
        """At half of its lifetime, a token is replaced."""
        first = self.successResultOf(self.current())
        self.now += 50
        self.assertEqual((self.tokens.stamp("red"), self.tokens.due()), ("due", ["red"]))
        second = self.successResultOf(self.current())
        self.assertNotEqual(second, first)
        self.assertNotEqual(self.tokens.stamp("red"), "due")

    def test_clock_jumps(self) -> None:
        """A token requested while the clock was ahead is replaced after the correction."""
        self.now += 63_072_000
        ahead = self.successResultOf(self.current())
        self.now -= 63_072_000
        self.assertEqual(self.tokens.due(), ["red"])
        self.assertIsNot(self.successResultOf(self.current()), ahead)

    def test_none_to_be_had(self) -> None:
        """If renewal fails, the old token is used until it expires, and not after."""
        first = self.successResultOf(self.current())
        self.problem = Forbidden("not now")
        self.now += 99
        self.assertIs(self.successResultOf(self.current()), first)
        self.assertEqual(self.tokens.stamp("red"), "due")
        self.now += 1
        self.failureResultOf(self.current(), Forbidden)

    def test_forgotten(self) -> None:
        """``keep_only`` drops the tokens of all other spaces."""
        self.successResultOf(self.current("red"))
        green = self.successResultOf(self.current("green"))
        self.tokens.keep_only({"green"})
        self.assertIsNone(self.tokens.cached("red"))
        self.assertIs(self.tokens.cached("green"), green)
