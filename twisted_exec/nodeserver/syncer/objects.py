"""
ConfigMaps and Secrets in a leaf, as Pods there need them.

Only those that a Pod names are brought; what was brought is marked as ours, follows its original, and goes with
the last Pod that names it.  An object of that name that somebody else has made is left as it is, and
serves the Pod: whoever runs the leaf may have reasons.

Of originals and of what was brought only the metadata is kept here.  A copy says of which version of
its original it is, so that comparing the two costs no request and no memory for what is in them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, TimeoutError, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from twisted_exec.api.kinds.core import NAMESPACES
from twisted_exec.api.kinds.secrets import SECRETS
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    AlreadyExists,
    APIError,
    Conflict,
    NotFound,
    ServiceUnavailable,
)
from twisted_exec.kube.informers.reflector import Reflector, key_of
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.nodeserver.ownership import PREFIX
from twisted_exec.nodeserver.syncer.form import CONFIG_MAPS, Reference
from twisted_exec.program.tasks import Stopping

KINDS = (CONFIG_MAPS, SECRETS.resource)
VERSION = f"{PREFIX}version"
"""Annotation: which object it is a copy of, and of which of its versions."""

SOURCE = f"{PREFIX}source-namespace"
"""Likewise: the namespace of the root that it is out of."""

COPIED_FOR = f"{PREFIX}leaf"
"""Likewise: the leaf for whose Pods it was brought.  Several leaves may be one cluster."""

_OF_A_COPY = (VERSION, SOURCE, COPIED_FOR)

READ_SECONDS = 5.0
"""For so long the first list may take before who waits for it tries again later."""

_TOKEN_TYPE = "kubernetes.io/service-account-token"


def metadata_only(obj: Object) -> Object:
    """What is kept of an object; the same one."""
    metadata = obj["metadata"]
    keys = ("namespace", "name", "uid", "resourceVersion", "labels")
    small: Object = {key: metadata[key] for key in keys if key in metadata}
    annotations = metadata.get("annotations") or {}
    if VERSION in annotations:
        small["annotations"] = {key: annotations[key] for key in _OF_A_COPY if key in annotations}
    return {"metadata": small}


def version_of(original: Object) -> str:
    """Tells any two states of any two objects apart."""
    return f"{original['metadata']['uid']}/{original['metadata']['resourceVersion']}"


def copy_of(original: Object, namespace: str, labels: Object, leaf: str) -> Object:
    """What to write into the leaf."""
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
        # One that is a token's would be filled with another by the leaf.
        content["type"] = "Opaque" if kind == _TOKEN_TYPE else kind
    return {**content, "metadata": metadata}


class RootObjects:
    """
    The ConfigMaps and Secrets of the root's namespaces in which Pods name some.

    :param changed: told a namespace in which one is another.
    """

    def __init__(
        self, client: IKubeClient, clock: IReactorTime, changed: Callable[[str], None]
    ) -> None:
        self.client = client
        self._clock, self._changed = clock, changed
        self._copies: dict[tuple[Resource, str], Reflector] = {}
        self._stopping = Stopping()

    def known(self, resource: Resource, namespace: str) -> Deferred[Reflector]:
        """
        Fires with those of a namespace, followed from now on, when they were read; fails with
        ``ServiceUnavailable`` when that takes long.
        """
        copy = self._copies.get((resource, namespace))
        if copy is None:
            copy = self._copies[resource, namespace] = Reflector(
                self.client,
                resource,
                self._clock,
                namespace=namespace,
                on_change=lambda *_: self._changed(namespace),
                trim=metadata_only,
            )
            copy.start()
        return _read(copy, self._clock)

    def forget(self, namespaces: Collection[str]) -> None:
        """Follow no others than those of these namespaces."""
        for key in [key for key in self._copies if key[1] not in namespaces]:
            self._stopping.add(self._copies.pop(key).stop())

    def stop(self) -> Deferred[Any]:
        """Fires when nothing is under way any more."""
        self.forget(())
        return self._stopping.over()


class Copies:
    """
    What was brought to one leaf.

    :param labels: by which it is ours.
    :param leaf: its name.
    :param leaves: the names of all that there are now; what was brought for another of them is that
        one's to take away.
    :param changed: told the root's namespace of a copy that is another than before.
    :param of: what the leaf is called in the log.
    """

    def __init__(
        self,
        client: IKubeClient,
        originals: RootObjects,
        clock: IReactorTime,
        labels: Object,
        changed: Callable[[str], None],
        of: str = "",
        leaf: str = "",
        leaves: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._client, self._originals, self._labels = client, originals, labels
        self._leaf, self._leaves = leaf, leaves
        self._changed, self._clock = changed, clock
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        self._there = {
            resource: Reflector(
                client,
                resource,
                clock,
                label_selector=selector,
                of=of,
                on_change=self._one_changed,
                trim=metadata_only,
            )
            for resource in KINDS
        }

    def start(self) -> None:
        """Follow them until :meth:`stop`."""
        for each in self._there.values():
            each.start()

    def stop(self) -> Deferred[Any]:
        """Fires when nothing is under way any more."""
        return DeferredList([each.stop() for each in self._there.values()])

    def _one_changed(self, before: Object | None, after: Object | None) -> None:
        for each in (before, after):
            if each is not None and self._is_ours(each):
                self._changed(_source(each))

    def sources(self) -> set[str]:
        """The root's namespaces of which there are any."""
        held = (each for copy in self._there.values() for each in copy)
        return {_source(each) for each in held if self._is_ours(each)}

    async def bring(self, source: str, target: str, objects: Iterable[Reference]) -> None:
        """
        See that these are there, as they are in the root.  What the root has not got is not missed.

        :param source: a namespace of the root, ``target`` its one in the leaf, which is there.
        """
        for each in sorted(
            objects, key=lambda reference: (reference.resource.plural, reference.name)
        ):
            original = (await self._originals.known(each.resource, source)).get(each.name, source)
            if original is not None:
                await self._bring(each.resource, original, target)

    async def clear(self, source: str, target: str, candidates: Collection[Reference]) -> None:
        """
        Take away what is out of a namespace of the root and nobody names there any more.

        :param target: its one in the leaf; what is in another was brought when that one was.
        """
        for resource, copy in self._there.items():
            await _read(copy, self._clock)
            for each in copy:
                namespace, name = key_of(each)
                is_wanted = namespace == target and Reference(resource, name) in candidates
                if _source(each) == source and self._is_mine(each) and not is_wanted:
                    await self._delete(resource, each)

    async def _bring(self, resource: Resource, original: Object, target: str) -> None:
        copy, name = self._there[resource], original["metadata"]["name"]
        await _read(copy, self._clock)
        there = copy.get(name, target)
        if there is not None and _version(there) == version_of(original):
            return
        try:
            whole = await self._originals.client.get(
                resource, name, original["metadata"]["namespace"]
            )
        except NotFound:
            return
        await self._write(resource, copy_of(whole, target, self._labels, self._leaf), there)

    async def _write(self, resource: Resource, desired: Object, there: Object | None) -> None:
        namespace, name = key_of(desired)
        if there is None:
            try:
                await self._client.create(resource, desired, namespace)
                return
            except AlreadyExists:
                there = await self._client.get(resource, name, namespace)
        if not self._is_ours(there) or _version(there) == _version(desired):
            return  # somebody else's serves as well
        desired["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
        try:
            await self._client.update(resource, desired, namespace)
        except APIError as refused:
            if refused.code != 422:
                raise
            # Of another type, or not to be changed: in its place.
            await self._delete(resource, there)
            del desired["metadata"]["resourceVersion"]
            await self._client.create(resource, desired, namespace)

    def _is_ours(self, obj: Object) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return _version(obj) is not None and all(
            labels.get(key) == value for key, value in self._labels.items()
        )

    def _is_mine(self, obj: Object) -> bool:
        """It is ours, and of no other leaf that there is."""
        leaf = (obj["metadata"].get("annotations") or {}).get(COPIED_FOR, self._leaf)
        return self._is_ours(obj) and (leaf == self._leaf or leaf not in self._leaves())

    async def _delete(self, resource: Resource, there: Object) -> None:
        namespace, name = key_of(there)
        try:
            await self._client.delete(resource, name, namespace, uid=there["metadata"]["uid"])
        except (NotFound, Conflict):
            pass  # it is gone, or another


def _read(copy: Reflector, clock: IReactorTime) -> Deferred[Reflector]:
    """Fires with a copy that is whole; a worker waits for it for a while, and no longer."""
    if copy.synced:
        return succeed(copy)
    waiting = copy.when_synced().addTimeout(READ_SECONDS, clock)

    def late(failure: Failure) -> Reflector:
        failure.trap(TimeoutError)
        why = copy.problem or "there is no answer yet"
        raise ServiceUnavailable(f"{copy.resource.plural} cannot be read: {why}")

    return waiting.addCallbacks(lambda _: copy, late)


def _source(copy: Object) -> str:
    return str((copy["metadata"].get("annotations") or {}).get(SOURCE, ""))


def _version(copy: Object) -> Any:
    return (copy["metadata"].get("annotations") or {}).get(VERSION)


async def make_namespace(client: IKubeClient, name: str, labels: Object) -> None:
    """Make a namespace of a leaf; one that is there is as good, whoever made it."""
    try:
        await client.create(NAMESPACES.resource, {"metadata": {"name": name, "labels": labels}})
    except AlreadyExists:
        pass
