"""
Lists of 5 000 machines, from the request to the last byte, over TLS; against what plain
``json.dumps`` of the same document takes in the same run.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from tests import procfs

from . import api

COUNT = 5000
ROUNDS = 7
STOPPED_READERS = 100

_META = "g=meta.k8s.io;v=v1"
FORMS = {
    "whole": "application/json",
    "Table, as kubectl get": f"application/json;as=Table;{_META}",
    "metadata alone": f"application/json;as=PartialObjectMetadataList;{_META}",
}


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def forms(server: api.Server) -> None:
    """Each form of the list, asked for in turn with the comparison."""
    with server.connect() as line:
        for name, accept in FORMS.items():

            def listed(accept: str = accept) -> bytes:
                line.sendall(api.request(api.MACHINES, accept))
                return api.body_of(line)

            document = json.loads(listed())
            server.longest_gap()
            took, plain, cpu = [], [], procfs.cpu_seconds(server.pid)
            for _ in range(ROUNDS):
                took.append(_seconds(listed))
                plain.append(_seconds(lambda document=document: api.dumps(document)))
            ours, theirs = statistics.median(took), statistics.median(plain)
            spent = (procfs.cpu_seconds(server.pid) - cpu) / ROUNDS
            print(
                f"  {name:24} {ours * 1e3:7.1f} ms ({spent * 1e3:.0f} ms of CPU)   "
                f"json.dumps {theirs * 1e3:7.1f} ms ({ours / theirs:.2f}x)   "
                f"nobody else served for {server.longest_gap():.0f} ms"
            )


def pages(server: api.Server) -> None:
    """As kubectl asks: 500 at a time."""
    with server.connect() as line:

        def paged() -> None:
            path = first = f"{api.MACHINES}?limit=500"
            while True:
                line.sendall(api.request(path, FORMS["Table, as kubectl get"]))
                token = json.loads(api.body_of(line))["metadata"].get("continue")
                if not token:
                    return
                path = f"{first}&continue={token}"

        took = statistics.median(_seconds(paged) for _ in range(ROUNDS))
        print(f"  {'Tables of 500, read':24} {took * 1e3:7.1f} ms")


def stopped(server: api.Server) -> None:
    """Measure the memory for readers that request the list and then read nothing."""
    before = procfs.resident_bytes(server.pid)
    lines = [server.connect() for _ in range(STOPPED_READERS)]
    connected = procfs.resident_bytes(server.pid)
    for line in lines:
        line.sendall(api.request(api.MACHINES))
    with server.connect() as line:
        line.sendall(api.request(f"{api.MACHINES}?limit=1"))
        api.body_of(line)
    held = (procfs.resident_bytes(server.pid) - connected) / STOPPED_READERS
    transport = (connected - before) / STOPPED_READERS
    for line in lines:
        line.close()
    print(
        f"  {STOPPED_READERS} readers that stop hold {held / 1e3:.0f} kB each, beside "
        f"{transport / 1e3:.0f} kB of their transports"
    )


def main(directory: Path) -> None:
    with api.running(directory, COUNT) as server:
        print(f"A list of {COUNT} machines over TLS, from the request to the last byte:")
        forms(server)
        pages(server)
        stopped(server)
