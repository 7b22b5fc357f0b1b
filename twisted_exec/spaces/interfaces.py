"""
Doors of the space-aware client: API servers by the names of their Spaces.
"""

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
    Which Space.

    :param provider: the SpaceProviderDesc's name; empty for an imported Space.
    :param namespace: the Space's.
    """

    name: str
    provider: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.provider or self.namespace}/{self.name}"


@dataclass(frozen=True)
class Waiting:
    """
    A Space that is there and cannot be reached by us, nor could since this program looks; or not since its
    last end.

    :param why: for people.
    :param credentials: it names a Secret for our viewpoint: it could be reached once, or is about to be.
    """

    name: SpaceName
    labels: Mapping[str, str]
    why: str
    credentials: bool


class ISpaceConnection(Interface):
    """
    One Space, for as long as it is there under its name: from its engagement to its end it is one object,
    whatever credentials it has meanwhile.
    """

    name = Attribute("Which it is (SpaceName).")
    uid = Attribute("The Space's UID (str).")
    labels = Attribute("The Space's labels as last seen (mapping; not to be changed).")
    client = Attribute(
        "Of its API server (:class:`~twisted_exec.kube.interfaces.IKubeClient`): takes new credentials by itself,"
        " and tries once more with what the Secret says by then when it is answered 401."
    )
    problem = Attribute("Why it cannot be reached just now (str), or empty.")

    def config() -> ClientConfig:
        """
        Its API server and who we are there, as of now; asked again for each use.

        :raises ServiceUnavailable: it has ended, or its credentials cannot be used; the message says why.
        """

    def reread(refused: ClientConfig) -> Deferred[bool]:
        """
        A server answered 401 to this configuration: look whether there is another by now, as
        :attr:`client` does by itself.  For who keeps a client of their own, such as a
        :class:`~twisted_exec.kube.late_client.LateClient`.

        :return: see :data:`~twisted_exec.kube.late_client.Reread`.
        """

    def when_gone() -> Deferred[str]:
        """Fires with the reason, for people, when it is there no more; each call has a Deferred of its own."""


class ISpaceListener(Interface):
    """Who wants to know which Spaces there are."""

    def engaged(space: ISpaceConnection) -> None:
        """It can be reached: it is Ready, and its credentials were read."""

    def changed(space: ISpaceConnection) -> None:
        """Labels or credentials of one that is engaged are others now: what failed is worth trying again."""

    def waiting_changed() -> None:
        """:meth:`ISpaceClient.waiting` may be others now, for another reason than beginnings and ends."""

    def disengaged(space: ISpaceConnection, reason: str) -> None:
        """
        It is there no more, or stands for another physical space; told once for each that was engaged.  A Space
        that is NotReady for a while, or whose provider cannot be reached, stays engaged.
        """


class ISpaceClient(Interface):
    """
    API servers by the names of Spaces, kept by a watch.

    Whatever needs a *provider* takes it as its users say it: empty means the provider called ``default`` if that
    has the Space, else the one provider, or imported Space, that has the name.
    """

    synced = Attribute("All Spaces were read at least once (bool).")
    problem = Attribute("Why Spaces are not known as they are now, or empty (str).")

    def when_synced() -> Deferred[None]:
        """Fires when :attr:`synced`."""

    def get(name: str, provider: str = "") -> IKubeClient:
        """
        The client of a Space's API server: a look into dictionaries.

        :raises NotFound: there is no such Space.
        :raises Conflict: several providers have it; the message names them.
        :raises ServiceUnavailable: it is not Ready, or its credentials cannot be used; the message says why.
        """

    def connection(name: str, provider: str = "") -> ISpaceConnection:
        """The same, with its lifetime; raises as :meth:`get`."""

    def all() -> Sequence[ISpaceConnection]:
        """Those that are engaged now."""

    def waiting() -> Sequence[Waiting]:
        """
        Those that are not engaged, and not being deleted: who has something stand for each Space keeps it
        for these.
        """

    def follow(listener: ISpaceListener) -> Callable[[], None]:
        """
        Have a listener told, at once of those that are engaged already.

        :return: ends that, without a word to the listener.
        """
