"""
The system objects: namespaces, roles and bindings without which a server does not work.

A server creates them at its start, and again if the store may have lost them. As in kube-apiserver,
it adds missing rules and subjects to an existing object with the annotation
``rbac.authorization.kubernetes.io/autoupdate: "true"``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api import kinds
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    Conflict,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.apiserver.controllers.namespaces import PERMANENT, ensure_namespaces
from twisted_exec.apiserver.serving.query import MANAGER, WriteOptions
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.apiserver.serving.verbs import OURSELVES, Verbs
from twisted_exec.control.loop import PokedLoop
from twisted_exec.control.metrics import UNREAD, WorkQueueMetrics
from twisted_exec.storage.follower import Followed, StoreFollower
from twisted_exec.storage.interfaces import DELETED, Event, IStorage

AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"

_KINDS: dict[str, Kind] = {
    kind.resource.kind: kind for kind in (kinds.CLUSTERROLES, kinds.CLUSTERROLEBINDINGS)
}
_ATTEMPTS = 5


async def create_system_objects(
    storage: IStorage, verbs: Verbs, objects: Iterable[Object], namespaces: Iterable[str] = ()
) -> int:
    """
    Create missing system objects, and complete existing ones.

    :param verbs: without admission.
    :param objects: roles before their bindings.
    :return: the number of created objects.
    """
    created = await ensure_namespaces(verbs, storage, namespaces)
    for obj in objects:
        created += await _ensure(storage, verbs, obj)
    return created


class SystemObjects(StoreFollower):
    """
    Creates the system objects again when the store may have lost them.

    :param verbs: without admission.
    """

    _log = Logger()

    def __init__(
        self,
        storage: IStorage,
        verbs: Verbs,
        objects: Sequence[Object],
        namespaces: Sequence[str],
        clock: IReactorTime,
        metrics: WorkQueueMetrics = UNREAD,
    ) -> None:
        super().__init__(storage, clock)
        self._verbs, self._objects, self._namespaces = verbs, objects, namespaces
        self._loop = PokedLoop(
            self._run, clock, refused=self._refused, metrics=metrics.of("system-objects")
        )
        self.add_part(self._loop, None)
        self._may_lack_objects = False

    def followed(self) -> tuple[Followed, ...]:
        return (Followed(kinds.NAMESPACES.resource, self._changed, lost=self._loop.poke),)

    def probe(self) -> None:
        """
        Check that the store has the system objects.

        :raises ServiceUnavailable: the store may lack system objects.
        """
        if self._may_lack_objects:
            raise ServiceUnavailable("the store has lost system namespaces or roles")

    def _changed(self, event: Event) -> None:
        name = event.obj["metadata"]["name"]
        if event.type == DELETED and name in PERMANENT:
            self._log.error("another program deleted namespace {name} from the store", name=name)
            self._loop.poke()

    async def _run(self) -> None:
        self._may_lack_objects = True
        created = await create_system_objects(
            self._storage, self._verbs, self._objects, self._namespaces
        )
        self._may_lack_objects = False
        self._log.info(
            "the system objects are complete: created {count} namespaces, roles and bindings again",
            count=created,
        )

    def _refused(self, error: APIError, failures: int) -> None:
        message = "cannot create the system objects again: {why}"
        self._log.warn(message, why=error.message)


async def _ensure(storage: IStorage, verbs: Verbs, desired: Object) -> bool:
    for attempt in range(_ATTEMPTS):
        try:
            return await _create_or_complete(storage, verbs, desired)
        except (AlreadyExists, Conflict):  # another server wrote first
            if attempt == _ATTEMPTS - 1:
                raise
    return False


async def _create_or_complete(storage: IStorage, verbs: Verbs, desired: Object) -> bool:
    kind, name = _KINDS[desired["kind"]], desired["metadata"]["name"]
    target = RequestTarget(kind, "", name)
    try:
        stored = await storage.get(kind.resource, "", name)
    except NotFound:
        body = copy.deepcopy(desired)
        body["metadata"].setdefault("annotations", {})[AUTOUPDATE] = "true"
        await verbs.create(OURSELVES, RequestTarget(kind), body, WriteOptions(manager=MANAGER))
        return True
    if stored["metadata"].get("annotations", {}).get(AUTOUPDATE) == "true":
        await verbs.update(
            OURSELVES, target, _completed(stored, desired), WriteOptions(manager=MANAGER)
        )
    return False


def _completed(stored: Object, desired: Object) -> Object:
    result = copy.deepcopy(stored)
    for key in ("rules", "subjects"):
        if key in desired:
            have = result.setdefault(key, [])
            have += [item for item in copy.deepcopy(desired[key]) if item not in have]
    return result
