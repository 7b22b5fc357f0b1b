"""
Keys and values below our prefix, sans I/O.

An object has the key ``PREFIX/GROUP/PLURAL/NAMESPACE/NAME``, as in Kubernetes (``GROUP`` and
``NAMESPACE`` may be missing). Its resourceVersion is the key's ``mod_revision``, which is not part
of the value; in a restored store a number of skipped versions is added, so that no version means
two states.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from twisted_exec.api.encoded import Encoded, json_text
from twisted_exec.api.resource import Resource
from twisted_exec.storage.history import Key, key_of, table_of
from twisted_exec.storage.interfaces import Object, StorageError

PROGRAM = "twisted-exec"

_HEAD = re.compile(r'\{"apiVersion":"[^"\\]*","kind":"[^"\\]*","metadata":\{')
_EMPTY_METADATA = "}"


class ForeignKey(StorageError):
    """A key below our prefix was not written by this program."""


@dataclass(frozen=True)
class HistoryPlace:
    """The table and the key of an object in a history."""

    table: str
    key: Key


class Keys:
    """
    Keys below one prefix.

    :param prefix: starts with a slash and ends without one.
    :ivar skipped: difference of resourceVersions and etcd's revisions.
    """

    def __init__(self, prefix: str) -> None:
        self.skipped = 0
        self.prefix = prefix
        self.first = f"{prefix}/".encode()
        # The next byte after "/" ends the range.
        self.end = f"{prefix}0".encode()
        self.marker = self.first + b".twisted-exec"
        self.compacted = self.first + b".compacted"

    def version(self, revision: int) -> int:
        return revision + self.skipped

    def revision(self, version: int) -> int:
        return version - self.skipped

    def is_own(self, key: bytes) -> bool:
        return key in (self.marker, self.compacted)

    def key(self, resource: Resource, namespace: str, name: str) -> bytes:
        return self.key_at(resource.qualified, (namespace, name))

    def key_at(self, table: str, key: Key) -> bytes:
        plural, _, group = table.partition(".")
        return "/".join(filter(None, (self.prefix, group, plural, *key))).encode()

    def place(self, key: bytes) -> HistoryPlace:
        """
        Return the place that a key stands for.

        :raises ForeignKey: this program would not write such a key.
        """
        try:
            parts = key[len(self.first) :].decode().split("/")
        except UnicodeDecodeError:
            raise self._foreign(key) from None
        # Names of groups have a dot and plurals do not, so keys are unambiguous.
        if "." in parts[0][1:] and len(parts) > 1:
            parts[:2] = [f"{parts[1]}.{parts[0]}"]
        if not all(parts) or parts[0].startswith(".") or not 2 <= len(parts) <= 3:
            raise self._foreign(key)
        return HistoryPlace(parts[0], ("", parts[1]) if len(parts) == 2 else (parts[1], parts[2]))

    def read(self, key: bytes, value: bytes, revision: int) -> tuple[HistoryPlace, Encoded]:
        """
        Decode an object.

        :param revision: that of its last write.
        :raises ForeignKey: the value is not the object that the key names.
        """
        place = self.place(key)
        try:
            text = value.decode()
            obj = json.loads(text)
            if key_of(obj) != place.key:
                raise ValueError("it says another name")
            return place, with_version(obj, text, self.version(revision))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ForeignKey(
                f"etcd's key {shown(key)} holds no object of {PROGRAM}'s: restore it, or delete it"
            ) from None

    def _foreign(self, key: bytes) -> ForeignKey:
        return ForeignKey(
            f"etcd's key {shown(key)} is another program's: choose another prefix=, or remove it"
        )


def shown(key: bytes) -> str:
    """Return a key as text for a message of one line."""
    return ascii(key.decode(errors="replace")[:200])


def value_of(obj: Object) -> str:
    """Encode an object as JSON without its resourceVersion."""
    head: Object = {key: obj[key] for key in ("apiVersion", "kind") if key in obj}
    head["metadata"] = without_version(obj)["metadata"]
    return json_text(head | {key: value for key, value in obj.items() if key not in head})


def without_version(obj: Object) -> Object:
    """Return an object without its resourceVersion."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    return {**obj, "metadata": metadata}


def with_version(obj: Object, text: str, version: int) -> Encoded:
    """
    Return an object with a resourceVersion, and its JSON.

    :param text: its JSON, from :func:`value_of` or from another program.
    """
    metadata = {**obj["metadata"], "resourceVersion": str(version)}
    whole = {**obj, "metadata": metadata}
    head = _HEAD.match(text)
    if head is None or not text.isascii() or "resourceVersion" in obj["metadata"]:
        return Encoded(whole)
    rest = text[head.end() :]
    comma = "" if rest.startswith(_EMPTY_METADATA) else ","
    return Encoded(whole, f'{head[0]}"resourceVersion":"{version}"{comma}{rest}')


def place_of(resource: Resource, obj: Object) -> HistoryPlace:
    """Return the place of an object in a history."""
    return HistoryPlace(table_of(resource), key_of(obj))
