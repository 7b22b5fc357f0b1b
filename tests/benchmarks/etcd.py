"""
API servers on a real etcd of one member: a durable write against the same transaction through bare
grpcio, a list of 5 000 machines against SQLite, reads of two servers against one.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import ssl
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc

from tests import procfs
from tests.storage.etcds import Etcds
from twisted_exec.api import kinds
from twisted_exec.api.encoded import json_text
from twisted_exec.storage.etcd.marker import MarkerValue
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb

from . import api

MACHINES = 5000
LISTS = 7
WARM, WRITES = 100, 1000
READERS, CLIENTS = 2, 16
"""Processes, and clients in each."""
READ_SECONDS = 2.5
READ_ROUNDS = 5

_Write = Callable[[], Callable[[], None]]
"""Writes once, and returns what checks the answer, when the clock has stopped."""

_PREFIX = "/bench"
_LEASES = kinds.LEASES.resource.path("default")


@contextmanager
def _etcd() -> Iterator[Etcds]:
    etcds = Etcds()
    etcds.start()
    try:
        with grpc.insecure_channel(str(etcds.members[0].endpoint)) as channel:
            grpc.channel_ready_future(channel).result(timeout=30)
        yield etcds
    finally:
        etcds.end()


def _storage(etcds: Etcds) -> str:
    return f"etcd:http://{etcds.members[0].endpoint}?prefix={_PREFIX}"


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _fresh(directory: Path, name: str) -> Path:
    path = directory / name
    path.mkdir()
    return path


class _Bare:
    """The baseline: the same transaction through bare grpcio, from the same kind of process."""

    def __init__(self, etcds: Etcds) -> None:
        channel = grpc.insecure_channel(str(etcds.members[0].endpoint))
        self._transact: Any = channel.unary_unary(
            "/etcdserverpb.KV/Txn",
            request_serializer=pb.TxnRequest.SerializeToString,
            response_deserializer=pb.TxnResponse.FromString,
        )
        self._revision = 0

    def creating(self, name: str, value: bytes) -> _Write:
        """Put a key that is not there."""
        key = f"/bare/{name}".encode()
        return self._putting(key, value, pb.Compare(target=pb.Compare.CREATE, key=key))

    def updating(self, value: bytes) -> _Write:
        """Update the existing key, if its revision is that of the last write here."""
        key = b"/bare/lease"
        found = pb.Compare(target=pb.Compare.MOD, key=key, mod_revision=self._revision)
        return self._putting(key, value, found)

    def _putting(self, key: bytes, value: bytes, found: pb.Compare) -> _Write:
        marker = pb.PutRequest(
            key=b"/bare/.marker", value=MarkerValue(f"{0:016}-1").encode(), prev_kv=True
        )
        puts = [
            pb.RequestOp(request_put=pb.PutRequest(key=key, value=value)),
            pb.RequestOp(request_put=marker),
        ]
        ours = pb.Compare(target=pb.Compare.CREATE, key=b"/none", create_revision=0)
        others = [
            pb.RequestOp(request_range=pb.RangeRequest(key=each)) for each in (marker.key, key)
        ]
        request = pb.TxnRequest(compare=[ours, found], success=puts, failure=others)

        def transact() -> Callable[[], None]:
            answer = self._transact(request)

            def check() -> None:
                assert answer.succeeded
                self._revision = answer.header.revision

            return check

        return transact


class _Asking:
    """A client of an API server: one connection, and no more than its bytes."""

    def __init__(self, line: ssl.SSLSocket) -> None:
        self._line = line

    def writing(
        self, method: str, path: str, body: dict[str, Any], then: Callable[[dict[str, Any]], None]
    ) -> _Write:
        """
        Ask for a write.

        :param then: called with the object answered.
        """
        asked = api.request(path, method=method, body=api.dumps(body))

        def ask() -> Callable[[], None]:
            self._line.sendall(asked)
            answer = self._answer()
            return lambda: then(json.loads(answer))

        return ask

    def _answer(self) -> bytes:
        """The next answer's body, whose length it tells."""
        received = b""
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._line.recv(65536)
        head, body = received[:end].lower(), received[end + 4 :]
        assert head.startswith(b"http/1.1 2"), received
        length = int(head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
        while len(body) < length:
            body += self._line.recv(65536)
        return body


def writes(directory: Path) -> None:
    """One client on one connection; in turn, so that whatever the disk does it does to both."""
    with (
        _etcd() as etcds,
        api.running(_fresh(directory, "w"), 1, _storage(etcds)) as server,
        server.connect() as line,
    ):
        ours, bare = _Asking(line), _Bare(etcds)
        lease: dict[str, Any] = {}
        made: dict[str, Any] = {}
        ours.writing("POST", _LEASES, _lease(0), lease.update)()()
        value = json.dumps(lease).encode()
        ours.writing("POST", api.MACHINES, _wanted(MACHINES), made.update)()()
        machine = json_text(made).encode()

        def renewing(number: int) -> _Write:
            renewed = {**lease, **_lease(number), "metadata": lease["metadata"]}
            return ours.writing("PUT", f"{_LEASES}/x", renewed, lease.update)

        def creating(number: int) -> _Write:
            return ours.writing("POST", api.MACHINES, _wanted(number + 1), made.update)

        _compare("a lease renewed", renewing, lambda number: bare.updating(value))
        _compare(
            "a machine created", creating, lambda number: bare.creating(f"m-{number}", machine)
        )


def _compare(what: str, ours: Callable[[int], _Write], theirs: Callable[[int], _Write]) -> None:
    """Time both writes in turns; preparation and checks are outside the measured time."""
    took: dict[Any, list[float]] = {ours: [], theirs: []}
    for number in range(WARM + WRITES):
        for prepared, times in took.items():
            write = prepared(number)
            start = time.perf_counter()
            check = write()
            times.append(time.perf_counter() - start)
            check()
    written, bare = (times[WARM:] for times in took.values())
    ratio = statistics.median(written) / statistics.median(bare)
    print(
        f"  {what:18} p50 {_ms(written, 50)}, p99 {_ms(written, 99)}; the same transaction through "
        f"bare grpcio p50 {_ms(bare, 50)}, p99 {_ms(bare, 99)}: {ratio:.2f}x at p50"
    )


def _lease(number: int) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": _renewed(number)}


def _renewed(number: int) -> dict[str, Any]:
    return {
        "holderIdentity": "host/1",
        "leaseDurationSeconds": 15,
        "renewTime": f"2026-01-01T00:00:00.{number:06}Z",
    }


def _wanted(number: int) -> dict[str, Any]:
    made = api.machine(number)
    metadata = {key: made["metadata"][key] for key in ("name", "labels", "annotations")}
    resource = kinds.MACHINES.resource
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        "spec": made["spec"],
    }


def _ms(times: list[float], percent: int) -> str:
    return f"{statistics.quantiles(times, n=100)[percent - 1] * 1e3:.2f} ms"


def lists(directory: Path) -> None:
    """The whole list, from the request to the last byte, of each store in turn."""
    with (
        _etcd() as etcds,
        api.running(_fresh(directory, "e"), MACHINES, _storage(etcds)) as shared,
        api.running(_fresh(directory, "s"), MACHINES) as alone,
        shared.connect() as ours,
        alone.connect() as theirs,
    ):
        took: dict[Any, list[float]] = {ours: [], theirs: []}
        for _ in range(LISTS + 1):
            for line, times in took.items():

                def listed(line: Any = line) -> None:
                    line.sendall(api.request(api.MACHINES))
                    api.body_of(line)

                times.append(_timed(listed))
        etcd, sqlite = (statistics.median(times[1:]) for times in took.values())
    print(
        f"  a list of {MACHINES} machines  {etcd * 1e3:.1f} ms from etcd, {sqlite * 1e3:.1f} ms from "
        f"SQLite: {etcd / sqlite:.2f}x"
    )


def _read(server: api.Server, seconds: float, counted: Any) -> None:
    """One process of clients: each reads one machine after the other."""
    with ExitStack() as lines:
        open_ = [lines.enter_context(server.connect()) for _ in range(CLIENTS)]
        asked = api.request(f"{api.MACHINES}/machine-00000")
        until, count = time.perf_counter() + seconds, 0
        while time.perf_counter() < until:
            for line in open_:
                line.sendall(asked)
            for line in open_:
                api.body_of(line)
            count += CLIENTS
    counted.put(count)


def _reads_per_second(servers: list[api.Server]) -> float:
    counted: Any = multiprocessing.Queue()
    readers = [
        multiprocessing.Process(
            target=_read, args=(servers[one % len(servers)], READ_SECONDS, counted)
        )
        for one in range(READERS)
    ]
    for each in readers:
        each.start()
    total = sum(counted.get() for _ in readers)
    for each in readers:
        each.join()
    return float(total / READ_SECONDS)


def reads(directory: Path) -> None:
    """The same clients at one server, and at two; what they cost themselves counts as well."""
    with (
        _etcd() as etcds,
        api.running(_fresh(directory, "1"), 1, _storage(etcds)) as first,
        api.running(_fresh(directory, "2"), 0, _storage(etcds)) as second,
    ):
        one, two, busy = [], [], []
        for _ in range(READ_ROUNDS):
            one.append(_reads_per_second([first]))
            before = procfs.cpu_seconds(first.pid) + procfs.cpu_seconds(second.pid)
            two.append(_reads_per_second([first, second]))
            after = procfs.cpu_seconds(first.pid) + procfs.cpu_seconds(second.pid)
            busy.append((after - before) / READ_SECONDS)
    ours, theirs = statistics.median(two), statistics.median(one)
    print(
        f"  reads of one machine by {READERS * CLIENTS} clients  {theirs:.0f}/s of one server, {ours:.0f}/s of "
        f"two: {ours / theirs:.2f}x ({os.cpu_count()} cores, of which the two servers had "
        f"{statistics.median(busy):.2f}; the clients and etcd the rest)"
    )


def main(directory: Path) -> None:
    print("API servers on etcd:")
    writes(directory)
    lists(directory)
    reads(directory)
