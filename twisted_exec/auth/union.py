"""
Several kinds of credentials on one server.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.auth.credentials import NO_HEADERS, PresentedCredentials, check_declared
from twisted_exec.auth.interfaces import IAuthenticator, User
from twisted_exec.wire.upgrade import HeaderSet


@implementer(IAuthenticator)
class UnionAuthenticator:
    """
    Asks authenticators in order; the first that knows the user wins.

    An invalid credential ends the search: a client with a bad token is not let in as somebody
    else.  The usual order is request headers of a proxy, certificate, token.

    :raises TypeError: an authenticator does not declare its headers.
    """

    def __init__(self, authenticators: Sequence[IAuthenticator]) -> None:
        self._authenticators = tuple(authenticators)
        for each in self._authenticators:
            check_declared(each)

    @property
    def credential_headers(self) -> HeaderSet:
        """As :attr:`IAuthenticator.credential_headers`: those of all authenticators."""
        return reduce(or_, (each.credential_headers for each in self._authenticators), NO_HEADERS)

    def authenticate(self, credentials: PresentedCredentials) -> Deferred[User | None]:
        """As :meth:`IAuthenticator.authenticate`."""
        return Deferred.fromCoroutine(self._authenticate(credentials))

    async def _authenticate(self, credentials: PresentedCredentials) -> User | None:
        for authenticator in self._authenticators:
            user = await authenticator.authenticate(credentials)
            if user is not None:
                return user
        return None
