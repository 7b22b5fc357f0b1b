"""
Hints that permissions have changed, from the roles and bindings of an API server.

Where a hop may watch roles and bindings, a change that may take permissions from the user of an
open session is a hint: cached answers are forgotten, and the guard reviews its sessions. A second
hint follows, since a replica of the API server may still have decided by the rules before the
change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.kinds import (
    CLUSTERROLEBINDINGS,
    CLUSTERROLES,
    ROLEBINDINGS,
    ROLES,
    SELFSUBJECTACCESSREVIEWS,
)
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError
from twisted_exec.auth.interfaces import (
    User,
)
from twisted_exec.auth.rbac import subjects
from twisted_exec.kube.informers import Reflector
from twisted_exec.kube.interfaces import IKubeClient, Object
from twisted_exec.program.metrics import state_gauge

SPACING_SECONDS = 0.25
"""The least time between two hints."""
SECOND_HINT_SECONDS = 1.0
ASK_AGAIN_SECONDS = 600.0
"""Time until the next question whether this hop may watch roles and bindings."""

_FORBIDDEN = (
    "roles and bindings cannot be watched ({why}): a permission that is withdrawn at the API server "
    "may count here for 25 s; bind the cluster role console-permission-watcher to this server"
)

Subjects = frozenset[tuple[str, str]]
"""Pairs of ``User`` or ``Group`` and a name."""


class PermissionWatch:
    """
    Watches roles and bindings once there are sessions.

    :ivar forget: is called before each hint.
    :ivar changed: is called with each hint.
    """

    _log = Logger()

    def __init__(
        self,
        client: IKubeClient,
        clock: IReactorTime,
        registry: CollectorRegistry,
        users: Callable[[], Iterable[User]],
    ) -> None:
        self._client, self._clock, self._users = client, clock, users
        self.forget: Callable[[], None] = lambda: None
        self.changed: Callable[[], None] = lambda: None
        self._starting: Deferred[None] | None = None
        self._timer: IDelayedCall | None = None
        self._next_question = 0.0
        self._is_started = False
        self._last = -SPACING_SECONDS  # when the last hint was given
        self._is_first = False  # of a change: a second one follows

        def follow(resource: Resource, trim: Any, on_change: Any) -> Reflector:
            def changed(before: Object | None, after: Object | None) -> None:
                on_change(copy, before, after)

            copy = Reflector(client, resource, clock, trim=trim, on_change=changed)
            return copy

        self._bindings = [
            follow(kind.resource, _binding, self._binding_changed)
            for kind in (ROLEBINDINGS, CLUSTERROLEBINDINGS)
        ]
        self._copies = [
            *self._bindings,
            follow(ROLES.resource, _role, self._role_changed),
            follow(CLUSTERROLES.resource, _role, self._role_changed),
        ]
        state_gauge(
            registry,
            "twisted_exec_permission_changes_observed",
            "1 while changes of the API server's roles and bindings are observed.",
            lambda: self.is_current,
        )

    @property
    def is_current(self) -> bool:
        """Return whether changes are observed now."""
        return all(copy.synced and not copy.problem for copy in self._copies)

    def want(self) -> None:
        """Start watching, if that has not happened yet."""
        if self._is_started or self._starting is not None:
            return
        if self._clock.seconds() >= self._next_question:
            self._next_question = self._clock.seconds() + ASK_AGAIN_SECONDS
            self._starting = Deferred.fromCoroutine(self._start())
            self._starting.addErrback(self._failed)
            self._starting.addBoth(self._start_ended)

    def stop(self) -> Deferred[Any]:
        """Stop watching; fires when no request is in flight."""
        if self._starting is not None:
            self._starting.cancel()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._is_started = False
        return DeferredList([copy.stop() for copy in self._copies])

    async def _start(self) -> None:
        attributes = {
            "group": CLUSTERROLEBINDINGS.resource.group,
            "resource": CLUSTERROLEBINDINGS.resource.plural,
            "verb": "watch",
        }
        resource = SELFSUBJECTACCESSREVIEWS.resource
        review = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "spec": {"resourceAttributes": attributes},
        }
        try:
            answer = await self._client.create(resource, review)
        except APIError as error:
            self._log.info(_FORBIDDEN, why=error.message)
            return
        if (answer.get("status") or {}).get("allowed") is not True:
            self._log.info(_FORBIDDEN, why="this server has no right to")
            return
        self._is_started = True
        for copy in self._copies:
            copy.start()

    def _start_ended(self, _: object) -> None:
        self._starting = None

    def _failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("watching roles and bindings failed", failure)

    def _binding_changed(
        self, copy: Reflector, before: Object | None, after: Object | None
    ) -> None:
        if copy.synced:
            self._concerns(*(each["subjects"] for each in (before, after) if each is not None))

    def _role_changed(self, copy: Reflector, before: Object | None, after: Object | None) -> None:
        if not copy.synced or before is None:  # a new role takes nothing away
            return
        metadata = before["metadata"]
        bindings = [
            binding["subjects"]
            for bindings in self._bindings
            for binding in bindings
            if binding["role"] == (copy.resource.kind, metadata["name"])
            and metadata.get("namespace") in (None, binding["metadata"].get("namespace"))
        ]
        self._concerns(*bindings)

    def _concerns(self, *bindings: Subjects) -> None:
        members = frozenset().union(*bindings)
        for user in self._users():
            if ("User", user.name) in members or any(
                ("Group", each) in members for each in user.groups
            ):
                self._hint()
                return

    def _hint(self) -> None:
        self._is_first = True
        wait = self._last + SPACING_SECONDS - self._clock.seconds()
        if wait > 0:
            self._arm(wait)
        else:
            self._give()

    def _give(self) -> None:
        self._last = self._clock.seconds()
        self.forget()
        self.changed()
        if self._is_first:
            self._is_first = False
            self._arm(SECOND_HINT_SECONDS)

    def _arm(self, seconds: float) -> None:
        # Not a PokedLoop: a hint neither waits nor fails, and must not be late after a failure.
        timer = self._timer
        if timer is None or not timer.active():
            self._timer = self._clock.callLater(seconds, self._give)
        elif timer.getTime() > self._clock.seconds() + seconds:
            timer.reset(seconds)


def _head(obj: Object) -> dict[str, Any]:
    metadata = obj["metadata"]
    return {
        "metadata": {key: metadata[key] for key in ("name", "namespace", "uid") if key in metadata}
    }


def _binding(obj: Object) -> Object:
    role = obj.get("roleRef") or {}
    home = obj["metadata"].get("namespace", "")
    return {
        **_head(obj),
        "role": (role.get("kind"), role.get("name")),
        "subjects": frozenset(subjects(obj, home)),
    }


def _role(obj: Object) -> Object:
    rules = json.dumps([obj.get("rules"), obj.get("aggregationRule")], sort_keys=True)
    return {**_head(obj), "rules": hashlib.sha256(rules.encode()).digest()}
