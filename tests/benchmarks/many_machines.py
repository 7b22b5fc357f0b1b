"""
100 000 machines whose pool is missing, in ten namespaces: memory, and CPU of a page of their list.

The machines are as after an hour: with the condition of the scheduler, and as many Events as a store keeps.
The memory is that of a bare start, of the loaded objects, and of each minute in which a client has listed
all machines as ``kubectl get`` does.  ``MACHINES`` may name another number, ``MINUTES`` another time.
"""

from __future__ import annotations

import copy
import json
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from tests import procfs
from twisted_exec.api import kinds, strategy
from twisted_exec.api.encoded import json_text
from twisted_exec.api.managedfields import updates
from twisted_exec.api.managedfields.entries import (
    WriteOrigin,
)
from twisted_exec.api.times import timestamp
from twisted_exec.storage.sqlite.database import open_database

from . import api

_NAMESPACES = 10
_EVENTS = 16_500
_PAGES = 200
_EVERYWHERE = kinds.MACHINES.resource.path()
_STEP_SECONDS = 60.0


def fill(path: Path, count: int) -> None:
    """Write the objects into a new store, which takes seconds; by requests it would take minutes."""
    database = open_database(str(path))
    version = 0

    def put(kind: kinds.Kind, obj: kinds.Object) -> None:
        nonlocal version
        version += 1
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(version)
        row = (
            kind.resource.qualified,
            metadata.get("namespace", ""),
            metadata["name"],
            metadata["uid"],
            version,
            json_text(obj),
        )
        database.execute("INSERT INTO objects VALUES (?, ?, ?, ?, ?, ?)", row)

    database.execute("BEGIN")
    now = time.time()
    for number in range(_NAMESPACES):
        body = {"metadata": {"name": f"ns-{number}"}}
        put(kinds.NAMESPACES, strategy.for_create(kinds.NAMESPACES, body, namespace="", now=now))
    for number in range(count):
        machine = _machine(number, now - 3 * number)
        put(kinds.MACHINES, machine)
        if number < _EVENTS:
            put(kinds.EVENTS, _event(machine, now))
    database.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('log', ?)", (version,))
    database.execute("COMMIT")
    database.close()


def _machine(number: int, now: float) -> kinds.Object:
    kind, namespace = kinds.MACHINES, f"ns-{number % _NAMESPACES}"
    body = {
        "metadata": {
            "name": f"machine-{number:06}",
            "labels": {"rack": f"rack-{number % 40}", "team": f"team-{number % 7}"},
        },
        "spec": {
            "machineClassRef": {"name": "large"},
            "machinePoolRef": {"name": "missing"},
        },
    }
    new = strategy.for_create(kind, body, namespace=namespace, now=now)
    creation = WriteOrigin("kubectl-create", "", now)
    new["metadata"]["managedFields"] = updates.updated(kind, None, new, None, creation)
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "FailedScheduling",
        "message": 'machine pool "missing" does not exist',
        "lastTransitionTime": timestamp(now + 10),
    }
    decided = copy.deepcopy(new)
    decided["status"]["conditions"] = [condition]
    decision = WriteOrigin("scheduler", "status", now + 10)
    entries = updates.updated(kind, new, decided, None, decision)
    decided["metadata"]["managedFields"] = entries
    return decided


def _event(machine: kinds.Object, now: float) -> kinds.Object:
    kind, metadata, moment = kinds.EVENTS, machine["metadata"], timestamp(now)
    body = {
        "metadata": {"name": f"{metadata['name']}.0123456789abcdef"},
        "involvedObject": {
            "apiVersion": machine["apiVersion"],
            "kind": machine["kind"],
            **{key: metadata[key] for key in ("name", "namespace", "uid")},
        },
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": 'machine pool "missing" does not exist; there are: none',
        "source": {"component": "scheduler"},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
    event = strategy.for_create(kind, body, namespace=metadata["namespace"], now=now)
    creation = WriteOrigin("exec-apiserver", "", now)
    event["metadata"]["managedFields"] = updates.updated(kind, None, event, None, creation)
    return event


def _mebibytes(server: api.Server) -> str:
    return f"{procfs.resident_bytes(server.pid) / 2**20:.0f} MiB"


def _cpu_ms(server: api.Server, times: int, work: Callable[[], object]) -> float:
    before = procfs.cpu_seconds(server.pid)
    for _ in range(times):
        work()
    return (procfs.cpu_seconds(server.pid) - before) / times * 1e3


def _page(line: ssl.SSLSocket, path: str, accept: str = "application/json") -> kinds.Object:
    line.sendall(api.request(path, accept))
    document: kinds.Object = json.loads(api.body_of(line))
    return document


def pages(server: api.Server) -> None:
    """The CPU of pages of the list."""
    with server.connect() as line:
        # The CPU that the scheduler takes meanwhile.
        idle = _cpu_ms(server, 1, lambda: time.sleep(5.0)) / 5e3
        for limit, namespace in ((1, ""), (1, "ns-5"), (500, ""), (500, "ns-5")):
            path = f"{kinds.MACHINES.resource.path(namespace)}?limit={limit}"
            began = time.perf_counter()
            cpu = _cpu_ms(server, _PAGES, lambda path=path: _page(line, path))
            cpu -= idle * (time.perf_counter() - began) / _PAGES * 1e3
            where = namespace or "all namespaces"
            print(f"  limit={limit:3} of {where:15} {cpu:6.2f} ms of CPU")


def tables(server: api.Server) -> str:
    """Read all machines as Tables of 500; return what that took."""
    count, began, cpu = 0, time.perf_counter(), procfs.cpu_seconds(server.pid)
    path = first = f"{_EVERYWHERE}?limit=500"
    with server.connect() as line:
        while True:
            table = _page(line, path, "application/json;as=Table;g=meta.k8s.io;v=v1")
            count += len(table["rows"])
            token = table["metadata"].get("continue")
            if not token:
                break
            path = f"{first}&continue={token}"
    seconds, cpu = time.perf_counter() - began, procfs.cpu_seconds(server.pid) - cpu
    return f"{count} machines in Tables of 500 in {seconds:.1f} s, {cpu:.1f} s of CPU"


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
                for minute in range(1, minutes + 1):
                    time.sleep(_STEP_SECONDS)
                    print(f"  after {minute} minutes {_mebibytes(server)}; {tables(server)}")
                pages(server)
                print(f"  after that {_mebibytes(server)}")
