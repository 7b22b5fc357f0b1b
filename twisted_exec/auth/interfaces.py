"""
Interfaces of authentication and authorization, and the data that they exchange.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

if TYPE_CHECKING:
    from twisted_exec.auth.credentials import PresentedCredentials
    from twisted_exec.auth.rbac.rules import Rule


@dataclass(frozen=True)
class User:
    """
    A user of the API.

    :param groups: with ``system:authenticated``, unless the user is anonymous.
    :param forwarded_by: the proxy that speaks for the user, if one does; not part of the user's
        identity.
    """

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    forwarded_by: User | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Attributes:
    """
    The action that an authorizer decides about: on a resource, or on a path.

    :param verb: a Kubernetes verb (``get``, ``create`` ...), or for a path the
        HTTP method in lower case.
    """

    user: User
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


@dataclass(frozen=True)
class Decision:
    """
    An authorizer's answer.

    :param reason: for people and the audit log; may be empty.
    :param hidden: the user gets 404 instead of 403, as if the object did not exist.
    """

    allowed: bool
    reason: str = ""
    hidden: bool = False


class IAuthenticator(Interface):
    """
    Finds the user of a request by one kind of credential.

    The same credentials are authenticated again at each review of a session, about every ten
    seconds.
    """

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

        :return: fires with the user, or with ``None`` if there is no credential of this kind.
            Fails with :class:`~twisted_exec.api.status.Unauthorized` if there is an invalid one:
            the request is refused then, and no other authenticator is asked.
        """


class IAuthorizer(Interface):
    """Decides whether a user may do something."""

    def authorize(attributes: Attributes) -> Deferred[Decision]:
        """
        Decide about one action.

        :return: fires with a :class:`Decision`.  Fails with an
            :class:`~twisted_exec.api.status.APIError` if no decision is possible now; the action
            is refused then.
        """


class IRulesAuthorizer(IAuthorizer):
    """An authorizer that decides by rules, and can list them."""

    def rules_for(user: User, namespace: str) -> Deferred[tuple[Rule, ...]]:
        """
        List what a user may do in a namespace, for a SelfSubjectRulesReview.

        :param namespace: empty for the rules of the whole cluster only.
        :return: fires with the rules, each once; fails as :meth:`IAuthorizer.authorize`.
        """
