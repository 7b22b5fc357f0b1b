"""
Bootstrap tokens go when their time is over.

They are good no more by then; this only keeps the list of them short, as the ``tokencleaner`` of
Kubernetes' controller manager does.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.kinds import SECRETS
from twisted_exec.api.kinds.bootstraptokens import NAMESPACE, SECRET_TYPE, is_expired
from twisted_exec.api.kinds.secrets import values_of
from twisted_exec.api.status import Conflict, NotFound
from twisted_exec.storage.interfaces import IStorage

LOOK_SECONDS = 60.0


class TokenExpiry(Service):
    """
    Deletes bootstrap tokens whose time is over.

    :param storage: started before this service is.
    :param now: seconds since the epoch.
    """

    _log = Logger()

    def __init__(self, storage: IStorage, clock: IReactorTime, now: Callable[[], float]) -> None:
        self._storage, self._now = storage, now
        self._loop = LoopingCall(self.look)
        self._loop.clock = clock

    def startService(self) -> None:
        """Look now, and every minute."""
        super().startService()
        self._loop.start(LOOK_SECONDS)

    def stopService(self) -> None:
        """Look no more."""
        super().stopService()
        if self._loop.running:
            self._loop.stop()

    def look(self) -> Deferred[None]:
        """Delete those that are over.  Fires when that is done; never fails."""
        return Deferred.fromCoroutine(self._look()).addErrback(self._failed)

    async def _look(self) -> None:
        for secret in (await self._storage.list(SECRETS.resource, NAMESPACE)).items:
            over = is_expired(values_of(secret), self._now())
            if secret.get("type") != SECRET_TYPE or not over:
                continue
            try:
                await self._storage.delete(SECRETS.resource, secret)
            except (Conflict, NotFound):
                continue  # it changed meanwhile: the next look sees how

    def _failed(self, failure: Failure) -> None:
        self._log.failure("looking after bootstrap tokens failed", failure)
