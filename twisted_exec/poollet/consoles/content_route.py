"""
The route of recordings at a poollet: the content of a ConsoleRecording, from the runtime that made it.

Reading needs ``get`` on ``consolerecordings/content``.  The machine need not exist any more.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.kinds import CONSOLERECORDINGS
from twisted_exec.api.status import (
    BadRequest,
    NotImplementedByBackend,
)
from twisted_exec.iri.interfaces import IConsoleRecordings
from twisted_exec.iri.protos import console_pb2
from twisted_exec.poollet.consoles.dialling import Target
from twisted_exec.poollet.consoles.log_route import LogLocator
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.upgrade_server import is_upgrade
from twisted_exec.streaming.interfaces import IStreamLocator, Location, Subject


@implementer(IStreamLocator)
@dataclass(frozen=True)
class ContentLocator(LogLocator):
    """Finds the content of the ConsoleRecording that the context's subject names."""

    async def _locate(self, context: RequestContext) -> Location:
        context.learn_reason()
        await self.gate.authorize_session(context, *self.access.permissions(context))
        if is_upgrade(context.request):
            raise BadRequest("a recording is read with a plain GET")
        recording = await self._retained(CONSOLERECORDINGS.resource, context.subject)
        context.learn(uid=recording["spec"]["machineUID"])
        uid = recording["metadata"]["uid"]
        target = await self._in_time(Deferred.fromCoroutine(self._content(uid, context.subject)))
        return self._location(context.subject, target)

    async def _content(self, uid: str, subject: Subject) -> Target:
        if not IConsoleRecordings.providedBy(self.runtime):
            raise _no_recordings()
        answer = await IConsoleRecordings(self.runtime).recording(
            console_pb2.RecordingRequest(uid=uid),
            user=subject.user,
            machine_uid=subject.uid,
            session=subject.session,
        )
        if not answer.url:
            raise _no_recordings()
        return self.dialler.target(str(answer.url))


def _no_recordings() -> NotImplementedByBackend:
    return NotImplementedByBackend("the machine's runtime makes no recordings")
