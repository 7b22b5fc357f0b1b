"""
Files that are made of recordings: copies, other forms, and parts.
"""

from __future__ import annotations

import argparse
import io
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import BinaryIO

from twisted_exec.cli.failures import InputError
from twisted_exec.cli.recording.animation import animated_svg
from twisted_exec.cli.recording.content import is_file, temporary_file, use_content
from twisted_exec.journal.snapshot import Snapshot
from twisted_exec.recording.asciicast_v2 import to_version_2
from twisted_exec.recording.excerpt import excerpt
from twisted_exec.recording.export import export
from twisted_exec.recording.proof_lines import MILLISECOND
from twisted_exec.recording.signatures import HeadSigner
from twisted_exec.tls import pem
from twisted_exec.tls.files import read_file

VERSION_2 = "2"
"""The version of asciicasts for older players."""
IDLE_SECONDS = 2.0
_FOREVER = 1 << 62
_PIECE_BYTES = 1 << 20


def export_recording(options: argparse.Namespace) -> int:
    """Write a recording to a file, in the form that the options say; return the exit code."""
    if options.idle != IDLE_SECONDS and not options.svg:
        raise InputError("--idle shortens the pauses of a picture: give --svg, too")
    if not options.certificate:
        return _export_object(options)
    namespace, _, name = options.machine.partition("/")
    if options.machine and not (namespace and name):
        raise InputError(f'--machine "{options.machine}": give NAMESPACE/NAME')
    machine = {"uid": os.path.basename(os.path.abspath(options.journal))}
    if name:
        machine |= {"namespace": namespace, "name": name}
    certificate = pem.certificates(
        read_file(options.certificate, "certificate"), f'certificate "{options.certificate}"'
    )[0]
    key = pem.private_key(read_file(options.key, "key"), f'key "{options.key}"')
    first, last = _range(options)
    pieces = export(
        Snapshot(options.journal),
        HeadSigner(certificate, key),
        time.time_ns,
        machine=machine,
        first=first,
        last=last,
    )
    if options.svg:
        with temporary_file() as file:
            file.writelines(pieces)
            _write_svg(options, options.file, file)
    elif options.asciicast == VERSION_2:
        _write_version_2(options.file, chain.from_iterable(map(io.BytesIO, pieces)))
    else:
        _write(options.file, pieces)
    return 0


def _export_object(options: argparse.Namespace) -> int:
    path = options.file
    if os.path.isdir(options.journal):
        raise InputError(
            f"{options.journal} is a directory: to export a journal, give --certificate and --key"
        )
    if options.key or options.machine:
        raise InputError("--key and --machine are for a journal: give --certificate, too")
    if (options.since or options.between) and not options.svg:
        raise InputError(
            "--since and --between are for a journal, with --certificate, and for a picture, with --svg; "
            "for a part of a recording, export it without them, and use 'twisted-exec recording cut'"
        )

    def save(_: argparse.Namespace, content: BinaryIO, head: str) -> int:
        if options.svg:
            _write_svg(options, path, content, *_range(options))
        elif options.asciicast == VERSION_2:
            _write_version_2(path, content)
        else:
            _write(path, iter(partial(content.read, _PIECE_BYTES), b""))
        return 0

    if os.path.exists(path):
        raise _exists(path)
    options.file = options.journal
    if is_file(options.file):
        is_converted = options.asciicast == VERSION_2 or options.svg
        if os.path.exists(options.file) and not is_converted:
            raise InputError(
                f"{options.file} is a file: to convert a recording, give --asciicast 2 or --svg"
            )
        with open(options.file, "rb") as file:
            return save(options, file, "")
    return use_content(options, save)


def _write_version_2(path: str, lines: Iterable[bytes]) -> None:
    _write(path, to_version_2(lines))


def _write_svg(
    options: argparse.Namespace,
    path: str,
    file: BinaryIO,
    first: int | None = None,
    last: int | None = None,
) -> None:
    begin = 0 if first is None else first // MILLISECOND
    end = _FOREVER if last is None else last // MILLISECOND
    _write(path, [animated_svg(file, begin, end, options.idle)])


def _range(options: argparse.Namespace) -> tuple[int | None, int | None]:
    return _between(options) if options.between else (options.since, None)


def _between(options: argparse.Namespace) -> tuple[int, int]:
    first, last = options.between
    if last < first:
        raise InputError("the second time of --between is before the first")
    return first, last


def _write(path: str, pieces: Iterable[bytes]) -> None:
    """Write a new file, or none at all."""
    with _created(path) as file:
        for piece in pieces:
            file.write(piece)


@contextmanager
def _created(path: str) -> Iterator[BinaryIO]:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise _exists(path) from None
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(path)
        raise


def _exists(path: str) -> InputError:
    return InputError(f"{path} exists already: remove it, or give another name")


def cut_recording(options: argparse.Namespace) -> int:
    """Write a part of a closed recording to a file; return the exit code."""
    first, last = _between(options)
    with open(options.file, "rb") as file:
        _write(options.output, excerpt(file, first // MILLISECOND, last // MILLISECOND))
    return 0
