"""
Local copies of resources that follow the API server.

A reflector keeps a local copy of one resource current by list and watch. Events only say when to
look at the copy: several changes may arrive as one. Source of the rules:
``k8s.io/client-go/tools/cache/reflector.go``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import Interface, implementer

from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, Expired, Forbidden, NotFound, Unauthorized
from twisted_exec.control.backoff import LONGEST_PAUSE_SECONDS, Backoff
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.program.service import SUMMARY

# Pause if a server ends every watch at once, or calls the version that it just returned too old.
SHORT_WATCH_SECONDS = 1.0

NOBODY = "metadata.name=-"
"""A field selector that matches no object, to get only the version of a list."""

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""

Change = Callable[[Object | None, Object | None], None]
"""Called with the object before and after; ``None`` before its creation and after its deletion."""


class IStore(Interface):
    """Read access to a local copy."""

    def get(name: str, namespace: str = "") -> Object | None:
        """Return the object as last seen, read-only; ``None`` if there is none."""


def key_of(obj: Object) -> Key:
    """Return namespace and name of an object."""
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


@implementer(IStore)
class Reflector:
    """
    A local copy of the objects of one resource.

    :param on_change: called for each difference, in order.
    :param trim: returns the part of an object to store; it may change the object in place.
    :param optional: wait without a warning if the server lacks the resource.
    :param max_objects: list again if a watch brings more objects.
    :param of: name of the cluster, for messages.
    """

    def __init__(
        self,
        client: IKubeClient,
        resource: Resource,
        clock: IReactorTime,
        *,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
        of: str = "",
        on_change: Change | None = None,
        trim: Callable[[Object], Object] | None = None,
        max_objects: int | None = None,
        optional: bool = False,
        rng: random.Random | None = None,
    ) -> None:
        self.resource, self._max_objects = resource, max_objects
        self._optional = optional
        self._what = " ".join(
            filter(
                None,
                [
                    resource.qualified,
                    f"({label_selector})" if label_selector else "",
                    f"of {of}" if of else "",
                ],
            )
        )
        self.synced = False
        """Whether the copy has been complete at least once."""
        self.problem = ""
        """The reason why the copy is not current, or empty."""
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._selectors = {"field_selector": field_selector, "label_selector": label_selector}
        self._on_change, self._trim = on_change, trim
        self._backoff = Backoff(rng=rng)
        self._objects: dict[Key, Object] = {}
        self._version = ""
        self._interrupted = False
        self._listed = 0.0
        self._settling: IDelayedCall | None = None
        self._running: Deferred[None] | None = None
        self._stopped = False
        self._waiting: list[Deferred[None]] = []

    _log = Logger()

    def start(self) -> None:
        if self._running is None:
            self._stopped = False
            self._running = Deferred.fromCoroutine(self._run()).addErrback(self._ended)

    def stop(self) -> Deferred[None]:
        """Cancel all requests; fires when they have ended. The copy stays readable."""
        running, self._running = self._running, None
        if running is None:
            return succeed(None)
        # A cancelled connection attempt fails as if the server were down; the flag tells them apart.
        self._stopped = True
        running.cancel()
        return running

    def _ended(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self.problem = "the reflector failed; see the log"
            self._log.failure("{what}: the reflector failed", failure, what=self._what)

    def begin_with(self, objects: Iterable[Object], version: str) -> None:
        """Begin with a complete copy of a version, instead of a list."""
        self._objects = {key_of(obj): obj for obj in objects}
        self._version, self.synced = version, True

    def forget(self) -> None:
        """
        Prepare for another server: list again, and be unsynced until then.

        If the reflector is running, call this again after :meth:`stop` has fired.
        """
        self._version, self.synced = "", False

    def when_synced(self) -> Deferred[None]:
        """Fires when the first list has arrived."""
        if self.synced:
            return succeed(None)
        waiting: Deferred[None] = Deferred(lambda d: self._waiting.remove(d))
        self._waiting.append(waiting)
        return waiting

    def get(self, name: str, namespace: str = "") -> Object | None:
        return self._objects.get((namespace, name))

    def __iter__(self) -> Iterator[Object]:
        return iter(list(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    async def _run(self) -> None:
        # Not a PokedLoop: the state between two attempts is the version of the last event.
        while not self._stopped:
            try:
                # A server that was restored from a backup has lower versions, and sends nothing to
                # a resumed watch until it reaches the version of the watch.
                if self._version and self._interrupted:
                    await self._look_for_older()
                if not self._version:
                    await self._list()
                self._interrupted = False
                await self._watch_once()
            except Expired as expired:
                self._version = ""
                if not self._stopped and self._clock.seconds() - self._listed < SHORT_WATCH_SECONDS:
                    await self._pause(expired.message, 0)
            except APIError as refused:
                if self._stopped:
                    return
                self._interrupted = True
                if self._optional and await self._is_absent(refused):
                    await self._wait_for_resource()
                else:
                    await self._pause(_explained(refused), refused.retry_after_seconds or 0)
            except CancelledError:
                raise
            except Exception:
                if self._stopped:
                    raise
                # A bug, or an object of unexpected form; continue, the next object may be fine.
                self._log.failure("{resource}: following failed", resource=self.resource.qualified)
                self._version = ""  # the object of this version is not in the copy
                await self._pause("following failed; see the log", LONGEST_PAUSE_SECONDS)

    async def _is_absent(self, refused: APIError) -> bool:
        """
        Return whether the server lacks the resource.

        RBAC also answers 403 for a group that does not exist; discovery tells.
        """
        if refused.code != Forbidden.code:
            return refused.code == NotFound.code
        try:
            return self.resource.group not in await self._client.groups()
        except APIError:
            return False

    async def _wait_for_resource(self) -> None:
        why = f"the API server has no {self.resource.qualified}"
        if why != self.problem:
            self._log.info("{why}", why=why)
        self.problem = why
        await deferLater(self._clock, max(self._backoff.pause(), SHORT_WATCH_SECONDS))

    async def _list(self) -> None:
        # Passed only if used, so that test doubles need not know the parameter.
        keep = {} if self._trim is None else {"trim": self._trim}
        options: dict[str, Any] = {**self._selectors, **keep}
        listed = await self._client.list(self.resource, self._namespace, **options)
        self._replace({key_of(obj): obj for obj in listed["items"]})
        # A watch from "0" may start at any version (Kubernetes API concepts, "Semantics for
        # watch").
        self._version = str(listed["metadata"].get("resourceVersion") or "0")
        self._listed = self._clock.seconds()
        self.problem = ""
        if not self.synced:
            self.synced = True
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each.callback(None)

    async def _look_for_older(self) -> None:
        fields = self._selectors["field_selector"]
        if "metadata.name=" not in fields:  # RBAC may allow us to list this one name only
            fields = ",".join(filter(None, [fields, NOBODY]))
        selectors: dict[str, Any] = {**self._selectors, "field_selector": fields}
        listed = await self._client.list(self.resource, self._namespace, **selectors)
        version = str(listed["metadata"].get("resourceVersion") or "")
        if _is_older(version, self._version):
            message = "{what}: the API server has gone back from version {before} to {now}"
            self._log.warn(message, what=self._what, before=self._version, now=version)
            self._version = ""

    async def _watch_once(self) -> None:
        begun = self._clock.seconds()
        try:
            await self._client.watch(
                self.resource,
                self._event,
                self._namespace,
                resource_version=self._version,
                on_open=self._opened,
                **self._selectors,
            )
        finally:
            settling, self._settling = self._settling, None
            if settling is not None and settling.active():
                settling.cancel()
        if self._clock.seconds() - begun < SHORT_WATCH_SECONDS:
            await self._pause("the API server ends watches at once", 0)
        else:
            self._current()

    def _opened(self) -> None:
        """Count as current after a moment, because a watch without changes may stay silent."""
        self._settling = self._clock.callLater(SHORT_WATCH_SECONDS, self._current)

    def _current(self) -> None:
        if self.problem:
            self._log.info("{what}: current again", what=self._what, **{SUMMARY: True})
        self.problem = ""
        self._backoff.reset()

    async def _pause(self, why: str, at_least_seconds: float) -> None:
        if why != self.problem:
            self._log.warn("{what}: {why}", what=self._what, why=why)
        self.problem = why
        seconds = max(self._backoff.pause(), min(at_least_seconds, LONGEST_PAUSE_SECONDS))
        await deferLater(self._clock, seconds)

    def _event(self, kind: str, obj: Object) -> None:
        version = obj["metadata"].get("resourceVersion")
        if version:
            self._version = str(version)
        self._current()
        if kind in ("ADDED", "MODIFIED"):
            self._check_room(obj)
            self._put(obj if self._trim is None else self._trim(obj))
        elif kind == "DELETED":
            self._drop(key_of(obj))

    def _check_room(self, obj: Object) -> None:
        full = self._max_objects is not None and len(self._objects) >= self._max_objects
        if full and key_of(obj) not in self._objects:
            raise Expired(f"more than {self._max_objects} objects came")

    def _replace(self, objects: dict[Key, Object]) -> None:
        for key in [key for key in self._objects if key not in objects]:
            self._drop(key)
        for obj in objects.values():
            self._put(obj)

    def _put(self, obj: Object) -> None:
        key = key_of(obj)
        before = self._objects.get(key)
        if before is not None and _uid(before) != _uid(obj):
            self._drop(key)
            before = None
        self._objects[key] = obj
        if before is None or before != obj:
            self._tell(before, obj)

    def _drop(self, key: Key) -> None:
        before = self._objects.pop(key, None)
        if before is not None:
            self._tell(before, None)

    def _tell(self, before: Object | None, after: Object | None) -> None:
        if self._on_change is None:
            return
        try:
            self._on_change(before, after)
        except Exception:
            # A bug of the listener must not stop the copy.
            self._log.failure("a listener of {what} failed", what=self._what)


def _uid(obj: Object) -> Any:
    return obj["metadata"].get("uid")


def _is_older(version: str, than: str) -> bool:
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def _explained(refused: APIError) -> str:
    if refused.code == Unauthorized.code and refused.message == Unauthorized.reason:
        return "the API server does not accept this program's credentials; replace them"
    return refused.message
