"""Sessions of pages at a real console: output within the credit, over lost connections."""

from __future__ import annotations

from typing import Any

from tests.console.doubles import MemoryConsole
from tests.runtimes.serving.kept_case import Client, KeptCase
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.streaming.interfaces import IAttachment
from twisted_exec.streaming.subject import Subject
from twisted_exec.wire.marks import At
from twisted_exec.wire.resume import Position

CREDIT = 64 << 10


class PageSessionTests(KeptCase):
    """A console that prints much more than a page accepts at once."""

    def setUp(self) -> None:
        super().setUp()
        self.line = MemoryConsole()
        self.console = SharedConsole(self.line, self.clock)
        self.console.open()
        self.epoch = self.console.journal.epoch
        self.printed = b"".join(b"%07d\n" % number for number in range(30_000))
        self.shown = b""

    def attach(self, grant: Any) -> tuple[Subject, IAttachment]:
        return Subject("", namespace="lab", machine="x", uid="uid-x"), self.console.viewer()

    def read(self, page: Client) -> int:
        """Read what has come, without a word to the server; return the number of bytes."""
        before = len(self.shown)
        for each in page.hears():
            if isinstance(each, bytes):
                self.shown += each
            elif isinstance(each, At):
                self.assertEqual(each.position, Position(self.epoch, len(self.shown)))
        return len(self.shown) - before

    def test_all(self) -> None:
        """All of it arrives once and in order, and never more than the credit at once."""
        page = self.open(f"marks; credit={CREDIT}")
        self.read(page)
        for start in range(0, len(self.printed), 4096):
            self.line.says(self.printed[start : start + 4096])
        rounds = taken = 0
        while len(self.shown) < len(self.printed):
            rounds += 1
            count = self.read(page)
            self.assertTrue(0 < count <= CREDIT, count)
            self.assertEqual(self.read(page), 0)
            if rounds == 3:
                page.lose()
                at = len(self.shown)
                request = page.resume(position=Position(self.epoch, at)).text()
                page, taken = self.open(f"{request}; credit={CREDIT}"), 0
                continue
            taken += count
            page.send(b'\4{"Taken":%d}\n' % taken)
        self.assertEqual(self.shown, self.printed)
        page.leave()
