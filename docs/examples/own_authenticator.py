"""
Logins by bearer tokens of your own: ``lab.USER.END.HMAC``.

one_application.py loads this authenticator if LAB_LOGINS is a directory with two files: ``secret``
has at least 16 bytes, and ``groups`` has lines ``USER: GROUP GROUP``.  Print a token that is valid
for an hour:

    python docs/examples/own_authenticator.py logins jane 3600
"""

from __future__ import annotations

import hmac
import os
import sys
import time
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from twisted_exec.interfaces import (
    HeaderSet,
    IAuthenticator,
    PresentedCredentials,
    Unauthorized,
    User,
    with_authenticated,
)
from twisted_exec.services import Reloading, read_file


def token_of(secret: bytes, user: bytes, end: bytes) -> bytes:
    """Return a user's token that is valid until ``end``, in seconds since 1970."""
    signed = b"lab.%s.%s" % (user, end)
    return b"%s.%s" % (signed, hmac.new(secret, signed, "sha256").hexdigest().encode())


def secret_of(content: bytes) -> bytes:
    """Return the secret in the content of its file."""
    secret = content.strip()
    if len(secret) < 16:
        raise ValueError("the secret has fewer than 16 bytes")
    return secret


def groups_of(content: bytes) -> dict[str, list[str]]:
    """Return the groups of each user in the content of their file."""
    lines = [line.partition(":") for line in content.decode().splitlines() if line.strip()]
    if not all(colon for _, colon, _ in lines):
        raise ValueError("a line is not 'USER: GROUP GROUP'")
    return {user.strip(): groups.split() for user, _, groups in lines}


@implementer(IAuthenticator)
class TokenAuthenticator:
    """Knows users by tokens ``lab.USER.END.HMAC``."""

    credential_headers = HeaderSet()  # the server reads Authorization: Bearer in any case

    def __init__(self, directory: str, clock: IReactorTime) -> None:
        self._secret = Reloading([os.path.join(directory, "secret")], secret_of, clock)
        self._groups = Reloading([os.path.join(directory, "groups")], groups_of, clock)

    def files(self) -> list[Reloading[Any]]:
        """Return the files: a change of one starts a review of the open consoles."""
        return [self._secret, self._groups]

    def load(self) -> None:
        """Read the files: a failure ends the start of the server."""
        for file in self.files():
            file.load()

    def authenticate(self, credentials: PresentedCredentials) -> Deferred[User | None]:
        """As :meth:`IAuthenticator.authenticate`."""
        return maybeDeferred(self._user, credentials)

    def _user(self, credentials: PresentedCredentials) -> User | None:
        token = credentials.bearer_token()
        if token is None or not token.startswith(b"lab."):
            return None  # another authenticator may know the user
        name, _, end = token.removeprefix(b"lab.").rpartition(b".")[0].rpartition(b".")
        if not hmac.compare_digest(token, token_of(self._secret.get(), name, end)):
            raise Unauthorized("the lab token is not signed with the present secret")
        if int(end) <= time.time():
            raise Unauthorized("the lab token has expired")
        user = name.decode()
        groups = self._groups.get().get(user, [])
        return User(user, with_authenticated(user, groups), expires=float(end))


if __name__ == "__main__":
    directory, user, seconds = sys.argv[1:]
    end = b"%d" % (time.time() + float(seconds))
    print(token_of(secret_of(read_file(f"{directory}/secret")), user.encode(), end).decode())
