"""
The file of ``--state``: where the output of each machine continues.

The file is replaced as a whole, so it is complete at any time.  Entries of machines that are not
selected stay, because several selections may share a file one after the other.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twisted_exec.wire.resume import Position

VERSION = 1
_MOST_BYTES = 16 << 20
_EPOCH = re.compile(r"[0-9a-f]{16}\Z")


class StateError(Exception):
    """The file cannot be used; the message is for the user."""


@dataclass(frozen=True)
class SavedPosition:
    """
    The position behind the printed output of a machine.

    :param name: of the machine, for people who read the file.
    :param inside_line: the last line was printed in part.
    """

    name: str
    position: Position
    inside_line: bool = False


class StateFile:
    """
    The file.

    :ivar machines: by UID.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.machines: dict[str, SavedPosition] = {}

    def load(self) -> None:
        """
        Read the file; it need not exist.

        :raises StateError: it is not a state file, or cannot be read or written.
        """
        try:
            with open(self.path, encoding="utf-8") as file:
                text = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            text = ""
        except (OSError, UnicodeDecodeError) as error:
            raise StateError(f"{self.path}: {_why(error)}") from None
        if len(text) > _MOST_BYTES:
            raise StateError(f"{self.path} is larger than {_MOST_BYTES >> 20} MiB: {_REMEDY}")
        if text:
            try:
                self.machines = _machines(json.loads(text))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise StateError(f"{self.path} is not a file of --state: {_REMEDY}") from None
        # Now, because an error should come before a console is opened.
        self.write(self.encoded())

    def encoded(self) -> bytes:
        """Return the content for the present progress."""
        machines = {
            uid: {
                "name": each.name,
                "epoch": each.position.epoch,
                "offset": each.position.offset,
                **({"insideLine": True} if each.inside_line else {}),
            }
            for uid, each in self.machines.items()
        }
        return json.dumps({"version": VERSION, "machines": machines}, indent=1).encode() + b"\n"

    def write(self, content: bytes) -> None:
        """
        Replace the file; may be called in a thread.

        :raises StateError: it cannot be written.
        """
        new = f"{self.path}.new"
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, self.path)
        except OSError as error:
            raise StateError(f"cannot write {self.path}: {_why(error)}") from None


_REMEDY = "name another file, or remove this one"


def _why(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not a text"


def _machines(document: Mapping[str, Any]) -> dict[str, SavedPosition]:
    if document["version"] != VERSION:
        raise ValueError("another version")
    machines = {}
    for uid, each in document["machines"].items():
        epoch, offset = each["epoch"], each["offset"]
        if not _EPOCH.match(epoch) or type(offset) is not int or not 0 <= offset < 1 << 63:
            raise ValueError("not a position")
        position = Position(epoch, offset)
        machines[uid] = SavedPosition(str(each["name"]), position, each.get("insideLine") is True)
    return machines
