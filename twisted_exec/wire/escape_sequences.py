r"""
Escape sequences in the output of a machine, sans I/O: text without them, and terminal queries.

:class:`Stripper` removes escape sequences, and most control characters.  A newline ends every
sequence, so that text behind an unended one stays visible.

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
from functools import cache

_SEQUENCE = re.compile(
    rb"\x1b(?:"
    rb"\[[0-?]*[ -/]*(?P<csi>[@-~])?"  # a control sequence (ECMA-48, 5.4)
    rb"|[\]PX^_][^\x07\x18\x1a\x1b\n]*(?P<string>\x07|\x1b\\)?"  # OSC, DCS, SOS, PM, APC
    rb"|[ -/]*(?P<escape>[0-~])?"  # a character set, or one character
    rb")"
    rb"|(?P<control>[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]|\xc2[\x80-\x9f])"
    # A lone C2 as well: when a sequence behind it is removed, it must not meet the next byte.
    rb"|\xc2(?![\xa0-\xbf])"
)
_MOST_HELD_BYTES = 256
_STARTS = bytes(each for each in (*range(0x20), 0x7F, 0xC2) if each not in b"\t\r\n")


def strip(text: bytes) -> bytes:
    """Return a complete text without escape sequences and most control characters."""
    return text if _is_plain(text) else _SEQUENCE.sub(b"", text)


def _is_plain(text: bytes) -> bool:
    return len(text.translate(None, _STARTS)) == len(text)


_RETURNS = re.compile(rb"\r{2,}")


class Stripper:
    """
    Removes the sequences of a stream that is split anywhere.

    :ivar undecided: number of bytes at the end of the stream that begin an unfinished sequence.
    """

    def __init__(self) -> None:
        self._held = b""
        self.undecided = 0

    def feed(self, data: bytes) -> bytes:
        """
        Return the text of ``data``.  An incomplete sequence at its end waits for the next call.
        """
        if not self._held and _is_plain(data):
            return data
        window = self._held + data
        not_held = self.undecided - len(self._held)
        self._held, self.undecided = b"", 0
        end = len(window)

        def removed(match: re.Match[bytes]) -> bytes:
            # Each complete form ends with a group.
            if match.end() == end and match.lastgroup is None:
                self._held = match[0]
                self.undecided = len(match[0]) + (not_held if match.start() == 0 else 0)
            return b""

        text = _SEQUENCE.sub(removed, window)
        if len(self._held) > _MOST_HELD_BYTES:
            # Only the kind of sequence matters, not its content.
            self._held = self._held[:2]
        return text


class PlainLines(Stripper):
    """
    Plain text of a console as lines, each of which ends with a newline alone.

    A carriage return between texts becomes a newline; others are dropped.

    :param mid_line: the text so far ends within a line.
    :param returned: the last piece ended with a carriage return.
    """

    def __init__(self, mid_line: bool = False, returned: bool = False) -> None:
        super().__init__()
        self.mid_line, self.returned = mid_line, returned

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
        return text


LOOKBACK_BYTES = 4096
"""How much earlier output to read to tell whether the next byte is inside a sequence."""

_MOST_PARAMETERS = 128
"""A longer control sequence with the final byte of a query counts as a query."""
_MOST_STRING = 64
_MOST_KEYS = 512
_LAST_BYTES = 16

# Without CAN and SUB, which abort a sequence, and ESC, which begins one.
_C0 = r"\x00-\x17\x19\x1c-\x1f\x7f"
_C0_IN_COMMANDS = r"\x00-\x06\x08-\x17\x19\x1c-\x1f\x7f"
_KEYS = r"[^;\x18\x1a\x1b\x80-\xff]*"
_KINDS = {"[": r"\x9b", "P": r"\x90", "]": r"\x9d", "_": r"\x9f", "Z": r"\x9a"}
# Introducers, and the end of strings.
# An 8-bit introducer counts where it is a character of its own, and not a part of one in UTF-8.
_EIGHT_BIT = r"(?:\xc2|(?<![\xc2-\xf4])(?<![\xe0-\xf4][\x80-\xbf])(?<![\xf0-\xf4][\x80-\xbf]{2}))%s"
_ANY_EIGHT_BIT = _EIGHT_BIT % r"[\x90\x9a-\x9d\x9f]"
_HAS_EIGHT_BIT = re.compile(
    # As above, with the character first, because so the search is several times faster.
    rb"[\x90\x9a-\x9d\x9f](?:(?<=\xc2.)"
    rb"|(?<![\xc2-\xf4].)(?<![\xe0-\xf4][\x80-\xbf].)(?<![\xf0-\xf4][\x80-\xbf]{2}.))",
    re.DOTALL,
)
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
_QUIET = re.compile(rb"[G,]q=2")


_TERMINAL_QUERIES_STARTS = {
    "control": b"\x1b[",
    "device": b"\x1bP",
    "command": b"\x1b]",
    "image": b"\x1b_",
    "escape": b"\x1b",
}
_INTRODUCER = re.compile(rb"\A(?:\x1b[\x80-\xff]*[\]_]|\xc2?[\x80-\x9f])")
_BUT_ASKING = bytes(each for each in range(0x100) if each not in b"$+")
_CONTINUATION = bytes(range(0x80, 0xC0))


def _spread(text: str) -> str:
    """Return an expression for a text with control characters between its characters."""
    return rf"[{_C0_IN_COMMANDS}]*".join(map(re.escape, text))


_READ = re.compile(_spread("type=read").encode("ascii"))


class _Patterns:
    def __init__(self, *, eight_bit: bool) -> None:
        self.eight_bit = eight_bit
        # Several terminals ignore other characters inside a sequence, also those of UTF-8.
        ignored, parameters = rf"[{_C0}\x80-\xff]*", rf"[{_C0} -?\x80-\xff]*"
        plain, starts = r"[^\x07\x18\x1a\x1b]", r"\x1b"
        if eight_bit:
            ignored = rf"(?:(?!{_ANY_EIGHT_BIT})[{_C0}\x80-\xff])*"
            parameters = rf"(?:(?!{_ANY_EIGHT_BIT})[{_C0} -?\x80-\xff])*"
            plain = rf"(?:(?!{_ANY_EIGHT_BIT})[^\x07\x18\x1a\x1b])"
            starts = rf"\x1b|{_ANY_EIGHT_BIT}"

        def compiled(text: str) -> re.Pattern[bytes]:
            return re.compile(text.encode("ascii"), re.DOTALL)

        number = rf"[{_C0_IN_COMMANDS}0]*"
        asking, aborted = (
            "|".join(_spread(str(number)) for number in numbers) for numbers in (_ASKING, _ABORTED)
        )
        words = "|".join(map(_spread, _WORDS))

        def sequences(*forms: tuple[str, str]) -> str:
            seven_bit = "|".join(re.escape(kind) + rest for kind, rest in forms)
            if not eight_bit:
                return rf"\x1b{ignored}(?:{seven_bit})"  # twice as fast as the form below
            starts = (
                rf"(?:\x1b{ignored}{re.escape(kind)}|{_EIGHT_BIT % _KINDS[kind]}){rest}"
                for kind, rest in forms
            )
            return "|".join(starts)

        asked = rf"{number}(?:{asking}|(?P<aborted>{aborted}))[{_C0_IN_COMMANDS}]*;{plain}*"
        self.asking = compiled(sequences(("]", asked)))
        queries = rf"{parameters}[cntpquwxySgvR|]|{ignored}\?{parameters}[mh]"
        self.others = compiled(
            sequences(
                ("[", rf"(?P<control>{queries})"),
                ("P", rf"(?P<device>{ignored}\$|{parameters}[qQ])"),
                ("]", rf"(?P<word>{number}(?:{words}))"),
                ("]", rf"(?P<reading>{number}{_spread('5522;')}{plain}*)"),
                ("_", rf"(?P<image>[{_C0}]*G{_KEYS})"),
                ("Z", "(?P<identify>)"),
            )
        )
        self.last = compiled(rf".*(?P<start>{starts})")
        unfinished = sequences(
            ("[", rf"(?P<control>{parameters})\Z"),
            ("P", rf"(?P<device>{parameters})\Z"),
            ("]", rf"(?P<command>{plain}*)\Z"),
            ("_", rf"(?P<image>[{_C0}]*(?:G{_KEYS})?)\Z"),
        )
        self.unfinished = compiled(rf"{unfinished}|(?P<escape>\x1b{ignored})\Z")


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

    def feed(self, data: bytes) -> bytes:
        """Return ``data`` with its queries changed; the length stays."""
        if b"\x05" in data:
            data = data.replace(b"\x05", b"\x00")
        if not self._unfinished and b"\x1b" not in data and data.isascii():
            return data
        before = len(self._unfinished)
        window = self._unfinished + data
        window, patterns = self._without_queries(window)
        if patterns.eight_bit:
            # An 8-bit character that was changed ends no sequence any more.
            window, patterns = self._without_queries(window)
        self._unfinished = _unfinished(window, patterns)
        return window[before:]

    def _without_queries(self, window: bytes) -> tuple[bytes, _Patterns]:
        has_eight_bit = not window.isascii() and bool(_HAS_EIGHT_BIT.search(window))
        patterns = _patterns(has_eight_bit)
        if has_eight_bit or b"\x1b" in window:
            # Two passes, because the string of a command may contain the start of another command.
            if b"?" in window:
                window = patterns.asking.sub(_without_questions, window)
            window = patterns.others.sub(self._changed, window)
        return window, patterns

    def _changed(self, match: re.Match[bytes]) -> bytes:
        text, kind = match[0], match.lastgroup
        if kind == "control":
            query = text.translate(None, _IGNORED).removeprefix(b"\x1b[")
            if not _is_query(query):
                return text
            if len(query) <= _MOST_PARAMETERS:
                self._found(query)
            return text[:-1] + b"_"
        if kind == "device":
            if text.endswith(b"$"):
                return text[:-1] + b"%"
            asks = b"%" not in text and (b"$" in text or b"+" in text)
            return text[:-1] + b"_" if asks else text
        if kind == "word":
            return text[:-1] + b"-"
        if kind == "reading":
            return _READ.sub(lambda read: read[0][:-1] + b"-", text)
        if kind == "image":
            return _PROVOKING_KEY.sub(_without_key, text)
        return text[:-1] + (b"\\" if text.endswith(b"Z") else b"\x80")


def _is_query(sequence: bytes) -> bool:
    """Return whether a terminal may answer a control sequence, given without its introducer."""
    if len(sequence) > _MOST_PARAMETERS:
        return True
    kind = sequence.translate(None, b"0123456789;:")
    numbers = [number.lstrip(b"0") for number in _NUMBERS.findall(sequence)]
    if kind == b"t":
        return bool(numbers) and numbers[0] in _SIZES
    if kind == b"?h":
        return _IN_BAND_SIZES in numbers
    return kind in _CONTROL_SEQUENCES


def _without_questions(match: re.Match[bytes]) -> bytes:
    if match["aborted"]:
        return _QUESTION.sub(lambda question: question[0][:-1] + b"\x18", match[0], count=1)
    return _QUESTION.sub(lambda question: question[0][:-1] + b"-", match[0])


def _without_key(match: re.Match[bytes]) -> bytes:
    key = match[0]
    if key.endswith(b"=") and _QUIET.search(
        match.string[: match.start()].translate(None, _CONTROLS)
    ):
        return key
    return key[:-1] + b"-"


def _unfinished(window: bytes, patterns: _Patterns) -> bytes:
    """Return the sequence and the character that the next bytes may complete."""
    last = patterns.last.match(window)
    sequence = last and patterns.unfinished.match(window, last.start("start"))
    cut = _CUT_CHARACTER.search(window, max(0, len(window) - 3))
    character = cut[0] if cut else b""
    if not sequence:
        return character
    kind = str(sequence.lastgroup)
    start = _TERMINAL_QUERIES_STARTS[kind]
    if kind in ("control", "device", "escape"):
        text = sequence[0].translate(None, _IGNORED).removeprefix(start)
        if kind == "device":
            has_parameters = text[:1] not in (b"", b"$")
            # No query has a percent sign, which may be our own.
            asking = b"%" if b"%" in text else text.translate(None, _BUT_ASKING)
            text = b"0" * has_parameters + asking
        return start + text[: _MOST_PARAMETERS + 1] + character
    text = _INTRODUCER.sub(b"", sequence[0].translate(None, _CONTROLS))
    if not character:
        # A control character has cut a character: what follows does not complete it.
        text = _CUT_CHARACTER.sub(b"x", text)
    if kind == "command":
        return start + _abbreviated(text)
    if len(text) > _MOST_KEYS:
        quiet = b"q=2," if _QUIET.search(text) else b""
        text = b"G," + quiet + text[-_LAST_BYTES:].lstrip(_CONTINUATION)
    return start + text


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
