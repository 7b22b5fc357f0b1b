"""
Tests for :mod:`twisted_exec.runtimes.qemu.command_line`.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.qemu.command_line import (
    KVM,
    TCG,
    Board,
    Disk,
    QemuParts,
    SocketPaths,
    arguments,
    node_name,
)

SOCKETS = SocketPaths("/r/s", "/r/c")


class ArgumentsTests(SynchronousTestCase):
    """Tests for :func:`arguments`."""

    def words(self, board: Board = Board(), **parts: Any) -> str:  # noqa: B008
        return " ".join(arguments("qemu", board, SOCKETS, QemuParts(**parts)))

    def test_machine(self) -> None:
        """Emulated, by one thread, asleep when idle; no network, no disk, no display."""
        words = self.words()
        for expected in (
            "-accel tcg,thread=single",
            "-icount shift=6,align=on,sleep=on",
            "-nic none",
            "-nodefaults",
            "-display none",
            "-m 128M",
            "-sandbox on,",
            "path=/r/s,server=on,wait=off",
        ):
            self.assertIn(expected, words)
        for unwanted in ("kvm", "-netdev", "-blockdev", "-fw_cfg", "-kernel"):
            self.assertNotIn(unwanted, words)

    def test_accelerators(self) -> None:
        """By the processor, or emulated as fast as can be."""
        for accelerator, expected in ((KVM, "-accel kvm -cpu host"), (TCG, "-accel tcg -cpu max")):
            words = " ".join(arguments("q", Board(), SOCKETS, accelerator=accelerator))
            self.assertIn(expected, words)
            self.assertNotIn("icount", words)

    def test_kernel(self) -> None:
        """A kernel is one word each, whatever is in it."""
        board = Board(kernel="/k 1", initrd="/i", append="console=ttyS0 -nic user")
        words = arguments("q", board, SOCKETS)
        for option, value in (
            ("-kernel", "/k 1"),
            ("-initrd", "/i"),
            ("-append", "console=ttyS0 -nic user"),
        ):
            self.assertEqual(words[words.index(option) + 1], value)

    def test_comma(self) -> None:
        """A path with a comma does not become an option."""
        words = arguments("qemu", Board(), SocketPaths("/a,b/s", "/c"), QemuParts(ignition="/x,y"))
        self.assertIn("socket,id=serial0,path=/a,,b/s,server=on,wait=off", words)
        self.assertIn("name=opt/com.coreos/config,file=/x,,y", words)

    def test_network(self) -> None:
        """A card for each interface, behind a network that leads nowhere unless the class opens it."""
        interfaces = [pb.NetworkInterface(name="a"), pb.NetworkInterface(name="b,restrict=off")]
        words = self.words(interfaces=interfaces, hostname="vm-1")
        self.assertIn("user,id=net0,restrict=on,hostname=vm-1 ", words)
        self.assertNotIn("restrict=off", words)
        self.assertNotIn("hostfwd", words)
        self.assertEqual(words.count("mac=52:54:00:"), 2)
        self.assertIn(
            "id=net1,restrict=off", self.words(Board(network_is_open=True), interfaces=interfaces)
        )

    def test_identity(self) -> None:
        """The guest gets its hostname and UID, unless they are not valid."""
        uid = "0d6ec2c1-3a70-4d0f-93a5-8f5d5b9a2c11"
        words = self.words(hostname="vm-1", uid=uid)
        self.assertIn("name=opt/dev.twisted-exec/hostname,string=vm-1", words)
        self.assertIn("type=11,value=io.systemd.credential:system.hostname=vm-1", words)
        self.assertIn(f"-uuid {uid}", words)
        words = self.words(hostname="a,file=/etc/shadow", uid="x")
        self.assertNotIn("shadow", words)
        self.assertNotIn("-uuid", words)


class DiskTests(SynchronousTestCase):
    """Tests for :class:`Disk`."""

    def test_formats(self) -> None:
        """The format of every file is explicit, never detected."""
        disk = Disk("root", "/d/root.qcow2", "/images/base.img", "raw")
        result = disk.blockdev()
        self.assertEqual((result["driver"], result["backing"]["driver"]), ("qcow2", "raw"))
        self.assertTrue(result["backing"]["read-only"])
        self.assertIsNone(Disk("root", "/d").blockdev()["backing"])
        inner = Disk("root", "/d", "/b.qcow2", "qcow2").blockdev()["backing"]
        self.assertIsNone(inner["backing"])

    def test_order(self) -> None:
        """Firmware tries the disks in their order, after a kernel, which has the first place."""
        words = arguments(
            "q", Board(), SOCKETS, QemuParts(disks=[Disk("b", "/b,c"), Disk("a", "/a")])
        )
        cards = [json.loads(word) for word in words if '"bootindex"' in word]
        self.assertEqual([card["serial"] for card in cards], ["b", "a"])
        self.assertEqual([card["bootindex"] for card in cards], [1, 2])
        self.assertEqual(cards[0]["drive"], node_name("b"))

    def test_long_name(self) -> None:
        """QEMU's names are short, however long a volume's is."""
        disk = Disk("v" * 200, "/d")
        self.assertLess(len(disk.node), 32)
        self.assertLessEqual(len(disk.device()["serial"]), 20)
