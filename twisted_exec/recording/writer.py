"""
The writer of recordings, sans I/O: output and events in, lines of an asciicast (version 3) out.

``docs/reference/recording-format.rst`` has the format.
"""

from __future__ import annotations

import json
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from twisted_exec.journal.interfaces import Event, EventKind
from twisted_exec.recording.proof_lines import (
    AT,
    END,
    EVENT,
    MILLISECOND,
    RAW,
    HeadContent,
    Info,
    InvalidRecording,
    block_line,
    certificate_line,
    compact,
    decode_head,
    link,
)

BLOCK_BYTES = 64 << 10
"""A block ends after so much output."""
_BLOCK_TEXT_BYTES = 512 << 10
_quoted = json.JSONEncoder(ensure_ascii=False).encode


def random_salt(number: int) -> str:
    """Return the salt of a block: 128 random bits."""
    return secrets.token_hex(16)


@dataclass(frozen=True)
class WriterProgress:
    """
    The state of a writer after a signed head, from which another writer goes on.

    :param time: of the newest event, in milliseconds since the epoch.
    :param head: the line of the head, which is in the text of the next block.
    """

    number: int
    chain: str
    offset: int
    time: int
    columns: int
    rows: int
    head: str


class Signing(Protocol):
    """The part of a :class:`.HeadSigner` that a writer needs."""

    @property
    def certificate(self) -> bytes:
        """The certificate in DER."""

    def require_valid(self, time: int) -> None:
        """
        Check the certificate.

        :param time: milliseconds since the epoch.
        :raises UnusableCertificate: the certificate is not valid then.
        """

    def sign(self, head: HeadContent) -> bytes:
        """Return the signature of a head."""


class RecordingWriter:
    """
    Writes one recording.

    The methods that write return text to append to the file. The times of output and events are
    nanoseconds since the epoch and never decrease.

    :param salt: returns the salt of the block with a number.
    """

    def __init__(
        self,
        info: Info,
        signer: Signing,
        *,
        columns: int = 80,
        rows: int = 24,
        title: str = "",
        salt: Callable[[int], str] = random_salt,
    ) -> None:
        self._info, self._signer = info, signer
        self._title, self._salt = title, salt
        self._first_size = self._size = columns, rows
        self._offset = info.first
        self._time = info.time
        self._number, self._chain = -1, b""
        self._digest = sha256()
        self._block_first, self._text_bytes = info.first, 0
        self._is_begun = False
        self._character = b"", 0

    def go_on(self, progress: WriterProgress) -> None:
        """Continue the text of a writer that has written a head; called first."""
        self._number, self._chain = progress.number, bytes.fromhex(progress.chain)
        self._offset, self._time = progress.offset, progress.time
        self._size = progress.columns, progress.rows
        self._add(progress.head.encode() + b"\n")

    def progress(self, head: bytes) -> WriterProgress:
        """Return the state after a head, whose line was the last that was written."""
        columns, rows = self._size
        return WriterProgress(
            self._number,
            self._chain.hex(),
            self._offset,
            self._time,
            columns,
            rows,
            head.decode().rstrip("\n"),
        )

    def begin(self) -> bytes:
        """Return the first block, which has no output."""
        columns, rows = self._size
        header = {
            "version": 3,
            "term": {"cols": columns, "rows": rows},
            "timestamp": self._time // 1000,
        }
        if self._title:
            header["title"] = self._title
        text = self._add(compact(header) + b"\n")
        text += self._add(self._info.encode())
        text += self._add(certificate_line(self._signer.certificate))
        return text + self._end_block()

    def output(self, time_ns: int, offset: int, data: bytes) -> bytes:
        """Write output, whose first byte is at ``offset``."""
        begun, _ = self._character
        text = b""
        if offset != self._offset + len(begun):
            # Output is missing without an event: a new block states the offset.
            text = self._flush() + self._end_block()
            self._offset, begun = offset, b""
        data = begun + data
        waiting = _incomplete(data)
        # Players show characters: one whose last bytes are missing waits for them.
        self._character = data[len(data) - waiting :], time_ns
        data = data[: len(data) - waiting]
        while data:
            piece = data[: self._room]
            if len(piece) < len(data):
                piece = piece[: len(piece) - _incomplete(piece)]
            text += self._output(time_ns, piece) if piece else self._end_block()
            data = data[len(piece) :]
        return text

    @property
    def _room(self) -> int:
        return BLOCK_BYTES - (self._offset - self._block_first if self._is_begun else 0)

    def _output(self, time_ns: int, data: bytes) -> bytes:
        text = self._begin_block()
        try:
            output = data.decode()
        except UnicodeDecodeError:
            output = data.decode(errors="replace")
            text += self._add(b"%s%s\n" % (RAW, b64encode(data)))
        text += self._event(time_ns, "o", output)
        self._offset += len(data)
        if self._room <= 0 or self._text_bytes >= _BLOCK_TEXT_BYTES:
            text += self._end_block()
        return text

    def event(self, event: Event) -> bytes:
        text = self._flush() + self._begin_block()
        fields = {"data": dict(event.data), "kind": event.kind, "offset": event.offset}
        text += self._add(EVENT + compact(fields) + b"\n")
        if event.kind == EventKind.SIZE:
            self._size = event.data["columns"], event.data["rows"]
            text += self._event(event.time_ns, "r", "{}x{}".format(*self._size))
        elif event.kind == EventKind.INPUT:
            typed = b64decode(event.data["data"]).decode(errors="replace")
            text += self._event(event.time_ns, "i", typed)
        else:
            text += self._event(event.time_ns, "m", label(event))
        is_gap = event.kind == EventKind.GAP
        if is_gap or self._text_bytes >= _BLOCK_TEXT_BYTES:
            text += self._end_block()
        if is_gap:
            self._offset = max(self._offset, event.data["end"])
        return text

    def sign_head(self, now_ns: int) -> bytes:
        """
        Sign everything that was written so far.

        :raises UnusableCertificate: the certificate of the signer is not valid now; nothing
            changed.
        """
        self._signer.require_valid(now_ns // MILLISECOND)
        return self._flush() + self._end_block() + self._head(now_ns, closed=False)

    def repeat(self, head: bytes) -> bytes:
        """
        Write a head that was signed before.

        :raises InvalidRecording: the text until here is not that of the head.
        """
        decoded, _ = decode_head(head)
        text = self._flush() + (self._end() if decoded.closed else self._end_block())
        if (decoded.block, decoded.chain) != (self._number, self._chain.hex()):
            raise InvalidRecording(
                f"the journal is not as it was when block {decoded.block} of the recording was signed"
            )
        return text + self._add(head)

    def renew(self, signer: Signing) -> bytes:
        """Sign with another certificate from now on."""
        text = self._flush() + self._end_block()
        self._signer = signer
        return text + self._add(certificate_line(signer.certificate)) + self._end_block()

    def close(self, now_ns: int) -> bytes:
        """
        Sign the whole recording, which ends.

        :raises UnusableCertificate: the certificate of the signer is not valid now; nothing
            changed.
        """
        self._signer.require_valid(now_ns // MILLISECOND)
        return self._flush() + self._end() + self._head(now_ns, closed=True)

    def _end(self) -> bytes:
        text = self._begin_block()
        end = {"offset": self._offset, "time": max(self._time, self._info.time)}
        return text + self._add(END + compact(end) + b"\n") + self._end_block()

    def _head(self, now_ns: int, *, closed: bool) -> bytes:
        head = HeadContent(
            self._info.id,
            self._number,
            self._chain.hex(),
            self._offset,
            now_ns // MILLISECOND,
            closed,
        )
        # The head is in the text of the next block, so a missing one is noticed.
        return self._add(head.encode(self._signer.sign(head)))

    def _flush(self) -> bytes:
        (data, time_ns), self._character = self._character, (b"", 0)
        return self._output(time_ns, data) if data else b""

    def _begin_block(self) -> bytes:
        if self._is_begun:
            return b""
        self._is_begun, self._block_first = True, self._offset
        columns, rows = self._size
        state = {
            "cols": columns,
            "offset": self._offset,
            "rows": rows,
            # An excerpt has the digests of the blocks that it leaves out.  Without salts, its readers
            # could check guesses of these.
            "salt": self._salt(self._number + 1),
            "time": self._time,
        }
        text = self._add(AT + compact(state) + b"\n")
        if self._size != self._first_size:
            # Of an excerpt, a player knows only the size in the header.
            text += self._add(b'[0.000, "r", "%dx%d"]\n' % self._size)
        return text

    def _end_block(self) -> bytes:
        if not self._text_bytes:
            return b""
        self._number += 1
        self._chain = link(self._chain, self._digest.digest())
        self._digest, self._text_bytes, self._is_begun = sha256(), 0, False
        return block_line(self._number, self._chain)

    def _event(self, time_ns: int, code: str, data: str) -> bytes:
        time = max(self._time, time_ns // MILLISECOND)
        seconds, milliseconds = divmod(time - self._time, 1000)
        self._time = time
        return self._add(f'[{seconds}.{milliseconds:03d}, "{code}", {_quoted(data)}]\n'.encode())

    def _add(self, text: bytes) -> bytes:
        self._digest.update(text)
        self._text_bytes += len(text)
        return text


def label(event: Event) -> str:
    """Return an event in a few words, for the markers of players."""
    data: Mapping[str, object] = event.data
    match event.kind:
        case EventKind.BOOT:
            return f"boot {data.get('number')}: {data.get('reason')}"
        case EventKind.GAP:
            missing = data.get("bytes")
            return f"{'some' if missing is None else missing} bytes are missing"
        case EventKind.JOIN:
            return f"{data.get('user')} joined as {data.get('role')}"
        case EventKind.LEAVE:
            return f"{_viewer(data)} left"
        case EventKind.ROLE:
            return f"{_viewer(data)} is {data.get('role')} now"
        case EventKind.INPUT:
            return f"{_viewer(data)} typed"
    return str(event.kind)


def _viewer(data: Mapping[str, object]) -> str:
    # Input, and sessions in Pods, are recorded without the name of the user.
    return str(data.get("user") or f"session {data.get('session')}")


def _incomplete(data: bytes) -> int:
    """Return how many bytes at the end may be the beginning of one UTF-8 character."""
    for count in range(1, min(3, len(data)) + 1):
        lead = data[-count]
        if lead & 0xC0 == 0x80:
            continue
        length = 2 if 0xC2 <= lead <= 0xDF else 3 if lead & 0xF0 == 0xE0 else 4
        return count if 0xC2 <= lead <= 0xF4 and count < length else 0
    return 0
