"""
API server, poollet and runtime as separate programs, started with the how-to's commands on loopback
and free ports.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from tests import procfs
from tests.ports import ReservedPorts
from twisted_exec.api.dialects import DEFAULT, Dialect
from twisted_exec.api.resource import Resource
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.kube.kubeconfig.writer import write_kubeconfig
from twisted_exec.standalone.certificates import POOL as STANDALONE_POOL
from twisted_exec.tls.pki.directory import create_pki

from .programs import Program, script, start, twistd

POOL = "pool-a"

CLASSES = """
classes:
- name: shell
  driver: pty
  command: [/bin/sh, -i]
  same_user: true
  capabilities: {cpu: "1", memory: 64Mi}
  quantity: 1000
- name: vm
  driver: qemu
  capabilities: {cpu: "1", memory: 128Mi}
  quantity: 10
"""


def machine_class(name: str, memory: str, dialect: Dialect = DEFAULT) -> Object:
    return {
        "apiVersion": dialect.workload_class.api_version,
        "kind": dialect.workload_class.kind,
        "metadata": {"name": name},
        "capabilities": {"cpu": "1", "memory": memory},
    }


def machine(name: str, class_name: str, pool: str = POOL, dialect: Dialect = DEFAULT) -> Object:
    return {
        "apiVersion": dialect.workload.api_version,
        "kind": dialect.workload.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            dialect.class_reference: {"name": class_name},
            dialect.pool_reference: {"name": pool},
        },
    }


class Deployment:
    """
    API server, runtime and poollet as three processes.

    :ivar admin: path of an administrator's kubeconfig.
    :ivar client: a client with it.
    :ivar storage: of the API server; empty for SQLite.

    :param unix_streams: the runtime's consoles on a UNIX socket instead of TLS.
    :param dialects: of the API server; the poollet uses the first one.
    :cvar pool_address: the address that poollets publish.
    :cvar poollet_seconds: the API server's limit for an answer of a poollet; more than the default, because
        a busy machine is no subject of most tests.
    :cvar drain: the limit for the last messages of a program that stops; more than the default, too.
    :cvar fork: programs may be forks; see :mod:`tests.flows.forks`.
    """

    pool_address = "127.0.0.1"
    poollet_seconds = 600
    drain = "--drain-seconds=5"
    fork = True

    api: Program
    runtime: Program
    poollet: Program
    admin: str
    client: KubeClient
    storage = ""
    port = 0

    def __init__(
        self,
        directory: str,
        *,
        unix_streams: bool = False,
        dialects: Sequence[Dialect] = (DEFAULT,),
    ) -> None:
        self.dialects, self.dialect = dialects, dialects[0]
        self.directory = Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        # UNIX socket paths are short; a test's own directory may not be.
        self.sockets = Path(tempfile.mkdtemp(prefix="exec-"))
        self.unix_streams = unix_streams
        self.servers: list[Program] = []
        self.reserved = ReservedPorts()
        self.pki = create_pki(str(self.directory / "pki"))
        (self.directory / "runtime.yaml").write_text(CLASSES)

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def twistd(self, plugin: str, *options: str) -> Program:
        """Start one of the programs."""
        return twistd(plugin, *options, fork=self.fork)

    async def start(self) -> None:
        """Start all three programs; fires when the pool is registered."""
        await self.start_api()
        await self.start_rest()

    async def start_rest(self) -> None:
        """Start runtime and poollet, and create the classes."""
        await self.start_runtime()
        await self.start_poollet()
        for name, memory in (("shell", "64Mi"), ("vm", "128Mi")):
            await self.create_class(name, memory)

    async def create_class(self, name: str, memory: str) -> None:
        """Create a MachineClass."""
        made = machine_class(name, memory, self.dialect)
        await self.client.create(self.dialect.workload_class, made)

    async def start_api(self, *options: str) -> None:
        """Start the API server; a restart uses the same port."""
        self.port = self.port or self.reserved.add()
        storage = self.storage or f"sqlite:{self.path('objects.db')}"
        self.api, self.url = await self.api_server("api", self.port, storage, *options)
        self.port = int(self.url.rsplit(":", 1)[1])  # options may name another one
        await self.be_admin()

    async def api_server(
        self, name: str, port: int, storage: str, *options: str
    ) -> tuple[Program, str]:
        """
        Start an API server; return it with its URL once it listens. Port 0 selects a free port.
        """
        if not os.path.exists(self.path("pki/apiserver.crt")):
            self.pki.issue_apiserver(["localhost", "127.0.0.1"])
        program = self.twistd(
            "exec-apiserver",
            f"--listen=tcp:{port}:interface=127.0.0.1",
            f"--tls-cert-file={self.path('pki/apiserver.crt')}",
            f"--tls-private-key-file={self.path('pki/apiserver.key')}",
            f"--client-ca-file={self.pki.client_ca}",
            f"--storage={storage}",
            f"--machinepoollet-client-certificate={self.path('pki/apiserver-forwarding.crt')}",
            f"--machinepoollet-client-key={self.path('pki/apiserver-forwarding.key')}",
            f"--machinepoollet-certificate-authority={self.pki.serving_ca}",
            f"--audit-log={self.path(f'{name}.audit')}",
            f"--machinepoollet-timeout={self.poollet_seconds}",
            *(f"--dialect={each.name}" for each in self.dialects),
            self.drain,
            *options,
        )
        self.servers.append(program)  # whether or not it will ever listen
        return program, (await program.until(rb"listens at (https://\S+)\s"))[1].decode()

    async def be_admin(self) -> None:
        """Write the administrator's kubeconfig and create a client, for the users' URL."""
        await self.use_admin()

    async def use_admin(self) -> None:
        """Create an administrator's client with the current credentials."""
        self.admin = self.kubeconfig("admin", ["system:masters"])
        await self._close_client()
        self.client = KubeClient(load(self.admin), reactor)

    def kubeconfig(
        self, user: str, groups: Sequence[str] = (), *, url: str = "", name: str = ""
    ) -> str:
        """
        A kubeconfig for a user, as ``twisted-exec pki user`` makes it.

        :param url: of the server, if it is not this deployment's.
        :param name: of the file, if it is not the user's.
        """
        pair = self.pki.issue_user(user, groups, replace=True)
        path = self.path(f"{name or user}.kubeconfig")
        self._write_kubeconfig(path, pair.certificate, pair.key, user, url)
        return path

    def _write_kubeconfig(
        self, path: str, certificate: str, key: str, user: str, url: str = ""
    ) -> None:
        write_kubeconfig(
            path,
            server=url or self.url,
            ca_pem=Path(self.pki.serving_ca).read_bytes(),
            certificate_pem=Path(certificate).read_bytes(),
            key_pem=Path(key).read_bytes(),
            user=user,
            replace=True,
        )

    @property
    def iri_target(self) -> str:
        return f"unix://{self.sockets / 'iri.sock'}"

    async def start_runtime(self, *options: str) -> None:
        """Start the runtime; without ``unix_streams`` it serves streams over TLS."""
        pair = self.pki.issue_runtime("host-a", ["localhost", "127.0.0.1"], replace=True)
        streams = [
            "--streaming-listen=tcp:0:interface=127.0.0.1",
            f"--tls-cert-file={pair.certificate}",
            f"--tls-private-key-file={pair.key}",
        ]
        self.runtime = self.twistd(
            "exec-runtime",
            f"--config={self.path('runtime.yaml')}",
            f"--iri-listen={self.iri_target}",
            f"--state-dir={self.path('runtime-state')}",
            *([] if self.unix_streams else streams),
            f"--audit-log={self.path('runtime.audit')}",
            self.drain,
            *options,
        )
        await self.runtime.until(rb"RuntimeHost#info\]")

    async def start_poollet(self, *options: str) -> None:
        self.poollet = await self.poollet_of(self.dialect, POOL, *options)

    def write_poollet_kubeconfig(self, pool: str) -> str:
        """
        Write a kubeconfig for the pool's poollet with its current certificate; return the path.
        """
        pair, path = self.pki.pair(f"poollet-{pool}-client"), self.path(f"{pool}.kubeconfig")
        self._write_kubeconfig(path, pair.certificate, pair.key, pool)
        return path

    async def poollet_of(self, dialect: Dialect, pool: str, *options: str) -> Program:
        """Start a poollet of one dialect; fires when its pool is registered."""
        serving, _client = self.pki.issue_poollet(
            pool, ["localhost", self.pool_address], dialect=dialect, replace=True
        )
        kubeconfig = self.write_poollet_kubeconfig(pool)
        program = self.twistd(
            "exec-poollet",
            f"--kubeconfig={kubeconfig}",
            f"--dialect={dialect.name}",
            f"--machine-pool-name={pool}",
            f"--machine-runtime-endpoint={self.iri_target}",
            "--listen=tcp:0:interface=127.0.0.1",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--requestheader-client-ca-file={self.pki.forwarding_ca}",
            "--requestheader-allowed-names=exec-apiserver",
            f"--addresses=InternalIP={self.pool_address}",
            f"--runtime-ca-file={self.pki.serving_ca}",
            f"--audit-log={self.path('poollet.audit')}",
            self.drain,
            *options,
        )
        await program.until(rb"pool %s is registered" % pool.encode())
        return program

    async def create_machine(self, name: str, class_name: str) -> Object:
        """Fires with the Machine once it is Running."""
        made = machine(name, class_name, dialect=self.dialect)
        await self.client.create(self.dialect.workload, made, namespace="default")
        return await self.machine_in_state(name, "Running")

    async def machine_in_state(self, name: str, state: str, *, seconds: float = 600) -> Object:
        """Fires with the Machine once the API server shows it in that state."""
        resource, deadline = self.dialect.workload, reactor.seconds() + seconds
        while True:
            found = await self.client.get(resource, name, "default")
            if found.get("status", {}).get("state") == state:
                return found
            assert reactor.seconds() < deadline, f"{name} is not {state}: {found}"
            await pause()

    async def restart(self, *programs: str, kill: bool = True) -> None:
        """Kill or stop programs at the same moment (``api``, ``runtime``, ``poollet``), and start them again."""
        ending = [Deferred.fromCoroutine(self.end(name, kill=kill)) for name in programs]
        await gatherResults(ending, consumeErrors=True)
        for name, start_again in (
            ("api", self.start_api),
            ("runtime", self.start_runtime),
            ("poollet", self.start_poollet),
        ):
            if name in programs:
                await start_again()

    async def end(self, program: str, *, kill: bool = True) -> None:
        """Kill or stop a program."""
        with_signal = signal.SIGKILL if kill else signal.SIGTERM
        await getattr(self, program).stop(with_signal)

    async def _close_client(self) -> None:
        if hasattr(self, "client"):
            await self.client.close()

    async def stop(self) -> None:
        """Stop all programs, and the runtime last, because it ends the machines that it does not keep."""
        await self._close_client()
        if hasattr(self, "poollet"):
            await self.poollet.stop()
        for server in self.servers:
            await server.stop()
        if hasattr(self, "runtime"):
            await self.runtime.stop()
        for process in procfs.machines_of(self.path("runtime-state")):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.reserved.release()
        for reserve in self.directory.glob("*.db-reserve"):  # 16 MiB each
            reserve.unlink()
        shutil.rmtree(self.sockets, ignore_errors=True)


class StandaloneDeployment(Deployment):
    """All parts in one process, with the classes of ``runtime.yaml``; the machines outlive it."""

    standalone: Program

    async def start(self) -> None:
        self.port = self.reserved.add()
        await self.start_standalone()
        self.admin = self.path("exec-state/admin.kubeconfig")
        self.client = KubeClient(load(self.admin), reactor)

    def launch(self) -> Program:
        """Start the program."""
        argv = [script("twistd"), "-n", "--pidfile=", "exec-standalone", "--without-spaces"]
        options = ("--without-demo", f"--port={self.port}", "--classes=runtime.yaml", self.drain)
        return start([*argv, *options], cwd=str(self.directory), fork=self.fork)

    async def start_standalone(self) -> None:
        """Start the program; fires when it is ready."""
        self.standalone = self.launch()
        await self.standalone.until(rb"\nReady")

    async def restart(self, *programs: str, kill: bool = True) -> None:
        await self.end("standalone", kill=kill)
        await self.start_standalone()

    async def create_machine(self, name: str, class_name: str) -> Object:
        made = machine(name, class_name, STANDALONE_POOL, self.dialect)
        await self.client.create(self.dialect.workload, made, namespace="default")
        return await self.machine_in_state(name, "Running")

    async def stop(self) -> None:
        await self._close_client()
        await self.standalone.stop()
        for process in procfs.machines_of(self.path("exec-state/runtime")):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        await super().stop()


async def gone(client: KubeClient, resource: Resource, name: str, namespace: str = "") -> None:
    """Fires once the API server no longer has the object."""
    from twisted_exec.api.status import APIError

    while True:
        try:
            await client.get(resource, name, namespace)
        except APIError as error:
            if error.code == 404:
                return
            raise
        await pause()


async def settled(figure: Callable[[], int], *, turns: int = 10) -> int:
    """Fires with a figure once it has not changed for ``turns`` checks."""
    value, same = figure(), 0
    while same < turns:
        await pause()
        value, last = figure(), value
        same = same + 1 if value == last else 0
    return value


def pause(seconds: float = 0.05) -> Deferred[None]:
    """Wait, in a test that polls for a condition; longer if each look starts a program."""
    return deferLater(reactor, seconds, lambda: None)


working: list[Coroutine[Any, Any, None]] = []
"""The coroutine of :func:`run_reactor`, so that a benchmark can say where it waits."""


def run_reactor(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """
    Run the reactor, which the programs need, while a coroutine runs.

    :raises Exception: the coroutine did.
    """
    failures: list[Failure] = []

    def begin() -> None:
        working.append(work())
        running = Deferred.fromCoroutine(working[-1]).addErrback(failures.append)
        running.addBoth(lambda _: reactor.stop())

    reactor.callWhenRunning(begin)
    reactor.run()
    working.clear()
    for failure in failures:
        failure.raiseException()
