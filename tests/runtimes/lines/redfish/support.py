"""Support for tests of the driver ``redfish``: a small BMC, and a client of it."""

from __future__ import annotations

import os
from typing import Any

from twisted.internet import reactor as _reactor

from tests.runtimes.bmc.server import HOST, PASSWORD, USER, SmallBMC
from tests.runtimes.support import RuntimeCase
from tests.tls.support import authority, write
from twisted_exec.runtimes.lines import device_lock
from twisted_exec.runtimes.lines.redfish.client import Client, Trust
from twisted_exec.runtimes.lines.redfish.sessions import Credentials, SessionFile, Sessions

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

    def make_bmc(self, kind: str, **options: Any) -> SmallBMC:
        bmc = SmallBMC(kind, **options).start()
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
