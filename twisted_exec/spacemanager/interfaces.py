"""
Interfaces of the Space Manager: providers of physical spaces, and the manager's view of them.

Every call of a provider may be repeated, in any order and after any failure, by a manager without
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from twisted_exec.kube.interfaces import IKubeClient, Object

BUILDING = "Building"
"""The physical space exists and is not usable yet."""

USABLE = "Usable"
"""The provider claims that the physical space is usable; probes verify it."""

BROKEN = "Broken"
"""The physical space will not become usable by itself; ``message`` has the reason, and often a remedy."""

GOING = "Going"
"""The physical space is being deleted."""


@dataclass(frozen=True, order=True)
class Physical:
    """
    Identity of a physical space within its provider.

    :param name: any name that the provider allows, even one that no object can have.
    :param parent: location at the provider (a workspace path in kcp); empty for the default
        location.
    """

    name: str
    parent: str = ""

    def __str__(self) -> str:
        return f"{self.parent}:{self.name}" if self.parent else self.name


@dataclass(frozen=True)
class Access:
    """
    Access to a physical space from one viewpoint.

    :param kubeconfig: self-contained, without files or plugins.
    :param expires: seconds since the epoch; ``None`` if unlimited or unknown.
    """

    kubeconfig: bytes = field(repr=False)
    expires: float | None = None


@dataclass(frozen=True)
class SpaceInfo:
    """
    A physical space as its provider currently reports it.

    :param state: :data:`BUILDING`, :data:`USABLE`, :data:`BROKEN` or :data:`GOING`.
    :param reason: one CamelCase word, or empty.
    :param message: human-readable problem, or empty.
    :param owner: see :class:`SpaceRequest`; empty if someone else created it, ``None`` if currently
        unknown.
    :param uid: distinguishes it from earlier or later ones of the same name; empty if unsupported.
    :param version: changes whenever state, reason or credentials may have changed; empty if
        unsupported.
    :param access: by viewpoint (:data:`~twisted_exec.api.spaces.IN_CLUSTER`,
        :data:`~twisted_exec.api.spaces.EXTERNAL`), as far as available. In lists it may be empty:
        :meth:`ISpaceProvider.get` returns it.
    """

    physical: Physical
    state: str
    reason: str = ""
    message: str = ""
    owner: str | None = ""
    uid: str = ""
    version: str = ""
    access: Mapping[str, Access] = field(default_factory=dict)


@dataclass(frozen=True)
class SpaceRequest:
    """
    A request to create a physical space.

    :param owner: UID of the Space. The provider stores it with the physical space.
    :param parameters: ``spec.parameters`` of the Space; each provider defines its own.
    """

    owner: str
    parameters: Mapping[str, str] = field(default_factory=dict)


class ISpaceProvider(Interface):
    """
    One provider of physical spaces.

    All Deferreds can be cancelled, and then leave nothing running that could disturb the next call.
    They fail with :class:`~twisted_exec.api.status.APIError`: ``Unauthorized`` and ``Forbidden``
    concern the provider's credentials; ``BadGateway``, ``GatewayTimeout`` and
    ``ServiceUnavailable`` mean that the provider is unreachable, or cannot do it now.  Messages
    include no secrets, and usually a remedy.
    """

    default_parent = Attribute("Name of the default location (str), for messages; may be empty.")

    def create(physical: Physical, request: SpaceRequest) -> Deferred[None]:
        """
        Create a physical space.

        This is idempotent: an existing physical space with the same owner is left alone, unless it
        is :data:`BROKEN`.

        :return: fires when the provider continues by itself, possibly long before the physical
            space is :data:`USABLE`. Fails with ``AlreadyExists`` if the name is in use by another
            owner or none, with ``Invalid`` or ``BadRequest`` if the name or the parameters are not
            possible.
        """

    def delete(physical: Physical, owner: str) -> Deferred[None]:
        """
        Delete a physical space; a missing one is no failure.

        :return: fires when the provider continues by itself. The deletion is complete, with all
            remains, when :meth:`get` and the lists say so; then the name can be reused. Fails with
            ``Conflict`` and changes nothing if the owner is not ``owner``; with
            ``ServiceUnavailable`` if the owner is currently unknown, because after ``Conflict`` the
            manager forgets the physical space.
        """

    def list_spaces() -> Deferred[Sequence[SpaceInfo]]:
        """Fires with all physical spaces, whoever created them; access may be left out."""

    def list_names() -> Deferred[Sequence[Physical]]:
        """Fires with the sorted names of all physical spaces."""

    def get(physical: Physical) -> Deferred[SpaceInfo]:
        """Fires with one physical space; fails with ``NotFound`` if it does not exist."""

    def watch(changed: Callable[[Physical | None], None]) -> Callable[[], None]:
        """
        Call ``changed`` when one physical space, or any (``None``), may have changed.

        The calls are hints: polling makes up for a missing one.

        :return: a function that stops the calls.
        """

    def close() -> Deferred[None]:
        """Release local resources; physical spaces remain."""


class IRotatesCredentials(Interface):
    """A provider that can rotate credentials; provided in addition to :class:`ISpaceProvider`."""

    def rotate(physical: Physical) -> Deferred[None]:
        """
        Create new credentials for a physical space. The old credentials stay valid as long as the
        provider's rules allow.

        :return: fires when :meth:`ISpaceProvider.get` returns the new credentials.
        """


class IHostLocal(Interface):
    """
    A provider whose physical spaces are on the manager's own host; provided in addition to
    :class:`ISpaceProvider`. A missing space may exist on another host (see
    :mod:`twisted_exec.spacemanager.views`).
    """


@dataclass(frozen=True)
class ProviderSpec:
    """
    Configuration of a provider from its SpaceProviderDesc.  If it changes, the provider is recreated.

    :param secret: decoded content of its Secret; ``None`` if it names none.
    :param secret_ref: ``namespace/name`` of the Secret, for messages.
    """

    name: str
    type: str
    secret: Mapping[str, bytes] | None = field(default=None, repr=False)
    secret_ref: str = ""


@dataclass(frozen=True)
class ProviderContext:
    """
    The manager's resources for providers.

    :param hub: client of the cluster with the Spaces.
    :param place: identity of the manager's private directory, see
        :func:`~twisted_exec.spacemanager.place.place_of`.
    :param now: seconds since the epoch.
    :param reactor: the reactor, for sockets, processes and time.
    :param directory: absolute path of the manager's private directory; provider types may have
        directories below it.
    """

    hub: IKubeClient
    reactor: Any
    directory: str
    now: Callable[[], float]
    place: str = ""


MakeProvider = Callable[[ProviderSpec, ProviderContext], ISpaceProvider]
"""
Creates a provider, without sending requests yet.  Raises ``Invalid`` (an APIError) if the Secret's
content is not usable; the message names the Secret, the key and the remedy.
"""


@dataclass(frozen=True)
class ProviderCondition:
    """
    A condition of a provider.

    :param status: ``True``, ``False`` or ``Unknown``.
    """

    status: str
    reason: str
    message: str


class IProviderView(Interface):
    """
    The manager's view of one provider: its SpaceProviderDesc, the provider itself, and its last list.

    The list may be outdated: ask :attr:`provider` before acting on a physical space.
    """

    name = Attribute("Name of the SpaceProviderDesc (str).")
    desc = Attribute("The SpaceProviderDesc as last observed; read-only.")
    provider = Attribute(
        "The provider (ISpaceProvider), ``None`` while none can be created.  Its calls have timeouts, and failures"
        " are APIErrors."
    )
    reachable = Attribute("Condition ProviderReachable (ProviderCondition).")
    credentials = Attribute(
        "Condition CredentialsValid of the provider's own credentials (ProviderCondition)."
    )
    listed = Attribute("Whether the provider has returned a list since it was created (bool).")

    def spaces() -> Mapping[Physical, SpaceInfo]:
        """
        Return the provider's last list, including spaces that discovery skips (:meth:`passes`).
        """

    def passes(physical: Physical) -> bool:
        """Return whether ``spec.SpacePrefixForDiscovery`` (a prefix or a glob) selects a physical space."""

    def gone(physical: Physical) -> bool:
        """
        Return whether a physical space certainly does not exist: at least two answers, two seconds
        apart, were without it.
        """

    def look_again(physical: Physical | None = None) -> None:
        """Refresh one physical space or all soon."""


class IProviders(Interface):
    """All providers."""

    synced = Attribute("Whether all SpaceProviderDescs have been read (bool).")

    def when_synced() -> Deferred[None]:
        """Return a Deferred that fires when all SpaceProviderDescs have been read."""

    def get(name: str) -> IProviderView | None:
        """Return a provider by name; ``None`` if there is no such SpaceProviderDesc."""

    def all() -> Sequence[IProviderView]:
        """Return the current providers."""

    def follow(changed: Callable[[str, Physical | None], None]) -> Callable[[], None]:
        """
        Call ``changed`` with the name of a provider when one of its physical spaces, or anything
        (``None``), has changed.

        :return: a function that stops the calls.
        """


class ISpaces(Interface):
    """The Spaces, for other parts of the manager."""

    synced = Attribute("Whether all Spaces have been read (bool).")

    def all() -> Sequence[Object]:
        """Return all Spaces as last observed; read-only."""

    def of_provider(name: str) -> Sequence[Object]:
        """Return the Spaces of one provider as last observed; read-only."""

    def get(namespace: str, name: str) -> Object | None:
        """Return a Space as last observed; read-only."""

    def follow(changed: Callable[[Object | None, Object | None], None]) -> Callable[[], None]:
        """
        Call ``changed`` with each changed Space before and after; ``None`` if it did not or does
        not exist.

        :return: a function that stops the calls.
        """
