"""
Recordings in a bucket of a real server with the API of S3, while programs end at the wrong moment.

The server is versitygw, whose buckets are directories.  ``AWAY_SECONDS`` is how long it is away (90 without it),
and ``SEED`` repeats the moments at which a runtime is killed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests import needs
from tests.contracts.recording_store import RecordingStoreContract
from tests.flows import programs
from tests.flows.deployment import Deployment, pause
from tests.flows.resuming import Typist
from twisted_exec.api.kinds import CONSOLERECORDINGS, Object
from twisted_exec.recording.stores.bucket import AccessKey, parse_target
from twisted_exec.recording.stores.s3 import (
    PART_BYTES,
    BucketClient,
    Refusal,
    S3Store,
    transport_of,
)
from twisted_exec.runtimes.processes import ProcessFamily, ProcessTable
from twisted_exec.runtimes.service import MARK

from .faults import SEED
from .monitoring import unused_port

reactor: Any = _reactor

AWAY_SECONDS = float(os.environ.get("AWAY_SECONDS", "90"))

_BUCKET, _PREFIX = "recordings", "metal-a"
_KEY_ID, _SECRET = "console-recorder", "not-a-secret-at-all"
_RECORDINGS = CONSOLERECORDINGS.resource
_LARGE_BYTES, _SMALL_BYTES = 8 * PART_BYTES, 100_000
_DISK_BYTES = 32 << 20
_ROUNDS = 8


class BucketServer:
    """
    A server with one bucket on loopback.

    :ivar directory: that of the bucket.
    """

    def __init__(self, directory: str) -> None:
        self.root, self.port = os.path.join(directory, "buckets"), unused_port()
        self.directory = os.path.join(self.root, _BUCKET)
        os.makedirs(self.root)
        self._program: programs.Program | None = None
        self._transports: list[Any] = []

    async def start(self) -> None:
        """Start it, and create the bucket if it is missing."""
        self._program = programs.start(
            [
                needs.s3_server_program(),
                f"--port=127.0.0.1:{self.port}",
                f"--access={_KEY_ID}",
                f"--secret={_SECRET}",
                "posix",
                self.root,
            ]
        )
        bucket = self.bucket()
        late = reactor.seconds() + 30
        while True:
            try:
                await bucket.send("create_bucket")
                return
            except Refusal as answer:
                if answer.name == "BucketAlreadyOwnedByYou":
                    return
                raise
            except Exception:
                assert self._program.exit_code is None, self._program.output
                assert reactor.seconds() < late, self._program.output
            await pause()

    async def stop(self) -> None:
        """Stop it."""
        while self._transports:
            await self._transports.pop().close()
        if self._program is not None:
            await self._program.stop()

    @property
    def url(self) -> str:
        """The URL of a store in the bucket."""
        return f"s3://{_BUCKET}/{_PREFIX}?endpoint=http://127.0.0.1:{self.port}"

    def bucket(self) -> BucketClient:
        """The bucket."""
        target = parse_target(self.url)
        transport = transport_of(target, reactor)
        self._transports.append(transport)
        return BucketClient(target, lambda: AccessKey(_KEY_ID, _SECRET), transport, reactor)

    async def uploads(self) -> list[dict[str, str]]:
        """The incomplete uploads."""
        return list((await self.bucket().call("list_multipart_uploads")).get("Uploads", []))

    async def parts(self) -> int:
        """The number of parts of incomplete uploads."""
        count = 0
        for each in await self.uploads():
            try:
                listed = await self.bucket().call(
                    "list_parts", Key=each["Key"], UploadId=each["UploadId"]
                )
            except Refusal:  # it has just been completed
                continue
            count += len(listed.get("Parts", []))
        return count

    def objects(self) -> dict[str, bytes]:
        """The content of the bucket, by name of the object."""
        directory = os.path.join(self.directory, _PREFIX)
        found = {}
        for name in os.listdir(directory) if os.path.isdir(directory) else ():
            with open(os.path.join(directory, name), "rb") as file:
                found[name] = file.read()
        return found


class ServerCase(TestCase):
    """A directory, and a server in it."""

    timeout = 300
    skip = needs.s3_server()

    async def setUp(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="twisted-exec-test-")
        self.addCleanup(shutil.rmtree, self.directory, True)
        self.server = BucketServer(self.directory)
        self.addCleanup(self.server.stop)
        await self.server.start()


class ContractTests(ServerCase, RecordingStoreContract):
    """A store in the bucket."""

    content = bytes(range(256)) * (PART_BYTES // 256 * 2 + 10_000)

    def make_store(self) -> S3Store:
        """See :meth:`RecordingStoreContract.make_store`."""
        return S3Store(self.server.bucket())

    def leftovers(self) -> int:
        """See :meth:`RecordingStoreContract.leftovers`."""
        uploads = os.path.join(self.server.directory, ".sgwtmp", "multipart")
        return sum(len(names) for _, names, _ in os.walk(uploads) if names) // 2


class RuntimeTests(ServerCase):
    """A runtime with the bucket as its store."""

    timeout = 600 + AWAY_SECONDS

    async def setUp(self) -> None:
        await super().setUp()
        deployment = self.deployment = Deployment(os.path.join(self.directory, "deployment"))
        self.addCleanup(deployment.stop)
        self.addCleanup(self.end_machines)
        self.credentials = deployment.path("recordings.key")
        self.write_key(_SECRET)
        await deployment.start_api()
        await self.start_runtime()
        await deployment.start_poollet()
        await deployment.create_class("shell", "64Mi")
        await deployment.create_machine("vm", "shell")
        self.typist = await Typist.at(deployment.admin, "vm")
        self.addCleanup(self.typist.leave)

    def write_key(self, secret: str) -> None:
        """Write the access key of the runtime."""
        path = f"{self.credentials}.new"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(f"[default]\naws_access_key_id={_KEY_ID}\naws_secret_access_key={secret}\n")
        os.replace(path, self.credentials)

    async def start_runtime(self) -> None:
        """Start the runtime, with the machines that it had."""
        recorder = self.deployment.pki.issue_recorder("metal-a", replace=True)
        await self.deployment.start_runtime(
            "--keep-machines",
            f"--recorder-certificate={recorder.certificate}",
            f"--recorder-key={recorder.key}",
            f"--recording-store={self.server.url}&credentials={self.credentials}",
        )

    async def end_machines(self) -> None:
        """End the machine, which outlives its runtime."""
        with open(self.deployment.path("runtime-state/runtime-id")) as file:
            mark = file.read().strip() + "/"
        table = ProcessTable(reactor, MARK)
        await ProcessFamily(table, lambda found: found.startswith(mark)).end()

    async def kill_runtime(self) -> None:
        """Kill the runtime, and start it again."""
        await self.deployment.runtime.stop(signal.SIGKILL)
        await self.start_runtime()

    async def recorded(self, name: str, size: int) -> bytes:
        """Record so much output; return it."""
        await self.deployment.client.create(
            _RECORDINGS,
            {"metadata": {"name": name}, "spec": {"machine": "vm", "input": "none"}},
            namespace="default",
        )
        await self.until(name, lambda status: status.get("phase") == "Recording")
        start = self.typist.printed_bytes
        self.typist.type(
            b"echo be''gin; base64 -w 76 /dev/urandom | head -c %d; echo; echo en''d\n" % size
        )
        await self.typist.until_printed(b"\r\nend\r\n", start)
        printed = self.typist.printed[start:]
        text = printed[printed.index(b"begin\r\n") : printed.index(b"\r\nend\r\n")]
        self.assertGreaterEqual(len(text), size)
        return text

    async def end(self, name: str) -> None:
        """Ask for the end of a recording."""
        await self.deployment.client.patch(_RECORDINGS, name, {"spec": {"ended": True}}, "default")

    async def until(
        self, name: str, condition: Callable[[Object], object], seconds: float = 150
    ) -> Object:
        """Fires with the status of a recording once it is as a condition says."""
        late = reactor.seconds() + seconds
        while True:
            recording = await self.deployment.client.get(_RECORDINGS, name, "default")
            status: Object = recording.get("status", {})
            if condition(status):
                return status
            assert reactor.seconds() < late, (status, self.deployment.runtime.output[-3000:])
            await pause()

    async def stored(self, name: str, text: bytes, seconds: float = 150) -> None:
        """Wait until the bucket has a recording; check all that a user can."""
        status = await self.until(name, lambda status: status.get("location"), seconds)
        recording = await self.deployment.client.get(_RECORDINGS, name, "default")
        uid = recording["metadata"]["uid"]
        self.assertEqual(status["location"], f"s3://{_BUCKET}/{_PREFIX}/{uid}.cast")
        self.assertNotIn("message", status)
        self.assertEqual(await self.server.uploads(), [])
        ca = f"--ca={self.deployment.pki.serving_ca}"
        report = await self.twisted_exec("verify", name, ca)
        self.assertIn(b", closed\n", report)
        self.assertEqual((await self.twisted_exec("play", name)).count(text), 1)
        path = self.deployment.path(f"{name}.cast")
        with open(path, "xb") as file:
            file.write(self.server.objects()[f"{uid}.cast"])
        self.assertIn(b", closed\n", await self.twisted_exec("verify", path, ca))

    async def twisted_exec(self, command: str, *words: str) -> bytes:
        """Return the standard output of ``twisted-exec recording``."""
        done = await deferToThread(
            subprocess.run,
            [programs.script("twisted-exec"), "recording", command, *words],
            env={**os.environ, "KUBECONFIG": self.deployment.admin},
            capture_output=True,
        )
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return bytes(done.stdout)

    async def test_killed_while_it_uploads(self) -> None:
        """The runtime is killed three times in one upload; the bucket has one object, and it is whole."""
        text = await self.recorded("large", _LARGE_BYTES)
        await self.end("large")
        kills = []
        for least in (1, 3, 5):
            while (parts := await self.server.parts()) < least:
                self.assertEqual(self.server.objects(), {})
            await self.kill_runtime()
            kills.append(parts)
        print(f"\nkilled with {kills} parts of {_LARGE_BYTES // PART_BYTES + 1}")
        await self.stored("large", text)
        self.assertEqual(len(self.server.objects()), 1)

    async def test_killed_while_it_signs(self) -> None:
        """The runtime is killed at random moments after it was asked for the end of a recording."""
        choice = random.Random(SEED)
        print(f"\nSEED={SEED}")
        for number in range(_ROUNDS):
            name = f"small-{number}"
            text = await self.recorded(name, _SMALL_BYTES)
            await self.end(name)
            await deferLater(reactor, choice.uniform(0, 0.4))
            await self.kill_runtime()
            await self.typist.until_resumed(number + 1)
            await self.stored(name, text)
        self.assertEqual(len(self.server.objects()), _ROUNDS)

    async def test_away(self) -> None:
        """The server is away; recordings wait, users read why, and nothing is lost."""
        await self.server.stop()
        texts = {name: await self.recorded(name, _SMALL_BYTES) for name in ("a", "b")}
        for name in texts:
            await self.end(name)
            status = await self.until(name, lambda status: status.get("message"))
            self.assertIn("it is not stored yet: cannot reach", status["message"])
            ca = f"--ca={self.deployment.pki.serving_ca}"
            self.assertIn(b", closed\n", await self.twisted_exec("verify", name, ca))
        await deferLater(reactor, AWAY_SECONDS / 2)
        await self.kill_runtime()
        await deferLater(reactor, AWAY_SECONDS / 2)
        await self.server.start()
        began = reactor.seconds()
        for name, text in texts.items():
            await self.stored(name, text)
        print(f"\nstored {reactor.seconds() - began:.0f} s after the server was back")

    async def test_refused(self) -> None:
        """The server refuses the key; a new key in the file is used without a restart."""
        self.write_key("another-secret-of-another-key")
        text = await self.recorded("refused", _SMALL_BYTES)
        await self.end("refused")
        status = await self.until("refused", lambda status: status.get("message"))
        self.assertIn("the bucket answered 403: SignatureDoesNotMatch", status["message"])
        self.write_key(_SECRET)
        await self.stored("refused", text)

    async def test_full(self) -> None:
        """The disk of the bucket is full in the middle of an upload; it is completed when there is room."""
        disk = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "recordings", self.server.root]
        await self.server.stop()
        subprocess.run(disk, check=True)
        self.addCleanup(subprocess.run, ["umount", self.server.root], check=True)
        self.addCleanup(self.server.stop)
        await self.server.start()
        text = await self.recorded("full", _LARGE_BYTES)
        await self.end("full")
        status = await self.until("full", lambda status: status.get("message"))
        print(f"\n{status['message']}")
        self.assertEqual(self.server.objects(), {})
        larger = f"remount,size={8 * _DISK_BYTES}"
        subprocess.run(["mount", "-o", larger, self.server.root], check=True)
        await self.stored("full", text)

    if os.geteuid() != 0:
        test_full.skip = "only root can mount a small disk"  # type: ignore[attr-defined]
