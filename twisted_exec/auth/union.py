"""
Several kinds of credentials on one server.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred
from twisted.web.iweb import IRequest
from zope.interface import implementer

from twisted_exec.auth.interfaces import IAuthenticator, User


@implementer(IAuthenticator)
class UnionAuthenticator:
    """
    Asks authenticators in order; the first that knows the user wins.

    A credential that is not valid ends the asking: whoever shows a bad token is not
    let in as someone else.  The usual order is request header, certificate, token.
    """

    def __init__(self, authenticators: Sequence[IAuthenticator]) -> None:
        self._authenticators = tuple(authenticators)

    def authenticate(self, request: IRequest) -> Deferred[User | None]:
        """As :meth:`IAuthenticator.authenticate`."""
        return Deferred.fromCoroutine(self._authenticate(request))

    async def _authenticate(self, request: IRequest) -> User | None:
        for authenticator in self._authenticators:
            user = await authenticator.authenticate(request)
            if user is not None:
                return user
        return None
