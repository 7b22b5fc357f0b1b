"""The faults of the small BMC, by switch."""

from __future__ import annotations

import json
from dataclasses import dataclass, field


@dataclass
class Faults:
    """
    What is wrong with a BMC; change it at any time.

    A path is that of a request, or ``METHOD PATH``; ``*`` stands for every request.

    :param codes: answers with these codes and no more.
    :param message: the id of the message of these.
    :param hangs: paths that are never answered.
    :param empty: paths that are answered by 200 with an empty body.
    :param bodies: other bodies, answered by 200.
    :param huge: paths that are answered by 200 with a body of 100 MB.
    :param redirects: paths that are answered by a redirect to an address.
    :param token_dies_after: a session ends after this number of requests.
    :param full: the id of the message when there is no session left.
    :param ignores_graceful: the server does not shut down when it is asked to.
    """

    codes: dict[str, int] = field(default_factory=dict)
    message: str = "Base.1.8.GeneralError"
    hangs: set[str] = field(default_factory=set)
    empty: set[str] = field(default_factory=set)
    bodies: dict[str, bytes] = field(default_factory=dict)
    huge: set[str] = field(default_factory=set)
    redirects: dict[str, str] = field(default_factory=dict)
    token_dies_after: int = 0
    full: str = "Base.1.8.SessionLimitExceeded"
    ignores_graceful: bool = False


def names(method: str, path: str) -> tuple[str, str, str]:
    """The names of a request in :class:`Faults`."""
    return f"{method} {path}", path, "*"


def deep(levels: int = 100_000) -> bytes:
    """A body that is nested without end."""
    return b'{"a":' * levels


def error(message_id: str) -> bytes:
    """The body of an error, whose text quotes a password as some BMCs do."""
    entry = {"MessageId": message_id, "Message": "the login of admin with canary-password failed"}
    code = {"code": message_id, "message": "See ExtendedInfo.", "@Message.ExtendedInfo": [entry]}
    return json.dumps({"error": code}).encode()
