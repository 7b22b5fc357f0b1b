"""
What became of a request that never became a stream: for who asked, and for audit.
"""

from __future__ import annotations

import re

from twisted.internet.defer import CancelledError

from twisted_exec.api.status import APIError
from twisted_exec.streaming.interfaces import Subject

CLIENT_LEFT = 499
"""The audit's code for a client that left before it was answered (nginx's word for it)."""


def naming(error: APIError, subject: Subject) -> APIError:
    """The error, its message preceded by the machine's name unless it holds that already."""
    name = re.escape(subject.machine)
    if not name or re.search(rf'"{name}"|\b{subject.noun} {name}(?![-.\w])', error.message):
        return error
    return APIError(
        f'{subject.noun} "{subject.machine}": {error.message}',
        code=error.code,
        reason=error.reason,
        details=error.details,
        retry_after_seconds=error.retry_after_seconds,
    )


def outcome(problem: BaseException) -> tuple[int, str]:
    """An error's code and reason, for audit: of what never became a stream."""
    if isinstance(problem, APIError):
        return problem.code, problem.message
    if isinstance(problem, CancelledError):
        return CLIENT_LEFT, "client closed"
    return 500, "internal error"
