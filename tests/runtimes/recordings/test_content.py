"""
Tests for :mod:`twisted_exec.runtimes.recordings.content`: a whole runtime that records a shell, asked by gRPC
and read by HTTP.
"""

from __future__ import annotations

import errno
import io
import os
import uuid
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.audits import AuditList
from tests.contracts.machine_runtime import machine
from tests.contracts.recording_store import text_of
from tests.recording.test_writer import played
from tests.runtimes.support import open_console, open_log
from tests.runtimes.test_host import HostCase
from tests.tiers import PROGRAMS
from twisted_exec.api.status import APIError
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.protos import console_pb2 as console
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.program.audit import Trail
from twisted_exec.recording.proof_lines import decode_head
from twisted_exec.recording.signatures import TrustedRecorders
from twisted_exec.recording.stores.interfaces import ReadText, StoreError
from twisted_exec.recording.verification import verify
from twisted_exec.runtimes.recordings import service
from twisted_exec.runtimes.recordings.content import StoredStream
from twisted_exec.runtimes.recordings.service import ConsoleRecordings
from twisted_exec.runtimes.recordings.settings import RecordingSettings
from twisted_exec.streaming.http.responses import Dispatcher, respond_status
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.interfaces import COMPLETED
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.testing.network import MemoryClient, MemoryServer
from twisted_exec.tls import pem
from twisted_exec.tls.pki.authority import Authority

UID = str(uuid.UUID(int=1))
MACHINE = str(uuid.UUID(int=2))


class ContentTests(HostCase):
    """A runtime with a recorder."""

    starts = PROGRAMS
    exact = True

    def recorder(self) -> RecordingSettings:
        authority = Authority.create("ca")
        issued = authority.issue_recorder("metal-a")
        self.trust = TrustedRecorders(pem.certificates(authority.certificate_pem, "ca"))
        paths = [os.path.join(self.directory, name) for name in ("recorder.crt", "recorder.key")]
        for path, text in zip(paths, (issued.certificate_pem, issued.key_pem), strict=True):
            with open(path, "wb") as file:
                file.write(text)
        return RecordingSettings(*paths)

    async def with_shell(self, **options: Any) -> Any:
        """Start a runtime with a client and a shell."""
        self.host = host = await self.ready(**options)
        client = IRIClient(str(host.iri.target), reactor)
        client.startService()
        self.addCleanup(client.stopService)
        shell = machine("x", "shell", uid=MACHINE)
        answer = await client.create_machine(pb.CreateMachineRequest(machine=shell))
        id = answer.machine.metadata.id
        await self.until(lambda: host.runtime.machines.records.get(id).state == pb.MACHINE_RUNNING)
        return client, id

    async def open(self, client: IRIClient, id: str, recording: str) -> Any:
        answer = await client.exec(
            pb.ExecRequest(machine_id=id), user="ann", machine_uid=MACHINE, session="s1"
        )
        terms = {"X_Twisted_Exec_Terms": f"recording={recording.replace('/', '%2F')}"}
        user = await open_console(answer.url, **self.ann(), **terms)
        self.addCleanup(lambda: user.stream.abort())
        return user

    def ann(self) -> dict[str, str]:
        return {"X_Twisted_Exec_User": "ann", "X_Twisted_Exec_Machine_Uid": MACHINE}

    async def content(self, client: IRIClient) -> bytes:
        answer = await client.recording(
            console.RecordingRequest(uid=UID), user="ann", machine_uid=MACHINE, session="s2"
        )
        reader = await open_log(answer.url, **self.ann())
        await self.until(lambda: reader.complete is not None)
        self.assertTrue(reader.complete)
        return bytes(reader.got)

    async def test_recorded_session(self) -> None:
        """A session that must be recorded is, from its first byte; the content verifies, open and closed."""
        self.patch(service, "READ_WAIT_SECONDS", 600.0)  # however slow this machine is
        client, id = await self.with_shell(recording=self.recorder())
        user = await self.open(client, id, f"{UID}/masked")
        user.stream.write(b"echo $((6 * 7))\r")
        await self.until(lambda: b"42\r\n" in user.got)
        text = await self.content(client)
        self.assertIn(b"42\r\n", played(text))
        self.assertFalse(verify(io.BytesIO(text), self.trust).is_closed)
        desired = console.DesiredRecording(uid=UID, machine_uid=MACHINE, input="masked", ended=True)
        await client.set_recordings(
            console.SetRecordingsRequest(owner="pool", recordings=[desired])
        )
        request = console.ListRecordingsRequest(owner="pool", wait_seconds=5)
        status = (await client.list_recordings(request)).recordings[0]
        while status.state != "Closed":
            request.instance, request.acknowledged = "", 0
            await self.pause()
            status = (await client.list_recordings(request)).recordings[0]
        text = await self.content(client)
        stored = decode_head(status.head.encode() + b"\n")[0]
        report = verify(io.BytesIO(text), self.trust, stored)
        self.assertEqual(
            (report.is_closed, report.signers, report.info.machine["uid"]),
            (True, ["metal-a"], MACHINE),
        )
        with self.assertRaises(APIError) as caught:
            await client.recording(console.RecordingRequest(uid="unknown"))
        self.assertEqual(caught.exception.code, 404)

    async def test_unreadable(self) -> None:
        """If the files cannot be read, the response breaks off, and its session ends."""
        client, id = await self.with_shell(recording=self.recorder())
        await self.open(client, id, f"{UID}/none")

        def unreadable(_: ConsoleRecordings, uid: str) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        self.patch(ConsoleRecordings, "content", unreadable)
        answer = await client.recording(
            console.RecordingRequest(uid=UID), user="ann", machine_uid=MACHINE, session="s2"
        )
        reader = await open_log(answer.url, **self.ann())
        await self.until(lambda: reader.complete is not None)
        self.assertFalse(reader.complete)
        await self.until(lambda: not self.host.streams.sessions.with_id("s2"))

    async def test_without_certificate(self) -> None:
        """A runtime without a certificate refuses the session, and says what is missing."""
        client, id = await self.with_shell()
        with self.assertRaises(APIError) as caught:
            await self.open(client, id, f"{UID}/none")
        self.assertEqual(caught.exception.code, 503)
        self.assertIn("--recorder-certificate", caught.exception.message)


CONTENT = bytes(range(256)) * 4096


class Contents(Dispatcher):
    """Answers with one recording."""

    def __init__(self, sessions: Sessions, read: ReadText) -> None:
        super().__init__()
        self._sessions, self.read = sessions, read

    async def dispatch(self, request: Request) -> None:
        session = self._sessions.open(request.subject)
        try:
            await StoredStream(request, "r1", self.read).run(session)
        except APIError as error:
            session.over(error.message, code=error.code)
            respond_status(request, error)


class StoredStreamTests(SynchronousTestCase):
    """A recording of 1 MiB."""

    def setUp(self) -> None:
        self.records = AuditList()
        self.offsets: list[int] = []
        sessions = Sessions(Trail(self.records, "runtime", Clock()))
        self.contents = Contents(sessions, self.read)
        self.clock = Clock()
        self.server = MemoryServer(self.contents, self.clock)

    def read(self, offset: int, limit: int) -> Deferred[bytes]:
        """The recording."""
        self.offsets.append(offset)
        return text_of(CONTENT)(offset, limit)

    def ask(self) -> MemoryClient:
        """A client with a request."""
        client = self.server.connect()
        client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        return client

    def test_whole(self) -> None:
        """The recording comes whole, in order."""
        (answer,) = self.ask().responses()
        self.assertEqual(answer.body, CONTENT)
        self.assertEqual(self.records.ends(), [(COMPLETED, None)])

    def test_slow_reader(self) -> None:
        """The store is read no faster than the client."""
        waiting: Deferred[bytes] = Deferred()
        self.contents.read = lambda offset, limit: waiting if offset == 3 else succeed(b"abc")
        client = self.ask()
        producer = client.transport.producer
        self.contents.read = self.read
        producer.pauseProducing()
        self.assertIn(b"abc", client.received())
        self.assertEqual(self.offsets, [])
        waiting.callback(b"def")
        self.assertIn(b"def", client.received())

    def test_unreadable(self) -> None:
        """A store that cannot be read is an error before the beginning."""
        self.contents.read = self.away
        (answer,) = self.ask().responses()
        self.assertEqual(answer.code, 503)
        self.assertIn(b"cannot reach the bucket", answer.body)

    async def _away(self) -> bytes:
        raise StoreError("unreachable", "cannot reach the bucket")

    def away(self, offset: int, limit: int) -> Deferred[bytes]:
        """A store that does not answer."""
        return Deferred.fromCoroutine(self._away())

    def test_lost_in_the_middle(self) -> None:
        """A store that is lost later breaks the response off, so that the client notices."""
        self.contents.read = lambda offset, limit: (
            self.away(offset, limit) if offset else succeed(b"abc")
        )
        client = self.ask()
        received = client.received()
        self.assertIn(b"abc", received)
        self.assertFalse(received.endswith(b"0\r\n\r\n"))
        self.assertTrue(client.closed)
        ((reason, _),) = self.records.ends()
        self.assertEqual(reason, "the recording cannot be read")

    def test_client_leaves(self) -> None:
        """A client that leaves ends the reading."""
        waiting: Deferred[bytes] = Deferred()
        self.contents.read = lambda offset, limit: waiting if offset else succeed(b"abc")
        client = self.ask()
        client.transport.loseConnection()
        client.received()
        ((reason, _),) = self.records.ends()
        self.assertEqual(reason, "client closed")
