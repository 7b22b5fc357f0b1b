"""
1 000 watches: what one holds while nothing happens, beyond its connection; and how long
a change takes to reach all of them.
"""

from __future__ import annotations

import json
import selectors
import ssl
import statistics
import time
from pathlib import Path

from tests import procfs

from . import api

WATCHES = 1000
CHANGES = 20
_WARM = 50
_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


def _held(server: api.Server, path: str) -> tuple[float, list[ssl.SSLSocket]]:
    """Bytes that the server holds for each connection that has asked for ``path``."""

    warm = _opened(server, path, _WARM)  # what the first ones allocate is not theirs alone
    before = procfs.resident_bytes(server.pid)
    lines = _opened(server, path, WATCHES)
    return (procfs.resident_bytes(server.pid) - before) / WATCHES, lines + warm


def idle(directory: Path) -> None:
    """Each in a fresh server, so that none gets what another has freed."""
    with api.running(_fresh(directory, "bare"), 1) as server:
        bare, lines = _held(server, "/version")
        for line in lines:
            line.close()
    with api.running(_fresh(directory, "watches"), 1) as server:
        version = _version(server)
        watching, lines = _held(server, f"{api.MACHINES}?watch=1&resourceVersion={version}")
        for line in lines:
            line.close()
    print(
        f"  an idle watch holds {watching / 1024:.1f} KiB, its connection alone {bare / 1024:.1f} "
        f"KiB: {(watching - bare) / 1024:.1f} KiB beyond it"
    )


def _fresh(directory: Path, name: str) -> Path:
    path = directory / name
    path.mkdir()
    return path


def _version(server: api.Server) -> str:
    with server.connect() as line:
        line.sendall(api.request(f"{api.MACHINES}?limit=1"))
        return str(json.loads(api.body_of(line))["metadata"]["resourceVersion"])


def fan_out(directory: Path) -> None:
    """A change, from its request until every watch has it."""
    with api.running(_fresh(directory, "fan-out"), 1) as server:
        version = _version(server)
        for name, accept in (("whole", "application/json"), ("Table", _TABLE)):
            path = f"{api.MACHINES}?watch=1&resourceVersion={version}"
            lines = _opened(server, path, WATCHES, accept)
            took, cpu, sizes = [], procfs.cpu_seconds(server.pid), []
            server.longest_gap()
            for turn in range(CHANGES):
                start = time.perf_counter()
                changed = _change(server, f"{name}-{turn}")
                sizes.append(_all_read(lines))
                took.append(time.perf_counter() - start)
            each = (procfs.cpu_seconds(server.pid) - cpu) / CHANGES / WATCHES
            plain = _seconds_to_dump(changed)
            ours = statistics.median(took) / WATCHES
            print(
                f"  a change reaches {WATCHES} watches ({name}) in {statistics.median(took) * 1e3:.0f} "
                f"ms: {ours * 1e6:.0f} us each, {each * 1e6:.0f} us of CPU (json.dumps for each "
                f"alone: {plain * 1e6:.0f} us); nobody else served for {server.longest_gap():.0f} ms"
            )
            for line in lines:
                line.close()


def _opened(
    server: api.Server, path: str, count: int, accept: str = "application/json"
) -> list[ssl.SSLSocket]:
    lines = []
    for number in range(count):
        line = server.connect()
        line.sendall(api.request(path, accept, user=number % api.USERS))
        assert line.recv(65536).startswith(b"HTTP/1.1 200")
        lines.append(line)
    return lines


def _change(server: api.Server, value: str) -> object:
    body = json.dumps({"metadata": {"labels": {"turn": value}}}).encode()
    head = api.request(f"{api.MACHINES}/machine-00000", method="PATCH").removesuffix(b"\r\n")
    head += b"Content-Type: application/merge-patch+json\r\nContent-Length: %d\r\n\r\n" % len(body)
    with server.connect() as line:
        line.sendall(head + body)
        return json.loads(api.body_of(line))


def _all_read(lines: list[ssl.SSLSocket]) -> int:
    """Wait until each of the lines has something, and take it."""
    size = 0
    with selectors.DefaultSelector() as waiting:
        for line in lines:
            waiting.register(line, selectors.EVENT_READ)
        while waiting.get_map():
            for key, _ in waiting.select(30):
                line = key.fileobj
                assert isinstance(line, ssl.SSLSocket)
                size += len(line.recv(65536))
                waiting.unregister(line)
    return size


def _seconds_to_dump(document: object) -> float:
    start = time.perf_counter()
    for _ in range(200):
        api.dumps(document)
    return (time.perf_counter() - start) / 200


def main(directory: Path) -> None:
    print(f"{WATCHES} watches over TLS:")
    idle(directory)
    fan_out(directory)
