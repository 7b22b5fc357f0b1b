"""
Contract of the whole chain: API server, poollet and runtime, in each dialect.

The three are the services that the programs run, connected as in production: TLS between the first
two, gRPC in the dialect's own revision over a UNIX socket between the last two. Machines are
processes on a pty.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.endpoints import connectProtocol
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from tests.chain import (
    PATIENCE_SECONDS,
    apiserver_settings,
    begin,
    client,
    client_config,
    pool_of,
    poollet_settings,
    reactor,
)
from tests.flows.consoles import Screen
from twisted_exec.api import kinds
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.status import APIError
from twisted_exec.apiserver.service import APIServer
from twisted_exec.apiserver.settings import Settings as APIServerSettings
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.console_endpoint import ConsoleEndpoint, ConsoleLost
from twisted_exec.kube.interfaces import Object
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.poollet import service as poollet
from twisted_exec.program.audit_file import JSONLinesAudit
from twisted_exec.runtimes.config import parse
from twisted_exec.runtimes.host import RuntimeHost
from twisted_exec.runtimes.settings import Settings as RuntimeSettings
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.streaming.interfaces import MACHINE_DELETED

NAMESPACE = "default"
CLASS = "shell"
CLASSES = {
    "classes": [
        {
            "name": CLASS,
            "driver": "pty",
            "command": ["/bin/sh", "-i"],
            "same_user": True,
            "capabilities": {"cpu": "1", "memory": "64Mi"},
            "quantity": 10,
        }
    ]
}


class ChainCase(TestCase):
    """
    The programs' services in one process.

    :cvar dialects: of the API server; each has a poollet and a runtime.
    :cvar resume_seconds: how long sessions wait for a machine that is off.
    """

    resume_seconds = 60
    dialects: tuple[Dialect, ...] = ()

    async def setUp(self) -> None:
        # Short: it holds UNIX sockets.
        self.directory = Path(tempfile.mkdtemp(prefix="exec-"))
        self.addCleanup(shutil.rmtree, self.directory, True)
        self.audit = JSONLinesAudit(str(self.directory / "audit.jsonl"))
        self.server = await self.begin(self._server())
        self.admin = self.client("admin")
        self.runtimes: dict[Dialect, IRIClient] = {}
        self.poollets: dict[Dialect, poollet.Poollet] = {}
        for dialect in self.dialects:
            await self._start(dialect)

    async def begin(self, service: Any) -> Any:
        """Start a service and wait until it is ready; stop it after the test."""
        return await begin(service, self.addCleanup)

    def _server(self) -> APIServer:
        # All programs share this process, which may be busy.
        settings = apiserver_settings(poollet_seconds=PATIENCE_SECONDS, dialects=self.dialects)
        return APIServer(APIServerSettings(**settings), MemoryStorage(), self.audit, reactor)

    async def _start(self, dialect: Dialect) -> None:
        """
        Start the dialect's runtime and poollet, create a class, and wait until the pool is ready.
        """
        capabilities = {"cpu": "1", "memory": "64Mi"}
        await self.admin.create(
            dialect.workload_class, {"metadata": {"name": CLASS}, "capabilities": capabilities}
        )
        target = f"unix://{self.directory}/{dialect.name}/iri.sock"
        settings = RuntimeSettings(
            classes=parse(CLASSES),
            state_directory=str(self.directory / f"{dialect.name}-state"),
            iri_target=target,
            iri_revision=_machine_revision(dialect),
            drain_seconds=0,
            resume_seconds=self.resume_seconds,
        )
        await self.begin(RuntimeHost(settings, self.audit, reactor))
        runtime = IRIClient(
            target, reactor, revision=dialect.iri_revision, timeout_seconds=PATIENCE_SECONDS
        )
        runtime.startService()
        self.addCleanup(runtime.stopService)
        self.runtimes[dialect] = runtime
        self.poollets[dialect] = await self.begin(self._poollet(dialect, runtime))
        await self.until_async(lambda: self._is_ready(dialect))

    def _poollet(self, dialect: Dialect, runtime: IRIClient) -> poollet.Poollet:
        name = pool_of(dialect)
        settings = poollet.Settings(**poollet_settings(name, drain_seconds=0, dialect=dialect))
        own = client(self.server, f"poollet-{name}-client", self.addCleanup)
        return poollet.Poollet(settings, own, runtime, self.audit, reactor)

    async def _is_ready(self, dialect: Dialect) -> bool:
        pool = await self.admin.get(dialect.pool, pool_of(dialect))
        return bool(pool.get("status", {}).get("state") == "Ready")

    def config(self, user: str) -> ClientConfig:
        """A user's client configuration for the API server."""
        return client_config(self.server.url, f"user-{user}")

    def client(self, user: str) -> KubeClient:
        """A user's client."""
        return client(self.server, f"user-{user}", self.addCleanup)

    async def until_async(self, look: Callable[[], Any]) -> Any:
        """Repeat ``look`` until its result is true, at most until the test times out."""
        while not (found := await look()):
            await deferLater(reactor, 0.02, lambda: None)
        return found

    def machine(self, dialect: Dialect, name: str = "vm", **spec: Any) -> Object:
        """A machine as a user writes it, bound to the dialect's pool."""
        return {
            "metadata": {"name": name},
            "spec": {
                dialect.class_reference: {"name": CLASS},
                dialect.pool_reference: {"name": pool_of(dialect)},
                **spec,
            },
        }

    async def make(self, dialect: Dialect, name: str = "vm", **spec: Any) -> Object:
        """Fires with a new machine once it is running."""
        wanted = self.machine(dialect, name, **spec)
        await self.admin.create(dialect.workload, wanted, NAMESPACE)
        return await self.in_state(dialect, name, "Running")

    async def in_state(self, dialect: Dialect, name: str, state: str) -> Object:
        """Fires with the machine once it is in a state."""

        async def look() -> Object | None:
            found = await self.admin.get(dialect.workload, name, NAMESPACE)
            return found if found.get("status", {}).get("state") == state else None

        machine: Object = await self.until_async(look)
        return machine

    async def power(self, dialect: Dialect, name: str, power: str) -> None:
        """Set a machine's desired power."""
        await self.admin.patch(dialect.workload, name, {"spec": {"power": power}}, NAMESPACE)

    async def gone(self, dialect: Dialect, name: str) -> None:
        """Fires once there is no such machine."""

        async def look() -> bool:
            try:
                await self.admin.get(dialect.workload, name, NAMESPACE)
            except APIError as error:
                return error.code == 404
            return False

        await self.until_async(look)

    async def in_runtime(self, dialect: Dialect) -> list[pb.Machine]:
        """The machines that the runtime lists."""
        listed = await self.runtimes[dialect].list_machines(pb.ListMachinesRequest())
        return list(listed.machines)

    async def console(self, name: str = "vm", *, user: str = "admin", **more: Any) -> Screen:
        """Fires with an open console."""
        endpoint = ConsoleEndpoint(self.config(user), NAMESPACE, name, reactor, **more)
        screen: Screen = await connectProtocol(endpoint, Screen())
        return screen

    async def refusal(self, name: str = "vm", **more: Any) -> APIError:
        """Fires with the error of a console that was refused."""
        error: APIError = await self.assertFailure(self._opening(name, **more), APIError)
        return error

    def _opening(self, name: str, **more: Any) -> Any:
        from twisted.internet.defer import Deferred

        return Deferred.fromCoroutine(self.console(name, **more))


def _machine_revision(dialect: Dialect) -> str:
    """The revision served as ``machine.v1alpha1``; spheric's own service is always served too."""
    return "ironcore" if dialect.iri_revision == "spheric" else dialect.iri_revision


class ChainContract:
    """
    Mix it into a :class:`ChainCase` with one dialect.

    :cvar dialect: the dialect under test.
    """

    dialect: Dialect

    async def test_life(self: Any) -> None:
        """A machine is created, opened, powered off and on, and deleted."""
        dialect = self.dialect
        machine = await self.make(dialect)
        self.assertTrue(machine["status"][dialect.id_field].endswith(await self._id()))
        self.assertIn(dialect.finalizer, machine["metadata"]["finalizers"])
        screen = await self.console()
        await screen.ask(b"echo is-$((40+2))\n", rb"is-42")
        await self.power(dialect, "vm", "Off")
        await self.in_state(dialect, "vm", "Shutdown")
        await self.power(dialect, "vm", "On")
        await self.in_state(dialect, "vm", "Running")
        await screen.ask(b"echo is-$((50+2))\n", rb"is-52")
        await self._delete_with_console()

    async def _id(self: Any) -> str:
        (machine,) = await self.in_runtime(self.dialect)
        self.assertEqual(machine.metadata.labels[self.dialect.name_label], "vm")
        self.assertEqual(machine.metadata.labels[self.dialect.namespace_label], NAMESPACE)
        return str(machine.metadata.id)

    async def _delete_with_console(self: Any) -> None:
        screen = await self.console()
        await self.admin.delete(self.dialect.workload, "vm", NAMESPACE)
        ended = await screen.ended
        assert isinstance(ended, ConsoleLost) and ended.ending is not None
        self.assertEqual(ended.ending.reason, MACHINE_DELETED)
        await self.gone(self.dialect, "vm")
        self.assertEqual(await self.in_runtime(self.dialect), [])

    async def test_pool(self: Any) -> None:
        """The pool's status has the poollet's port and the capacity, under the dialect's keys."""
        dialect, name = self.dialect, pool_of(self.dialect)
        key = f"{dialect.capacity_prefix}{CLASS}"

        async def offering() -> Any:
            status = (await self.admin.get(dialect.pool, name)).get("status", {})
            return status if status.get("allocatable", {}).get(key) == "10" else None

        status = await self.until_async(offering)
        port = status["daemonEndpoints"][dialect.endpoint_field]["port"]
        self.assertEqual(port, self.poollets[dialect].address.port)
        self.assertEqual(status["capacity"][key], "10")
        if dialect.classes_field:
            self.assertEqual(status[dialect.classes_field], [{"name": CLASS}])
        await self.make(dialect)

        async def taken() -> bool:
            pool = await self.admin.get(dialect.pool, name)
            return bool(pool["status"]["allocatable"][key] == "9")

        await self.until_async(taken)

    async def test_placed(self: Any) -> None:
        """A machine without a pool is scheduled to a pool with enough capacity."""
        unbound = self.machine(self.dialect)
        del unbound["spec"][self.dialect.pool_reference]
        await self.admin.create(self.dialect.workload, unbound, NAMESPACE)
        machine = await self.in_state(self.dialect, "vm", "Running")
        self.assertEqual(self.dialect.pool_name(machine), pool_of(self.dialect))

    async def test_events(self: Any) -> None:
        """A machine's Events name its kind, its API version and the poollet as source."""
        machine = await self.make(self.dialect)
        selector = f"involvedObject.uid={machine['metadata']['uid']}"

        async def told() -> list[Object]:
            found = await self.admin.list(kinds.EVENTS.resource, NAMESPACE, field_selector=selector)
            events: list[Object] = found["items"]
            return events

        event = (await self.until_async(told))[0]
        self.assertEqual(event["involvedObject"]["kind"], self.dialect.workload.kind)
        self.assertEqual(event["involvedObject"]["apiVersion"], self.dialect.workload.api_version)
        self.assertEqual(event["source"]["component"], self.dialect.poollet)

    async def test_refusals(self: Any) -> None:
        """Refused consoles explain the reason with the dialect's resource names."""
        dialect, noun = self.dialect, self.dialect.noun
        error = await self.refusal(among=[dialect])
        told = f'{dialect.workload.qualified} "vm" not found'
        self.assertEqual((error.code, error.message), (404, told))
        unbound = self.machine(dialect, "free", **{dialect.pool_selector: {"no": "such"}})
        del unbound["spec"][dialect.pool_reference]
        await self.admin.create(dialect.workload, unbound, NAMESPACE)
        error = await self.refusal("free", among=[dialect])
        told = f'{noun} "free" has no {dialect.pool_noun} yet'
        self.assertEqual((error.code, error.message[: len(told)]), (400, told))
        off = self.machine(dialect, "off", power="Off")
        await self.admin.create(dialect.workload, off, NAMESPACE)
        error = await self.refusal("off", among=[dialect])
        self.assertEqual(error.code, 409)
        self.assertIn(f'{noun} "off" is powered off', error.message)
        error = await self.refusal("off", user="jane", among=[dialect])
        self.assertEqual(error.code, 403)
        self.assertIn(f"{dialect.workload.plural}/exec", error.message)

    async def test_fence(self: Any) -> None:
        """
        A poollet can neither read machines bound to another pool nor write that pool's status.
        """
        dialect = self.dialect
        other = self.machine(dialect, "other")
        other["spec"][dialect.pool_reference] = {"name": "elsewhere"}
        await self.admin.create(dialect.workload, other, NAMESPACE)
        await self.admin.create(dialect.pool, {"metadata": {"name": "elsewhere"}})
        mine = client(self.server, f"poollet-{pool_of(dialect)}-client", self.addCleanup)
        listed = await mine.list(
            dialect.workload, field_selector=f"{dialect.pool_field}={pool_of(dialect)}"
        )
        self.assertEqual(listed["items"], [])
        for asking, code in (
            (mine.get(dialect.workload, "other", NAMESPACE), 404),
            (mine.list(dialect.workload), 403),
            (mine.patch(dialect.pool, "elsewhere", {"status": {}}, subresource="status"), 403),
        ):
            error = await self.assertFailure(asking, APIError)
            self.assertEqual(error.code, code)

    async def test_as_a_pod(self: Any) -> None:
        """Pod clients see a running machine as a Pod on the pool's node, owned by the machine."""
        await self.make(self.dialect)
        pod = await self.admin.get(kinds.PODS.resource, "vm", NAMESPACE)
        self.assertEqual(pod["status"]["phase"], "Running")
        self.assertEqual(pod["spec"]["nodeName"], pool_of(self.dialect))
        self.assertEqual(pod["metadata"]["ownerReferences"][0]["kind"], self.dialect.workload.kind)
