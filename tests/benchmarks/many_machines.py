"""
100 000 machines whose pool is missing, in ten namespaces: memory, and CPU of a page of their list.

The memory is that of a bare start, of the loaded objects, and of some time later: the scheduler has
then written conditions and Events.  ``MACHINES`` may name another number, ``MINUTES`` another time.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from tests import procfs
from twisted_exec.api import kinds, strategy
from twisted_exec.api.encoded import json_text
from twisted_exec.storage.database import open_database

from . import api

_NAMESPACES = 10
_PAGES = 200
_EVERYWHERE = kinds.MACHINES.resource.path()
_STEP_SECONDS = 60.0


def fill(path: Path, count: int) -> None:
    """Write the machines into a new store, which takes seconds; by requests it would take minutes."""
    database = open_database(str(path))
    version = 0

    def put(kind: kinds.Kind, body: kinds.Object, namespace: str = "") -> None:
        nonlocal version
        version += 1
        obj = strategy.for_create(kind, body, namespace=namespace, now=time.time())
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(version)
        row = (
            kind.resource.qualified,
            namespace,
            metadata["name"],
            metadata["uid"],
            version,
            json_text(obj),
        )
        database.execute("INSERT INTO objects VALUES (?, ?, ?, ?, ?, ?)", row)

    database.execute("BEGIN")
    for number in range(_NAMESPACES):
        put(kinds.NAMESPACES, {"metadata": {"name": f"ns-{number}"}})
    for number in range(count):
        body = {
            "metadata": {
                "name": f"machine-{number:06}",
                "labels": {"rack": f"rack-{number % 40}"},
            },
            "spec": {
                "machineClassRef": {"name": "large"},
                "machinePoolRef": {"name": "missing"},
                "image": "registry.example.org/os:12",
            },
        }
        put(kinds.MACHINES, body, f"ns-{number % _NAMESPACES}")
    database.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('log', ?)", (version,))
    database.execute("COMMIT")
    database.close()


def _mebibytes(server: api.Server) -> str:
    return f"{procfs.resident_bytes(server.pid) / 2**20:.0f} MiB"


def _cpu_ms(server: api.Server, times: int, work: Callable[[], object]) -> float:
    before = procfs.cpu_seconds(server.pid)
    for _ in range(times):
        work()
    return (procfs.cpu_seconds(server.pid) - before) / times * 1e3


def pages(server: api.Server) -> None:
    """The CPU of pages of the list, and the time of all pages together."""
    with server.connect() as line:

        def page(path: str, accept: str = "application/json") -> dict[str, object]:
            line.sendall(api.request(path, accept))
            document: dict[str, object] = json.loads(api.body_of(line))
            return document

        # The CPU that the scheduler takes meanwhile.
        idle = _cpu_ms(server, 1, lambda: time.sleep(5.0)) / 5e3
        for limit, namespace in ((1, ""), (1, "ns-5"), (500, ""), (500, "ns-5")):
            path = f"{kinds.MACHINES.resource.path(namespace)}?limit={limit}"
            began = time.perf_counter()
            cpu = _cpu_ms(server, _PAGES, lambda path=path: page(path))
            cpu -= idle * (time.perf_counter() - began) / _PAGES * 1e3
            where = namespace or "all namespaces"
            print(f"  limit={limit:3} of {where:15} {cpu:6.2f} ms of CPU")
        accept, began, count = (
            "application/json;as=Table;g=meta.k8s.io;v=v1",
            time.perf_counter(),
            0,
        )
        path = first = f"{_EVERYWHERE}?limit=500"
        while True:
            table = page(path, accept)
            count += len(table["rows"])
            token = table["metadata"].get("continue")
            if not token:
                break
            path = f"{first}&continue={token}"
        print(f"  all {count} in Tables of 500: {time.perf_counter() - began:.1f} s")


def main(directory: Path) -> None:
    """Print memory and costs."""
    count = int(os.environ.get("MACHINES", "100000"))
    minutes = int(os.environ.get("MINUTES", "2"))
    for number, wanted in enumerate((0, count)):
        folder = directory / f"machines-{number}"
        folder.mkdir(mode=0o700)
        if wanted:
            fill(folder / "store.sqlite", wanted)
        with api.running(folder, 0) as server:
            print(f"{wanted} machines: {_mebibytes(server)} at the start")
            if wanted:
                pages(server)
                for minute in range(1, minutes + 1):
                    time.sleep(_STEP_SECONDS)
                    print(f"  {minute} minutes later: {_mebibytes(server)}")
                pages(server)
                print(f"  after that: {_mebibytes(server)}")
