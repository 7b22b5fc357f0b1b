"""Credentials of a Space, and the Secret that holds them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from twisted.internet.defer import Deferred, TimeoutError, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.status import APIError
from twisted_exec.control.runs import BackgroundTask
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.spaces.kubeconfigs import config_of, read, source_of
from twisted_exec.spaces.space_view import SecretRef

AHEAD_SECONDS = 10.0
"""
How long a read Secret may be newer than the watched one: after a restore, a cluster may serve older
versions again.
"""

LOOK_SECONDS = 5.0
"""Timeout for rereading the Secret: requests wait for the result."""

PAUSE_SECONDS = 1.0
"""After a read without news, how long 401s cause no further read."""


class SpaceCredentials:
    """
    The credentials of one Space.

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
        """Handle a Secret from the watch; return whether the configuration has changed."""
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
    """Return whether both address and CA have changed, which means another server."""
    return before.server != after.server and before.ca != after.ca


def _version(secret: Object) -> int:
    version = str(secret["metadata"].get("resourceVersion", ""))
    return int(version) if version.isascii() and version.isdigit() else 0


class SecretRereader(BackgroundTask):
    """
    Rereads a Space's Secret when the server rejects its credentials.

    It is not a loop: a failure is not repeated, because the next rejected request reads again.
    """

    _log = Logger()

    def __init__(
        self,
        hub: IKubeClient,
        clock: IReactorTime,
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
        if self._config() == refused and self._clock.seconds() < self._not_before:
            return succeed(False)
        # Otherwise another request or the watch has brought new credentials already.
        looking = self.now() if self._config() == refused else succeed(None)
        return looking.addCallback(lambda _: self._is_another(refused))

    def now(self) -> Deferred[None]:
        """Read the Secret. Fires when that is done, successful or not."""
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
