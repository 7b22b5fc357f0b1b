"""
The marker of a store in etcd: its values, sans I/O.

``PREFIX/.twisted-exec`` is the marker. It claims the prefix for this program, and servers write it
with each change, so its revision is that of the latest write. Its value is unique to each write,
which distinguishes two histories with the same revisions (etcd may have been restored from a
backup).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from twisted_exec.api.encoded import json_text
from twisted_exec.storage.etcd.keys import PROGRAM, ForeignKey, shown
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb
from twisted_exec.storage.interfaces import StorageError

FORMAT = 2
"""Newest version of the format of keys and values; the marker has that of a store."""


@dataclass(frozen=True)
class MarkerValue:
    """The content of the marker."""

    write: str
    skipped: int = 0

    def encode(self) -> bytes:
        document = {"program": PROGRAM, "format": FORMAT, "skipped": self.skipped}
        return json_text(document | {"write": self.write}).encode()


def restoring_marker(write: str, floor: int) -> bytes:
    """
    Return the marker's value for a store that is not restored yet, which servers refuse.

    :param floor: the latest resourceVersion of the store that it replaces.
    """
    document = {"program": PROGRAM, "format": FORMAT, "write": write, "restoring": floor}
    return json_text(document).encode()


def restoring_floor(value: bytes) -> int | None:
    """Return the ``floor`` of a marker of :func:`restoring_marker`, or ``None``."""
    try:
        floor = json.loads(value)["restoring"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return floor if type(floor) is int else None


def read_marker(key: bytes, value: bytes) -> MarkerValue:
    """
    Decode the marker.

    :raises StorageError: the marker is not one that this version can use.
    """
    try:
        document: Any = json.loads(value)
        program, form, write = document["program"], document["format"], document["write"]
        skipped, is_restoring = document.get("skipped", 0), "restoring" in document
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
        program, form, write, skipped, is_restoring = "", 0, "", 0, False
    if program != PROGRAM or {type(form), type(skipped)} != {int} or not isinstance(write, str):
        raise ForeignKey(
            f"etcd's key {shown(key)} is another program's: choose another prefix=, or remove it"
        )
    below = shown(key.rpartition(b"/")[0])
    if form > FORMAT:
        raise StorageError(
            f"etcd's keys below {below} were written by a newer version "
            f"(format {form}, this program knows {FORMAT}): upgrade twisted-exec, or choose another "
            "prefix="
        )
    if is_restoring:
        raise StorageError(
            f"etcd's keys below {below} are not complete: a restore goes on, or was interrupted; wait for "
            "it, or repeat it with --force"
        )
    return MarkerValue(write, skipped)


def is_marker_of(write: str, pair: pb.KeyValue) -> bool:
    """Return whether a pair is the marker of a write."""
    try:
        return read_marker(pair.key, pair.value).write == write
    except StorageError:
        return False
