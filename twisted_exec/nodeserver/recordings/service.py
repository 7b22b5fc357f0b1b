"""
The recordings of one node server: their directory and its limit, signatures and uploads.

A recording is written to a file ``NAME.open``, signed regularly, renamed to ``NAME.cast`` at its
end, uploaded to the store, and then deleted here. A file that a killed process has left is uploaded
unclosed.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from twisted_exec.api import quantity
from twisted_exec.api.display import listed, reason_of
from twisted_exec.api.selectors import LabelSelector
from twisted_exec.control.runs import SingleRun
from twisted_exec.kube.interfaces import Object
from twisted_exec.nodeserver.recordings.file import RecordingFile
from twisted_exec.nodeserver.recordings.recording import (
    NONE,
    UNKNOWN_USER,
    PodRecording,
    PodSession,
)
from twisted_exec.program.disk_thread import DiskThread, Files
from twisted_exec.program.tasks import ends_within
from twisted_exec.program.turns import ShortTurns
from twisted_exec.recording.signatures import HeadSigner, UnusableCertificate
from twisted_exec.recording.stores.interfaces import ReadText
from twisted_exec.recording.stores.uploads import Uploads
from twisted_exec.streaming.subject import Subject
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.private_directories import private_directory

HEAD_SECONDS = 60.0
"""Interval of signing."""
_NAMED = 10
"""Most recordings that a message names."""
STOP_SECONDS = 10.0
"""Longest wait of a stop for the disk."""
OPEN, CLOSED = ".open", ".cast"

_NAMESPACE_CHARACTERS, _POD_CHARACTERS, _COMMAND_CHARACTERS = 63, 90, 1024
_NOT_IN_NAMES = re.compile(r"[^a-z0-9.-]")


@dataclass(frozen=True)
class PodRecordingSettings:
    """
    Settings of the recordings of a node server.

    :param namespaces: of the root; empty for all.
    :param is_required: sessions that cannot be recorded are refused, or end.
    :param limit_bytes: of the directory; 0 for half of the file system.
    """

    directory: str
    namespaces: Collection[str] = ()
    selector: LabelSelector = LabelSelector()
    input: str = NONE
    is_required: bool = False
    limit_bytes: int = 0


class PodRecordings:
    """
    The recordings of one node server.

    :param now: returns nanoseconds since the epoch.
    :ivar bytes: the size of all recordings that are not stored yet.
    """

    _log = Logger()

    def __init__(
        self,
        settings: PodRecordingSettings,
        signer: Callable[[], HeadSigner],
        uploads: Uploads,
        reactor: Any,
        now: Callable[[], int],
        disk: Files | None = None,
    ) -> None:
        self.settings, self.signer, self._now = settings, signer, now
        self._latest = 0
        self._uploads, self._reactor = uploads, reactor
        self._disk = disk or DiskThread(reactor)
        self._open: dict[str, PodRecording] = {}
        self._sizes: dict[str, int] = {}
        self._limit_bytes, self.bytes = settings.limit_bytes, 0
        self._jobs: dict[Deferred[Any], str] = {}
        self._signing = SingleRun(self._sign_all, "signing recordings")
        self._timer: IDelayedCall | None = None

    @property
    def is_required(self) -> bool:
        return self.settings.is_required

    def now(self) -> int:
        """Return the time in nanoseconds since the epoch, without steps backwards."""
        self._latest = max(self._latest, self._now())
        return self._latest

    # Start and stop

    def check(self) -> None:
        """Check certificate and directory. :raises TLSConfigError: one of them cannot be used."""
        try:
            self.signer()
        except UnusableCertificate as problem:
            raise TLSConfigError(f"--recorder-certificate: {problem}") from None
        private_directory(self.settings.directory)

    def start(self) -> None:
        if not self._limit_bytes:
            filesystem = os.statvfs(self.settings.directory)
            self._limit_bytes = filesystem.f_blocks * filesystem.f_frsize // 2
        for name in sorted(os.listdir(self.settings.directory)):
            base, suffix = os.path.splitext(name)
            if suffix == OPEN:
                self._log.warn("the recording {name} is not closed: its process died", name=base)
                os.rename(self._path(base, OPEN), self._path(base, CLOSED))
            if suffix in (OPEN, CLOSED):
                self._grow(base, os.stat(self._path(base, CLOSED)).st_size)
                self._upload(base)
        self._timer = self._reactor.callLater(HEAD_SECONDS, self._tick)

    async def stop(self) -> None:
        """
        Wait for the disk, for :data:`STOP_SECONDS` at most; called after all sessions have ended.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not await ends_within(STOP_SECONDS, self._reactor, self._settle()):
            names = sorted({name.removesuffix(OPEN) for name in self._jobs.values()})
            self._log.error(
                "the disk of {directory} did not answer for {seconds} s; the last part may be lost of {names}",
                directory=self.settings.directory,
                seconds=STOP_SECONDS,
                names=listed(names, _NAMED),
            )
        await self._uploads.stop()
        self._disk.stop()

    async def _settle(self) -> None:
        await self._signing.ended()
        ended: Deferred[None] = Deferred()
        DeferredList(list(self._jobs)).addCallback(lambda _: ended.callback(None))
        await ended

    # Which sessions

    def selects(self, pod: Object) -> bool:
        """Return whether sessions in a Pod of the root are recorded."""
        metadata, settings = pod["metadata"], self.settings
        if settings.namespaces and metadata["namespace"] not in settings.namespaces:
            return False
        return settings.selector.matches(metadata.get("labels") or {})

    def recorder(
        self,
        subject: Subject,
        pod: Object,
        container: str,
        command: Sequence[str],
        has_terminal: bool,
    ) -> PodRecording | None:
        """Return the recorder of a session in a Pod of the root; ``None`` if it is not recorded."""
        if not self.selects(pod):
            return None
        metadata = pod["metadata"]
        machine = {
            "kind": "Pod",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "node": subject.pool,
            "container": container,
            "subresource": subject.subresource,
            "command": shlex.join(command)[:_COMMAND_CHARACTERS],
            "reason": subject.reason,
            "user": UNKNOWN_USER,
        }
        session = PodSession(
            subject.session,
            subject.user,
            {key: value for key, value in machine.items() if value},
            has_terminal,
        )
        return PodRecording(self, _name(metadata), session, self.settings.input)

    # RecordingOwner

    @staticmethod
    def new_id() -> str:
        return secrets.token_hex(16)

    def created(self, recording: PodRecording) -> RecordingFile:
        file = RecordingFile(
            self._path(recording.name, OPEN),
            self._disk,
            must_answer=self.is_required,
            failed=recording.give_up,
        )
        self._open[recording.name] = recording
        return file

    def require_space(self, recording: PodRecording) -> None:
        """
        Check that a recording may grow; it may take half of what the others leave.

        :raises OSError: it may not.
        """
        if recording.bytes >= self._limit_bytes - self.bytes:
            raise OSError(
                f"recordings that are not stored yet may take {quantity.binary(self._limit_bytes)} (--recording-bytes), "
                "and one of them half of what is left"
            )

    def written(self, recording: PodRecording, size: int) -> None:
        self._grow(recording.name, size)

    def _grow(self, name: str, size: int) -> None:
        self._sizes[name] = self._sizes.get(name, 0) + size
        self.bytes += size

    def _deleted(self, name: str) -> None:
        self.bytes -= self._sizes.pop(name, 0)

    def sync(self, file: RecordingFile) -> None:
        self._job(os.path.basename(file.path), file.sync)

    def ended(self, recording: PodRecording, file: RecordingFile) -> None:
        del self._open[recording.name]
        self._finish(recording.name, file)

    def in_trouble(self, recording: PodRecording, why: str) -> None:
        self._log.error(
            "the recording of {pod} cannot be signed: {why}", pod=recording.session.pod, why=why
        )

    def not_begun(self, recording: PodRecording, why: str, file: RecordingFile | None) -> None:
        self._report(recording, why)
        self._open.pop(recording.name, None)
        if file is not None:
            deleted = self._job(recording.name, file.delete)
            deleted.addCallback(lambda is_done: self._deleted(recording.name) if is_done else None)

    def failed(self, recording: PodRecording, why: str, file: RecordingFile | None) -> None:
        self._report(recording, why)
        if file is not None:
            self.ended(recording, file)

    def _report(self, recording: PodRecording, why: str) -> None:
        self._log.error(
            "session {session} in {pod} cannot be recorded: {why}",
            session=recording.session.id,
            pod=recording.session.pod,
            why=why,
        )

    def _finish(self, name: str, file: RecordingFile) -> None:
        def work() -> None:
            try:
                file.sync()
            finally:
                file.close()
            os.rename(self._path(name, OPEN), self._path(name, CLOSED))

        self._job(name, work).addCallback(lambda is_done: self._upload(name) if is_done else None)

    # Signatures

    def _tick(self) -> None:
        # Not a PokedLoop: stop() must wait for the signatures that a tick begins, not cancel them.
        self._timer = self._reactor.callLater(HEAD_SECONDS, self._tick)
        self._signing.start()

    async def _sign_all(self) -> None:
        turns = ShortTurns(self._reactor)
        for recording in list(self._open.values()):
            await turns.breathe()
            recording.sign_head()

    # Files

    def _path(self, name: str, suffix: str) -> str:
        return os.path.join(self.settings.directory, name + suffix)

    def _job(self, name: str, work: Callable[[], None]) -> Deferred[bool]:
        job = self._disk.run(work)
        self._jobs[job] = name

        def over(result: Any) -> bool:
            del self._jobs[job]
            if result is None:
                return True
            result.trap(OSError)
            self._log.error("a recording cannot be written: {why}", why=reason_of(result.value))
            return False

        return job.addBoth(over)

    def _upload(self, name: str) -> None:
        path = self._path(name, CLOSED)
        stored = self._uploads.store(name, self._read(path))
        stored.addCallback(lambda _: self._delete(name))

    def _delete(self, name: str) -> None:
        job = self._job(name, partial(os.unlink, self._path(name, CLOSED)))
        job.addCallback(lambda is_done: self._deleted(name) if is_done else None)

    def _read(self, path: str) -> ReadText:
        def work(offset: int, limit: int) -> bytes:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                return os.pread(file, limit, offset)
            finally:
                os.close(file)

        return lambda offset, limit: self._disk.run(partial(work, offset, limit))


def _name(metadata: Object) -> str:
    namespace = metadata["namespace"][:_NAMESPACE_CHARACTERS]
    pod = metadata["name"][:_POD_CHARACTERS]
    return _NOT_IN_NAMES.sub("-", f"{namespace}.{pod}.{secrets.token_hex(8)}".lower())
