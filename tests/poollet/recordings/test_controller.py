"""
Tests for :mod:`twisted_exec.poollet.recordings.controller`: with the recordings of a runtime, and a cluster in memory.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail
from zope.interface import implementer

from tests.recording.support import NOW, SECOND
from tests.runtimes.recordings.support import KEY, UID, Case
from twisted_exec.api.dialects import IRONCORE
from twisted_exec.api.kinds import CONSOLERECORDINGS
from twisted_exec.api.status import Invalid, NotFound, NotImplementedByBackend, ServiceUnavailable
from twisted_exec.api.times import timestamp
from twisted_exec.iri.interfaces import IConsoleRecordings
from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.poollet.recordings import controller
from twisted_exec.poollet.recordings.controller import RecordingController
from twisted_exec.recording.proof_lines import decode_head
from twisted_exec.testing.cluster import MemoryCluster

RESOURCE = CONSOLERECORDINGS.resource


@implementer(IConsoleRecordings)
class ControllerCase(Case):
    """One poollet, its runtime and its API server."""

    old = False

    def setUp(self) -> None:
        super().setUp()
        self.cluster = MemoryCluster()
        self.events: list[tuple[str, ...]] = []
        self.controller = self.make()

    def make(self) -> RecordingController:
        self.client = self.cluster.client()
        made = RecordingController(
            self.client,
            self,
            self.clock,
            IRONCORE,
            "pool-a",
            has_machine=lambda uid: uid == KEY,
            synced=lambda: True,
            now=lambda: self.now() / SECOND,
            report=lambda about, *event: self.events.append((about["metadata"]["name"], *event)),
        )
        made.start()
        self.run_for(2)
        return made

    def run_for(self, seconds: float) -> None:
        self.clock.pump([0.05] * round(seconds * 20))

    # The runtime of the poollet: whichever there is now.

    def set_recordings(self, request: pb.SetRecordingsRequest) -> Deferred[Any]:
        if self.old:
            return fail(NotImplementedByBackend("unknown method"))
        return self.recordings.set_recordings(request)

    def list_recordings(self, request: pb.ListRecordingsRequest) -> Deferred[Any]:
        if self.old:
            return fail(NotImplementedByBackend("unknown method"))
        return self.recordings.list_recordings(request)

    # The objects.

    def create(self, name: str = "rec", uid: str = UID, **spec: Any) -> None:
        """Create a recording, as the API server does."""
        metadata = {
            "name": name,
            "namespace": "lab",
            "uid": uid,
            "creationTimestamp": timestamp(self.now() / SECOND),
        }
        spec = {
            "machine": "vm",
            "machineUID": KEY,
            "machineResource": IRONCORE.workload.qualified,
            "pool": "pool-a",
            "input": "none",
        } | spec
        self.cluster.put((RESOURCE, "lab", name), {"metadata": metadata, "spec": spec})
        self.run_for(2)

    def change(self, name: str = "rec", **spec: Any) -> None:
        key = (RESOURCE, "lab", name)
        before = self.cluster.objects[key]
        self.cluster.put(key, before | {"spec": before["spec"] | spec})
        self.run_for(3)

    def status_of(self, name: str = "rec") -> dict[str, Any]:
        return dict(self.cluster.objects[RESOURCE, "lab", name].get("status") or {})


class ControllerTests(ControllerCase):
    """Tests for :class:`RecordingController`."""

    def test_whole_life(self) -> None:
        """An object is recorded; its status has the newest head, and the end."""
        self.create(user="ada")
        status = self.status_of()
        self.assertEqual((status["phase"], status["firstOffset"]), ("Recording", 0))
        self.assertEqual([each.facts.user for each in self.recordings.open_of(KEY)], ["ada"])
        self.journal.append(b"hello")
        self.run_for(62)
        status = self.status_of()
        self.assertEqual(status["endOffset"], 5)
        head, _ = decode_head(status["head"].encode() + b"\n")
        self.assertEqual((head.offset, head.recording, head.closed), (5, UID, False))
        self.change(ended=True)
        status = self.status_of()
        self.assertEqual(status["phase"], "Closed")
        self.assertIn("endTime", status)
        self.assertEqual(self.output(), b"hello")

    def test_events(self) -> None:
        """Begin and end of a recording are Events about it, each once."""
        self.create()
        self.journal.append(b"hello")
        self.run_for(130)
        self.change(ended=True)
        self.run_for(60)
        self.assertEqual(
            self.events,
            [
                ("rec", "Normal", "RecordingStarted", "the output is recorded from offset 0 on"),
                (
                    "rec",
                    "Normal",
                    "RecordingClosed",
                    "the recording is complete: 5 bytes of output",
                ),
            ],
        )

    def test_begun_by_a_session(self) -> None:
        """A recording that a session began is taken over when the object arrives, however late."""
        self.recordings.require(UID, "none", KEY)
        self.create()
        self.assertEqual(self.status_of()["phase"], "Recording")
        self.change(ended=True)
        self.assertEqual(self.status_of()["phase"], "Closed")

    def test_deleted(self) -> None:
        """The runtime forgets a recording whose object is deleted."""
        self.create()
        self.cluster.remove((RESOURCE, "lab", "rec"))
        self.run_for(3)
        self.assertRaises(NotFound, self.recordings.facts, UID)

    def test_deleted_meanwhile(self) -> None:
        """The same if that happened while no poollet ran."""
        self.create()
        self.successResultOf(self.controller.stop())
        self.cluster.remove((RESOURCE, "lab", "rec"))
        self.controller = self.make()
        self.run_for(5)
        self.assertRaises(NotFound, self.recordings.facts, UID)

    def test_restarted_runtime(self) -> None:
        """A runtime that was restarted gets all recordings again, and reports its heads."""
        self.create()
        self.journal.append(b"one")
        self.successResultOf(Deferred.fromCoroutine(self.recordings.stop()))
        Case.start(self)
        self.run_for(90)
        self.assertEqual(self.status_of()["endOffset"], 3)

    def test_api_server_fails(self) -> None:
        """A status that cannot be written is written later."""
        self.create()
        self.cluster.problem = ServiceUnavailable("later")
        self.journal.append(b"hello")
        self.run_for(65)
        self.cluster.problem = None
        self.run_for(60)
        self.assertEqual(self.status_of()["endOffset"], 5)

    def test_failing_report(self) -> None:
        """
        A report that cannot be handled is told on its recording; others do not wait, and the newest
        report of the recording is written in the end.
        """
        events_of = controller.events_of

        def failing(before: Any, after: dict[str, Any]) -> Any:
            raise ZeroDivisionError

        self.create("other", UID.replace("1", "2"))
        self.patch(controller, "events_of", failing)
        self.create()
        self.run_for(5)
        self.patch(controller, "events_of", events_of)
        reasons = [each[2] for each in self.events if each[0] == "rec"]
        self.assertEqual(reasons, [controller.NOT_HANDLED])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.journal.append(b"hello")
        self.change("other", ended=True)
        self.assertEqual(self.status_of("other")["phase"], "Closed")
        self.change(ended=True)
        self.run_for(60)
        status = self.status_of()
        self.assertEqual((status["phase"], status["endOffset"]), ("Closed", 5))

    def test_refused_status(self) -> None:
        """A head that the API server refuses, because it goes back, does not hold up others."""
        self.create()
        other = UID.replace("1", "2")
        self.create("other", other)
        patch = self.client.patch

        def refuse(resource: Any, name: str, *more: Any, **others: Any) -> Deferred[Any]:
            if name == "rec":
                return fail(Invalid("ConsoleRecording", "rec", [], RESOURCE.group))
            return patch(resource, name, *more, **others)

        self.patch(self.client, "patch", refuse)
        self.journal.append(b"hello")
        self.run_for(70)
        self.assertEqual(self.status_of("rec")["endOffset"], 0)
        self.assertEqual(self.status_of("other")["endOffset"], 5)

    def test_changed_on_host(self) -> None:
        """A recording whose head the API server refuses has failed, and says why; its head remains."""
        self.create()
        head = self.status_of()["head"]
        patch = self.client.patch
        cause = {"field": "status.head", "reason": "FieldValueInvalid", "message": "goes back"}
        writes = []

        def refuse(resource: Any, name: str, body: Any, *more: Any, **others: Any) -> Deferred[Any]:
            if "head" in body["status"]:
                return fail(Invalid("ConsoleRecording", name, [cause], RESOURCE.group))
            writes.append(body["status"])
            return patch(resource, name, body, *more, **others)

        self.patch(self.client, "patch", refuse)
        for _ in range(3):
            self.journal.append(b"hello")
            self.run_for(70)
        status = self.status_of()
        self.assertEqual((status["phase"], status["head"]), ("Failed", head))
        self.assertIn("was cut, replaced or made anew on the runtime's host", status["message"])
        self.assertEqual(len(writes), 1)

    def test_old_runtime(self) -> None:
        """With a runtime that makes no recordings they have failed, and say why."""
        self.old = True
        self.create()
        status = self.status_of()
        self.assertEqual(status["phase"], "Failed")
        self.assertIn("makes no recordings", status["message"])
        ((_, type_, reason, message),) = self.events
        self.assertEqual((type_, reason), ("Warning", "RecordingFailed"))
        self.assertIn("makes no recordings", message)

    def test_stopped_beside_old_runtime(self) -> None:
        """A controller whose first call makes a recording fail leaves nothing behind when it stops."""
        self.successResultOf(self.controller.stop())
        before = len(self.clock.getDelayedCalls())
        self.old = True
        self.create()
        self.controller = self.make()
        self.assertEqual(self.status_of()["phase"], "Failed")
        self.successResultOf(self.controller.stop())
        self.assertEqual(len(self.clock.getDelayedCalls()), before)

    def test_replaced_by_old_runtime(self) -> None:
        """The same if such a runtime takes the place of a newer one, while the API server fails."""
        self.create()
        self.old = True
        self.cluster.problem = ServiceUnavailable("later")
        self.run_for(30)
        self.cluster.problem = None
        self.run_for(120)
        self.assertEqual(self.status_of()["phase"], "Failed")

    def test_many_deleted_meanwhile(self) -> None:
        """The poollet lists the recordings once for all that the runtime reports and the cluster does not have."""
        uids = [UID.replace("1", digit) for digit in "123"]
        for number, uid in enumerate(uids):
            self.create(f"rec-{number}", uid)
        self.successResultOf(self.controller.stop())
        for number in range(len(uids)):
            self.cluster.remove((RESOURCE, "lab", f"rec-{number}"))
        listed: list[object] = []
        client = self.cluster.client

        def counted() -> Any:
            made = client()
            listing = made.list
            self.patch(made, "list", lambda *of, **more: listed.append(of) or listing(*of, **more))
            return made

        self.patch(self.cluster, "client", counted)
        self.controller = self.make()
        self.run_for(5)
        for uid in uids:
            self.assertRaises(NotFound, self.recordings.facts, uid)
        self.assertEqual(len(listed), 2)  # the first is that of the reflector

    def test_cannot_begin(self) -> None:
        """A recording that cannot begin yet has no phase, and says why."""
        self.problem = "there is no certificate"
        self.create()
        self.assertNotIn("phase", self.status_of())
        self.assertIn("there is no certificate", self.status_of()["message"])
        self.assertEqual(self.status_of()["reason"], "NotStarted")
        ((_, type_, reason, message),) = self.events
        self.assertEqual((type_, reason), ("Warning", "RecordingNotStarted"))
        self.assertIn("there is no certificate", message)
        self.problem = ""
        self.run_for(125)
        self.assertEqual(self.events[-1][:3], ("rec", "Normal", "RecordingStarted"))

    def test_other_kind_of_pool(self) -> None:
        """Recordings of machines of another kind in a pool of the same name are left alone."""
        self.create(machineResource="machines.other.example")
        self.assertEqual(self.status_of(), {})
        self.assertRaises(NotFound, self.recordings.facts, UID)

    def test_earlier_output(self) -> None:
        """What was printed between the creation and the first call is recorded."""
        created = NOW + int(self.clock.seconds() * SECOND)
        self.run_for(5)
        self.journal.append(b"early")
        self.run_for(5)
        metadata = {
            "name": "rec",
            "namespace": "lab",
            "uid": UID,
            "creationTimestamp": timestamp(created / SECOND),
        }
        self.create()
        obj = self.cluster.objects[RESOURCE, "lab", "rec"]
        self.cluster.put(
            (RESOURCE, "lab", "two"),
            obj | {"metadata": metadata | {"name": "two", "uid": UID.replace("1", "2")}},
        )
        self.run_for(2)
        self.end(UID.replace("1", "2"))
        self.assertEqual(self.output(UID.replace("1", "2")), b"early")
