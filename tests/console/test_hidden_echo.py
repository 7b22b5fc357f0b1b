"""Tests for :mod:`twisted_exec.console.hidden_echo`: a shell that echoes, its viewers, its log and its screen."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.console.support import log_reader
from tests.screens.doubles import MemoryRenderer
from twisted_exec.api.logs import LogOptions
from twisted_exec.api.screens import ScreenOptions
from twisted_exec.console.hidden_echo import ECHO_SECONDS, LINE_SECONDS
from twisted_exec.journal.interfaces import EventKind
from twisted_exec.screens.from_journal import Screens
from twisted_exec.screens.process import render
from twisted_exec.streaming.interfaces import MACHINE_DELETED, Ending
from twisted_exec.wire.escape_sequences import strip
from twisted_exec.wire.shell_run import WAKE, command_lines, mark, probe, probe_mark
from twisted_exec.wire.stream_options import CONSOLE, StreamOptions

from .viewer_case import ViewerCase

NONCE = "1a2b3c4d"
RUN = StreamOptions(run=NONCE)


class WrapperCase(ViewerCase):
    """A shell at its prompt, a viewer with a terminal, and the session of a run."""

    def setUp(self) -> None:
        super().setUp()
        self.console.says(b"# ")
        self.screen = self.watch(user="ann", options=CONSOLE)
        self.run = self.watch(user="ann", options=RUN)
        self.console.heard()

    def types(self, line: bytes) -> None:
        """Type a line of the run."""
        self.run.viewer.data_received(line)

    def probes(self) -> None:
        """Type all before the command, as far as it is echoed."""
        self.types(WAKE)
        self.console.says(b"\r\n# ")
        self.types(probe(NONCE) + b"\r")

    def runs(self, command: str = "uname") -> None:
        """Let the shell echo a run, and print the output of its command."""
        self.probes()
        self.console.says(probe(NONCE) + b"\r\n\x1b[?2004l\r" + probe_mark(NONCE) * 2)
        for line in command_lines(command, NONCE):
            self.types(line + b"\r")
            self.console.says(line + b"\r\n")
        self.console.says(mark(b"B" + NONCE.encode()) + b"Linux\r\n")
        self.console.says(mark(b"E%s:0" % NONCE.encode()) + b"# ")

    def log(self, **options: bool) -> bytes:
        reader, text = log_reader(self.shared.journal, LogOptions(**options)), b""
        while (more := reader.read()) is not None:
            text += more
        return text

    def rendered(self) -> str:
        screens = Screens(MemoryRenderer(render), Clock())
        rendering = screens.render(self.shared.journal, ScreenOptions(), "uid")
        return self.successResultOf(Deferred.fromCoroutine(rendering)).decode()


class ShownTests(WrapperCase):
    """What is left of a run."""

    plain = b"# \n# uname\nLinux\n# "

    def test_live(self) -> None:
        """A terminal that is there gets the command and its output; its offsets stay right."""
        self.runs()
        shown = self.screen.since()
        self.assertEqual(strip(shown), self.plain.replace(b"\n", b"\r\n"))
        self.assertEqual(len(shown), self.shared.journal.end)

    def test_later(self) -> None:
        """So do terminals that open later, resume anywhere, plain logs and screens."""
        self.runs()
        self.assertEqual(
            strip(self.watch(user="ann", options=CONSOLE).since()).replace(b"\r", b""), self.plain
        )
        viewer, stream = self.attach(user="ann", options=CONSOLE)
        whole = stream.output
        for offset in range(0, len(whole), 7):
            viewer.away()
            self.assertEqual(self.resume(viewer, offset, options=CONSOLE).output, whole[offset:])
        self.assertEqual(self.log(plain=True), self.plain)
        self.assertEqual(self.rendered(), "#\n# uname\nLinux\n#\n")

    def test_complete(self) -> None:
        """The log and sessions without a terminal have all bytes, and the journal has an event of what is hidden."""
        self.runs()
        log = self.log()
        self.assertIn(b"\r\n# " + probe(NONCE) + b"\r\n", log)
        self.assertEqual(bytes(self.run.got), log)
        self.assertEqual(self.watch(user="ann").since(), log)
        events = list(self.shared.journal.events(0, len(log), EventKind.HIDDEN))
        hidden = b"".join(
            log[first : first + size] for each in events for first, size in each.data["ranges"]
        )
        (line,) = command_lines("uname", NONCE)
        self.assertEqual(hidden, probe(NONCE) + b"\r\n\r" + line.replace(b"uname", b"", 1))

    def test_last_lines(self) -> None:
        """The last lines of a plain log are those that it shows."""
        for _ in range(3):
            self.runs()
            self.run.drop()
            self.run = self.watch(user="ann", options=RUN)
        plain = self.log(plain=True).splitlines(keepends=True)
        for count in range(len(plain) + 2):
            reader = log_reader(self.shared.journal, LogOptions(plain=True, tail_lines=count))
            text = b""
            while (more := reader.read()) is not None:
                text += more
            self.assertEqual(text, b"".join(plain[-count:] if count else []), count)

    def test_not_announced(self) -> None:
        """What a session types that announced no run, or another one, stays, as of earlier clients."""
        for options in (StreamOptions(), StreamOptions(run="00000000")):
            self.run.drop()
            self.run = self.watch(user="ann", options=options)
            self.screen.since()
            self.runs()
            self.assertIn(probe(NONCE), self.screen.since())

    def test_other_session(self) -> None:
        """Another session that types the lines of a run hides nothing."""
        self.types(WAKE)
        self.screen.viewer.data_received(probe(NONCE) + b"\r")
        self.console.says(probe(NONCE) + b"\r\n")
        self.assertIn(probe(NONCE), self.screen.since())

    def test_machine(self) -> None:
        """A machine that prints lines of a run before they are typed, or once more, hides nothing."""
        self.console.says(probe(NONCE) + b"\r\nsecret\r\n")
        self.runs()
        self.console.says(probe(NONCE) + b"\r\nsecret\r\n")
        shown = self.screen.since()
        self.assertEqual((shown.count(probe(NONCE)), shown.count(b"secret")), (2, 2))

    def test_denied_input(self) -> None:
        """Input that does not reach the machine hides nothing that the machine prints."""
        bob = self.watch(options=RUN)
        for line in (WAKE, probe(NONCE) + b"\r"):
            bob.viewer.data_received(line)
        self.console.says(probe(NONCE) + b"\r\nsecret\r\n")
        self.assertIn(probe(NONCE), self.screen.since())


class HeldTests(WrapperCase):
    """Output that may begin an echo."""

    def test_held_back(self) -> None:
        """It waits for the rest of the echo, on screens only."""
        self.probes()
        self.screen.since()
        self.run.since()
        self.console.says(probe(NONCE)[:20])
        self.assertEqual((self.screen.since(), self.run.since()), (b"", probe(NONCE)[:20]))
        self.assertEqual(self.rendered(), "#\n#\n")
        self.console.says(b"[ 1.0] usb\r\n")
        self.assertEqual(self.screen.since(), probe(NONCE)[:20] + b"[ 1.0] usb\r\n")

    def test_byte_by_byte(self) -> None:
        """A slow line ends with the same text."""
        self.runs()
        expected = self.screen.since()
        self.run.drop()
        self.run = self.watch(user="ann", options=RUN)
        self.screen.since()
        begin = self.shared.journal.end
        says = self.console.says
        self.console.says = lambda data: [says(bytes([each])) for each in data]  # type: ignore
        self.runs()
        self.assertEqual(self.screen.since(), expected.removeprefix(b"# "))
        self.assertEqual(self.shared.journal.shown_end, self.shared.journal.end)
        self.assertEqual(self.shared.journal.end, begin + len(expected) - 2)

    def types_slowly(self, line: bytes) -> None:
        """Type a line in pieces, each of which the shell echoes at once."""
        for at in range(0, len(line), 20):
            self.clock.advance(0.1)
            piece = line[at : at + 20]
            self.types(piece)
            self.console.says(piece.replace(b"\r", b"\r\n"))

    def test_typed_slowly(self) -> None:
        """A wrapper is hidden also if the machine echoes its beginning long before its end is typed."""
        for command in ("uname", "uname " + "x" * 1000):
            self.screen.since()
            self.types(WAKE)
            self.console.says(b"\r\n# ")
            self.types_slowly(probe(NONCE) + b"\r")
            self.console.says(b"\x1b[?2004l\r" + probe_mark(NONCE) * 2)
            for line in command_lines(command, NONCE):
                self.types_slowly(line + b"\r")
            self.console.says(mark(b"B" + NONCE.encode()) + b"Linux\r\n")
            self.console.says(mark(b"E%s:0" % NONCE.encode()) + b"# ")
            shown = strip(self.screen.since()).replace(b"\r", b"")
            self.assertEqual(shown, b"\n# %s\nLinux\n# " % command.encode())
            self.assertEqual(self.shared.journal.shown_end, self.shared.journal.end)

    def test_not_typed_to_the_end(self) -> None:
        """The beginning of a line is shown when it goes on otherwise, and in any case after a limited time."""
        self.probes()
        self.console.says(probe(NONCE) + b"\r\n\x1b[?2004l\r" + probe_mark(NONCE))
        self.screen.since()
        (line,) = command_lines("uname", NONCE)
        self.types_slowly(line[:40])
        self.assertEqual(self.screen.since(), b"")
        self.types_slowly(b"\x03")
        self.types_slowly(b"\r")
        self.assertIn(line[:40], self.screen.since())
        self.probes()
        self.console.says(probe(NONCE) + b"\r\n\x1b[?2004l\r" + probe_mark(NONCE))
        self.screen.since()
        for at in range(int(LINE_SECONDS / ECHO_SECONDS) + 2):
            self.types_slowly(line[at : at + 1])
            self.clock.advance(ECHO_SECONDS - 1)
        self.assertIn(line[:4], self.screen.since())

    def test_without_echo(self) -> None:
        """If the line loses a part of an echo, the output of the command does not wait."""
        self.probes()
        self.console.says(probe(NONCE) + b"\r\n\x1b[?2004l\r" + probe_mark(NONCE))
        for line in command_lines("uname", NONCE):
            self.types(line + b"\r")
            self.console.says(line[:10] + b"?" + line[10:] + b"\r\n")
        for piece in (mark(b"B" + NONCE.encode()), mark(b"E%s:0" % NONCE.encode()), b"# "):
            for byte in piece:
                self.console.says(bytes([byte]))
        self.assertTrue(self.screen.since().endswith(b"# "))
        self.assertEqual(self.shared.journal.shown_end, self.shared.journal.end)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_expires(self) -> None:
        """The beginning of an echo that does not go on is shown, and what comes later is no echo."""
        self.probes()
        self.console.says(probe(NONCE)[:20])
        reader = log_reader(self.shared.journal, LogOptions(plain=True, follow=True))
        while reader.read() is not None:
            pass
        self.screen.since()
        changes: list[bytes | None] = []
        self.shared.journal.watch(lambda: changes.append(reader.read()))
        self.clock.advance(ECHO_SECONDS)
        self.assertEqual((self.screen.since(), changes), (probe(NONCE)[:20], [probe(NONCE)[:20]]))
        self.console.says(probe(NONCE)[20:] + b"\r\n")
        self.assertEqual(self.screen.since(), probe(NONCE)[20:] + b"\r\n")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_ends(self) -> None:
        """A session that ends gets what is held back, and so do logs and screens when the line ends."""
        self.probes()
        self.console.says(probe(NONCE)[:20])
        self.shared.end(Ending(MACHINE_DELETED, "deleted"))
        self.assertTrue(bytes(self.screen.got).endswith(probe(NONCE)[:20]))
        self.assertIsNotNone(self.screen.ending)
        self.assertTrue(self.log(plain=True).endswith(probe(NONCE)[:20]))

    def test_much_output(self) -> None:
        """Behind much other output no echo is looked for."""
        self.probes()
        for _ in range(5):
            self.console.says(b"x" * (32 << 10))
        self.screen.since()
        self.console.says(probe(NONCE) + b"\r\n")
        self.assertEqual(self.screen.since(), probe(NONCE) + b"\r\n")

    def test_notices(self) -> None:
        """Messages do not wait for output that is held back."""
        _, stream = self.attach(user="ann", options=CONSOLE)
        self.probes()
        self.console.says(probe(NONCE)[:20])
        self.watch(user="bob", options=StreamOptions(force=True))
        self.assertTrue(any("bob" in each for each in stream.notices), stream.notices)

    def test_resumed(self) -> None:
        """A run whose connection is lost between two pieces of a line goes on hidden."""
        viewer, _ = self.attach(user="ann", options=RUN)
        viewer.data_received(WAKE)
        self.console.says(b"\r\n# ")
        viewer.data_received(probe(NONCE)[:20])
        viewer.away()
        self.resume(viewer, 0, options=RUN)
        viewer.data_received(probe(NONCE)[20:] + b"\r")
        self.screen.since()
        self.console.says(probe(NONCE) + b"\r\n" + probe_mark(NONCE))
        self.assertEqual(strip(self.screen.since()), b"")
