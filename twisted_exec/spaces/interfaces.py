"""Interfaces of the space-aware client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig


@dataclass(frozen=True, order=True)
class SpaceName:
    """
    Full name of a Space.

    :param provider: name of the SpaceProviderDesc; empty for an imported Space.
    :param namespace: namespace of the Space.
    """

    name: str
    provider: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.provider or self.namespace}/{self.name}"


@dataclass(frozen=True)
class Waiting:
    """
    A Space that exists but is not engaged.

    :param credentials: the Space names a Secret for our viewpoint: it may be reachable soon.
    """

    name: SpaceName
    labels: Mapping[str, str]
    why: str
    credentials: bool


class ISpaceConnection(Interface):
    """
    The connection to one Space.  The same object lives from engagement to disengagement, across
    changes of credentials.
    """

    name = Attribute("Name of the Space (SpaceName).")
    uid = Attribute("UID of the Space (str).")
    labels = Attribute("Labels of the Space as last observed (mapping; read-only).")
    client = Attribute(
        "Client of the Space's API server (:class:`~twisted_exec.kube.interfaces.IKubeClient`).  It picks up new"
        " credentials by itself, and after a 401 it may reread the Secret and retry once."
    )
    problem = Attribute("Why the Space is currently unreachable (str), or empty.")

    def config() -> ClientConfig:
        """
        Return the current API server and credentials.  Call it again for each use.

        :raises ServiceUnavailable: the connection has ended, or its credentials are not usable.
        """

    def reread(refused: ClientConfig) -> Deferred[bool]:
        """
        Reread the credentials after a server answered 401 to this configuration.

        :attr:`client` does that by itself; this is for programs with a client of their own.

        :return: see :data:`~twisted_exec.kube.late_credentials.Reread`.
        """

    def when_gone() -> Deferred[str]:
        """Return a Deferred that fires with a human-readable reason when the connection ends."""


class ISpaceListener(Interface):
    """Receives events about Spaces."""

    def engaged(space: ISpaceConnection) -> None:
        """Handle a Space that became reachable."""

    def changed(space: ISpaceConnection) -> None:
        """Handle changed labels or credentials of an engaged Space."""

    def waiting_changed() -> None:
        """Handle a change of a Space that is not engaged."""

    def disengaged(space: ISpaceConnection, reason: str) -> None:
        """
        Handle the end of an engaged Space.

        A Space that is only NotReady, or whose provider is unreachable, stays engaged.
        """


class ISpaceClient(Interface):
    """
    Finds API servers by the names of Spaces.

    An empty *provider* means the provider called ``default`` if that has the Space, else the only
    Space of this name.
    """

    synced = Attribute("Whether all Spaces have been read at least once (bool).")
    problem = Attribute("Why the known Spaces may be outdated, or empty (str).")

    def when_synced() -> Deferred[None]:
        """Return a Deferred that fires when :attr:`synced` is true."""

    def get(name: str, provider: str = "") -> IKubeClient:
        """
        Return the client of a Space's API server, from memory.

        :raises NotFound: there is no such Space.
        :raises Conflict: there are several such Spaces.
        :raises ServiceUnavailable: the Spaces are not read yet, the Space is not engaged, or its
            credentials are not usable.
        """

    def connection(name: str, provider: str = "") -> ISpaceConnection:
        """Return the connection to a Space; raises like :meth:`get`."""

    def all() -> Sequence[ISpaceConnection]:
        """Return the connections of all engaged Spaces."""

    def waiting() -> Sequence[Waiting]:
        """Return the Spaces that are neither engaged nor being deleted."""

    def follow(listener: ISpaceListener) -> Callable[[], None]:
        """
        Add a listener. It is called at once for each Space that is already engaged.

        :return: a function that removes the listener.
        """
