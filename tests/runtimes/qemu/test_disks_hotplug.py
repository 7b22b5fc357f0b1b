"""
Tests for :mod:`twisted_exec.runtimes.qemu.disks`, with real virtual machines.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.runtimes.qemus import QemuCase
from tests.tiers import PROGRAMS
from twisted_exec.api.status import Conflict
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.runtimes.qemu.command_line import Board, node_name
from twisted_exec.runtimes.qemu.driver import QemuDriver, QemuRun
from twisted_exec.testing.drivers import Line


class SlotsTests(QemuCase):
    """Disks of a machine that is on."""

    starts = PROGRAMS

    async def machine(self, **more: Any) -> tuple[QemuRun, Line]:
        run = self.run_of(self.driver(), **more)
        line = await self.line(run)
        await line.until(b"ok")
        return run, line

    async def nodes(self, run: QemuRun) -> list[str]:
        expected = await self.ask(run, "query-named-block-nodes")
        return [each["node-name"] for each in expected if each["node-name"].startswith("v")]

    async def test_attach(self) -> None:
        """A disk can be attached, enlarged, and detached when the guest lets go of it."""
        run, line = await self.machine()
        volume = pb.Volume(name="data", device="odb", local_disk=pb.LocalDisk(size_bytes=1 << 20))
        await run.attach_volume(volume)
        self.assertEqual(await self.nodes(run), [node_name("data")])
        volume.local_disk.size_bytes = 2 << 20
        await run.resize_volume(volume)
        detaching = run.detach_volume("data")
        await self.ask(run, "query-status")  # answered after what was asked before
        line.transport.write(b"-")
        await detaching
        self.assertEqual(await self.nodes(run), [])
        self.assertEqual(os.listdir(os.path.join(self.facts().storage, "disks")), [])

    async def test_smaller(self) -> None:
        """A disk never becomes smaller, also if its size is not part of the volume."""
        run, _ = await self.machine()
        volume = pb.Volume(name="data", local_disk=pb.LocalDisk(size_bytes=2 << 20))
        await run.attach_volume(volume)
        for size in (0, 1 << 20):
            volume.local_disk.size_bytes = size
            resizing = run.resize_volume(volume)
            if size:
                with self.assertRaises(Conflict) as caught:
                    await resizing
                self.assertIn("'data' has 2097152 bytes", caught.exception.message)
            else:
                await resizing
            nodes = await self.ask(run, "query-named-block-nodes")
            sizes = {each["node-name"]: each["image"]["virtual-size"] for each in nodes}
            self.assertEqual(sizes[node_name("data")], 2 << 20)

    async def test_guest_let_go(self) -> None:
        """A card that the guest has given up already is no hindrance."""
        run, line = await self.machine()
        await run.attach_volume(pb.Volume(name="data", local_disk=pb.LocalDisk(size_bytes=1 << 20)))
        line.transport.write(b"-")
        await line.until(b"-")
        await run.detach_volume("data")
        self.assertEqual(await self.nodes(run), [])

    async def test_file_stays(self) -> None:
        """A file that cannot be deleted is named; another attempt deletes it without a power off."""
        run, line = await self.machine()
        volume = pb.Volume(name="data", local_disk=pb.LocalDisk(size_bytes=1 << 20))
        await run.attach_volume(volume)
        line.transport.write(b"-")
        await line.until(b"-")
        (path,) = Path(self.facts().storage, "disks").iterdir()
        path.unlink()
        path.mkdir()
        with self.assertRaises(Conflict) as caught:
            await run.detach_volume("data")
        failure = "'data' cannot be deleted: Is a directory"
        self.assertIn(failure, caught.exception.message)
        self.assertEqual(await self.nodes(run), [])
        for attempt, expected in (
            (run.detach_volume("data"), failure),
            (run.resize_volume(volume), "'data' is unplugged"),
        ):
            with self.assertRaises(Conflict) as caught:
                await attempt
            self.assertIn(expected, caught.exception.message)
        path.rmdir()
        path.touch()
        await run.detach_volume("data")
        self.assertFalse(path.exists())
        await run.attach_volume(volume)
        self.assertEqual(await self.nodes(run), [node_name("data")])

    async def test_guest_holds_on(self) -> None:
        """A guest that does not let go keeps its disk; the message says what helps."""
        self.patch(QemuDriver, "unplug_seconds", 0.1)
        run, _ = await self.machine()
        await run.attach_volume(pb.Volume(name="data", local_disk=pb.LocalDisk(size_bytes=1 << 20)))
        with self.assertRaises(Conflict) as caught:
            await run.detach_volume("data")
        self.assertIn("the guest has not released volume 'data'", caught.exception.message)
        self.assertEqual(await self.nodes(run), [node_name("data")])

    async def test_other_machine_type(self) -> None:
        """A machine whose slots are fixed says so, and with which class it can be done."""
        run = self.run_of(self.driver(Board(firmware=self.rom(), machine="q35")))
        await self.line(run)
        with self.assertRaises(Conflict) as caught:
            await run.attach_volume(pb.Volume(name="data"))
        self.assertIn("machine: pc", caught.exception.message)
