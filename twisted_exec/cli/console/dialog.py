"""Questions of this program in the terminal, and the view of the scrollback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IReactorTime

from twisted_exec.cli.console.connecting import ERASE, ProgressLine
from twisted_exec.cli.console.display import framed
from twisted_exec.cli.console.views import Key, first_key
from twisted_exec.cli.messages import one_line
from twisted_exec.wire.notices import wrapped_and_cut
from twisted_exec.wire.resize import TerminalSize
from twisted_exec.wire.typed_keys import DroppedKeys

if TYPE_CHECKING:
    from twisted_exec.cli.console.pager import Pager

CANCEL = ("\x03", "\x1b", Key.LEAVE)
"""Ctrl-C, Escape, and the key that leaves."""

_ERASE = ("\x7f", "\b")
_KILL_LINE = "\x15"
_MOST_KEYS = 1024
_LONGEST_LINE = 256
_LEAST_TYPED = 5
"""Columns behind the prompt, as far as its words allow it."""
_USUAL = TerminalSize(80, 24)
# The other screen, without cursor; the plain character set, because the machine may have chosen another.
_BEGIN, _END = "\x1b[?1049h\x1b[?25l\x1b(B\x1b[m\x1b[2J", "\x1b[?25h\x1b[?1049l"
_CLEAR = "\x1b[m\x1b[H\x1b[2J"


class Cover(Protocol):
    """Shows a message over the last rows of a program's screen."""

    def __call__(self, text: str, *, passes: bool = False) -> None: ...


class Dialog:
    """
    A dialog with the user.

    :param moves_cursor: the terminal can erase a line.
    :param mid_line: the cursor is inside a line.
    :param full_screen: the machine's program uses the other screen, so that a view shares it.
    :param asks: false if the dialog only tells something: keys are not for it then.
    :param cover: see :meth:`.Display.cover`; ``None`` on a screen of lines.
    :ivar is_read: the user has pressed a key behind all that the dialog has told.
    :ivar held: such keys, for the session after the dialog.
    :ivar has_asked: the user was asked something, or saw a view.
    """

    def __init__(
        self,
        clock: IReactorTime,
        draw: Callable[[bytes], None],
        size: Callable[[], TerminalSize | None],
        *,
        moves_cursor: bool = False,
        mid_line: bool = False,
        full_screen: bool = False,
        asks: bool = True,
        cover: Cover | None = None,
    ) -> None:
        self.held = b""
        self._asks, self._cover = asks, cover
        self.is_read = True
        self.mid_line = mid_line
        self.full_screen = full_screen
        self.has_asked = False
        self._clock, self._draw_bytes, self._size = clock, draw, size
        self._moves_cursor = moves_cursor
        self._keys: list[Key | str] = []
        self._dropped = DroppedKeys()  # which were too many to be kept
        self._waiting: Deferred[Key | str | None] | None = None

    @property
    def size(self) -> TerminalSize:
        return self._size() or _USUAL

    @property
    def unread_keys(self) -> int:
        unread = (
            len(key) if isinstance(key, str) else 1 for key in self._keys if key not in CANCEL
        )
        return sum(unread) + self._dropped.count

    def typed(self, data: bytes) -> bool:
        """
        Handle keys.

        :return: whether the dialog waits for the user.
        """
        if not self._asks:
            self.held += data.replace(b"\x03", b"")
            if len(self.held) > _MOST_KEYS or self._dropped.count:
                # All of them, because the machine must not receive a part of a line.
                self._dropped.add(self.held)
                self.held = b""
            return False
        is_waiting = self._waiting is not None
        while data:
            if data[0] < 0x80:
                key, length = first_key(data)
            else:
                length = next((at for at, byte in enumerate(data) if byte < 0x80), len(data))
                key = data[:length].decode("utf-8", "replace")
            if key is not None and len(self._keys) < _MOST_KEYS:
                self._keys.append(key)
            elif key is not None and key not in CANCEL:
                self._dropped.add(data[:length])
            data = data[length:]
        if self._keys and self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            waiting.callback(self._keys.pop(0))
        return is_waiting

    def resized(self) -> None:
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            waiting.callback(None)

    def tell(self, lines: str) -> None:
        """Print lines; the last one has no newline."""
        self.is_read = False
        if self._cover is not None:
            self._cover(lines)
            return
        self._draw_bytes(framed(lines, self._size(), mid_line=self.mid_line))
        self.mid_line = False

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show ``what`` and the seconds if the body of the ``with`` statement takes long."""

        def write(text: str) -> None:
            if self._cover is not None:
                self._cover(text.removeprefix(ERASE), passes=True)
                return
            self._begin_line()
            self._draw(text)

        line = ProgressLine(
            self._clock,
            write,
            lambda seconds: f"{what}, {seconds} s (Ctrl-C cancels)",
            lambda: self.size.columns,
            is_plain=not self._moves_cursor,
        )
        try:
            yield
        finally:
            line.stop()

    async def key(self, question: str) -> str:
        """Print a question; return the printable key that answers it, or empty."""
        if self._cover is None:
            self._begin_line()
            self._draw("\r\n".join(_wrapped(question, self.size.columns)))
        key: Key | str | None = None
        while key is None:
            if self._cover is not None:
                self._cover(question, passes=True)
            with self._ending_line(is_on_screen=self._cover is None):
                key = await self._key()
        shown = key if isinstance(key, str) and key.isprintable() else ""
        if self._cover is not None:
            self._cover(f"{question}{shown}")
        else:
            self._draw(f"{shown}\r\n")
        return shown

    async def line(self, prompt: str, row: int = 0, longest: int = _LONGEST_LINE) -> str | None:
        """
        Return a line that the user types; ``None`` if the user cancels it.

        :param row: of the view that is open; 0 without a view.
        :param longest: in characters; the bell rings for further keys, which are ignored.
        """
        cover = None if row else self._cover
        if not row and cover is None:
            self._begin_line()
            *above, prompt = _wrapped(prompt, self.size.columns - _LEAST_TYPED)
            self._draw("".join(f"{each}\r\n" for each in above))
        elif row:
            prompt = prompt[-max(1, self.size.columns - _LEAST_TYPED) :]
        text = ""
        while True:
            columns = self.size.columns
            shown = text[-max(1, columns - len(prompt) - 2) :]
            if cover is not None:
                cover(f"{prompt}{shown}", passes=True)
            else:
                self._draw(f"{f'{chr(27)}[{row};1H' if row else chr(13)}\x1b[K{prompt}{shown}")
            with self._ending_line(is_on_screen=cover is None and not row):
                key = await self._key()
            if key in CANCEL or key is Key.ENTER:
                if cover is not None:
                    cover(f"{prompt}{shown}")
                else:
                    self._draw("" if row else "\r\n")
                return None if key in CANCEL else text
            if key in _ERASE:
                text = text[:-1]
            elif key == _KILL_LINE:
                text = ""
            elif isinstance(key, str) and key.isprintable():
                if len(text + key) > longest:
                    self._draw("\a")
                text = (text + key)[:longest]

    async def view(self, pager: Pager, save: Callable[[str], str], name: str) -> None:
        """
        Show lines until the user closes the view.

        :param save: writes the lines into a file, and returns a message.
        :param name: default name of that file.
        """
        self._draw(_CLEAR if self.full_screen else _BEGIN)
        try:
            while True:
                pager.resize(size := self.size)
                self._draw(pager.frame())
                key = await self._key()
                if key in CANCEL or key == "q":
                    return
                if key == "/":
                    pager.search(await self.line("/", size.rows) or "")
                elif key == "w":
                    path = await self.line(f"Save in [{name}] (Ctrl-C cancels): ", size.rows)
                    pager.message = "nothing was saved" if path is None else save(path or name)
                elif key is not None:
                    pager.press(key)
        finally:
            self._draw(_CLEAR if self.full_screen else _END)

    @contextmanager
    def _ending_line(self, *, is_on_screen: bool) -> Iterator[None]:
        """
        End the line of a question if the session ends before its answer.

        :param is_on_screen: the question is a line of the screen, and not in a view or over a program.
        """
        try:
            yield
        except CancelledError:
            if is_on_screen:
                self._draw("\r\n")
            raise

    def _begin_line(self) -> None:
        if self.mid_line:
            self._draw("\r\n")
        self.mid_line = False

    def _draw(self, text: str) -> None:
        self._draw_bytes(text.encode("utf-8", "replace"))

    def _key(self) -> Deferred[Key | str | None]:
        self.has_asked = self.is_read = True
        if self._keys:
            return succeed(self._keys.pop(0))
        self._waiting = Deferred()
        return self._waiting


def _wrapped(question: str, columns: int) -> list[str]:
    """Return the rows of a question, with the blank at its end, behind which the answer is typed."""
    rows = wrapped_and_cut(question.rstrip(), max(1, columns - 1))
    return [*rows[:-1], f"{rows[-1]} "]


def safe(text: object) -> str:
    """Return a text of a server on one line, without control characters."""
    return one_line(str(text))
