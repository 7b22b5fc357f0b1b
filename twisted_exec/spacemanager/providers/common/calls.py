"""
Base class of providers whose calls are coroutines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from twisted.internet.defer import Deferred

from twisted_exec.spacemanager.interfaces import Physical, SpaceInfo, SpaceRequest


class CoroutineProvider(ABC):
    """:class:`ISpaceProvider` on top of coroutines, without :meth:`watch` and :meth:`close`."""

    def create(self, physical: Physical, request: SpaceRequest) -> Deferred[None]:
        """See :meth:`ISpaceProvider.create`."""
        return Deferred.fromCoroutine(self._create(physical, request))

    def delete(self, physical: Physical, owner: str) -> Deferred[None]:
        """See :meth:`ISpaceProvider.delete`."""
        return Deferred.fromCoroutine(self._delete(physical, owner))

    def list_spaces(self) -> Deferred[Sequence[SpaceInfo]]:
        """See :meth:`ISpaceProvider.list_spaces`."""
        return Deferred.fromCoroutine(self._list_spaces())

    def list_names(self) -> Deferred[Sequence[Physical]]:
        """See :meth:`ISpaceProvider.list_names`."""
        return Deferred.fromCoroutine(self._list_names())

    def get(self, physical: Physical) -> Deferred[SpaceInfo]:
        """See :meth:`ISpaceProvider.get`."""
        return Deferred.fromCoroutine(self._get(physical))

    @abstractmethod
    async def _create(self, physical: Physical, request: SpaceRequest) -> None: ...

    @abstractmethod
    async def _delete(self, physical: Physical, owner: str) -> None: ...

    @abstractmethod
    async def _list_spaces(self) -> Sequence[SpaceInfo]: ...

    async def _list_names(self) -> Sequence[Physical]:
        """Return the names from the list, for providers without a cheaper way."""
        return [info.physical for info in await self._list_spaces()]

    @abstractmethod
    async def _get(self, physical: Physical) -> SpaceInfo: ...
