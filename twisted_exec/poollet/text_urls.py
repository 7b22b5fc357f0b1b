"""
Logs, screens and recordings at a poollet: the runtime's URL for each, and the refusal where the runtime has none.

The admissions are those of the texts that outlive their machines: logs of deleted machines, and recordings.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.kinds import CONSOLERECORDINGS, DELETEDCONSOLES, Object
from twisted_exec.api.obstacles import Obstacle
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, Forbidden, NotFound, NotImplementedByBackend
from twisted_exec.auth.subresources import DELETED_LOG, RECORDING, Subresource
from twisted_exec.iri.interfaces import IConsoleRecordings, IMachineLogs, IMachineRuntime
from twisted_exec.iri.protos import console_pb2
from twisted_exec.poollet.admission import PoolMachineAdmission, UrlOf
from twisted_exec.poollet.exec_urls import StreamDestination
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.location import IStreamAdmission, Location, Upstream
from twisted_exec.streaming.subject import Subject

_LOG, _SCREEN = "/log/", "/screen/"


async def log_url(runtime: IMachineRuntime, machine_id: str, subject: Subject) -> str:
    """
    Return the URL of a log.

    :raises NotImplementedByBackend: the runtime has none.
    """
    try:
        if IMachineLogs.providedBy(runtime):
            answer = await IMachineLogs(runtime).log(
                console_pb2.LogRequest(machine_id=machine_id),
                user=subject.user,
                machine_uid=subject.uid,
                session=subject.session,
            )
            if answer.url:
                return str(answer.url)
    except NotImplementedByBackend:
        pass
    raise NotImplementedByBackend("the machine's runtime keeps no log")


async def screen_url(runtime: IMachineRuntime, machine_id: str, subject: Subject) -> str:
    """
    Return the URL of a screen: what a terminal would show of the machine's console.

    :raises NotImplementedByBackend: the runtime has none.
    """
    url = await log_url(runtime, machine_id, subject)
    before, separator, token = url.rpartition(_LOG)
    if not separator or "/" in token:  # of a runtime of another make
        raise no_screen()
    return f"{before}{_SCREEN}{token}"


def no_screen() -> NotImplementedByBackend:
    """Return the error for a runtime without screens."""
    return NotImplementedByBackend(
        "the machine's runtime renders no screens: it is not an exec-runtime"
    )


async def recording_url(runtime: IMachineRuntime, uid: str, subject: Subject) -> str:
    """
    Return the URL of a recording.

    :raises NotImplementedByBackend: the runtime has none.
    """
    if IConsoleRecordings.providedBy(runtime):
        answer = await IConsoleRecordings(runtime).recording(
            console_pb2.RecordingRequest(uid=uid),
            user=subject.user,
            machine_uid=subject.uid,
            session=subject.session,
        )
        if answer.url:
            return str(answer.url)
    raise NotImplementedByBackend("the machine's runtime makes no recordings")


class _RetainedTextAdmission(PoolMachineAdmission):
    async def _retained(self, resource: Resource, subject: Subject) -> Object:
        name = subject.machine
        unknown = NotFound(
            resource.plural,
            name,
            resource.group,
            f'{resource.qualified} "{name}" not found in pool "{self.parts.access.pool}"',
        )
        try:
            obj: Object = await self.parts.client.get(resource, name, subject.namespace)
        except APIError as error:
            # A poollet has no permission for those of other pools.
            if error.code not in (NotFound.code, Forbidden.code):
                raise
            raise unknown from None
        spec = obj["spec"]
        if spec.get("pool") != self.parts.access.pool:
            raise unknown
        if spec.get("machineResource") != self.parts.access.dialect.workload.qualified:
            raise unknown
        return obj

    async def _locate_text(self, runtime_id: str, subject: Subject) -> Location:
        async def target() -> StreamDestination:
            return self.parts.dialler.target(
                await self.url(self.parts.runtime, runtime_id, subject)
            )

        found = await self._in_time(Deferred.fromCoroutine(target()))
        return self._location(subject, found, Upstream(Obstacle.RUNTIME_FAILED))


@implementer(IStreamAdmission)
@dataclass(frozen=True)
class PoolDeletedLogAdmission(_RetainedTextAdmission):
    """Admits users to the log of a deleted machine, by its DeletedConsole."""

    what: Subresource = DELETED_LOG
    url: UrlOf = log_url

    async def _admit(self, context: RequestContext) -> Location:
        await self.parts.gate.authorize_session(context, *self.parts.access.permissions(context))
        options = self.what.options(context.request, context.subject.machine)
        deleted = await self._retained(DELETEDCONSOLES.resource, context.subject)
        context.learn(uid=str(deleted["spec"]["machineUID"]))
        return options.at(await self._locate_text("", context.subject))


@implementer(IStreamAdmission)
@dataclass(frozen=True)
class PoolContentAdmission(_RetainedTextAdmission):
    """Admits users to the content of a ConsoleRecording."""

    what: Subresource = RECORDING
    url: UrlOf = recording_url

    async def _admit(self, context: RequestContext) -> Location:
        context.learn_reason()
        await self.parts.gate.authorize_session(context, *self.parts.access.permissions(context))
        options = self.what.options(context.request, context.subject.machine)
        recording = await self._retained(CONSOLERECORDINGS.resource, context.subject)
        context.learn(uid=recording["spec"]["machineUID"])
        return options.at(await self._locate_text(recording["metadata"]["uid"], context.subject))
