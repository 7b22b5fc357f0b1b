"""
Stores that show what another store has.
"""

from __future__ import annotations

from twisted.application.service import Service
from twisted.internet.defer import Deferred

from twisted_exec.storage.interfaces import IStorage


class Through(Service):
    """
    What such a store leaves to the one below: versions are that one's, and so is whether it is well.

    :param below: started and stopped by whoever has made it.
    """

    def __init__(self, below: IStorage) -> None:
        self._storage = below

    @property
    def alone(self) -> bool:
        """See :attr:`IStorage.alone`."""
        return bool(self._storage.alone)

    def when_ready(self) -> Deferred[None]:
        """See :meth:`IStorage.when_ready`."""
        return self._storage.when_ready()

    def version(self) -> int:
        """See :meth:`IStorage.version`."""
        return self._storage.version()

    def current(self) -> Deferred[int]:
        """See :meth:`IStorage.current`."""
        return self._storage.current()

    def probe(self) -> Deferred[object]:
        """See :meth:`IStorage.probe`."""
        return self._storage.probe()
