"""
``machines/log`` and ``deletedconsoles/log``: the output of a console, for ``kubectl logs``.

The log of a machine is located like its console, and needs ``get`` on ``machines/log``: reading a machine
does not include reading its console.  The log of a machine that is powered off is available too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from twisted_exec.api.kinds import Object
from twisted_exec.api.kinds.deleted_consoles import log_path as deleted_log_path
from twisted_exec.api.logs import parse
from twisted_exec.api.status import NotImplementedByBackend
from twisted_exec.apiserver.consoles.connect import MachineLocator
from twisted_exec.apiserver.consoles.retained import RetainedTextLocator
from twisted_exec.apiserver.serving.filters import attributes_of
from twisted_exec.apiserver.serving.verbs import Target
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.interfaces import Location
from twisted_exec.wire.session_terms import Right

LOG = "log"


class LogLocator(MachineLocator):
    """Locates the poollet for ``.../machines/NAME/log``, or for ``/log`` of a machine's Pod."""

    subresource: ClassVar[str] = LOG
    verb: ClassVar[str] = "get"
    needs_power: ClassVar[bool] = False
    resumes: ClassVar[bool] = False

    async def _authorize(self, context: RequestContext, target: Target) -> tuple[None, Right]:
        permission = attributes_of(context.user, self.verb, target)
        await self._gate.authorize_session(context, permission)
        return None, Right.OBSERVE

    def _check_query(self, context: RequestContext) -> None:
        parse(context.request.args, context.target.name)

    def poollet(self, pool: Object, context: RequestContext, path: str) -> Location:
        """See :meth:`MachineLocator.poollet`."""
        # ironcore's own poollet serves consoles only: Go's plain 404 for every other path.
        unknown = NotImplementedByBackend(
            f'the poollet of pool "{pool["metadata"]["name"]}" does not serve logs: '
            "it is not an exec-poollet"
        )
        options = parse(context.request.args, context.target.name)
        return replace(super().poollet(pool, context, path), unknown_path=unknown, log=options)


class DeletedLogLocator(RetainedTextLocator):
    """
    Locates the poollet for ``.../deletedconsoles/NAME/log``: the output of a deleted machine.

    The locators of machines are :class:`LogLocator`.
    """

    def _check_request(self, context: RequestContext) -> None:
        parse(context.request.args, context.target.name)

    def _path(self, target: Target) -> str:
        return deleted_log_path(target.namespace, target.name)

    def _at(self, location: Location, obj: Object) -> Location:
        unknown = NotImplementedByBackend(
            f'the poollet of pool "{obj["spec"]["pool"]}" does not serve logs of deleted machines: '
            "it is of an older release, or not an exec-poollet"
        )
        return replace(location, unknown_path=unknown)
