"""
Support for tests of runtimes: a directory, facts of a machine, a whole runtime, a client of its
consoles.
"""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any
from urllib.parse import unquote, urlsplit

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from tests.console.doubles import MemoryStream
from tests.contracts.machine_runtime import machine
from tests.streaming.readers import Reader, read
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.request_cache import Grant, RequestCache, StreamLinks
from twisted_exec.program import disk_thread
from twisted_exec.program.health import Results
from twisted_exec.runtimes import pty
from twisted_exec.runtimes.config import parse
from twisted_exec.runtimes.keeper import client
from twisted_exec.runtimes.keeper.client import LOG, Keeper
from twisted_exec.runtimes.processes import read_process
from twisted_exec.runtimes.service import MachineRuntime
from twisted_exec.runtimes.settings import MachineSettings
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
from twisted_exec.streaming.interfaces import Ending
from twisted_exec.streaming.remotecommand.client import connect
from twisted_exec.streaming.remotecommand.stream import MarkUser
from twisted_exec.testing.drivers import DriverCase
from twisted_exec.tls.endpoints import unix_client_endpoint
from twisted_exec.wire.marks import Mark
from twisted_exec.wire.stream_options import StreamOptions

SHELL = {
    "name": "shell",
    "driver": "pty",
    "command": ["/bin/sh", "-i"],
    "same_user": True,
    "capabilities": {"cpu": 1, "memory": "64Mi"},
}
RACK = {
    "name": "rack",
    "driver": "socket",
    "capabilities": {"cpu": 1, "memory": "1Gi"},
    "lines": {"web-1": {"endpoint": "unix:/nonexistent"}},
}
LINKS = StreamLinks(
    exec_url=lambda token: f"https://runtime.example/{token}",
    log_url=lambda token: f"https://runtime.example/log/{token}",
)
VM = {"name": "vm", "driver": "qemu", "capabilities": {"cpu": 1, "memory": "128Mi"}}


def pause() -> Deferred[None]:
    """A moment, for polling."""
    return deferLater(reactor, 0.01, lambda: None)  # type: ignore[arg-type]


async def end_keeper(keeper: Keeper) -> None:
    """Let a keeper forget everything, so that it ends."""
    for name in await keeper.holdings():
        keeper.forget(name)
    await keeper.close()


def errors_of(results: Results) -> dict[str, str | None]:
    """Each probe with the reason of its failure."""
    return {each.name: each.error for each in results}


class RuntimeCase(DriverCase):
    """Drivers and runtimes in this process."""

    def setUp(self) -> None:
        super().setUp()
        # While a disk does not answer, machines are refused, and journals read as empty.
        for name in ("WAIT_SECONDS", "LONG_WAIT_SECONDS"):
            self.patch(disk_thread, name, 600.0)
        # Programs may begin late.
        self.patch(client, "_ANSWER_SECONDS", 600.0)
        self.patch(client, "_CLOSE_SECONDS", 600.0)
        self.patch(pty, "_LEAD_SECONDS", 600.0)

    def pause(self) -> Deferred[None]:
        return pause()

    def make_keeper(self) -> Keeper:
        """
        A client of the keeper, which ends after the test.

        Another one is that of a later runtime.
        """
        keeper = Keeper(reactor, self.directory, os.path.join(self.directory, LOG))
        self.addCleanup(lambda: Deferred.fromCoroutine(end_keeper(keeper)))
        return keeper

    def started_at(self, pid: int) -> int:
        process = read_process(pid)
        assert process is not None
        return process.start

    async def make_runtime(self, *classes: dict[str, Any], **options: Any) -> MachineRuntime:
        """
        A runtime that is ready, and is stopped after the test.

        It is ``made`` even if it does not become ready.
        """
        chosen = parse({"classes": list(classes or (SHELL,))})
        cache = options.pop("cache", None) or RequestCache(reactor)  # type: ignore[arg-type]
        names = {each.name for each in fields(MachineSettings)} & options.keys()
        settings = MachineSettings(**{name: options.pop(name) for name in names})
        runtime = MachineRuntime(
            [each.build(reactor, self.table) for each in chosen],
            self.table,
            reactor,
            settings,
            state_directory=os.path.join(self.directory, "state"),
            cache=cache,
            links=options.pop("links", LINKS),
            **options,
        )
        self.made = runtime
        await runtime.prepare()
        runtime.startService()
        self.mark = runtime_id(self.directory)
        self.addCleanup(lambda: runtime.stopService() if runtime.running else None)
        return runtime


def runtime_id(directory: str) -> str:
    """Return the id that a runtime has written to its state, and with which it marks its processes."""
    with open(os.path.join(directory, "state", "runtime-id")) as file:
        return file.read().strip()


class MachineCase(RuntimeCase):
    """A runtime with one shell in it."""

    async def start(self, **options: Any) -> tuple[MachineRuntime, str]:
        runtime = await self.make_runtime(**options)
        answer = await runtime.create_machine(
            pb.CreateMachineRequest(machine=machine("x", "shell"))
        )
        id = answer.machine.metadata.id
        await self.until_state(runtime, id, pb.MACHINE_RUNNING)
        return runtime, id

    async def until_state(self, runtime: MachineRuntime, id: str, state: int) -> None:
        await self.until(lambda: runtime.machines.records.get(id).state == state)

    def attach(self, runtime: MachineRuntime, id: str) -> MemoryStream:
        _, viewer = runtime.attach(Grant(id))
        return MemoryStream(viewer)


class User(MarkUser):
    """
    A user at a console; keeps everything.

    :ivar marks: of a stream that can be resumed.
    """

    def __init__(self) -> None:
        self.got = bytearray()
        self.marks: list[Mark] = []
        self.ending: Ending | None = None
        self.gone = ""
        self.stream: Any = None

    def attached(self, stream: Any) -> None:
        self.stream = stream

    def data_received(self, data: bytes) -> None:
        self.got += data

    def mark_received(self, mark: Mark) -> None:
        self.marks.append(mark)

    def ended(self, ending: Ending) -> None:
        self.ending = ending

    def detached(self, reason: str) -> None:
        self.gone = reason or "gone"


async def open_console(
    url: str, *, resume: str = "", options: StreamOptions | None = None, **headers: str
) -> User:
    """
    Open an exec URL on a UNIX socket.

    :param options: those of the request; by default it has none.
    :param resume: see :func:`~twisted_exec.streaming.remotecommand.client.connect`.
    :raises UpgradeRefused: the server says no.
    """
    parts = urlsplit(url)
    user = User()
    query = b"" if options is None else b"?" + options.query()
    head = UpgradeRequest(
        b"GET",
        parts.path.encode() + query,
        b"localhost",
        [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    )
    endpoint = unix_client_endpoint(reactor, unquote(parts.netloc))
    await connect(endpoint, head, user, clock=reactor, timeout_seconds=600, resume=resume)  # type: ignore[arg-type]
    return user


async def open_log(url: str, query: str = "", **headers: str) -> Reader:
    """
    Read a log URL on a UNIX socket.

    :raises UpgradeRefused: the server says no.
    """
    parts = urlsplit(url)
    output = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    path = parts.path + (f"?{query}" if query else "")
    head = UpgradeRequest(b"GET", path.encode(), b"localhost", output)
    return await read(unix_client_endpoint(reactor, unquote(parts.netloc)), head)
