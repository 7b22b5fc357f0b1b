"""
The routes of a poollet for texts: the logs, screens and recordings of machines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.kinds import CONSOLERECORDINGS, DELETEDCONSOLES, Object
from twisted_exec.api.logs import parse
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    APIError,
    BadRequest,
    Forbidden,
    NotFound,
    NotImplementedByBackend,
)
from twisted_exec.auth.console_rights import ConsoleAccess, ScreenAccess
from twisted_exec.iri.interfaces import IConsoleRecordings, IMachineLogs
from twisted_exec.iri.protos import console_pb2
from twisted_exec.poollet.consoles import ExecLocator
from twisted_exec.poollet.dialling import StreamDestination
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.upgrade_server import is_upgrade
from twisted_exec.streaming.interfaces import IStreamLocator, Location, Subject
from twisted_exec.streaming.text.stream import screen_options
from twisted_exec.wire.session_terms import FULL, Terms


@implementer(IStreamLocator)
@dataclass(frozen=True)
class PoolLogLocator(ExecLocator):
    """
    Finds the log of the Machine in the context's subject.

    Authentication, authorization and lookup are those of the console
    (:mod:`twisted_exec.poollet.consoles`), except that reading needs ``get`` on ``machines/log``,
    and a machine that is off still has a log.  The options go to the runtime, which alone knows
    lines and times.
    """

    needs_power: ClassVar[bool] = False
    resumes: ClassVar[bool] = False
    under_policies: ClassVar[bool] = False

    async def _locate(self, context: RequestContext) -> Location:
        location = await super()._locate(context)
        return replace(location, log=parse(context.request.args, location.subject.machine))

    async def _authorize(self, context: RequestContext) -> tuple[ConsoleAccess | None, Terms]:
        await self.gate.authorize_session(context, *self.access.permissions(context))
        return None, FULL

    def _check_request(self, context: RequestContext) -> None:
        parse(context.request.args, context.subject.machine)

    async def _url(self, machine_id: str, subject: Subject) -> str:
        if not IMachineLogs.providedBy(self.runtime):
            raise _no_log()
        try:
            answer = await IMachineLogs(self.runtime).log(
                console_pb2.LogRequest(machine_id=machine_id),
                user=subject.user,
                machine_uid=subject.uid,
                session=subject.session,
            )
        except NotImplementedByBackend:
            raise _no_log() from None
        if not answer.url:
            raise _no_log()
        return str(answer.url)

    async def _retained(self, resource: Resource, subject: Subject) -> Object:
        """
        Return the object of a machine of this pool that may be deleted; the subject names the object.

        :raises NotFound: there is none, or it is of another pool.
        """
        name = subject.machine
        unknown = NotFound(
            resource.plural,
            name,
            resource.group,
            f'{resource.qualified} "{name}" not found in pool "{self.access.pool}"',
        )
        try:
            obj: Object = await self.client.get(resource, name, subject.namespace)
        except APIError as error:
            # A poollet has no permission for those of other pools.
            if error.code not in (NotFound.code, Forbidden.code):
                raise
            raise unknown from None
        spec = obj["spec"]
        if spec.get("pool") != self.access.pool:
            raise unknown
        if spec.get("machineResource") != self.access.dialect.workload.qualified:
            raise unknown
        return obj


@implementer(IStreamLocator)
@dataclass(frozen=True)
class PoolDeletedLogLocator(PoolLogLocator):
    """Finds the log of a deleted machine; the context's subject names its DeletedConsole."""

    async def _locate(self, context: RequestContext) -> Location:
        await self.gate.authorize_session(context, *self.access.permissions(context))
        options = parse(context.request.args, context.subject.machine)
        deleted = await self._retained(DELETEDCONSOLES.resource, context.subject)
        context.learn(uid=str(deleted["spec"]["machineUID"]))
        return replace(await self._found(context.subject), log=options)

    async def _found(self, subject: Subject) -> Location:
        target = await self._in_time(Deferred.fromCoroutine(self._log_of(subject)))
        return self._location(subject, target)

    async def _log_of(self, subject: Subject) -> StreamDestination:
        return self.dialler.target(await self._url("", subject))


def _no_log() -> NotImplementedByBackend:
    return NotImplementedByBackend("the machine's runtime keeps no log")


_LOG, _SCREEN = "/log/", "/screen/"


@implementer(IStreamLocator)
@dataclass(frozen=True)
class PoolScreenLocator(PoolLogLocator):
    """
    Finds the screen of the Machine in the context's subject.

    The screen is what a terminal would show of the machine's console.  Authorization is that of a
    console that is only watched.  The runtime renders the screen: it serves it for the token of a
    log, beside the log.
    """

    under_policies: ClassVar[bool] = True
    access_type: ClassVar[type[ConsoleAccess]] = ScreenAccess

    async def _locate(self, context: RequestContext) -> Location:
        location = await ExecLocator._locate(self, context)
        options = screen_options(context.request, location.subject.machine)
        path = location.path_with(options.query())
        return replace(location, path=path, unknown_path=_no_screen())

    async def _authorize(self, context: RequestContext) -> tuple[ConsoleAccess | None, Terms]:
        context.options = replace(context.options, read_only=True, force=False)
        return await ExecLocator._authorize(self, context)

    def _check_request(self, context: RequestContext) -> None:
        screen_options(context.request, context.subject.machine)

    async def _url(self, machine_id: str, subject: Subject) -> str:
        url = await super()._url(machine_id, subject)
        before, separator, token = url.rpartition(_LOG)
        if not separator or "/" in token:  # of a runtime of another make
            raise _no_screen()
        return f"{before}{_SCREEN}{token}"


def _no_screen() -> NotImplementedByBackend:
    return NotImplementedByBackend(
        "the machine's runtime renders no screens: it is of an older release, or not an exec-runtime"
    )


@implementer(IStreamLocator)
@dataclass(frozen=True)
class PoolContentLocator(PoolLogLocator):
    """
    Finds the content of the ConsoleRecording that the context's subject names.

    The content comes from the runtime that made the recording.  Reading it needs ``get`` on
    ``consolerecordings/content``.  The machine need not exist any more.
    """

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

    async def _content(self, uid: str, subject: Subject) -> StreamDestination:
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
