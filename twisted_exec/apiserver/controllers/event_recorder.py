"""
Events that the API server itself records, such as those of its scheduler.

A repeated Event increases the count of the first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from twisted.logger import Logger

from twisted_exec.api.kinds import EVENTS, Kind, Object
from twisted_exec.api.status import APIError, NotFound
from twisted_exec.api.times import timestamp
from twisted_exec.api.users import MASTERS
from twisted_exec.apiserver.serving.query import MANAGER, WriteOptions
from twisted_exec.apiserver.serving.verbs import RequestTarget, Verbs
from twisted_exec.auth.interfaces import User

NORMAL, WARNING = "Normal", "Warning"
OURSELVES = User("system:apiserver", (MASTERS,))
"""The user for writes by the server itself."""

_LONGEST_MESSAGE = 1024
_LONGEST_NAME = 200
_OPTIONS = WriteOptions(manager=MANAGER)


class Reports:
    """
    Records Events.

    :param verbs: without admission.
    :param component: the reporting controller, such as ``scheduler``.
    :param now: seconds since the epoch.
    """

    _log = Logger()

    def __init__(self, verbs: Verbs, component: str, now: Callable[[], float]) -> None:
        self._verbs, self._component, self._now = verbs, component, now

    async def tell(self, kind: Kind, obj: Object, level: str, reason: str, message: str) -> None:
        """Record an Event as :meth:`record`; an API error is only logged."""
        try:
            await self.record(kind, obj, level, reason, message)
        except APIError as error:
            self._log.info(
                "cannot record an event for {name}: {reason}: {text} ({error})",
                name=obj["metadata"]["name"],
                reason=reason,
                text=message,
                error=error,
            )

    async def record(self, kind: Kind, obj: Object, level: str, reason: str, message: str) -> None:
        """
        Record an Event about an object.

        :param level: :data:`NORMAL` or :data:`WARNING`.
        :param reason: CamelCase word for programs.
        :raises APIError: the store does not take it.
        """
        event = self._event(kind, obj, level, reason, message[:_LONGEST_MESSAGE])
        target = RequestTarget(EVENTS, event["metadata"]["namespace"], event["metadata"]["name"])
        try:
            await self._verbs.patch(OURSELVES, target, self._again, _OPTIONS)
        except NotFound:
            where = RequestTarget(EVENTS, target.namespace)
            await self._verbs.create(OURSELVES, where, event, _OPTIONS)

    def _again(self, old: Object) -> Object:
        return {**old, "count": old.get("count", 1) + 1, "lastTimestamp": timestamp(self._now())}

    def _event(self, kind: Kind, obj: Object, level: str, reason: str, message: str) -> Object:
        metadata, moment = obj["metadata"], timestamp(self._now())
        identity = "\0".join((metadata["uid"], self._component, level, reason, message))
        digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
        # Events for objects without a namespace go into this one, as in Kubernetes.
        namespace = metadata.get("namespace", "default")
        involved = {
            "apiVersion": kind.resource.api_version,
            "kind": kind.resource.kind,
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        if "namespace" in metadata:
            involved["namespace"] = namespace
        return {
            "metadata": {
                "name": f"{_plain(metadata['name'])}.{digest}",
                "namespace": namespace,
            },
            "involvedObject": involved,
            "type": level,
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }


def _plain(name: str) -> str:
    plain = "".join(mark if mark.isascii() and mark.isalnum() else "-" for mark in name.lower())
    return plain[:_LONGEST_NAME].strip("-") or "object"
