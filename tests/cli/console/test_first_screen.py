"""
Tests for :mod:`twisted_exec.cli.console.first_screen`: sessions over a network in memory.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.screens.test_emulator import PIECES
from tests.screens.test_rendering import MODES, shown, state_of
from tests.streaming.remotecommand.resuming import Client, ResumingUser
from twisted_exec.api.screens import TerminalState
from twisted_exec.api.status import Forbidden, NotFound
from twisted_exec.cli.console import first_screen
from twisted_exec.cli.console.first_screen import WAIT_SECONDS, FirstScreen, Past
from twisted_exec.screens.emulator import AvtScreen
from twisted_exec.streaming.interfaces import Position
from twisted_exec.streaming.remotecommand.stream import ConsoleStream
from twisted_exec.testing.resumable_console import ResumableConsole
from twisted_exec.wire.marks import At, Attendance, Notice, OpenRecording
from twisted_exec.wire.resize import TerminalSize

PLAIN = b"\x1b[?6l\x1b[?7h\x1b[4l\x1b[r\x1b(B\x0f\x1b[m"
CLEAR = b"\r\n" * 4 + b"\x1b[m\x1b[H\x1b[2J"


class ScreenUser(ResumingUser):
    """
    A user that keeps output for the escape menu.

    :ivar kept: output that is kept and not shown.
    :ivar greeted_behind: the number of items before the greeting; ``None`` without one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept = b""
        self.greeted_behind: int | None = None

    def attached(self, stream: Any, *, greets: bool = True) -> None:
        super().attached(stream)
        if greets:
            self.greet()

    def greet(self) -> None:
        self.greeted_behind = len(self.items)

    def notice(self, notice: Notice) -> None:
        assert self.greeted_behind is not None
        super().notice(notice)

    def show(self, data: bytes) -> None:
        self.data_received(data)

    def remember(self, data: bytes) -> None:
        self.kept += data


class Opened:
    """A session whose user sees the screen first."""

    def __init__(self, printed: bytes = b"", oldest: int = 0) -> None:
        self.clock = Clock()
        self.server = ResumableConsole(self.clock)
        self.server.oldest = oldest
        self.server.print(printed)
        self.user = ScreenUser()
        self.size: TerminalSize | None = TerminalSize(20, 4)
        self.requests: list[Deferred[TerminalState]] = []
        self.screen = FirstScreen(
            self.user,  # type: ignore[arg-type]
            self.clock,
            lambda: self.size,
            self.read,
            Past.SCREEN,
        )

    def read(self, config: Any, dialect: Any, size: TerminalSize) -> Deferred[TerminalState]:
        self.requests.append(Deferred())
        return self.requests[-1]

    def open(self) -> None:
        """Ask for the screen, and open the session."""
        ask: Any = self.screen.ask
        ask(None, None)
        self.attach()

    def attach(self) -> None:
        self.end = Client(self.server, self.clock, self.screen)

    def answer(self, offset: int, output: str = "the screen", **more: Any) -> None:
        """Answer the request for the screen."""
        state = {"epoch": self.server.epoch, "columns": 20, "rows": 4, **more}
        self.requests[-1].callback(TerminalState(offset=offset, output=output, **state))
        self.end.pump()

    def print(self, data: bytes) -> None:
        self.server.print(data)
        self.end.pump()


class FirstScreenTests(SynchronousTestCase):
    """The first output of a session."""

    def setUp(self) -> None:
        self.patch(first_screen, "SHORT_BYTES", 0)

    def test_short(self) -> None:
        """All that a console has printed since its beginning is shown as it is, if it is short."""
        self.patch(first_screen, "SHORT_BYTES", 7)
        opened = Opened(b"output")
        opened.open()
        self.assertEqual(opened.user.items, [b"output"])
        self.assertTrue(opened.requests[0].called)  # it is cancelled
        for more in ({"printed": b"longer output"}, {"printed": b"output", "oldest": 1}):
            opened = Opened(**more)
            opened.open()
            self.assertEqual(opened.user.items, [], more)

    def test_cleared(self) -> None:
        """Output from before the session does not empty the user's scrollback, and live output does."""
        printed = b"one\x1b[3J\x1b[H\x1b[2Jtwo\x1b["
        opened = Opened(printed)
        opened.open()
        opened.end.wait(WAIT_SECONDS)
        opened.print(b"3Jthree\x1b[3J")
        shown = b"".join(each for each in opened.user.items if isinstance(each, bytes))
        self.assertEqual(shown, b"one\x1b\\\x1b[H\x1b[2Jtwo\x1b[3Jthree\x1b[3J")

    @given(st.lists(st.sampled_from((b"a", b"\x1b", b"[", b"3", b"J", b"\x1b[3J")), max_size=12))
    def test_cleared_in_pieces(self, pieces: list[bytes]) -> None:
        """So it is wherever the output is split; nothing else is left out."""
        opened = Opened(b"".join(pieces))
        end = len(b"".join(pieces))
        opened.screen.attached(ConsoleStream())
        opened.screen._past_until = end  # of a stream with positions
        for piece in pieces:
            opened.screen.data_received(piece)
        opened.screen.data_received(b"live")
        shown = b"".join(each for each in opened.user.items if isinstance(each, bytes))
        self.assertEqual(shown, b"".join(pieces).replace(b"\x1b[3J", b"\x1b\\") + b"live")

    def test_from_start(self) -> None:
        """The greeting follows the output from before the session, which may clear the screen."""
        for printed in (b"", b"one\x1b[H\x1b[2Jtwo"):
            opened = Opened(printed)
            user = opened.user
            opened.screen = FirstScreen(
                user,  # type: ignore[arg-type]
                opened.clock,
                lambda: None,
                None,
                Past.PRINTED,
            )
            opened.open()
            self.assertEqual(
                (user.items, user.greeted_behind), ([printed] * bool(printed), bool(printed))
            )
            opened.print(b"live")
            self.assertEqual(user.items[-1], b"live")

    def test_from_now(self) -> None:
        """What was printed before the session is hidden, and nothing behind it."""
        for printed in (b"", b"0123456789"):
            opened = Opened(printed)
            opened.screen = FirstScreen(
                opened.user,  # type: ignore[arg-type]
                opened.clock,
                lambda: TerminalSize(20, 4),
                opened.read,
                Past.HIDDEN,
            )
            opened.open()
            self.assertEqual((opened.user.items, opened.requests), ([], []))
            opened.print(b"abc")
            self.assertEqual(opened.user.items, [b"abc"])
            self.assertEqual(opened.user.kept, printed)
            opened.screen.redraw()  # also then a message may have covered rows
            opened.answer(len(printed) + 3)
            self.assertIn(b"the screen", opened.user.items[-1])

    def test_state(self) -> None:
        """The state takes the place of the output before it; then follows each byte behind it."""
        opened = Opened(b"0123456789")
        opened.open()
        self.assertEqual(opened.user.items, [])
        opened.answer(7)
        opened.print(b"abc")
        self.assertEqual(opened.user.items, [CLEAR + b"the screen", b"789", b"abc"])

    def test_refused(self) -> None:
        """
        A state that is refused is asked for once more when the session is open: with an approval for
        one session, only that session shows the screen.
        """
        for is_refused_before in (True, False):
            opened = Opened(b"0123456789")
            ask: Any = opened.screen.ask
            ask(None, None)
            if not is_refused_before:
                opened.attach()
            opened.requests[0].errback(Forbidden("not yet"))
            self.assertEqual(len(opened.requests), 1 if is_refused_before else 2)
            if is_refused_before:
                opened.attach()
            opened.answer(7)
            self.assertEqual(opened.user.items, [CLEAR + b"the screen", b"789"])

    def test_refused_again(self) -> None:
        """A state that is refused twice, or for another reason, is left out."""
        opened = Opened(b"0123456789")
        opened.open()
        for request in range(2):
            opened.requests[request].errback(Forbidden("no"))
        opened.end.pump()
        self.assertEqual(opened.user.items, [b"0123456789"])
        opened = Opened(b"0123456789")
        opened.open()
        opened.requests[0].errback(NotFound("machines", "vm"))
        opened.end.pump()
        self.assertEqual((opened.user.items, len(opened.requests)), ([b"0123456789"], 1))

    def test_asked_elsewhere(self) -> None:
        """A session that is opened in another form of the API asks there, and no more at the first."""
        opened = Opened(b"0123456789")
        ask: Any = opened.screen.ask
        ask(None, None)
        opened.requests[0].errback(Forbidden("not yet"))
        ask(None, None)
        opened.attach()
        self.assertEqual(len(opened.requests), 2)
        opened.answer(7)
        self.assertEqual(opened.user.items, [CLEAR + b"the screen", b"789"])

    def test_first(self) -> None:
        """The state may be there before the session is open, and may be newer than its first output."""
        opened = Opened(b"01234")
        ask: Any = opened.screen.ask
        ask(None, None)
        state = TerminalState(opened.server.epoch, 7, 20, 4, "the screen")
        opened.requests[0].callback(state)
        opened.attach()
        opened.print(b"56789")
        self.assertEqual(opened.user.items, [CLEAR + b"the screen", b"789"])

    def test_without(self) -> None:
        """A refusal, or no answer in time: all output is shown."""
        opened = Opened(b"output")
        opened.open()
        opened.requests[0].errback(NotFound("machines/screen", "vm"))
        opened.end.pump()
        self.assertEqual(opened.user.items, [b"output"])
        opened = Opened(b"output")
        opened.open()
        opened.end.wait(WAIT_SECONDS)
        self.assertEqual(opened.user.items, [b"output"])
        self.assertEqual(opened.requests[0].called, True)  # it is cancelled

    def test_does_not_fit(self) -> None:
        """A state of another size, of another journal, or before all retained output is not shown."""
        for more in ({"columns": 30}, {"rows": 0}, {"epoch": f"{9:016x}"}, {"offset": 1}):
            opened = Opened(b"output", oldest=2)
            opened.open()
            opened.answer(**{"offset": 6, **more})
            self.assertEqual(opened.user.items, [b"tput"], more)

    def test_greeting(self) -> None:
        """The greeting and notices come behind the output of before the session, shown or hidden."""
        opened = Opened(b"output")
        ask: Any = opened.screen.ask
        ask(None, None)
        opened.attach()
        opened.server.notice("banner: ask ops")
        opened.end.pump()
        self.assertEqual((opened.user.greeted_behind, opened.user.notices), (None, []))
        opened.answer(8)
        self.assertEqual((opened.user.greeted_behind, opened.user.notices), (None, []))
        opened.print(b"78")
        self.assertEqual(opened.user.items, [CLEAR + b"the screen"])
        self.assertEqual(
            (opened.user.greeted_behind, opened.user.notices), (1, ["banner: ask ops"])
        )
        opened = Opened(b"output")
        opened.open()
        opened.end.wait(WAIT_SECONDS)
        self.assertEqual((opened.user.items, opened.user.greeted_behind), ([b"output"], 1))
        opened = Opened()
        opened.open()
        opened.answer(0)
        self.assertEqual(opened.user.greeted_behind, 1)

    def test_redraw(self) -> None:
        """The screen can be shown again, in place of the terminal's, with each byte behind it."""
        opened = Opened(b"0123456789")
        opened.open()
        opened.screen.redraw()
        self.assertEqual(len(opened.requests), 1)  # it is on its way
        opened.answer(10)
        opened.screen.redraw()
        opened.print(b"abc")
        opened.answer(12, "again")
        erased = b"".join(b"\x1b[%d;1H\x1b[2K" % row for row in range(1, 5))
        again = b"\x1b[?1049l%b%b\x1b[Hagain" % (PLAIN, erased)
        self.assertEqual(opened.user.items, [CLEAR + b"the screen", again, b"c"])
        opened.screen.redraw()
        opened.print(b"def")
        opened.end.wait(WAIT_SECONDS)
        self.assertEqual(opened.user.items[-1], b"def")

    def test_refresh(self) -> None:
        """
        The picture of a full-screen program can be shown again without the other screen.
        """
        opened = Opened(b"0123456789")
        opened.open()
        opened.answer(10)
        for prefix, picture in (
            ("\x1b[?2004h\x1b=", "\x1b[?1049h\x1b[m\x1b[2Jvi\x1b[1;3H"),
            ("", "\x1b[?1049h\x1b[m\x1b[2Jvi"),
        ):
            self.assertTrue(opened.screen.redraw(is_picture=True))
            opened.answer(10, f"{prefix}# vi\r\n\x1b[m{picture}")
            self.assertEqual(opened.user.items[-1], PLAIN + (prefix + picture).encode())
        opened.screen.redraw(is_picture=True)
        opened.answer(10, f"# vi{picture}")
        self.assertEqual(opened.user.items[-1], PLAIN + picture.encode())
        opened.screen.redraw(is_picture=True)
        opened.answer(10, "# ")  # the program has left
        self.assertTrue(opened.user.items[-1].startswith(b"\x1b[?1049l" + PLAIN))

    def test_redraw_refused(self) -> None:
        """A picture that does not come, or is on its way, leaves the screen as it is."""
        opened = Opened(b"0123456789")
        self.assertFalse(opened.screen.redraw(is_picture=True))
        opened.open()
        self.assertFalse(opened.screen.redraw(is_picture=True))
        opened.answer(10)
        items = list(opened.user.items)
        self.assertTrue(opened.screen.redraw(is_picture=True))
        self.assertFalse(opened.screen.redraw(is_picture=True))
        opened.end.wait(WAIT_SECONDS)
        self.assertTrue(opened.screen.redraw(is_picture=True))
        opened.requests[-1].errback(NotFound("machines", "vm"))
        self.assertEqual(opened.user.items, items)
        self.assertTrue(opened.screen.redraw(is_picture=True))

    def test_not_unicode(self) -> None:
        """A state that is no text does not hold the output back."""
        opened = Opened(b"output")
        opened.open()
        opened.answer(6, "\ud800")
        opened.print(b"more")
        self.assertEqual(opened.user.items, [CLEAR + b"?", b"more"])

    def test_no_positions(self) -> None:
        """A server that cannot resume sessions says no offsets; the output does not wait for the state."""
        opened = Opened()
        ask: Any = opened.screen.ask
        ask(None, None)
        opened.screen.attached(ConsoleStream())
        opened.screen.data_received(b"output")
        self.assertEqual(opened.user.items, [b"output"])
        self.assertTrue(opened.requests[0].called)  # it is cancelled
        self.assertEqual(opened.clock.getDelayedCalls(), [])

    def test_no_size(self) -> None:
        """A terminal without a size is shown the output."""
        opened = Opened(b"output")
        opened.size = None
        opened.open()
        self.assertEqual((opened.requests, opened.user.items), ([], [b"output"]))

    def test_gap(self) -> None:
        """Output that is missing counts only behind the state."""
        opened = Opened(b"0123456789")
        opened.open()
        opened.answer(15)
        opened.end.cut()
        opened.server.print(b"abcdefghijk")
        opened.server.oldest = 18
        opened.end.wait(1)
        self.assertEqual(opened.user.items, [CLEAR + b"the screen", 3, b"ijk"])

    def test_gap_before_the_state(self) -> None:
        """Output of unknown size that is missing before the state is not told: the screen is as it is."""
        for offset, told in ((15, []), (8, [None])):
            opened = Opened(b"0123456789")
            opened.open()
            position = Position(opened.server.epoch, 15)
            opened.server.live[0].mark(At(position, exact=False))
            opened.end.pump()
            opened.answer(offset)
            self.assertEqual([each for each in opened.user.items if each is None], told, offset)

    def test_left(self) -> None:
        """A session that ends before there is a state waits for nothing."""
        opened = Opened(b"output")
        opened.open()
        opened.end.client.leave()
        opened.end.wait(60)
        self.assertEqual(len(opened.user.detached_with), 1)
        self.assertEqual(opened.clock.getDelayedCalls(), [])

    def test_other_events(self) -> None:
        """Notices, viewers, outages and the end arrive as without the state."""
        opened = Opened()
        opened.open()
        opened.answer(0)
        opened.server.notice("hello")
        attendance = Attendance(1, recordings=(OpenRecording("masked", "ada"),))
        opened.server.live[0].mark(attendance)
        opened.end.pump()
        opened.end.cut()
        opened.user.sends_late = False
        self.assertIs(opened.end.user.sends_late, False)
        opened.end.wait(1)
        self.assertEqual(opened.user.notices, ["hello"])
        self.assertEqual(opened.user.attendances, [attendance])
        self.assertEqual((len(opened.user.outages), len(opened.user.returns)), (1, 1))

    @given(
        st.lists(st.sampled_from([*PIECES, *MODES]), max_size=40),
        st.lists(st.integers(0, 500), min_size=2, max_size=2),
    )
    def test_exact(self, pieces: list[bytes], cuts: list[int]) -> None:
        """
        The user's terminal is as one that has got all output, wherever the session and the state begin.

        Both may cut an escape sequence or a character in two.
        """
        output = b"".join(pieces)
        attached, rendered = (min(cut, len(output)) for cut in cuts)
        opened = Opened(output[:attached])
        opened.open()
        state = state_of(output[:rendered])
        opened.answer(state["offset"], state["output"])
        opened.print(output[attached:])
        user, whole = AvtScreen(20, 4), AvtScreen(20, 4)
        user.feed(opened.user.received.decode("utf-8", "replace"))
        whole.feed(output.decode("utf-8", "replace"))
        self.assertEqual(shown(user), shown(whole))
