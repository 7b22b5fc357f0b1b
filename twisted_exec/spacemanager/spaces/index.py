"""An index of Spaces by provider and by physical space."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from twisted_exec.api import spaces
from twisted_exec.kube.informers import Key, key_of
from twisted_exec.kube.interfaces import Object
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.spacemanager.spaces.naming import (
    misplaced,
    physical_of,
    provider_of,
    type_of,
    was_found,
)

_K = TypeVar("_K", bound=Hashable)


class SpaceIndex:
    """Spaces by provider and by physical space."""

    def __init__(self, get: Callable[[str, str], Object | None]) -> None:
        self._get = get
        self._providers: dict[str, dict[Key, None]] = {}
        self._physical: dict[tuple[str, Physical], dict[Key, None]] = {}

    def changed(self, before: Object | None, after: Object | None) -> None:
        if before is not None:
            self._drop(before)
        if after is not None:
            self._put(after)

    def of_provider(self, name: str) -> Sequence[Object]:
        """Return the Spaces of one provider, or imported ones if ``name`` is empty."""
        spaces_ = (self._get(key[1], key[0]) for key in self._providers.get(name, ()))
        return [each for each in spaces_ if each is not None]

    def keys_of(self, provider: str) -> Sequence[Key]:
        return list(self._providers.get(provider, ()))

    def standing_for(self, provider: str, physical: Physical) -> Sequence[Key]:
        """Return the keys of the Spaces that a physical space has."""
        return list(self._physical.get((provider, physical), ()))

    def rival(self, space: Object) -> str:
        """
        Return the name of another Space with precedence for the same physical space, or empty.

        A managed Space has precedence over unmanaged ones once its physical space was found.
        """
        metadata, provider = space["metadata"], provider_of(space)
        others = self._physical.get((provider, physical_of(space)), {})
        if len(others) < 2:
            return ""
        mine = (metadata.get("creationTimestamp", ""), metadata["name"])
        for namespace, name in others:
            other = self._get(name, namespace)
            if other is None or name == metadata["name"]:
                continue
            if _goes_before(other, space, mine):
                return name
        return ""

    def _put(self, space: Object) -> None:
        key, provider = key_of(space), provider_of(space)
        self._providers.setdefault(provider, {})[key] = None
        if provider and not misplaced(space):
            self._physical.setdefault((provider, physical_of(space)), {})[key] = None

    def _drop(self, space: Object) -> None:
        key, provider = key_of(space), provider_of(space)
        _discard(self._providers, provider, key)
        if provider:
            _discard(self._physical, (provider, physical_of(space)), key)


def _goes_before(other: Object, space: Object, mine: tuple[str, str]) -> bool:
    metadata = other["metadata"]
    if metadata.get("deletionTimestamp"):
        return False
    if type_of(space) == spaces.MANAGED:
        return False
    if type_of(other) == spaces.MANAGED:
        return was_found(other)
    return (metadata.get("creationTimestamp", ""), metadata["name"]) < mine


def _discard(index: dict[_K, dict[Key, None]], key: _K, of: Key) -> None:
    each = index.get(key)
    if each is not None and of in each:
        del each[of]
        if not each:
            del index[key]
