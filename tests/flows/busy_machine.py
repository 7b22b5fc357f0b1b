"""
A machine that prints numbered lines without end and records what is typed.

``python busy_machine.py DIRECTORY BYTES_PER_SECOND [asks]`` appends each key to the file ``typed`` of the
directory, and each start to the file ``starts``.  When there is a file ``stop``, it prints the rest of the present line and ``END``.
With ``asks``, each line asks the terminal for the cursor and for its name.
"""

from __future__ import annotations

import os
import select
import sys
import time
import tty

LINE_BYTES = 16
_LINE, _ASKING_LINE = b"%015d\n", b"%010d\x1b[6n\x05\n"
_PIECE_BYTES = 4096


def printed(size: int, start: int = 0, *, asks: bool = False) -> bytes:
    """Return some of the bytes that the machine prints."""
    form = _ASKING_LINE if asks else _LINE
    lines = range(start // LINE_BYTES, (start + size) // LINE_BYTES + 1)
    return b"".join(form % number for number in lines)[start % LINE_BYTES :][:size]


def is_exact(output: bytes) -> bool:
    """
    Return whether this is what the machine has printed.

    It may begin later than the machine: a console begins with a part of what was printed before.
    """
    begun = output.index(b"\n") + 1
    start = int(output[begun : begun + LINE_BYTES]) * LINE_BYTES - begun
    return output == printed(len(output), start)


def main(directory: str, bytes_per_second: float, line: bytes) -> None:
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
        _write(b"".join(line % each for each in range(number, number + lines)))
        number += lines
    _write(b"END\n")
    while data := os.read(0, 65536):
        os.write(record, data)


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), _ASKING_LINE if sys.argv[3:] else _LINE)
