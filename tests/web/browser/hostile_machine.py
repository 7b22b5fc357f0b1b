"""
A machine that prints hostile output and records each byte that it receives.

``python hostile_machine.py DIRECTORY`` prints ``READY``; the keys that it understands:

=====  ==========================================================================
``g``  print every entry of :data:`CORPUS`, then ``DONE``
``k``  print links in the first line of an empty screen, then ``DONE``
``l``  print one line of :data:`LONG_LINE_BYTES`, then ``DONE``
=====  ==========================================================================
"""

from __future__ import annotations

import base64
import os
import sys
import tty

LONG_LINE_BYTES = 100_000_000
LINK = b"https://attacker.example/"
CLIPBOARD = "stolen by the machine"
_MARKUP = (
    b"<img src=x onerror=\"document.title='executed'\"><script>document.title='executed'</script>"
)
_SVG = b"<svg onload=\"document.title='executed'\">"
_COPY = base64.b64encode(CLIPBOARD.encode())

CORPUS = {
    "titles": b"\x1b]0;pwned\x07\x1b]1;pwned\x1b\\\x1b]2;pwned\x07\x9d2;pwned\x9c",
    "title stack": b"\x1b[22;0t" * 1000
    + b"\x1b]2;pwned\x07"
    + b"\x1b[23;0t" * 1001
    + b"\x1b[21t\x1b[20t",
    "links": b"\x1b]8;;%s\x1b\\a link\x1b]8;;\x1b\\ \x1b]8;id=1;javascript:document.title='executed'\x07"
    b"another\x1b]8;;\x07" % LINK,
    "clipboard": b"\x1b]52;c;%s\x07\x1b]52;;%s\x1b\\\x1b]52;c;?\x07" % (_COPY, _COPY),
    "images": b"\x1b]1337;File=inline=1:%s\x07\x1bPq#0;2;0;0;0#0~~@@vv\x1b\\\x1b_Gf=100,a=T;%s\x1b\\"
    % (_COPY, _COPY),
    "notifications": b"\x1b]9;pwned\x07\x1b]777;notify;pwned;pwned\x07\x1b]99;;pwned\x1b\\\x07\x07",
    "directory": b"\x1b]7;file://attacker.example/etc\x07\x1b]133;A\x07\x1b]633;E;id\x07",
    "colour queries": b"\x1b]4;1;?\x07\x1b]10;?\x07\x1b]11;?\x1b\\\x1b]12;?\x07\x1b[?996n",
    "device attributes": b"\x1b[c\x1b[0c\x1b[>c\x1b[>0c\x1b[=c\x1bZ\x1b[>q\x9bc",
    "status": b"\x1b[5n\x1b[6n\x1b[?6n\x1b[?15n\x1b[?25n\x1b[?26n\x1b[?53n\x1b[?75n\x1b[x\x1b[1x",
    "answerback": b"\x05" * 10,
    "mode queries": b"\x1b[1$p\x1b[?1$p\x1b[?2026$p\x1b[?u\x1b[>1u\x1b[1*y\x1b[?1;1;1;1;1;1*y",
    "window queries": b"\x1b[11t\x1b[13t\x1b[14t\x1b[15t\x1b[16t\x1b[18t\x1b[19t\x1b[9;1t\x1b[8;2000;2000t",
    "strings": b'\x1bP$qm\x1b\\\x1bP$qr\x1b\\\x1bP$q"p\x1b\\\x1bP+q544e\x1b\\\x1bP+Q\x1b\\'
    b"\x1bP1;1|17/1b5b41\x1b\\\x1b^private\x1b\\\x1bXstart\x1b\\",
    "focus reports": b"\x1b[?1004h",
    "macros and keys": b'\x1b[1*z\x1b[0;1"u\x1b"p\x1b[>4;2m',
    "counts": b"".join(b"\x1b[2147483647%c" % final for final in b"@ABCDEFGHIJKLMPSTXZ`ad")
    + b"b\x1b[2147483647b\x1b[4294967297;99999999999999999999H\x1b[99999999;99999999r\x1b[r",
    "markup": b"\r\n" + _MARKUP + b"\r\n" + _SVG + b"\r\n&lt;b&gt; </textarea></style><!--\r\n",
    "bidi": "\r\nrm \u202e-rf\u202c \u2066x\u2069 \u200f\u061c \ufeff\u200b\r\n".encode(),
    "combining": b"a" + "\u0301".encode() * 20_000 + b"\r\n",
    "not UTF-8": b"\xff\xfe\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xe2\x82\r\n",
    "long parameters": b"\x1b[" + b"1;" * 100_000 + b"m\x1b[" + b"9" * 100_000 + b"m",
    "long string": b"\x1b]2;" + b"x" * 300_000 + b"\x07\x1bP" + b"y" * 300_000 + b"\x1b\\",
    "long line": b"z" * 200_000 + b"\r\n",
    "modes": b"\x1b[?1049h\x1b[?47h\x1b[?25l\x1b[?5h\x1b[4h\x1b[20h\x1b(0\x0f\x0e\x1b[8m",
    "reset": b"\x1bc\x1b[!p\x1b[?1004l",
}
"""Hostile output by its subject; the last entry leaves the terminal readable."""


def main(directory: str) -> None:
    tty.setraw(0)
    record = os.open(os.path.join(directory, "received"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    _write(b"READY\r\n")
    while data := os.read(0, 65536):
        os.write(record, data)
        for key in data:
            if key == ord("g"):
                for output in CORPUS.values():
                    _write(output)
                _write(b"\r\nDONE\r\n")
            elif key == ord("k"):
                _write(b"\x1b[2J\x1b[H" + CORPUS["links"] + b" " + LINK + b"\r\nDONE\r\n")
            elif key == ord("l"):
                for _ in range(LONG_LINE_BYTES // 1_000_000):
                    _write(b"l" * 1_000_000)
                _write(b"\r\nDONE\r\n")


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    main(sys.argv[1])
