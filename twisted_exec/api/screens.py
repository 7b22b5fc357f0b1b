"""
Options of a request for a screen: the query of ``machines/screen``.

A hop decodes and checks the query, and encodes it anew, as for logs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlencode

from twisted_exec.api import fields
from twisted_exec.api.schema import Schema, string
from twisted_exec.api.status import Invalid
from twisted_exec.api.times import nanoseconds, stamp


class Form(StrEnum):
    """The forms of a screen."""

    TEXT = "text"
    JSON = "json"
    SVG = "svg"
    ANSI = "ansi"


CONTENT_TYPES: Mapping[Form, str] = {
    Form.TEXT: "text/plain; charset=utf-8",
    Form.JSON: "application/json",
    Form.SVG: "image/svg+xml",
    Form.ANSI: "text/plain; charset=utf-8",
}

TYPES = tuple(dict.fromkeys(each.partition(";")[0] for each in CONTENT_TYPES.values()))
"""The content types of answers, without parameters."""

QUERY: Mapping[str, Schema] = {
    "as": string(
        "Form of the screen: text (the default), json with colours and cursor, svg, or ansi: "
        "escape sequences that draw it.",
        enum=list(Form),
    ),
    "at": string(
        "Offset in the console's output, or RFC 3339 time, of the screen; by default the present."
    ),
}
"""Query parameters."""

_OFFSET = re.compile("[0-9]{1,18}")

Args = Mapping[bytes, list[bytes]]


@dataclass(frozen=True)
class ScreenOptions:
    """
    Options of a request; at most one of the first two is set.

    :param at_offset: show the screen behind the output before this offset.
    :param at_nanoseconds: show the screen at this time, in nanoseconds since the epoch.
    """

    at_offset: int | None = None
    at_nanoseconds: int | None = None
    form: Form = Form.TEXT

    def query(self) -> bytes:
        """Return the query for the next hop, in canonical form."""
        values = {"as": str(self.form)}
        if self.at_offset is not None:
            values["at"] = str(self.at_offset)
        if self.at_nanoseconds is not None:
            values["at"] = stamp(self.at_nanoseconds)
        return urlencode(values).encode("ascii")

    @property
    def content_type(self) -> str:
        """The type of the answer."""
        return CONTENT_TYPES[self.form]


def parse(args: Args, machine: str) -> ScreenOptions:
    """
    Decode and check a query.  Unknown parameters are ignored, as everywhere in Kubernetes.

    :param args: in the form of ``request.args``.
    :param machine: its name, for messages.
    :raises Invalid: a value is not valid.
    """
    form, at = _text(args, b"as") or Form.TEXT, _text(args, b"at")
    if form not in list(Form):
        raise _invalid(machine, fields.not_supported("as", form, list(Form)))
    if not at:
        return ScreenOptions(form=Form(form))
    if _OFFSET.fullmatch(at):
        return ScreenOptions(at_offset=int(at), form=Form(form))
    try:
        return ScreenOptions(at_nanoseconds=nanoseconds(at), form=Form(form))
    except ValueError:
        detail = "must be an offset, or an RFC 3339 time such as 2026-11-20T05:00:00Z"
        raise _invalid(machine, fields.invalid("at", at, detail)) from None


def _invalid(machine: str, cause: fields.Cause) -> Invalid:
    return Invalid("ScreenOptions", machine, [cause], group="")


def _text(args: Args, name: bytes) -> str:
    values = args.get(name)
    return values[0].decode("utf-8", "replace") if values else ""
