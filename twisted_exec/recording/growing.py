"""
Recordings that grow with their journal: the heads that were signed, and the text between them, sans I/O.

A recorder stores only the heads.  :func:`render` makes the text from the journal whenever it is needed; the text is the
same each time.
"""

from __future__ import annotations

import hmac
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from twisted_exec.journal.interfaces import Event, EventKind
from twisted_exec.journal.snapshot import PrintedOutput
from twisted_exec.recording.journal_ranges import JournalPosition, RangeReader
from twisted_exec.recording.proof_lines import Info, decode_head
from twisted_exec.recording.signatures import HeadSigner
from twisted_exec.recording.writer import RecordingWriter, Signing, WriterProgress

WITHOUT_CERTIFICATE = b'"certificate":""}\n'
"""End of the line of a :class:`SignedHead` without a certificate."""


@dataclass(frozen=True)
class SignedHead:
    """
    A signed head of a recording, and its place in the journal.

    :param certificate: the recorder's certificate in DER, if it is new in the recording; else empty.
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
class GrowingRecording:
    """
    The beginning of a recording, and the rules by which its text follows from the journal.

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
        Return the text of an entry, empty if the recording leaves it out; ``None`` is no entry.

        A recording leaves out input, unless it was made with it.
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
        return writer.event(entry)

    def writer(self, signer: Signing) -> RecordingWriter:
        """Return a writer of this recording's text, before its beginning."""
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

    def next_head(self, last: SignedHead, signer: HeadSigner, certificate: bytes) -> NextHead:
        """
        Begin the next head.

        :param certificate: the recording's latest certificate, in DER.
        """
        writer = self.writer(signer)
        writer.go_on(last.progress)
        is_new = certificate != signer.certificate
        return NextHead(self, writer, signer.certificate if is_new else b"")


class NextHead:
    """The next head, over the output since the last one; :meth:`GrowingRecording.next_head` creates it."""

    def __init__(
        self, recording: GrowingRecording, writer: RecordingWriter, certificate: bytes
    ) -> None:
        self._recording, self._writer, self._certificate = recording, writer, certificate

    def add(self, entry: PrintedOutput | Event | None) -> None:
        self._recording.write(self._writer, entry)

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


def render(
    recording: GrowingRecording, heads: Iterator[SignedHead], reader: RangeReader
) -> Iterator[bytes]:
    """
    Iterate over the text of a recording up to the last of its heads.

    :param heads: all heads, from the first one on; at least one.
    :param reader: at the position of the first head.
    :raises MissingOutput: the journal no longer has all of it.
    :raises InvalidRecording: the journal is not as it was when a head was signed.
    """
    first = next(heads)
    writer = recording.writer(_FormerSigner(first.certificate))
    yield writer.begin() + writer.repeat(first.progress.head.encode() + b"\n")
    for signed in heads:
        for entry in reader.until(signed.position):
            yield recording.write(writer, entry)
        text = writer.renew(_FormerSigner(signed.certificate)) if signed.certificate else b""
        yield text + writer.repeat(signed.progress.head.encode() + b"\n")


class _FormerSigner:
    """Stands for the signer of heads that are signed already."""

    def __init__(self, certificate: bytes) -> None:
        self.certificate = certificate

    def require_valid(self, time: int) -> None:
        raise NotImplementedError

    def sign(self, head: object) -> bytes:
        raise NotImplementedError
