"""
What keys and values below our prefix mean, without I/O.

An object is at ``PREFIX/GROUP/PLURAL/NAMESPACE/NAME``, as Kubernetes keeps its own; the core
group has none, and cluster-scoped objects have no namespace.  (A group has a dot in its name
and a plural has none, so each key can be read back.)  The value is the object's JSON without
its resourceVersion, which is the key's ``mod_revision``.

``PREFIX/.twisted-exec`` is the marker.  It says whose the prefix is, and is written in every
transaction: so its own revision is that of our latest write, whatever others write elsewhere
in the same etcd, and its value, another one each time, tells one history from another.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from twisted_exec.api.encoded import Encoded, json_text
from twisted_exec.api.resource import Resource
from twisted_exec.storage.etcd.protos import etcd_pb2 as pb
from twisted_exec.storage.history import Key, key_of, table_of
from twisted_exec.storage.interfaces import Object, StorageError

PROGRAM = "twisted-exec"
FORMAT = 1
"""Of keys and values; told by the marker."""

_HEAD = re.compile(r'\{"apiVersion":"[^"\\]*","kind":"[^"\\]*","metadata":\{')
_EMPTY_METADATA = "}"


class ForeignKey(StorageError):
    """A key below our prefix is none of ours."""


@dataclass(frozen=True)
class Place:
    """Where an object is kept: its table in a history, and its key there."""

    table: str
    key: Key


class Keys:
    """
    Keys below one prefix.

    :param prefix: begins with a slash and ends with none.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.first = f"{prefix}/".encode()
        # The next byte after "/" ends the range.
        self.end = f"{prefix}0".encode()
        self.marker = self.first + b".twisted-exec"
        self.compacted = self.first + b".compacted"

    def is_own(self, key: bytes) -> bool:
        """Whether a key is kept for the store itself."""
        return key in (self.marker, self.compacted)

    def key(self, resource: Resource, namespace: str, name: str) -> bytes:
        """Where an object is."""
        parts = filter(None, (self.prefix, resource.group, resource.plural, namespace, name))
        return "/".join(parts).encode()

    def place(self, key: bytes) -> Place:
        """
        What a key means.

        :raises ForeignKey: nothing that we would have written.
        """
        try:
            parts = key[len(self.first) :].decode().split("/")
        except UnicodeDecodeError:
            raise self._foreign(key) from None
        if "." in parts[0][1:] and len(parts) > 1:
            parts[:2] = [f"{parts[1]}.{parts[0]}"]
        if not all(parts) or parts[0].startswith(".") or not 2 <= len(parts) <= 3:
            raise self._foreign(key)
        return Place(parts[0], ("", parts[1]) if len(parts) == 2 else (parts[1], parts[2]))

    def read(self, key: bytes, value: bytes, version: int) -> tuple[Place, Encoded]:
        """
        An object as it is kept.

        :raises ForeignKey: it is none, or is not what its key says.
        """
        place = self.place(key)
        try:
            text = value.decode()
            obj = json.loads(text)
            if key_of(obj) != place.key:
                raise ValueError("it says another name")
            return place, with_version(obj, text, version)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ForeignKey(
                f"etcd's key {shown(key)} holds no object of {PROGRAM}'s: restore it, or delete it"
            ) from None

    def _foreign(self, key: bytes) -> ForeignKey:
        return ForeignKey(
            f"etcd's key {shown(key)} is another program's: choose another prefix=, or remove it"
        )


def shown(key: bytes) -> str:
    """A key, fit for one line."""
    return ascii(key.decode(errors="replace")[:200])


def value_of(obj: Object) -> str:
    """What is kept of an object: its JSON without a resourceVersion, with its names first."""
    head: Object = {key: obj[key] for key in ("apiVersion", "kind") if key in obj}
    head["metadata"] = without_version(obj)["metadata"]
    return json_text(head | {key: value for key, value in obj.items() if key not in head})


def without_version(obj: Object) -> Object:
    """An object less its resourceVersion."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    return {**obj, "metadata": metadata}


def with_version(obj: Object, text: str, version: int) -> Encoded:
    """
    An object with its resourceVersion, and its JSON without encoding it again.

    :param text: its JSON as :func:`value_of` made it, or anybody else.
    """
    metadata = {**obj["metadata"], "resourceVersion": str(version)}
    whole = {**obj, "metadata": metadata}
    head = _HEAD.match(text)
    if head is None or not text.isascii() or "resourceVersion" in obj["metadata"]:
        return Encoded(whole)
    rest = text[head.end() :]
    comma = "" if rest.startswith(_EMPTY_METADATA) else ","
    return Encoded(whole, f'{head[0]}"resourceVersion":"{version}"{comma}{rest}')


def place_of(resource: Resource, obj: Object) -> Place:
    """Where an object is to be found in a history."""
    return Place(table_of(resource), key_of(obj))


def marker_value(write: str) -> bytes:
    """
    The marker.

    :param write: never the same twice.
    """
    return json_text({"program": PROGRAM, "format": FORMAT, "write": write}).encode()


def read_marker(key: bytes, value: bytes) -> str:
    """
    Which write the marker is of.

    :raises StorageError: it is not ours, or is of a newer program.
    """
    try:
        document: Any = json.loads(value)
        program, form, write = document["program"], document["format"], document["write"]
    except (ValueError, KeyError, TypeError, RecursionError):
        program, form, write = "", 0, ""
    if program != PROGRAM or type(form) is not int or not isinstance(write, str):
        raise ForeignKey(
            f"etcd's key {shown(key)} is another program's: choose another prefix=, or remove it"
        )
    if form > FORMAT:
        raise StorageError(
            f"etcd's keys below {shown(key.rpartition(b'/')[0])} were written by a newer version "
            f"(format {form}, this program knows {FORMAT}): upgrade twisted-exec, or choose another "
            "prefix="
        )
    return write


def is_marker_of(write: str, pair: pb.KeyValue) -> bool:
    """Whether the marker is that of a write."""
    try:
        return read_marker(pair.key, pair.value) == write
    except StorageError:
        return False
