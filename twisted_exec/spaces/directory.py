"""Spaces by name: the Space that a name means, or a refusal if there is none or several."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from twisted_exec.api.display import listed
from twisted_exec.api.spaces import DEFAULT_PROVIDER, SPACES, namespace_of
from twisted_exec.api.status import Conflict, NotFound
from twisted_exec.spaces.interfaces import SpaceName


class Named(Protocol):
    """An object with a Space's name."""

    @property
    def name(self) -> SpaceName: ...


_T = TypeVar("_T", bound=Named)


class Directory(Generic[_T]):
    """Spaces by name and namespace."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[str, _T]] = {}

    def __iter__(self) -> Iterator[_T]:
        return iter([each for entries in self._by_name.values() for each in entries.values()])

    def at(self, name: str, namespace: str) -> _T | None:
        """Return the Space with a name in a namespace."""
        return self._by_name.get(name, {}).get(namespace)

    def put(self, entry: _T) -> None:
        """Add or replace a Space."""
        self._by_name.setdefault(entry.name.name, {})[entry.name.namespace] = entry

    def pop(self, name: str, namespace: str) -> _T | None:
        """Remove a Space."""
        entries = self._by_name.get(name, {})
        entry = entries.pop(namespace, None)
        if not entries:
            self._by_name.pop(name, None)
        return entry

    def find(self, name: str, provider: str = "") -> _T:
        """
        Return the Space with a name.

        :param provider: of a SpaceProviderDesc, or the namespace of an imported Space; empty as for
            :class:`~twisted_exec.spaces.interfaces.ISpaceClient`.
        :raises NotFound: there is no such Space.
        :raises Conflict: there are several such Spaces.
        """
        matches = self._by_name.get(name, {})
        chosen = matches.get(namespace_of(provider or DEFAULT_PROVIDER))
        if chosen is None and provider:
            imported = matches.get(provider)
            chosen = imported if imported is not None and not imported.name.provider else None
        if chosen is not None:
            return chosen
        if provider or not matches:
            raise _not_found(name, provider, list(matches.values()))
        if len(matches) > 1:
            raise Conflict(
                f'there are several spaces "{name}": {_listed(list(matches.values()))}; name the provider'
            )
        (chosen,) = matches.values()
        return chosen


def _not_found(name: str, provider: str, others: list[_T]) -> NotFound:
    message = f'there is no space "{name}"'
    if provider:
        message += f' of the provider "{provider}"'
    if others:
        message += f"; spaces of this name: {_listed(others)}"
    return NotFound(SPACES.plural, name, SPACES.group, message=message)


def _listed(entries: list[_T]) -> str:
    labels = sorted(
        f'of provider "{each.name.provider}"'
        if each.name.provider
        else f'imported in namespace "{each.name.namespace}"'
        for each in entries
    )
    return listed(labels, 5)
