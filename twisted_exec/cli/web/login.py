"""
The login of the page: the secret in the URL, and the token.

The token proves the user: without it a request can only read the page's files, and log in.
"""

from __future__ import annotations

import hmac
import secrets

from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.status import BadRequest, Forbidden, Unauthorized
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_server import header_pairs
from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.upgrade import subprotocol_token, values

VALID_SECONDS = 30.0
"""How long a secret can be exchanged."""

_BYTES = 32
"""
Bytes of the secret, too many to guess. Wrong guesses do not make it void, because any program could
send them.
"""

REMEDY = "press Enter in the terminal where the web console runs, and open the new URL"


class Login:
    """
    The current secret, and the token.

    Every user's programs can connect to 127.0.0.1.  The URL, which only this user sees, has a
    secret in its fragment.  The page exchanges it for the token, once and soon: URLs stay in a
    browser's history and in a terminal's scrollback.

    :ivar token: valid until the program ends.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self.token = secrets.token_urlsafe(_BYTES)
        self._secret = b""
        self._until = 0.0

    def new_secret(self) -> str:
        secret = secrets.token_urlsafe(_BYTES)
        self._secret = secret.encode("ascii")
        self._until = self._clock.seconds() + VALID_SECONDS
        return secret

    def exchange(self, presented: str) -> str:
        """
        Return the token for a secret, which is void afterwards.

        :raises Forbidden: the secret is wrong, was used or replaced, or is too old.
        """
        if self._clock.seconds() >= self._until:
            self._secret = b""
        if not self._secret or not _equal(presented.encode("utf-8", "replace"), self._secret):
            raise Forbidden(
                f"This URL was used already, is older than {VALID_SECONDS:.0f} s, or is incomplete, "
                f"or a newer URL was shown: {REMEDY}"
            )
        self._secret = b""
        return self.token

    def is_token(self, presented: bytes) -> bool:
        return _equal(presented, self.token.encode("ascii"))


def _equal(first: bytes, second: bytes) -> bool:
    return hmac.compare_digest(first, second)


class NoToken(Unauthorized):
    """The request has no token of this program."""

    def __init__(self) -> None:
        super().__init__(
            f"this page is not logged in to the web console on this computer: {REMEDY}"
        )


def check_token(request: Request, login: Login) -> None:
    """
    Refuse requests without the token.

    :raises BadRequest: the token among the subprotocols is malformed.
    :raises Unauthorized: there is no token, or another one.
    """
    pairs = header_pairs(request.requestHeaders)
    try:
        token = subprotocol_token(pairs)
    except RemoteProtocolError as problem:
        raise BadRequest(str(problem)) from None
    authorizations = values(pairs, b"authorization")
    if token is None and len(authorizations) == 1:
        scheme, _, credentials = authorizations[0].partition(b" ")
        token = credentials.strip() if scheme.lower() == b"bearer" else None
    if token is None or not login.is_token(token):
        raise NoToken
