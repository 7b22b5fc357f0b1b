"""
The wish of a user that a session be recorded.

A client sends it in the query key ``record`` of the request that opens the session; its value says
how much input is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twisted_exec.api.fields import shown
from twisted_exec.api.kinds.policies.consolepolicies import RECORDED_INPUT
from twisted_exec.api.status import BadRequest

DEFAULT_INPUT = "masked"

CANNOT_BE_RECORDED = "cannot be recorded"
"""Part of a runtime's refusal of a session that must be recorded."""
NOT_STORED = "it is not stored yet"
"""Begin of a runtime's message about a closed recording that its store does not take."""


def recorded_input(text: str) -> str:
    """
    Return the input to record.

    :param text: empty for the default.
    :raises BadRequest: the text is another one.
    """
    if text and text not in RECORDED_INPUT:
        raise BadRequest(
            f"a recording has the input {', '.join(RECORDED_INPUT[:-1])} or {RECORDED_INPUT[-1]}, not "
            f"{shown(text)}"
        )
    return text or DEFAULT_INPUT


def recording_of_query(args: Mapping[bytes, Sequence[bytes]]) -> str:
    """
    Return the input to record by a query; empty if it asks for no recording.

    :param args: as ``request.args``.
    :raises BadRequest: it has another value.
    """
    values = args.get(b"record", ())
    if not values:
        return ""
    if len(values) > 1:
        raise BadRequest("the request asks for a recording more than once: ask once")
    return recorded_input(values[0].decode("ascii", "replace"))
