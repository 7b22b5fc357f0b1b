"""
Support for tests of ConsoleSessions: a store, sessions, and a server that writes their objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.python.components import proxyForInterface
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from tests.apiserver.support import EPOCH
from tests.audits import AuditList
from tests.retained import entries
from tests.streaming.session_streams import StreamDouble
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.apiserver.consoles.sessions.foreign import LEASE_RENEWALS, RENEW_SECONDS
from twisted_exec.apiserver.consoles.sessions.objects import (
    CREATE_SECONDS,
    LOOK_SECONDS,
    SessionObjects,
)
from twisted_exec.apiserver.consoles.sessions.record import SessionRecord
from twisted_exec.apiserver.consoles.sessions.verbs import SessionVerbs
from twisted_exec.apiserver.controllers.system_objects import create_system_objects
from twisted_exec.apiserver.serving.client import own_recorder
from twisted_exec.apiserver.serving.query import WriteOptions
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.auth.interfaces import User
from twisted_exec.program.audit import Trail
from twisted_exec.storage.interfaces import IStorage, Listing
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.streaming.interfaces import Ending
from twisted_exec.streaming.sessions.registry import Session, Sessions, StreamRequest
from twisted_exec.streaming.subject import Subject

RESOURCE = kinds.CONSOLESESSIONS.resource
LEASE_SECONDS = RENEW_SECONDS * LEASE_RENEWALS
ADA = User("ada")
_Shared: Any = proxyForInterface(IStorage, "shared")


class HesitantStorage(MemoryStorage):
    """
    A store whose writes can be held back, or fail.

    :ivar hold: writes wait.
    :ivar broken: writes fail.
    :ivar unlisted: lists fail.
    """

    hold = False
    broken = False
    unlisted = False

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[], None]] = []
        self.writes = 0

    def list(self, resource: Any, namespace: str = "", **options: Any) -> Deferred[Listing]:
        if self.unlisted:
            return fail(ServiceUnavailable("the disk stands still"))
        return super().list(resource, namespace, **options)

    def create(self, resource: Any, obj: Object) -> Deferred[Object]:
        if not self.hold:
            return self._write(super().create, resource, obj)
        made: Deferred[Object] = Deferred()

        def go() -> None:
            self._write(super(HesitantStorage, self).create, resource, obj).chainDeferred(made)

        self.waiting.append(go)
        return made

    def update(self, resource: Any, obj: Object) -> Deferred[Object]:
        return self._write(super().update, resource, obj)

    def delete(self, resource: Any, obj: Object) -> Deferred[Object]:
        return self._write(super().delete, resource, obj)

    def _write(self, write: Callable[..., Deferred[Object]], *what: Any) -> Deferred[Object]:
        if self.broken:
            failed: Deferred[Object] = Deferred()
            failed.errback(ServiceUnavailable("the disk is full"))
            return failed
        self.writes += 1
        return write(*what)

    def go(self) -> None:
        """Make what waits."""
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each()


class Carried:
    """A session that is up, as a proxy carries it."""

    def __init__(self, sessions: Sessions, number: int = 1, **more: Any) -> None:
        facts = {
            "session": f"s-{number}",
            "user": "bob",
            "namespace": "default",
            "machine": "vm",
            "uid": "u-1",
            "pool": "pool-a",
            "resource": "machines.compute.ironcore.dev",
            "address": "192.0.2.7",
            "agent": "kubectl/v1.33",
            **more,
        }
        self.endings: list[Ending] = []
        self.counts = (0, 0)
        self.session: Session = sessions.open(Subject(**facts))
        self.session.request = StreamRequest("machines/exec")
        self.session.protocol = "websocket v5.channel.k8s.io"

    def begin(self) -> Carried:
        self.session.carry(StreamDouble(self.endings.append, counts=lambda: self.counts))
        return self

    def over(self) -> None:
        self.session.over("client closed")


class ObjectsCase(SynchronousTestCase):
    """The sessions of one server, and their objects."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(EPOCH)
        self.all_sessions: list[Sessions] = []
        self.at_start: dict[SessionObjects, int] = {}
        self.storage = HesitantStorage()
        self.verbs = Verbs(self.storage, [], self.clock.seconds)
        self.successResultOf(
            Deferred.fromCoroutine(create_system_objects(self.storage, self.verbs, ()))
        )
        self.sessions, self.objects = self.server("one")

    def server(self, name: str, *, exclusive: bool = False) -> tuple[Sessions, SessionObjects]:
        sessions = Sessions(Trail(AuditList(), "apiserver", self.clock))
        self.all_sessions.append(sessions)
        objects = SessionObjects(
            self.storage,
            sessions,
            self.clock,
            self.clock.seconds,
            name,
            own_recorder(
                self.verbs,
                self.clock,
                self.clock.seconds,
                about=kinds.CONSOLESESSIONS.resource,
                component="console-sessions",
            ),
            {kinds.MACHINES.resource.qualified: kinds.MACHINES},
            exclusive=exclusive,
            machines=[kinds.MACHINES.resource],
        )
        objects.startService()
        self.addCleanup(lambda: objects.running and objects.stopService())
        self.at_start[objects] = self.entries(objects)
        return sessions, objects

    def entries(self, objects: SessionObjects) -> int:
        return entries(objects, beside=self.beside(objects))

    def beside(self, objects: SessionObjects) -> list[object]:
        others = [each for each in self.at_start if each is not objects]
        return [self.storage, *self.all_sessions, *others]

    def kept(self, objects: SessionObjects | None = None) -> int:
        """Return how much a server remembers of sessions and their objects."""
        objects = self.objects if objects is None else objects
        return self.entries(objects) - self.at_start[objects]

    def records(self) -> list[SessionRecord]:
        """Return the sessions that the server remembers."""
        return list(self.objects._records.values())  # Objects show only some of them.

    def begin(self, number: int = 1, **more: Any) -> Carried:
        carried = Carried(self.sessions, number, **more).begin()
        self.clock.advance(CREATE_SECONDS)
        return carried

    def stored(self) -> list[Object]:
        return list(self.successResultOf(self.storage.list(RESOURCE)).items)

    def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds / LOOK_SECONDS)):
            self.clock.advance(LOOK_SECONDS)

    def delete(self, name: str, user: User = ADA) -> None:
        verbs = SessionVerbs(self.storage, [], self.clock.seconds)
        target = RequestTarget(kinds.CONSOLESESSIONS, "default", name)
        deleting = verbs.delete(user, target, WriteOptions(), {})
        _, gone = self.successResultOf(Deferred.fromCoroutine(deleting))
        self.assertTrue(gone)


@implementer(IStorage)
class SharedStorage(_Shared, Service):  # type: ignore[misc]
    """A store that is started and stopped by the test, beside other servers."""

    exclusive = False

    def __init__(self, shared: IStorage) -> None:
        _Shared.__init__(self, shared)

    def startService(self) -> None:
        Service.startService(self)

    def stopService(self) -> None:
        Service.stopService(self)
