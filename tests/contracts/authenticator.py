"""
Contract of every :class:`~twisted_exec.auth.interfaces.IAuthenticator`.

Inherit :class:`AuthenticatorContract` beside ``CredentialsCase`` and say how to make an
authenticator, and which requests it knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from tests.tls.support import client_identity
from twisted_exec.api.status import Unauthorized
from twisted_exec.auth.credentials import CredentialHeaders
from twisted_exec.auth.interfaces import IAuthenticator, PresentedCredentials, User
from twisted_exec.tls.pki.authority import Issued
from twisted_exec.wire.upgrade import HeaderSet

Sent = tuple[Mapping[str, Sequence[str]], Issued | None]
"""Headers of a request, and the client certificate of its connection."""


class AuthenticatorContract:
    """Tests; ``self`` is a :class:`~tests.auth.support.CredentialsCase`."""

    def make_authenticator(self) -> IAuthenticator:
        """An authenticator that is ready."""
        raise NotImplementedError

    def known(self) -> Sent:
        """A request with a valid credential of a known user."""
        raise NotImplementedError

    def invalid(self) -> list[Sent]:
        """Requests with an invalid credential of its kind; empty if nothing of its kind is invalid."""
        return []

    def presented(self: Any, authenticator: IAuthenticator, sent: Sent) -> PresentedCredentials:
        """Return the credentials that a server with this authenticator takes from a request."""
        registry = CredentialHeaders(authenticator, impersonation=True)
        return registry.take_from(self.request(*sent))

    def user(self: Any, authenticator: IAuthenticator, presented: PresentedCredentials) -> Any:
        """Return the authenticated user, or None."""
        found: Deferred[User | None] = authenticator.authenticate(presented)
        return self.successResultOf(found)

    def test_interface(self: Any) -> None:
        """It provides the interface, and declares headers."""
        authenticator = self.make_authenticator()
        verifyObject(IAuthenticator, authenticator)
        self.assertIsInstance(authenticator.credential_headers, HeaderSet)

    def test_known_user(self: Any) -> None:
        """A valid credential yields a user in the group system:authenticated."""
        authenticator = self.make_authenticator()
        user = self.user(authenticator, self.presented(authenticator, self.known()))
        self.assertTrue(user.name)
        self.assertIn("system:authenticated", user.groups)

    def test_known_at_review(self: Any) -> None:
        """The same credentials yield the same user after the connection is closed."""
        authenticator = self.make_authenticator()
        registry = CredentialHeaders(authenticator, impersonation=True)
        request = self.request(*self.known())
        presented = registry.take_from(request)
        first = self.user(authenticator, presented)
        request.channel.transport.getHandle = lambda: None
        self.assertEqual(self.user(authenticator, presented), first)

    def test_nothing_left(self: Any) -> None:
        """
        The authenticator's headers are removed from the request, so no later hop believes them.
        """
        authenticator = self.make_authenticator()
        registry = CredentialHeaders(authenticator, impersonation=True)
        request = self.request(*self.known())
        registry.take_from(request)
        left = [name for name, _ in request.requestHeaders.getAllRawHeaders()]
        self.assertEqual([name for name in left if name in registry], [])

    def test_no_credential(self: Any) -> None:
        """A request without a credential of its kind yields no user, whatever else it carries."""
        authenticator = self.make_authenticator()
        stranger = client_identity("eve", "system:masters", ca="evil")
        for sent in (({}, None), ({"X-Other": ["x"]}, None), ({}, stranger)):
            user = self.user(authenticator, self.presented(authenticator, sent))
            self.assertIsNone(user)

    def test_invalid_credential(self: Any) -> None:
        """An invalid credential fails with Unauthorized, and the error does not quote it."""
        authenticator = self.make_authenticator()
        for sent in self.invalid():
            presented = self.presented(authenticator, sent)
            failure = self.failureResultOf(authenticator.authenticate(presented), Unauthorized)
            for secret in (value for values in sent[0].values() for value in values):
                self.assertNotIn(secret, failure.getErrorMessage())
