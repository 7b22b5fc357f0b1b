"""
One Space for as long as it is there: a client that takes whatever credentials it has by now.

Whoever holds it, and whatever runs over it, sees nothing of a rotation.  A request that is answered 401 is
looked into at the cluster that has the Space's Secret, by all that are answered so at once together.

Who we are in a Space, as its Secret says: taken anew when what it holds is other than it was.

What cannot be used leaves the last that could in force, and the log says so once.  A Secret that is taken
away takes the credentials along.

There are two ways by which a Secret is heard of: a watch, and a look when a server did not take what we
showed it.  The look may be ahead of the watch, which must not bring back then what was there before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, TimeoutError, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.status import APIError, ServiceUnavailable
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.late_client import LateClient, MakeKubeClient
from twisted_exec.program.tasks import Running
from twisted_exec.spaces.interfaces import ISpaceConnection
from twisted_exec.spaces.kubeconfigs import config_of, read, source_of
from twisted_exec.spaces.space_view import SecretRef, SpaceView

AHEAD_SECONDS = 10.0
"""For so long a look may be ahead of the watch; a cluster that was put back to an older state counts on."""


class SpaceCredentials:
    """
    One Space's.

    :param label: what the Space is called in the log.
    :param seconds: a steady clock's.
    :ivar config: as of now, or ``None``.
    :ivar problem: why there is none, or empty.
    """

    _log = Logger()

    def __init__(self, label: str, seconds: Callable[[], float]) -> None:
        self._label, self._seconds = label, seconds
        self.config: ClientConfig | None = None
        self.problem = "its Secret was not read yet"
        self._hash, self._wrong = b"", ""
        self._ahead, self._ahead_until = 0, 0.0

    def watched(self, ref: SecretRef, secret: Object | None) -> bool:
        """
        The watch has a Secret, or knows that there is none.

        :return: whether there is another configuration now.
        """
        if secret is not None and self._is_behind(secret):
            return False
        return self._take(ref, secret)

    def looked(self, ref: SecretRef, secret: Object) -> bool:
        """The same, of what somebody looked at just now."""
        self._ahead = _version(secret)
        self._ahead_until = self._seconds() + AHEAD_SECONDS
        return self._take(ref, secret)

    def missing(self, problem: str) -> bool:
        """There is no Secret to read; the last configuration goes. :return: as :meth:`watched`."""
        had, self.config, self._hash = self.config, None, b""
        self.problem = problem
        return had is not None

    def _is_behind(self, secret: Object) -> bool:
        if self._ahead and self._seconds() < self._ahead_until:
            return 0 < _version(secret) < self._ahead
        return False

    def _take(self, ref: SecretRef, secret: Object | None) -> bool:
        if secret is None:
            return self.missing(f"{ref} does not exist")
        try:
            content = read(secret)
            digest = hashlib.sha256(content).digest()
            if digest == self._hash:
                return False
            config = config_of(content, source_of(secret))
        except KubeConfigError as error:
            self._refuse(str(error))
            return False
        self._hash, self._wrong, self.problem = digest, "", ""
        had, self.config = self.config, config
        return config != had

    def _refuse(self, wrong: str) -> None:
        if self.config is None:
            self.problem = wrong
        elif wrong != self._wrong:
            told = "{space}: keeping the credentials from before: {why}"
            self._log.warn(told, space=self._label, why=wrong)
        # Whatever comes next is looked at, also what was there before.
        self._hash, self._wrong = b"", wrong


def is_elsewhere(before: ClientConfig, after: ClientConfig) -> bool:
    """
    Both the server's address and who signs for it are others: this can only be another server.

    For where nobody tells what a Space stands for.  A server that moves keeps its CA, and one that is given
    a new CA keeps its address.
    """
    return before.server != after.server and before.ca != after.ca


def _version(secret: Object) -> int:
    """Versions of one object grow; one that is no number says nothing."""
    told = str(secret["metadata"].get("resourceVersion", ""))
    return int(told) if told.isascii() and told.isdigit() else 0


LOOK_SECONDS = 5.0
"""For so long the cluster that has the Secret may be asked for it: somebody waits for an answer."""
PAUSE_SECONDS = 1.0
"""A look that brought nothing new is not repeated for so long, however many are answered 401."""


class Look(Running):
    """
    Looks at one Space's Secret when its server takes no more what it held.

    :param hub: may ``get`` it.
    :param secret: which it is now; ``None`` for none.
    :param config: what counts now.
    :param looked: takes what was found.
    """

    _log = Logger()

    def __init__(
        self,
        hub: IKubeClient,
        clock: Any,
        *,
        secret: Callable[[], SecretRef | None],
        config: Callable[[], ClientConfig | None],
        looked: Callable[[SecretRef, Object], None],
    ) -> None:
        self._hub, self._clock = hub, clock
        self._secret, self._config, self._looked = secret, config, looked
        self._waiting: list[Deferred[None]] = []
        self._looking = False
        self._not_before = 0.0

    def __call__(self, refused: ClientConfig) -> Deferred[bool]:
        """See :data:`~twisted_exec.kube.late_client.Reread`."""
        if self._config() == refused and self._clock.seconds() < self._not_before:
            return succeed(False)
        # Else somebody has looked already, or the watch was quicker.
        looking = self.now() if self._config() == refused else succeed(None)
        return looking.addCallback(lambda _: self._is_another(refused))

    def now(self) -> Deferred[None]:
        """Look; fires when that is done, whatever came of it.  All who wait share one look."""
        waiting: Deferred[None] = Deferred(lambda d: self._waiting.remove(d))
        self._waiting.append(waiting)
        if not self._looking:
            self._looking = True
            self._begin(self._look())
        return waiting

    def _crashed(self, failure: Failure) -> None:
        self._log.failure("looking for other credentials of a space failed", failure)

    def _is_another(self, refused: ClientConfig) -> bool:
        return self._config() not in (None, refused)

    async def _look(self) -> None:
        before = self._config()
        try:
            await self._asked()
        finally:
            self._looking = False
            if self._config() == before:
                self._not_before = self._clock.seconds() + PAUSE_SECONDS
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each.callback(None)

    async def _asked(self) -> None:
        ref = self._secret()
        if ref is None:
            return
        asking = self._hub.get(SECRETS.resource, ref.name, ref.namespace)
        try:
            secret = await asking.addTimeout(LOOK_SECONDS, self._clock)
        except (APIError, TimeoutError):
            return  # the watch tells what there is to tell
        self._looked(ref, secret)


@implementer(ISpaceConnection)
class SpaceConnection:
    """
    :param view: the Space as it is now.
    :param credentials: who we are there, which is somebody else's to keep.
    :param look: called when the server takes them no more.
    :param trouble: says what is wrong with the Secret, or is empty.
    """

    def __init__(
        self,
        view: SpaceView,
        credentials: SpaceCredentials,
        look: Look,
        make: MakeKubeClient,
        trouble: Callable[[], str] = lambda: "",
    ) -> None:
        self.name, self.uid = view.name, view.uid
        self.labels: Mapping[str, str] = view.labels
        self._label, self._credentials, self._trouble = view.label, credentials, trouble
        self._look = look
        self._client = LateClient(view.label, self.config, make, reread=look)
        self.client: IKubeClient = self._client
        self._gone = ""
        self._waiting: list[Deferred[str]] = []

    @property
    def problem(self) -> str:
        """See :class:`ISpaceConnection`."""
        if self._gone or self._credentials.config is not None:
            return self._gone
        return self._trouble() or self._credentials.problem

    def config(self) -> ClientConfig:
        """See :meth:`ISpaceConnection.config`."""
        found = self._credentials.config
        if self._gone or found is None:
            raise ServiceUnavailable(f"{self._label} cannot be reached: {self.problem}")
        return found

    def reread(self, refused: ClientConfig) -> Deferred[bool]:
        """See :meth:`ISpaceConnection.reread`."""
        return self._look(refused)

    def when_gone(self) -> Deferred[str]:
        """See :meth:`ISpaceConnection.when_gone`."""
        if self._gone:
            return succeed(self._gone)
        waiting: Deferred[str] = Deferred(lambda d: self._waiting.remove(d))
        self._waiting.append(waiting)
        return waiting

    def end(self, reason: str) -> Deferred[None]:
        """It is there no more.  Fires when its idle connections are closed, and no look is under way."""
        self._gone = reason
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(reason)
        ending = DeferredList([self._look.stop(), self._client.close()])
        return ending.addCallback(lambda _: None)
