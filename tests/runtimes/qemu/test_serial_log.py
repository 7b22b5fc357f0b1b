"""
Output from while no runtime runs: :mod:`twisted_exec.runtimes.qemu.serial`.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import SynchronousTestCase

from tests.runtimes.qemus import COUNTER, QemuCase, boot_rom, editor_rom
from tests.tiers import PROGRAMS
from twisted_exec.journal.interfaces import Event, EventKind, missing_bytes
from twisted_exec.journal.journal import Journal
from twisted_exec.runtimes.interfaces import IJournalWriter
from twisted_exec.runtimes.qemu.command_line import Board
from twisted_exec.runtimes.qemu.driver import QemuRun
from twisted_exec.runtimes.qemu.serial import SerialLog


class LogCase(SynchronousTestCase):
    """A log and a journal; the test is QEMU."""

    def setUp(self) -> None:
        self.directory = os.path.abspath(self.mktemp())
        self.journal = Journal()
        self.log = SerialLog(self.directory, self.journal)

    def print(self, data: bytes) -> None:
        """Print while nothing is connected."""
        with open(self.log.path, "ab") as file:
            file.write(data)

    def carry(self, data: bytes) -> None:
        """Print while a runtime reads the socket."""
        self.journal.append(data)
        self.print(data)

    def missing(self) -> bytes:
        return self.log.read(self.log.position(), 1 << 30)


class PositionTests(LogCase):
    """How far the journal is."""

    def test_position(self) -> None:
        """The journal lacks what was printed since its end, after any number of stops."""
        self.journal.append(b"of an earlier boot")
        self.assertFalse(self.log.exists)
        self.log.create()
        self.assertTrue(self.log.exists)
        self.carry(b"one")
        self.print(b"two")
        self.assertEqual(self.missing(), b"two")
        self.journal.append(b"two")
        self.carry(b"three")
        self.assertEqual(self.missing(), b"")

    def test_killed_between(self) -> None:
        """A piece that was appended counts, also if the runtime was killed right after that."""
        self.log.create()
        self.print(b"a" * 100_000)
        for _ in range(3):
            self.journal.append(self.missing()[:30_000])
        self.assertEqual(len(self.missing()), 10_000)

    def test_other_journal(self) -> None:
        """A journal that was deleted meanwhile gets everything that is left."""
        self.log.create()
        self.carry(b"one")
        other = Journal()
        self.assertEqual(SerialLog(self.directory, other).position(), 0)

    def test_jump(self) -> None:
        """Offsets that a journal leaves out after a failure of its disk are no output."""
        self.log.create()
        self.carry(b"one")
        self.journal._events = [  # type: ignore[assignment]
            Event(3, 1, EventKind.GAP, {"bytes": None, "end": 1003}),
            Event(1003, 1, EventKind.GAP, {"bytes": 4, "end": 1007}),
        ]
        self.journal._tail.start = self.journal._tail.end = 1007
        self.print(b"twothree")
        self.assertEqual(self.missing(), b"hree")

    def test_boots(self) -> None:
        """What a journal adds at a boot is no output of QEMU."""
        self.journal.append(b"\x1b[?1049h")
        self.log.create()
        self.journal.booted("Started")
        self.carry(b"one\x1b[?25l")
        self.journal.booted("Reset")
        self.carry(b"two")
        self.print(b"three")
        self.assertEqual(self.journal.end, 8 + 8 + 9 + 6 + 3)
        self.assertEqual(self.missing(), b"three")

    def test_killed_at_boot(self) -> None:
        """A runtime that was killed before it could add this continues with the right byte."""
        self.log.create()
        self.carry(b"one\x1b[?25l")
        for written in (0, 3):
            self.journal._events = [  # type: ignore[assignment]
                Event(9, 1, EventKind.BOOT, {"number": 1, "reason": "Reset", "reset_bytes": 6}),
            ]
            if written:
                self.journal.append(b"\x1b[?")
            self.assertEqual(self.log.position(), 9, written)

    def test_too_much(self) -> None:
        """The oldest part of a very large log is left out."""
        self.log.create()
        self.carry(b"one")
        with open(self.log.path, "r+b") as file:
            file.truncate(100 << 20)
        self.assertEqual(self.log.skip_excess(), (36 << 20) - 3)
        self.assertEqual(self.log.skip_excess(), 0)
        self.assertEqual(len(self.missing()), 64 << 20)

    def test_damaged(self) -> None:
        """Without a valid file beside the log, the log is read from its start."""
        for content in (b"", b"[]", b"{", b'{"journal": "x"}'):
            self.log.create()
            self.carry(b"one")
            with open(os.path.join(self.directory, "serial.base"), "wb") as file:
                file.write(content)
            self.assertEqual(self.missing(), b"one")
            self.log.tidy(self.log.position())

    def test_not_writable(self) -> None:
        """A directory that cannot be used is reported to the caller."""
        with open(self.directory, "w"):
            pass
        with self.assertRaises(OSError):
            self.log.create()

    def test_symlink(self) -> None:
        """Nothing is read or written through a symbolic link."""
        self.log.create()
        os.unlink(self.log.path)
        os.symlink("/etc/hostname", self.log.path)
        self.assertEqual(self.missing(), b"")
        self.log.create()
        self.assertFalse(os.path.islink(self.log.path))


class TidyTests(LogCase):
    """The log's size on disk."""

    def test_punched(self) -> None:
        """What the journal has is freed; what it lacks remains, at the same position."""
        self.log.create()
        self.carry(b"a" * (5 << 20))
        self.print(b"b" * 100)
        before = os.stat(self.log.path).st_blocks
        self.log.tidy(self.log.position())
        self.assertLess(os.stat(self.log.path).st_blocks, before // 2)
        self.assertEqual(self.missing(), b"b" * 100)
        self.print(b"c")
        self.assertEqual(self.missing(), b"b" * 100 + b"c")
        # A journal of another epoch gets no zeros from the hole.
        self.assertEqual(SerialLog(self.directory, Journal()).position(), 5 << 20)

    def test_failing_journal(self) -> None:
        """Nothing is freed that the journal has in memory only."""
        self.log.create()
        self.carry(b"a" * (5 << 20))
        self.journal.failure = "No space left on device"
        before = os.stat(self.log.path).st_blocks
        self.log.tidy(self.log.position())
        self.assertGreaterEqual(os.stat(self.log.path).st_blocks, before)
        self.journal.failure = ""
        self.log.tidy(self.log.position())
        self.assertLess(os.stat(self.log.path).st_blocks, before)

    def test_room_ahead(self) -> None:
        """Blocks for output are allocated ahead, also before the first tidying."""
        self.log.create()
        self.assertGreaterEqual(os.stat(self.log.path).st_blocks * 512, 1 << 20)
        self.carry(b"a" * (1 << 20))
        self.log.tidy(self.log.position())
        self.assertGreaterEqual(os.stat(self.log.path).st_blocks * 512, 1 << 20)
        self.assertEqual(self.log.size(), 1 << 20)


class _Output(Protocol):
    """Appends to a journal, like a console."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def dataReceived(self, data: bytes) -> None:
        self._journal.append(data)


class MachineTests(QemuCase):
    """A QEMU that prints all the time."""

    starts = PROGRAMS
    exact = True

    def setUp(self) -> None:
        super().setUp()
        self.journal = Journal()

    def rom(self) -> str:
        path = os.path.join(self.directory, "counter.rom")
        with open(path, "wb") as file:
            file.write(boot_rom(COUNTER))
        return path

    async def open(self, run: QemuRun) -> Any:
        """Open the machine's line; return the line, which is the transport of its protocol."""
        output: Any = await run.connect(Factory.forProtocol(lambda: _Output(self.journal)))
        return output.transport

    def text(self) -> bytes:
        parts, offset = [], self.journal.start
        while data := self.journal.read(offset, 1 << 20):
            parts.append(data)
            offset += len(data)
        return b"".join(parts)

    async def longer(self, size: Any, count: int) -> None:
        target = size() + count
        await self.until(lambda: size() >= target)

    async def test_every_byte(self) -> None:
        """Each byte is in the journal once, whether a runtime stops or is killed."""
        driver = self.driver()
        run = self.run_of(driver, keep=True, journal=self.journal)
        self.assertTrue(IJournalWriter.providedBy(run))
        line = await self.open(run)
        log = SerialLog(self.facts().storage, self.journal)
        for way in ("stopped", "killed", "stopped", "killed"):
            await self.longer(lambda: self.journal.end, 400)
            line.disconnecting = True  # so it is not opened again
            if way == "stopped":
                run.release()
            else:
                run._disconnect()
            await self.longer(log.size, 600)
            facts = self.facts(keep=True, journal=self.journal)
            run = driver.adopt(facts, self.leaders)  # type: ignore[assignment]
            self.addCleanup(run.stop)
            line = await self.open(run)
            log.tidy(log.position())
        await self.longer(lambda: self.journal.end, 400)
        await run.stop()
        lines = self.text().split(b"\n")
        self.assertGreater(len(lines), 400)
        self.assertEqual(lines[:-1], [b"%08x" % number for number in range(len(lines) - 1)])
        self.assertEqual([boot.number for boot in self.journal.boots()], [1])
        self.assertEqual(missing_bytes(self.journal, 0, self.journal.end), 0)

    async def test_last_words(self) -> None:
        """What a machine printed before it ended without a runtime is read before its next start."""
        driver = self.driver()
        run = self.run_of(driver, keep=True, journal=self.journal)
        line = await self.open(run)
        log = SerialLog(self.facts().storage, self.journal)
        await self.longer(lambda: self.journal.end, 200)
        line.loseConnection()
        run.release()
        await self.longer(log.size, 300)
        await run._family.end()
        expected = log.size()
        again = self.run_of(driver, keep=True, journal=self.journal)
        await self.open(again)
        first, second = self.journal.boots()
        self.assertEqual((first.offset, second.offset), (0, expected))

    async def test_reset_in_editor(self) -> None:
        """A reset leaves the editor's screen; a runtime that comes back then reads nothing twice."""
        path = os.path.join(self.directory, "editor.rom")
        with open(path, "wb") as file:
            file.write(editor_rom())
        driver = self.driver(Board(firmware=path))
        run = self.run_of(driver, keep=True, journal=self.journal)
        line = await self.open(run)
        entering, leaving = b"\x1b[?1049h", b"\x1b[?1049l"
        await self.until(lambda: self.journal.end == 10)
        line.write(b"@")
        await self.until(lambda: self.journal.end == 28)
        self.assertEqual(self.text().count(leaving), 1)
        # The event of the reset comes beside the output.
        self.assertEqual(self.text().replace(leaving, b""), (entering + b"ok") * 2)
        run.release()
        facts = self.facts(keep=True, journal=self.journal)
        run = driver.adopt(facts, self.leaders)  # type: ignore[assignment]
        self.addCleanup(run.stop)
        line = await self.open(run)
        line.write(b"x")
        await self.until(lambda: self.journal.end == 30)
        self.assertTrue(self.text().endswith(b"x."))


class ResetTests(QemuCase):
    """Boots in the journal."""

    starts = PROGRAMS

    async def test_reset(self) -> None:
        """A reset of the guest is a boot; output after it has a new number."""
        journal = Journal()
        run = self.run_of(self.driver(), journal=journal)
        line: Any = await run.connect(Factory.forProtocol(lambda: _Output(journal)))
        await self.until(lambda: journal.end == 2)
        line.transport.write(b"@")
        await self.until(lambda: journal.end >= 4)
        await self.until(lambda: len(journal.boots()) == 2)
        reasons = [each.data["reason"] for each in journal.events(0, journal.end)]
        self.assertEqual(reasons, ["Started", "Reset"])


class SocketTests(QemuCase):
    """A QEMU with a socket, as a machine without a log has it."""

    starts = PROGRAMS

    async def test_left_files(self) -> None:
        """Its console works, also if a QEMU before has left the files of its log."""
        journal, driver, storage = Journal(), self.driver(), self.facts().storage
        factory = Factory.forProtocol(lambda: _Output(journal))
        with open(storage, "w"):
            pass  # no directory, so this release starts it with a socket, too
        run = self.run_of(driver, keep=True, journal=journal)
        first: Any = await run.connect(factory)
        await self.until(lambda: journal.end == 2)
        first.transport.disconnecting = True  # so it is not opened again
        run.release()
        os.unlink(storage)
        SerialLog(storage, journal).create()
        facts = self.facts(keep=True, journal=journal)
        run = driver.adopt(facts, self.leaders)  # type: ignore[assignment]
        self.addCleanup(run.stop)
        line: Any = await run.connect(factory)
        line.transport.write(b"x")
        await self.until(lambda: journal.end == 4)
        self.assertEqual(journal.read(2, 2), b"x.")
        self.assertIsNone(missing_bytes(journal, 2, 2))
