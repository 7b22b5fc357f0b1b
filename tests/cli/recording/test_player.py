"""
Tests for :mod:`twisted_exec.cli.recording.player`.
"""

from __future__ import annotations

import io
import os
import re
import select
import signal
import termios

from twisted.trial.unittest import SynchronousTestCase

from tests.recording.support import NOW, SECOND, Entry, record
from twisted_exec.cli.recording.player import Controls, Player, ask, play, resizes

ENTRIES: list[Entry] = [
    (NOW, b"one "),
    (NOW + 2 * SECOND, b"two "),
    (NOW + 100 * SECOND, b"three "),
    (NOW + 101 * SECOND, b"fo"),
    (NOW + 101 * SECOND, b"ur"),
]
BEGIN = NOW // 1_000_000
RESET = b"\x1bc"
_ROW = re.compile(rb"\x1b7.*\x1b\[7m(.*)\x1b\[0m\x1b8\Z")


def player(entries: list[Entry] = ENTRIES, speed: float = 1.0, idle: float = 0.0) -> Player:
    return Player(io.BytesIO(record(entries)), speed=speed, idle_seconds=idle)


class PlayerTests(SynchronousTestCase):
    """Tests for :class:`Player`."""

    def test_pace(self) -> None:
        """Output comes when it came."""
        playing = player()
        self.assertEqual(playing.advance(0), b"one ")
        self.assertEqual(playing.wait_seconds(), 2)
        self.assertEqual(playing.advance(1.5), b"")
        self.assertEqual(playing.advance(0.5), b"two ")
        self.assertEqual(playing.advance(200), b"three four")
        self.assertTrue(playing.ended)

    def test_speed(self) -> None:
        """Time passes faster or slower, within limits."""
        playing = player(speed=4)
        self.assertEqual(playing.advance(0.5), b"one two ")
        for _ in range(20):
            playing.faster(2)
        self.assertEqual(playing.speed, 64)
        for _ in range(20):
            playing.faster(0.5)
        self.assertEqual(playing.speed, 0.25)

    def test_idle(self) -> None:
        """Long pauses are shortened, short ones are not."""
        playing = player(idle=3)
        playing.advance(0)
        self.assertEqual(playing.wait_seconds(), 2)
        self.assertEqual(playing.advance(2), b"two ")
        self.assertEqual(playing.wait_seconds(), 3)
        self.assertEqual(playing.advance(3), b"three ")

    def test_pause(self) -> None:
        """While paused, time stands still; single steps go on."""
        playing = player()
        playing.is_paused = True
        self.assertEqual((playing.advance(500), playing.wait_seconds()), (b"", None))
        self.assertEqual(playing.step() + playing.step(), b"one two ")
        playing.is_paused = False
        self.assertEqual(playing.wait_seconds(), 98)

    def test_seek(self) -> None:
        """After a seek the terminal has the output before, and playing goes on from there."""
        playing = player()
        self.assertEqual(playing.seek(BEGIN + 50_000), RESET + b"one two ")
        self.assertEqual(playing.wait_seconds(), 50)
        self.assertEqual(playing.seek(BEGIN - 5), RESET + b"one ")
        self.assertEqual(playing.seek(BEGIN + 10**9), RESET + b"one two three four")
        self.assertTrue(playing.ended)

    def test_seek_in_long_recording(self) -> None:
        """A seek prints a bounded part of what was before."""
        entries: list[Entry] = [(NOW + n * SECOND, b"%07d " % n * 4096) for n in range(100)]
        output = player(entries).seek(BEGIN + 90_500)
        self.assertTrue(output.endswith(b"0000090 "))
        self.assertIn(b"0000080 ", output)
        self.assertNotIn(b"0000040 ", output)

    def test_search(self) -> None:
        """The next output with a text is found, also if it was printed in parts."""
        playing = player()
        self.assertEqual(playing.search(b"three"), RESET + b"one two three ")
        self.assertEqual(playing.search(b"four"), RESET + b"one two three four")
        self.assertIsNone(player().search(b"five"))
        playing = player()
        playing.advance(50)
        self.assertIsNone(playing.search(b"one"))

    def test_nothing_printed(self) -> None:
        """A recording without output ends at once."""
        playing = player([])
        self.assertEqual((playing.advance(1), playing.seek(BEGIN), playing.ended)[2], True)
        self.assertIsNone(playing.search(b"x"))


class ControlsTests(SynchronousTestCase):
    """Tests for :class:`Controls`."""

    def test_keys(self) -> None:
        """Each key does as the description says."""
        playing = player()
        controls = Controls(playing, lambda: b"three")
        self.assertEqual(controls.pressed(b"."), b"one ")
        controls.pressed(b"+")
        self.assertEqual(playing.speed, 2)
        controls.pressed(b"-")
        self.assertEqual(playing.speed, 1)
        self.assertEqual(controls.pressed(b"\x1b[C"), RESET + b"one two ")
        self.assertEqual(controls.pressed(b"\x1b[D"), RESET + b"one ")
        self.assertEqual(controls.pressed(b"/"), RESET + b"one two three ")
        self.assertEqual(controls.pressed(b"?"), b"")
        self.assertFalse(controls.quit)
        controls.pressed(b"q")
        self.assertTrue(controls.quit)

    def paused(self, output: bytes) -> tuple[bytes, str]:
        """Return what draws the screen, and the row that says that the player is paused."""
        row = _ROW.search(output)
        assert row is not None, output
        return output[: row.start()], row[1].decode().strip()

    def test_paused(self) -> None:
        """A paused player says so in the last row, and where; the row goes when it plays on."""
        playing = player()
        controls = Controls(playing, lambda: b"none")
        playing.advance(1)
        at = "paused at 0:01 of 1:41; space plays"
        self.assertEqual(self.paused(controls.pressed(b" ")), (b"", at))
        self.assertTrue(playing.is_paused)
        self.assertEqual(self.paused(controls.pressed(b"+")), (b"", at))
        drawn = b"\a" + RESET + b"one "
        self.assertEqual(
            self.paused(controls.pressed(b"/")), (drawn, f"not found from here on; {at}")
        )
        self.assertEqual(self.paused(controls.pressed(b"+")), (b"", at))
        at = "paused at 0:02 of 1:41; space plays"
        self.assertEqual(self.paused(controls.pressed(b".")), (RESET + b"one two ", at))
        at = "paused at 0:12 of 1:41; space plays"
        self.assertEqual(self.paused(controls.pressed(b"\x1b[C")), (RESET + b"one two ", at))
        self.assertEqual(controls.pressed(b" "), RESET + b"one two ")
        self.assertFalse(playing.is_paused)
        controls.pressed(b" ")
        self.assertEqual(controls.pressed(b"q"), RESET + b"one two ")

    def test_resized(self) -> None:
        """In a window of another size the row of a paused player is drawn again, in the last row."""
        playing = player()
        controls = Controls(playing, lambda: b"")
        playing.advance(1)
        self.assertEqual(controls.resized(), b"")
        controls.pressed(b" ")
        row = "paused at 0:01 of 1:41; space plays"
        self.assertEqual(self.paused(controls.resized()), (RESET + b"one ", row))
        with resizes() as resized:
            self.assertEqual(select.select([resized], [], [], 0)[0], [])
            os.kill(os.getpid(), signal.SIGWINCH)
            self.assertEqual(select.select([resized], [], [], 20)[0], [resized])

    def test_not_found(self) -> None:
        """A text that the rest of the recording lacks pauses the player, and a row says so."""
        playing = player()
        texts = [b"", b"none"]
        controls = Controls(playing, lambda: texts.pop(0))
        playing.advance(1)
        self.assertEqual(controls.pressed(b"/"), b"\a" + RESET + b"one ")
        self.assertFalse(playing.is_paused)
        row = "not found from here on; paused at 0:01 of 1:41; space plays"
        self.assertEqual(self.paused(controls.pressed(b"/")), (b"\a" + RESET + b"one ", row))
        self.assertTrue(playing.is_paused)
        self.assertEqual(self.paused(controls.pressed(b"n"))[1], row)

    def test_paused_at_end(self) -> None:
        """The last output has no row, since the player ends."""
        playing = player([(NOW, b"one ")])
        controls = Controls(playing, lambda: b"")
        controls.pressed(b" ")
        self.assertEqual(controls.pressed(b"."), RESET + b"one ")
        self.assertTrue(playing.ended)


class PlayTests(SynchronousTestCase):
    """Tests for :func:`play`."""

    def setUp(self) -> None:
        self.user, self.terminal = os.openpty()
        for descriptor in (self.user, self.terminal):
            self.addCleanup(os.close, descriptor)

    def read_until(self, wanted: bytes) -> bytes:
        """The screen's bytes up to these; the kernel may hand over any part of them at a time."""
        screen = b""
        while wanted not in screen:
            readable, _, _ = select.select([self.user], [], [], 20)
            self.assertTrue(readable, screen)
            screen += os.read(self.user, 1000)
        return screen

    def test_bytes(self) -> None:
        """The terminal gets the keys, the bytes that the machine printed, and its settings back."""
        before = termios.tcgetattr(self.terminal)
        playing = player([(NOW, b"one\ntwo"), (NOW, b"\tthree\n")])
        self.assertEqual(play(playing, self.terminal, self.terminal), 0)
        screen = self.read_until(b"\x1b[?25h\r\n")
        keys, _, screen = screen.partition(b"\r\n")
        self.assertRegex(keys, rb"^\[space pauses.* q quits\]$")
        self.assertEqual(screen, b"one\ntwo\tthree\n\x1b[0m\x1b[?25h\r\n")
        self.assertEqual(termios.tcgetattr(self.terminal), before)

    def test_search_prompt(self) -> None:
        """The text to search for is typed in the last row; the row goes, and the cursor comes back."""
        for typed, text in ((b"twx\x7fo\r", b"two"), (b"two\x03", b"")):
            keys, end = os.pipe()
            self.addCleanup(os.close, keys)
            os.write(end, typed)
            os.close(end)
            self.assertEqual(ask(keys, self.terminal), text)
            screen = self.read_until(b"\x1b8")
            self.assertRegex(screen, rb"\A\x1b7.*\x1b\[999;1H.*/\r\x1b\[2K/t\r\x1b\[2K/tw\r")
            self.assertTrue(screen.endswith(b"/two\r\x1b[0m\x1b[2K\x1b[0m\x1b8"), screen)

    def test_begin(self) -> None:
        """Playing begins at the given time; without a terminal for keys it just goes on."""
        keys, end = os.pipe()
        self.addCleanup(os.close, keys)
        os.close(end)
        playing = player(speed=64)
        self.assertEqual(play(playing, keys, self.terminal, BEGIN + 101_000), 0)
        self.assertTrue(self.read_until(b"four").startswith(RESET + b"one two three four"))
