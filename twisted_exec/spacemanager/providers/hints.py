"""
Hints that something of a provider may have changed, out of objects that are followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred, DeferredList

from twisted_exec.api.meta import Resource
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.kube.watch import Reflector
from twisted_exec.spacemanager.interfaces import Physical

Changed = Callable[[Physical | None], None]
Read = Callable[[Object | None, Object | None], Iterable[Physical]]
"""From an object before and after: whatever may have changed with it."""


class Hints:
    """
    Objects of several kinds, followed for as long as somebody wants to be told.

    What is there at the beginning is no news: once it is known, one hint is given about all of it.

    :param changed: told of each.
    """

    def __init__(self, client: IKubeClient, clock: Any, changed: Changed) -> None:
        self._client, self._clock, self._changed = client, clock, changed
        self._reflectors: list[Reflector] = []
        self._ended = False

    def follow(
        self,
        resource: Resource,
        read: Read,
        trim: Callable[[Object], Object],
        *,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
        announce: bool = False,
    ) -> None:
        """
        Follow what a selector chooses of a kind.

        :param announce: give that one hint when it is all known.
        """

        def told(before: Object | None, after: Object | None) -> None:
            for physical in list(read(before, after)):
                if reflector.synced and not self._ended:
                    self._changed(physical)

        reflector = Reflector(
            self._client,
            resource,
            self._clock,
            namespace=namespace,
            field_selector=field_selector,
            label_selector=label_selector,
            on_change=told,
            trim=trim,
        )
        self._reflectors.append(reflector)
        if announce:
            reflector.when_synced().addCallback(lambda _: self._ended or self._changed(None))
        reflector.start()

    def end(self) -> Deferred[Any]:
        """No more of them; fires when nothing is under way any more."""
        self._ended = True
        return DeferredList([reflector.stop() for reflector in self._reflectors])


def bare(obj: Object, *more: str) -> Object:
    """What tells that an object has changed, and nothing that it holds but what is asked for."""
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "ownerReferences", "deletionTimestamp")
    kept_here = {key: metadata[key] for key in kept if key in metadata}
    return {"metadata": kept_here, **{key: obj[key] for key in more if key in obj}}


def unmanaged(obj: Object) -> Object:
    """An object without the longest part that nobody reads."""
    obj["metadata"].pop("managedFields", None)
    (obj["metadata"].get("annotations") or {}).pop(
        "kubectl.kubernetes.io/last-applied-configuration", None
    )
    return obj
