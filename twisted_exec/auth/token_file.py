"""
Authentication by a file of tokens.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import os
from collections.abc import Mapping, Sequence

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from twisted_exec.api.users import with_authenticated
from twisted_exec.auth.credentials import NO_HEADERS
from twisted_exec.auth.interfaces import IAuthenticator, PresentedCredentials, User
from twisted_exec.auth.tokens import BearerAuthenticator, ITokenAuthenticator
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.files import Reloading, Replaceable, warn_if_public


@implementer(IAuthenticator, ITokenAuthenticator)
class TokenFileAuthenticator:
    """
    Authenticates users by a token file in the format of kube-apiserver's ``--token-auth-file``.

    Lines of ``token,user,uid,"group1,group2"``; groups are optional.

    :param path: not opened before :meth:`load` or the first token.
    """

    credential_headers = NO_HEADERS

    def __init__(self, path: str, clock: IReactorTime) -> None:
        self._path = path
        self._users = Reloading([path], self._parse, clock)

    def load(self) -> None:
        """
        Read the file now.

        :raises TLSConfigError: it is unusable; the message does not quote it.
        """
        self._users.load()

    def files(self) -> list[Replaceable]:
        return [self._users]

    def authenticate(self, credentials: PresentedCredentials) -> Deferred[User | None]:
        return BearerAuthenticator([self]).authenticate(credentials)

    def authenticate_token(self, token: bytes) -> Deferred[User | None]:
        return maybeDeferred(lambda: succeed(self._users.get().get(_digest(token))))

    def _parse(self, content: bytes) -> Mapping[bytes, User]:
        users: dict[bytes, User] = {}
        try:
            rows = csv.reader(io.StringIO(content.decode("utf-8"), newline=""), strict=True)
            for number, row in enumerate(rows, 1):
                if row:
                    token, user = _row(row, f"token file {self._path!r}, record {number}")
                    users[_digest(token)] = user
        except (csv.Error, UnicodeDecodeError):
            raise TLSConfigError(f"token file {self._path!r} is not CSV in UTF-8") from None
        with contextlib.suppress(OSError):  # it was read just now
            warn_if_public(self._path, os.stat(self._path).st_mode)
        return users


def _row(row: Sequence[str], where: str) -> tuple[bytes, User]:
    if len(row) < 3:
        raise TLSConfigError(f"{where}: expected token,user,uid and perhaps groups")
    token, name, uid = (column.strip() for column in row[:3])
    if not token or not name:
        raise TLSConfigError(f"{where}: the token or the user is empty")
    groups = [group.strip() for group in row[3].split(",")] if len(row) > 3 else []
    return token.encode("utf-8"), User(name, with_authenticated(name, groups), uid=uid)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
