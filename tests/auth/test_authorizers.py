"""
The contract of :class:`~twisted_exec.auth.interfaces.IAuthorizer`, run by those of ``auth``.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.auth.test_rbac import Source, binding, role, user
from tests.contracts.authorizer import GET, AuthorizerContract
from twisted_exec.api.kinds import Object
from twisted_exec.api.status import NotFound, ServiceUnavailable
from twisted_exec.apiserver.identity.reviews import attributes_of_review
from twisted_exec.auth.delegated import DelegatedAuthorizer
from twisted_exec.auth.interfaces import IAuthorizer, User
from twisted_exec.auth.rbac import RBACAuthorizer, RBACObjects


class RBACAuthorizerContractTests(AuthorizerContract, SynchronousTestCase):
    """:class:`RBACAuthorizer`."""

    def make_authorizer(self) -> IAuthorizer:
        """By a Role of the namespace."""
        rule = {"verbs": ["get", "list"], "apiGroups": [GET.group], "resources": ["machines"]}
        objects = RBACObjects(
            roles=[role("viewer", rule, namespace="default")],
            role_bindings=[binding("jane", "Role/viewer", user("jane"), namespace="default")],
        )
        return RBACAuthorizer(Source(objects))

    def make_undecided(self) -> IAuthorizer:
        """The store cannot be read."""
        return RBACAuthorizer(Source(ServiceUnavailable("no store")))


class _Reviewer:
    """An API server that answers SubjectAccessReviews by RBAC."""

    def __init__(self, authorizer: IAuthorizer) -> None:
        self._authorizer = authorizer

    def create(self, resource: Any, obj: Object) -> Deferred[Object]:
        spec = obj["spec"]
        attributes = attributes_of_review(User(spec["user"], tuple(spec["groups"])), spec)
        decided = maybeDeferred(self._authorizer.authorize, attributes)
        return decided.addCallback(lambda decision: {"status": {"allowed": decision.allowed}})


class _Broken:
    """An API server that has no SubjectAccessReviews."""

    def create(self, resource: Any, obj: Object) -> Deferred[Object]:
        return fail(NotFound("subjectaccessreviews", ""))


class DelegatedAuthorizerContractTests(AuthorizerContract, SynchronousTestCase):
    """:class:`DelegatedAuthorizer`."""

    def make_authorizer(self) -> IAuthorizer:
        """By an API server that decides by RBAC."""
        client: Any = _Reviewer(RBACAuthorizerContractTests().make_authorizer())
        return DelegatedAuthorizer(client, Clock())

    def make_undecided(self) -> IAuthorizer:
        """The API server answers 404."""
        client: Any = _Broken()
        return DelegatedAuthorizer(client, Clock())
