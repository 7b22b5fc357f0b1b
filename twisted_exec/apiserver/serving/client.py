"""
A client of the server's own verbs, in its process.

Parts that also run in other programs, such as the election of a leader and the recorder of Events,
write through it.  They do not read lists or watches here: controllers follow the store
(:mod:`twisted_exec.storage.follower`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from twisted_exec.api import patch as patches
from twisted_exec.api import strategy
from twisted_exec.api.encoded import json_bytes
from twisted_exec.api.kinds import EVENTS, Kind, Object
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import NotFound
from twisted_exec.apiserver.serving.query import MANAGER, WriteOptions
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.apiserver.serving.verbs import OURSELVES, Verbs
from twisted_exec.kube.interfaces import IObjectClient
from twisted_exec.kube.recorder import Recorder
from twisted_exec.program.tasks import as_deferred
from twisted_exec.streaming.http.routes import UNKNOWN_PATH


@implementer(IObjectClient)
class VerbsClient:
    """
    Reads and writes single objects as the server itself.

    :param verbs: without admission, so that an unreachable webhook holds up nothing.
    :param kinds: the kinds of these objects.
    """

    def __init__(self, verbs: Verbs, kinds: Iterable[Kind]) -> None:
        self._verbs = verbs
        self._kinds = {kind.resource: kind for kind in kinds}

    @as_deferred
    async def get(self, resource: Resource, name: str, namespace: str = "") -> Object:
        return _own(await self._verbs.get(self._target(resource, namespace, name)))

    @as_deferred
    async def create(self, resource: Resource, obj: Object, namespace: str = "") -> Object:
        target = self._target(resource, namespace)
        return _own(await self._verbs.create(OURSELVES, target, obj, _options()))

    @as_deferred
    async def update(
        self, resource: Resource, obj: Object, namespace: str = "", *, subresource: str = ""
    ) -> Object:
        target = self._target(resource, namespace, obj["metadata"]["name"], subresource)
        return _own(await self._verbs.update(OURSELVES, target, obj, _options()))

    @as_deferred
    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Mapping[str, Any],
        namespace: str = "",
        *,
        subresource: str = "",
        content_type: str = patches.MERGE,
    ) -> Object:
        target = self._target(resource, namespace, name, subresource)
        schema = strategy.full_schema(target.kind)
        make = patches.reader(content_type, json_bytes(patch), schema=schema)
        return _own(await self._verbs.patch(OURSELVES, target, make, _options()))

    @as_deferred
    async def delete(
        self, resource: Resource, name: str, namespace: str = "", *, uid: str = ""
    ) -> Object:
        target = self._target(resource, namespace, name)
        only = {"uid": uid} if uid else {}
        obj, _ = await self._verbs.delete(OURSELVES, target, _options(), only)
        return _own(obj)

    def _target(
        self, resource: Resource, namespace: str, name: str = "", subresource: str = ""
    ) -> RequestTarget:
        kind = self._kinds.get(resource)
        if kind is None:
            raise NotFound(resource.plural, name, resource.group, UNKNOWN_PATH)
        return RequestTarget(kind, namespace, name, subresource)


def own_recorder(
    verbs: Verbs, clock: IReactorTime, now: Callable[[], float], *, about: Resource, component: str
) -> Recorder:
    """
    Return a recorder of Events of a part of the server.

    :param verbs: without admission.
    :param now: seconds since the epoch.
    :param about: the usual kind of object; as for :class:`~twisted_exec.kube.recorder.Recorder`.
    """
    client = VerbsClient(verbs, [EVENTS])
    return Recorder(client, clock, about=about, component=component, now=now)


def _options() -> WriteOptions:
    return WriteOptions(manager=MANAGER)


def _own(obj: Object) -> Object:
    """Return a copy that the caller may change: the store and its followers share the object."""
    copied: Object = json.loads(json_bytes(obj))
    return copied
