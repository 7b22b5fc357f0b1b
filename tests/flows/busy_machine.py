"""
A machine that prints numbered lines without end and records what is typed.

``python busy_machine.py DIRECTORY BYTES_PER_SECOND [asks]`` appends each key to the file ``typed`` of the
directory, and each start to the file ``starts``.  When there is a file ``stop``, it prints the rest of the present line and ``END``.
With ``asks``, each line asks the terminal for something, and some writes end inside a query.
"""

from __future__ import annotations

import os
import re
import select
import sys
import time
import tty
from collections.abc import Callable

LINE_BYTES = 16
QUERIES = (
    (b"\x1b[6n\x05aa", b"\x1b[6_\x00aa"),
    (b"\x1b]11;?\x07", b"\x1b]11;-\x07"),
    (b"\x1b[18t\x1bZ", b"\x1b[18_\x1b\\"),
    (b"\x1bP$qm\x1b\\", b"\x1bP%qm\x1b\\"),
    (b"\x1b[c\x9b6n ", b"\x1b[_\x9b6_ "),
    (b"\xc2\x9a\x1b[>0q", b"\xc2\x80\x1b[>0_"),
)
"""What the lines ask in turn, and what an observer's terminal gets instead."""
_NUMBER = re.compile(rb"[0-9]+")
_PIECE_BYTES = 4096
_CUT_BYTES = 37
"""No multiple of a line."""


def plain_line(number: int) -> bytes:
    """Return a line."""
    return b"%015d\n" % number


def asking_line(number: int) -> bytes:
    """Return a line with queries."""
    return b"%08d%b\n" % (number, QUERIES[number % len(QUERIES)][0])


def harmless_line(number: int) -> bytes:
    """Return a line whose queries a terminal does not answer."""
    return b"%08d%b\n" % (number, QUERIES[number % len(QUERIES)][1])


def printed(size: int, start: int = 0, line: Callable[[int], bytes] = plain_line) -> bytes:
    """Return some of the bytes that the machine prints."""
    lines = range(start // LINE_BYTES, (start + size) // LINE_BYTES + 1)
    return b"".join(map(line, lines))[start % LINE_BYTES :][:size]


def is_exact(output: bytes, *lines: Callable[[int], bytes]) -> bool:
    """
    Return whether this is what the machine has printed.

    It may begin later than the machine: a console begins with a part of what was printed before.

    :param lines: kinds of lines, plain ones by default; each byte may be that of any.
    """
    begun = output.index(b"\n") + 1
    start = int(_NUMBER.match(output, begun)[0]) * LINE_BYTES - begun
    choices = [printed(len(output), start, line) for line in lines or (plain_line,)]
    return all(
        any(output[at : at + _PIECE_BYTES] == each[at : at + _PIECE_BYTES] for each in choices)
        or _is_mixture(*(each[at : at + _PIECE_BYTES] for each in (output, *choices)))
        for at in range(0, len(output), _PIECE_BYTES)
    )


def _is_mixture(output: bytes, *choices: bytes) -> bool:
    return all(byte in choice for byte, *choice in zip(output, *choices, strict=True))


def main(directory: str, bytes_per_second: float, *, asks: bool) -> None:
    line, most = (asking_line, _CUT_BYTES) if asks else (plain_line, _PIECE_BYTES)
    tty.setraw(0)
    with open(os.path.join(directory, "starts"), "a") as starts:
        starts.write(f"{os.getpid()}\n")
    record = os.open(
        os.path.join(directory, "typed"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
    )
    stop = os.path.join(directory, "stop")
    wait_seconds = max(0.005, LINE_BYTES / bytes_per_second / 4)
    number, began = 0, time.monotonic()
    while not os.path.exists(stop):
        if select.select([0], [], [], wait_seconds)[0]:
            os.write(record, os.read(0, 65536))
        allowed = (time.monotonic() - began) * bytes_per_second - number * LINE_BYTES
        lines = min(int(allowed), _PIECE_BYTES) // LINE_BYTES
        _write(b"".join(map(line, range(number, number + lines))), most)
        number += lines
    _write(b"END\n", most)
    while data := os.read(0, 65536):
        os.write(record, data)


def _write(data: bytes, most: int) -> None:
    while data:
        data = data[os.write(1, data[:most]) :]


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), asks=bool(sys.argv[3:]))
