"""
The file of ``--state``: where the output of each machine continues.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.private_files import write_private
from twisted_exec.wire.keys import EPOCH
from twisted_exec.wire.resume import Position

_VERSION = 1
_MOST_CHARACTERS = 16 << 20

_REMEDY = "name another file, or remove this one"


class StateFileError(Exception):
    """The file of ``--state`` cannot be used; the message is for the user."""


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
    A file of ``--state``.

    :ivar machines: the saved positions by the UIDs of the machines.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.machines: dict[str, SavedPosition] = {}

    def load(self) -> None:
        """
        Read the file; it need not exist.

        :raises StateFileError: it is not a state file, or cannot be read or written.
        """
        try:
            with open(self.path, encoding="utf-8") as file:
                text = file.read(_MOST_CHARACTERS + 1)
        except FileNotFoundError:
            text = ""
        except (OSError, UnicodeDecodeError) as error:
            raise StateFileError(f"{self.path}: {_reason(error)}") from None
        if len(text) > _MOST_CHARACTERS:
            raise StateFileError(
                f"{self.path} is larger than {_MOST_CHARACTERS >> 20} MiB: {_REMEDY}"
            )
        if text:
            try:
                self.machines = _parse_machines(json.loads(text))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise StateFileError(f"{self.path} is not a file of --state: {_REMEDY}") from None
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
        return json.dumps({"version": _VERSION, "machines": machines}, indent=1).encode() + b"\n"

    def write(self, content: bytes) -> None:
        """
        Replace the file; may be called in a thread.

        :raises StateFileError: it cannot be written.
        """
        try:
            write_private(self.path, content)
        except TLSConfigError as error:
            raise StateFileError(str(error)) from None


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not a text"


def _parse_machines(document: Mapping[str, Any]) -> dict[str, SavedPosition]:
    if document["version"] != _VERSION:
        raise ValueError("another version")
    machines = {}
    for uid, each in document["machines"].items():
        epoch, offset = each["epoch"], each["offset"]
        if not EPOCH.match(epoch) or type(offset) is not int or not 0 <= offset < 1 << 63:
            raise ValueError("not a position")
        position = Position(epoch, offset)
        machines[uid] = SavedPosition(str(each["name"]), position, each.get("insideLine") is True)
    return machines
