"""
The modes of a terminal that the machine's programs have set, sans I/O.

The output is searched for changes of modes, so that they can be reset at the end.  Sources: xterm's
``ctlseqs``, kitty's keyboard protocol.
"""

from __future__ import annotations

import re
from itertools import pairwise

# Everything else is off in a fresh terminal, or harmless.
# DECAWM, DECTCEM.
_ON_BY_DEFAULT = frozenset({7, 25})
# DECCKM, DECSCNM, DECOM, X10 mouse, alternate screen, DECNKM, mouse and focus reports (1000 to
# 1016).
_OFF_BY_DEFAULT = frozenset(
    {1, 5, 6, 9, 47, 66, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1016}
    # Alternate screens, bracketed paste.
    | {1047, 1049, 2004}
)
_SCREENS = (47, 1047, 1049)
_ENTERING, _LEAVING = (
    [b"\x1b[?%d%s" % (number, way) for number in _SCREENS] for way in (b"h", b"l")
)
LEAVING = re.compile(rb"\x1b\[\?(?:1049|1047|47)l")
"""The end of a full-screen program: the terminal shows its other screen again."""
LEAVING_BYTES = 8
"""Length of the longest such end."""

_REPORTS = frozenset(
    {9, 66, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1016, 2004},
)
"""Modes that change what the terminal sends, and not what it shows."""

# ANSI modes, off in a fresh terminal: IRM, LNM.
_ANSI = frozenset({4, 20})

_LONGEST_BYTES = 64
WHOLE_SCREEN = b"\x1b7\x1b[r\x1b8"
"""Lets the whole screen scroll; DECSTBM would move the cursor."""
_CANCEL = b"\x18"
"""CAN, which ends an unfinished sequence."""
# kitty's keyboard protocol: a full stack loses its oldest entry.
_MOST_PUSHED = 32

_CHANGE = re.compile(
    rb"\x1b(?:"
    rb"\[(?P<private>\??)(?P<modes>[\d;]{1,40})(?P<way>[hl])"
    rb"|\[(?P<margins>[\d;]{0,40})r"
    rb"|\[(?P<colours>[\d;:]{0,40})m"
    rb"|\[>0*4(?:;0*(?P<keys>\d))?m"
    rb"|\[>0*(?P<push>\d{0,3})u"
    rb"|\[<(?P<pop>\d{0,3})u"
    rb"|(?P<keypad>[=>])"
    rb"|\((?P<charset>[0-9A-Z])"
    rb"|(?P<reset>c)"
    rb")"
)


LOOK_BACK_BYTES = 256 << 10
"""How much output :func:`undo_behind` needs."""
_RECENT_BYTES = 32 << 10
"""Output that is searched for all modes: a search takes up to 0.3 us a byte."""
_SETUP_BYTES = 4 << 10
"""Output in which a full-screen program sets its modes."""


def undo_behind(output: bytes) -> bytes:
    """
    Return what resets the modes that are set at the end of an output; empty if there are none.

    Of a full-screen program that began early in a long output, only the modes of its first and of
    the last output are found.
    """
    modes = Modes()
    recent = max(0, len(output) - _RECENT_BYTES)
    entered, left = (
        max(output.rfind(each, 0, recent) for each in sequences)
        for sequences in (_ENTERING, _LEAVING)
    )
    if entered > left:
        modes.feed(output[entered : min(entered + _SETUP_BYTES, recent)])
        modes.feed(_CANCEL)
    modes.feed(output[recent:])
    return modes.undo()


def behind_programs(output: bytes) -> list[bytes]:
    """Cut an output behind the end of each full-screen program; the last piece is the rest, which may be empty."""
    ends = [0, *(match.end() for match in LEAVING.finditer(output)), len(output)]
    return [output[first:end] for first, end in pairwise(ends)]


class Modes:
    """
    Follows the output of one session.

    :ivar margins: parameters of DECSTBM; empty while the whole screen scrolls.
    """

    def __init__(self) -> None:
        self._tail = b""
        self._reset()

    def _reset(self) -> None:
        self._changed: dict[int, bool] = {}
        self._ansi: set[int] = set()
        self.margins = b""
        self._coloured = self._keypad = self._drawing = False
        self._other_keys = b"0"
        self._pushed: list[bytes] = []

    def feed(self, data: bytes) -> None:
        if not self._tail and b"\x1b" not in data:
            return
        window = self._tail + data
        end = 0
        for match in _CHANGE.finditer(window):
            end = match.end()
            self._note(match)
        last = window.rfind(b"\x1b", end)
        # An unfinished sequence continues in the next piece; a long one is not a mode change.
        unfinished = last >= 0 and len(window) - last < _LONGEST_BYTES
        self._tail = window[last:] if unfinished else b""

    def _note(self, match: re.Match[bytes]) -> None:
        kind = match.lastgroup
        if kind == "way":
            for number in filter(None, match["modes"].split(b";")):
                self._note_mode(int(number), match["way"] == b"h", is_ansi=not match["private"])
        elif kind == "margins":
            # Without parameters, or with 0, the whole screen scrolls.
            self.margins = match["margins"] if match["margins"].strip(b"0;") else b""
        elif kind == "colours":
            # SGR without parameters, or with 0, resets everything (ECMA-48, 8.3.117).
            self._coloured = match["colours"].strip(b"0;") != b""
        elif kind == "keypad":
            self._keypad = match["keypad"] == b"="  # DECKPAM; DECKPNM is ">"
        elif kind == "charset":
            self._drawing = match["charset"] != b"B"  # US ASCII (SCS)
        elif kind == "push":
            self._pushed = [*self._pushed, match["push"]][-_MOST_PUSHED:]
        elif kind == "pop":
            # A count of 0 pops no entry, but the slice [-0:] would be the whole list.
            del self._pushed[-int(match["pop"] or 1) or len(self._pushed) :]
        elif kind == "reset":
            self._reset()
        else:
            # XTMODKEYS without a value resets the resource.
            self._other_keys = match["keys"] or b"0"

    def _note_mode(self, number: int, on: bool, *, is_ansi: bool) -> None:
        if is_ansi:
            self._ansi = self._ansi | ({number} & _ANSI) if on else self._ansi - {number}
        elif (number in _ON_BY_DEFAULT and not on) or (number in _OFF_BY_DEFAULT and on):
            self._changed[number] = on
        else:
            # There is one alternate screen, and a program may not leave it with the mode that has
            # switched it on: the rendered state of a console uses 1047, and most programs 1049.
            for each in _SCREENS if number in _SCREENS else (number,):
                self._changed.pop(each, None)

    @property
    def full_screen(self) -> bool:
        """True while an alternate screen is shown, as that of an editor."""
        return any(number in self._changed for number in _SCREENS)

    def undo(self) -> bytes:
        parts = []
        if self._pushed:
            parts.append(b"\x1b[<%du" % len(self._pushed))
        if self._other_keys != b"0":
            parts.append(b"\x1b[>4m")
        # The other screen last: leaving it restores the cursor's place.
        for number in sorted(self._changed, key=lambda number: (number in _SCREENS, number)):
            parts.append(b"\x1b[?%d%s" % (number, b"l" if self._changed[number] else b"h"))
        parts += [b"\x1b[%dl" % number for number in sorted(self._ansi)]
        if self.margins:
            parts.append(WHOLE_SCREEN)  # not before the reset of DECOM, which DECRC would undo
        if self._coloured:
            parts.append(b"\x1b[m")
        if self._keypad:
            parts.append(b"\x1b>")
        if self._drawing:
            parts.append(b"\x1b(B")
        return b"".join(parts)

    def reports(self) -> bytes:
        """Return the output that sets modes for keys, mouse and paste in a fresh terminal."""
        parts = [b"\x1b[?%dh" % number for number in sorted(_REPORTS & self._changed.keys())]
        if self._keypad:
            parts.append(b"\x1b=")
        if self._other_keys != b"0":
            parts.append(b"\x1b[>4;%sm" % self._other_keys)
        parts += [b"\x1b[>%su" % flags for flags in self._pushed]
        return b"".join(parts)
