r"""
The lines that ``kubectl console --run`` types into a shell, sans I/O.

The *probe* is typed at the shell's prompt. It prints a mark, and lets the shell read one more line and run it. What
follows is typed while the shell reads, so the kernel echoes it unchanged, and not the line editor of the shell: the
command twice, and a comparison of both copies, which runs the command between two marks.

A mark is an operating system command (OSC) with a number that no terminal knows. (Not an APC, which
tmux takes for a title.) The shell's ``printf`` makes its Escape characters, so the echo of a typed
line contains no mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MARK = 28747
"""The number of the OSC."""
MOST_COMMAND_BYTES = 16 << 10
"""Limit of a command as it is typed."""
WAKE = b"\x15\r"
"""Typed before the probe: deletes the text at the prompt, and shows which prompt it is."""

_LINE_BYTES = 900
"""Size of a typed line: a terminal without line editing takes 4095 bytes on Linux, 1024 elsewhere."""
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
