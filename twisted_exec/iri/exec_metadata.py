"""
Metadata of gRPC calls that create a token: the user, the UID of the machine, and the id of the session.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted_exec.api import status as api
from twisted_exec.iri.errors import Metadata

TOKENS = ("exec", "log", "recording")
"""Attributes of the methods that create a token for a user."""

USER, MACHINE_UID, SESSION = "user", "machine_uid", "session"
_EXEC_KEYS = {
    USER: "twisted-exec-user-bin",
    MACHINE_UID: "twisted-exec-machine-uid-bin",
    SESSION: "twisted-exec-session-bin",
}


def exec_metadata(**facts: str) -> Metadata:
    return tuple((_EXEC_KEYS[name], text.encode()) for name, text in facts.items() if text)


def read_exec_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> dict[str, Any]:
    """
    Return the keyword arguments of ``IMachineRuntime.exec`` and similar calls.

    :raises BadRequest: a value is not UTF-8.
    """
    sent = dict(metadata)
    facts = {}
    for name, key in _EXEC_KEYS.items():
        value = sent.get(key, b"")
        try:
            facts[name] = value if isinstance(value, str) else value.decode()
        except UnicodeDecodeError:
            raise api.BadRequest(f"metadata {key} is not UTF-8") from None
    return facts
