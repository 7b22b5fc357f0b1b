"""
Lines of proof in a recording file, encoded and decoded, sans I/O: what is recorded, the links of its blocks, signed heads.

``docs/reference/recording-format.rst`` has the format; :mod:`.writer` writes the lines for players.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

FORMAT = 1
MILLISECOND = 1_000_000
"""Nanoseconds of a millisecond, the unit of times in lines of proof."""
RECORDING, CERTIFICATE = b"# recording ", b"# certificate "
BLOCK, OMITTED, HEAD = b"# block ", b"# omitted ", b"# head "
AT, EVENT, RAW, END = b"# at ", b"# event ", b"# raw ", b"# end "
MAX_LINE_BYTES = 64 << 10
"""A longer line among those that a verifier reads is not of the format."""

_LINK = b"twisted-exec recording block\n"
_SIGNED = b"twisted-exec recording head\n"


class InvalidRecording(Exception):
    """The file is not as a recorder wrote it; the message says why."""


class NotARecording(InvalidRecording):
    """The file is of another kind, or its first lines are damaged."""

    def __init__(self, why: str) -> None:
        super().__init__(f"not a recording of twisted-exec, or its first lines are damaged: {why}")


def link(previous: bytes, text: bytes) -> bytes:
    """
    Return the link of a block.

    :param previous: link of the previous block; empty for the first block.
    """
    return sha256(_LINK + previous.rjust(32, b"\0") + text).digest()


def block_line(number: int, chain: bytes) -> bytes:
    """Return the line that ends a block."""
    return b"%s%d %s\n" % (BLOCK, number, chain.hex().encode())


def omitted_line(number: int, text: bytes) -> bytes:
    """Return the line that stands for a block that was left out, with the SHA-256 of its text."""
    return b"%s%d %s\n" % (OMITTED, number, text.hex().encode())


def decode_omitted(line: bytes) -> tuple[int, bytes]:
    """
    Undo :func:`omitted_line`.

    :raises InvalidRecording: the line is not of the format.
    """
    try:
        number, text = line[len(OMITTED) : -1].split(b" ")
        decoded = int(number), bytes.fromhex(text.decode("ascii"))
    except ValueError:
        decoded = 0, b""
    if len(decoded[1]) != 32 or omitted_line(*decoded) != line:
        raise InvalidRecording("a line of an omitted block is damaged")
    return decoded


@dataclass(frozen=True)
class Info:
    """
    The facts about a recording, in its second line.

    :param id: names the recording; it is in each head, so heads of another recording do not fit.
    :param machine: such as ``namespace``, ``name`` and ``uid``, as far as known.
    :param epoch: that of the journal.
    :param first: offset of the first byte.
    :param time: the beginning, in milliseconds since the epoch.
    """

    id: str
    machine: dict[str, str]
    epoch: str
    first: int
    time: int
    format: int = FORMAT

    def encode(self) -> bytes:
        return RECORDING + compact(asdict(self)) + b"\n"


def decode_info(line: bytes) -> Info:
    """
    Undo :meth:`Info.encode`.

    :raises NotARecording: it is not such a line.
    :raises InvalidRecording: the line is not of the format, or of a later one.
    """
    if not line.startswith(RECORDING):
        raise NotARecording("the second line does not begin with '# recording'")
    fields = json_object(line[len(RECORDING) :], "the second line")
    if fields.get("format") != FORMAT:
        raise InvalidRecording(
            f"the recording has the format {fields.get('format')!r}; this release reads {FORMAT}"
        )
    try:
        info = Info(**fields)
    except TypeError:
        raise InvalidRecording("the second line has other fields than the format") from None
    machine = info.machine if isinstance(info.machine, dict) else {"": None}
    numbers, texts = (info.first, info.time), (info.id, info.epoch, *machine.values())
    if not all(type(each) is int for each in numbers) or not all(
        isinstance(each, str) for each in texts
    ):
        raise InvalidRecording("the second line has fields of other types than the format")
    return info


@dataclass(frozen=True)
class HeadContent:
    """
    The content of a signature: the recording as far as it was written at that time.

    :param chain: link of the newest block, in hexadecimal digits.
    :param offset: offset after the newest byte.
    :param time: of the signature, in milliseconds since the epoch.
    :param closed: the recording ends here.
    """

    recording: str
    block: int
    chain: str
    offset: int
    time: int
    closed: bool

    @property
    def content(self) -> bytes:
        """The bytes that are signed."""
        return _SIGNED + compact(asdict(self))

    def encode(self, signature: bytes) -> bytes:
        return b"%s%s %s\n" % (HEAD, compact(asdict(self)), b64encode(signature))


def decode_head(line: bytes) -> tuple[HeadContent, bytes]:
    """
    Return a head and its signature, which is not verified.

    :raises InvalidRecording: the line is not exactly as :meth:`HeadContent.encode` writes it.
    """
    try:
        text, encoded = line[len(HEAD) : -1].rsplit(b" ", 1)
        head = HeadContent(**json.loads(text))
        signature = b64decode(encoded, validate=True)
        numbers, texts = (head.block, head.offset, head.time), (head.recording, head.chain)
        is_same = (
            all(type(each) is int for each in numbers)
            and all(isinstance(each, str) for each in texts)
            and isinstance(head.closed, bool)
            and head.encode(signature) == line
        )
    except (ValueError, TypeError, RecursionError, Base64Error):
        is_same = False
    if not is_same:
        raise InvalidRecording("a signed head is damaged")
    return head, signature


def certificate_line(certificate: bytes) -> bytes:
    return b"%s%s\n" % (CERTIFICATE, b64encode(certificate))


def decode_certificate(line: bytes) -> bytes:
    """
    Return a certificate in DER.

    :raises InvalidRecording: the line is not exactly as :func:`certificate_line` writes it.
    """
    try:
        certificate = b64decode(line[len(CERTIFICATE) : -1], validate=True)
    except Base64Error:
        certificate = b""
    if certificate_line(certificate) != line:
        raise InvalidRecording("the line of a certificate is damaged")
    return certificate


def compact(fields: Any) -> bytes:
    """Return JSON with sorted keys, without spaces."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def json_object(text: bytes, what: str) -> dict[str, Any]:
    """:raises InvalidRecording: the text is not a JSON object."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise InvalidRecording(f"{what} is damaged: it has no JSON object")
    return fields
