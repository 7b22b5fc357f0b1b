"""
Tests for :mod:`twisted_exec.auth.tokens` and :mod:`twisted_exec.auth.credentials`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from tests.auth.support import CredentialsCase
from tests.tls.support import client_identity
from twisted_exec.api.status import ServiceUnavailable, Unauthorized
from twisted_exec.auth.credentials import NO_HEADERS, UnionAuthenticator
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.request_header import RequestHeaderAuthenticator
from twisted_exec.auth.token_file import TokenFileAuthenticator
from twisted_exec.auth.tokens import (
    BearerAuthenticator,
    IAudienceAuthenticator,
    ITokenAuthenticator,
    Known,
)
from twisted_exec.auth.x509 import X509Authenticator
from twisted_exec.wire.upgrade import BEARER_SUBPROTOCOL

BEARER = BEARER_SUBPROTOCOL.decode()

FILE = b'token-1,jane,u-1,"dev,ops"\n\ntoken-2,joe,u-2\n'


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


class SubprotocolTests(CredentialsCase):
    """Tokens among the subprotocols of a WebSocket, for browsers."""

    def ask(self, offered: str, **more: list[str]) -> Deferred[User | None]:
        headers = {
            "Connection": ["Upgrade"],
            "Upgrade": ["websocket"],
            "Sec-WebSocket-Protocol": [offered],
        }
        self.presented = self.credentials({**headers, **more}, declared=NO_HEADERS)
        source = TokenFileAuthenticator(self.write("tokens.csv", FILE), self.clock)
        return source.authenticate(self.presented)

    def test_known(self) -> None:
        """A token in the subprotocol is accepted but not marked as sent in a header."""
        user = self.successResultOf(self.ask(f"{BEARER}dG9rZW4tMQ, v5.channel.k8s.io"))
        assert user is not None
        self.assertEqual(user.name, "jane")
        self.assertEqual(self.presented.token, b"token-1")
        self.assertFalse(self.presented.token_in_header)

    def test_unknown(self) -> None:
        """
        An unknown or malformed token in the subprotocol is refused; it does not become anonymous.
        """
        for offered in (
            f"{BEARER}eA, v5.channel.k8s.io",
            f"{BEARER}dG9rZW4tMQ",
            f"{BEARER}dG9rZW4tMQ==, v5.channel.k8s.io",
            f"{BEARER}dG9rZW4tMQ, {BEARER}dG9rZW4tMQ, v5.channel.k8s.io",
        ):
            self.failureResultOf(self.ask(offered), Unauthorized)

    def test_header_first(self) -> None:
        """The Authorization header takes precedence over the subprotocol."""
        offered = f"{BEARER}eA, v5.channel.k8s.io"
        user = self.successResultOf(self.ask(offered, Authorization=["Bearer token-1"]))
        assert user is not None
        self.assertEqual(user.name, "jane")

    def test_empty(self) -> None:
        """An empty token in the subprotocol is ignored."""
        self.assertIsNone(self.successResultOf(self.ask(f"{BEARER}, v5.channel.k8s.io")))


class UnionTests(CredentialsCase):
    """Tests for :class:`UnionAuthenticator`, with real members."""

    def setUp(self) -> None:
        super().setUp()
        self.union = UnionAuthenticator(
            [
                RequestHeaderAuthenticator(self.forwarding_ca, ["proxy"], self.clock),
                X509Authenticator(self.users_ca, self.clock),
                TokenFileAuthenticator(self.write("tokens.csv", FILE), self.clock),
            ]
        )
        self.proxy = client_identity("proxy", ca="forwarding")

    def name(self, presented: Any) -> str | None:
        user = self.successResultOf(self.union.authenticate(presented))
        return user.name if user else None

    def test_order(self) -> None:
        """
        Proxy headers take precedence over the certificate, and the certificate over the token.
        """
        token = {"Authorization": ["Bearer token-1"]}
        remote = {"X-Remote-User": ["remote"]}
        eve = client_identity("eve")
        self.assertEqual(self.name(self.credentials({**token, **remote}, self.proxy)), "remote")
        self.assertEqual(self.name(self.credentials({**token, **remote}, eve)), "eve")
        self.assertEqual(self.name(self.credentials({**token, **remote})), "jane")
        self.assertIsNone(self.name(self.credentials(remote)))

    def test_proxy_with_a_token(self) -> None:
        """If a proxy sends a token and no user headers, the token identifies the user."""
        presented = self.credentials({"Authorization": ["Bearer token-1"]}, self.proxy)
        self.assertEqual(self.name(presented), "jane")

    def test_bad_token_with_no_certificate(self) -> None:
        """
        A bad token is refused, whichever certificate comes with it, and never becomes anonymous.
        """
        for shown in (None, client_identity("eve", ca="evil"), self.proxy):
            presented = self.credentials({"Authorization": ["Bearer bad"]}, shown)
            self.failureResultOf(self.union.authenticate(presented), Unauthorized)

    def test_nothing(self) -> None:
        """A request without credentials has no user."""
        self.assertIsNone(self.name(self.credentials()))
