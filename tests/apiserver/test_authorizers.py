"""
The contract of :class:`~twisted_exec.auth.interfaces.IAuthorizer`, run by those of the API server.

Each is round another authorizer and decides about some users or resources itself.
"""

from __future__ import annotations

from dataclasses import replace

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.contracts.authorizer import (
    GET,
    FixedAuthorizer,
    OnlyLabelled,
    WrappingAuthorizerContract,
)
from twisted_exec.api import kinds
from twisted_exec.api.dialects import DEFAULT
from twisted_exec.apiserver.aggregated.control_plane import HostAuthorizer
from twisted_exec.apiserver.machine_pods.authorization import PodsAuthorizer
from twisted_exec.apiserver.machine_pods.names import PodNames
from twisted_exec.apiserver.restriction.exposed import ExposedAuthorizer
from twisted_exec.apiserver.restriction.restrictions import RestrictedAuthorizer, Restrictions
from twisted_exec.auth.interfaces import Decision, IAuthorizer, IRulesAuthorizer
from twisted_exec.storage.memory import MemoryStorage


def restricted(authorizer: IAuthorizer) -> RestrictedAuthorizer:
    """Put the restrictions of a server of the default dialect round an authorizer."""
    storage = MemoryStorage()
    restrictions = Restrictions(kinds.ALL, [DEFAULT], storage, Clock())
    return RestrictedAuthorizer(authorizer, restrictions, storage)


class RestrictedAuthorizerContractTests(WrappingAuthorizerContract, SynchronousTestCase):
    """:class:`RestrictedAuthorizer`, for users to whom no restriction applies."""

    def wrap(self, authorizer: IRulesAuthorizer) -> IAuthorizer:
        """With the restrictions of one dialect."""
        return restricted(authorizer)

    def test_never_widens(self) -> None:
        """A refusal of the other authorizer is final."""
        poollet = replace(GET.user, name=DEFAULT.pool_identity("pool-a"))
        attributes = replace(GET, user=poollet)
        inner = FixedAuthorizer(Decision(True))
        decision = self.successResultOf(restricted(inner).authorize(attributes))
        self.assertEqual(decision, Decision(False, "no role allows it"))

    def test_stream_of_invisible(self) -> None:
        """A visibility of the other authorizer decides about a stream, by the object as it is."""

        class Streams(FixedAuthorizer):
            def authorize(self, attributes):  # type: ignore[no-untyped-def]
                return super().authorize(replace(attributes, verb="get", subresource=""))

        inner = Streams(Decision(True, visibility=OnlyLabelled("a")))
        attributes = replace(GET, verb="create", subresource="exec")
        decision = self.successResultOf(restricted(inner).authorize(attributes))
        self.assertEqual(decision, Decision(False, hidden=True))


class ExposedAuthorizerContractTests(WrappingAuthorizerContract, SynchronousTestCase):
    """:class:`ExposedAuthorizer`, for users outside of the group."""

    def wrap(self, authorizer: IRulesAuthorizer) -> IAuthorizer:
        """Over an empty store."""
        return ExposedAuthorizer(authorizer, MemoryStorage(), [DEFAULT])


class PodsAuthorizerContractTests(WrappingAuthorizerContract, SynchronousTestCase):
    """:class:`PodsAuthorizer`, for machines."""

    def wrap(self, authorizer: IRulesAuthorizer) -> IAuthorizer:
        """With the Pods of one dialect."""
        return PodsAuthorizer(authorizer, PodNames([DEFAULT]))

    def test_visibility_of_machines(self) -> None:
        """A visibility of machines cannot judge their Pods, so none of these is shown."""
        inner = FixedAuthorizer(Decision(True, visibility=OnlyLabelled("a")))
        attributes = replace(GET, group="", version="v1", resource="pods")
        self.assertFalse(self.successResultOf(self.wrap(inner).authorize(attributes)).allowed)


class HostAuthorizerContractTests(WrappingAuthorizerContract, SynchronousTestCase):
    """:class:`HostAuthorizer`, for users outside of ``system:masters``."""

    def wrap(self, authorizer: IRulesAuthorizer) -> IAuthorizer:
        """The host decides."""
        return HostAuthorizer(authorizer)
