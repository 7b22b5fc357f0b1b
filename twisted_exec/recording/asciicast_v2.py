"""
Recordings as asciicasts of version 2, for players that read no newer version.

The result has no proof, and replaces output that is not UTF-8.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from twisted_exec.recording.playback import decode_event
from twisted_exec.recording.proof_lines import InvalidRecording, compact, json_object

_CODES = ("o", "i", "m", "r")
"""The codes of events that version 2 has."""


def to_version_2(lines: Iterable[bytes]) -> Iterator[bytes]:
    """
    Convert a recording line by line.

    :raises InvalidRecording: a line is not of the format.
    """
    rest, time, number = iter(lines), 0, 1
    yield _header(next(rest, b""))
    for line in rest:
        number += 1
        if not line.endswith(b"\n"):
            return
        if line[:1] == b"[":
            interval, code, data = decode_event(line)
            time += interval
            if code in _CODES:
                seconds, milliseconds = divmod(time, 1000)
                text = json.dumps(data.decode(), ensure_ascii=False)
                yield f'[{seconds}.{milliseconds:03d}, "{code}", {text}]\n'.encode()
        elif line[:1] not in (b"#", b"\n"):
            raise InvalidRecording(f"line {number} is not of the format")


def _header(line: bytes) -> bytes:
    header = json_object(line, "the header")
    known = {key: header[key] for key in ("timestamp", "title") if key in header}
    try:
        size = {"width": int(header["term"]["cols"]), "height": int(header["term"]["rows"])}
        if header["version"] != 3:
            raise ValueError
        return compact({"version": 2, **size, **known}) + b"\n"
    except (KeyError, TypeError, ValueError):
        raise InvalidRecording("the header is not that of an asciicast of version 3") from None
