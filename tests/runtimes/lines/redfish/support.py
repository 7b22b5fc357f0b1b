"""Support for tests of the driver ``redfish``: a small BMC, a client of it, and a class with one server."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.protocol import Factory

from tests.runtimes.bmc.server import HOST, PASSWORD, USER, SmallBMC
from tests.runtimes.support import RuntimeCase
from tests.tls.support import authority, write
from twisted_exec.api.conditions import ConditionValue
from twisted_exec.runtimes.interfaces import CannotStart, MachineFacts
from twisted_exec.runtimes.lines import device_lock
from twisted_exec.runtimes.lines.redfish.client import Client, Trust
from twisted_exec.runtimes.lines.redfish.driver import RedfishDriver
from twisted_exec.runtimes.lines.redfish.sessions import Credentials, SessionFile, Sessions
from twisted_exec.runtimes.lines.shared_line import SharedLine
from twisted_exec.testing.drivers import QUICK, Line

reactor: Any = _reactor


class BMCCase(RuntimeCase):
    """A small BMC in this process."""

    kind = "websocket"

    def setUp(self) -> None:
        super().setUp()
        self.patch(device_lock, "LOCK_DIRECTORY", self.directory)
        self.bmc = self.make_bmc(self.kind)
        self.password = write(self.directory, "password", f"{PASSWORD}\n".encode())
        os.chmod(self.password, 0o600)
        self.ca = write(self.directory, "ca.pem", authority("serving").certificate_pem)
        self.session_path = os.path.join(self.directory, "kept.session")

    def make_bmc(self, kind: str, port: int = 0, **options: Any) -> SmallBMC:
        bmc = SmallBMC(kind, **options).start(port)
        self.addCleanup(bmc.stop)
        return bmc

    def client(self, **trust: Any) -> Client:
        chosen = Trust(**trust) if trust else Trust(pin=bytes.fromhex(self.bmc.pin))
        client = Client(HOST, self.bmc.port, chosen, reactor)
        self.addCleanup(client.close)
        return client

    def sessions(self, clock: Any = reactor, *, user: str = USER, **options: Any) -> Sessions:
        return Sessions(
            self.client(),
            Credentials(user, self.password),
            SessionFile(self.session_path),
            clock,
            **options,
        )


class RedfishCase(BMCCase):
    """A class with one server behind the small BMC, whose console is a WebSocket."""

    def setUp(self) -> None:
        super().setUp()
        self.conditions: list[ConditionValue] = []
        self.state = os.path.join(self.directory, "drivers")
        os.mkdir(self.state)

    def make_driver(self, **keys: Any) -> RedfishDriver:
        driver = self.driver_of(
            driver="redfish",
            user=USER,
            password_file=self.password,
            pin=self.bmc.pin,
            lines={"m": {"host": "127.0.0.1", "port": self.bmc.port}},
            **keys,
        )
        assert isinstance(driver, RedfishDriver)
        driver.timing = QUICK
        driver.use_directory(self.state)
        return driver

    def facts(self, id: str = "m") -> MachineFacts:
        return replace(super().facts(id), described=self.conditions.append)

    async def opened_line(self, driver: RedfishDriver | None = None) -> tuple[SharedLine, Line]:
        run = (driver or self.make_driver()).run(self.facts())
        self.addCleanup(run.stop)
        line: Line = await run.connect(Factory.forProtocol(Line))
        return run, line

    async def refusal(self, driver: RedfishDriver | None = None) -> CannotStart:
        run = (driver or self.make_driver()).run(self.facts())
        with self.assertRaises(CannotStart) as caught:
            await run.connect(Factory.forProtocol(Line))
        await run.stop()
        return caught.exception
