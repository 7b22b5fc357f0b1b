"""
Tests for :mod:`twisted_exec.auth.tokens`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from tests.auth.support import CredentialsCase
from twisted_exec.api.status import ServiceUnavailable, Unauthorized
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.tokens import (
    BearerAuthenticator,
    IAudienceAuthenticator,
    ITokenAuthenticator,
    Known,
)


@implementer(ITokenAuthenticator)
class Source:
    """A token authenticator with a fixed answer."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, 0

    def authenticate_token(self, token: bytes) -> Deferred[User | None]:
        self.asked += 1
        return fail(self.answer) if isinstance(self.answer, Exception) else succeed(self.answer)


class BearerTests(CredentialsCase):
    """Tests for :class:`BearerAuthenticator`."""

    def ask(self, *sources: Source) -> Deferred[User | None]:
        presented = self.credentials({"Authorization": ["Bearer t"]})
        return BearerAuthenticator(sources).authenticate(presented)

    def test_first_that_knows(self) -> None:
        """Authenticators are tried in order until a user is found."""
        sources = [Source(None), Source(User("jane")), Source(User("joe"))]
        self.assertEqual(self.successResultOf(self.ask(*sources)), User("jane"))
        self.assertEqual([source.asked for source in sources], [1, 1, 0])

    def test_nobody_knows(self) -> None:
        """A token unknown to every source is an error."""
        self.failureResultOf(self.ask(Source(None), Source(None)), Unauthorized)

    def test_cannot_ask(self) -> None:
        """An authenticator that is unavailable ends the search with its error."""
        self.failureResultOf(
            self.ask(Source(ServiceUnavailable("down")), Source(User("jane"))), ServiceUnavailable
        )


class AudienceTests(CredentialsCase):
    """Tests for :meth:`BearerAuthenticator.authenticate_for`."""

    def known(self, asked: Sequence[str], ours: Sequence[str], *sources: Source) -> Known | None:
        authenticator = BearerAuthenticator(sources, ours)
        found: Known | None = self.successResultOf(authenticator.authenticate_for(b"t", asked))
        return found

    def test_nobody_says(self) -> None:
        """Without audiences of its own, the authenticator accepts any audience and reports none."""
        self.assertEqual(self.known(["x"], [], Source(User("jane"))), Known(User("jane")))
        self.assertIsNone(self.known(["x"], [], Source(None)))

    def test_this_server(self) -> None:
        """A token without audiences is valid for this server's audiences only."""
        jane = User("jane")
        for asked, told in (([], ("a", "b")), (["b", "x"], ("b",))):
            self.assertEqual(self.known(asked, ["a", "b"], Source(jane)), Known(jane, told))
        source = Source(jane)
        self.assertIsNone(self.known(["x"], ["a"], source))
        self.assertEqual(source.asked, 0)

    def test_says_it_itself(self) -> None:
        """
        An authenticator that checks audiences itself is called in its turn and reports its own.
        """

        @implementer(IAudienceAuthenticator)
        class Saying(Source):
            def authenticate_for(self, token: bytes, audiences: Sequence[str]) -> Any:
                return succeed(Known(User("robot"), tuple(audiences)))

        told = self.known(["x"], ["a"], Source(User("jane")), Saying(None))
        self.assertEqual(told, Known(User("robot"), ("x",)))
        inner = BearerAuthenticator([Saying(None)], ["a"])
        told = self.known(["x"], ["b"], inner)  # type: ignore[arg-type]
        self.assertEqual(told, Known(User("robot"), ("x",)))
