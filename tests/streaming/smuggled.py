"""
Identity headers in every spelling that some reader of HTTP might take for the plain one, as raw
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twisted.internet.endpoints import connectProtocol
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

CANARY = b"canary"
NAMES = (
    b"Authorization",
    b"Proxy-Authorization",
    b"Cookie",
    b"X-Remote-User",
    b"X-Remote-Group",
    b"X-Remote-Uid",
    b"X-Remote-Extra-Scopes",
    b"X-Forwarded-User",
    b"Forwarded",
    b"X-Twisted-Exec-User",
    b"X-Twisted-Exec-Machine-Uid",
    b"X-Twisted-Exec-Reason",
)
IMPERSONATING = (
    b"Impersonate-User",
    b"Impersonate-Group",
    b"Impersonate-Uid",
    b"Impersonate-Extra-Scopes",
)

FORMS = {
    "plain": b"%s: canary\r\n",
    "no space": b"%s:canary\r\n",
    "tab": b"%s:\tcanary\r\n",
    "folded value": b"%s:\r\n canary\r\n",
    "folded into another": b"Odd: a\r\n %s: canary\r\n",
    "twice": b"%s: canary\r\n%s: canary2\r\n",
    "named by Connection": b"Connection: keep-alive, %s\r\n%s: canary\r\n",
    "space before the colon": b"%s : canary\r\n",
    "tab before the colon": b"%s\t: canary\r\n",
    "bare line feed": b"Odd: a\n%s: canary\r\n",
    "bare carriage return": b"Odd: a\r%s: canary\r\n",
    "control character": b"\x0b%s: canary\r\n",
    "NUL": b"%s\x00: canary\r\n",
    "8 bit": b"%s\xad: canary\r\n",
}
"""A header line each, with ``%s`` for the name."""


def spelt(names: tuple[bytes, ...], form: bytes) -> Iterator[bytes]:
    """Header lines of a form, with each name in every case and with underscores."""
    for name in names:
        for each in (name, name.upper(), name.lower(), name.replace(b"-", b"_")):
            yield form.replace(b"%s", each)
        if name.count(b"-") > 1:
            yield form.replace(b"%s", name.replace(b"-", b"_", 1))


class _Raw(Protocol):
    transport: Any

    def __init__(self) -> None:
        self.data = b""
        self.lost = False

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost = True


async def said(reactor: Any, endpoint: Any, request: bytes) -> int:
    """
    Send raw bytes.

    :return: the code of the response; 0 if the connection was closed without a response.
    """
    peer: _Raw = await connectProtocol(endpoint, _Raw())
    peer.transport.write(request)
    while b"\r\n\r\n" not in peer.data and not peer.lost:
        await deferLater(reactor, 0.001)
    peer.transport.abortConnection()
    while not peer.lost:
        await deferLater(reactor, 0.001)
    return int(peer.data.split()[1]) if peer.data else 0
