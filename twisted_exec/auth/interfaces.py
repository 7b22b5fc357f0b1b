"""
Interfaces of authentication and authorization, and the data that they exchange.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.web.http_headers import Headers
from zope.interface import Attribute, Interface

from twisted_exec.api.status import APIError, Unauthorized
from twisted_exec.api.users import User
from twisted_exec.auth.rules import Attributes, Rule
from twisted_exec.wire.upgrade import HeaderSet

if TYPE_CHECKING:
    # Not imported by clients, which look up roles while the user waits.
    from twisted_exec.api.kinds import Object
    from twisted_exec.tls.server import PeerCertificate

__all__ = [
    "Attributes",
    "Decision",
    "IAuthenticator",
    "IAuthorizer",
    "IProxyAuthenticator",
    "IRulesAuthorizer",
    "IVisibility",
    "User",
]

LONGEST_TOKEN_BYTES = 32 << 10

IMPERSONATION_HEADERS = HeaderSet.of(prefixes=["Impersonate-"])
"""As whom the user asks to act, see :mod:`twisted_exec.auth.gate`."""


class IVisibility(Interface):
    """The objects of one resource that a user may see, as part of a :class:`Decision`."""

    def sees(obj: Object) -> bool:
        """Return whether the user may see an object now."""

    def refusal(obj: Object) -> APIError:
        """Return the error for a request that names an object which the user may not see."""

    def since() -> int:
        """Return the version of the store since which the same names have been visible."""

    def follow(changed: Callable[[], None]) -> Callable[[], None]:
        """
        Call ``changed`` whenever other objects may be visible than before.

        :return: stops that.
        """


@dataclass(frozen=True)
class Decision:
    """
    An authorizer's answer.

    :param reason: for people and the audit log; may be empty.
    :param hidden: the user gets 404 instead of 403.
    :param visibility: the objects that the request is allowed for; ``None`` for all.
    :param lacking: the user who lacks the right; empty for the user of the request.
    :param never: no role gives the user this right.
    """

    allowed: bool
    reason: str = ""
    hidden: bool = False
    visibility: IVisibility | None = None
    lacking: str = ""
    never: bool = False

    @property
    def allows_everything(self) -> bool:
        """
        True if the request is allowed for every object.

        A caller that applies no visibility must ask for this.
        """
        return self.allowed and self.visibility is None


class IAuthenticator(Interface):
    """Finds the user of a request by one kind of credential."""

    credential_headers = Attribute(
        """
        The request headers that it reads, a :class:`~twisted_exec.wire.upgrade.HeaderSet`.

        These headers are in ``credentials.headers``, they are kept for reviews, and no hop passes
        them on.  ``Authorization: Bearer`` needs no entry: use ``credentials.bearer_token()``.
        """
    )

    def authenticate(credentials: PresentedCredentials) -> Deferred[User | None]:
        """
        Authenticate credentials.

        :return: fires with the user, or with ``None`` if no credential is for this authenticator.
            Fails with :class:`~twisted_exec.api.status.Unauthorized` for an invalid credential, and
            with :class:`~twisted_exec.api.status.ServiceUnavailable` if nobody can say now whether
            it is valid; then no other authenticator is asked.
        """


class IProxyAuthenticator(IAuthenticator):
    """Authenticates users whom a proxy forwards; such users have ``forwarded_by``."""

    def proxy_problem(certificate: PeerCertificate) -> str:
        """
        Say why a proxy is not trusted any more; its sessions end then.

        :param certificate: of a proxy that was trusted when it opened a session.
        :return: a message that names the proxy; empty while its CA and its name are trusted. A
            certificate that has expired since is no reason.
        """


class IAuthorizer(Interface):
    """Decides whether a user may do something."""

    def authorize(attributes: Attributes) -> Deferred[Decision]:
        """
        Decide about one action.

        :return: fires with a :class:`Decision`. Fails with an
            :class:`~twisted_exec.api.status.APIError` if no decision is possible now.
        """


class IRulesAuthorizer(IAuthorizer):
    """An authorizer that decides by rules, and can list them."""

    def rules_for(user: User, namespace: str) -> Deferred[tuple[Rule, ...]]:
        """
        List what a user may do in a namespace, for a SelfSubjectRulesReview.

        :param namespace: empty for the rules of the whole cluster only.
        :return: fires with the rules; fails as :meth:`IAuthorizer.authorize`.
        """


@dataclass(frozen=True, eq=False, repr=False)
class PresentedCredentials:
    """
    The credentials that a client presented, not verified yet.

    They outlive the request, for reviews of its session.

    :param token: authenticators use :meth:`bearer_token`.
    :param token_in_header: the request has ``Authorization: Bearer``, which a page of another site
        cannot make a browser send without this server's consent.
    :param headers: those that the server's authenticators declare, and of impersonation.
    :param certificate: of the client.
    :param token_problem: why the bearer token cannot be read.
    :param address: the host that the connection comes from.
    """

    certificate: PeerCertificate | None = None
    token: bytes | None = None
    token_problem: str = ""
    token_in_header: bool = False
    headers: Headers = field(default_factory=Headers)
    address: str = ""

    def __repr__(self) -> str:
        certificate = None if self.certificate is None else self.certificate.common_name
        names = sorted(name.decode("latin-1") for name, _ in self.headers.getAllRawHeaders())
        has_token = self.token is not None
        return f"<PresentedCredentials {certificate=} {has_token=} headers={names} {self.address}>"

    def bearer_token(self) -> bytes | None:
        """
        Return the bearer token.

        :raises Unauthorized: it cannot be read.
        """
        if self.token_problem:
            raise Unauthorized(self.token_problem)
        return self.token

    def key(self) -> object:
        """
        Return a key that equal credentials share.

        :return: ``None`` if other headers are part of them, or the bearer token cannot be read.
        """
        if self.token_problem or any(True for _ in self.headers.getAllRawHeaders()):
            return None
        certificate = b"" if self.certificate is None else self.certificate.digest
        return certificate, self.token, self.address

    @cached_property
    def impersonates(self) -> bool:
        """True if any header requests impersonation, even a malformed one."""
        names = (name.lower() for name, _ in self.headers.getAllRawHeaders())
        return any(name.startswith(b"impersonate-") for name in names)

    @property
    def sent_unasked(self) -> bool:
        """
        Return whether a browser may have added some of these credentials to the request of a page
        of any site.
        """
        declared = (
            name not in IMPERSONATION_HEADERS for name, _ in self.headers.getAllRawHeaders()
        )
        return self.certificate is not None or any(declared)


NO_CREDENTIALS = PresentedCredentials()
