"""
The verification of a recording, and its report.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import BinaryIO

from twisted_exec.api.times import stamp
from twisted_exec.cli.failures import InputError, failed
from twisted_exec.cli.messages import one_line
from twisted_exec.cli.recording.content import NOT_CLOSED, is_file, use_content
from twisted_exec.recording.playback import end_time
from twisted_exec.recording.proof_lines import (
    HEAD,
    MILLISECOND,
    HeadContent,
    InvalidRecording,
    decode_head,
)
from twisted_exec.recording.signatures import TrustedRecorders
from twisted_exec.recording.verification import Report, verify
from twisted_exec.tls import pem
from twisted_exec.tls.files import read_file

_MAX_HEAD_BYTES = 64 << 10


def verify_recording(options: argparse.Namespace) -> int:
    """Verify a recording; return the exit code."""
    if not is_file(options.file):
        return use_content(options, _verify_content)
    with open(options.file, "rb") as file:
        return _verify_content(options, file, "")


def _verify_content(options: argparse.Namespace, file: BinaryIO, head: str) -> int:
    authorities = pem.certificates(read_file(options.ca, "CA"), f'CA "{options.ca}"')
    stored = _head(options.head) if options.head else None
    if stored is None and head:
        stored = _decoded(head.encode(), "the head in the status of the ConsoleRecording")
    report = verify(file, TrustedRecorders(authorities), stored)
    end = end_time(file)
    # Names come from the file.
    sys.stdout.write(
        "".join(f"{name:<11}{one_line(text)}\n" for name, text in _summary(report, end))
    )
    if report.is_closed:
        return 0
    unsigned = (
        f", and {report.unsigned_bytes} bytes of the file after it" if report.unsigned_bytes else ""
    )
    later = "" if is_file(options.file) else "; verify it again when its STATE is Closed"
    failed(
        options.command,
        f"{options.file}: not closed: nothing is proven about output after offset "
        f"{report.head.offset}{unsigned}{later}",
    )
    return NOT_CLOSED


def _head(path: str) -> HeadContent:
    with open(path, "rb") as file:
        return _decoded(file.read(_MAX_HEAD_BYTES), path)


def _decoded(line: bytes, source: str) -> HeadContent:
    try:
        if not line.startswith(HEAD):
            raise InvalidRecording
        # "kubectl get -o jsonpath" writes no newline.
        return decode_head(line.removesuffix(b"\n") + b"\n")[0]
    except InvalidRecording:
        raise InputError(f'{source} is not one line "# head ..." of a recording') from None


def _summary(report: Report, end: int) -> Iterator[tuple[str, str]]:
    def when(time: int) -> str:
        try:
            return f"{stamp(time * MILLISECOND)[:-7]}Z"
        except OverflowError:
            return "an unknown time"

    info, head = report.info, report.head
    names = "/".join(info.machine[key] for key in ("namespace", "name") if key in info.machine)
    yield "recording", f"{info.id}, {'closed' if report.is_closed else 'not closed'}"
    yield "machine", f"{names or 'unnamed'}, UID {info.machine.get('uid', 'unknown')}"
    yield "time", f"{when(info.time)} to {when(max(info.time, end))}"
    yield "output", f"offset {info.first} to {head.offset} of the journal {info.epoch}"
    omitted = f", {report.omitted} of them left out" if report.omitted else ""
    yield "blocks", f"{report.blocks}{omitted}"
    yield "signed", f"by {', '.join(report.signers)}, last at {when(head.time)}"
