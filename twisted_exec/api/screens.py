"""Options of a request for a screen: the query of ``machines/screen``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from urllib.parse import urlencode

from twisted_exec.api import fields
from twisted_exec.api.schema import Schema, string
from twisted_exec.api.status import Invalid
from twisted_exec.api.times import nanoseconds, stamp

_OFFSET = re.compile("[0-9]{1,18}")
_SIZE = re.compile("([1-9][0-9]{0,4})x([1-9][0-9]{0,4})")

Args = Mapping[bytes, list[bytes]]


class ScreenForm(StrEnum):
    """The forms of a screen."""

    TEXT = "text"
    JSON = "json"
    SVG = "svg"
    ANSI = "ansi"
    STATE = "state"


CONTENT_TYPES: Mapping[ScreenForm, str] = {
    ScreenForm.TEXT: "text/plain; charset=utf-8",
    ScreenForm.JSON: "application/json",
    ScreenForm.SVG: "image/svg+xml",
    ScreenForm.ANSI: "text/plain; charset=utf-8",
    ScreenForm.STATE: "application/json",
}

TYPES = tuple(dict.fromkeys(each.partition(";")[0] for each in CONTENT_TYPES.values()))
"""The content types of answers, without parameters."""

QUERY: Mapping[str, Schema] = {
    "as": string(
        "Form of the screen: text (the default), json with colours and cursor, svg, ansi: escape "
        "sequences that draw it, or state: JSON with output that brings a terminal to the state of the "
        "console's, from which it may go on.",
        enum=list(ScreenForm),
    ),
    "at": string(
        "Offset in the console's output, or RFC 3339 time, of the screen; by default the present."
    ),
    "size": string(
        "Columns and rows, as 80x24, of the terminal that shows the screen, if they are not those of "
        "the console's."
    ),
}
"""Query parameters."""


@dataclass(frozen=True)
class ScreenOptions:
    """
    The options of a request for a screen; at most one of the first two is set.

    :param at_offset: show the screen behind the output before this offset.
    :param at_nanoseconds: show the screen at this time (since the epoch).
    :param size: columns and rows of the terminal that shows it.
    """

    at_offset: int | None = None
    at_nanoseconds: int | None = None
    form: ScreenForm = ScreenForm.TEXT
    size: tuple[int, int] | None = None

    def query(self) -> bytes:
        """Return the query for the next hop."""
        values = {"as": str(self.form)}
        if self.at_offset is not None:
            values["at"] = str(self.at_offset)
        if self.at_nanoseconds is not None:
            values["at"] = stamp(self.at_nanoseconds)
        if self.size is not None:
            values["size"] = "{}x{}".format(*self.size)
        return urlencode(values).encode("ascii")

    @property
    def content_type(self) -> str:
        """The type of the answer."""
        return CONTENT_TYPES[self.form]


def parse(args: Args, machine: str) -> ScreenOptions:
    """
    Decode and check a query.

    :raises Invalid: a value is not valid.
    """
    form, at = _text(args, b"as") or ScreenForm.TEXT, _text(args, b"at")
    if form not in list(ScreenForm):
        raise _invalid(machine, fields.not_supported("as", form, list(ScreenForm)))
    options = ScreenOptions(form=ScreenForm(form), size=_size(_text(args, b"size"), machine))
    if not at:
        return options
    if _OFFSET.fullmatch(at):
        return replace(options, at_offset=int(at))
    try:
        return replace(options, at_nanoseconds=nanoseconds(at))
    except ValueError:
        detail = "must be an offset, or an RFC 3339 time such as 2026-11-20T05:00:00Z"
        raise _invalid(machine, fields.invalid("at", at, detail)) from None


@dataclass(frozen=True)
class TerminalState:
    """
    A terminal's state: the answer in the form ``state``.

    :param offset: of the next byte of output.
    :param output: what a new terminal of ``columns`` and ``rows`` has to print to have this state.
    """

    epoch: str
    offset: int
    columns: int
    rows: int
    output: str


def parse_state(body: bytes) -> TerminalState:
    """
    Decode an answer in the form ``state``.

    :raises ValueError: it is not valid.
    """
    try:
        value = json.loads(body)
    except RecursionError:
        raise ValueError("the state is nested too deep") from None
    if not isinstance(value, dict):
        raise ValueError("the state is not an object")
    fields = [value.get(name) for name in ("epoch", "offset", "columns", "rows", "output")]
    match fields:
        case [str(epoch), int(offset), int(columns), int(rows), str(output)]:
            return TerminalState(epoch, offset, columns, rows, output)
    raise ValueError("the state lacks a field")


def _size(text: str, machine: str) -> tuple[int, int] | None:
    if not text:
        return None
    match = _SIZE.fullmatch(text)
    if match is None:
        detail = "must be columns and rows, such as 80x24"
        raise _invalid(machine, fields.invalid("size", text, detail))
    return int(match[1]), int(match[2])


def _invalid(machine: str, cause: fields.Cause) -> Invalid:
    return Invalid("ScreenOptions", machine, [cause], group="")


def _text(args: Args, name: bytes) -> str:
    values = args.get(name)
    return values[0].decode("utf-8", "replace") if values else ""
