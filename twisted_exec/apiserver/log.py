"""
``machines/log``: what a machine's console printed, as ``kubectl logs`` asks for it.

It is found as the console is, and needs ``get`` on ``machines/log``: whoever may look at a machine may
not therefore read along.  A machine that is off has a log as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from twisted_exec.api.kinds import Kind
from twisted_exec.api.logs import parse
from twisted_exec.apiserver.connect import MachineLocator
from twisted_exec.apiserver.filters import APIRequest
from twisted_exec.apiserver.rest import root_of
from twisted_exec.apiserver.verbs import Target
from twisted_exec.streaming.relay import Relay
from twisted_exec.streaming.routes import Routes
from twisted_exec.streaming.site import Request

LOG = "log"


class LogLocator(MachineLocator):
    """Finds the poollet behind ``.../machines/NAME/log``, or ``/log`` of what shows that machine."""

    subresource: ClassVar[str] = LOG
    verb: ClassVar[str] = "get"
    needs_power: ClassVar[bool] = False

    def _query(self, request: APIRequest, target: Target) -> bytes:
        return parse(request.args, target.name).query()


def add_log(routes: Routes, kind: Kind, relay: Relay) -> None:
    """
    The ``log`` of a kind's objects, as GET.

    :param kind: machines, or what shows machines under the same namespaces and names.
    :param relay: with a :class:`LogLocator`.
    """

    async def handle(request: Request, values: Mapping[str, str]) -> None:
        await relay.handle(request)

    base = f"{root_of(kind)}/namespaces/{{namespace}}/{kind.resource.plural}/{{name}}"
    routes.add(["GET"], f"{base}/{LOG}", handle)
