"""
Attacks on the ssh door of a chain: strangers before their login, and users behind it.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import time
from contextlib import suppress
from itertools import count

from .doors import command
from .work import Access, Done

_STRANGERS = 1000
"""Connections of the crowd at a time."""
_LOT = 20
_PIECE = b"x" * 65536

_numbers = count()


def _string(data: bytes) -> bytes:
    return struct.pack(">L", len(data)) + data


def _packet(payload: bytes) -> bytes:
    padding = 8 - (len(payload) + 5) % 8
    padding += 8 * (padding < 4)
    return struct.pack(">LB", len(payload) + padding + 1, padding) + payload + bytes(padding)


def _exchange() -> bytes:
    """Return what begins a connection and has the server compute keys."""
    cipher, mac = b"aes128-gcm@openssh.com", b"hmac-sha2-256-etm@openssh.com"
    names = (b"curve25519-sha256", b"ssh-ed25519", cipher, cipher, mac, mac, b"none", b"none")
    offer = b"\x14" + os.urandom(16) + b"".join(map(_string, (*names, b"", b""))) + bytes(5)
    return b"SSH-2.0-stranger\r\n" + _packet(offer) + _packet(b"\x1e" + _string(os.urandom(32)))


def _connect(access: Access) -> socket.socket:
    """Begin to connect, from one of many addresses."""
    number = next(_numbers)
    line = socket.socket()
    line.setblocking(False)
    line.bind((f"127.{1 + number // 62500 % 200}.{number // 250 % 250}.{1 + number % 250}", 0))
    with suppress(BlockingIOError):
        line.connect(("127.0.0.1", access.ssh_port))
    return line


def strangers(access: Access, done: Done, until: float) -> None:
    """Keep a thousand connections that do not log in, and replace each that is ended."""
    lines: dict[int, socket.socket] = {}
    poll = select.epoll()
    try:
        while time.monotonic() < until:
            for _ in range(min(_LOT, _STRANGERS - len(lines))):
                line = _connect(access)
                lines[line.fileno()] = line
                poll.register(line, select.EPOLLIN)
            for number, _ in poll.poll(0.001):
                try:
                    data = lines[number].recv(4096)
                except OSError:
                    data = b""
                done.answers["heard" if data else "ended"] += 1
                if not data:
                    lines.pop(number).close()
    finally:
        poll.close()
        for line in lines.values():
            line.close()


def exchanges(access: Access, done: Done, until: float) -> None:
    """Have the server compute keys again and again, on new connections."""
    request = _exchange()
    while time.monotonic() < until:
        with _connect(access) as line:
            line.settimeout(10)
            line.sendall(request)
            received = b""
            while b"\x00\x00\x00\x0bssh-ed25519" not in received[400:]:
                data = line.recv(4096)
                if not data:
                    break
                received += data
            done.answers["keys" if data else "ended"] += 1


def _ssh(access: Access, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(access.ssh_port, access.ssh_key, *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    )


def typing(machine: str, access: Access, done: Done, until: float) -> None:
    """Type at full speed."""
    process = _ssh(access, "-tt", f"{machine}@127.0.0.1")
    assert process.stdin is not None and process.stdout is not None
    lines = process.stdin, process.stdout
    for each in lines:
        os.set_blocking(each.fileno(), False)
    try:
        while time.monotonic() < until:
            reads, writes, _ = select.select([lines[1]], [lines[0]], [], 0.1)
            if reads and not os.read(lines[1].fileno(), 65536):
                raise EOFError("ssh has ended")
            if writes:
                done.sent += os.write(lines[0].fileno(), _PIECE)
    finally:
        process.kill()
        process.communicate()


def reading(machine: str, access: Access, done: Done, until: float) -> None:
    """Read what a machine prints at full speed."""
    process = _ssh(access, "-T", f"{machine}@127.0.0.1")
    assert process.stdout is not None
    try:
        while time.monotonic() < until:
            if select.select([process.stdout], [], [], 0.1)[0]:
                size = len(os.read(process.stdout.fileno(), 65536))
                if not size:
                    raise EOFError("ssh has ended")
                done.sent += size
    finally:
        process.kill()
        process.communicate()
