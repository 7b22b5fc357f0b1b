"""
The controller of ``docs/howto/add-a-controller.rst``.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from dataclasses import replace
from typing import Any

import yaml
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.client import Agent, readBody

from tests.apiserver.support import EVENTS, MACHINES, MERGE, machine
from tests.audits import AuditList
from tests.chain import apiserver_settings, begin, client, kubeconfig, reactor
from tests.examples.test_examples import EXAMPLES
from tests.examples.test_kind import NOTES, NoteTestCase, list_notes, notes, without_notes
from tests.flows.programs import script, start
from tests.ports import reserved_port
from tests.runtimes.support import pause
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.conditions import condition_of
from twisted_exec.api.kinds import Kind, Object
from twisted_exec.api.kinds.schemas import CONDITIONS
from twisted_exec.api.resource import Resource
from twisted_exec.api.schema import struct
from twisted_exec.api.status import Conflict, NotFound, ServiceUnavailable
from twisted_exec.api.times import timestamp
from twisted_exec.apiserver.service import APIServer
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.apiserver.settings import Settings
from twisted_exec.control.backoff import FIRST_PAUSE_SECONDS
from twisted_exec.control.queue import Again
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.recorder import Recorder
from twisted_exec.program.metrics import new_registry
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.testing.cluster import MemoryCluster


def example(name: str) -> Any:
    """Return a module of ``docs/examples``, which may import others there."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(EXAMPLES))


def notes_with_status() -> Kind:
    """Return the kind of ``note_kind.py``, with a status."""
    kind = notes()
    status = struct({"conditions": CONDITIONS}, description="status is the observed state.")
    return replace(kind, has_status=True, schema={**kind.schema, "status": status})


USER = "eve"
"""The user of the program in tests, who has no other rights."""


def note_roles() -> list[Object]:
    """Return the objects of ``note_role.yaml``, for :data:`USER`."""
    objects: list[Object] = list(yaml.safe_load_all((EXAMPLES / "note_role.yaml").read_text()))
    for each in objects:
        for subject in each.get("subjects", ()):
            subject["name"] = USER
    return objects


async def grant(admin: KubeClient) -> None:
    """Give :data:`USER` the rights of ``note_role.yaml``."""
    found = (kinds.CLUSTERROLES, kinds.CLUSTERROLEBINDINGS, kinds.ROLES, kinds.ROLEBINDINGS)
    resources = {each.resource.kind: each.resource for each in found}
    for each in note_roles():
        await admin.create(resources[each["kind"]], each, each["metadata"].get("namespace", ""))


class NoteControllerTests(NoteTestCase):
    """``note_controller.py``, with an API server in memory."""

    def notes(self) -> Kind:
        """Return the kind of the notes, with a status."""
        return notes_with_status()

    def setUp(self) -> None:
        super().setUp()
        machines = [dialect.workload for dialect in self.dialects]
        self.registry = new_registry(process=False)
        self.jump = 0.0
        parts = (
            self.storage,
            self.parts.verbs,
            self.clock,
            lambda: self.clock.seconds() + self.jump,
        )
        controller = example("note_controller").NoteController(
            self.kind, machines, *parts, self.registry.queues
        )
        controller.startService()
        self.addCleanup(controller.stopService)
        self.create("disk")

    def create(self, name: str, **more: str) -> None:
        note = {"metadata": {"name": name}, "spec": {"machine": "vm", "text": "full", **more}}
        self.answer("POST", NOTES, note, code=201)

    def found(self) -> str:
        return self.condition("disk", "MachineFound")

    def condition(self, name: str, type: str) -> str:
        self.clock.advance(0)
        return str(condition_of(self.answer("GET", f"{NOTES}/{name}"), type)["status"])

    def test_machine(self) -> None:
        """The condition follows the machine, and each loss of it is an Event."""
        self.assertEqual(self.found(), "False")
        self.answer("POST", MACHINES, machine("vm"), code=201)
        self.assertEqual(self.found(), "True")
        self.answer("DELETE", f"{MACHINES}/vm")
        self.assertEqual(self.found(), "False")
        (event,) = self.answer("GET", EVENTS)["items"]
        self.assertEqual((event["reason"], event["count"]), ("MachineNotFound", 2))

    def test_nothing_new(self) -> None:
        """A change that leaves the status right causes no write."""
        self.found()
        changed = self.answer("GET", f"{NOTES}/disk")
        changed["metadata"]["labels"] = {"seen": "yes"}
        version = self.answer("PUT", f"{NOTES}/disk", changed)["metadata"]["resourceVersion"]
        self.clock.advance(60)
        self.assertEqual(str(self.storage.version()), version)

    def test_generation(self) -> None:
        """The conditions say which generation of the note they are about."""
        note = self.answer("GET", f"{NOTES}/disk")
        note["spec"]["text"] = "nearly full"
        self.answer("PUT", f"{NOTES}/disk", note)
        self.clock.advance(0)
        condition = condition_of(self.answer("GET", f"{NOTES}/disk"), "MachineFound")
        self.assertEqual(condition["observedGeneration"], 2)

    def test_due(self) -> None:
        """A note is due at its dueTime, also if that is brought forward meanwhile."""
        for name in ("far", "near"):
            self.create(name, dueTime=timestamp(self.clock.seconds() + 3600))
        note = self.answer("GET", f"{NOTES}/near")
        note["spec"]["dueTime"] = timestamp(self.clock.seconds() + 60)
        self.answer("PUT", f"{NOTES}/near", note)
        for seconds, near, far in ((59, "False", "False"), (1, "True", "False")):
            self.clock.advance(seconds)
            found = (self.condition("near", "Due"), self.condition("far", "Due"))
            self.assertEqual(found, (near, far), seconds)
        self.clock.pump([60] * 59)
        self.assertEqual(self.condition("far", "Due"), "True")

    def test_jump(self) -> None:
        """After a jump of the wall clock over a dueTime, the note is due within five minutes."""
        self.create("work", dueTime=timestamp(self.clock.seconds() + 86400))
        self.assertEqual(self.condition("work", "Due"), "False")
        self.jump = 2 * 86400.0
        self.clock.advance(300)
        self.assertEqual(self.condition("work", "Due"), "True")

    def test_due_meanwhile(self) -> None:
        """A note that becomes due just after the decision about it is looked at again."""
        self.create("work", dueTime=timestamp(self.clock.seconds() + 60))
        self.assertEqual(self.condition("work", "Due"), "False")
        module = example("note_queue")
        real = module.plan

        def plan(*arguments: Any) -> Object | None:
            planned: Object | None = real(*arguments)
            self.jump = 60.0
            return planned

        self.patch(module, "plan", plan)
        labels = {"metadata": {"labels": {"seen": "yes"}}}
        self.answer("PATCH", f"{NOTES}/work", labels, content_type=MERGE)
        self.clock.advance(60)
        self.assertEqual(self.condition("work", "Due"), "True")

    def test_stuck(self) -> None:
        """A note whose work does not end has an Event that says so, and is tried again."""
        real = self.storage.update
        self.found()
        self.storage.update = lambda resource, obj: Deferred()  # type: ignore[method-assign]
        self.answer("POST", MACHINES, machine("vm"), code=201)
        longest = "workqueue_longest_running_processor_seconds"
        self.clock.advance(59)
        self.assertEqual(self.registry.get_sample_value(longest, {"name": "notes"}), 59)
        self.storage.update = real  # type: ignore[method-assign]
        self.clock.pump([1, 1])
        self.assertEqual(self.registry.get_sample_value(longest, {"name": "notes"}), 0)
        self.assertEqual(self.found(), "True")
        told = {each["reason"]: each["message"] for each in self.answer("GET", EVENTS)["items"]}
        self.assertEqual(told["NotUpdated"], "no answer in 60 s")

    def test_metrics(self) -> None:
        """The queue has the metrics of the program."""
        count = "workqueue_queue_duration_seconds_count"
        self.assertGreaterEqual(self.registry.get_sample_value(count, {"name": "notes"}) or 0, 1)

    def test_refused(self) -> None:
        """A write that the store refuses is repeated after a pause."""
        real = self.storage.update

        def refuse(resource: Resource, obj: Object) -> Deferred[Object]:
            return fail(ServiceUnavailable("the disk is full"))

        self.found()
        self.storage.update = refuse  # type: ignore[method-assign]
        self.answer("POST", MACHINES, machine("vm"), code=201)
        self.assertEqual(self.found(), "False")
        self.storage.update = real  # type: ignore[method-assign]
        self.assertEqual(self.found(), "False")
        self.clock.advance(FIRST_PAUSE_SECONDS)
        self.assertEqual(self.found(), "True")

    def test_conflict(self) -> None:
        """A write with a conflict is not repeated: the change that caused it queues the note again."""
        tries: list[Any] = []

        def refuse(*arguments: Any) -> Deferred[Object]:
            tries.append(arguments)
            return fail(Conflict("the note has changed"))

        self.found()
        self.patch(Verbs, "update", refuse)
        self.answer("POST", MACHINES, machine("vm"), code=201)
        self.clock.pump([1] * 60)
        self.assertEqual(len(tries), 1)

    def test_bug(self) -> None:
        """A note whose plan raises has an Event that says so, once, and holds up no other."""
        module = example("note_queue")
        real = module.plan

        def plan(note: Object, *others: Any) -> Object | None:
            if note["metadata"]["name"] == "bad":
                raise ZeroDivisionError("secret")
            planned: Object | None = real(note, *others)
            return planned

        self.patch(module, "plan", plan)
        self.create("bad")
        self.create("good")
        self.clock.pump([30] * 4)
        events = self.answer("GET", EVENTS)["items"]
        (event,) = (each for each in events if each["involvedObject"]["name"] == "bad")
        self.assertEqual((event["reason"], event["count"]), ("NotUpdated", 1))
        self.assertNotIn("secret", event["message"])
        self.assertTrue(self.answer("GET", f"{NOTES}/good")["status"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class NoteDeletionTests(NoteTestCase):
    """``note_deletion.py``, with an API server in memory."""

    def setUp(self) -> None:
        super().setUp()
        self.function = example("note_deletion").delete_without_machine
        note = {"metadata": {"name": "disk"}, "spec": {"machine": "vm", "text": "full"}}
        self.note = self.answer("POST", NOTES, note, code=201)

    def look(self) -> None:
        """Decide about the note as it was created."""
        machines = [dialect.workload for dialect in self.dialects]
        parts = self.storage, self.parts.verbs, self.kind, machines, self.note
        self.successResultOf(Deferred.fromCoroutine(self.function(*parts)))

    def test_deleted(self) -> None:
        """A note goes when its machine does; a repeated look does nothing."""
        self.make_machine("vm")
        self.look()
        self.answer("DELETE", f"{MACHINES}/vm")
        self.look()
        self.refused(404, "GET", f"{NOTES}/disk")
        self.look()

    def test_changed(self) -> None:
        """A note that has changed since the decision stays."""
        text = {"spec": {"text": "nearly full"}}
        self.answer("PATCH", f"{NOTES}/disk", text, content_type=MERGE)
        self.look()
        self.answer("GET", f"{NOTES}/disk")

    def test_finalizer(self) -> None:
        """A note that is deleted already is not deleted again."""
        finalizers = {"metadata": {"finalizers": ["example.org/wait"]}}
        self.answer("PATCH", f"{NOTES}/disk", finalizers, content_type=MERGE)
        self.answer("DELETE", f"{NOTES}/disk")
        self.note = self.answer("GET", f"{NOTES}/disk")
        self.patch(Verbs, "delete", None)
        self.look()


class NoteProgramTests(SynchronousTestCase):
    """``note_program.py``, with a cluster in memory."""

    def setUp(self) -> None:
        kind, self.clock = notes_with_status(), Clock()
        self.cluster, self.notes = MemoryCluster((*without_notes(kinds.ALL), kind)), kind.resource
        self.create(self.notes, {"metadata": {"name": "disk"}, "spec": {"machine": "vm"}})

    def start(self) -> None:
        program = example("note_program").program(
            self.cluster.client(),
            self.notes,
            kinds.MACHINES.resource,
            self.clock,
            self.clock.seconds,
        )
        program.start()
        self.addCleanup(lambda: self.successResultOf(program.stop()))

    def create(self, resource: Resource, obj: Object) -> None:
        self.successResultOf(self.cluster.client().create(resource, obj, "default"))

    def found(self) -> str:
        self.clock.advance(0)
        note = self.successResultOf(self.cluster.client().get(self.notes, "disk", "default"))
        return str(condition_of(note, "MachineFound")["status"])

    def test_machine(self) -> None:
        """The condition follows the machine, and each loss of it is an Event."""
        self.start()
        self.assertEqual(self.found(), "False")
        self.create(kinds.MACHINES.resource, machine("vm"))
        self.assertEqual(self.found(), "True")
        self.successResultOf(self.cluster.client().delete(kinds.MACHINES.resource, "vm", "default"))
        self.assertEqual(self.found(), "False")
        self.assertEqual(self.event()["count"], 2)

    def event(self) -> Object:
        """The only Event of the note."""
        events = self.successResultOf(self.cluster.client().list(kinds.EVENTS.resource))["items"]
        (event,) = (each for each in events if each["involvedObject"]["name"] == "disk")
        return event  # type: ignore[no-any-return]

    def test_forbidden_machines(self) -> None:
        """While machines cannot be listed, notes have an Event with the cause; later they go on."""
        self.cluster.forbidden.add(kinds.MACHINES.resource)
        self.start()
        self.clock.pump([1] * 30)
        event = self.event()
        self.assertEqual((event["reason"], event["count"]), ("NotUpdated", 1))
        self.assertIn("cannot list machines: machines.compute.ironcore.dev is f", event["message"])
        self.cluster.forbidden.clear()
        self.create(kinds.MACHINES.resource, machine("vm"))
        self.clock.pump([1] * 60)
        self.assertEqual(self.found(), "True")


class NoteFinalizerTests(SynchronousTestCase):
    """``note_finalizer.py``, with a cluster in memory."""

    machines = kinds.MACHINES.resource

    def setUp(self) -> None:
        kind, self.clock = notes_with_status(), Clock()
        self.cluster, self.notes = MemoryCluster((*without_notes(kinds.ALL), kind)), kind.resource
        self.client = self.cluster.client()
        self.example = example("note_finalizer")
        self.recorder = Recorder(
            self.client,
            self.clock,
            about=self.notes,
            component="c",
            host="",
            now=self.clock.seconds,
        )
        self.create(self.machines, machine("vm"))
        note = {"metadata": {"name": "disk"}, "spec": {"machine": "vm", "text": "replace it"}}
        self.create(self.notes, note)

    def create(self, resource: Resource, obj: Object) -> None:
        self.successResultOf(self.client.create(resource, obj, "default"))

    def look(self, note: Object | None = None) -> Deferred[None]:
        """Reconcile the note, as it is now or was."""
        if note is None:
            note = self.successResultOf(self.client.get(self.notes, "disk", "default"))
        parts = self.client, self.notes, self.machines, self.recorder, note
        return Deferred.fromCoroutine(self.example.reconcile(*parts))

    def annotation(self) -> str | None:
        vm = self.successResultOf(self.client.get(self.machines, "vm", "default"))
        found: str | None = vm["metadata"].get("annotations", {}).get(self.example.ANNOTATION)
        return found

    def test_life(self) -> None:
        """The annotation comes behind the finalizer, and the note goes behind the annotation."""
        self.successResultOf(self.look())
        self.assertIsNone(self.annotation())
        self.successResultOf(self.look())
        self.assertEqual(self.annotation(), "replace it")
        (event,) = self.successResultOf(self.client.list(kinds.EVENTS.resource))["items"]
        involved = event["involvedObject"]
        self.assertEqual((involved["kind"], involved["name"]), ("Machine", "vm"))
        self.successResultOf(self.client.delete(self.notes, "disk", "default"))
        self.successResultOf(self.look())
        self.assertIsNone(self.annotation())
        self.failureResultOf(self.client.get(self.notes, "disk", "default"), NotFound)

    def test_conflict(self) -> None:
        """An object that has changed since it was read is not written; the queue tries again."""
        note = self.successResultOf(self.client.get(self.notes, "disk", "default"))
        change = {"metadata": {"labels": {"a": "b"}}}
        self.successResultOf(self.client.patch(self.notes, "disk", change, "default"))
        self.failureResultOf(self.look(note), Again)
        now = self.successResultOf(self.client.get(self.notes, "disk", "default"))
        self.assertNotIn("finalizers", now["metadata"])

    def test_no_machine(self) -> None:
        """A note without a machine can be deleted."""
        self.successResultOf(self.look())
        self.successResultOf(self.client.delete(self.machines, "vm", "default"))
        self.successResultOf(self.client.delete(self.notes, "disk", "default"))
        self.successResultOf(self.look())
        self.failureResultOf(self.client.get(self.notes, "disk", "default"), NotFound)


class NoteApplicationTests(TestCase):
    """``note_application.py``, started as its docstring describes."""

    starts = PROGRAMS

    async def test_starts(self) -> None:
        """The program works with the rights of its role, has metrics, and releases its Lease in the end."""
        kind = notes_with_status()
        list_notes(self, kind)
        settings = Settings(**apiserver_settings())
        server = APIServer(settings, MemoryStorage(), AuditList(), reactor)
        await begin(server, self.addCleanup)
        admin = client(server, "user-admin", self.addCleanup)
        await grant(admin)
        note = {"metadata": {"name": "disk"}, "spec": {"machine": "vm", "text": "full"}}
        await admin.create(kind.resource, note, "default")
        port = reserved_port(self)
        environment = {
            "KUBECONFIG": kubeconfig(os.path.abspath(self.mktemp()), server.url, f"user-{USER}"),
            "METRICS_LISTEN": f"tcp:{port}:interface=127.0.0.1",
            "PYTHONPATH": str(EXAMPLES),
        }
        words = [script("twistd"), "-ny", str(EXAMPLES / "note_application.py"), "--pidfile="]
        running = start(words, env=environment, cwd=self.make_directory())
        self.addCleanup(running.stop)
        await running.until(rb" leads\n")
        while not condition_of(await admin.get(kind.resource, "disk", "default"), "MachineFound"):
            await pause()
        for path, text in (("metrics", b'workqueue_depth{name="notes"} 0.0'), ("readyz", b"ok")):
            self.assertIn(text, await self.read(port, path))
        self.assertEqual(await running.stop(signal.SIGINT), -signal.SIGINT)
        self.assertNotIn(b"forbidden", running.output)
        self.assertNotIn(b"Traceback", running.output)
        lease = await admin.get(kinds.LEASES.resource, "note-controller", "kube-system")
        self.assertEqual(lease["spec"]["holderIdentity"], "")

    def make_directory(self) -> str:
        directory = os.path.abspath(self.mktemp())
        os.makedirs(directory)
        return directory

    async def read(self, port: int, path: str) -> bytes:
        """Return the body of an answer of the program."""
        answer = await Agent(reactor).request(b"GET", f"http://127.0.0.1:{port}/{path}".encode())
        self.assertEqual(answer.code, 200)
        body: bytes = await readBody(answer)
        return body
