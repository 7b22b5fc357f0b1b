"""
The secret in the page's URL, and the token of the page.

Every program of every user on this computer can connect to a port of 127.0.0.1.  The URL, which only
this user sees, has a secret in its fragment, which browsers do not send.  The page exchanges it for
the token, once and soon: a URL stays in a browser's history and in a terminal's scrollback.
"""

from __future__ import annotations

import hmac
import secrets

from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.status import Forbidden

VALID_SECONDS = 30.0

_BYTES = 32
"""So many cannot be guessed, so guesses are not counted: any program could make the right secret void."""

REMEDY = "press Enter in the terminal where the web console runs, and open the new URL"


class Login:
    """
    The current secret, and the token.

    :param clock: for the age of the secret.
    :ivar token: the token of the page, which never expires: it ends with the program.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self.token = secrets.token_urlsafe(_BYTES)
        self._secret = b""
        self._until = 0.0

    def new_secret(self) -> str:
        """Return a secret, which replaces the one before."""
        secret = secrets.token_urlsafe(_BYTES)
        self._secret = secret.encode("ascii")
        self._until = self._clock.seconds() + VALID_SECONDS
        return secret

    def exchange(self, presented: str) -> str:
        """
        Return the token for a secret, which is void afterwards.

        :raises Forbidden: the secret is wrong, was used, or is too old.
        """
        if self._clock.seconds() >= self._until:
            self._secret = b""
        if not self._secret or not _equal(presented.encode("utf-8", "replace"), self._secret):
            raise Forbidden(
                f"this URL was used already, is older than {VALID_SECONDS:.0f} s, or is incomplete: "
                f"{REMEDY}"
            )
        self._secret = b""
        return self.token

    def is_token(self, presented: bytes) -> bool:
        """Return whether a request has the token."""
        return _equal(presented, self.token.encode("ascii"))


def _equal(first: bytes, second: bytes) -> bool:
    return hmac.compare_digest(first, second)
