"""
Tests for :mod:`twisted_exec.runtimes.host`: whole runtimes, one after the other, in one
process.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred

from tests.contracts.machine_runtime import machine
from tests.runtimes.support import User, open_console
from tests.runtimes.test_host import HostCase
from tests.tiers import PROGRAMS
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.protos import console_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.program.handover.interfaces import IHandsOver, ServiceState
from twisted_exec.program.handover.successor import HandOverError
from twisted_exec.program.listening import LISTENING
from twisted_exec.recording.playback import frames
from twisted_exec.recording.signatures import TrustedRecorders
from twisted_exec.recording.verification import verify
from twisted_exec.runtimes.host import RuntimeHost
from twisted_exec.runtimes.recordings.settings import RecordingSettings
from twisted_exec.shipping.config import parse as parse_shipping
from twisted_exec.tls import pem
from twisted_exec.tls.pki.directory import create_pki

HALVES = ((b"o", b"ne"), (b"t", b"wo"), (b"t", b"hree"), (b"f", b"our"))


class HandOverTests(HostCase):
    """A runtime with a shell."""

    starts = PROGRAMS
    exact = True

    async def shell(self, host: RuntimeHost, uid: str = "") -> tuple[str, User]:
        """Create a machine, and open its console by an ordinary stream."""
        client = IRIClient(host.iri.target, reactor)  # type: ignore[arg-type]
        self.addCleanup(client.stopService)
        request = pb.CreateMachineRequest(machine=machine("x", "shell", uid=uid))
        id = (await client.create_machine(request)).machine.metadata.id
        await self.until(self.alive)
        return id, await self.console(host, id, "s")

    async def console(self, host: RuntimeHost, id: str, session: str) -> User:
        """Open the console of a machine by an ordinary stream, which no hop rejoins."""
        client = IRIClient(host.iri.target, reactor)  # type: ignore[arg-type]
        self.addCleanup(client.stopService)
        answer = await client.exec(pb.ExecRequest(machine_id=id), user="ann", session=session)
        return await open_console(answer.url, X_Twisted_Exec_User="ann")

    async def says(self, user: User, word: str) -> None:
        user.stream.write(f"echo {word[:1]}''{word[1:]}\n".encode())
        # The prompt may come behind the echo of what was typed ahead.
        await self.until(lambda: f"{word}\r".encode() in user.got)

    async def hand_over(self, first: RuntimeHost, **options: Any) -> RuntimeHost:
        """Replace a runtime; it is retired."""
        handed = await first.freeze()
        LISTENING.release()
        second = self.host(**options)
        second.inherit(ServiceState(json.loads(json.dumps(dict(handed.values)))))
        ready = second.when_ready()
        second.startService()
        await ready
        self.retiring: Deferred[None] = first.retire(60)
        return second

    async def test_replaced(self) -> None:
        """A stream that no hop rejoins ends with the reason; the machine goes on at each successor."""
        first = await self.ready()
        self.assertTrue(IHandsOver.providedBy(first))
        id, user = await self.shell(first)
        await self.says(user, "one")
        (pid,) = self.alive()
        second = await self.hand_over(first)
        await self.until(lambda: user.gone)
        assert user.ending is not None
        self.assertIn("was replaced", user.ending.message)
        await self.retiring
        await first.stopService()
        user = await self.console(second, id, "t")
        await self.says(user, "two")
        third = await self.hand_over(second)
        await self.retiring
        await second.stopService()
        user = await self.console(third, id, "u")
        await self.says(user, "three")
        self.assertEqual(self.alive(), [pid])
        user.stream.write(b"exit 7\n")
        await self.until(lambda: user.gone)
        assert user.ending is not None
        self.assertEqual(user.ending.exit_code, 7)
        self.assertTrue(os.path.exists(third.iri.target.path))
        self.assertEqual(third.streams.sessions.live(), [])

    async def test_thawed(self) -> None:
        """A runtime that goes on serves its sessions, calls and shipping as before."""
        path = os.path.join(self.directory, "lines")
        shipping = parse_shipping({"sinks": {"f": {"kind": "files", "directory": path}}})
        first = await self.ready(shipping=shipping)
        id, user = await self.shell(first)
        for word in ("one", "two"):
            await first.freeze()
            user.stream.write(b"true\n")
            await first.thaw()
            await self.says(user, word)
        client = IRIClient(first.iri.target, reactor)  # type: ignore[arg-type]
        self.addCleanup(client.stopService)
        listed = await client.list_machines(pb.ListMachinesRequest())
        self.assertEqual([each.metadata.id for each in listed.machines], [id])
        answer = await client.exec(pb.ExecRequest(machine_id=id), user="bob", session="b")
        other = await open_console(answer.url, X_Twisted_Exec_User="bob")
        await self.until(lambda: b"two" in other.got)
        await first.stopService()
        self.assertEqual(self.alive(), [])
        texts = [each.read_text() for each in Path(path).rglob("*") if each.is_file()]
        lines = [line for text in texts for line in text.splitlines() if line.endswith("two")]
        self.assertLessEqual(len(lines), 1)

    async def test_thawed_in_part(self) -> None:
        """If a part of a runtime does not go on, the others do, and the log says why."""

        for error in (OSError("too many open files"), RuntimeError("a bug")):

            def fail(error: Exception = error) -> None:
                raise error

            path = os.path.join(self.directory, "lines")
            shipping = parse_shipping({"sinks": {"f": {"kind": "files", "directory": path}}})
            first = await self.ready(shipping=shipping)
            await first.freeze()
            self.patch(first, "start_shipping", fail)
            await first.thaw()
            self.assertEqual(len(self.flushLoggedErrors(type(error))), 1)
            _, user = await self.shell(first)
            await self.says(user, "one")
            await first.stopService()

    async def test_recorded(self) -> None:
        """A recording goes on at each successor: nothing is missing or twice, and its end is signed."""
        pki = create_pki(os.path.join(self.directory, "pki"))
        pair = pki.issue_recorder("host-a")
        recording = RecordingSettings(pair.certificate, pair.key)
        host = await self.ready(recording=recording)
        machine_uid, uid = (f"6f000000-0000-4000-8000-00000000000{n}" for n in (1, 2))
        id, user = await self.shell(host, machine_uid)
        desired = console_pb2.DesiredRecording(uid=uid, machine_uid=machine_uid, input="all")
        await self.set_recording(host, desired)
        for word in ("one", "two", "three"):
            await self.says(user, word)
            retired, host = host, await self.hand_over(host, recording=recording)
            self.addCleanup(retired.stopService)
            user = await self.console(host, id, word)
        await self.says(user, "four")
        client = IRIClient(host.iri.target, reactor)  # type: ignore[arg-type]
        self.addCleanup(client.stopService)
        answer = await client.exec(pb.ExecRequest(machine_id=id), user="bob", session="b")
        viewer = await open_console(answer.url, X_Twisted_Exec_User="bob")
        await self.until(lambda: b"four\r" in viewer.got)
        desired.ended = True
        await self.set_recording(host, desired)
        await self.until(lambda: host.runtime.recordings.count("Closed"))
        content = io.BytesIO(b"".join(host.runtime.recordings.content(uid)))
        authorities = pem.certificates(Path(pki.serving_ca).read_bytes(), "CA")
        self.assertTrue(verify(content, TrustedRecorders(authorities)).is_closed)
        played = dict.fromkeys("oi", b"")
        for frame in frames(content):
            if frame.code in played:
                played[frame.code] += frame.data
        self.assertIn(played["o"], viewer.got)
        typed = [b"echo %b''%b" % each for each in HALVES]
        self.assertEqual([played["o"].count(each) for each in typed], [1] * 4)
        self.assertEqual(played["i"], b"".join(b"%b\n" % each for each in typed))

    async def set_recording(self, host: RuntimeHost, desired: console_pb2.DesiredRecording) -> None:
        request = console_pb2.SetRecordingsRequest(
            owner="pool-a", generation="g", recordings=[desired]
        )
        await host.set_recordings(request)

    async def test_stopped_while_frozen(self) -> None:
        """A runtime that is stopped in between ends its machines as ever."""
        first = await self.ready()
        _, user = await self.shell(first)
        await first.freeze()
        await first.stopService()
        await self.until(lambda: user.gone)
        self.assertEqual(self.alive(), [])

    async def test_state(self) -> None:
        """A state of another program is refused."""
        host = self.host()
        with self.assertRaisesRegex(ValueError, "machines and sessions"):
            host.inherit(ServiceState({"replicas": []}))

    async def test_refused(self) -> None:
        """A machine that is being deleted refuses the hand-over, and nothing has changed."""
        first = await self.ready()
        id, user = await self.shell(first)
        first.runtime.machines.deleting[id] = []
        with self.assertRaisesRegex(HandOverError, "is being deleted"):
            await first.freeze()
        await first.thaw()
        del first.runtime.machines.deleting[id]
        await self.says(user, "still")
