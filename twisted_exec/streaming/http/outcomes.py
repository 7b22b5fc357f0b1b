"""
Results of requests that never became streams, for clients and for audit.
"""

from __future__ import annotations

import re

from twisted.internet.defer import CancelledError

from twisted_exec.api.status import APIError
from twisted_exec.streaming.interfaces import Subject

_WORD, _LONGER = re.compile(r"\w"), re.compile(r"[-.\w]")

CLIENT_LEFT = 499
"""Audit code for a client that left before the response, as in nginx."""


def naming(error: APIError, subject: Subject) -> APIError:
    """Prefix the error's message with the machine's name, unless it contains the name."""
    if not subject.machine or _is_named(error.message, subject):
        return error
    return APIError(
        f'{subject.noun} "{subject.machine}": {error.message}',
        code=error.code,
        reason=error.reason,
        details=error.details,
        retry_after_seconds=error.retry_after_seconds,
    )


def _is_named(message: str, subject: Subject) -> bool:
    # Not by a pattern for each name: users choose names, and every pattern would be compiled and kept.
    name = subject.machine
    if f'"{name}"' in message or f'"{subject.namespace}/{name}"' in message:
        return True
    words = f"{subject.noun} {name}"
    at = message.find(words)
    while at >= 0:
        end = at + len(words)
        if not (_WORD.match(message[at - 1 : at]) or _LONGER.match(message[end : end + 1])):
            return True
        at = message.find(words, end)
    return False


def outcome(problem: BaseException) -> tuple[int, str]:
    """Return the error's code and reason for audit."""
    if isinstance(problem, APIError):
        return problem.code, problem.message
    if isinstance(problem, CancelledError):
        return CLIENT_LEFT, "client closed"
    return 500, "internal error"
