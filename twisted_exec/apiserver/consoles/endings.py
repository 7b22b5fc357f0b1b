"""
When sessions end from this side: what they were about is gone, or the right to it.

The store's changes are followed, so a deletion ends its sessions at once.  Who
opened a session is asked for again every few seconds, with the credential they
came with, and after each change of the rules: a session does not outlive its
token, its certificate or its role binding for long.

When streams of Nodes' Pods end from this side: the Pod is gone, or its Node.

A Pod that is only asked to end goes on until its kubelet says that it is gone, and so do its streams, as
everywhere in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from twisted.application.service import Service
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import NODE_PODS, NODES, Object
from twisted_exec.api.status import APIError, Forbidden, NotFound, Unauthorized
from twisted_exec.apiserver.serving.filters import APIRequest, Gate
from twisted_exec.auth.credentials import PresentedCredentials
from twisted_exec.auth.interfaces import Attributes, User
from twisted_exec.storage.interfaces import DELETED, Event, IStorage, IWatch
from twisted_exec.streaming.interfaces import (
    MACHINE_DELETED,
    POOL_DELETED,
    POWERED_OFF,
    REVOKED,
    Ending,
    Subject,
)
from twisted_exec.streaming.sessions.registry import Sessions, concerned


class NodePodEndings(Service):
    """
    Ends sessions of Pods and Nodes that are gone.

    :param storage: started before this service is.
    """

    def __init__(self, storage: IStorage, sessions: Sessions) -> None:
        self._storage, self._sessions = storage, sessions
        self._watches: list[IWatch] = []

    def startService(self) -> None:
        """Follow the store."""
        super().startService()
        watch = self._storage.watch
        self._watches = [
            watch(NODE_PODS.resource, None, self._pod_changed),
            watch(NODES.resource, None, self._node_changed),
        ]

    def stopService(self) -> None:
        """Follow no longer."""
        super().stopService()
        for watch in self._watches:
            watch.stop()

    def _pod_changed(self, event: Event) -> None:
        if event.type == DELETED:
            uid = event.obj["metadata"]["uid"]
            told = f'pod "{event.obj["metadata"]["name"]}" was deleted'
            ending = Ending(MACHINE_DELETED, told)
            self._sessions.end(lambda subject: subject.uid == uid, ending)

    def _node_changed(self, event: Event) -> None:
        if event.type == DELETED:
            name, resource = event.obj["metadata"]["name"], NODE_PODS.resource.qualified
            ending = Ending(POOL_DELETED, f'node "{name}" was deleted')
            self._sessions.end(
                lambda subject: subject.pool == name and subject.resource == resource, ending
            )


RECHECK_SECONDS = 10.0
SOON_SECONDS = 0.1
AT_ONCE = 64
"""Sessions that are asked about at the same time: who is asked may be another server."""


class ObjectEndings(Service):
    """
    Ends sessions of machines and pools of one dialect that go.

    :param storage: started before this service is.
    """

    def __init__(self, storage: IStorage, dialect: Dialect, sessions: Sessions) -> None:
        self._storage, self._dialect, self._sessions = storage, dialect, sessions
        self._watches: list[IWatch] = []

    def startService(self) -> None:
        """Follow the store."""
        super().startService()
        watch = self._storage.watch
        self._watches = [
            watch(self._dialect.workload, None, self._machine_changed),
            watch(self._dialect.pool, None, self._pool_changed),
        ]

    def stopService(self) -> None:
        """Follow no longer."""
        super().stopService()
        for watch in self._watches:
            watch.stop()

    def _machine_changed(self, event: Event) -> None:
        ending = machine_ending(event, self._dialect.noun)
        if ending is not None:
            self._sessions.end(concerned(event.obj["metadata"]["uid"], ending), ending)

    def _pool_changed(self, event: Event) -> None:
        if _is_going(event):
            name = event.obj["metadata"]["name"]
            ending = Ending(POOL_DELETED, f'{self._dialect.pool_noun} "{name}" was deleted')
            resource = self._dialect.workload.qualified
            self._sessions.end(
                lambda subject: subject.pool == name and subject.resource == resource, ending
            )


def machine_ending(event: Event, noun: str) -> Ending | None:
    """
    Why a change of a machine ends its sessions, if it does.

    :param noun: what a machine is called.
    """
    told = f'{noun} "{event.obj["metadata"]["name"]}"'
    if _is_going(event):
        return Ending(MACHINE_DELETED, f"{told} was deleted")
    if _power(event.obj) == "Off":
        return Ending(POWERED_OFF, f"{told} was powered off")
    return None


def _is_going(event: Event) -> bool:
    return event.type == DELETED or "deletionTimestamp" in event.obj["metadata"]


def _power(machine: Object) -> str:
    return str(machine.get("spec", {}).get("power", "On"))


@dataclass(frozen=True)
class _Right:
    credentials: PresentedCredentials
    sender: User | None
    allowed: Attributes


class Revocation(Service):
    """
    Ends sessions whose user may no longer have them.

    :param recheck_seconds: how often everyone is asked for again.
    """

    _log = Logger()

    def __init__(
        self,
        gate: Gate,
        sessions: Sessions,
        clock: IReactorTime,
        recheck_seconds: float = RECHECK_SECONDS,
    ) -> None:
        self._gate, self._sessions = gate, sessions
        self._rights: dict[str, _Right] = {}
        self._loop = LoopingCall(self.recheck)
        self._loop.clock = clock
        self._recheck_seconds = recheck_seconds
        self._clock = clock
        self._sooner: IDelayedCall | None = None
        self._problem = ""

    def startService(self) -> None:
        """Begin to ask."""
        super().startService()
        self._loop.start(self._recheck_seconds, now=False)

    def stopService(self) -> None:
        """Ask no longer."""
        super().stopService()
        if self._loop.running:
            self._loop.stop()
        if self._sooner is not None:
            self._sooner.cancel()
            self._sooner = None

    def soon(self) -> None:
        """The rules have changed: do not wait for the next round."""
        if self.running and self._sooner is None:
            # After a moment, so that a burst of changes is one look.
            self._sooner = self._clock.callLater(SOON_SECONDS, self._now)

    def _now(self) -> None:
        self._sooner = None
        self.recheck()

    def opened(self, request: APIRequest, session: str, allowed: Attributes) -> None:
        """A session may be opened, by this right."""
        self._rights[session] = _Right(request.credentials, request.sender, allowed)

    def recheck(self) -> Deferred[None]:
        """Ask for everyone again.  Fires when all were asked; never fails."""
        return Deferred.fromCoroutine(self._recheck()).addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        """Told here: it would end the loop, and nothing would be withdrawn from then on."""
        self._log.failure("rechecking sessions failed", failure)

    async def _recheck(self) -> None:
        live = {subject.session for subject in self._sessions.subjects()}
        self._rights = {key: right for key, right in self._rights.items() if key in live}
        rights, problem = list(self._rights.items()), ""
        for first in range(0, len(rights), AT_ONCE):
            some = rights[first : first + AT_ONCE]
            problems = await gatherResults(
                [Deferred.fromCoroutine(self._look_at(*each)) for each in some]
            )
            problem = next(filter(None, problems), problem)
            if all(problems):
                break  # nobody answers: the next round will find out, and is not to wait for this one
        if problem and not self._problem:
            self._log.warn("sessions cannot be rechecked: {why}", why=problem)
        self._problem = problem

    async def _look_at(self, session: str, right: _Right) -> str:
        """Why nothing could be found out; empty when it could."""
        try:
            told = await self._withdrawn(right)
        except APIError as error:
            return error.message
        except Exception:  # a bug about one of them is not to keep all others what they have
            self._log.failure("rechecking session {session} failed", session=session)
            return ""
        if told:
            self._sessions.end(_is(session), Ending(REVOKED, told))
        return ""

    async def _withdrawn(self, right: _Right) -> str:
        """
        Why the right is no more; empty while it is.

        :raises APIError: that cannot be found out.
        """
        try:
            user = await self._gate.review(right.credentials, right.sender)
            if user.name != right.allowed.user.name:
                return "the credential is now another user's"
            await self._gate.authorize(replace(right.allowed, user=user))
        except (Unauthorized, Forbidden, NotFound) as error:
            return error.message
        return ""


def _is(session: str) -> Callable[[Subject], bool]:
    return lambda subject: subject.session == session
