"""
Copy ConfigMaps and Secrets to a leaf, for the Pods there.

A copy has our marks, follows its original, and is deleted with the last Pod that names it. A
foreign object of the same name stays and serves the Pod.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, TimeoutError, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from twisted_exec.api.kinds.namespaces import NAMESPACES
from twisted_exec.api.kinds.secrets import ACCOUNT_TOKEN, OPAQUE, SECRETS
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    Conflict,
    Invalid,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.control.runs import StoppingParts
from twisted_exec.kube.informers import Reflector, key_of
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.nodeserver.ownership import PREFIX
from twisted_exec.nodeserver.syncer.leaf_pods import CONFIG_MAPS, Reference

KINDS = (CONFIG_MAPS, SECRETS.resource)
VERSION = f"{PREFIX}version"
"""Annotation of a copy: UID and resourceVersion of its original."""

SOURCE = f"{PREFIX}source-namespace"
"""Annotation of a copy: the original's namespace in the root."""

COPIED_FOR = f"{PREFIX}leaf"
"""Annotation of a copy: the leaf whose Pods need it.  Several leaves may be the same cluster."""

_COPY_ANNOTATIONS = (VERSION, SOURCE, COPIED_FOR)

READ_SECONDS = 5.0
"""How long a worker waits for the first list of a reflector; it tries again later."""


def metadata_only(obj: Object) -> Object:
    """Return an object with only the metadata that is used here."""
    metadata = obj["metadata"]
    keys = ("namespace", "name", "uid", "resourceVersion", "labels")
    small: Object = {key: metadata[key] for key in keys if key in metadata}
    annotations = metadata.get("annotations") or {}
    if VERSION in annotations:
        small["annotations"] = {
            key: annotations[key] for key in _COPY_ANNOTATIONS if key in annotations
        }
    return {"metadata": small}


def version_of(original: Object) -> str:
    """Return text that differs between any two states of any two objects."""
    return f"{original['metadata']['uid']}/{original['metadata']['resourceVersion']}"


def copy_of(original: Object, namespace: str, labels: Object, leaf: str) -> Object:
    """Return the copy to write into the leaf."""
    metadata = {
        "namespace": namespace,
        "name": original["metadata"]["name"],
        "labels": dict(labels),
        "annotations": {
            VERSION: version_of(original),
            SOURCE: original["metadata"]["namespace"],
            COPIED_FOR: leaf,
        },
    }
    content: Object = {key: original[key] for key in ("data", "binaryData") if original.get(key)}
    kind = original.get("type")
    if kind:
        # The leaf would fill a Secret of the token type with a token of its own.
        content["type"] = OPAQUE if kind == ACCOUNT_TOKEN else kind
    return {**content, "metadata": metadata}


class RootObjects:
    """Metadata of ConfigMaps and Secrets in namespaces of the root."""

    def __init__(
        self, client: IKubeClient, clock: IReactorTime, changed: Callable[[str], None]
    ) -> None:
        self.client = client
        self._clock, self._changed = clock, changed
        self._reflectors: dict[tuple[Resource, str], Reflector] = {}
        self._stopping = StoppingParts()

    def known(self, resource: Resource, namespace: str) -> Deferred[Reflector]:
        """
        Watch a kind of object in a namespace.

        :return: fires with its reflector once that has listed the objects; fails with
            :class:`ServiceUnavailable` after :data:`READ_SECONDS`.
        """
        reflector = self._reflectors.get((resource, namespace))
        if reflector is None:
            reflector = self._reflectors[resource, namespace] = Reflector(
                self.client,
                resource,
                self._clock,
                namespace=namespace,
                on_change=lambda *_: self._changed(namespace),
                trim=metadata_only,
            )
            reflector.start()
        return _synced(reflector, self._clock)

    def keep_only(self, namespaces: Collection[str]) -> None:
        """Stop watching all other namespaces."""
        for key in [key for key in self._reflectors if key[1] not in namespaces]:
            self._stopping.add(self._reflectors.pop(key).stop())

    def stop(self) -> Deferred[Any]:
        """Stop; fires when nothing is under way."""
        self.keep_only(())
        return self._stopping.over()


class Copies:
    """
    The copies in one leaf.

    :param labels: the labels of our objects in leaves.
    :param changed: called with a namespace of the root whose copies in the leaf changed.
    :param leaf: its name.
    :param leaves: returns the names of all leaves.
    """

    def __init__(
        self,
        client: IKubeClient,
        originals: RootObjects,
        clock: IReactorTime,
        labels: Object,
        changed: Callable[[str], None],
        leaf: str,
        leaves: Callable[[], Collection[str]],
    ) -> None:
        self._client, self._originals, self._labels = client, originals, labels
        self._leaf, self._leaves = leaf, leaves
        self._changed, self._clock = changed, clock
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        self._reflectors = {
            resource: Reflector(
                client,
                resource,
                clock,
                label_selector=selector,
                of=f'leaf cluster "{leaf}"',
                on_change=self._copy_changed,
                trim=metadata_only,
            )
            for resource in KINDS
        }

    def start(self) -> None:
        for each in self._reflectors.values():
            each.start()

    def stop(self) -> Deferred[Any]:
        """Stop; fires when nothing is under way."""
        return DeferredList([each.stop() for each in self._reflectors.values()])

    def _copy_changed(self, before: Object | None, after: Object | None) -> None:
        for each in (before, after):
            if each is not None and self._is_copy(each):
                self._changed(_source(each))

    def sources(self) -> set[str]:
        """Return the root's namespaces that have copies."""
        held = (each for reflector in self._reflectors.values() for each in reflector)
        return {_source(each) for each in held if self._is_copy(each)}

    async def ensure(self, source: str, target: str, objects: Iterable[Reference]) -> None:
        """
        Create missing copies, and update outdated ones.

        :param target: existing namespace of the leaf, the counterpart of ``source`` in the root.
        """
        for each in sorted(
            objects, key=lambda reference: (reference.resource.plural, reference.name)
        ):
            original = (await self._originals.known(each.resource, source)).get(each.name, source)
            if original is not None:
                await self._ensure_copy(each.resource, original, target)

    async def clear(self, source: str, target: str, candidates: Collection[Reference]) -> None:
        """Delete copies of a namespace of the root that no Pod names any more."""
        for resource, reflector in self._reflectors.items():
            await _synced(reflector, self._clock)
            for each in reflector:
                namespace, name = key_of(each)
                is_wanted = namespace == target and Reference(resource, name) in candidates
                if _source(each) == source and self._is_for_this_leaf(each) and not is_wanted:
                    await self._delete(resource, each)

    async def _ensure_copy(self, resource: Resource, original: Object, target: str) -> None:
        reflector, name = self._reflectors[resource], original["metadata"]["name"]
        await _synced(reflector, self._clock)
        existing = reflector.get(name, target)
        if existing is not None and _version(existing) == version_of(original):
            return
        try:
            whole = await self._originals.client.get(
                resource, name, original["metadata"]["namespace"]
            )
        except NotFound:
            return
        await self._write(resource, copy_of(whole, target, self._labels, self._leaf), existing)

    async def _write(self, resource: Resource, desired: Object, existing: Object | None) -> None:
        namespace, name = key_of(desired)
        if existing is None:
            try:
                await self._client.create(resource, desired, namespace)
                return
            except AlreadyExists:
                existing = await self._client.get(resource, name, namespace)
        if not self._is_copy(existing) or _version(existing) == _version(desired):
            return  # a foreign object serves as well
        desired["metadata"]["resourceVersion"] = existing["metadata"]["resourceVersion"]
        try:
            await self._client.update(resource, desired, namespace)
        except APIError as refused:
            if refused.code != Invalid.code:
                raise
            # The type of a Secret, or an immutable object, cannot be changed: replace it.
            await self._delete(resource, existing)
            del desired["metadata"]["resourceVersion"]
            await self._client.create(resource, desired, namespace)

    def _is_copy(self, obj: Object) -> bool:
        """Return whether an object is a copy of ours, of whichever leaf."""
        labels = obj["metadata"].get("labels") or {}
        return _version(obj) is not None and all(
            labels.get(key) == value for key, value in self._labels.items()
        )

    def _is_for_this_leaf(self, obj: Object) -> bool:
        leaf = (obj["metadata"].get("annotations") or {}).get(COPIED_FOR, self._leaf)
        return self._is_copy(obj) and (leaf == self._leaf or leaf not in self._leaves())

    async def _delete(self, resource: Resource, existing: Object) -> None:
        namespace, name = key_of(existing)
        try:
            await self._client.delete(resource, name, namespace, uid=existing["metadata"]["uid"])
        except (NotFound, Conflict):
            pass  # deleted or replaced already


def _synced(reflector: Reflector, clock: IReactorTime) -> Deferred[Reflector]:
    """Wait until a reflector has listed its objects."""
    if reflector.synced:
        return succeed(reflector)
    waiting = reflector.when_synced().addTimeout(READ_SECONDS, clock)

    def late(failure: Failure) -> Reflector:
        failure.trap(TimeoutError)
        why = reflector.problem or "there is no answer yet"
        raise ServiceUnavailable(f"{reflector.resource.plural} cannot be read: {why}")

    return waiting.addCallbacks(lambda _: reflector, late)


def _source(copy: Object) -> str:
    return str((copy["metadata"].get("annotations") or {}).get(SOURCE, ""))


def _version(copy: Object) -> Any:
    return (copy["metadata"].get("annotations") or {}).get(VERSION)


async def make_namespace(client: IKubeClient, name: str, labels: Object) -> None:
    """Create a namespace in a leaf, unless it exists."""
    try:
        await client.create(NAMESPACES.resource, {"metadata": {"name": name, "labels": labels}})
    except AlreadyExists:
        pass
