"""
1 000 watches: what one holds while nothing happens, beyond its connection; and how long
a change takes to reach all of them.  Then a burst of 1 000 changes to 500 watches.
"""

from __future__ import annotations

import json
import selectors
import ssl
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests import procfs

from . import api

WATCHES = 1000
CHANGES = 20
BURST_WATCHES = 500
BURST_CHANGES = 1000
_WRITERS = 20
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


def burst(directory: Path) -> None:
    """Many changes by clients that write as fast as they can, until every watch has them all."""
    with api.running(_fresh(directory, "burst"), _WRITERS) as server:
        version = _version(server)
        path = f"{api.MACHINES}?watch=1&resourceVersion={version}"
        lines = _opened(server, path, BURST_WATCHES)
        writers = [server.connect() for _ in range(_WRITERS)]
        cpu, start = procfs.cpu_seconds(server.pid), time.perf_counter()
        server.longest_gap()

        def write(number: int) -> None:
            for change in range(BURST_CHANGES // _WRITERS):
                writers[number].sendall(_patch(f"{number}-{change}", number))
                api.body_of(writers[number])

        with ThreadPoolExecutor(_WRITERS) as pool:
            writing = [pool.submit(write, number) for number in range(_WRITERS)]
            reads = _read_events(lines, BURST_CHANGES)
            for each in writing:
                each.result()
        took, cpu = time.perf_counter() - start, procfs.cpu_seconds(server.pid) - cpu
        print(
            f"  {BURST_CHANGES} changes reach {BURST_WATCHES} watches in {took:.1f} s, {cpu:.1f} s of "
            f"CPU, in {reads / BURST_WATCHES:.0f} reads by each; nobody else served for "
            f"{server.longest_gap():.0f} ms"
        )
        for line in [*lines, *writers]:
            line.close()


def _read_events(lines: list[ssl.SSLSocket], count: int) -> int:
    """Read so many events from each of the lines; return the number of reads."""
    left, reads = dict.fromkeys(lines, count), 0
    with selectors.DefaultSelector() as waiting:
        for line in lines:
            line.setblocking(False)
            waiting.register(line, selectors.EVENT_READ)
        while waiting.get_map():
            for key, _ in waiting.select(30):
                line = key.fileobj
                assert isinstance(line, ssl.SSLSocket)
                try:
                    while left[line] > 0:
                        left[line] -= line.recv(65536).count(b'{"type":"')
                        reads += 1
                    waiting.unregister(line)
                except ssl.SSLWantReadError:
                    pass
    return reads


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


def _patch(value: str, number: int = 0) -> bytes:
    """A request that changes a machine."""
    body = json.dumps({"metadata": {"labels": {"turn": value}}}).encode()
    path = f"{api.MACHINES}/machine-{number:05}"
    head = api.request(path, method="PATCH", user=number % api.USERS).removesuffix(b"\r\n")
    head += b"Content-Type: application/merge-patch+json\r\nContent-Length: %d\r\n\r\n" % len(body)
    return head + body


def _change(server: api.Server, value: str) -> object:
    with server.connect() as line:
        line.sendall(_patch(value))
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
    burst(directory)
