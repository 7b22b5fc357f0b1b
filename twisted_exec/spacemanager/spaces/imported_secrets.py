"""The Secrets that imported Spaces name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api import spaces
from twisted_exec.kube.informers import Key, key_of
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.spacemanager.spaces.imported import references, why_not_readable
from twisted_exec.spacemanager.spaces.naming import type_of
from twisted_exec.spaces.secrets import SpaceSecrets
from twisted_exec.spaces.space_view import SecretRef


class ImportedSecrets:
    """
    The Secrets of imported Spaces.

    They are watched by name, so that the manager receives no other Secrets of the user's namespace.
    """

    def __init__(
        self, hub: IKubeClient, clock: IReactorTime, changed: Callable[[Key], None]
    ) -> None:
        self._changed = changed
        self._users: dict[SecretRef, dict[Key, None]] = {}
        # Users make these Secrets, and do not label them.
        self._secrets = SpaceSecrets(hub, clock, (), self._secret_changed, labelled=False)

    def space_changed(self, before: Object | None, after: Object | None) -> None:
        """Watch the Secrets of a changed Space."""
        old, new = _secrets_of(before), _secrets_of(after)
        key = key_of(after or before or {})
        for ref in new - old:
            self._users.setdefault(ref, {})[key] = None
            self._secrets.add_user(ref)
        for ref in old - new:
            self._secrets.remove_user(ref)
            del self._users[ref][key]
            if not self._users[ref]:
                del self._users[ref]

    def stop(self) -> Deferred[Any]:
        """Stop all watches."""
        return self._secrets.stop()

    def _secret_changed(self, ref: SecretRef) -> None:
        if self._secrets.get(ref) is None and not self._secrets.is_gone(ref):
            return  # the watch has only started
        for key in self._users.get(ref, ()):
            self._changed(key)


def _secrets_of(space: Object | None) -> set[SecretRef]:
    if space is None or type_of(space) != spaces.IMPORTED:
        return set()
    return {
        SecretRef(space["metadata"]["namespace"], str(reference["name"]))
        for reference in references(space).values()
        if not why_not_readable(space, reference)
    }
