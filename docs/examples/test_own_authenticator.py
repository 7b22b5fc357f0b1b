"""
The promises of all authenticators, over own_authenticator.py.

They are in the tests of a checkout of twisted-exec, which need hypothesis:

    pip install hypothesis
    PYTHONPATH=twisted-exec:lab python -m twisted.trial test_own_authenticator
"""

from __future__ import annotations

import time

from own_authenticator import TokenAuthenticator, token_of

from tests.auth.support import CredentialsCase
from tests.contracts.authenticator import AuthenticatorContract, Sent

SECRET = b"0123456789abcdef"


def token(user: str, seconds: float, secret: bytes = SECRET) -> str:
    """Return a token that ends in some seconds."""
    return token_of(secret, user.encode(), b"%d" % (time.time() + seconds)).decode()


def request(*tokens: str) -> Sent:
    """Return a request with bearer tokens and without a client certificate."""
    return {"Authorization": [f"Bearer {each}" for each in tokens]}, None


class TokenTests(AuthenticatorContract, CredentialsCase):
    """The contract, and what it does not know."""

    def make_authenticator(self) -> TokenAuthenticator:
        self.write("secret", SECRET)
        self.write("groups", b"jane: dev\n")
        made = TokenAuthenticator(self.directory, self.clock)
        made.load()
        return made

    def known(self) -> Sent:
        return request(token("jane", 600))

    def invalid(self) -> list[Sent]:
        good = token("jane", 600)
        return [
            request(token("jane", 600, b"another secret, of 16 bytes")),
            request(token("jane", 0)),
            request(good.replace("jane", "joan")),
            request(good[:-1]),
            request("lab.x"),
            request(good, token("joan", 600)),
        ]

    def test_other_token(self) -> None:
        """A token without the prefix is left to other authenticators."""
        made = self.make_authenticator()
        self.assertIsNone(self.user(made, self.presented(made, request("other"))))

    def test_files(self) -> None:
        """A new file counts after a second; one that cannot be used does not, and stops a start."""
        made = self.make_authenticator()
        presented = self.presented(made, self.known())
        for content in (b"jane: ops\n", b"jane"):
            self.write("groups", content)
            self.clock.advance(1)
            self.assertEqual(self.user(made, presented).groups, ("ops", "system:authenticated"))
        with self.assertRaisesRegex(Exception, "groups': a line is not 'USER: GROUP GROUP'"):
            made.load()
