"""
Results of requests that never became streams, for clients and for audit.
"""

from __future__ import annotations

import re

from twisted.internet.defer import CancelledError

from twisted_exec.api.status import APIError
from twisted_exec.streaming.interfaces import Subject

CLIENT_LEFT = 499
"""Audit code for a client that left before the response, as in nginx."""


def naming(error: APIError, subject: Subject) -> APIError:
    """Prefix the error's message with the machine's name, unless it contains the name."""
    name, namespace = re.escape(subject.machine), re.escape(subject.namespace)
    if not name or re.search(
        rf'"(?:{namespace}/)?{name}"|\b{subject.noun} {name}(?![-.\w])', error.message
    ):
        return error
    return APIError(
        f'{subject.noun} "{subject.machine}": {error.message}',
        code=error.code,
        reason=error.reason,
        details=error.details,
        retry_after_seconds=error.retry_after_seconds,
    )


def outcome(problem: BaseException) -> tuple[int, str]:
    """Return the error's code and reason for audit."""
    if isinstance(problem, APIError):
        return problem.code, problem.message
    if isinstance(problem, CancelledError):
        return CLIENT_LEFT, "client closed"
    return 500, "internal error"
