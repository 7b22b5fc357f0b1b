"""
Tests for :mod:`twisted_exec.racks.controller` and :mod:`twisted_exec.racks.service`, with a whole API server.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import yaml
from twisted.internet.task import deferLater
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from tests.apiserver.chain import ChainTestCase
from tests.chain import begin, reactor, until
from tests.docs.pages import DOCS
from tests.flows.programs import twistd
from tests.racks.support import TARGET, MetalCase, server
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.resource import Resource
from twisted_exec.apiserver.service import APIServer
from twisted_exec.program.config_file import ConfigError
from twisted_exec.program.server_list import Server, read_servers
from twisted_exec.racks import controller
from twisted_exec.racks.controller import ListFile
from twisted_exec.racks.metal import BMCS, SERVERS
from twisted_exec.racks.service import Racks
from twisted_exec.racks.settings import Settings
from twisted_exec.storage.memory import MemoryStorage

MACHINES = kinds.MACHINES.resource
ROLE = DOCS / "howto" / "racks-role.yaml"


class RackCase(MetalCase):
    """The program as user ``jane``, who has the role of the how-to and no other right."""

    async def setUp(self) -> None:
        await super().setUp()
        self.patch(controller, "LOOK_SECONDS", 0.02)
        self.path = os.path.abspath(self.mktemp()) + ".csv"
        await self.grant()

    async def grant(self) -> None:
        """Apply the role of the how-to."""
        for obj in yaml.safe_load_all(ROLE.read_text()):
            for subject in obj.get("subjects", ()):
                subject["name"] = "jane"
            namespace = obj["metadata"].get("namespace", "")
            resource = Resource(
                "rbac.authorization.k8s.io",
                "v1",
                f"{obj['kind'].lower()}s",
                obj["kind"],
                bool(namespace),
            )
            await self.admin.create(resource, obj, namespace)

    async def start(self, **settings: Any) -> Racks:
        client = self.client("jane")
        chosen = Settings(TARGET, self.path, **{"confirm_seconds": 0.05, **settings})
        racks: Racks = await begin(Racks(chosen, client, client, reactor), self.addCleanup)
        return racks

    def listed(self) -> list[str]:
        """The names and addresses in the file."""
        if not os.path.exists(self.path) or Path(self.path).read_text().startswith("# servers: 0"):
            return []
        return [f"{each.name} {each.address}" for each in read_servers(self.path).servers]

    async def machines(self) -> list[str]:
        listed = await self.admin.list(MACHINES, "default")
        return sorted(each["metadata"]["name"] for each in listed["items"])

    async def until_machines(self, names: list[str]) -> None:
        while await self.machines() != names:
            await deferLater(reactor, 0.01)


class ControllerTests(RackCase):
    """Servers, Machines and the list."""

    async def test_life(self) -> None:
        """
        Servers become rows and Machines; a new address is followed; a deleted Server loses its Machine, then its row,
        and the others keep theirs.
        """
        logged: list[str] = []
        globalLogPublisher.addObserver(observer := lambda event: logged.append(formatEvent(event)))
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        await self.add("a", "10.0.1.1")
        racks = await self.start()
        await until(lambda: self.listed() == ["default/a 10.0.1.1"])
        await until(lambda: f"{self.path} is written; servers: 1, before: 0" in logged)
        await self.add("b", "10.0.1.2", power="Off")
        await until(lambda: self.listed() == ["default/a 10.0.1.1", "default/b 10.0.1.2"])
        await self.until_machines(["a", "b"])
        made = await self.admin.get(MACHINES, "b", "default")
        self.assertEqual(made["spec"]["power"], "Off")
        self.assertEqual(made["metadata"]["labels"]["metadata.metal.ironcore.dev/rack"], "r7")
        self.assertEqual(
            read_servers(self.path).servers[0],
            Server("default/a", "10.0.1.1", "System_0", {"metadata.metal.ironcore.dev/rack": "r7"}),
        )
        await until(lambda: not racks.controller.problem)

        await self.admin.patch(BMCS, "a-bmc", {"spec": {"access": {"ip": "10.0.1.9"}}})
        await until(lambda: "default/a 10.0.1.9" in self.listed())
        await self.admin.delete(SERVERS, "a")
        await self.until_machines(["b"])
        await until(lambda: self.listed() == ["default/b 10.0.1.2"])

    async def test_power(self) -> None:
        """A Machine whose power its user has changed stays so."""
        await self.add("a", "10.0.1.1")
        await self.start()
        await self.until_machines(["a"])
        await self.admin.patch(MACHINES, "a", {"spec": {"power": "Off"}}, "default")
        await self.add("b", "10.0.1.2")
        await self.until_machines(["a", "b"])
        made = await self.admin.get(MACHINES, "a", "default")
        self.assertEqual(made["spec"]["power"], "Off")

    async def test_empty_cluster(self) -> None:
        """A cluster that shows no Servers at all removes nothing, also after a restart."""
        await self.add("a", "10.0.1.1")
        racks = await self.start()
        await self.until_machines(["a"])
        await racks.stopService()
        before = Path(self.path).read_bytes()
        await self.admin.delete(SERVERS, "a")
        racks = await self.start()
        await until(lambda: racks.controller._was_empty and not racks.controller.problem)
        runs = self.runs(racks)
        await until(lambda: len(runs) > 5)
        self.assertEqual(await self.machines(), ["a"])
        self.assertEqual(Path(self.path).read_bytes(), before)
        self.assertEqual(racks.controller.counts, {"listed": 1, "waiting": 0, "missing": 1})

        await self.add("b", "10.0.1.2")
        await self.until_machines(["b"])
        await until(lambda: self.listed() == ["default/b 10.0.1.2"])

    def runs(self, racks: Racks) -> list[str]:
        """Return a list that grows with each run of the controller."""
        runs: list[str] = []
        original = racks.controller._gone

        async def gone(rows: Any) -> set[str]:
            runs.append("run")
            return await original(rows)

        self.patch(racks.controller, "_gone", gone)
        return runs

    async def test_incomplete_list(self) -> None:
        """A list that lacks Servers, while the server knows each of them, removes nothing."""
        for number in (1, 2, 3):
            await self.add(f"s{number}", f"10.0.1.{number}")
        racks = await self.start()
        await self.until_machines(["s1", "s2", "s3"])
        await until(lambda: len(self.listed()) == 3)
        reflector = racks.controller._servers
        dropped = reflector.get("s2")
        reflector._drop(("", "s2"))
        assert dropped is not None
        runs = self.runs(racks)
        await until(lambda: len(runs) > 10)
        self.assertEqual(racks.controller.counts["missing"], 1)
        self.assertEqual(await self.machines(), ["s1", "s2", "s3"])
        self.assertEqual(len(self.listed()), 3)

    async def test_failed_watch(self) -> None:
        """
        While the Servers cannot be watched, nothing changes, and probes say why; when the API server comes back
        with an empty store, the list stays as it is, too.
        """
        await self.add("a", "10.0.1.1")
        await self.add("b", "10.0.1.2")
        racks = await self.start()
        await self.until_machines(["a", "b"])
        await until(lambda: len(self.listed()) == 2 and not racks.controller.problem)
        before = Path(self.path).read_bytes()
        port = self.server.address.port  # type: ignore[union-attr]
        await self.server.stopService()
        await until(lambda: re.match(r"(servers|bmcs|machines)\.\S+: ", racks.controller.problem))
        runs = self.runs(racks)
        again = self.settings(listen=f"tcp:{port}:interface=127.0.0.1")
        self.server = APIServer(again, MemoryStorage(), self.audit, reactor)
        await begin(self.server, self.addCleanup)
        self.assertEqual(runs, [])
        self.admin = self.client("admin")
        await self.grant()
        await until(lambda: racks.controller._was_empty)
        count = len(runs)
        await until(lambda: len(runs) > count + 5)
        self.assertEqual(Path(self.path).read_bytes(), before)

    async def test_wrong_file(self) -> None:
        """A file that cannot be read is not overwritten: nobody knows what was in it."""
        Path(self.path).write_text("# servers: 2\nname,address\ndefault/x,10.0.1.1\n")
        await self.add("a", "10.0.1.1")
        racks = await self.start()
        await until(lambda: "says that it has 2" in racks.controller.problem)
        self.assertIn("or remove it to have it written anew", racks.controller.problem)
        self.assertEqual(await self.machines(), [])
        os.unlink(self.path)
        await until(lambda: self.listed() == ["default/a 10.0.1.1"])

    async def test_users_machine(self) -> None:
        """A Machine that a user has created gets its row, and outlives its Server."""
        mine = {**TARGET.machine(server("a"), "On")}
        mine["metadata"] = {"name": "a", "namespace": "default"}
        await self.admin.create(MACHINES, mine, "default")
        await self.add("a", "10.0.1.1")
        await self.add("b", "10.0.1.2")
        await self.start()
        await until(lambda: len(self.listed()) == 2)
        await self.until_machines(["a", "b"])
        await self.admin.delete(SERVERS, "a")
        await until(lambda: self.listed() == ["default/b 10.0.1.2"])
        self.assertEqual(await self.machines(), ["a", "b"])

    async def test_selector(self) -> None:
        """A Server that the selector does not select any more is another program's."""
        await self.add("a", "10.0.1.1")
        await self.add("b", "10.0.1.2")
        await self.start(selector="metadata.metal.ironcore.dev/rack=r7")
        await self.until_machines(["a", "b"])
        labels = {"metadata": {"labels": {"metadata.metal.ironcore.dev/rack": "r8"}}}
        await self.admin.patch(SERVERS, "a", labels)
        await self.until_machines(["b"])
        await until(lambda: self.listed() == ["default/b 10.0.1.2"])

    async def test_probes(self) -> None:
        """Probes and metrics have a port of their own."""
        await self.add("a", "10.0.1.1")
        await self.add("b", "", power="")
        racks = await self.start(health_listen="tcp:0:interface=127.0.0.1")
        await until(lambda: not racks.controller.problem)
        text = (await racks.registry.scrape()).decode()
        for line in (
            'twisted_exec_racks_servers{state="listed"} 1.0',
            'twisted_exec_racks_servers{state="waiting"} 1.0',
            'twisted_exec_racks_servers{state="missing"} 0.0',
        ):
            self.assertIn(line, text)
        self.assertIsNotNone(racks.health_address)

    async def test_role(self) -> None:
        """The role gives no right on Secrets, nor on the Machines of other namespaces."""
        client = self.client("jane")
        for resource, namespace in (
            (kinds.SECRETS.resource, "default"),
            (kinds.SECRETS.resource, ""),
            (MACHINES, ""),
            (MACHINES, "kube-system"),
        ):
            with self.assertRaisesRegex(Exception, "forbidden"):
                await client.list(resource, namespace)


class MissingKindTests(ChainTestCase):
    """An API server without the kinds of metal-operator."""

    async def test_not_gone(self) -> None:
        """That it has no such kind does not mean that a Server is gone."""
        settings = Settings(TARGET, self.mktemp())
        made = controller.RackController(settings, self.admin, self.admin, reactor)
        self.assertFalse(await made._is_gone("a"))


class ProgramTests(RackCase):
    """The program under twistd, beside a runtime's list."""

    starts = PROGRAMS

    async def test_program(self) -> None:
        """It works with the rights of the how-to, writes a list that the runtime reads, and starts again."""
        await self.add("a", "10.0.1.1")
        kubeconfig = os.path.abspath(self.kubeconfig("user-jane"))
        arguments = (
            "exec-racks",
            f"--kubeconfig={kubeconfig}",
            f"--list={self.path}",
            "--namespace=default",
            "--machine-class=server",
            "--machine-pool=rack-7",
            "--health-listen=",
        )
        program = twistd(*arguments)
        self.addCleanup(program.stop)
        await until(lambda: self.listed() == ["default/a 10.0.1.1"])
        await self.until_machines(["a"])
        self.assertEqual(await program.stop(), -signal.SIGTERM)
        program = twistd(*arguments)
        self.addCleanup(program.stop)
        await self.add("b", "10.0.1.2")
        await until(lambda: "default/b 10.0.1.2" in self.listed())
        self.assertEqual(await program.stop(signal.SIGINT), -signal.SIGINT)
        for word in (b"Traceback", b"forbidden"):
            self.assertNotIn(word, program.output)


ROWS = [Server("default/a", "10.0.1.1", "S", {"rack": "r7"}), Server("default/b", "10.0.1.2")]


class ListFileTests(SynchronousTestCase):
    """The file between ``exec-racks`` and the runtime."""

    def setUp(self) -> None:
        self.file = ListFile(os.path.abspath(self.mktemp()) + ".csv")

    def test_written(self) -> None:
        """What was written is read; a list without rows is one, and so is none."""
        self.assertEqual(self.file.read(), ())
        for rows in (ROWS, [], ROWS[:1]):
            self.file.write(rows)
            self.assertEqual(list(self.file.read()), rows)
        directory, name = os.path.split(self.file.path)
        self.assertEqual([each for each in os.listdir(directory) if name in each], [name])

    def test_mode(self) -> None:
        """The runtime can read it as another user, whatever the umask."""
        before = os.umask(0o077)
        self.addCleanup(os.umask, before)
        self.file.write(ROWS)
        self.assertEqual(os.stat(self.file.path).st_mode & 0o777, 0o644)

    def test_refused(self) -> None:
        """A file with a wrong row is not used at all: the row stood for a Server."""
        Path(self.file.path).write_text("name,address\ndefault/a,10.0.1.1\ndefault/b,bmc\n")
        with self.assertRaisesRegex(ConfigError, "default/b: address 'bmc' is not an IP address"):
            self.file.read()

    def test_too_large(self) -> None:
        """A list that the runtime would refuse is not written; the old one stays."""
        self.file.write(ROWS)
        self.patch(controller, "MAX_FILE_BYTES", 64)
        with self.assertRaisesRegex(ConfigError, "divide the Servers with --server-selector"):
            self.file.write([*ROWS, Server("default/c", "10.0.1.3")])
        self.assertEqual(list(self.file.read()), ROWS)
