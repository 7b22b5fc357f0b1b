"""
Screens beside xterm.js: our emulator and the headless package of xterm.js show the same.

Programs are recorded in a pseudo-terminal; U-Boot, GRUB and a kernel that boots at a serial line of QEMU.  A
screen is compared after each key.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.interop import grub
from tests.screens.test_rendering import state_of
from twisted_exec.runtimes.qemu.driver import FIRMWARE
from twisted_exec.screens.emulator import AvtScreen
from twisted_exec.screens.screen import Screen

Cell = tuple[str, int, Any, Any, frozenset[str]]
"""Character, width, foreground, background and attributes."""
Shown = tuple[list[list[Cell]], list[int]]
"""The cells of each row, and row and column of the cursor."""

COLUMNS, ROWS = 80, 24
_QEMU = ("qemu-system-x86_64", "-nographic", "-vga", "none", "-net", "none")
_BLANK: Cell = (" ", 1, None, None, frozenset())
_FLAGS = ("bold", "faint", "italic", "underline", "strikethrough", "blink", "inverse")
_SHOWN_ON_BLANKS = frozenset({"underline", "strikethrough", "inverse"})
_QUIET_SECONDS, _MOST_SECONDS = 1.0, 30.0

TEXT = Path(__file__).read_text()
PROGRAMS: dict[str, tuple[list[str], list[bytes]]] = {
    "vim": (
        ["vim", "-u", "NONE", "-c", "syntax on", "FILE"],
        [
            *(b"\x06", b":split\r", b"10dd", b"ihello w\xc3\xb6rld \xe6\xbc\xa2\x1b", b"u"),
            *(b":set number hlsearch\r/def\r", b":help\r", b":qall!\r"),
        ],
    ),
    "less": (["less", "FILE"], [b" ", b"/import\r", b"n", b"b", b"G", b"h", b"q"]),
    "tmux": (
        ["tmux", "-L", "screens", "-f", "/dev/null", "new", "bash --norc"],
        [
            *(b"ls --color=always -l /\r", b"\x02%", b"less FILE\r", b'\x02"', b"\x02[", b"q"),
            b"tmux -L screens kill-server\r",
        ],
    ),
    "htop": (["htop"], [b"\x1b[B", b"t", b"h", b"q"]),
    "bash": (
        ["bash", "--norc"],
        [b"ls --color=always -l /\r", b"seq 1 100\r", b"clear\r", b"x" * 200, b"\x01", b"\x0b"],
    ),
}
"""The arguments, and the keys that are typed one after the other."""

SEQUENCES = (
    *(b"text ", b"abcdefghijklmnopqrstuvwxyz", b"\xc3\xa9", b"\xe6\xbc\xa2", b"\r\n", b"\n", b"\r"),
    *(b"\t", b"\b", b"\x7f", b"\x1b[2J", b"\x1b[J", b"\x1b[1J", b"\x1b[K", b"\x1b[1K", b"\x1b[3J"),
    *(b"\x1b[H", b"\x1b[4;7H", b"\x1b[2A", b"\x1b[3B", b"\x1b[5C", b"\x1b[2D", b"\x1b[10G"),
    *(b"\x1b[3d", b"\x1b7", b"\x1b8", b"\x1b[s", b"\x1b[u", b"\x1bM", b"\x1bD", b"\x1bE"),
    *(b"\x1b[2S", b"\x1b[1T", b"\x1b[2P", b"\r\x1b[4@", b"\x1b[3X", b"\x1b[2I", b"\x1b[1Z"),
    *(b"\x1b(0qqx\x1b(B", b"\x1b)0\x0eqqx\x0f", b"\x1bc", b"\x1b[!p", b"\x1b]0;title\x07"),
    *(b"\x18", b"\x1b[?25l", b"\x1b[0m", b"\x1b[31m", b"\x1b[38;5;99m", b"\x1b[8;3;10t"),
)
"""Sequences whose effects are the same, in any order."""
ALTERNATE = (b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?1047h", b"\x1b[?1047l")
MARGINS = (b"\x1b[3;6r", b"\x1b[r")
"""These two groups not in one output: see :data:`DIFFERENCES`."""

DIFFERENCES = {
    "erased cells keep underline and inverse": b"\x1b[4m\x1b[K",
    "a row that is longer than the screen, in inverse": b"\x1b[24H\x1b[7m" + b"x" * 100,
    "SD fills with the background": b"\x1b[44m\x1b[T",
    "IL and DL keep the column": b"abc\x1b[L",
    "REP after a control character": b"abc\t\x1b[3b",
    "wide characters in insert mode": b"x\xe6\xbc\xa2\r\x1b[4h\xe6\xbc\xa2",
    "insertion within a wide character": b"\xe6\xbc\xa2\b\x1b[4@",
    "the last column without automatic wrap": b"x" * 80 + b"\x1b[?7l\x1b[80Gx\x1b[J",
    "a cursor that was never saved": b"\x1b[?6h\x1b8\x1b[3;6r",
    "tab stops of the alternate screen": b"\x1b[3g\x1b[?1049h\t",
    "scroll region of the alternate screen": b"\x1b[3;6r\x1b[?1049h\x1b[3d\x1b[2A",
    "restored character sets": b"\x1b7\x1b(0\x1b8x",
    "IND in newline mode": b"ab\x1b[20h\x1bDc",
    "DECALN keeps the cursor": b"ab\x1b#8",
    "styles of underlines": b"\x1b[4:3mx",
    "underlined links": b"\x1b]8;;http://x\x1b\\x",
    "the diamond of line drawing": b"\x1b(0`",
    "emoji": b"\xf0\x9f\x98\x80",
    "combining characters": b"x\xcc\xa3y",
    "bytes that are not UTF-8": b"\x9b31mx",
}
"""The documented differences: docs/reference/screens.rst."""


def visible(cell: Cell) -> Cell:
    """Return a cell without what nobody sees."""
    character, width, _, background, flags = cell
    if character == " " and not flags & _SHOWN_ON_BLANKS:
        return character, width, None, background, frozenset()
    return cell


def cells(screen: Screen) -> list[list[Cell]]:
    """Return the cells of a screen, without the second halves of wide characters."""
    found = []
    for runs in screen.lines:
        row: dict[int, Cell] = dict.fromkeys(range(screen.columns), _BLANK)
        for run in runs:
            style = run.style
            flags = frozenset(name for name in _FLAGS if getattr(style, name))
            for number, character in enumerate(run.text):
                column = run.column + number * run.width
                row[column] = character, run.width, style.foreground, style.background, flags
                if run.width == 2:
                    row.pop(column + 1, None)
        found.append([visible(row[column]) for column in sorted(row)])
    return found


def ours(output: bytes, columns: int = COLUMNS, rows: int = ROWS) -> Shown:
    """Return what our emulator shows."""
    emulator = AvtScreen(columns, rows)
    emulator.feed(output.decode("utf-8", "replace"))
    screen = emulator.screen()
    return cells(screen), [screen.cursor.row, screen.cursor.column]


class XTerm:
    """A process with xterm.js."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("xterm.js")
        self._process = subprocess.Popen(
            ["node", str(script), needs.xterm_module()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def shown(self, output: bytes, columns: int = COLUMNS, rows: int = ROWS) -> Shown:
        """Return what xterm.js shows."""
        job = {"columns": columns, "rows": rows, "output": base64.b64encode(output).decode()}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        found = [
            [visible((*cell[:4], frozenset(cell[4]))) for cell in row if cell[1]]
            for row in answer["rows"]
        ]
        return found, answer["cursor"]

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def recorded(
    argv: Sequence[str], keys: Sequence[bytes], *, quiet_seconds: float = _QUIET_SECONDS
) -> list[bytes]:
    """
    Run a program in a terminal.

    :param quiet_seconds: the time without output after which the next key is typed.
    :return: all output until the program was quiet at first, and after each key.
    """
    pid, terminal = pty.fork()
    if not pid:
        os.environ |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}
        os.execvp(argv[0], argv)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    outputs = [_until_quiet(terminal, b"", quiet_seconds)]
    try:
        for key in keys:
            os.write(terminal, key)
            outputs.append(_until_quiet(terminal, outputs[-1], quiet_seconds))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
    return outputs


def _until_quiet(terminal: int, output: bytes, quiet_seconds: float) -> bytes:
    until = time.monotonic() + _MOST_SECONDS
    while time.monotonic() < until and select.select([terminal], [], [], quiet_seconds)[0]:
        try:
            output += os.read(terminal, 65536)
        except OSError:  # the program has ended
            break
    return output


def prefixes(output: bytes) -> list[bytes]:
    """Return the output up to each tenth line, and all of it."""
    lines = output.split(b"\r\n")
    return [b"\r\n".join(lines[:count]) for count in (*range(1, len(lines), 10), len(lines))]


class OracleTests(SynchronousTestCase):
    """The same output, shown by both."""

    skip = needs.xterm()

    def setUp(self) -> None:
        self.xterm = XTerm()
        self.addCleanup(self.xterm.close)

    def assert_same(self, outputs: Sequence[bytes], name: str = "") -> None:
        self.assertTrue(outputs[-1], name)
        for number, output in enumerate(outputs):
            self.assertEqual(ours(output), self.xterm.shown(output), f"{name} after key {number}")
            for position in (len(output), max(0, len(output) - 3)):
                here = f"{name} goes on at byte {position}"
                self.assertEqual(*self.behind_state(outputs[-1], position), here)

    def behind_state(
        self, output: bytes, position: int, columns: int = COLUMNS, rows: int = ROWS
    ) -> tuple[Shown, Shown]:
        """Return what xterm.js shows of our state and the output behind it, and of all output."""
        state = state_of(output[:position], columns, rows)
        rest = output[state["offset"] :]
        beginning = b"$ kubectl console vm\r\n" + b"\r\n" * rows + b"\x1b[H\x1b[2J"
        user = self.xterm.shown(beginning + state["output"].encode() + rest, columns, rows)
        return user, self.xterm.shown(output, columns, rows)

    def test_programs(self) -> None:
        """Editors, pagers, a multiplexer and a process viewer, as far as they are installed."""
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(TEXT)
            file.flush()
            for name, (argv, keys) in PROGRAMS.items():
                if shutil.which(name):
                    words = [word.replace("FILE", file.name) for word in argv]
                    typed = [key.replace(b"FILE", file.name.encode()) for key in keys]
                    self.assert_same(recorded(words, typed), name)

    def test_u_boot(self) -> None:
        """A boot loader."""
        argv = ["qemu-system-x86_64", "-nographic", "-net", "none", "-bios", FIRMWARE]
        self.assert_same(recorded(argv, [b" ", b"help\r", b"version\r", b"xyz\x08\x08"]), "U-Boot")

    test_u_boot.skip = needs.qemu()  # type: ignore[attr-defined]

    def test_grub(self) -> None:
        """The menu of a boot loader with a colour and a frame, its editor and its command line."""
        disk = grub.disk(self.mktemp())
        argv = [*_QEMU, "-drive", f"format=raw,file={disk}"]
        keys = [
            b"\x1b[B",
            b"\x1b[B",
            b"e",
            b"abc\x0b",
            b"\x1b",
            b"c",
            b"help\r",
            b"ec\t",
            b"echo x\r",
        ]
        self.assert_same(recorded(argv, keys), "GRUB")

    test_grub.skip = needs.qemu() or needs.grub()  # type: ignore[attr-defined]

    def test_kernel(self) -> None:
        """What Linux prints while it boots, until it finds no disk; and the same with colours."""
        printed = recorded(
            [
                *_QEMU,
                "-m",
                "512",
                "-kernel",
                needs.kernel(),
                "-append",
                "console=ttyS0 panic=-1 " * 8,
                "-no-reboot",
            ],
            [],
            quiet_seconds=8,
        )[-1]
        self.assertIn(b"Kernel panic", printed)
        lines = printed.split(b"\r\n")
        self.assertGreater(max(map(len, lines)), COLUMNS)
        self.assert_same(prefixes(printed), "Linux")
        with tempfile.NamedTemporaryFile() as file:
            # Levels from critical on: alerts are inverse, see DIFFERENCES.
            file.writelines(b"<%d>%s\n" % (2 + n % 6, line) for n, line in enumerate(lines))
            file.flush()
            coloured = recorded(["dmesg", "--color=always", "--file", file.name], [])[-1]
        self.assertIn(b"\x1b[31m", coloured)
        self.assert_same(prefixes(coloured), "dmesg")

    test_kernel.skip = needs.qemu() or needs.no_kernel()  # type: ignore[attr-defined]

    @settings(max_examples=1000, deadline=None)
    @given(
        st.lists(st.sampled_from(SEQUENCES + ALTERNATE), max_size=30)
        | st.lists(st.sampled_from(SEQUENCES + MARGINS), max_size=30)
    )
    def test_sequences(self, sequences: list[bytes]) -> None:
        """Sequences in any order."""
        output = b"".join([b"\x1b7", *sequences])
        self.assertEqual(ours(output, 20, 8), self.xterm.shown(output, 20, 8))

    @settings(max_examples=500, deadline=None)
    @given(st.lists(st.sampled_from(SEQUENCES + ALTERNATE), max_size=30), st.integers(0, 200))
    def test_states(self, sequences: list[bytes], position: int) -> None:
        """A user's terminal that takes over anywhere shows the same as one that has had all output."""
        output = b"".join([b"\x1b7", *sequences])
        self.assertEqual(*self.behind_state(output, position, 20, 8))

    def test_differences(self) -> None:
        """The differences that the documentation lists are there, so that the list is up to date."""
        same = [
            name for name, output in DIFFERENCES.items() if ours(output) == self.xterm.shown(output)
        ]
        self.assertEqual(same, [])
