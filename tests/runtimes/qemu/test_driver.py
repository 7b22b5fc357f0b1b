"""
Tests for :mod:`twisted_exec.runtimes.qemu.driver`: what a class is.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from twisted_exec.api.status import NotImplementedByBackend
from twisted_exec.interfaces import IAdoptsMachines, IHardware, IMachineDriver
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.program.config_file import ConfigError, Reader
from twisted_exec.runtimes.processes import ProcessTable
from twisted_exec.runtimes.qemu.command_line import AUTO, ICOUNT, TCG, Board
from twisted_exec.runtimes.qemu.driver import FIRMWARE, QemuDriver, QemuOptions, configure

RESOURCES = {"cpu": 4, "memory": 256 << 20}


class ConfigureTests(SynchronousTestCase):
    """Tests for :func:`configure`."""

    def driver(self, **keys: Any) -> QemuDriver:
        reader = Reader(keys, "f.yaml: vm")
        build = configure(reader, RESOURCES)
        reader.done()
        clock = Clock()
        driver = build(clock, ProcessTable(clock, "X"))
        assert isinstance(driver, QemuDriver)
        return driver

    def refusal(self, **keys: Any) -> str:
        with self.assertRaises(ConfigError) as caught:
            self.driver(**keys)
        return str(caught.exception).removeprefix("f.yaml: vm: ")

    def test_doors(self) -> None:
        """A driver whose machines have hardware, and can be kept."""
        for door in (IMachineDriver, IHardware, IAdoptsMachines):
            verifyObject(door, self.driver())

    def test_firmware(self) -> None:
        """Without a system of its own it boots U-Boot, which idles; by one processor."""
        options = self.driver().options
        self.assertEqual(options.board, Board(memory_mib=256, firmware=FIRMWARE))
        self.assertEqual((options.accelerator, options.shutdown_seconds), (ICOUNT, 0.0))

    def test_system(self) -> None:
        """A class with kernel or images uses KVM, has its processors, and is shut down at power off."""
        for keys in ({"kernel": "/k", "append": "console=ttyS0"}, {"images": "/images"}):
            options = self.driver(**keys).options
            self.assertEqual((options.board.firmware, options.board.cpus), ("", 4))
            self.assertEqual((options.accelerator, options.shutdown_seconds), (AUTO, 30.0))
        self.assertEqual(self.driver(images="/images").options.disks.images, "/images")

    def test_keys(self) -> None:
        """Each key can be set."""
        options = self.driver(
            accelerator="tcg",
            network="open",
            cpus=2,
            machine="q35",
            memory="64Mi",
            disk_size="2Gi",
            disk_limit="4Gi",
            shutdown_seconds=5,
        ).options
        self.assertEqual((options.accelerator, options.shutdown_seconds), (TCG, 5.0))
        board = options.board
        self.assertEqual((board.cpus, board.machine, board.memory_mib), (2, "q35", 64))
        self.assertTrue(board.network_is_open)
        self.assertEqual((options.disks.size_bytes, options.disks.limit_bytes), (2 << 30, 4 << 30))

    def test_refusals(self) -> None:
        """Wrong values are refused."""
        for keys, message in (
            ({"append": "x"}, "initrd and append need a kernel"),
            ({"images": "images"}, "images: 'images' is not an absolute path"),
            ({"accelerator": "xen"}, "accelerator must be one of auto, kvm, tcg, icount"),
            ({"machine": "isapc"}, "machine must be one of pc, q35"),
            ({"network": "bridge"}, "network must be one of restricted, open, none"),
            ({"cpus": 0}, "cpus must be between 1 and 64"),
            ({"disk_size": "2Ti"}, "disk_size is larger than disk_limit"),
            ({"shutdown_seconds": -1}, "shutdown_seconds must be between 0 and 3600"),
        ):
            self.assertIn(message, self.refusal(**keys))

    def test_no_network(self) -> None:
        """A class without network refuses interfaces, and others take them."""
        interface = pb.NetworkInterface(name="nic")
        self.driver().check_network_interface(interface)
        with self.assertRaises(NotImplementedByBackend) as caught:
            self.driver(network="none").check_network_interface(interface)
        self.assertIn("'nic': the class has no network", caught.exception.message)


class MissingTests(SynchronousTestCase):
    """Requirements on the host."""

    def missing(self, **options: Any) -> str:
        clock = Clock()
        return QemuDriver(QemuOptions(**options), clock, ProcessTable(clock, "X")).missing()

    def test_missing(self) -> None:
        """Missing files are listed with their Debian packages."""
        self.assertEqual(
            self.missing(
                program="qemu-system-none", board=Board(firmware=__file__, kernel="/nonexistent/k")
            ),
            "this host has no qemu-system-none (Debian package qemu-system-x86)"
            " and no /nonexistent/k",
        )
        self.assertEqual(self.missing(program="sh", board=Board(firmware=__file__)), "")
