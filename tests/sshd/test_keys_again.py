"""
Sessions whose keys are exchanged again while they print, with stock ssh.
"""

from __future__ import annotations

from tests import needs
from tests.cli.fleet.test_run import Shell
from twisted_exec.testing.console import EchoAttachment

from .support import DoorCase

if needs.conch() is None:
    from twisted_exec.sshd.door import DoorConnection

NUMBERS = b"".join(b"%d\n" % each for each in range(1, 50001))


class RekeyTests(DoorCase):
    """No byte is lost."""

    async def test_client(self) -> None:
        """ssh exchanges keys again after each 64 KiB."""
        self.serve(Shell("vm"))
        process = self.gate("-o", "RekeyLimit=64K", "vm@gate", "run", "seq 1 50000")
        self.assertEqual(await process.ended, 0, process.stderr)
        self.assertEqual(process.stdout, NUMBERS)

    async def test_door(self) -> None:
        """The door does so."""
        self.patch(DoorConnection, "rekey_bytes", 1 << 16)
        self.serve(Shell("vm"))
        process = self.gate("-v", "vm@gate", "run", "seq 1 50000")
        self.assertEqual(await process.ended, 0, process.stderr)
        self.assertEqual(process.stdout, NUMBERS)
        self.assertGreater(process.stderr.count(b"SSH2_MSG_NEWKEYS received"), 1)

    async def test_keys(self) -> None:
        """Keys of the user arrive while that goes on."""
        self.patch(DoorConnection, "rekey_bytes", 1 << 14)
        self.serve(EchoAttachment(b"$ "))
        process = self.gate("-tt", "vm@gate")
        await process.until(rb"Connected to vm\.")
        for each in range(200):
            process.type(b"%d%s\n" % (each, b"x" * 500))
            await process.until(b"%dxxx" % each)
        process.signal(9)
        while self.door.door.connections:
            await self.tick()
