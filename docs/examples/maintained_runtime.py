"""
A runtime around another runtime, which takes no new machines while its host is under maintenance.

A poollet takes it in place of the other runtime:

    Poollet(settings, client, MaintainedRuntime(machines), audit, reactor)
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.python.components import proxyForInterface

from twisted_exec.clients import ServiceUnavailable
from twisted_exec.interfaces import (
    IConsoleAlerts,
    IConsoleRecordings,
    IMachineLogs,
    IMachineRuntime,
)


class MaintainedRuntime(
    proxyForInterface(IMachineRuntime),
    proxyForInterface(IMachineLogs),
    proxyForInterface(IConsoleAlerts),
    proxyForInterface(IConsoleRecordings),
):
    """
    All that the other runtime does, except the creation of machines at times.

    :ivar maintenance: why no machine is created at present; empty if machines are.
    """

    maintenance = ""

    def create_machine(self, request: Any) -> Deferred[Any]:
        if self.maintenance:
            # The poollet tries again with growing pauses, and shows this message at the Machine.
            return fail(ServiceUnavailable(f"the host is under maintenance: {self.maintenance}"))
        return self.original.create_machine(request)
