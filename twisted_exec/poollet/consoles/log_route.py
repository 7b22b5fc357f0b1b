"""
The log route of a poollet: the output of a machine's console.

Authentication, authorization and lookup are those of the console (:mod:`.exec_route`), except that
reading needs ``get`` on ``machines/log``, and a machine that is off still has a log.  The options
go to the runtime, which alone knows lines and times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from zope.interface import implementer

from twisted_exec.api.logs import parse
from twisted_exec.api.status import NotImplementedByBackend
from twisted_exec.iri.interfaces import IMachineLogs
from twisted_exec.iri.protos import console_pb2
from twisted_exec.poollet.consoles.exec_route import ExecLocator
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.interfaces import IStreamLocator, Location, Subject


@implementer(IStreamLocator)
@dataclass(frozen=True)
class LogLocator(ExecLocator):
    """Finds the log of the Machine in the context's subject."""

    needs_power: ClassVar[bool] = False

    async def _locate(self, context: RequestContext) -> Location:
        location = await super()._locate(context)
        return replace(location, log=parse(context.request.args, location.subject.machine))

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


def _no_log() -> NotImplementedByBackend:
    return NotImplementedByBackend("the machine's runtime keeps no log")
