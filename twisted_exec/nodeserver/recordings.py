"""
Recordings of sessions in Pods.

A recording is written to a file ``NAME.open``, signed regularly, renamed to ``NAME.cast`` at its
end, uploaded to the store, and then deleted here. A file that a killed process has left is uploaded
unclosed.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shlex
import time
from base64 import b64encode
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from prometheus_client import CollectorRegistry
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.usage import UsageError
from zope.interface import implementer

from twisted_exec.api import quantity
from twisted_exec.api.display import listed
from twisted_exec.api.selectors import LabelSelector, parse_labels
from twisted_exec.api.status import APIError, ServiceUnavailable
from twisted_exec.control.runs import SingleRun
from twisted_exec.journal.interfaces import Event, EventKind
from twisted_exec.kube.interfaces import Object
from twisted_exec.program.disk_thread import DiskThread, Files, Unanswered
from twisted_exec.program.options import ProgramOption, ProgramOptions, size
from twisted_exec.program.tasks import ShortTurns, ends_within
from twisted_exec.recording.chain import MILLISECOND, Info
from twisted_exec.recording.signatures import HeadSigner, UnusableCertificate
from twisted_exec.recording.signer_files import SignerFiles
from twisted_exec.recording.stores.interfaces import ReadText
from twisted_exec.recording.stores.option import FORMS, store_option
from twisted_exec.recording.stores.uploads import UploadMetrics, Uploads
from twisted_exec.recording.writer import EchoedInput, RecordingWriter
from twisted_exec.streaming.interfaces import INTERNAL, Ending, IStreamRecorder, TerminalSize
from twisted_exec.streaming.subject import Subject
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.unix import private_directory
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.control_messages import SizeDecoder

UNKNOWN_USER = "unknown"
"""User of every session: the root's API server does not name the user to a kubelet."""
NONE, MASKED, ALL = INPUTS = ("none", "masked", "all")

_NANOSECONDS = 1_000_000_000


@dataclass(frozen=True)
class PodSession:
    """
    The facts about a session.

    :param has_terminal: the terminal of the Pod echoes input.
    """

    id: str
    via: str
    machine: dict[str, str]
    has_terminal: bool

    @property
    def pod(self) -> str:
        return f"{self.machine['namespace']}/{self.machine['name']}"


WAITING_BYTES = 1 << 20
"""Most bytes of a recording that wait in memory for a disk that does not answer."""


class RecordingFile:
    """
    A new file to which text is appended.

    :param must_answer: fail when the disk does not answer; otherwise up to :data:`WAITING_BYTES`
        wait for it.
    :param failed: called with the error of text that waited.
    :raises OSError: it cannot be created.
    """

    def __init__(
        self, path: str, disk: Files, *, must_answer: bool, failed: Callable[[OSError], None]
    ) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self.path = path
        self._disk, self._must_answer, self._failed = disk, must_answer, failed
        self._waiting = 0
        self._problem: OSError | None = None
        try:
            self._descriptor = disk.call(partial(os.open, path, flags, 0o600), is_long=True)
        except Unanswered as late:
            if late.answer is not None:
                late.answer.addCallbacks(self._abandon, lambda _: None)
            raise

    def _abandon(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._disk.run(self.delete)

    def write(self, text: bytes) -> None:
        """
        :raises OSError: the disk is full or does not answer, or the file cannot be written.
        """
        append = partial(self._append, text)
        if self._waiting:
            if self._waiting + len(text) > WAITING_BYTES:
                raise Unanswered
            answer = self._disk.run(append)
        else:
            try:
                return self._disk.call(append, is_long=self._must_answer)
            except Unanswered as late:
                if self._must_answer:
                    raise
                answer = late.answer or self._disk.run(append)
        self._waiting += len(text)
        answer.addCallbacks(lambda _: self._written(len(text)), self._not_written)

    def _written(self, size: int) -> None:
        self._waiting -= size

    def _not_written(self, failure: Failure) -> None:
        failure.trap(OSError)
        failed, self._failed = self._failed, lambda _: None  # the text behind it fails, too
        failed(cast(OSError, failure.value))

    def _append(self, text: bytes) -> None:
        if self._problem is not None:
            raise self._problem  # no text follows a gap
        view = memoryview(text)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
            # A write to a deleted file succeeds.
            if not os.path.samestat(os.stat(self.path), os.fstat(self._descriptor)):
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        except OSError as error:
            self._problem = error
            raise

    def sync(self) -> None:
        if self._descriptor >= 0:
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)

    def delete(self) -> None:
        self.close()
        os.unlink(self.path)


@implementer(IStreamRecorder)
class PodRecording:
    """Records one session."""

    def __init__(self, owner: PodRecordings, name: str, session: PodSession, input: str) -> None:
        self.name, self.session = name, session
        self._owner, self._input = owner, input
        self._file: RecordingFile | None = None
        self._writer: RecordingWriter
        self._signer: HeadSigner
        self._offset = 0
        self._sizes = SizeDecoder()
        self._echo = EchoedInput()
        self.is_dirty = False
        self.bytes = 0

    # IStreamRecorder

    def begin(self) -> None:
        now = self._owner.now()
        try:
            self._owner.require_space(self)
            self._signer = self._owner.signer()
            self._signer.require_valid(now // MILLISECOND)
            info = Info(
                self._owner.new_id(),
                self.session.machine,
                self._owner.new_id()[:16],
                0,
                now // MILLISECOND,
            )
            self._writer = RecordingWriter(info, self._signer, title=self.session.pod)
            self._file = self._owner.created(self)
            self._write(self._writer.begin())
            joined = {
                "session": self.session.id,
                "user": UNKNOWN_USER,
                "role": "writer",
                "via": self.session.via,
            }
            self._event(EventKind.JOIN, joined)
            self._write(self._writer.sign_head(now))
        except (OSError, UnusableCertificate) as error:
            why = _reason(error)
            file, self._file = self._file, None
            self._owner.not_begun(self, why, file)
            if self._owner.is_required:
                raise ServiceUnavailable(
                    f'pod "{self.session.machine["name"]}" must be recorded, and cannot be: {why}'
                ) from None

    def input(self, channel: Channel, data: bytes) -> Ending | None:
        if channel is Channel.RESIZE:
            for size in self._sizes.feed(data):
                if isinstance(size, TerminalSize):
                    fields = {"rows": size.rows, "columns": size.columns}
                    self._attempt(self._more, self._event, EventKind.SIZE, fields)
        elif self._input == ALL:
            self._attempt(self._more, self._typed, data, False)
        elif self._input == MASKED and self.session.has_terminal:
            self._echo.typed(self.session.id, data, self._owner.now() / _NANOSECONDS)
        return self._ending_if_lost()

    def output(self, channel: Channel, data: bytes) -> Ending | None:
        if channel in (Channel.STDOUT, Channel.STDERR) and data:
            self._attempt(self._more, self._printed, data)
        return self._ending_if_lost()

    def end(self, reason: str) -> None:
        if self._file is None:
            return
        self._attempt(self._event, EventKind.LEAVE, {"session": self.session.id, "reason": reason})
        self._attempt(self._close)
        file, self._file = self._file, None
        if file is not None:
            self._owner.ended(self, file)

    # Writing

    def _write(self, text: bytes) -> None:
        assert self._file is not None
        self._file.write(text)
        self.bytes += len(text)
        self._owner.written(self, len(text))

    def _more(self, write: Callable[..., None], *arguments: Any) -> None:
        self._owner.require_space(self)
        write(*arguments)

    def _printed(self, data: bytes) -> None:
        now = self._owner.now()
        self._write(self._writer.output(now, self._offset, data))
        self._offset += len(data)
        self.is_dirty = True
        if self._echo.is_expected:
            for _, typed in self._echo.printed(data, now / _NANOSECONDS):
                self._typed(typed, True)

    def _typed(self, data: bytes, echoed: bool) -> None:
        fields = {
            "session": self.session.id,
            "data": b64encode(data).decode("ascii"),
            "echoed": echoed,
        }
        self._event(EventKind.INPUT, fields)

    def _event(self, kind: EventKind, data: dict[str, Any]) -> None:
        event = Event(self._offset, self._owner.now(), kind, data)
        self._write(self._writer.event(event))
        self.is_dirty = True

    def _close(self) -> None:
        self._renew()
        self._write(self._writer.close(self._owner.now()))

    def sign_head(self) -> None:
        if self._file is None or not self.is_dirty:
            return
        self._attempt(self._sign_head)
        if self._file is not None:
            self._owner.sync(self._file)

    def _sign_head(self) -> None:
        self._renew()
        self._write(self._writer.sign_head(self._owner.now()))
        self.is_dirty = False

    def _renew(self) -> None:
        signer = self._owner.signer()
        if signer is not self._signer:
            self._write(self._writer.renew(signer))
            self._signer = signer

    # Failure

    def _attempt(self, write: Callable[..., None], *arguments: Any) -> None:
        if self._file is None:
            return
        try:
            write(*arguments)
        except UnusableCertificate as error:
            # The text goes on unsigned, and a later head covers it.
            self._owner.in_trouble(self, str(error))
        except OSError as error:
            self.give_up(error)

    def give_up(self, error: Exception) -> None:
        """End the recording: a reader could not notice a gap in it."""
        file, self._file = self._file, None
        self._owner.failed(self, _reason(error), file)

    def _ending_if_lost(self) -> Ending | None:
        if self._file is not None or not self._owner.is_required:
            return None
        return Ending(INTERNAL, "the session must be recorded, and cannot be any longer")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


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

    # Called by recordings

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
            self._log.error("a recording cannot be written: {why}", why=result.getErrorMessage())
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


_REQUIRED = ("recorder-certificate", "recorder-key", "recording-dir", "recording-store")
_log = Logger()
_ALL = "*"

MakeRecordings = Callable[[Any, CollectorRegistry], PodRecordings]
"""Creates the recordings from a reactor and a registry of metrics."""


class RecordingOptions(ProgramOptions):
    """Options of recordings."""

    group = "Recordings"

    more: Sequence[ProgramOption] = (
        ProgramOption(
            "record-namespaces",
            "Record exec and attach in these namespaces; * for all.",
            default="",
        ),
        ProgramOption(
            "record-selector",
            "Record only in Pods with these labels: a label selector.",
            default="",
        ),
        ProgramOption("record-input", f"Recorded input: {', '.join(INPUTS)}.", default=NONE),
        ProgramOption(
            "recorder-certificate",
            "Certificate that signs recordings, of 'twisted-exec pki recorder'.",
            default="",
            is_path=True,
        ),
        ProgramOption("recorder-key", "Private key of that certificate.", default="", is_path=True),
        ProgramOption(
            "recording-dir",
            "Directory of recordings that are not stored yet.",
            default="",
            is_path=True,
        ),
        ProgramOption("recording-store", f"Where recordings are stored: {FORMS}.", default=""),
        ProgramOption(
            "recording-bytes",
            "Limit of recordings that are not stored yet.  [default: half of the file system]",
            size,
        ),
        ProgramOption(
            "recording-required",
            "Refuse and end sessions that cannot be recorded.",
            default=False,
        ),
    )

    def postOptions(self) -> None:
        """:raises UsageError: an option is missing, has no use, or is not valid."""
        super().postOptions()
        if not self["record-namespaces"]:
            for name in ("record-selector", *_REQUIRED, "recording-required", "recording-bytes"):
                if self[name]:
                    raise UsageError(f"--{name} needs --record-namespaces")
            return
        for name in _REQUIRED:
            if not self[name]:
                raise UsageError(f"--record-namespaces needs --{name}")
        if self["record-input"] not in INPUTS:
            raise UsageError(
                f"--record-input {self['record-input']!r} is none of {', '.join(INPUTS)}"
            )
        self._recorded_pods()
        try:
            store_option(self["recording-store"])
        except ValueError as problem:
            raise UsageError(f"--recording-store: {problem}") from None

    def _recorded_pods(self) -> LabelSelector:
        try:
            return parse_labels(self["record-selector"])
        except APIError as problem:
            raise UsageError(f"--record-selector: {problem.message}") from None

    def recordings(self) -> MakeRecordings | None:
        """
        Return a function that creates the recordings; ``None`` without ``--record-namespaces``.
        """
        if not self["record-namespaces"]:
            return None
        names = {each.strip() for each in self["record-namespaces"].split(",")} - {""}
        settings = PodRecordingSettings(
            os.path.abspath(self["recording-dir"]),
            frozenset() if _ALL in names else frozenset(names),
            self._recorded_pods(),
            self["record-input"],
            bool(self["recording-required"]),
            self["recording-bytes"] or 0,
        )
        signer = SignerFiles(
            self["recorder-certificate"],
            self["recorder-key"],
            lambda why: _log.warn("{why}", why=why),
        )
        make_store = store_option(self["recording-store"])

        def make(reactor: Any, registry: CollectorRegistry) -> PodRecordings:
            uploads = Uploads(make_store(reactor), reactor, UploadMetrics().register(registry))
            return PodRecordings(settings, signer, uploads, reactor, time.time_ns)

        return make
