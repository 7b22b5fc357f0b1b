"""
The screen route of a poollet: what a terminal would show of a machine's console.

Authorization is that of a console that is only watched.  The runtime renders the screen: it serves it
for the token of a log, beside the log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from zope.interface import implementer

from twisted_exec.api.status import NotImplementedByBackend
from twisted_exec.auth.console_rights import ConsoleAccess, ScreenAccess
from twisted_exec.poollet.consoles.exec_route import ExecLocator
from twisted_exec.poollet.consoles.log_route import LogLocator
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.interfaces import IStreamLocator, Location, Subject
from twisted_exec.streaming.text.screens import screen_options
from twisted_exec.wire.session_terms import Terms

_LOG, _SCREEN = "/log/", "/screen/"


@implementer(IStreamLocator)
@dataclass(frozen=True)
class ScreenLocator(LogLocator):
    """Finds the screen of the Machine in the context's subject."""

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
