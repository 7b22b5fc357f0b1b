"""
The user's view of a session: the machine's output, notices, and messages of this program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from twisted_exec.console.floor import RoleNotices, is_writer_notice, notice, notice_text

if TYPE_CHECKING:
    from twisted_exec.cli.console.interfaces import SessionScript, Sink, Stream
    from twisted_exec.wire.terminal_queries import QueryFilter


@implementer(IPushProducer)
class Display:
    """
    Writes into the user's output, which paces the stream.

    :param script: gets the notices; the user reads them without one.
    :param say: prints a message of this program; the last line has no newline.
    :param watch: receives all output of the machine.
    :param query_filter: returns what keeps a terminal from answering earlier output; ``None`` if the
        output is no terminal.
    :param quiet: leave out messages about the connection, and notices that the user is the writer.
    :param wrote: called before each write.
    :ivar sink: the user's output; ``None`` before the start and after its end.
    :ivar notices: the user's role and that of others, as far as notices name them.
    :ivar is_paused: the user's output takes no more for now.
    """

    def __init__(
        self,
        *,
        script: SessionScript | None,
        say: Callable[[str], None],
        watch: Callable[[bytes], None],
        query_filter: Callable[[], QueryFilter] | None,
        quiet: bool,
        wrote: Callable[[], None],
    ) -> None:
        self.sink: Sink | None = None
        self.notices = RoleNotices()
        self.is_paused = False
        self._script, self._say, self._watch, self._wrote = script, say, watch, wrote
        self._is_quiet = quiet
        self._stream: Any = None
        self._has_marks = False
        self._make_filter = query_filter
        self._filter: QueryFilter | None = None
        self._last_byte = b""

    @property
    def mid_line(self) -> bool:
        """True if the last output left the cursor inside a line."""
        return self._last_byte not in (b"", b"\n")

    def open(self, stream: Stream) -> None:
        """Show the output of this stream; a resumable one has its notices beside the output."""
        self._stream = stream
        self._has_marks = getattr(stream, "is_resumable", False)
        if self._has_marks and self._make_filter is not None:
            self._filter = self._make_filter()
        if self.sink is not None:
            self.sink.registerProducer(self, True)

    def close(self) -> None:
        """Flush and close the output; the stream is not paused any more."""
        self._stream = None
        if self.sink is not None:
            self.sink.unregisterProducer()
            self.sink.loseConnection()

    # From the machine's side.

    def output(self, data: bytes) -> None:
        """Show output of the machine, with the server's notices in it unless they come as marks."""
        if not self._has_marks:
            self.notices.feed(data)
            if text := notice_text(data):
                self._show_notice(text, data)
                return
        if self._filter is not None:
            data = self._without_old_queries(self._filter, data)
        self._watch(data)
        self._write(data)

    def _without_old_queries(self, query_filter: QueryFilter, data: bytes) -> bytes:
        """
        Return as many bytes; what was printed before the connection has no queries.

        Machine's runtimes of earlier releases leave them in it.
        """
        # Output may lack its beginning, but it ends at the position.
        live = min(max(0, self._stream.position.offset - self._stream.live_from), len(data))
        harmless = query_filter.feed(data)  # all of it, because an outage may cut a query in two
        return harmless[: len(data) - live] + data[len(data) - live :]

    def notice(self, text: str) -> None:
        """Show a message of the server for the user, which is not part of the output."""
        self.notices.read(text)
        self._show_notice(text, notice(text))

    def skipped(self, count: int | None) -> None:
        """Show that so many bytes of the output are missing; ``None`` for an unknown number."""
        text = "output is missing here" if count is None else f"{count} bytes skipped"
        if self._script is not None:
            self._script.skipped(text)
        else:
            self._write(notice(text))

    def _show_notice(self, text: str, data: bytes) -> None:
        if self._is_quiet and is_writer_notice(text):
            return
        if self._script is not None:
            self._script.noticed(text)
        else:
            self._write(data)

    def _write(self, data: bytes) -> None:
        self._last_byte = data[-1:]
        self._wrote()
        if self.sink is not None:
            self.sink.write(data)

    # From this program.

    def tell(self, lines: str) -> None:
        """Print a message that the user has asked for, or needs."""
        self._say(lines)
        self._last_byte = b"\n"

    def inform(self, line: str) -> None:
        """Print a message about the connection, unless ``--quiet`` forbids it."""
        if not self._is_quiet:
            self.tell(line)

    # The user's output paces the stream through these.

    def pauseProducing(self) -> None:
        """The user's output takes no more for now."""
        self.is_paused = True
        if self._stream is not None:
            self._stream.pause_output()

    def resumeProducing(self) -> None:
        """The user's output takes more."""
        self.is_paused = False
        if self._stream is not None:
            self._stream.resume_output()

    def stopProducing(self) -> None:
        """The output is gone; the session hears of that otherwise."""
