"""
Tests for :mod:`twisted_exec.auth.delegated`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, fail, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.auth import forge
from tests.auth.support import credentials
from tests.retained import instances
from twisted_exec.api.status import (
    APIError,
    BadGateway,
    Forbidden,
    GatewayTimeout,
    InternalError,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
)
from twisted_exec.auth.delegated import (
    AT_ONCE,
    DelegatedAuthenticator,
    DelegatedAuthorizer,
    review_spec,
)
from twisted_exec.auth.interfaces import Decision, IAuthenticator, IAuthorizer, User
from twisted_exec.auth.rules import Attributes
from twisted_exec.auth.tokens import ITokenAuthenticator

JANE = User("jane", ("dev", "system:authenticated"), "u-1", {"scopes": ("a",)})
EXEC = Attributes(
    JANE, "create", "compute.ironcore.dev", "v1alpha1", "machines", "exec", "default", "vm-1"
)


def always(status: Any) -> Callable[[dict[str, Any]], Any]:
    """An API server that answers every review alike."""
    return lambda spec: status


class Reviewer:
    """A client that only answers reviews."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, dict[str, Any]]] = []
        self.answer: Callable[[dict[str, Any]], Any] = lambda spec: {}

    def create(self, resource: Any, obj: dict[str, Any]) -> Deferred[dict[str, Any]]:
        self.posted.append((resource.path(), obj))
        status = maybeDeferred(self.answer, obj["spec"])
        return status.addCallback(lambda told: {**obj, "status": told})


class ReviewCase(SynchronousTestCase):
    """A reviewer and a clock."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.reviewer = Reviewer()
        self.client: Any = self.reviewer


class DelegatedAuthenticatorTests(ReviewCase):
    """Tests for :class:`DelegatedAuthenticator`."""

    def authenticator(self, **more: Any) -> DelegatedAuthenticator:
        return DelegatedAuthenticator(self.client, self.clock, **more)

    def ask(
        self, authenticator: DelegatedAuthenticator | None = None, token: str = "secret"
    ) -> Deferred[User | None]:
        presented = credentials({"Authorization": [f"Bearer {token}"]})
        return (authenticator or self.authenticator()).authenticate(presented)

    def test_doors(self) -> None:
        """The class implements IAuthenticator and ITokenAuthenticator."""
        verifyObject(IAuthenticator, self.authenticator())
        verifyObject(ITokenAuthenticator, self.authenticator())

    def test_invented_tokens(self) -> None:
        """Many tokens at once cause a limited number of reviews; the rest wait."""
        waiting: list[Deferred[Any]] = []

        def later(spec: Any) -> Deferred[Any]:
            waiting.append(Deferred())
            return waiting[-1]

        self.reviewer.answer = later
        authenticator = self.authenticator(retry_seconds=5.0)
        asked = [self.ask(authenticator, f"invented-{number}") for number in range(3 * AT_ONCE)]
        self.assertEqual(len(waiting), AT_ONCE)
        for each in waiting[:AT_ONCE]:
            each.callback({"authenticated": False})
        self.assertEqual(len(waiting), 2 * AT_ONCE)
        self.clock.pump([1.0] * 6)
        for each in asked[:AT_ONCE]:
            self.failureResultOf(each, Unauthorized)
        for each in asked[AT_ONCE:]:
            self.failureResultOf(each, ServiceUnavailable)
        self.reviewer.answer = always({"authenticated": True, "user": {"username": "jane"}})
        self.assertEqual(self.successResultOf(self.ask(authenticator, "good")).name, "jane")

    def test_valid(self) -> None:
        """A valid token is the user that the review names."""
        self.reviewer.answer = lambda spec: {
            "authenticated": True,
            "user": {
                "username": "jane",
                "uid": "u-1",
                "groups": ["dev"],
                "extra": {"scopes": ["a"]},
            },
        }
        self.assertEqual(self.successResultOf(self.ask()), JANE)
        path, review = self.reviewer.posted[0]
        self.assertEqual(path, "/apis/authentication.k8s.io/v1/tokenreviews")
        self.assertEqual(
            review,
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": "secret"},
            },
        )

    def test_expires(self) -> None:
        """A valid token that is a JWT ends when it says so; the review does not tell."""
        self.reviewer.answer = always({"authenticated": True, "user": {"username": "jane"}})
        for token, end in (
            (forge.token({"exp": 2_000_000_000}), 2e9),
            (forge.token({"exp": "soon"}), math.inf),
            (forge.token({}), math.inf),
            (b"opaque", math.inf),
        ):
            user = self.successResultOf(self.ask(token=token.decode()))
            assert user is not None
            self.assertEqual(user.expires, end)

    def test_service_account_expires(self) -> None:
        """Kubernetes accepts the token of a ServiceAccount for a minute after its end."""
        name = "system:serviceaccount:default:ada"
        self.reviewer.answer = always({"authenticated": True, "user": {"username": name}})
        user = self.successResultOf(self.ask(token=forge.token({"exp": 2_000_000_000}).decode()))
        self.assertEqual(getattr(user, "expires", 0), 2e9 + 60)

    def test_not_valid(self) -> None:
        """Any review but a clear yes with a name is a refusal."""
        for status in (
            {},
            {"authenticated": False, "error": "expired"},
            {"authenticated": "true", "user": {"username": "jane"}},
            {"authenticated": True},
            {"authenticated": True, "user": {}},
            {"authenticated": True, "user": {"username": ""}},
            {"user": {"username": "jane"}},
        ):
            self.reviewer.answer = always(status)
            self.failureResultOf(self.ask(), Unauthorized)

    def test_refusal(self) -> None:
        """The user reads why the API server refuses the token, and what to do."""
        for error, why in (
            ("the lab token has expired", ": the lab token has expired; "),
            ("two\nlines", ": two lines; "),
            ("", "; "),
            (7, "; "),
        ):
            self.reviewer.answer = always({"authenticated": False, "error": error})
            authenticator = self.authenticator()
            for _ in range(2):  # the second comes from the cache
                failure = self.failureResultOf(self.ask(authenticator), Unauthorized)
                self.assertEqual(
                    failure.value.message,
                    f"the API server does not accept this bearer token{why}log in again, or get a new token",
                )
        self.reviewer.answer = always({"authenticated": False, "error": "x" * 100_000})
        failure = self.failureResultOf(self.ask(), Unauthorized)
        self.assertLess(len(failure.value.message), 5000)

    def test_refusal_quotes_token(self) -> None:
        """An error of the review that holds the token is not passed on."""
        self.reviewer.answer = always({"authenticated": False, "error": 'unknown token "secret"'})
        failure = self.failureResultOf(self.ask(), Unauthorized)
        self.assertNotIn("secret", failure.value.message)

    def test_odd_user(self) -> None:
        """A user that cannot be read is an error: groups are not guessed."""
        for odd in (
            {"username": 7},
            {"username": "jane", "groups": "system:masters"},
            {"username": "jane", "groups": [7]},
            {"username": "jane", "extra": ["x"]},
            {"username": "jane", "extra": {"x": "y"}},
        ):
            self.reviewer.answer = always({"authenticated": True, "user": odd})
            self.failureResultOf(self.ask(), InternalError)

    def test_no_token(self) -> None:
        """Without a token no review is sent."""
        user = self.successResultOf(self.authenticator().authenticate(credentials({})))
        self.assertIsNone(user)
        self.assertEqual(self.reviewer.posted, [])

    def test_not_utf8(self) -> None:
        """A token that no review can carry is not valid."""
        self.failureResultOf(self.ask(token="\udcff"), Unauthorized)
        self.assertEqual(self.reviewer.posted, [])

    def test_audiences(self) -> None:
        """With audiences, only a token meant for one of them is valid."""
        user = {"username": "jane"}
        for told, good in ((["exec"], True), (["x", "exec"], True), (["x"], False), (None, False)):
            self.reviewer.answer = always(
                {
                    "authenticated": True,
                    "user": user,
                    "audiences": told,
                }
            )
            answer = self.ask(self.authenticator(audiences=["exec"]))
            if good:
                self.assertIsNotNone(self.successResultOf(answer))
            else:
                self.failureResultOf(answer, Unauthorized)
        self.assertEqual(self.reviewer.posted[0][1]["spec"]["audiences"], ["exec"])

    def test_cached(self) -> None:
        """Answers are cached for ten seconds at most, even if configured for longer."""
        for status, check in (
            ({"authenticated": True, "user": {"username": "jane"}}, self.successResultOf),
            ({}, lambda answer: self.failureResultOf(answer, Unauthorized)),
        ):
            self.reviewer.answer = always(status)
            self.reviewer.posted.clear()
            authenticator = self.authenticator(cache_seconds=3600)
            for _ in range(3):
                check(self.ask(authenticator))
            self.assertEqual(len(self.reviewer.posted), 1)
            self.clock.advance(10)
            check(self.ask(authenticator))
            self.assertEqual(len(self.reviewer.posted), 2)

    def test_no_token_is_kept(self) -> None:
        """The cache holds neither tokens nor plain hashes of them."""
        import hashlib

        authenticator = self.authenticator()
        self.failureResultOf(self.ask(authenticator), Unauthorized)
        kept = instances(authenticator, bytes, beside=[self.reviewer])
        self.assertNotEqual(kept, [])
        self.assertNotIn(hashlib.sha256(b"secret").digest(), kept)
        self.assertEqual([each for each in kept if b"secret" in each], [])

    def test_unreachable(self) -> None:
        """An unreachable API server is an error, and not cached."""
        self.reviewer.answer = lambda spec: fail(BadGateway("refused"))
        authenticator = self.authenticator()
        answer = self.ask(authenticator)
        self.clock.pump([0.1] * 60)
        failure = self.failureResultOf(answer, ServiceUnavailable)
        self.assertNotIn("secret", str(failure.value))
        self.reviewer.answer = lambda spec: {
            "authenticated": True,
            "user": {"username": "jane"},
        }
        self.assertIsNotNone(self.successResultOf(self.ask(authenticator)))

    def test_outage(self) -> None:
        """A failure behind the API server is no refusal, and not cached; its Retry-After passes on."""
        authenticator = self.authenticator(retry_seconds=0)
        for after, expected in ((7, 7), (None, 1)):
            self.reviewer.answer = lambda spec, after=after: fail(  # type: ignore[misc]
                ServiceUnavailable("the database is down", retry_after_seconds=after)
            )
            failure = self.failureResultOf(self.ask(authenticator), ServiceUnavailable)
            self.assertIn("the database is down", failure.value.message)
            self.assertEqual(failure.value.retry_after_seconds, expected)
        self.reviewer.answer = always({"authenticated": True, "user": {"username": "jane"}})
        self.assertIsNotNone(self.successResultOf(self.ask(authenticator)))


class RetryTests(ReviewCase):
    """Retries of reviews."""

    def ask(self, **more: Any) -> Deferred[Decision]:
        return DelegatedAuthorizer(self.client, self.clock, **more).authorize(EXEC)

    def failing(self, times: int, problem: APIError) -> None:
        left = [problem] * times

        def answer(spec: dict[str, Any]) -> Any:
            return fail(left.pop()) if left else {"allowed": True}

        self.reviewer.answer = answer

    def test_passing_troubles(self) -> None:
        """Troubles that may pass are tried again, with growing pauses."""
        for problem in (
            BadGateway("x"),
            ServiceUnavailable("x"),
            GatewayTimeout("x"),
            InternalError("x"),
            TooManyRequests("x"),
        ):
            self.failing(3, problem)
            answer = self.ask()
            self.assertNoResult(answer)
            self.clock.pump([0.05] * 80)
            self.assertTrue(self.successResultOf(answer).allowed, problem)

    def test_total_time(self) -> None:
        """Retries end after the total time with an error."""
        self.reviewer.answer = lambda spec: fail(BadGateway("refused"))
        step = 0.05
        for seconds in (1.0, 5.0):
            began = self.clock.seconds()
            answer = self.ask(retry_seconds=seconds)
            while not answer.called:
                self.clock.advance(step)
            self.failureResultOf(answer, ServiceUnavailable)
            self.assertLess(self.clock.seconds() - began, seconds + step)
        self.assertLess(len(self.reviewer.posted), 12)

    def test_no_answer(self) -> None:
        """A review that is never answered ends after the total time; it is cancelled."""
        waiting: Deferred[Any] = Deferred()
        self.reviewer.answer = lambda spec: waiting
        answer = self.ask(retry_seconds=5)
        self.clock.pump([0.5] * 10)
        self.failureResultOf(answer, ServiceUnavailable)
        self.assertTrue(waiting.called)

    def test_slow_server(self) -> None:
        """A review waits while the API server answers others, and then not longer than ever."""
        waiting: Deferred[Any] = Deferred()
        self.reviewer.answer = lambda spec: waiting
        authorizer = DelegatedAuthorizer(self.client, self.clock, retry_seconds=5)
        slow = authorizer.authorize(EXEC)
        self.reviewer.answer = lambda spec: {"allowed": True}
        for number in range(10):
            self.clock.advance(4)
            other = replace(EXEC, name=f"other-{number}")
            self.assertTrue(self.successResultOf(authorizer.authorize(other)).allowed)
        self.clock.advance(4.9)
        self.assertNoResult(slow)
        self.clock.advance(0.1)
        self.failureResultOf(slow, ServiceUnavailable)

    def test_lasting_troubles(self) -> None:
        """Lasting errors are not retried, and become internal errors, not the user's 401 or 403."""
        for problem in (Forbidden("no"), Unauthorized(), NotFound("reviews", "x")):
            self.reviewer.posted.clear()
            self.failing(1, problem)
            failure = self.failureResultOf(self.ask(), InternalError)
            self.assertEqual(len(self.reviewer.posted), 1)
            if not isinstance(problem, NotFound):
                self.assertIn("system:auth-delegator", str(failure.value))


class DelegatedAuthorizerTests(ReviewCase):
    """Tests for :class:`DelegatedAuthorizer`."""

    def setUp(self) -> None:
        super().setUp()
        self.authorizer = DelegatedAuthorizer(self.client, self.clock)

    def test_door(self) -> None:
        """The class implements IAuthorizer."""
        verifyObject(IAuthorizer, self.authorizer)

    def test_allowed(self) -> None:
        """A clear yes is a yes, with its reason."""
        self.reviewer.answer = lambda spec: {"allowed": True, "reason": "RBAC: ..."}
        self.assertEqual(
            self.successResultOf(self.authorizer.authorize(EXEC)), Decision(True, "RBAC: ...")
        )
        path, review = self.reviewer.posted[0]
        self.assertEqual(path, "/apis/authorization.k8s.io/v1/subjectaccessreviews")
        self.assertEqual(
            review["spec"],
            {
                "user": "jane",
                "uid": "u-1",
                "groups": ["dev", "system:authenticated"],
                "extra": {"scopes": ["a"]},
                "resourceAttributes": {
                    "namespace": "default",
                    "verb": "create",
                    "group": "compute.ironcore.dev",
                    "version": "v1alpha1",
                    "resource": "machines",
                    "subresource": "exec",
                    "name": "vm-1",
                },
            },
        )

    def test_forget(self) -> None:
        """An answer that was forgotten is asked for again."""
        self.reviewer.answer = always({"allowed": True})
        for _ in range(2):
            self.successResultOf(self.authorizer.authorize(EXEC))
        self.assertEqual(len(self.reviewer.posted), 1)
        self.authorizer.forget()
        self.reviewer.answer = always({"allowed": False})
        self.assertFalse(self.successResultOf(self.authorizer.authorize(EXEC)).allowed)

    def test_not_allowed(self) -> None:
        """Anything but a clear yes is a no."""
        for status in ({}, {"allowed": False}, {"denied": True}, {"allowed": "true"}):
            self.clock.advance(10)
            self.reviewer.answer = always(status)
            decision = self.successResultOf(self.authorizer.authorize(EXEC))
            self.assertFalse(decision.allowed, status)

    def test_contradiction(self) -> None:
        """An answer that is both allowed and denied is an error."""
        self.reviewer.answer = lambda spec: {"allowed": True, "denied": True}
        self.failureResultOf(self.authorizer.authorize(EXEC), InternalError)

    def test_no_status(self) -> None:
        """An answer without a status is an error."""
        self.reviewer.answer = lambda spec: None
        answer = DelegatedAuthorizer(self.client, self.clock, retry_seconds=0).authorize(EXEC)
        self.failureResultOf(answer, ServiceUnavailable)

    def test_other_questions(self) -> None:
        """A cached answer applies only to the same attributes and the same user in every detail."""
        self.reviewer.answer = lambda spec: {"allowed": spec["user"] == "jane"}
        self.assertTrue(self.successResultOf(self.authorizer.authorize(EXEC)).allowed)
        from dataclasses import replace

        for changed in (
            replace(EXEC, user=replace(JANE, name="eve")),
            replace(EXEC, user=replace(JANE, groups=())),
            replace(EXEC, user=replace(JANE, uid="u-2")),
            replace(EXEC, user=replace(JANE, extra={})),
            replace(EXEC, verb="get"),
            replace(EXEC, group=""),
            replace(EXEC, resource="machinepools"),
            replace(EXEC, subresource=""),
            replace(EXEC, namespace="other"),
            replace(EXEC, name="vm-2"),
        ):
            before = len(self.reviewer.posted)
            self.successResultOf(self.authorizer.authorize(changed))
            self.assertEqual(len(self.reviewer.posted), before + 1, changed)

    def test_withdrawn(self) -> None:
        """A permission that was withdrawn counts ten seconds longer at most."""
        self.reviewer.answer = lambda spec: {"allowed": True}
        authorizer = DelegatedAuthorizer(self.client, self.clock, allow_seconds=300)
        self.assertTrue(self.successResultOf(authorizer.authorize(EXEC)).allowed)
        self.reviewer.answer = lambda spec: {"allowed": False}
        self.clock.advance(10)
        self.assertFalse(self.successResultOf(authorizer.authorize(EXEC)).allowed)

    def test_enormous_question(self) -> None:
        """A question of many kilobytes is answered and not remembered."""
        self.reviewer.answer = lambda spec: {"allowed": True}
        groups = tuple(f"group-{number}" for number in range(2000))
        asked = Attributes(User("jane", groups), "get", path="/healthz")
        for _ in range(2):
            self.successResultOf(self.authorizer.authorize(asked))
        self.assertEqual(len(self.reviewer.posted), 2)

    def test_path(self) -> None:
        """A path is reviewed as a non-resource path."""
        spec = review_spec(Attributes(User("jane"), "get", path="/metrics"))
        self.assertEqual(
            spec,
            {
                "user": "jane",
                "groups": [],
                "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
            },
        )
