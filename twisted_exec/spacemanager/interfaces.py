"""
Doors of the Space Manager: what makes physical spaces and tells of them.

Nothing here decides: an adaptor does what it is asked to, and tells what is.  Everything that it is asked
may be asked again, in any order and after any failure, by a manager that remembers nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from twisted_exec.kube.interfaces import IKubeClient, Object


@dataclass(frozen=True, order=True)
class Physical:
    """
    A physical space, as its provider calls it: unique within the provider.

    :param name: never empty; whatever the provider allows, which may be no name of an object.
    :param parent: where it lies, in the provider's words (a workspace's path in kcp); empty for where
        the provider has them by default.  The default place has one spelling, which is empty.
    """

    name: str
    parent: str = ""

    def __str__(self) -> str:
        return f"{self.parent}:{self.name}" if self.parent else self.name


BUILDING = "Building"
"""It is there, and cannot be used yet."""
USABLE = "Usable"
"""Its provider says that it can be used.  A claim: whoever believes it probes."""
BROKEN = "Broken"
"""It will not become usable by itself; ``message`` says why, and what would help."""
GOING = "Going"
"""It is being deleted."""


@dataclass(frozen=True)
class Access:
    """
    How a physical space is reached from one viewpoint.

    :param kubeconfig: one cluster, one user, one context, all data: no file, no plugin.
    :param expires: seconds since the epoch; ``None`` when it does not, or nobody knows.
    """

    kubeconfig: bytes = field(repr=False)
    expires: float | None = None


@dataclass(frozen=True)
class SpaceInfo:
    """
    A physical space as its provider sees it now.

    :param state: :data:`BUILDING`, :data:`USABLE`, :data:`BROKEN` or :data:`GOING`.
    :param reason: a word in CamelCase; empty for what the state says anyway.
    :param message: for people: what is the matter, and what would help.
    :param owner: the mark that it was made with, see :class:`Wanted`; empty when somebody else made it,
        ``None`` when that cannot be told now.
    :param uid: tells it from another one of that name, before or after; empty where providers cannot.
    :param version: changes when anything here may have changed, credentials included; empty where
        providers cannot tell.
    :param access: by viewpoint (:data:`~twisted_exec.api.spaces.IN_CLUSTER`,
        :data:`~twisted_exec.api.spaces.EXTERNAL`).  A viewpoint that is missing is not to be had, or not
        yet.  In lists it may be empty: :meth:`ISpaceProvider.get` has it.
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
class Wanted:
    """
    What a physical space is to be.

    :param owner: the UID of the Space that it is made for.  The provider keeps it with what it makes, so that
        nobody takes it for another's, or another's for ours.
    :param parameters: ``spec.parameters`` of the Space, which each provider reads in its own way.
    """

    owner: str
    parameters: Mapping[str, str] = field(default_factory=dict)


class ISpaceProvider(Interface):
    """
    One provider of physical spaces.

    All Deferreds can be cancelled, and then leave nothing of theirs running here that the next call would
    trip over.  They fail with :class:`~twisted_exec.api.status.APIError`: ``Unauthorized`` and ``Forbidden`` are
    about the provider's credentials, ``BadGateway``, ``GatewayTimeout`` and ``ServiceUnavailable`` say that it
    cannot be reached.  Each message says what would help, and holds no secret.
    """

    default_parent = Attribute(
        "What the default place is called in its own words (str), for messages; may be empty."
    )

    def create(physical: Physical, wanted: Wanted) -> Deferred[None]:
        """
        Have one made.

        Done again it is no harm: of one that is there and bears our mark, nothing is changed; one that is
        :data:`BROKEN` and bears our mark is made anew, or mended.

        :return: fires when the provider will go on by itself, which may be long before it is
            :data:`USABLE`.  Fails with ``AlreadyExists`` when there is one of that name with another mark or
            none, with ``Invalid`` or ``BadRequest`` when there can be none of that name, or with those
            parameters.
        """

    def delete(physical: Physical, owner: str) -> Deferred[None]:
        """
        Have one deleted.

        :return: fires when the provider will go on by itself; it is gone when :meth:`get` and the lists say
            so, and that includes all that is left of it: then one of that name can be made.  One that is not
            there is no failure.  Fails with ``Conflict`` when its mark is not ``owner``, and changes nothing; with
            ``ServiceUnavailable`` when that cannot be told now, for who is told Conflict lets go of it.
        """

    def list_spaces() -> Deferred[Sequence[SpaceInfo]]:
        """Fires with all that there are, ours and others', each once; the access may be left out."""

    def list_names() -> Deferred[Sequence[Physical]]:
        """Fires with the names of all that there are, in order: what can be had cheaply."""

    def get(physical: Physical) -> Deferred[SpaceInfo]:
        """
        Fires with one, its access included as far as it is to be had by now; fails with ``NotFound``
        when there is none.
        """

    def watch(changed: Callable[[Physical | None], None]) -> Callable[[], None]:
        """
        Call ``changed`` when something may have changed: of one, or of any (``None``).

        These are hints: one that is missed is found by looking again, one too many costs a look.  Those that
        cannot be had are no failure.

        :return: ends that.
        """

    def close() -> Deferred[None]:
        """Let go of everything here; what the provider has goes on.  Fires when done; never fails."""


class IRotates(Interface):
    """A provider that can give new credentials; provided beside :class:`ISpaceProvider`."""

    def rotate(physical: Physical) -> Deferred[None]:
        """
        Have new credentials made for one; those that there are stay good for whoever is using them just now,
        as long as the provider's rules say.

        :return: fires when :meth:`ISpaceProvider.get` has them.
        """


class IKeptHere(Interface):
    """
    A provider whose physical spaces are on the manager's own host; provided beside :class:`ISpaceProvider`.
    Elsewhere there are none of them, which says nothing (see :mod:`.place`).
    """


@dataclass(frozen=True)
class ProviderSpec:
    """
    What a SpaceProviderDesc says, as an adaptor needs it.  Compares by value: another is another adaptor.

    :param secret: what its Secret holds, decoded; ``None`` when it names none.
    :param secret_ref: ``namespace/name`` of that Secret, for messages.
    """

    name: str
    type: str
    secret: Mapping[str, bytes] | None = field(default=None, repr=False)
    secret_ref: str = ""


@dataclass(frozen=True)
class Around:
    """
    What adaptors may use of their manager.

    :param hub: client of the cluster that has the Spaces.
    :param reactor: sockets, processes and time.
    :param directory: absolute, private to the manager, made when it starts: each adaptor has a directory below
        it by its type.
    :param now: seconds since the epoch.
    :param place: what that directory is called, see :func:`.place.place_of`.
    """

    hub: IKubeClient
    reactor: Any
    directory: str
    now: Callable[[], float]
    place: str = ""


MakeProvider = Callable[[ProviderSpec, Around], ISpaceProvider]
"""
Makes an adaptor; nothing is asked of anybody yet.  Raises ``Invalid`` (an APIError) when what the Secret holds
cannot be used: the message names the Secret and the key, and says what would help.
"""


@dataclass(frozen=True)
class Look:
    """
    How it went when a provider was looked at last.

    :param status: of the condition: ``True``, ``False`` or ``Unknown``.
    """

    status: str
    reason: str
    message: str


class IProviderView(Interface):
    """
    One provider as the manager knows it: a SpaceProviderDesc, its adaptor, and what that told last.

    What it says of physical spaces is never newer than :attr:`provider` told, and may be older: who acts on
    one asks the adaptor first.
    """

    name = Attribute("Of the SpaceProviderDesc (str).")
    desc = Attribute("The SpaceProviderDesc as last seen; not to be changed.")
    provider = Attribute(
        "The adaptor (ISpaceProvider), ``None`` while none can be made.  Its calls end in time, and fail with an"
        " APIError: deadlines are set here."
    )
    reachable = Attribute("Condition ProviderReachable (Look).")
    credentials = Attribute("Condition CredentialsValid of the provider's own credentials (Look).")
    listed = Attribute(
        "All physical spaces were told at least once since the adaptor was made (bool)."
    )

    def spaces() -> Mapping[Physical, SpaceInfo]:
        """
        All that the provider told last, whether discovery takes them (:meth:`passes`) or not; not to be changed.
        """

    def passes(physical: Physical) -> bool:
        """Whether discovery takes it: ``spec.SpacePrefixForDiscovery``, a prefix or a glob."""

    def gone(physical: Physical) -> bool:
        """
        It is not there, for sure: the provider was asked at least twice since it was last seen, or was made
        by way of :attr:`provider`, with two seconds between, and answered.
        """

    def look_again(physical: Physical | None = None) -> None:
        """Ask the adaptor soon, of one or of all; whoever follows is told what came of it."""


class IProviders(Interface):
    """All providers that there are."""

    synced = Attribute("The SpaceProviderDescs were all read at least once (bool).")

    def get(name: str) -> IProviderView | None:
        """One by its name; ``None`` when there is no such SpaceProviderDesc."""

    def all() -> Sequence[IProviderView]:
        """Those that there are now."""

    def follow(changed: Callable[[str, Physical | None], None]) -> Callable[[], None]:
        """
        Have ``changed`` called with the name of a provider when anything of it became other: one physical
        space, or (``None``) anything.

        :return: ends that.
        """


class ISpaces(Interface):
    """What of Spaces the rest of the manager needs: the loop that keeps them."""

    synced = Attribute("The Spaces were all read at least once (bool).")

    def all() -> Sequence[Object]:
        """Those that there are, as last seen; not to be changed."""

    def of_provider(name: str) -> Sequence[Object]:
        """The Spaces of one provider, as last seen; not to be changed."""

    def get(namespace: str, name: str) -> Object | None:
        """One as last seen; not to be changed."""

    def follow(changed: Callable[[Object | None, Object | None], None]) -> Callable[[], None]:
        """
        Have ``changed`` called with each Space before and after it became other; ``None`` for not there.

        :return: ends that.
        """
