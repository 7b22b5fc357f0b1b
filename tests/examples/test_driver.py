"""
The driver of ``docs/howto/write-a-driver.rst``, installed as the page describes.
"""

from __future__ import annotations

import os
import shutil
import sys

import yaml
from twisted.internet import reactor as _reactor
from twisted.internet.protocol import Factory
from twisted.internet.protocol import Protocol as TwistedProtocol

import twisted.plugins
from tests.console.doubles import MemoryStream
from tests.contracts.console import ConsoleContract
from tests.contracts.machine_driver import MachineDriverContract
from tests.contracts.machine_runtime import machine
from tests.examples.test_examples import EXAMPLES
from tests.runtimes.support import RuntimeCase
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import Grant
from twisted_exec.runtimes.config import parse
from twisted_exec.runtimes.interfaces import IMachineDriver


class _Echo(TwistedProtocol):
    def dataReceived(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[union-attr]


class EndpointDriverTests(MachineDriverContract, ConsoleContract, RuntimeCase):
    """``endpoint_driver.py``, connected to a UNIX socket that echoes."""

    provoke = b"hello"
    answer = b"hello"

    def setUp(self) -> None:
        super().setUp()
        plugins = os.path.join(self.directory, "twisted", "plugins")
        os.makedirs(plugins)
        shutil.copy(EXAMPLES / "endpoint_driver.py", self.directory)
        shutil.copy(EXAMPLES / "endpoint_driver_plugin.py", f"{plugins}/endpoint_driver_plugin.py")
        self.patch(sys, "path", [self.directory, *sys.path])
        self.patch(twisted.plugins, "__path__", [*twisted.plugins.__path__, plugins])
        for name in ("endpoint_driver", "twisted.plugins.endpoint_driver_plugin"):
            self.addCleanup(sys.modules.pop, name, None)
        path = os.path.join(self.directory, "echo.sock")
        port = _reactor.listenUNIX(path, Factory.forProtocol(_Echo))  # type: ignore[attr-defined]
        self.addCleanup(port.stopListening)
        with open(EXAMPLES / "endpoint_driver.yaml") as file:
            (self.document,) = yaml.safe_load(file)["classes"]
        self.document["endpoint"] = f"unix:{path}"

    def make_driver(self) -> IMachineDriver:
        (driver_class,) = parse({"classes": [self.document]})
        return driver_class.build(_reactor, self.table).driver

    def make_console(self) -> object:
        return self.make_driver().run(self.facts())

    def clean(self, console: object) -> object:
        return console.stop()  # type: ignore[attr-defined]

    async def test_in_a_runtime(self) -> None:
        """A machine of the class runs, and its console is connected to the endpoint."""
        runtime = await self.make_runtime(self.document)
        answer = await runtime.create_machine(pb.CreateMachineRequest(machine=machine("x", "echo")))
        id = answer.machine.metadata.id
        await self.until(lambda: runtime.machines.records.get(id).state == pb.MACHINE_RUNNING)
        _, viewer = runtime.attach(Grant(id))
        stream = MemoryStream(viewer)
        viewer.data_received(b"anybody there?")
        await self.until(lambda: b"anybody there?" in bytes(stream.got))
