"""
The target of a broker that is told by the name of its Space.

Which Space that is, is found once; from then on it is that one, whichever others there come to be of its
name.  It may go and come back, and then it is another server: who copies from it begins anew.  New
credentials are no change of the target: whoever is talking to it goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, maybeDeferred, succeed
from twisted.logger import Logger
from zope.interface import implementer

from twisted_exec.api.status import APIError, ServiceUnavailable
from twisted_exec.kube.client import MakeKubeClient
from twisted_exec.kube.credentials.late import LateCredentials
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.spaces.client import SpaceClient
from twisted_exec.spaces.interfaces import ISpaceConnection, ISpaceListener, SpaceName


def _nothing(*_: object) -> None:
    pass


@implementer(ISpaceListener)
class SpaceTarget:
    """
    :param spaces: follows the Spaces; started and stopped from here.
    :param name: of the Space.
    :param provider: of the Space, as :class:`~twisted_exec.spaces.interfaces.ISpaceClient` takes it.
    :ivar client: of its API server, whichever that is by now.
    :ivar found: called when there is a server to follow, or there are other credentials for it, with
        whether it is another server.
    :ivar lost: called with the reason, for people, when it is there no more.
    """

    _log = Logger()

    def __init__(self, spaces: SpaceClient, name: str, provider: str, make: MakeKubeClient) -> None:
        self._spaces, self._asked = spaces, (name, provider)
        self._label = f'space "{provider}/{name}"' if provider else f'space "{name}"'
        self._client = make(
            LateCredentials(self._label, self.config, moved=self._moved, reread=self._reread)
        )
        self.client: IKubeClient = self._client
        self.found: Callable[[bool], None] = _nothing
        self.lost: Callable[[str], None] = _nothing
        self._name: SpaceName | None = None
        self._space: ISpaceConnection | None = None
        self._gone = ""
        self._unfollow: Callable[[], None] = _nothing

    def start(self) -> None:
        """Follow it until :meth:`stop`."""
        self._unfollow = self._spaces.follow(self)
        self._spaces.startService()
        self._spaces.when_synced().addCallbacks(lambda _: self._look_first(), _nothing)

    def stop(self) -> Deferred[Any]:
        """Fires when nothing is under way any more; never fails."""
        self._unfollow()
        ending = [maybeDeferred(self._spaces.stopService), self._client.close()]
        return DeferredList(ending, consumeErrors=True)

    @property
    def there(self) -> bool:
        """There is a server that can be asked, as far as is known."""
        return self._space is not None

    @property
    def problem(self) -> str:
        """Why it cannot be asked, or empty."""
        return str(self._space.problem) if self._space is not None else self._why()

    def config(self) -> ClientConfig:
        """
        Its API server and who we are there, as of now.

        :raises ServiceUnavailable: it cannot be asked; the message says why.
        """
        if self._space is None:
            raise ServiceUnavailable(self._why())
        return self._space.config()

    def engaged(self, space: ISpaceConnection) -> None:
        """See :meth:`ISpaceListener.engaged`."""
        self._look()

    def changed(self, space: ISpaceConnection) -> None:
        """See :meth:`ISpaceListener.changed`."""
        if space is self._space:
            self.found(False)

    def waiting_changed(self) -> None:
        """See :meth:`ISpaceListener.waiting_changed`; who is asked tells."""

    def disengaged(self, space: ISpaceConnection, reason: str) -> None:
        """See :meth:`ISpaceListener.disengaged`."""
        if space is self._space:
            self._space, self._gone = None, reason
            self.lost(reason)

    def _look_first(self) -> None:
        self._look()
        if self._space is None:  # who started the program may have misspelt it, and nobody asks yet
            self._log.warn("{why}; it is waited for", why=self._why())

    def _look(self) -> None:
        """Be the one that is meant, if it is there by now."""
        if self._space is None:
            self._space = self._meant()
            if self._space is not None:
                self._name = self._space.name
                self.found(True)

    def _meant(self) -> ISpaceConnection | None:
        if self._name is not None:
            return next((each for each in self._spaces.all() if each.name == self._name), None)
        try:
            return self._spaces.connection(*self._asked)
        except APIError:
            return None  # whoever asks is told why

    def _why(self) -> str:
        if self._name is None:
            try:
                self._spaces.connection(*self._asked)
            except APIError as error:
                return error.message
            return f"{self._label} was not looked at yet"
        for each in self._spaces.waiting():
            if each.name == self._name:
                return f"{self._label} cannot be reached: {each.why}"
        return self._gone

    def _moved(self) -> None:
        self.found(True)

    def _reread(self, refused: ClientConfig) -> Deferred[bool]:
        return succeed(False) if self._space is None else self._space.reread(refused)
