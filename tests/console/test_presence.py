"""
Tests for :mod:`twisted_exec.console.presence`: the marks that name the number of sessions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted_exec.streaming.interfaces import Role, TerminalSize
from twisted_exec.testing.console import MarkStream
from twisted_exec.wire.marks import Attendance, Notice, NoticeRole

from .viewer_case import DELETED, EYES, MISSING, READ_ONLY, ViewerCase


def attendance(
    viewers: int, writer: str = "", seconds: int = 0, withheld: str = "", lost: int = 0
) -> Attendance:
    """Return the mark of a console that is not recorded, and has no BREAK."""
    return Attendance(
        viewers,
        writer,
        seconds,
        (),
        has_break=False,
        withheld=withheld,
        lost=lost,
        message_characters=200,
    )


class PresenceTests(ViewerCase):
    """Sessions come, go and change their roles."""

    def told(self, stream: MarkStream) -> list[Attendance]:
        """Return the marks about the sessions that a stream got."""
        self.clock.advance(0.5)
        return [each for each in stream.sent if isinstance(each, Attendance)]

    def newest(self, stream: MarkStream) -> Any:
        return self.told(stream)[-1]

    def test_writer(self) -> None:
        """A mark has the number of sessions, the writer, and for how long it is the writer."""
        _, ann = self.attach(user="ann")
        self.assertEqual(self.told(ann), [attendance(1, "ann", 0)])
        self.clock.advance(60)
        _, bob = self.attach(user="bob")
        self.assertEqual(self.told(bob), [attendance(2, "ann", 61)])
        self.assertEqual(self.newest(ann), attendance(2, "ann", 61))

    def test_take_over(self) -> None:
        """The time of another writer begins anew."""
        self.attach(user="ann")
        viewer, bob = self.attach(user="bob")
        self.clock.advance(60)
        viewer.wished(Role.WRITER)
        self.assertEqual(self.newest(bob), attendance(2, "bob", 0))

    def test_no_writer(self) -> None:
        """Without a writer there is no time."""
        _, ann = self.attach(user="ann", options=READ_ONLY)
        self.assertEqual(self.newest(ann), attendance(1))

    def test_withheld(self) -> None:
        """A mark says why the machine gets no input, also to a session that resumes, and when it gets input again."""
        ann, _ = self.attach(user="ann", terms=EYES)
        ann.away()
        stream = self.resume(ann, 0, terms=EYES)
        self.assertEqual(self.newest(stream), attendance(1, "ann", 0, MISSING))
        self.attach(user="bob", options=READ_ONLY)
        self.assertEqual(self.newest(stream), attendance(2, "ann", 1))

    def test_many(self) -> None:
        """Many changes at once are one mark."""
        _, ann = self.attach(user="ann")
        for _ in range(50):
            self.watch()
        self.assertEqual(self.told(ann), [attendance(51, "ann", 0)])

    def test_away(self) -> None:
        """A session whose connection is lost counts apart, and its user is told when it is back."""
        ann, _ = self.attach(user="ann")
        _, bob = self.attach(user="bob")
        self.clock.advance(1)
        ann.away()
        self.assertEqual(self.newest(bob), attendance(2, "ann", 1, lost=1))
        self.assertEqual(self.newest(self.resume(ann, 0)), attendance(2, "ann", 2))
        self.assertEqual(self.newest(bob), attendance(2, "ann", 2))

    def test_left(self) -> None:
        """A session that has ended does not count."""
        ann, _ = self.attach(user="ann")
        _, bob = self.attach(user="bob")
        ann.detached("client closed")
        self.assertEqual(self.newest(bob), attendance(1))

    def test_size(self) -> None:
        """A mark has the size of the console, that of its writer's terminal."""
        viewer, ann = self.attach(user="ann")
        observer, bob = self.attach(user="bob")
        viewer.window_changed(TerminalSize(120, 40))
        observer.window_changed(TerminalSize(80, 24))
        expected = replace(attendance(2, "ann", 0), size=TerminalSize(120, 40))
        self.assertEqual(self.newest(bob), expected)
        viewer.window_changed(TerminalSize(100, 30))
        expected = replace(attendance(2, "ann", 1), size=TerminalSize(100, 30))
        self.assertEqual((self.newest(bob), self.newest(ann)), (expected, expected))
        viewer.window_changed(TerminalSize(100, 30))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_size_at_once(self) -> None:
        """
        Observers know at once for which size a program draws from now on: when they join, when it changes, and behind the
        notice of a take-over. The sizes of a window that is being dragged are told together.
        """
        writer, ann = self.attach(user="ann")
        writer.window_changed(TerminalSize(120, 40))
        self.clock.advance(60)
        _, bob = self.attach(user="bob", options=READ_ONLY)

        def sizes() -> list[TerminalSize | None]:
            return [each.size for each in bob.sent if isinstance(each, Attendance)]

        self.assertEqual(sizes(), [TerminalSize(120, 40)])
        self.clock.advance(60)
        bob.sent.clear()
        dragged = [TerminalSize(columns, 40) for columns in (110, 105, 100)]
        for each in dragged:
            writer.window_changed(each)
            self.clock.advance(0)
        self.assertEqual(sizes(), dragged[:1])
        self.clock.advance(0.5)
        self.assertEqual(sizes(), [dragged[0], dragged[-1]])
        other, _ = self.attach(user="eve")
        other.window_changed(TerminalSize(80, 24))
        self.clock.advance(0.5)
        for each in (ann, bob):
            each.sent.clear()
        other.wished(Role.WRITER)
        self.clock.advance(0)
        notice, mark = ann.sent
        self.assertEqual(bob.sent, [mark])
        self.assertIn("eve has taken over", notice.text)
        self.assertEqual((mark.writer, mark.size), ("eve", TerminalSize(80, 24)))

    def test_redraw(self) -> None:
        """
        A program that a client makes draw again, by a size that differs by one row or column and the right one, is no
        change of the window that others read.  A window that becomes one row smaller is.
        """
        size = TerminalSize(80, 24)
        writer, _ = self.attach(user="ann")
        writer.window_changed(size)
        self.clock.advance(60)
        _, bob = self.attach(user="bob", options=READ_ONLY)
        self.clock.advance(60)
        for other in (TerminalSize(80, 23), TerminalSize(81, 25)):  # twisted-exec, kubectl attach
            bob.sent.clear()
            for each in (other, size):
                writer.window_changed(each)
                self.clock.advance(0)
            self.clock.advance(60)
            self.assertEqual(
                {each.size for each in bob.sent if isinstance(each, Attendance)}, {size}
            )
        writer.window_changed(TerminalSize(80, 23))
        self.assertEqual(self.newest(bob).size, TerminalSize(80, 23))
        bob.sent.clear()
        writer.window_changed(size)
        writer.window_changed(TerminalSize(80, 25))
        self.clock.advance(0)
        self.assertEqual([each.size for each in bob.sent], [TerminalSize(80, 25)])

    def test_slow_client(self) -> None:
        """A client that reads nothing gets the newest mark only, when it reads again."""
        viewer, ann = self.attach(user="ann")
        viewer.pauseProducing()
        for _ in range(5):
            self.watch()
            self.assertEqual(self.told(ann), [])
        viewer.resumeProducing()
        self.assertEqual(self.told(ann), [attendance(6, "ann", 2)])

    def test_behind_role(self) -> None:
        """An observer who joins behind much output learns the role before it gets a mark, which clients rely on."""
        writer, _ = self.attach(user="ann")
        writer.window_changed(TerminalSize(120, 40))
        self.console.says(b"x" * 10_000)
        _, bob = self.attach(user="bob", capacity=1000)
        self.assertEqual([each for each in bob.sent if isinstance(each, Attendance | Notice)], [])
        self.clock.advance(0.5)
        bob.take()
        notice, mark = [each for each in bob.sent if isinstance(each, Attendance | Notice)]
        self.assertEqual((notice.role, mark.writer), (NoticeRole.OBSERVER, "ann"))

    def test_ordinary_streams(self) -> None:
        """Without a client that reads marks there is nothing to do."""
        self.watch()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_end(self) -> None:
        """Nothing is left to do at the end of the console, and when all clients have gone."""
        viewer, _ = self.attach(user="ann")
        viewer.detached("client closed")
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.attach(user="ann")
        self.shared.end(DELETED)
        self.clock.advance(60)
        self.assertEqual(self.clock.getDelayedCalls(), [])
