"""
Authentication by bearer tokens.

Tokens of a file are looked up as their SHA-256, so that the timing of a look-up reveals nothing
about existing tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred
from zope.interface import Interface, implementer

from twisted_exec.api.status import Unauthorized
from twisted_exec.auth.credentials import NO_HEADERS, files_of
from twisted_exec.auth.interfaces import IAuthenticator, PresentedCredentials, User
from twisted_exec.program.tasks import as_deferred
from twisted_exec.tls.files import Replaceable


class ITokenAuthenticator(Interface):
    """Authenticates bearer tokens."""

    def authenticate_token(token: bytes) -> Deferred[User | None]:
        """
        Authenticate a token.

        :return: fires with the user, or with ``None`` if the token is unknown here; fails with an
            :class:`~twisted_exec.api.status.APIError` otherwise.
        """


@dataclass(frozen=True)
class Known:
    """
    The user of a token.

    :param audiences: those of the requested audiences that it is for.
    """

    user: User
    audiences: tuple[str, ...] = ()


class IAudienceAuthenticator(ITokenAuthenticator):
    """Authenticates bearer tokens that have audiences."""

    def authenticate_for(token: bytes, audiences: Sequence[str]) -> Deferred[Known | None]:
        """
        As :meth:`ITokenAuthenticator.authenticate_token`, for tokens with one of these audiences.
        """


@implementer(IAuthenticator, IAudienceAuthenticator)
class BearerAuthenticator:
    """
    Authenticates users by ``Authorization: Bearer``.

    :param sources: tried in order until one knows the token.
    :param audiences: this server's audiences, which tokens without audiences are for.
    """

    credential_headers = NO_HEADERS

    def __init__(
        self, sources: Sequence[ITokenAuthenticator], audiences: Sequence[str] = ()
    ) -> None:
        self._sources, self._audiences = tuple(sources), tuple(audiences)

    def files(self) -> list[Replaceable]:
        return files_of(self._sources)

    @as_deferred
    async def authenticate(self, credentials: PresentedCredentials) -> User | None:
        """As :meth:`IAuthenticator.authenticate`: an unknown token is an error."""
        token = credentials.bearer_token()
        if token is None:
            return None
        user = await self.authenticate_token(token)
        if user is None:
            raise Unauthorized()
        return user

    @as_deferred
    async def authenticate_token(self, token: bytes) -> User | None:
        for source in self._sources:
            user = await source.authenticate_token(token)
            if user is not None:
                return user
        return None

    def authenticate_for(self, token: bytes, audiences: Sequence[str]) -> Deferred[Known | None]:
        """As :meth:`IAudienceAuthenticator.authenticate_for`; no audiences mean this server's."""
        return Deferred.fromCoroutine(self._ask_for(token, tuple(audiences) or self._audiences))

    async def _ask_for(self, token: bytes, audiences: tuple[str, ...]) -> Known | None:
        ours = tuple(each for each in audiences if each in self._audiences)
        for source in self._sources:
            if IAudienceAuthenticator.providedBy(source):
                answer: Known | None = await source.authenticate_for(token, audiences)
                if answer is not None:
                    return answer
            elif ours or not self._audiences:
                user = await source.authenticate_token(token)
                if user is not None:
                    return Known(user, ours)
        return None
