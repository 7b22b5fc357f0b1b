r"""
Escape sequences in the output of a machine, sans I/O: text without them, and terminal queries.

:class:`Stripper` removes escape sequences, and most control characters.  A newline ends every
sequence, so that text behind an unended one stays visible.  :func:`edited` carries out backspaces, so
that text has what a terminal shows of a line that was edited.

A terminal answers some sequences (*queries*) as if its user had typed the answer, and a shell may
read it later.  :class:`QueryFilter` changes bytes of queries so that terminals do not know them;
positions in the output stay exact, and nothing is held back.

Sources: ECMA-48, 5th edition (5.3 to 5.6 for the forms of sequences); DEC STD 070; xterm's
``ctlseqs``; the keyboard, graphics, colour and clipboard protocols of kitty; iTerm2's "Proprietary
Escape Codes".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache

_SEQUENCE = re.compile(
    rb"\x1b(?:"
    rb"(?<=\x08\x1b)\[0?[JK](?P<erase>)"  # EL and ED, by which shells erase what they moved back over
    rb"|\[[0-?]*[ -/]*(?P<csi>[@-~])?"  # a control sequence (ECMA-48, 5.4)
    rb"|[\]PX^_][^\x07\x18\x1a\x1b\n]*(?P<string>\x07|\x1b\\)?"  # OSC, DCS, SOS, PM, APC
    rb"|[ -/]*(?P<escape>[0-~])?"  # a character set, or one character
    rb")"
    rb"|(?P<control>[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]|\xc2[\x80-\x9f])"
    # A lone C2 as well: when a sequence behind it is removed, it must not meet the next byte.
    rb"|\xc2(?![\xa0-\xbf])"
)
_MOST_HELD_BYTES = 256
_STARTS = bytes(each for each in (*range(0x20), 0x7F, 0xC2) if each not in b"\b\t\r\n")

_ERASE = b"\x0b"
"""The rest of the line is erased; machines' own bytes of this value are removed."""
_EDITED = re.compile(rb"[^\r\n]+")
_EDITS = re.compile(rb"(?P<back>\x08+)|(?P<erase>\x0b)|[^\x08\x0b]+")
_CHARACTER = re.compile(rb"[\xc2-\xf4][\x80-\xbf]{1,3}|[\x00-\xff]")
_MOST_EDITED_BYTES = 1 << 10
"""Bytes of a line that later output may still edit."""

LINES = re.compile(rb"[^\r\n]*(?:\r*\n|\r+)|[^\r\n]+")
"""
Lines of output: a line ends with a newline, with any carriage returns before it, or with carriage
returns alone, by which programs redraw a line.  What has no text and ends without newline is none.
"""

_NEWLINES = re.compile(rb"\n")
_RETURNS = re.compile(rb"\r{2,}")

LOOKBACK_BYTES = 4096
"""How much earlier output to read to tell whether the next byte is inside a sequence."""

_MOST_PARAMETERS = 128
"""A longer control sequence with the final byte of a query counts as a query."""
_MOST_STRING = 64
_LAST_BYTES = 16

# Without CAN and SUB, which abort a sequence, and ESC, which begins one.
_C0 = r"\x00-\x17\x19\x1c-\x1f\x7f"
_C0_IN_COMMANDS = r"\x00-\x06\x08-\x17\x19\x1c-\x1f\x7f"
# All above ASCII but the 8-bit control characters DCS, DECID, CSI, ST, OSC and APC.
_OTHERS = r"\x80-\x8f\x91-\x99\x9e\xa0-\xff"
_KEYS = r"[^;\x18\x1a\x1b\x80-\xff]*"
_KINDS = {"[": r"\x9b", "P": r"\x90", "]": r"\x9d", "_": r"\x9f"}
_EIGHT_BIT_STARTS = (b"\x90", b"\x9b", b"\x9d", b"\x9f")
_HAS_EIGHT_BIT = re.compile(
    # An 8-bit control character counts where it is a character of its own, and not a part of one in
    # UTF-8.  The character first, because so the search is several times faster.
    rb"[\x90\x9a-\x9d\x9f](?:(?<=\xc2.)"
    rb"|(?<![\xc2-\xf4].)(?<![\xe0-\xf4][\x80-\xbf].)(?<![\xf0-\xf4][\x80-\xbf]{2}.))",
    re.DOTALL,
)
_CHARACTERS = (
    (re.compile(rb"[\xf0-\xf4][\x80-\xbf]{3}"), b"\xff" * 4),
    (re.compile(rb"[\xe0-\xf4][\x80-\xbf]{2}"), b"\xff" * 3),
    (re.compile(rb"[\xc3-\xf4][\x80-\xbf]"), b"\xff" * 2),
)
"""Characters of UTF-8 in which a byte may look like an 8-bit control character."""
_NO_EIGHT_BIT = bytes(range(0x80)) + b"\xff" * 0x80
_CUT_CHARACTER = re.compile(rb"(?:[\xc2-\xf4]|[\xe0-\xf4][\x80-\xbf]|[\xf0-\xf4][\x80-\xbf]{2})\Z")
_CONTROLS = bytes(each for each in (*range(0x20), 0x7F) if each not in b"\x18\x1a\x1b")
_IGNORED = _CONTROLS + bytes(range(0x80, 0x100))

# Of operating system commands: those with a value that may be "?" instead, those that are a query
# themselves, and words behind the number.
_ASKING = (4, 5, *range(10, 20), 20, 21, 22, 39, 46, 49, 99, *range(701, 709))
_ABORTED = (50, 52)
"""Commands for the font and the clipboard: xterm sets these to any text but a question mark."""
_WORDS = ("60", "61", "1337;Report", "1337;Capabilities", "1337;RequestUpload")
_QUESTION = re.compile(rf"[;:=,][{_C0_IN_COMMANDS}]*\?".encode("ascii"))

_SIZES = frozenset({b"11", b"13", b"14", b"15", b"16", b"18", b"19", b"20", b"21"})
"""Window operations that report something."""
_IN_BAND_SIZES = b"2048"
"""The mode that makes a terminal report changes of its size."""

# Prefix, intermediate characters and final byte of control sequences that are queries, whatever
# their parameters are.
_CONTROL_SEQUENCES = frozenset(
    {
        *(b"c", b">c", b"=c"),  # DA1, DA2, DA3
        *(b"n", b"?n"),  # DSR
        *(b"$p", b"?$p", b"+p"),  # DECRQM, DECSR
        *(b">q", b"?u", b"?S"),  # XTVERSION, keyboard flags of kitty, XTSMGRAPHICS
        *(b"$u", b"&u", b",u", b"$w", b'"v'),  # DECRQTSR, DECRQUPSS, DECRQKT, DECRQPSR, DECRQDE
        *(b"x", b"*y", b"'|"),  # DECREQTPARM, DECRQCRA, DECRQLP
        *(b"#|", b"#R", b"?g", b"?m"),  # XTREPORTSGR, XTREPORTCOLORS, XTQFMTKEYS, XTQMODKEYS
    }
)
_NUMBERS = re.compile(rb"[0-9]+")

_PROVOKING_KEY = re.compile(
    "[G,][{0}]*(?:a[{0}]*=[{0}]*q|[iI][{0}]*=)".format(_C0).encode("ascii")  # noqa: UP032
)
"""Of graphics of kitty: a query, and the number of an image, which the terminal confirms."""
_MOST_KEYS = 256
"""Bytes of a command's keys, longer than any that a terminal needs: all keys behind these are disarmed at once."""

_TERMINAL_QUERIES_STARTS = {
    "control": b"\x1b[",
    "device": b"\x1bP",
    "command": b"\x1b]",
    "image": b"\x1b_",
    "escape": b"\x1b",
}
_INTRODUCER = re.compile(rb"\A(?:\x1b[\x80-\xff]*[\]_]|[\x80-\x9f])")
_BUT_ASKING = bytes(each for each in range(0x100) if each not in b"$+")
_CONTINUATION = bytes(range(0x80, 0xC0))


def strip(text: bytes) -> bytes:
    """Return a complete text without escape sequences and most control characters, as :func:`edited`."""
    return edited(_stripped(text))


def _stripped(text: bytes) -> bytes:
    if _is_plain(text):
        return text
    return _SEQUENCE.sub(_erase if b"\b\x1b" in text else b"", text)


def _erase(match: re.Match[bytes]) -> bytes:
    return _ERASE if match.lastgroup == "erase" else b""


def edited(text: bytes) -> bytes:
    """
    Carry out the backspaces of a stripped text.

    A backspace goes back by one character, not beyond the line's start, and the next text overwrites.  Blanks that
    were written over the end of a line are no part of it.
    """
    return _EDITED.sub(_edited_line, text) if b"\b" in text else text


def _edited_line(match: re.Match[bytes]) -> bytes:
    line = match[0]
    if b"\b" not in line:
        return line
    characters: list[bytes] = []
    at = 0
    for edit in _EDITS.finditer(line):
        if edit.lastgroup == "back":
            at = max(0, at - len(edit[0]))
        elif edit.lastgroup == "erase":
            del characters[at:]
        else:
            written = _CHARACTER.findall(edit[0])
            end = at + len(written)
            characters[at:end] = written
            at = end
    rest = b"".join(characters[at:])
    return b"".join(characters[:at]) + (rest if rest.strip(b" ") else b"")


def _is_plain(text: bytes) -> bool:
    return len(text.translate(None, _STARTS)) == len(text)


def line_starts(output: bytes) -> list[int]:
    """
    Return where lines of some output begin, as far as it has their ends before them.

    :param output: begins with a line, and not with the newline after a carriage return.
    """
    starts: list[int] = []
    if b"\r" not in output.replace(b"\r\n", b"\n"):
        return [each.end() for each in _NEWLINES.finditer(output)]
    is_redrawn = False
    for line in LINES.finditer(output):
        ends = line[0].endswith(b"\n")
        if not ends and not (line[0].endswith(b"\r") and _stripped(line[0].rstrip(b"\r"))):
            continue
        if is_redrawn and ends and not _stripped(line[0].rstrip(b"\r\n")):
            starts.pop()  # only sequences are between the carriage return and its newline
        starts.append(line.end())
        is_redrawn = not ends
    return starts


class Stripper:
    """
    Removes the sequences of a stream that is split anywhere.  Its text is for :func:`edited`.

    :ivar undecided: number of bytes at the end of the stream that begin an unfinished sequence.
    """

    def __init__(self) -> None:
        self._held = self._previous = b""
        self.undecided = 0

    def feed(self, data: bytes) -> bytes:
        """
        Return the text of ``data``.  An incomplete sequence at its end waits for the next call.
        """
        if not self._held and _is_plain(data):
            self._previous = data[-1:] or self._previous
            return data
        before = self._previous if self._previous == b"\b" else b""
        window = before + self._held + data
        not_held = self.undecided - len(self._held)
        self._held, self.undecided, self._previous = b"", 0, window[-1:]
        end = len(window)

        def removed(match: re.Match[bytes]) -> bytes:
            # Each complete form ends with a group.
            if match.end() == end and match.lastgroup is None:
                self._held, start = match[0], match.start()
                self._previous = window[max(0, start - 1) : start]
                self.undecided = len(match[0]) + (not_held if start == len(before) else 0)
            return _erase(match)

        text = _SEQUENCE.sub(removed, window)[len(before) :]
        if len(self._held) > _MOST_HELD_BYTES:
            # Only the kind of sequence matters, not its content.
            self._held = self._held[:2]
        return text


class PlainLines(Stripper):
    """
    Plain text of a console as lines (:data:`LINES`), each of which ends with a newline alone.

    All text is given at once.  If later output edits a line of which a part was given, the whole line follows as a
    new one.

    :param mid_line: the text so far ends within a line.
    :param returned: the last piece ended with a carriage return.
    """

    def __init__(self, mid_line: bool = False, returned: bool = False) -> None:
        super().__init__()
        self.mid_line, self.returned = mid_line, returned
        self._line = self._given = b""

    def feed(self, data: bytes) -> bytes:
        text = super().feed(data)
        if self.returned:
            text = b"\r" + text
        if b"\r" in text:
            if b"\r\r" in text:
                text = _RETURNS.sub(b"\r", text)
            self.returned = text.endswith(b"\r")
            text = text.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\n\r", b"\n")
            if not self.mid_line:
                text = text.removeprefix(b"\r")
            text = text.replace(b"\r", b"\n")
        if text:
            self.mid_line = not text.endswith(b"\n")
        return self._edited(text)

    def _edited(self, text: bytes) -> bytes:
        line, given = self._line + text, self._given
        shown = edited(line)
        if shown.startswith(given):
            text = shown[len(given) :]
        elif given.startswith(shown):
            text, shown = b"", given  # more may follow
        else:
            text = b"\n" + shown
        self._line = line.rpartition(b"\n")[2]
        self._given = shown.rpartition(b"\n")[2]
        if len(self._line) > _MOST_EDITED_BYTES:
            self._line = self._given = b""
        return text


def _spread(text: str, controls: str = _C0_IN_COMMANDS) -> str:
    """Return an expression for a text with control characters between its characters."""
    return rf"[{controls}]*".join(map(re.escape, text))


_READ = re.compile(_spread("type=read").encode("ascii"))
_QUIET = re.compile(rf"[G,][{_C0}]*{_spread('q=2', _C0)}".encode("ascii"))


class _Patterns:
    """
    Expressions for outlines (see :func:`_outline`).

    :param eight_bit: the outline has 8-bit control characters.
    """

    def __init__(self, *, eight_bit: bool) -> None:
        # Several terminals ignore other characters inside a sequence, also those of UTF-8.
        ignored, parameters = rf"[{_C0}{_OTHERS}]*", rf"[{_C0} -?{_OTHERS}]*"
        plain = r"[^\x07\x18\x1a\x1b\x90\x9a-\x9d\x9f]"

        def sequences(*forms: tuple[str, str]) -> str:
            if not eight_bit:
                rests = "|".join(re.escape(kind) + rest for kind, rest in forms)
                return rf"\x1b{ignored}(?:{rests})"  # twice as fast as the form below
            rests = "|".join(
                rf"[{re.escape(kind)}{_KINDS.get(kind, '')}]{rest}" for kind, rest in forms
            )
            return rf"(?:\x1b{ignored}(?=[\[P\]_Z])|(?=[\x90\x9b\x9d\x9f]))(?:{rests})"

        number = rf"[{_C0_IN_COMMANDS}0]*"
        asking, aborted = (
            "|".join(_spread(str(number)) for number in numbers) for numbers in (_ASKING, _ABORTED)
        )
        words = "|".join(map(_spread, _WORDS))
        asked = rf"{number}(?:{asking}|(?P<aborted>{aborted}))[{_C0_IN_COMMANDS}]*;{plain}*"
        queries = rf"{parameters}[cntpquwxySgvR|]|{ignored}\?{parameters}[mh]"
        self.queries = re.compile(
            sequences(
                ("[", rf"(?P<control>{queries})"),
                ("]", rf"(?P<asking>{asked})"),
                ("P", rf"(?P<device>{ignored}\$|{parameters}[qQ])"),
                ("]", rf"(?P<word>{number}(?:{words}))"),
                ("]", rf"(?P<reading>{number}{_spread('5522;')}{plain}*)"),
                ("_", rf"(?P<image>[{_C0}]*G{_KEYS})"),
                ("Z", "(?P<identify>)"),
            ).encode("ascii")
        )
        unfinished = sequences(
            ("[", rf"(?P<control>{parameters})\Z"),
            ("P", rf"(?P<device>{parameters})\Z"),
            ("]", rf"(?P<command>{plain}*)\Z"),
            ("_", rf"(?P<image>[{_C0}]*(?:G{_KEYS})?)\Z"),
        )
        self.unfinished = re.compile(
            rf"{unfinished}|(?P<escape>\x1b{ignored})\Z".encode("ascii"), re.DOTALL
        )


@cache
def _patterns(eight_bit: bool) -> _Patterns:
    # Compiled when needed: they take milliseconds, and most output has no 8-bit control characters.
    return _Patterns(eight_bit=eight_bit)


class QueryFilter:
    """
    Makes terminal queries in a stream harmless, wherever the stream is split.

    :param found: called for queries that are control sequences of a usual length, with the bytes
        after ``ESC [``, without control characters.
    """

    def __init__(self, found: Callable[[bytes], None] = lambda query: None) -> None:
        self._found = found
        self._unfinished = b""  # a sequence or character at the end of the output, abbreviated
        self._omitted = 0  # bytes of this sequence that its abbreviation lacks

    def feed(self, data: bytes) -> bytes:
        """Return ``data`` with its queries changed; the length stays."""
        if b"\x05" in data:
            data = data.replace(b"\x05", b"\x00")
        if not self._unfinished and b"\x1b" not in data and data.isascii():
            return data
        before = len(self._unfinished)
        if not before:
            self._omitted = 0
        window = self._unfinished + data
        outline, eight_bit = _outline(window)
        if eight_bit or b"\x1b" in outline:
            changed = bytearray(window)
            if b"\x9a" in outline:
                # First, because a character that was changed ends no sequence any more.
                outline = _without_identify(outline, changed)
            patterns = _patterns(eight_bit)
            for match in patterns.queries.finditer(outline):
                self._change(match, changed)
            window = bytes(changed)
            start = max(outline.rfind(b"\x1b"), *map(outline.rfind, _EIGHT_BIT_STARTS))
            self._unfinished = _unfinished(window, outline, start, patterns)
            omitted = self._omitted if start == 0 else 0
            self._omitted = omitted + len(window) - max(start, 0) - len(self._unfinished)
        else:
            self._unfinished = _cut_character(window)
        return window[before:]

    def _change(self, match: re.Match[bytes], changed: bytearray) -> None:
        kind, last = match.lastgroup, match.end() - 1
        if kind == "control":
            query = match[0].translate(None, _IGNORED).removeprefix(b"\x1b[")
            if _is_query(query):
                if len(query) <= _MOST_PARAMETERS:
                    self._found(query)
                changed[last] = 0x5F  # "_"
        elif kind == "asking":
            aborts = match["aborted"] is not None
            for question in _QUESTION.finditer(match.string, *match.span()):
                changed[question.end() - 1] = 0x18 if aborts else 0x2D  # CAN, "-"
                if aborts:
                    break
        elif kind == "device":
            text = match[0]
            if text.endswith(b"$"):
                changed[last] = 0x25  # "%"
            elif b"%" not in text and (b"$" in text or b"+" in text):
                changed[last] = 0x5F
        elif kind == "word":
            changed[last] = 0x2D
        elif kind == "reading":
            for read in _READ.finditer(match.string, *match.span()):
                changed[read.end() - 1] = 0x2D
        elif kind == "image":
            first = match.start()
            _change_image(match, changed, first + _MOST_KEYS - (0 if first else self._omitted))
        else:
            changed[last] = 0x5C  # "\\"


def _change_image(match: re.Match[bytes], changed: bytearray, limit: int) -> None:
    """Disarm the keys of an image command that a terminal answers, and all from ``limit`` on."""
    if b"=" not in match[0]:
        return
    first, end = match.span()
    quiet = _QUIET.search(match.string, first, end)
    for key in _PROVOKING_KEY.finditer(match.string, first, end):
        if match.string.index(b"=", key.start()) >= limit:
            break
        # The terminal does not confirm an image whose number stands behind that key.
        if quiet is None or key.start() < quiet.end() or key[0].endswith(b"q"):
            changed[key.end() - 1] = 0x2D
    limit = max(limit, first)
    if limit < end:
        changed[limit:end] = changed[limit:end].replace(b"=", b"-")


def _outline(window: bytes) -> tuple[bytes, bool]:
    """
    Return a text of the same length for the expressions, and whether it has 8-bit control characters.

    Of the bytes above ASCII, only those control characters keep their values for certain: so an
    expression needs not look around each byte.
    """
    if window.isascii():
        return window, False
    if not _HAS_EIGHT_BIT.search(window):
        return window.translate(_NO_EIGHT_BIT), False
    for pattern, replacement in _CHARACTERS:
        window = pattern.sub(replacement, window)
    return window, True


def _without_identify(outline: bytes, changed: bytearray) -> bytes:
    at = outline.find(b"\x9a")
    while at >= 0:
        changed[at] = 0x80
        at = outline.find(b"\x9a", at + 1)
    return outline.replace(b"\x9a", b"\xff")


@lru_cache(256)
def _is_query(sequence: bytes) -> bool:
    """Return whether a terminal may answer a control sequence, given without its introducer."""
    if len(sequence) > _MOST_PARAMETERS:
        return True
    kind = sequence.translate(None, b"0123456789;:")
    if kind == b"t":
        numbers = _NUMBERS.search(sequence)
        return numbers is not None and numbers[0].lstrip(b"0") in _SIZES
    if kind == b"?h":
        return _IN_BAND_SIZES in [each.lstrip(b"0") for each in _NUMBERS.findall(sequence)]
    return kind in _CONTROL_SEQUENCES


def _cut_character(text: bytes) -> bytes:
    """Return the beginning of a character at the end of a text."""
    cut = _CUT_CHARACTER.search(text, max(0, len(text) - 3))
    return cut[0] if cut else b""


def _unfinished(window: bytes, outline: bytes, start: int, patterns: _Patterns) -> bytes:
    """
    Return the sequence and the character that the next bytes may complete.

    :param start: where the last sequence begins, or -1.
    """
    sequence = patterns.unfinished.match(outline, start) if start >= 0 else None
    character = _cut_character(window)
    if not sequence:
        return character
    kind = str(sequence.lastgroup)
    introducer = _TERMINAL_QUERIES_STARTS[kind]
    if kind in ("control", "device", "escape"):
        text = sequence[0].translate(None, _IGNORED).removeprefix(introducer)
        if kind == "device":
            has_parameters = text[:1] not in (b"", b"$")
            # No query has a percent sign, which may be our own.
            asking = b"%" if b"%" in text else text.translate(None, _BUT_ASKING)
            text = b"0" * has_parameters + asking
        return introducer + text[: _MOST_PARAMETERS + 1] + character
    text = _INTRODUCER.sub(b"", window[start:].translate(None, _CONTROLS))
    if not character:
        # A control character has cut a character: what follows does not complete it.
        text = _CUT_CHARACTER.sub(b"x", text)
    if kind == "command":
        return introducer + _abbreviated(text)
    if len(text) > _MOST_STRING:
        quiet = b"q=2," if b"q" in text and _QUIET.search(text) else b""
        # The rest may begin within a value, which may look like a key.
        text = b"G," + quiet + b"x" + text[-_LAST_BYTES:].lstrip(_CONTINUATION)
    return introducer + text


def _abbreviated(text: bytes) -> bytes:
    number, semicolon, rest = text.partition(b";")
    if len(number) > _LAST_BYTES:
        number = b"0" + number.lstrip(b"0")
    if len(number) > _LAST_BYTES:
        # No known number; the next bytes may complete its last character.
        cut = _CUT_CHARACTER.search(number, len(number) - 3)
        number = b"x" + (cut[0] if cut else b"")
    if len(rest) > _MOST_STRING:
        # Not from within a character, whose last bytes alone look like 8-bit control characters.  A question
        # mark must not come to stand behind the semicolon, where it would be a query.
        rest = b"x" + rest[-_LAST_BYTES:].lstrip(_CONTINUATION)
    return number + semicolon + rest
