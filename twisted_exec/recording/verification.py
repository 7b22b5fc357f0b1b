"""
Verification of recordings, whose blocks are read from a file in constant memory.

Each link covers all text before it. A signed head has the newest link, so it proves all blocks
before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import BinaryIO

from twisted_exec.recording.blocks import Blocks, Section
from twisted_exec.recording.proof_lines import (
    CERTIFICATE,
    HEAD,
    HeadContent,
    Info,
    InvalidRecording,
    NotARecording,
    block_line,
    decode_certificate,
    decode_head,
    decode_info,
    link,
)
from twisted_exec.recording.signatures import TrustedRecorders

_GOES_ON = "the recording goes on after its signed end"


@dataclass
class Report:
    """
    A recording in which nothing wrong was found.

    :ivar head: the newest that is signed.
    :ivar blocks: the number of blocks, with those that were left out.
    :ivar unsigned_bytes: text after the newest head.
    """

    info: Info
    head: HeadContent
    blocks: int = 0
    omitted: int = 0
    signers: list[str] = field(default_factory=list)
    unsigned_bytes: int = 0

    @property
    def is_closed(self) -> bool:
        """True if the recording has its signed end, so nothing is missing behind it."""
        return self.head.closed


def verify(file: BinaryIO, trust: TrustedRecorders, stored: HeadContent | None = None) -> Report:
    """
    Verify a recording.

    :param file: is read from its present position.
    :param stored: a head that was stored elsewhere: the recording must have its block.
    :raises InvalidRecording: something before the newest head was changed, removed or added; or a
        signature is missing or not valid.
    """
    return _Verifier(trust, stored).verify(Blocks(file))


class _Verifier:
    def __init__(self, trust: TrustedRecorders, stored: HeadContent | None) -> None:
        self._trust, self._stored = trust, stored
        self._info: Info | None = None
        self._head: HeadContent | None = None
        self._signers: list[str] = []
        self._certificate = b""
        self._number, self._chain, self._omitted = -1, b"", 0
        self._signed_end = 0  # position after the newest head

    def verify(self, blocks: Blocks) -> Report:
        end = 0
        for section in blocks:
            self._take_lines(section)
            if section.line:
                self._take_block(section)
            end = section.end
        if not end:
            raise NotARecording("it is empty")
        unsigned = end - self._signed_end
        if self._info is None or self._head is None:
            raise InvalidRecording("the recording has no signed head, so nothing in it is proven")
        if unsigned and self._head.closed:
            raise InvalidRecording(_GOES_ON)
        if self._stored is not None:
            self._check_stored(self._stored)
        return Report(
            self._info, self._head, self._number + 1, self._omitted, self._signers, unsigned
        )

    def _check_stored(self, stored: HeadContent) -> None:
        assert self._info is not None
        if stored.recording != self._info.id:
            raise InvalidRecording("the given head is of another recording")
        raise InvalidRecording(
            f"the recording ends before block {stored.block} of the given head: it was truncated"
        )

    def _take_lines(self, section: Section) -> None:
        position = section.first
        for number, line in enumerate(section.lines):
            position += len(line)
            if self._info is None:
                if number == 1:
                    self._info = decode_info(line)
            elif line.startswith(HEAD):
                self._take_head(line, section.first)
                self._signed_end = position
            elif line.startswith(CERTIFICATE):
                self._certificate = decode_certificate(line)

    def _take_head(self, line: bytes, position: int) -> None:
        head, signature = decode_head(line)
        where = f"the head of block {head.block}"
        if self._info is None or head.recording != self._info.id:
            raise InvalidRecording(f"{where} is of another recording")
        if (head.block, head.chain) != (self._number, self._chain.hex()):
            raise InvalidRecording(
                f"{where} does not fit the text before byte {position}: something in it was "
                "changed, removed or added"
            )
        before = self._head
        if before is not None and before.closed:
            raise InvalidRecording(_GOES_ON)
        if before is not None and head.block <= before.block:
            raise InvalidRecording(f"{where} is repeated")
        if before is not None and head.time < before.time:
            raise InvalidRecording(f"{where} is older than the head before it")
        signer = self._trust.verify(head, signature, self._certificate)
        if signer not in self._signers:
            self._signers.append(signer)
        self._head = head

    def _take_block(self, section: Section) -> None:
        if self._info is None:
            raise InvalidRecording("the first block is missing")
        if self._head is not None and self._head.closed:
            raise InvalidRecording(_GOES_ON)
        self._number += 1
        self._chain = link(self._chain, section.digest)
        if section.omitted >= 0:
            self._omitted += 1
            is_next = section.omitted == self._number
        else:
            is_next = section.line == block_line(self._number, self._chain)
        if not is_next:
            raise InvalidRecording(
                f"block {self._number}, at byte {section.first}, is not as it was recorded, or "
                "blocks before it are missing or in another order"
            )
        stored = self._stored
        if stored is not None and stored.block == self._number:
            if (stored.recording, stored.chain) != (self._info.id, self._chain.hex()):
                raise InvalidRecording(f"block {self._number} is not that of the given head")
            self._stored = None
