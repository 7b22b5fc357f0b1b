"""
The shell of a BMC for a real ``sshd``, as its forced command: ``python bmc_shell.py FILE``.

It knows ``connect com2``, which enters a console that echoes, and whose Ctrl-\\ leads back.  What comes to the shell
itself is appended to FILE.
"""

from __future__ import annotations

import os
import sys
import termios
import tty

PROMPT = b"racadm>>"
_BANNER = b"Connected to Serial Device 2. To end type: ^\\\r\n"


def main(path: str) -> None:
    tty.setraw(0, termios.TCSANOW)
    os.write(1, PROMPT)
    line, is_console = b"", False
    while byte := os.read(0, 1):
        if is_console:
            is_console = byte != b"\x1c"
            os.write(1, byte if is_console else b"\r\n" + PROMPT)
            continue
        with open(path, "ab") as file:
            file.write(byte)
        if byte != b"\r":
            line += byte
            os.write(1, byte)
            continue
        os.write(1, b"\r\n")
        is_console, line = line == b"connect com2", b""
        os.write(1, _BANNER + b"login: " if is_console else b"unknown command\r\n" + PROMPT)


if __name__ == "__main__":
    main(sys.argv[1])
