"""
The runtime of ``docs/howto/write-a-runtime.rst`` that wraps another.
"""

from __future__ import annotations

import runpy
from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from tests.examples.test_examples import EXAMPLES
from tests.poollet.doubles import MemoryRuntime
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.interfaces import (
    IConsoleAlerts,
    IConsoleRecordings,
    IMachineLogs,
    IMachineRuntime,
)
from twisted_exec.iri.protos import machine_pb2 as pb


class MaintainedRuntimeTests(SynchronousTestCase):
    """``maintained_runtime.py``"""

    def setUp(self) -> None:
        names = runpy.run_path(str(EXAMPLES / "maintained_runtime.py"))
        self.machines = MemoryRuntime()
        self.runtime: Any = names["MaintainedRuntime"](self.machines)

    def test_interfaces(self) -> None:
        """It provides each interface of a runtime."""
        for interface in (IMachineRuntime, IMachineLogs):
            verifyObject(interface, self.runtime)
        for interface in (IConsoleAlerts, IConsoleRecordings):
            self.assertTrue(interface.providedBy(self.runtime))

    def test_maintenance(self) -> None:
        """Only the creation of machines fails, and only during the maintenance."""
        request = pb.CreateMachineRequest()
        self.runtime.maintenance = "a new disk"
        error = self.failureResultOf(self.runtime.create_machine(request), ServiceUnavailable)
        self.assertIn("a new disk", str(error.value))
        self.assertEqual(self.machines.calls, [])
        self.runtime.maintenance = ""
        created = self.successResultOf(self.runtime.create_machine(request)).machine
        listed = self.successResultOf(self.runtime.list_machines(pb.ListMachinesRequest()))
        self.assertEqual([each.metadata.id for each in listed.machines], [created.metadata.id])
