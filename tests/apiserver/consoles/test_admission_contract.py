"""
The admissions of an API server for machines keep the contract of
:class:`~twisted_exec.streaming.location.IStreamAdmission`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from tests.apiserver import support
from tests.apiserver.consoles.test_recording_rules import RECORDINGS
from tests.apiserver.support import MACHINES, MERGE, PODS, POOLS, APITestCase, FreezingStorage
from tests.contracts.stream_admission import StreamAdmissionContract
from twisted_exec.api.kinds import CONSOLERECORDINGS
from twisted_exec.api.obstacles import Obstacle, obstacles_of
from twisted_exec.api.status import NotFound
from twisted_exec.api.times import timestamp
from twisted_exec.apiserver.consoles.admission import MachineAdmission
from twisted_exec.apiserver.consoles.pods import MachineOfPod, MachinePodAdmission
from twisted_exec.apiserver.consoles.retained_texts import RetainedTextAdmission
from twisted_exec.streaming.location import Location, Renewal
from twisted_exec.wire.resume import RESUME_HEADER, Position, Resume

UPGRADE = [("Connection", "Upgrade"), ("Upgrade", "websocket")]
POLICIES = "/apis/console.twisted-exec.dev/v1alpha1/namespaces/default/consolepolicies"
RESUME = Resume("k" * 43, "s-1", Position("0" * 16, 5))
RESUMES = (RESUME_HEADER, RESUME.text())
PATHS = {
    "exec": f"{MACHINES}/vm/exec?readOnly=true",
    "log": f"{MACHINES}/vm/log?tailLines=1",
    "pod": f"{PODS}/vm/exec?stdin=true&command=console&command=--read-only",
    "machine of pod": f"{PODS}/vm/log",
    "content": f"{RECORDINGS}/r/content",
}


class AdmissionTests(StreamAdmissionContract, APITestCase):
    """Of machines, of Pods that show them, and of recordings."""

    pods_view = True
    admissions = {
        "exec": MachineAdmission,
        "log": MachineAdmission,
        "pod": MachinePodAdmission,
        "machine of pod": MachineOfPod,
        "content": RetainedTextAdmission,
    }
    resuming = ("exec", "pod")

    def setUp(self) -> None:
        self.patch(support, "MemoryStorage", FreezingStorage)
        super().setUp()
        self.make_pool("pool-a", addresses=[{"type": "InternalIP", "address": "127.0.0.1"}])
        self.make_machine("vm")
        body = {"metadata": {"name": "r"}, "spec": {"machine": "vm"}}
        self.answer("POST", RECORDINGS, body, code=201)
        status = {"status": {"phase": "Recording", "firstOffset": 0}}
        self.answer("PATCH", f"{RECORDINGS}/r/status", status, content_type=MERGE)

    def finish(self, test: Any) -> None:
        """As :meth:`StreamAdmissionContract.finish`."""
        self.successResultOf(Deferred.fromCoroutine(test))

    async def ask_for(self, word: str, *, allowed: bool) -> None:
        """As :meth:`StreamAdmissionContract.ask_for`; nothing connects."""
        self.request(
            PATHS[word], "admin" if allowed else "bob", *UPGRADE[: 2 * (word in self.resuming)]
        )

    def request(self, path: str, user: str, *headers: tuple[str, str]) -> None:
        """Send a request, and leave."""
        client = self.server.connect()
        lines = [f"GET {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {user}"]
        lines += [f"{name}: {value}" for name, value in headers]
        client.send("\r\n".join([*lines, "", ""]).encode())
        client.lose()

    def located(self, path: str, *headers: tuple[str, str]) -> Any:
        """Ask for a console, and leave at once; return what the admission has said."""
        with self.watched("exec") as calls:
            self.request(path, "admin", *UPGRADE, *headers)
        (call,) = calls
        return call.result

    def test_resumed_in_frozen_store(self) -> None:
        """A session is resumed without an answer of the store, for which a new session waits."""
        path = f"{MACHINES}/vm/exec"
        self.assertIsInstance(self.located(path, RESUMES), Location)
        self.freeze()
        self.assertTrue(self.located(path).check(CancelledError))  # it waited
        self.assertIsInstance(self.located(path, RESUMES), Location)

    def test_resumed_after_deletion(self) -> None:
        """A session is not resumed at another machine that has the name of its machine now."""
        path = f"{MACHINES}/vm/exec"
        uid = self.answer("GET", f"{MACHINES}/vm")["metadata"]["uid"]
        resumes = (RESUME_HEADER, replace(RESUME, machine=uid).text())
        self.assertIsInstance(self.located(path, resumes), Location)
        self.answer("DELETE", f"{MACHINES}/vm")
        self.make_machine("vm")
        refusal = self.located(path, resumes).value
        self.assertEqual(refusal.code, NotFound.code)
        self.assertEqual(obstacles_of(refusal), (Obstacle.RECREATED,))
        message = 'machine "vm" was deleted; another machine has this name now'
        self.assertEqual(refusal.message, message)
        self.assertIsInstance(self.located(path, RESUMES), Location)  # of an earlier release

    def test_rejoined_in_frozen_store(self) -> None:
        """A stream finds the present address of its pool without an answer of the store."""
        location = self.located(f"{MACHINES}/vm/exec")
        self.make_pool_elsewhere()
        self.freeze()
        renewing = Deferred.fromCoroutine(location.upstream.renew(location, Renewal.REJOIN))
        present = self.successResultOf(renewing)
        self.assertEqual(present.host, b"127.0.0.2:20250")

    def freeze(self) -> None:
        """Let the store answer nothing until the test is over."""
        self.patch(self.storage, "is_frozen", True)

    def make_pool_elsewhere(self) -> None:
        """Move the pool to another address."""
        addresses = [{"type": "InternalIP", "address": "127.0.0.2"}]
        patch = {"status": {"addresses": addresses}}
        self.answer("PATCH", f"{POOLS}/pool-a/status", patch, content_type=MERGE)

    def test_recorded_in_frozen_store(self) -> None:
        """A session that must be recorded is resumed without an answer of the store."""
        policy = {"metadata": {"name": "p"}, "spec": {"recording": {"retentionDays": 9}}}
        self.answer("POST", POLICIES, policy, code=201)
        spec = self.answer("GET", f"{RECORDINGS}/r")["spec"]
        spec |= {"policies": ["p"], "users": ["admin"], "retentionDays": 9}
        begun = timestamp(self.clock.seconds() - 60)
        spec |= {"endsWithSessions": True, "lastSessionTime": begun}
        metadata = {"name": "open", "namespace": "default", "uid": "u", "creationTimestamp": begun}
        status = {"phase": "Recording", "firstOffset": 0}
        open_ = {"metadata": metadata, "spec": spec, "status": status}
        self.successResultOf(self.storage.create(CONSOLERECORDINGS.resource, open_))
        path = f"{MACHINES}/vm/exec"
        self.freeze()
        self.assertTrue(self.located(path).check(CancelledError))  # it waited
        resumed = self.located(path, RESUMES)
        self.assertIsInstance(resumed, Location)
        self.assertEqual(resumed.terms.recording, "u/masked")
