"""Stores that their process can leave to another process on the same host."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from zope.interface import Attribute

from twisted_exec.storage.interfaces import IStorage


class IReplaceableStorage(IStorage):
    """An exclusive store that its process can leave to another process, and take back."""

    history = Attribute(
        "Objects in memory, a :class:`~twisted_exec.storage.history.History`; readable throughout."
    )

    def freeze() -> Deferred[None]:
        """
        Let writes fail with 503 from now on.

        :return: fires when the accepted writes are durable, and another process may open the store.
        """

    def thaw() -> Deferred[None]:
        """
        Use the store again, with what another process has written meanwhile.

        :return: fires when the store is open again, or fails with :class:`~twisted_exec.storage.interfaces.StorageError`; then writes
            fail as well.
        """


def can_hand_over(storage: IStorage) -> bool:
    """Return whether another process can use the store in the place of this process."""
    return not storage.exclusive or IReplaceableStorage(storage, None) is not None
