r"""
The lines that ``kubectl console --run`` types into a shell, sans I/O.

The *probe* is typed at the shell's prompt. It prints a mark, and lets the shell read one more line and run it. What
follows is typed while the shell reads, so the kernel echoes it unchanged, and not the line editor of the shell: the
command twice, and a comparison of both copies, which runs the command between two marks.

A mark is an operating system command (OSC) with a number that no terminal knows. (Not an APC, which
tmux takes for a title.) The shell's ``printf`` makes its Escape characters, so the echo of a typed
line contains no mark.

A server that knows the nonce of a run recognizes these lines in what the session types (:class:`RunReader`), and finds
their echo in the output (:class:`Echoes`). Screens show none of it but the first copy of the command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

MARK = 28747
"""The number of the OSC."""
MOST_COMMAND_BYTES = 16 << 10
"""Limit of a command as it is typed."""
WAKE = b"\x15\r"
"""Typed before the probe: deletes the text at the prompt, and shows which prompt it is."""

_LINE_BYTES = 900
"""Size of a typed line: a terminal without line editing takes 4095 bytes on Linux, 1024 elsewhere."""
_MOST_LINE_BYTES = 1024
# No name of the other variables becomes this name by the loss of a character.
_READ_ON = 'read -r _r;eval "$_r"'
_PRINTABLE = re.compile(r"[ -~]*\Z")
_PLAIN = frozenset(
    b'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 +,-./:;<=>?@_|&()[]{}#*$~^"'
)

_COMPARISON = (
    'if [ "$_te/{}" = "$_tf/{}" ]; then '
    # Without its own exit code, the last mark of a damaged line has no number.
    # Nor may Ctrl-C end the job: an interactive shell would discard the rest of this line. The command itself gets
    # the default action again, because a subshell does not inherit traps.
    "_tc=; printf '{}'; (trap : 2; (eval \"${{_te?}}\"); exit $?); _tc=$?; "
    # printf repeats its format for the second exit code.
    "printf '{}' $_tc $_tc; else printf '{}'; fi"
)

_ASSIGNMENT = re.compile(
    rb"(?P<name>_te|_tf)=(?:"
    rb"(?P<quoted_more>\$(?P=name))?'(?P<quoted>[ -&(-~]*(?:'\\''[ -&(-~]*)*)'"
    rb"|(?P<octal_more>\$\{(?P=name)%x\})?\$\(printf '(?P<octal>[ -&(-~]*)'x?\)"
    rb")(?P<end>;)"
)
_QUOTE = b"'\\''"
_LINE_BEGINS = (b" _te=", b" _tf=", b' if [ "$_te/')
_LENGTHS = re.compile(rb'if \[ "\$_te/(?:\$\{#_te\})?" = "\$_tf/[0-9]{0,5}" \]; then ')

_WRAP = re.compile(rb"(?: ?\r+\n?| ?\x08|\x1b\[[0-9]{0,3}[A-DJK]\x00*)+")
"""What a line editor prints where a line does not fit into a row."""
_WRAP_BEGUN = re.compile(rb"(?: |\x1b(?:\[[0-9]{0,3})?)?\Z")

_PASTE_ENDS = b"\x1b[?2004l"
_ENTER = re.compile(rb"\r*\n")
_EDITED_ENTER = re.compile(
    rb"(?: ?\r+(?!\n)|\x1b\[[0-9]{0,3}[A-DJK]\x00*)*(?:\x1b\[\?2004l)?\r*\n(?P<after>\x1b\[\?2004l\r)?"
)
_EDITED_ENTER_BEGUN = re.compile(
    rb"(?: ?\r+|\x1b\[[0-9]{0,3}[A-DJK]\x00*)*(?: |\x1b(?:\[[0-9?]{0,5}l?)?)?\r*\Z"
)
_MOST_ECHO_BYTES = 2 << 10
_MOST_AWAITED = 8
_DECIDED = re.compile(rb"\x1b\]%d;[BL][0-9a-f]{8}\x1b\\" % MARK)
"""What the last line of a run prints first: the echo of all its lines is over."""
_DECIDED_BYTES = 19


def mark(text: bytes) -> bytes:
    """Return a mark as the shell prints it."""
    return b"\x1b]%d;%s\x1b\\" % (MARK, text)


def probe_mark(nonce: str) -> bytes:
    """Return the mark that the probe prints, twice."""
    return mark(b"R%s:" % nonce.encode())


def probe(nonce: str) -> bytes:
    """Return the probe, without Enter: one row on most screens."""
    # printf repeats its format for the second argument.
    return rf" printf '\33]{MARK};R{nonce}%s\33\\' : :;{_READ_ON}".encode()


def command_lines(command: str, nonce: str) -> list[bytes]:
    """
    Return the lines that run a command and print marks around its output, without Enter.

    The command runs in a subshell, so that its ``exit`` does not end the shell.

    :raises ValueError: it is too long; the message is for the user.
    """
    text = command.rstrip("\n")
    quoting: type[_Quoted] | type[_Octal] = _Quoted if _PRINTABLE.match(text) else _Octal
    characters = quoting.characters(text)
    size = sum(map(len, characters))
    if size > MOST_COMMAND_BYTES:
        raise ValueError(
            f"the command is too long: {size} bytes when typed, more than {MOST_COMMAND_BYTES}; "
            "put it into a file on the machine"
        )
    # Twice, because a line may lose what is typed: only what has arrived whole is run.
    first, second = (quoting.assignments(name, characters) for name in ("_te", "_tf"))
    last = _comparison(nonce, text)
    if sum(map(len, first + second)) + len(last) <= _LINE_BYTES:
        return [f" {';'.join([*first, *second, last])}".encode()]
    return [*(f" {each};{_READ_ON}".encode() for each in [*first, *second]), f" {last}".encode()]


def _comparison(nonce: str, text: str) -> str:
    # A character that both lack shows by the length, which shells count in bytes or in characters.
    return _COMPARISON.format(
        *(("${#_te}", len(text)) if text.isascii() else ("", "")),
        _printed(f"B{nonce}"),
        _printed(f"E{nonce}:%s"),
        _printed(f"L{nonce}"),
    )


def _printed(text: str) -> str:
    return rf"\033]{MARK};{text}\033\\"


class _Quoted:
    """A command of printable characters of ASCII: between single quotes."""

    @staticmethod
    def characters(text: str) -> list[str]:
        return [r"'\''" if char == "'" else char for char in text]

    @staticmethod
    def assignments(name: str, characters: Sequence[str]) -> list[str]:
        parts = list(_parts(characters))
        return [f"{name}={f'${name}' * (at > 0)}'{part}'" for at, part in enumerate(parts)]


class _Octal:
    """A command with other characters: with their numbers, because a terminal may take them for keys."""

    @staticmethod
    def characters(text: str) -> list[str]:
        return [_octal(byte) for byte in text.encode("utf-8", "surrogateescape")]

    @staticmethod
    def assignments(name: str, characters: Sequence[str]) -> list[str]:
        parts = list(_parts(characters))
        before = f"${{{name}%x}}"
        # The x, because a substitution drops newlines at its end.
        return [
            f"{name}={before * (at > 0)}$(printf '{part}'{'x' * (at < len(parts) - 1)})"
            for at, part in enumerate(parts)
        ]


def _parts(characters: Sequence[str]) -> Iterator[str]:
    part = ""
    for each in characters:
        if len(part) >= _LINE_BYTES:
            yield part
            part = ""
        part += each
    yield part


def _octal(byte: int) -> str:
    if byte == 0x25:
        return "%%"  # shells differ in whether \045 begins a conversion
    return chr(byte) if byte in _PLAIN else f"\\{byte:03o}"


# What a server knows of it.


@dataclass(frozen=True)
class TypedLine:
    """
    One line of a run, and what screens show of its echo.

    :param pieces: the texts of the line in turn, and whether screens show them.
    :param is_edited: the line editor of a shell echoes the line, and not the kernel.
    :param ends_row: screens show the newline.
    :param is_whole: Enter was typed; otherwise more of the line may follow.
    """

    pieces: tuple[tuple[bytes, bool], ...]
    is_edited: bool = False
    ends_row: bool = False
    is_whole: bool = True

    @property
    def text(self) -> bytes:
        return b"".join(text for text, _ in self.pieces)


class RunReader:
    """
    Recognizes the lines of the runs of one session in what the session types.

    A run begins with :data:`WAKE`. Whatever else the session types ends it, so nothing behind it is a line of that run.
    """

    def __init__(self, nonce: str) -> None:
        self._nonce = nonce
        self._probe = TypedLine(((probe(nonce), False),), is_edited=True)
        self._typed = b""
        self._is_awake = self._is_probed = False
        self._first = self._second = b""  # the copies of the command, as far as they were typed

    @property
    def begun(self) -> TypedLine | None:
        """The line of a run that is being typed; ``None`` if there is none."""
        typed = self._typed
        if not self._is_awake or not typed:
            return None
        if not self._is_probed:
            is_probe = self._probe.text.startswith(typed)
            return replace(self._probe, is_whole=False) if is_probe else None
        if any(typed.startswith(each[: len(typed)]) for each in _LINE_BEGINS):
            return TypedLine(((typed, False),), is_whole=False)
        return None

    def feed(self, data: bytes) -> list[TypedLine]:
        """Return the lines that are complete now."""
        *typed, self._typed = (self._typed + data).split(b"\r")
        lines = [line for each in typed if (line := self._line(each)) is not None]
        if len(self._typed) > _MOST_LINE_BYTES:
            self._end()
        if not self._is_awake:
            self._typed = self._typed[-1:]  # may begin the next run
        return lines

    def _line(self, typed: bytes) -> TypedLine | None:
        if self._is_awake and not self._is_probed:
            if typed == self._probe.text:
                self._is_probed = True
                return self._probe
        elif self._is_probed and len(typed) <= _MOST_LINE_BYTES:
            line = self._command_line(typed)
            if line is not None:
                return line
        self._end()
        self._is_awake = typed.endswith(WAKE[:-1])
        return None

    def _end(self) -> None:
        self._is_awake = self._is_probed = False
        self._first = self._second = b""

    def _command_line(self, typed: bytes) -> TypedLine | None:
        if not typed.startswith(b" "):
            return None
        pieces = [(b" ", False)]
        at = 1
        while match := _ASSIGNMENT.match(typed, at):
            if not self._assigned(match):
                return None
            pieces += _shown(match) if match["name"] == b"_te" else [(match[0], False)]
            at = match.end()
        rest = typed[at:]
        pieces.append((rest, False))
        if at > 1 and rest == _READ_ON.encode():
            return TypedLine(tuple(pieces))
        if self._first != self._second or not self._is_comparison(rest):
            return None
        self._end()
        return TypedLine(tuple(pieces), ends_row=True)

    def _assigned(self, match: re.Match[bytes]) -> bool:
        """Return whether screens show all that is assigned, now or in the first copy."""
        more = match["quoted_more"] or match["octal_more"]
        text = match["quoted"] if match["octal"] is None else match["octal"]
        if match["name"] == b"_te":
            if self._second or bool(more) is not bool(self._first):
                return False
            self._first += text
            return len(self._first) <= MOST_COMMAND_BYTES
        if bool(more) is not bool(self._second):
            return False
        self._second += text
        return self._first.startswith(self._second)

    def _is_comparison(self, typed: bytes) -> bool:
        lengths = _LENGTHS.match(typed)
        rest = _comparison(self._nonce, "").encode().partition(b"then ")[2]
        return lengths is not None and typed[lengths.end() :] == rest


def _shown(match: re.Match[bytes]) -> list[tuple[bytes, bool]]:
    name = "quoted" if match["octal"] is None else "octal"
    first, last = match.span(name)
    text = match.string
    pieces = [(text[match.start() : first], False)]
    if name == "octal":
        pieces.append((text[first:last], True))
    else:
        for number, part in enumerate(text[first:last].split(_QUOTE)):
            if number:
                pieces += [(_QUOTE[:-1], False), (_QUOTE[-1:], True)]
            pieces.append((part, True))
    pieces.append((text[last : match.end()], False))
    return pieces


# Echoes.


def _head(text: bytes) -> re.Pattern[bytes]:
    """
    Return an expression for the beginning of a text, or of a part of it at the end of the output.

    Only simple wraps are in it, so that no output makes the search slow.
    """
    pattern = b""
    for char in reversed(text[1:]):
        each = re.escape(bytes([char]))
        behind = rb"(?: ?\r{0,2}\Z|%s)" % pattern if pattern else b""
        pattern = rb"%s(?:(?: ?\r{1,2}\n?| ?\x08)%s?)?%s" % (each, each, behind)
    # Without a wrap behind the first character: that may be the end of the prompt.
    return re.compile(rb"%s(?:\Z|%s)" % (re.escape(text[:1]), pattern))


_PROBE_HEAD = _head(b" prin")


class Echoes:
    """
    Finds the echo of typed lines in output that is split anywhere.

    :ivar undecided: the offset from which the output so far may begin an echo; ``None`` if it does not.
    """

    def __init__(self) -> None:
        self._awaited: list[TypedLine] = []
        self._output, self._offset = b"", 0
        self._tail = b""
        self.undecided: int | None = None

    def __bool__(self) -> bool:
        return bool(self._awaited)

    def expect(self, line: TypedLine) -> None:
        """Await the echo of a line that is typed now, and of what is typed of it later."""
        self.abandon()
        if len(self._awaited) < _MOST_AWAITED:
            self._awaited.append(line)

    def abandon(self) -> None:
        """Forget a line that is not whole."""
        if self._awaited and not self._awaited[-1].is_whole:
            del self._awaited[-1]

    def forget(self) -> None:
        """Await no echo any more."""
        self._awaited.clear()
        self._output, self._tail, self.undecided = b"", b"", None

    def feed(self, offset: int, data: bytes) -> list[tuple[tuple[int, int], ...]]:
        """
        Return the ranges that screens do not show, of each echo that is complete now.

        :param offset: that of the first byte.
        :return: offsets of the first byte and behind the last byte.
        """
        if self._offset + len(self._output) != offset:
            self._output = b""
        if not self._output:
            self._offset = offset
        self._output += data
        is_decided = self._is_decided(data)
        echoes: list[tuple[tuple[int, int], ...]] = []
        while (found := self._first()) is not None:
            at, end, line = found
            self._drop(at)
            if end is None:
                self.undecided = self._offset
                break
            echoes.append(tuple(_hidden(line, self._output[: end - at], self._offset)))
            self._drop(end - at)
            del self._awaited[: self._awaited.index(line) + 1]
        else:
            self._output, self.undecided = b"", None
        if is_decided:
            self.forget()
        return echoes

    def _is_decided(self, data: bytes) -> bool:
        window = self._tail + data
        self._tail = window[1 - _DECIDED_BYTES :]
        return _DECIDED.search(window) is not None

    def _drop(self, size: int) -> None:
        self._output, self._offset = self._output[size:], self._offset + size

    def _first(self) -> tuple[int, int | None, TypedLine] | None:
        candidates = [
            (*place, line)
            for line in self._next()
            if (place := _find(line, self._output)) is not None
        ]
        return min(candidates, key=lambda each: each[0], default=None)

    def _next(self) -> list[TypedLine]:
        # A command is not hidden whose first copy was not shown.
        lines = self._awaited[:2]
        return lines if lines and lines[0].is_edited else lines[:1]


def _find(line: TypedLine, output: bytes) -> tuple[int, int | None] | None:
    """Return where the echo of a line begins and ends; ``None`` for the end of output that may begin it."""
    text = line.text
    if line.is_edited:
        for head in _PROBE_HEAD.finditer(output):
            place = _placed(_edited_end(text, output, head.start()), output, head.start())
            if place is not None:
                return place if line.is_whole else (place[0], None)
        return None
    at = -1
    while line.is_whole and (at := output.find(text, at + 1)) >= 0:
        place = _placed(_end(text, output, at), output, at)
        if place is not None:
            return place
    for at in range(max(0, len(output) - len(text) + line.is_whole), len(output)):
        if output.startswith(text[:1], at) and text.startswith(output[at:]):
            return at, None
    return None


def _placed(end: int | None, output: bytes, at: int) -> tuple[int, int | None] | None:
    if end is None:
        return (at, None) if len(output) - at <= _MOST_ECHO_BYTES else None
    return (at, end) if end >= 0 else None


def _end(text: bytes, output: bytes, at: int) -> int | None:
    """Return the end of a row, -1 if there is other output, ``None`` if that is open."""
    match = _ENTER.match(output, at + len(text))
    if match is not None:
        return match.end()
    return -1 if output[at + len(text) :].strip(b"\r") else None


def _edited_end(text: bytes, output: bytes, at: int) -> int | None:
    """Return the same as :func:`_end` for a row that may be wrapped."""
    is_open = False
    if len(output) == at + 1:
        return None
    places = [(at + 2, 2)]
    while places:
        at, done = places.pop()
        while done < len(text):
            wrap = _WRAP.match(output, at)
            if wrap is not None:
                if output[at] == text[done]:  # a space of the text in front of a wrap
                    places.append((at + 1, done + 1))
                at = wrap.end()
                if (
                    done and output[at : at + 1] == text[done - 1 : done]
                ):  # drawn once more, at the margin
                    places.append((at + 1, done))
            elif output[at : at + 1] == text[done : done + 1]:
                at, done = at + 1, done + 1
            else:
                is_open |= at == len(output) or _WRAP_BEGUN.match(output, at) is not None
                break
        else:
            end = _EDITED_ENTER.match(output, at)
            wrap = _WRAP.match(output, at)
            if (
                end is None
                and wrap is not None
                and output[wrap.end() : wrap.end() + 1] == text[-1:]
            ):
                at = wrap.end() + 1
                end = _EDITED_ENTER.match(output, at)
            if end is None:
                is_open |= _EDITED_ENTER_BEGUN.match(output, at) is not None
            elif end["after"] is None and (_PASTE_ENDS + b"\r").startswith(output[end.end() :]):
                is_open = True
            else:
                return end.end()
    return None if is_open else -1


def _hidden(line: TypedLine, echo: bytes, offset: int) -> Iterator[tuple[int, int]]:
    if line.is_edited:
        # The terminal of a viewer must follow the end of bracketed paste.
        first, paste, _ = echo.partition(_PASTE_ENDS)
        yield offset, offset + len(first)
        if paste:
            yield offset + len(first + paste), offset + len(echo)
        return
    at = 0
    pieces = [*line.pieces, (echo[len(line.text) :], line.ends_row)]
    for text, is_shown in pieces:
        if not is_shown and text:
            yield offset + at, offset + at + len(text)
        at += len(text)
