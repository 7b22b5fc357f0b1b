"""
Tests for :mod:`twisted_exec.runtimes.host`: whole runtimes in one process, each in place of the one before.
"""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred

from tests.contracts.machine_runtime import machine
from tests.runtimes.support import SHELL, User, end_keeper, open_console
from tests.runtimes.test_host import HostCase
from tests.tiers import PROGRAMS
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.protos import console_pb2
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.recording.playback import frames
from twisted_exec.recording.signatures import TrustedRecorders
from twisted_exec.recording.verification import verify
from twisted_exec.runtimes.host import RuntimeHost
from twisted_exec.runtimes.keeper.client import Keeper
from twisted_exec.runtimes.processes import ProcessFamily
from twisted_exec.runtimes.recordings.settings import RecordingSettings
from twisted_exec.shipping.config import parse as parse_shipping
from twisted_exec.streaming.interfaces import SHUTTING_DOWN
from twisted_exec.tls import pem
from twisted_exec.tls.pki.directory import create_pki
from twisted_exec.wire.marks import Ack
from twisted_exec.wire.resume import MARKS

HALVES = ((b"o", b"ne"), (b"t", b"wo"), (b"t", b"hree"), (b"f", b"our"))
BLOCKED = """\
stty raw -echo
echo up
while [ ! -e go ]; do sleep 0.05; done
head -c $(cat go) | sha256sum
exec sleep 1000
"""
COUNTING = "n=0; while :; do n=$((n+1)); echo line-$n; done"


class RestartTests(HostCase):
    """A runtime with a shell that outlives it."""

    starts = PROGRAMS
    exact = True

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(lambda: Deferred.fromCoroutine(self.end_all()))
        self.newest: RuntimeHost

    async def end_all(self) -> None:
        """End what a test leaves running; its runtimes are stopped before."""
        await ProcessFamily(self.table, lambda mark: mark.startswith(f"{self.mark}/")).end()
        keeper = self.newest.runtime._state.keeper
        if isinstance(keeper, Keeper):
            await end_keeper(keeper)

    async def start(self, *classes: dict[str, Any], **options: Any) -> RuntimeHost:
        options.setdefault("keep_machines", True)
        self.newest = await self.ready(*classes, **options)
        return self.newest

    def client(self, host: RuntimeHost) -> IRIClient:
        client = IRIClient(host.iri.target, reactor)  # type: ignore[arg-type]
        self.addCleanup(client.stopService)
        return client

    async def create(self, host: RuntimeHost, uid: str = "") -> str:
        request = pb.CreateMachineRequest(machine=machine("x", "shell", uid=uid))
        id = (await self.client(host).create_machine(request)).machine.metadata.id
        await self.until(self.alive)
        return str(id)

    async def console(self, host: RuntimeHost, id: str, session: str, resume: str = "") -> User:
        """Open the console of a machine."""
        request = pb.ExecRequest(machine_id=id)
        answer = await self.client(host).exec(request, user="ann", session=session)
        return await open_console(answer.url, resume=resume, X_Twisted_Exec_User="ann")

    async def says(self, user: User, word: str) -> None:
        user.stream.write(f"echo {word[:1]}''{word[1:]}\n".encode())
        # The prompt may come behind the echo of what was typed ahead.
        await self.until(lambda: f"{word}\r".encode() in user.got)

    def text(self, host: RuntimeHost, id: str) -> bytes:
        """Return everything in the journal of a machine."""
        journal = host.runtime.machines.supervisors[id].journal
        pieces, offset = [], journal.start
        while data := journal.read(offset, 1 << 20):
            pieces.append(data)
            offset += len(data)
        return b"".join(pieces)

    def kinds(self, host: RuntimeHost, id: str) -> list[str]:
        journal = host.runtime.machines.supervisors[id].journal
        return [each.kind for each in journal.events(0, journal.end)]

    async def test_kept(self) -> None:
        """An ordinary stream ends with the reason; the machine goes on at each runtime."""
        host = await self.start()
        id = await self.create(host)
        (pid,) = self.alive()
        user = await self.console(host, id, "s")
        for word in ("one", "two", "three"):
            await self.says(user, word)
            await host.stopService()
            await self.until(lambda user=user: user.gone)  # type: ignore[misc]
            assert user.ending is not None
            self.assertEqual(user.ending.reason, SHUTTING_DOWN)
            self.assertIn("exec-runtime is restarting", user.ending.message)
            host = await self.start()
            user = await self.console(host, id, word)
        self.assertEqual(self.alive(), [pid])
        self.assertEqual({"gap", "boot"} & set(self.kinds(host, id)[1:]), set())
        user.stream.write(b"exit 7\n")
        await self.until(lambda: user.gone)
        assert user.ending is not None
        self.assertEqual(user.ending.exit_code, 7)
        self.assertEqual(host.streams.sessions.live(), [])

    async def test_not_kept(self) -> None:
        """Without --keep-machines the machine ends."""
        host = await self.start(keep_machines=False)
        await self.create(host)
        await host.stopService()
        self.assertEqual(self.alive(), [])
        host = await self.start(keep_machines=False)
        self.assertEqual(len(host.runtime.machines.records), 0)

    async def test_settled_input(self) -> None:
        """
        A machine that reads nothing gets, after the restart, what the last Ack has settled: no byte
        more or less, and before anything else.
        """
        blocked = {**SHELL, "command": ["/bin/sh", "-c", BLOCKED], "directory": self.directory}
        host = await self.start(blocked)
        id = await self.create(host)
        user = await self.console(host, id, "s", MARKS)
        await self.until(lambda: b"up" in user.got)
        data = os.urandom(1 << 20)
        user.stream.write(data)
        supervisor = host.runtime.machines.supervisors[id]
        await self.until(lambda: supervisor.console and not supervisor.console.accepts_input)
        await host.stopService()
        await self.until(lambda: user.gone)
        settled = [each.count for each in user.marks if isinstance(each, Ack)][-1]
        assert settled is not None
        self.assertGreater(settled, 64 << 10)

        host = await self.start(blocked)
        later = await self.console(host, id, "t")
        later.stream.write(b"later")
        with open(os.path.join(self.directory, "go.new"), "w") as file:
            file.write(f"{settled + 5}")
        os.rename(f"{self.directory}/go.new", f"{self.directory}/go")
        digest = hashlib.sha256(data[:settled] + b"later").hexdigest().encode()
        await self.until(lambda: b" -" in later.got)
        self.assertIn(digest, later.got)

    async def test_prints_all_the_time(self) -> None:
        """A machine that always prints loses nothing, and its journal has neither a boot nor a gap."""
        counting = {**SHELL, "command": ["/bin/sh", "-c", COUNTING]}
        host = await self.start(counting)
        id = await self.create(host)
        for _ in range(3):
            before = host.runtime.machines.supervisors[id].journal.end
            await self.until(
                lambda host=host, before=before: (  # type: ignore[misc]
                    host.runtime.machines.supervisors[id].journal.end > before + 10_000
                )
            )
            await host.stopService()
            host = await self.start(counting)
        await host.stopService()
        host = await self.start()  # a class with another command finds the same process
        lines = self.text(host, id).split(b"\r\n")[:-1]
        self.assertEqual(lines, [b"line-%d" % number for number in range(1, len(lines) + 1)])
        self.assertEqual(
            [each for each in self.kinds(host, id) if each in ("gap", "boot")], ["boot"]
        )

    async def test_stopped_while_it_starts(self) -> None:
        """A machine goes on that is being adopted when the runtime stops again."""
        host = await self.start()
        id = await self.create(host)
        (pid,) = self.alive()
        for _ in range(3):
            await host.stopService()
            host = await self.start()
            self.assertIsNone(host.runtime.machines.supervisors[id].run)
        await host.stopService()
        self.assertEqual(self.alive(), [pid])
        host = await self.start()
        await self.says(await self.console(host, id, "s"), "still")

    async def test_ships(self) -> None:
        """The lines of the console leave the runtime once, also those from before the restart."""
        path = os.path.join(self.directory, "lines")
        shipping = parse_shipping({"sinks": {"f": {"kind": "files", "directory": path}}})
        host = await self.start(shipping=shipping)
        id = await self.create(host)
        for word in ("one", "two"):
            await self.says(await self.console(host, id, word), word)
            await host.stopService()
            host = await self.start(shipping=shipping)
        await self.says(await self.console(host, id, "three"), "three")

        def lines() -> list[str]:
            texts = [each.read_text() for each in Path(path).rglob("*") if each.is_file()]
            ends = ("one", "two", "three")
            return [line for text in texts for line in text.splitlines() if line.endswith(ends)]

        await self.until(lambda: any(line.endswith("three") for line in lines()))
        self.assertEqual(
            [word for line in lines() for word in ("one", "two", "three") if line.endswith(word)],
            ["one", "two", "three"],
        )

    async def test_recorded(self) -> None:
        """A recording goes on at each runtime: nothing is missing or twice, and its end is signed."""
        pki = create_pki(os.path.join(self.directory, "pki"))
        pair = pki.issue_recorder("host-a")
        recording = RecordingSettings(pair.certificate, pair.key)
        host = await self.start(recording=recording)
        machine_uid, uid = (f"6f000000-0000-4000-8000-00000000000{n}" for n in (1, 2))
        id = await self.create(host, machine_uid)
        user = await self.console(host, id, "s")
        desired = console_pb2.DesiredRecording(uid=uid, machine_uid=machine_uid, input="all")
        await self.set_recording(host, desired)
        for word in ("one", "two", "three"):
            await self.says(user, word)
            await host.stopService()
            host = await self.start(recording=recording)
            user = await self.console(host, id, word)
        await self.says(user, "four")
        viewer = await self.console(host, id, "b")
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
