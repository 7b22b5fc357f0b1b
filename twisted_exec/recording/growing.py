"""
Recordings that grow: a range of a journal, and the heads that were signed in it, sans I/O.

The text is rendered from the journal whenever it is needed, and is the same each time.
"""

from __future__ import annotations

import hmac
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from twisted_exec.journal.interfaces import Event, EventKind
from twisted_exec.journal.snapshot import PrintedOutput
from twisted_exec.recording.chain import Info, decode_head
from twisted_exec.recording.signatures import HeadSigner
from twisted_exec.recording.writer import RecordingWriter, Signing, WriterProgress

_PIECE_BYTES = 64 << 10


class MissingOutput(Exception):
    """The journal no longer has a part of the range; the message says which."""


@dataclass(frozen=True, order=True)
class JournalPosition:
    """A place in a journal, behind ``events`` events with this offset."""

    offset: int
    events: int = 0


class RangeReader:
    """Reads a journal from one position to the next."""

    def __init__(self, entries: Iterator[PrintedOutput | Event], first: JournalPosition) -> None:
        self._entries = _numbered(entries)
        self._next: tuple[PrintedOutput | Event, int] | None = None
        self._position = first

    def until(self, last: JournalPosition) -> Iterator[PrintedOutput | Event | None]:
        """
        Iterate over the entries up to a position; ``None`` while nothing is found.

        :raises MissingOutput: the journal does not have them.
        """
        joined = _Joined()
        while (item := self._next or next(self._entries, None)) is not None:
            self._next = None
            entry, number = item
            if not isinstance(entry, PrintedOutput):
                at = JournalPosition(entry.offset, number)
                if at > last:
                    self._next = item
                    break
                if at <= self._position:
                    yield None
                    continue
                yield from joined.take()
                yield entry
                is_gap = entry.kind == EventKind.GAP and entry.data["end"] > entry.offset
                self._position = JournalPosition(entry.data["end"]) if is_gap else at
                continue
            if entry.offset >= last.offset:
                self._next = item
                break
            end = entry.offset + len(entry.data)
            if end <= self._position.offset:
                yield None
                continue
            if entry.offset > self._position.offset:
                break
            data = entry.data[self._position.offset - entry.offset :]
            if end > last.offset:
                self._next = item
                data = data[: last.offset - self._position.offset]
            yield from joined.add(self._position.offset, entry.time_ns, data)
            self._position = JournalPosition(self._position.offset + len(data))
            if self._next is not None:
                break
        yield from joined.take()
        if self._position != last:
            raise MissingOutput(
                f"the output from offset {self._position.offset} to {last.offset} is no longer retained"
            )


def _numbered(
    entries: Iterator[PrintedOutput | Event],
) -> Iterator[tuple[PrintedOutput | Event, int]]:
    offset, number = -1, 0
    for entry in entries:
        if not isinstance(entry, PrintedOutput):
            number = number + 1 if entry.offset == offset else 1
            offset = entry.offset
        yield entry, number


class _Joined:
    def __init__(self) -> None:
        self._offset = self._time = 0
        self._data = bytearray()

    def add(self, offset: int, time_ns: int, data: bytes) -> Iterator[PrintedOutput]:
        if self._data and (time_ns != self._time or offset != self._offset + len(self._data)):
            yield from self.take()
        if not self._data:
            self._offset, self._time = offset, time_ns
        self._data += data
        while len(self._data) >= (room := _PIECE_BYTES - self._offset % _PIECE_BYTES):
            yield PrintedOutput(self._offset, self._time, bytes(self._data[:room]))
            del self._data[:room]
            self._offset += room

    def take(self) -> Iterator[PrintedOutput]:
        if self._data:
            yield PrintedOutput(self._offset, self._time, bytes(self._data))
            self._data.clear()


WITHOUT_CERTIFICATE = b'"certificate":""}\n'
"""End of the line of a :class:`SignedHead` without a certificate."""


@dataclass(frozen=True)
class SignedHead:
    """
    A head that was signed, and its place in the journal.

    :param certificate: of the recorder, in DER, if it is new in the recording; else empty.
    """

    position: JournalPosition
    progress: WriterProgress
    certificate: bytes = b""

    @property
    def is_closed(self) -> bool:
        return decode_head(self.progress.head.encode() + b"\n")[0].closed

    @property
    def time(self) -> int:
        """Time of the signature, in milliseconds since the epoch."""
        return decode_head(self.progress.head.encode() + b"\n")[0].time

    def encode(self) -> bytes:
        fields = {
            "position": asdict(self.position),
            "progress": asdict(self.progress),
            "certificate": b64encode(self.certificate).decode("ascii"),
        }
        return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def decode_signed_head(line: bytes) -> SignedHead:
    """
    Undo :meth:`SignedHead.encode`.

    :raises ValueError: the line is not complete, or not that of a signed head.
    """
    if not line.endswith(b"\n"):
        raise ValueError("the line is not complete")
    fields = json.loads(line)
    try:
        return SignedHead(
            JournalPosition(**fields["position"]),
            WriterProgress(**fields["progress"]),
            b64decode(fields["certificate"], validate=True),
        )
    except (TypeError, KeyError) as error:
        raise ValueError(f"the line is not that of a signed head: {error}") from None


@dataclass(frozen=True)
class Range:
    """
    The facts about a recording that grows.

    :param secret: makes the salts of its blocks. With it, a reader of an excerpt can check guesses
        of the blocks that the excerpt leaves out.
    """

    info: Info
    columns: int
    rows: int
    secret: bytes
    input: str = "none"

    def write(self, writer: RecordingWriter, entry: PrintedOutput | Event | None) -> bytes:
        """
        Write an entry of the journal, unless it is input that the recording leaves out.

        A recording has all output, also what screens do not show.
        """
        if entry is None:
            return b""
        if isinstance(entry, PrintedOutput):
            return writer.output(entry.time_ns, entry.offset, entry.data)
        if entry.kind == EventKind.INPUT:
            # Input that was echoed is in the journal twice if another recording has all input.
            kind = "masked" if entry.data["echoed"] else "all"
            if self.input != kind:
                return b""
        if entry.kind == EventKind.HIDDEN:
            return b""
        return writer.event(entry)

    def writer(self, signer: Signing) -> RecordingWriter:
        machine = self.info.machine
        names = [machine[key] for key in ("namespace", "name") if key in machine]
        return RecordingWriter(
            self.info,
            signer,
            columns=self.columns,
            rows=self.rows,
            title="/".join(names),
            salt=self._salt,
        )

    def _salt(self, number: int) -> str:
        return hmac.digest(self.secret, b"salt %d" % number, "sha256")[:16].hex()

    def begin(self, position: JournalPosition, signer: HeadSigner, now_ns: int) -> SignedHead:
        """
        Sign the beginning of the recording.

        :raises UnusableCertificate: the certificate of the signer is not valid now.
        """
        writer = self.writer(signer)
        writer.begin()
        return SignedHead(position, writer.progress(writer.sign_head(now_ns)), signer.certificate)

    def go_on(self, last: SignedHead, signer: HeadSigner, certificate: bytes) -> NextHead:
        """Continue after a head with this certificate, in DER."""
        writer = self.writer(signer)
        writer.go_on(last.progress)
        is_new = certificate != signer.certificate
        return NextHead(self, writer, signer.certificate if is_new else b"")


class NextHead:
    """The next head, over the output since the last one; :meth:`Range.go_on` creates it."""

    def __init__(self, range_: Range, writer: RecordingWriter, certificate: bytes) -> None:
        self._range, self._writer, self._certificate = range_, writer, certificate

    def add(self, entry: PrintedOutput | Event | None) -> None:
        self._range.write(self._writer, entry)

    def end(
        self, position: JournalPosition, signer: HeadSigner, now_ns: int, *, closed: bool
    ) -> SignedHead:
        """
        Sign the head.

        :raises UnusableCertificate: the certificate of the signer is not valid now.
        """
        writer = self._writer
        signer.require_valid(now_ns // 1_000_000)
        if self._certificate:
            writer.renew(signer)
        text = writer.close(now_ns) if closed else writer.sign_head(now_ns)
        head = text[text.rindex(b"# head ") :]
        return SignedHead(position, writer.progress(head), self._certificate)


def render(range_: Range, heads: Iterator[SignedHead], reader: RangeReader) -> Iterator[bytes]:
    """
    Iterate over the text of a recording up to the last head.

    :param reader: at the position of the first head.
    :raises MissingOutput: the journal no longer has all of it.
    :raises InvalidRecording: the journal is not as it was when a head was signed.
    """
    first = next(heads)
    writer = range_.writer(_Repeated(first.certificate))
    yield writer.begin() + writer.repeat(first.progress.head.encode() + b"\n")
    for signed in heads:
        for entry in reader.until(signed.position):
            yield range_.write(writer, entry)
        text = writer.renew(_Repeated(signed.certificate)) if signed.certificate else b""
        yield text + writer.repeat(signed.progress.head.encode() + b"\n")


class _Repeated:
    def __init__(self, certificate: bytes) -> None:
        self.certificate = certificate

    def require_valid(self, time: int) -> None:
        raise NotImplementedError

    def sign(self, head: object) -> bytes:
        raise NotImplementedError
