"""
Viewers of one console, with a clock of the test.
"""

from __future__ import annotations

from typing import Any

from twisted_exec.console.viewer import Viewer
from twisted_exec.streaming.interfaces import MACHINE_DELETED, Ending, Position
from twisted_exec.testing.console import MarkStream
from twisted_exec.wire.session_terms import Terms
from twisted_exec.wire.stream_options import StreamOptions

from .doubles import MemoryStream, OpenConsoleCase

KIB = 1 << 10


DELETED = Ending(MACHINE_DELETED, 'machine "default/x" was deleted')


EYES = Terms(people=2, policy="default/eyes")


MISSING = "ConsolePolicy default/eyes needs 2 people at this console, 1 is connected"


READ_ONLY = StreamOptions(read_only=True)


LOST = "ann's connection is lost; the writer of this console is ann "


class ViewerCase(OpenConsoleCase):
    """A console whose line is open, and streams with marks."""

    def attach(self, **options: Any) -> tuple[Viewer, MarkStream]:
        """Open a session over a stream with marks."""
        viewer, stream = self.shared.viewer(), MarkStream(**options)
        viewer.attached(stream)
        return viewer, stream

    def watch(self, user: str = "bob", **options: Any) -> MemoryStream:
        """Open a session over an ordinary stream."""
        return MemoryStream(self.shared.viewer(), user=user, **options)

    def at(self, offset: int) -> Position:
        """Return a position in the journal."""
        return Position(self.shared.journal.epoch, offset)

    def resume(self, viewer: Viewer, offset: int, **options: Any) -> MarkStream:
        """Come back over another stream."""
        stream = MarkStream(**{"session": "s2", "user": viewer.user, **options})
        viewer.admit(stream.terms)
        viewer.check(self.at(offset))
        viewer.resumed(stream, self.at(offset))
        return stream

    def kinds(self) -> list[tuple[str, str]]:
        """Return kind and session of the journal's events."""
        events = self.shared.journal.events(0, self.shared.journal.end)
        return [(each.kind, each.data.get("session", "")) for each in events]
