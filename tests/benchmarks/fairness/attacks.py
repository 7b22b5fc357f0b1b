"""
The other parties: each works at full speed for some seconds, in a process of its own.

``python -m tests.benchmarks.fairness.attacks`` reads lines from standard input, each a row and an
:class:`Access` as JSON.  For each it prints a line when it begins, and at the end one with what it
has done: bytes sent, answers by code, and how often each refusal or end of a connection occurred.
A refused attack is a valid answer of the server.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import socket
import ssl
import sys
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial

from tests.apiserver.attacks import SPDY, WEBSOCKET, Attack, Target
from tests.benchmarks.agent_door import AgentAccess
from tests.flows.sessions.test_hostile import frame
from twisted_exec.api import kinds
from twisted_exec.wire.spdy_connection import SPDYConnection

from . import ssh_attacks
from .agents import AGENTS, AT_ONCE, flood
from .work import Access, Done, Work

SINK, LOUD = "sink", "loud"
"""Machines: one that discards its input, one that runs ``yes`` if a row says so."""
EDITOR, STRANGER = "editor", "stranger"
"""Users: one with the role ``edit``, one without any."""
_CHUNK_BYTES = 64 << 10
_BUFFER_BYTES = 256 << 10
_RETRY_SECONDS = 0.05
_SECRETS = kinds.SECRETS.resource.path("default")
TARGET = "target"
"""The Secret that patches are for."""
COPIED_KEYS = 200
_MERGE = "application/merge-patch+json"
_CROWD = 64
"""Connections that one thread opens at once."""
CROWD_SIZE = 4000
"""Machines that name a pool that does not exist."""
CROWDED = ("pages", "selectors", "watches", "strays", "tables", "dry-deletes")
"""Rows that need this crowd; they are left out unless they are named."""
CROWD_POOL = "elsewhere"
_WATCHES = 400
OPENS, HANDSHAKES = "opens", "handshakes"
"""The rows in which the quiet user opens consoles, too."""
_ELSEWHERE = ("127.0.0.9", 0)
"""Where handshakes come from."""
_OPENERS = 20
FROZEN = "frozen-disk"
DISK_FAULTS = (FROZEN, "read-only-disk")
"""Rows in which the journals' disk of the attacked chain fails while a machine prints."""
SSH = ("ssh-strangers", "ssh-exchanges", "ssh-input", "yes-ssh")
"""Rows in which the quiet user types through an ssh door, and others come to it; they need OpenSSH."""
CROWD_OF_AGENTS = "agents"
"""The row in which agents flood a door of the attacked chain."""
BMC = "bmc"
"""The row in which BMCs of the attacked chain's runtime misbehave."""


def _again(work: Callable[[Access, Done, float], None]) -> Work:
    """Connect again after each end of a connection."""

    def repeated(access: Access, done: Done, until: float) -> None:
        while time.monotonic() < until:
            try:
                work(access, done, until)
            except (OSError, EOFError) as error:
                done.refusals[f"{type(error).__name__} {error}"[:60]] += 1
                time.sleep(_RETRY_SECONDS)

    return repeated


# Requests, one after the other.


def _request(
    method: str,
    path: str,
    body: bytes,
    media_type: str = "application/json",
    accept: str = "application/json",
) -> bytes:
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n"
        f"Content-Type: {media_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def _requests(user: str, request: bytes) -> Work:
    def work(access: Access, done: Done, until: float) -> None:
        with access.connect(user) as line:
            # The longest of all took seconds when four of them ran at once.
            line.settimeout(60)
            answers = line.makefile("rb")
            while time.monotonic() < until:
                try:
                    line.sendall(request)
                except OSError:
                    pass  # an early refusal closes the connection; its answer says why
                done.sent += len(request)
                done.answers[_answer(answers)] += 1

    return _again(work)


def _answer(answers: socket.SocketIO) -> str:
    """The code of the next answer, which is read to its end."""
    head = answers.readline()
    if not head:
        raise EOFError("closed without an answer")
    length, is_chunked = 0, False
    while (header := answers.readline()) not in (b"\r\n", b""):
        name, _, value = header.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
        is_chunked |= name.lower() == b"transfer-encoding"
    answers.read(length)
    while is_chunked:
        length = int(answers.readline() or b"0", 16)
        answers.read(length + 2)
        is_chunked = bool(length)
    return head[9:12].decode()


def _write(body: object, method: str = "POST", path: str = _SECRETS, media: str = "json") -> bytes:
    """
    A write of the editor, encoded.

    As a dry run: it is decoded, patched and validated as any other, and leaves nothing behind.
    """
    separator = "&" if "?" in path else "?"
    encoded = json.dumps(body, separators=(",", ":")).encode()
    return _request(method, f"{path}{separator}dryRun=All", encoded, f"application/{media}")


def _secret(**fields: object) -> dict[str, object]:
    metadata = {"name": "new", **fields.pop("metadata", {})}  # type: ignore[dict-item]
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **fields}


def _patch(body: object, media: str, query: str = "") -> bytes:
    return _write(body, "PATCH", f"{_SECRETS}/{TARGET}{query}", media)


def _review() -> bytes:
    """1.4 million list items."""
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return _request("POST", path, b'{"spec":{"extra":[' + b",".join([b"1"] * 1_400_000) + b"]}}")


def _owner(number: int) -> dict[str, str]:
    return {"apiVersion": "v1", "kind": "Secret", "name": "a", "uid": str(number)}


_WRITES: dict[str, Callable[[], bytes]] = {
    "write-integers": lambda: _write(_secret(data=[1] * 1_400_000)),
    "write-data-keys": lambda: _write(_secret(data={f"{key:x}": "" for key in range(100_000)})),
    "write-apply": lambda: _patch(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": TARGET},
            "data": {f"{key:x}": "" for key in range(50_000)},
        },
        "apply-patch+yaml",
        "?fieldManager=fairness&force=true",
    ),
    "write-owners": lambda: _patch(
        {"metadata": {"ownerReferences": [_owner(number) for number in range(20_000)]}},
        "strategic-merge-patch+json",
    ),
    "write-labels": lambda: _write(
        _secret(metadata={"labels": {f"{key:x}": "" for key in range(60_000)}})
    ),
    "write-finalizers": lambda: _write(
        _secret(metadata={"finalizers": [f"a.b/{key:x}" for key in range(60_000)]})
    ),
    "write-copies": lambda: _patch(
        [{"op": "copy", "from": "/data", "path": f"/c{number}"} for number in range(900)],
        "json-patch+json",
    ),
}


# Patterns of alerts.

_ALERTS = kinds.CONSOLEALERTS.resource.path("default")
_ALERT_COUNT = 15
SLOW = "patterns-matched"
"""The row in which a machine prints what its pattern needs longest for."""


def _alert(name: str, *regexes: str) -> dict[str, object]:
    patterns = [{"name": f"p{at}", "regex": regex} for at, regex in enumerate(regexes)]
    resource = kinds.CONSOLEALERTS.resource
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": {"patterns": patterns},
    }


def _refused_alerts(access: Access, done: Done, until: float) -> None:
    """Ask for alerts that are too complex, each with 64 other expressions."""
    with access.connect(EDITOR) as line:
        line.settimeout(60)
        answers = line.makefile("rb")
        for number in itertools.count():
            regexes = [f"{number}\\pL{{{200 - at}}}" for at in range(64)]
            request = _write(_alert("sent", *regexes), path=_ALERTS)
            line.sendall(request)
            done.sent += len(request)
            done.answers[_answer(answers)] += 1
            if time.monotonic() >= until:
                break


def _stored_alerts(*regexes: str, changes: bool) -> Work:
    """
    Create alerts, change each of them again and again if asked, and delete them.

    :param regexes: with a place for a number, so that no result of an earlier one is used.
    """

    def work(access: Access, done: Done, until: float) -> None:
        numbers = itertools.count()

        def alert(name: str) -> bytes:
            number = next(numbers)
            return json.dumps(_alert(name, *(each % number for each in regexes))).encode()

        names = [f"stored-{number}" for number in range(_ALERT_COUNT if changes else 1)]
        with access.connect(EDITOR) as line:
            line.settimeout(60)
            answers = line.makefile("rb")

            def send(request: bytes) -> None:
                line.sendall(request)
                done.sent += len(request)
                done.answers[_answer(answers)] += 1

            for name in names:
                send(_request("POST", _ALERTS, alert(name)))
            while changes and time.monotonic() < until:
                for name in names:
                    send(_request("PATCH", f"{_ALERTS}/{name}", alert(name), _MERGE))
            time.sleep(max(0.0, until - time.monotonic()))
            for name in names:
                send(_request("DELETE", f"{_ALERTS}/{name}", b"{}"))

    return work


# Machines in great number.

_MACHINES = kinds.MACHINES.resource.path("default")


def crowd_machine(name: str, **labels: str) -> dict[str, object]:
    """A machine whose pool does not exist."""
    resource = kinds.MACHINES.resource
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "machineClassRef": {"name": "shell"},
            "machinePoolRef": {"name": CROWD_POOL},
            "power": "Off",
        },
    }


def _selector(number: int) -> str:
    """Terms that every machine of the crowd matches."""
    return "labelSelector=" + ",".join(f"!{number:x}-{term:x}" for term in range(250))


def _selecting() -> Work:
    """List one machine, for which all are compared with 250 terms."""
    return _requests(EDITOR, _request("GET", f"{_MACHINES}?limit=1&{_selector(0)},x=y", b""))


def _paging() -> Work:
    """List the first machine of all namespaces."""
    everywhere = kinds.MACHINES.resource.path()
    return _requests(EDITOR, _request("GET", f"{everywhere}?limit=1", b""))


def _tables() -> Sequence[Work]:
    """Get a table of all machines on many connections at once."""
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    return [_requests(EDITOR, _request("GET", _MACHINES, b"", accept=accept))] * _CROWD


def _watching(access: Access, done: Done, until: float) -> None:
    """Watch the machines with long selectors, and change one of them again and again."""
    with ExitStack() as stack:
        for number in range(_WATCHES):
            line = stack.enter_context(access.connect(EDITOR))
            query = f"watch=true&resourceVersion=0&{_selector(number)}"
            line.sendall(_request("GET", f"{_MACHINES}?{query},x=y", b""))
            done.answers[line.recv(12)[9:].decode()] += 1
            if time.monotonic() > until:
                return
        line = stack.enter_context(access.connect(EDITOR))
        line.settimeout(60)
        answers = line.makefile("rb")
        for number in itertools.count():
            body = json.dumps({"metadata": {"labels": {"n": str(number)}}}).encode()
            line.sendall(_request("PATCH", f"{_MACHINES}/crowd-0", body, _MERGE))
            done.answers[_answer(answers)] += 1
            if time.monotonic() > until:
                return


def _straying(access: Access, done: Done, until: float) -> None:
    """Create further such machines, and delete them."""
    with access.connect(EDITOR) as line:
        line.settimeout(60)
        answers = line.makefile("rb")
        while time.monotonic() < until:
            body = json.dumps(crowd_machine("stray")).encode()
            for request in (
                _request("POST", _MACHINES, body),
                _request("DELETE", f"{_MACHINES}/stray", b"{}"),
            ):
                line.sendall(request)
                done.sent += len(request)
                done.answers[_answer(answers)] += 1


# Bytes without a pause, while the answers are discarded.


def _flood(opened: Callable[[Access], tuple[ssl.SSLSocket, bytes]], count: bytes = b"") -> Work:
    """
    Send a chunk again and again.

    :param opened: connects; the bytes are the chunk.
    :param count: if any, what each answer begins with, before its code.
    """

    def work(access: Access, done: Done, until: float) -> None:
        line, chunk = opened(access)
        with line:
            _pour(line, chunk, done, until, count)

    return _again(work)


def _pour(line: ssl.SSLSocket, chunk: bytes, done: Done, until: float, count: bytes) -> None:
    line.setblocking(False)
    left = memoryview(chunk)
    while (seconds := until - time.monotonic()) > 0:
        moved = False
        try:
            data = line.recv(_BUFFER_BYTES)
            if not data:
                raise EOFError("the server ended the connection")
            moved = True
            if count:
                for part in data.split(count)[1:]:
                    done.answers[part[:3].decode(errors="replace")] += 1
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        try:
            size = line.send(left[:_CHUNK_BYTES])
            done.sent += size
            moved = True
            left = left[size:] or memoryview(chunk)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        if not moved:
            select.select([line], [line], [], min(seconds, 0.05))
            # Writable for the kernel need not mean writable for TLS.
            time.sleep(0.0005)


def _many(piece: bytes) -> bytes:
    """About 64 KiB of the same."""
    return piece * max(1, _CHUNK_BYTES // len(piece))


def _upgraded(access: Access, machine: str, protocol: str) -> ssl.SSLSocket:
    """An open console of the editor, which has answered 101 and nothing else yet."""
    line = access.connect(EDITOR)
    target = Target(name=machine)
    method, headers = ("GET", WEBSOCKET) if protocol == "websocket" else ("POST", SPDY)
    line.sendall(Attack(method, f"{target.path}?{target.query}", headers).head)
    head = b""
    while b"\r\n\r\n" not in head:
        data = line.recv(1)
        if not data:
            raise EOFError("closed before an answer")
        head += data
    if head[9:12] != b"101":
        line.close()
        raise EOFError(f"answered {head[9:12].decode()}")
    return line


def _websocket(chunk: bytes, before: bytes = b"") -> Work:
    def opened(access: Access) -> tuple[ssl.SSLSocket, bytes]:
        line = _upgraded(access, SINK, "websocket")
        line.sendall(before)
        return line, chunk

    return _flood(opened)


def _one_message() -> Work:
    """1 MiB of standard input in fragments of one byte; then the next such message."""
    size = (1 << 20) - 1
    message = frame(2, b"\0", first=0) + frame(0, b"x", first=0) * (size - 1) + frame(0, b"x")
    return _websocket(message)


def _spdy(chunk: bytes, before: bytes = b"") -> Work:
    def opened(access: Access) -> tuple[ssl.SSLSocket, bytes]:
        line = _upgraded(access, SINK, "spdy")
        connection = SPDYConnection(client=True, max_streams=0)
        for kind in (b"error", b"stdin", b"stdout", b"resize"):
            connection.open([(b"streamtype", kind)])
        line.sendall(connection.data_to_send() + before)
        return line, chunk

    return _flood(opened)


def _control(kind: int, payload: bytes) -> bytes:
    """A SPDY control frame."""
    return (0x80030000 | kind).to_bytes(4, "big") + len(payload).to_bytes(4, "big") + payload


def _bomb() -> bytes:
    """410 kB of header blocks that inflate to 63 KiB each."""
    value = b"a" * (63 << 10)
    plain = b"\0\0\0\1" + b"\0\0\0\1a" + len(value).to_bytes(4, "big") + value
    # Raw and flushed: a block that continues the zlib stream, whatever came before.
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(plain) + packer.flush(zlib.Z_FULL_FLUSH)
    framed = _control(8, (3).to_bytes(4, "big") + block)
    return framed * (410_000 // len(framed))


def _pipelined() -> Work:
    chunk = _many(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return _flood(lambda access: (access.connect(), chunk), count=b"HTTP/1.1 ")


def _one_byte_chunks() -> Work:
    """A body of which each byte is a chunk."""
    head = (
        b"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews HTTP/1.1\r\n"
        b"Host: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    chunk = head + b"1\r\n \r\n" * 1_000_000 + b"0\r\n\r\n"
    return _flood(lambda access: (access.connect(STRANGER), chunk), count=b"HTTP/1.1 ")


def _handshakes(access: Access, done: Done, until: float) -> None:
    """Begin many handshakes at once, and leave; the first message is recorded, which costs nothing."""
    tls, written = ssl.create_default_context(cafile=access.ca), ssl.MemoryBIO()
    engine = tls.wrap_bio(ssl.MemoryBIO(), written, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        engine.do_handshake()
    hello = written.read()
    while time.monotonic() < until:
        with ExitStack() as stack:
            lines = [
                stack.enter_context(
                    socket.create_connection(("127.0.0.1", access.port), source_address=_ELSEWHERE)
                )
                for _ in range(_CROWD)
            ]
            for line in lines:
                line.settimeout(10)
                line.sendall(hello)
            for line in lines:
                done.answers["handshake" if line.recv(1) else "closed"] += 1


# Readers of a machine that prints without end.


def _reader(access: Access, done: Done, until: float) -> None:
    with _upgraded(access, LOUD, "websocket") as line:
        line.settimeout(1)
        while time.monotonic() < until:
            size = len(line.recv(_BUFFER_BYTES))
            if not size:
                raise EOFError("the server ended the connection")
            done.sent += size


def _opener(access: Access, done: Done, until: float) -> None:
    """Open a console, leave it as soon as it is open, and open the next."""
    while time.monotonic() < until:
        _upgraded(access, SINK, "websocket").close()
        done.answers["opened"] += 1


IMAGES = "image-keys"
"""The row in which a machine prints endless keys of an image, which a terminal might confirm."""


def _visitor(access: Access, done: Done, until: float) -> None:
    """Open a console, leave it as soon as its old output comes, and open the next."""
    while time.monotonic() < until:
        with _upgraded(access, LOUD, "websocket") as line:
            line.settimeout(1)
            done.sent += len(line.recv(_BUFFER_BYTES))
        done.answers["opened"] += 1


def _absent(access: Access, done: Done, until: float) -> None:
    """No attack: measures the machine itself."""
    time.sleep(max(0.0, until - time.monotonic()))


def _resize(width: int) -> bytes:
    return frame(2, b'\x04{"Width":%d,"Height":24}' % width)


def _agents(first: int) -> Work:
    def work(access: Access, done: Done, until: float) -> None:
        door = AgentAccess(**access.agents)
        flood(door, door.tokens[first : first + AT_ONCE], done, until)

    return _again(work)


ROWS: dict[str, Callable[[], Sequence[Work]]] = {
    "nobody": lambda: [_absent],
    **{
        f"review-{count}": lambda count=count: [_requests(STRANGER, _review())] * count
        for count in (1, 2, 4)
    },
    **{name: lambda make=make: [_requests(EDITOR, make())] for name, make in _WRITES.items()},
    "websocket-resize": lambda: [_websocket(_many(_resize(80) + _resize(81)))],
    "websocket-input": lambda: [_websocket(_many(frame(2, b"\0x")))],
    "websocket-fragments": lambda: [
        _websocket(_many(frame(0, b"x", first=0)), frame(2, b"\0", first=0))
    ],
    "websocket-invalid-sizes": lambda: [_websocket(_many(frame(2, b'\x04{"Width":-1}')))],
    "websocket-empty": lambda: [
        _websocket(_many(frame(0, b"", first=0)), frame(2, b"\0", first=0))
    ],
    "spdy-ping": lambda: [_spdy(_many(_control(6, (1).to_bytes(4, "big"))))],
    "spdy-settings": lambda: [_spdy(_many(_control(4, bytes(4))))],
    "spdy-window-update": lambda: [_spdy(_many(_control(9, bytes((0, 0, 0, 3, 0, 0, 0, 1)))))],
    "spdy-headers": lambda: [_spdy(_bomb())],
    "yes-0": lambda: [_absent],
    **{f"yes-{count}": lambda count=count: [_again(_reader)] * count for count in (1, 4, 8)},
    IMAGES: lambda: [*[_again(_reader)] * 2, _again(_visitor)],
    HANDSHAKES: lambda: [_again(_handshakes)] * 2,
    "readyz": lambda: [_pipelined()] * 3,
    "message-in-fragments": lambda: [_one_message()],
    "body-in-chunks": lambda: [_one_byte_chunks()],
    "patterns-sent": lambda: [_again(_refused_alerts)],
    "patterns-changed": lambda: [
        _stored_alerts(*["(a{1,100}){1,9}%d"] * 4, changes=True),
    ],
    SLOW: lambda: [_stored_alerts("a[ab]{900}" * 5 + "%d", changes=False)],
    OPENS: lambda: [_again(_opener)] * _OPENERS,
    "opens-500": lambda: [_again(_opener)] * 500,
    "pages": lambda: [_paging()] * 8,
    "selectors": lambda: [_selecting()] * 8,
    "watches": lambda: [_watching],
    "strays": lambda: [_again(_straying)],
    "tables": _tables,
    "dry-deletes": lambda: [
        _requests(EDITOR, _request("DELETE", f"{_MACHINES}?dryRun=All", b"{}"))
    ],
    **dict.fromkeys(DISK_FAULTS, lambda: [_again(_reader)]),
    "ssh-strangers": lambda: [ssh_attacks.strangers],
    "ssh-exchanges": lambda: [_again(ssh_attacks.exchanges)] * 8,
    "ssh-input": lambda: [_again(partial(ssh_attacks.typing, SINK))],
    "yes-ssh": lambda: [_again(partial(ssh_attacks.reading, LOUD))] * 4,
    BMC: lambda: [_absent],
    CROWD_OF_AGENTS: lambda: [_agents(first) for first in range(0, AGENTS, AT_ONCE)],
}
"""
What each row runs side by side.  Those called ``yes`` need the machine to print; so do
:data:`IMAGES`, :data:`SLOW` and those in :data:`DISK_FAULTS`, which need a file system of their own.  Those in :data:`CROWDED` need many machines, and :data:`BMC` needs :mod:`.bmcs`.
"""
ORDINARY = tuple(
    row for row in ROWS if row not in (*DISK_FAULTS, *CROWDED, *SSH, BMC, CROWD_OF_AGENTS)
)
"""Rows that need nothing more than a chain."""


def attack(row: str, access: Access) -> None:
    """Work, and report."""
    works, done = ROWS[row](), Done()
    until = time.monotonic() + access.seconds
    threads = [
        threading.Thread(target=work, args=(access, done, until), daemon=True) for work in works
    ]
    print("begun", flush=True)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until + 1 - time.monotonic()))
    report = {"sent": done.sent, "answers": done.answers, "refusals": done.refusals}
    print(json.dumps(report), flush=True)


def main() -> None:
    for line in sys.stdin:
        row, access = json.loads(line)
        # Its end closes all connections; and a fork has imported everything.
        child = os.fork()
        if not child:
            attack(row, Access(**access))
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
