"""
Credentials that somebody takes away: accounts and tokens that are deleted.

Whoever has a session by one of them is asked about again at once, not only in the next round.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.application.service import Service

from twisted_exec.api.kinds import SERVICEACCOUNTS
from twisted_exec.api.kinds.bootstraptokens import SECRET_TYPE
from twisted_exec.auth.serviceaccounts import BOUND
from twisted_exec.storage.interfaces import ADDED, DELETED, Event, IStorage, IWatch


class Voided(Service):
    """
    Tells of credentials that may be good no more.

    :param storage: started before this service is.
    :ivar changed: called for each.
    """

    changed: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, storage: IStorage) -> None:
        self._storage = storage
        self._watches: list[IWatch] = []

    def startService(self) -> None:
        """Follow the store."""
        super().startService()
        watch = self._storage.watch
        self._watches = [
            watch(kind.resource, None, self._happened)
            for kind in (SERVICEACCOUNTS, *BOUND.values())
        ]

    def stopService(self) -> None:
        """Follow no longer."""
        super().stopService()
        for each in self._watches:
            each.stop()
        self._watches.clear()

    def _happened(self, event: Event) -> None:
        gone = event.type == DELETED or "deletionTimestamp" in event.obj["metadata"]
        # What tokens are bound to may change as it likes, a token itself may be another then.
        if gone or (event.type != ADDED and event.obj.get("type") == SECRET_TYPE):
            self.changed()
