"""
Tests for :mod:`twisted_exec.runtimes.handover`: lines whose peers accept a connection and say
nothing.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from typing import Any

from twisted.internet import reactor
from twisted.internet.protocol import DatagramProtocol, Factory, Protocol
from twisted.trial.unittest import SkipTest

from tests.contracts.machine_runtime import machine
from tests.runtimes.support import RuntimeCase
from tests.tiers import PROGRAMS
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes import supervisor
from twisted_exec.runtimes.handover import MachinesHandOver
from twisted_exec.runtimes.lines import device_lock


class HangingPeer(Protocol):
    """Answers nothing."""

    transport: Any

    def __init__(self, heard: Callable[[HangingPeer], None]) -> None:
        self._heard = heard

    def connectionMade(self) -> None:
        self._heard(self)


class HangingController(DatagramProtocol):
    """Answers nothing."""

    def __init__(self, heard: Callable[[], None]) -> None:
        self._heard = heard

    def datagramReceived(self, datagram: bytes, addr: Any) -> None:
        self._heard()


class HangingPeerTests(RuntimeCase):
    """Lines of each driver that waits for an answer of its peer."""

    starts = PROGRAMS

    def setUp(self) -> None:
        super().setUp()
        self.patch(device_lock, "LOCK_DIRECTORY", self.directory)
        self.patch(supervisor, "_SETTLE_SECONDS", 0.0)
        self.heard = 0
        self.peers: list[HangingPeer] = []
        self.is_over = False
        listening: Any = reactor.listenTCP(  # type: ignore[attr-defined]
            0, Factory.forProtocol(lambda: HangingPeer(self._accept)), interface="127.0.0.1"
        )
        self.addCleanup(listening.stopListening)
        self.port: int = listening.getHost().port

    def _hear(self) -> None:
        self.heard += 1

    def _accept(self, peer: HangingPeer) -> None:
        self._hear()
        self.peers.append(peer)
        if self.is_over:
            peer.transport.abortConnection()

    def end_peers(self) -> None:
        """Let the runtime stop at once."""
        self.is_over = True
        for each in self.peers:
            each.transport.abortConnection()

    def write(self, name: str, text: str) -> str:
        path = os.path.join(self.directory, name)
        with open(path, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(text)
        return path

    async def until_asked(self) -> None:
        """Wait until the peer of the machine is asked again."""
        heard = self.heard
        await self.until(lambda: self.heard > heard)

    async def check(self, **keys: Any) -> None:
        """Hand over a machine whose line is being opened, and take it back, and hand it over again."""
        rack = {"name": "rack", "capabilities": {"cpu": 1, "memory": "1Gi"}, **keys}
        first = await self.make_runtime(rack)
        created = first.create_machine(pb.CreateMachineRequest(machine=machine("x", "rack")))
        await self.until_asked()
        await created
        for is_taken_over in (False, True):
            handed = MachinesHandOver(first)
            await handed.settle()
            values = json.loads(json.dumps(await handed.suspend()))
            if not is_taken_over:
                await handed.unsuspend()
                await self.until_asked()
        second = await self.make_runtime(rack, inherited=values)
        await self.until_asked()
        await MachinesHandOver(second).settle()
        (record,) = second.machines.records
        self.assertEqual(record.state, pb.MACHINE_PENDING)
        self.end_peers()

    async def test_redfish(self) -> None:
        """A BMC does not answer the TLS handshake."""
        line = {"host": "127.0.0.1", "port": self.port}
        password = self.write("password", "secret\n")
        common = {"user": "root", "password_file": password, "pin": "00" * 32}
        await self.check(driver="redfish", lines={"x": line}, **common)

    async def test_redfish_with_power(self) -> None:
        """A BMC whose class switches servers."""
        line = {"host": "127.0.0.1", "port": self.port}
        password = self.write("password", "secret\n")
        common = {"user": "root", "password_file": password, "pin": "00" * 32, "power": True}
        await self.check(driver="redfish", lines={"x": line}, **common)

    async def test_ssh(self) -> None:
        """A console server says no SSH."""
        if shutil.which("ssh") is None:
            raise SkipTest("ssh is not on PATH (openssh-client)")
        line = {"host": "127.0.0.1", "port": self.port, "user": "root"}
        hosts = self.write("known_hosts", "")
        await self.check(driver="ssh", known_hosts=hosts, lines={"x": line})

    async def test_ipmi(self) -> None:
        """A controller sends no datagram."""
        if shutil.which("ipmitool") is None:
            raise SkipTest("ipmitool is not on PATH")
        port: Any = reactor.listenUDP(  # type: ignore[attr-defined]
            0, HangingController(self._hear), interface="127.0.0.1"
        )
        self.addCleanup(port.stopListening)
        password = self.write("password", "secret\n")
        line = {"host": "127.0.0.1", "port": port.getHost().port}
        common = {"user": "root", "password_file": password}
        await self.check(driver="ipmi", lines={"x": line}, **common)

    async def test_libvirt(self) -> None:
        """A libvirt of another host does not answer."""
        if shutil.which("virsh", path="/usr/local/bin:/usr/bin:/bin") is None:
            raise SkipTest("virsh is not on PATH (libvirt-clients)")
        uri = f"qemu+tcp://127.0.0.1:{self.port}/system"
        await self.check(driver="libvirt", uri=uri, domains={"x": {}})
