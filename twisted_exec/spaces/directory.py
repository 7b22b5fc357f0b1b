"""
Which Space is meant by a name.  Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from twisted_exec.api.spaces import DEFAULT_PROVIDER, SPACES, namespace_of
from twisted_exec.api.status import Conflict, NotFound
from twisted_exec.spaces.interfaces import SpaceName


class Named(Protocol):
    """What has a Space's name."""

    @property
    def name(self) -> SpaceName: ...


_T = TypeVar("_T", bound=Named)


class Directory(Generic[_T]):
    """Spaces by name, and then by namespace: each look is one into a dictionary."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str, _T]] = {}

    def __iter__(self) -> Iterator[_T]:
        return iter([each for found in self._by_name.values() for each in found.values()])

    def at(self, name: str, namespace: str) -> _T | None:
        """The Space of a namespace and a name."""
        return self._by_name.get(name, {}).get(namespace)

    def put(self, entry: _T) -> None:
        """One more, or another in its place."""
        self._by_name.setdefault(entry.name.name, {})[entry.name.namespace] = entry

    def pop(self, name: str, namespace: str) -> _T | None:
        """It is there no more."""
        found = self._by_name.get(name, {})
        entry = found.pop(namespace, None)
        if not found:
            self._by_name.pop(name, None)
        return entry

    def find(self, name: str, provider: str = "") -> _T:
        """
        The Space that is meant.

        :param provider: of a SpaceProviderDesc, or the namespace that an imported Space is in; empty means
            the provider called ``default`` if that has it, else the one that has it.
        :raises NotFound: there is none.
        :raises Conflict: there are several.
        """
        found = self._by_name.get(name, {})
        chosen = found.get(namespace_of(provider or DEFAULT_PROVIDER))
        if chosen is None and provider:
            there = found.get(provider)
            chosen = there if there is not None and not there.name.provider else None
        if chosen is not None:
            return chosen
        if provider or not found:
            raise _not_found(name, provider, list(found.values()))
        if len(found) > 1:
            raise Conflict(
                f'there are several spaces "{name}": {_listed(list(found.values()))}; say whose is meant'
            )
        (chosen,) = found.values()
        return chosen


def _not_found(name: str, provider: str, others: list[_T]) -> NotFound:
    told = f'there is no space "{name}"'
    if provider:
        told += f' of the provider "{provider}"'
    if others:
        told += f"; there is {_listed(others)}"
    return NotFound(SPACES.plural, name, SPACES.group, message=told)


def _listed(entries: list[_T]) -> str:
    """Each as it is asked for; some, when there are many."""
    told = sorted(
        f'of provider "{each.name.provider}"'
        if each.name.provider
        else f'imported in namespace "{each.name.namespace}"'
        for each in entries
    )
    more = [f"and {len(told) - 5} more"] if len(told) > 5 else []
    return ", ".join([*told[:5], *more])
