"""Tests for :mod:`twisted_exec.cli.fleet.tiles`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.console.type_ahead import TYPE_AHEAD_BYTES
from twisted_exec.cli.console.views import first_key
from twisted_exec.cli.fleet.tiles import (
    LEAST_COLUMNS,
    LEAST_ROWS,
    Grid,
    Mode,
    TileRequest,
    TilesModel,
    grid_for,
)


class GridTests(SynchronousTestCase):
    """Tests for :func:`grid_for`."""

    def test_grids(self) -> None:
        """The tiles are as large as possible, and all machines are shown if their tiles get large enough."""
        for size, count, grid in (
            ((80, 25), 1, (1, 1, 80, 24)),
            ((80, 25), 2, (1, 2, 80, 12)),
            ((160, 50), 2, (2, 1, 80, 49)),
            ((160, 50), 4, (2, 2, 80, 24)),
            ((200, 50), 200, (5, 6, 40, 8)),
            ((10, 3), 200, (1, 1, 10, 2)),
        ):
            self.assertEqual(grid_for(*size, count), Grid(*grid), (size, count))

    @given(st.integers(1, 500), st.integers(1, 300), st.integers(1, 500))
    def test_fits(self, columns: int, rows: int, count: int) -> None:
        """All tiles are within the terminal, and none is smaller than the least size if there is room."""
        grid = grid_for(columns, rows, count)
        self.assertGreaterEqual(grid.capacity, 1)
        left, top = grid.place(grid.capacity - 1)
        self.assertLessEqual(left - 1 + grid.width, columns)
        self.assertLessEqual(top - 1 + grid.height, max(1, rows - 1))
        self.assertGreaterEqual(grid.width, min(columns, LEAST_COLUMNS))
        self.assertGreaterEqual(grid.height, min(max(1, rows - 1), LEAST_ROWS))


class ModelTests(SynchronousTestCase):
    """Selecting, marking and typing."""

    def setUp(self) -> None:
        self.model = TilesModel([f"web-{number}" for number in range(10)], 80, 25)

    def press(self, data: bytes) -> list[TileRequest]:
        wishes = []
        while data:
            key, length = first_key(data)
            wishes.append(self.model.key(key, data[:length]))
            data = data[length:]
        return [each for each in wishes if each is not None]

    def test_pages(self) -> None:
        """The page is that of the selected machine; it ends with the last machine."""
        self.assertEqual((list(self.model.page), self.model.grid.columns), ([0, 1, 2, 3, 4, 5], 2))
        self.press(b"\x1b[6~")
        self.assertEqual((list(self.model.page), self.model.selected), ([6, 7, 8, 9], 6))
        self.press(b"\x1b[6~l")
        self.assertEqual(self.model.selected, 9)
        self.press(b"\x1b[H\x1b[A")
        self.assertEqual(self.model.selected, 0)
        self.press(b"jl")
        self.assertEqual(self.model.selected, 3)
        self.assertIn("10 machines, page 1 of 2", self.model.status)

    def test_zoom(self) -> None:
        """One machine fills the terminal, and back."""
        self.press(b"l\r")
        self.assertEqual((list(self.model.page), self.model.grid.height), ([1], 24))
        self.press(b"\r")
        self.assertEqual(len(self.model.page), 6)

    def test_marks(self) -> None:
        """Machines are marked one by one, by page, or all; the number is shown."""
        self.press(b" l l ")
        self.assertEqual(self.model.marked, {0, 1, 2})
        self.assertIn("3 marked", self.model.status)
        self.press(b"a")
        self.assertEqual(self.model.marked, {0, 1, 2, 3, 4, 5})
        self.press(b"a")
        self.assertEqual(self.model.marked, set())
        self.press(b"A")
        self.assertEqual(len(self.model.marked), 10)
        self.press(b"u")
        self.assertEqual(self.model.marked, set())
        self.assertEqual([self.model.title(each) for each in (1, 2)], [" " + " web-1", "> web-2"])

    def test_columns(self) -> None:
        """The left columns of the screens can be left out."""
        self.press(b"<>")
        self.assertEqual(self.model.skip, self.model.grid.width // 2)
        self.press(b">" * 100)
        self.assertEqual(self.model.skip, 400)
        self.press(b"<" * 100)
        self.assertEqual(self.model.skip, 0)

    def test_type(self) -> None:
        """Typing begins after a confirmation that names the number of machines."""
        self.assertEqual(self.press(b" l t"), [])
        self.assertEqual(self.model.status, "type to 2 machines? y or n | web-0, web-1")
        self.assertEqual(self.press(b"y"), [TileRequest.OPEN])
        self.assertIs(self.model.mode, Mode.OPENING)
        self.assertIs(self.model.opened(2, ""), TileRequest.TYPE)
        self.assertEqual(self.model.status, "TYPING to 2 machines; Ctrl-] stops")
        self.model.typing(1, "web-0: gone")
        self.assertEqual(self.model.status, "TYPING to 1 machine; Ctrl-] stops | web-0: gone")
        self.model.typing(0, "web-1: gone")
        self.assertIs(self.model.mode, Mode.BROWSE)
        self.assertIn("web-1: gone", self.model.status)

    def test_recorded(self) -> None:
        """The title says for whom a console is recorded, and the last row how many are."""
        self.press(b"A ty")
        self.model.opened(10, "")
        self.model.recorded = {1: "recorded for ada (masked)"}
        self.assertEqual(self.model.title(1), " *web-1 | recorded for ada (masked)")
        self.assertEqual(self.model.title(2), " *web-2")
        self.assertEqual(self.model.status, "TYPING to 10 machines, 1 recorded; Ctrl-] stops")

    def test_not_confirmed(self) -> None:
        """Any other key than y is no confirmation, also while the consoles are being opened."""
        self.press(b" t")
        self.assertEqual(self.press(b"\r"), [TileRequest.GIVE_UP])
        self.press(b"ty")
        self.assertEqual(self.press(b"x\x1d"), [TileRequest.GIVE_UP])
        self.assertIs(self.model.mode, Mode.BROWSE)

    def test_typed_ahead(self) -> None:
        """Text that is typed before the consoles are open is kept for them; it marks and cancels nothing."""
        self.press(b" ty")
        self.assertEqual(self.press(b"uname -a\x1b[A; history; gr\xc3\xbc\xc3\x9fe\r"), [])
        self.assertIs(self.model.mode, Mode.OPENING)
        self.assertEqual(self.model.marked, {0})
        self.assertIs(self.model.opened(1, ""), TileRequest.TYPE)
        self.assertEqual(self.model.take_ahead(), b"uname -a\x1b[A; history; gr\xc3\xbc\xc3\x9fe\r")
        self.assertEqual(self.model.take_ahead(), b"")
        self.assertEqual(self.model.status, "TYPING to 1 machine; Ctrl-] stops")

    def test_typed_ahead_in_vain(self) -> None:
        """Text that was typed for machines that cannot be opened is sent to no others, and the user reads that."""
        self.press(b" l tyls -la\r")
        self.model.opened(1, "web-1: no")
        self.assertEqual(
            self.model.status,
            "type to the other 1 machine? y or n | web-1: no (what you have typed is not sent)",
        )
        self.assertEqual(self.press(b"ls -la\r"), [])
        self.assertEqual(self.model.marked, {0, 1})
        self.assertIs(self.model.mode, Mode.CONFIRM)
        self.assertEqual(self.press(b"y"), [TileRequest.TYPE])
        self.assertEqual(self.model.take_ahead(), b"")
        self.model.stopped()
        self.press(b"tyls")
        self.model.opened(0, "web-0: no")
        self.assertIn("web-0: no (what you have typed is not sent)", self.model.status)
        self.press(b"tyls\x1dty")
        self.model.opened(2, "")
        self.assertEqual(self.model.take_ahead(), b"")

    def test_typed_on(self) -> None:
        """A y within the text that a user goes on to type does not confirm the smaller number of machines."""
        self.press(b" l tys")
        self.model.opened(1, "web-1: no")
        self.assertIsNone(self.model.key("y", b"y", is_hasty=True))
        self.assertIs(self.model.mode, Mode.CONFIRM)
        self.assertIs(self.model.key("\x03", b"\x03", is_hasty=True), TileRequest.GIVE_UP)
        self.assertEqual(self.press(b" t"), [])
        self.assertIs(self.model.key("y", b"y", is_hasty=True), TileRequest.OPEN)

    def test_typed_far_ahead(self) -> None:
        """Of too much text nothing is sent, because a part of a command may be another command."""
        self.press(b" ty" + b"x" * TYPE_AHEAD_BYTES)
        self.press(b"x")
        self.assertIs(self.model.opened(1, ""), TileRequest.TYPE)
        self.assertEqual(self.model.take_ahead(), b"")
        self.assertEqual(
            self.model.status,
            "TYPING to 1 machine; Ctrl-] stops | what you have typed is not sent",
        )

    def test_nothing_marked(self) -> None:
        """Without a mark nobody types, also not to the selected machine."""
        self.assertEqual(self.press(b"ty"), [])
        self.assertIs(self.model.mode, Mode.BROWSE)

    def test_partly_open(self) -> None:
        """If some consoles fail, the smaller number is confirmed again."""
        self.press(b" l l ty")
        self.assertIsNone(self.model.opened(2, "web-1: no"))
        self.assertEqual(self.model.status, "type to the other 2 machines? y or n | web-1: no")
        self.assertEqual(self.press(b"y"), [TileRequest.TYPE])
        self.model.stopped()
        self.press(b"ty")
        self.assertIs(self.model.opened(0, "web-1: no"), TileRequest.GIVE_UP)
        self.assertIs(self.model.mode, Mode.BROWSE)

    def test_read_only(self) -> None:
        """With --read-only nobody types."""
        self.model = TilesModel(["a"], 80, 25, may_type=False)
        self.press(b" t")
        self.assertIs(self.model.mode, Mode.BROWSE)
        self.assertIn("start without --read-only", self.model.status)

    def test_leave(self) -> None:
        """q, Ctrl-C and Ctrl-] leave; a key ends the help."""
        for key in (b"q", b"\x03", b"\x1d"):
            self.assertEqual(self.press(key), [TileRequest.LEAVE])
        self.assertEqual(self.press(b"?q"), [])
        self.assertIs(self.model.mode, Mode.BROWSE)
