"""
The connection to one Space: its current credentials, and a client that uses them.

A rotation of credentials is invisible to users of the connection, and to streams over it.  When a
request is answered with 401, the Secret is reread from the cluster that has it; concurrent 401s
share one read.

A Secret that is not usable leaves the last usable credentials in force, with one log line.  A
deleted Secret removes the credentials.

Secrets arrive through a watch, and through reads after a 401.  A read may be ahead of the watch,
so the watch must not bring back an older version.
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
from twisted_exec.kube.client import MakeKubeClient
from twisted_exec.kube.credentials.late import LateCredentials
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.program.tasks import BackgroundTask
from twisted_exec.spaces.interfaces import ISpaceConnection
from twisted_exec.spaces.kubeconfigs import config_of, read, source_of
from twisted_exec.spaces.space_view import SecretRef, SpaceView

AHEAD_SECONDS = 10.0
"""How long a read may be ahead of the watch.  After a restore, a cluster may serve older versions again."""


class SpaceCredentials:
    """
    The credentials of one Space.

    :param label: name of the Space for the log.
    :param seconds: a monotonic clock.
    :ivar config: the current configuration, or ``None``.
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
        Handle a Secret from the watch; ``None`` if there is none.

        :return: whether the configuration has changed.
        """
        if secret is not None and self._is_behind(secret):
            return False
        return self._take(ref, secret)

    def looked(self, ref: SecretRef, secret: Object) -> bool:
        """Handle a Secret that was just read; see :meth:`watched`."""
        self._ahead = _version(secret)
        self._ahead_until = self._seconds() + AHEAD_SECONDS
        return self._take(ref, secret)

    def missing(self, problem: str) -> bool:
        """Remove the configuration, because there is no Secret; see :meth:`watched`."""
        before, self.config, self._hash = self.config, None, b""
        self.problem = problem
        return before is not None

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
        before, self.config = self.config, config
        return config != before

    def _refuse(self, wrong: str) -> None:
        if self.config is None:
            self.problem = wrong
        elif wrong != self._wrong:
            message = "{space}: keeping the previous credentials: {why}"
            self._log.warn(message, space=self._label, why=wrong)
        # The next Secret is parsed in any case, even if it is the previous one again.
        self._hash, self._wrong = b"", wrong


def is_elsewhere(before: ClientConfig, after: ClientConfig) -> bool:
    """
    Return whether both address and CA have changed, so that this must be another server.

    For Spaces without a physical UID.  A server that moves keeps its CA, and a server with a new CA
    keeps its address.
    """
    return before.server != after.server and before.ca != after.ca


def _version(secret: Object) -> int:
    """Return a comparable resourceVersion: versions of one object increase; 0 if it is not a number."""
    version = str(secret["metadata"].get("resourceVersion", ""))
    return int(version) if version.isascii() and version.isdigit() else 0


LOOK_SECONDS = 5.0
"""Timeout for rereading the Secret: requests wait for the result."""
PAUSE_SECONDS = 1.0
"""After a read without news, how long 401s cause no further read."""


class SecretRereader(BackgroundTask):
    """
    Rereads a Space's Secret when the server rejects its credentials.

    :param hub: client with access to the Secret.
    :param secret: returns the current Secret's name; ``None`` if there is none.
    :param config: returns the current configuration.
    :param looked: receives the Secret.
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
        """See :data:`~twisted_exec.kube.credentials.late.Reread`."""
        if self._config() == refused and self._clock.seconds() < self._not_before:
            return succeed(False)
        # Otherwise another request or the watch has brought new credentials already.
        looking = self.now() if self._config() == refused else succeed(None)
        return looking.addCallback(lambda _: self._is_another(refused))

    def now(self) -> Deferred[None]:
        """Read the Secret.  Fires when that is done, successful or not; concurrent calls share one read."""
        waiting: Deferred[None] = Deferred(lambda d: self._waiting.remove(d))
        self._waiting.append(waiting)
        if not self._looking:
            self._looking = True
            self._begin(self._look())
        return waiting

    def _crashed(self, failure: Failure) -> None:
        self._log.failure("rereading the credentials of a space failed", failure)

    def _is_another(self, refused: ClientConfig) -> bool:
        return self._config() not in (None, refused)

    async def _look(self) -> None:
        before = self._config()
        try:
            await self._read_secret()
        finally:
            self._looking = False
            if self._config() == before:
                self._not_before = self._clock.seconds() + PAUSE_SECONDS
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each.callback(None)

    async def _read_secret(self) -> None:
        ref = self._secret()
        if ref is None:
            return
        asking = self._hub.get(SECRETS.resource, ref.name, ref.namespace)
        try:
            secret = await asking.addTimeout(LOOK_SECONDS, self._clock)
        except (APIError, TimeoutError):
            return  # the watch reports the problem
        self._looked(ref, secret)


@implementer(ISpaceConnection)
class SpaceConnection:
    """
    See :class:`~twisted_exec.spaces.interfaces.ISpaceConnection`.

    :param view: the Space's current view.
    :param credentials: the Space's credentials, which the caller keeps up to date.
    :param look: called when the server rejects the credentials.
    :param trouble: returns a problem with the Secret, or an empty string.
    """

    def __init__(
        self,
        view: SpaceView,
        credentials: SpaceCredentials,
        look: SecretRereader,
        make: MakeKubeClient,
        trouble: Callable[[], str] = lambda: "",
    ) -> None:
        self.name, self.uid = view.name, view.uid
        self.labels: Mapping[str, str] = view.labels
        self._label, self._credentials, self._trouble = view.label, credentials, trouble
        self._look = look
        self._client = make(LateCredentials(view.label, self.config, reread=look))
        self.client: IKubeClient = self._client
        self._end_reason = ""
        self._waiting: list[Deferred[str]] = []

    @property
    def problem(self) -> str:
        """See :class:`ISpaceConnection`."""
        if self._end_reason or self._credentials.config is not None:
            return self._end_reason
        return self._trouble() or self._credentials.problem

    def config(self) -> ClientConfig:
        """See :meth:`ISpaceConnection.config`."""
        config = self._credentials.config
        if self._end_reason or config is None:
            raise ServiceUnavailable(f"{self._label} cannot be reached: {self.problem}")
        return config

    def reread(self, refused: ClientConfig) -> Deferred[bool]:
        """See :meth:`ISpaceConnection.reread`."""
        return self._look(refused)

    def when_gone(self) -> Deferred[str]:
        """See :meth:`ISpaceConnection.when_gone`."""
        if self._end_reason:
            return succeed(self._end_reason)
        waiting: Deferred[str] = Deferred(lambda d: self._waiting.remove(d))
        self._waiting.append(waiting)
        return waiting

    def end(self, reason: str) -> Deferred[None]:
        """End the connection.  Fires when idle connections are closed and no read is under way."""
        self._end_reason = reason
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(reason)
        ending = DeferredList([self._look.stop(), self._client.close()])
        return ending.addCallback(lambda _: None)
