"""
Doors of the auth room, and the facts that pass through them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.web.iweb import IRequest
from zope.interface import Interface

if TYPE_CHECKING:
    from twisted_exec.auth.rules import Rule


@dataclass(frozen=True)
class User:
    """Who is asking.  ``groups`` holds ``system:authenticated`` for everyone authenticated."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Attributes:
    """
    What is to be allowed.  A resource request has ``resource``, any other ``path``.

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
    ``reason`` is for people and audit; it may be empty.

    :param hidden: what is asked about is as if it were not there to who asks.
    """

    allowed: bool
    reason: str = ""
    hidden: bool = False


class IAuthenticator(Interface):
    """Finds out who a request is from, by one kind of credential."""

    def authenticate(request: IRequest) -> Deferred[User | None]:
        """
        :return: fires with the user; with ``None`` when the request carries no
            credential of this kind; fails with
            :class:`~twisted_exec.api.status.Unauthorized` when it carries one
            that is not valid (never anonymous then).
        """


class IAuthorizer(Interface):
    """Decides whether a user may."""

    def authorize(attributes: Attributes) -> Deferred[Decision]:
        """
        :return: fires with a :class:`Decision`; fails with an
            :class:`~twisted_exec.api.status.APIError` when nothing could be found out
            (which never means yes).
        """


class IRulesAuthorizer(IAuthorizer):
    """Decides by rules, and can tell them."""

    def rules_for(user: User, namespace: str) -> Deferred[tuple[Rule, ...]]:
        """
        What a user may do in a namespace, for a SelfSubjectRulesReview.

        :param namespace: empty for the cluster's rules alone.
        :return: fires with the rules, each once; fails as :meth:`authorize`.
        """
