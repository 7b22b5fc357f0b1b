"""
The log route of a poollet: what a machine's console printed.

Who asks, may they and which machine: as for its console (:mod:`.exec_route`), but that reading
needs ``get`` on ``machines/log``, and a machine that is off still has a log.  The options travel on
to the runtime, which alone knows lines and times.
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
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import IStreamLocator, Location, Subject


@implementer(IStreamLocator)
@dataclass(frozen=True)
class LogLocator(ExecLocator):
    """
    Finds the log of a Machine.

    The route has put the Machine's namespace and name into ``request.subject``, and ``log`` as
    its subresource.
    """

    needs_power: ClassVar[bool] = False

    async def _locate(self, request: Request) -> Location:
        location = await super()._locate(request)
        query = parse(request.args, location.subject.machine).query()
        return replace(location, path=location.path + (b"?" + query if query else b""))

    def _check_request(self, request: Request) -> None:
        parse(request.args, request.subject.machine)

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
