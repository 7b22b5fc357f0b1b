"""The recording of one session."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from zope.interface import implementer

from twisted_exec.api.display import reason_of
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.journal.interfaces import Event, EventKind
from twisted_exec.nodeserver.recordings.file import RecordingFile
from twisted_exec.recording.echo import EchoedInput
from twisted_exec.recording.proof_lines import MILLISECOND, Info
from twisted_exec.recording.signatures import HeadSigner, UnusableCertificate
from twisted_exec.recording.writer import RecordingWriter
from twisted_exec.streaming.interfaces import INTERNAL, Ending, IStreamRecorder, TerminalSize
from twisted_exec.wire.channel import Channel
from twisted_exec.wire.resize import SizeDecoder

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


class RecordingOwner(Protocol):
    """The recordings of one node server, as each of them sees it."""

    @property
    def is_required(self) -> bool:
        """Whether sessions that cannot be recorded are refused, or end."""

    @property
    def signer(self) -> Callable[[], HeadSigner]:
        """Returns the present signer; raises :exc:`UnusableCertificate`."""

    def now(self) -> int:
        """Return the time in nanoseconds since the epoch, without steps backwards."""

    def new_id(self) -> str:
        """Return a new id of 32 characters."""

    def require_space(self, recording: PodRecording) -> None:
        """
        Check that a recording may grow.

        :raises OSError: it may not.
        """

    def created(self, recording: PodRecording) -> RecordingFile:
        """
        Return the new file of a recording that begins.

        :raises OSError: it cannot be created.
        """

    def written(self, recording: PodRecording, size: int) -> None:
        """A recording has grown by so many bytes."""

    def sync(self, file: RecordingFile) -> None:
        """Write a file to the disk, later."""

    def not_begun(self, recording: PodRecording, why: str, file: RecordingFile | None) -> None:
        """A recording could not begin; its file, if there is one, is deleted."""

    def in_trouble(self, recording: PodRecording, why: str) -> None:
        """A recording goes on, but cannot be signed now."""

    def failed(self, recording: PodRecording, why: str, file: RecordingFile | None) -> None:
        """A recording has ended, because it cannot be written any more."""

    def ended(self, recording: PodRecording, file: RecordingFile) -> None:
        """A recording is complete."""


@implementer(IStreamRecorder)
class PodRecording:
    """Records one session."""

    def __init__(self, owner: RecordingOwner, name: str, session: PodSession, input: str) -> None:
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
    return reason_of(error)
