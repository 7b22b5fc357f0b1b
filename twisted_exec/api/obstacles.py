"""
Why a machine's console does not open: reasons for programs, among the causes of a ``Status``.
"""

from __future__ import annotations

from enum import StrEnum

from twisted_exec.api.status import APIError


class Obstacle(StrEnum):
    """The ``reason`` of a cause in ``details.causes``."""

    POWERED_OFF = "PoweredOff"
    CANNOT_START = "CannotStart"
    """The runtime does not get the machine running, and says why."""
    NOT_RUNNING = "NotRunning"
    """The runtime has not started the machine yet."""
    NOT_IN_POOL = "NotInPool"
    """The poollet does not have the machine."""
    NO_ADDRESS = "NoAddress"
    """The pool has no address that the API server uses."""


_REASONS = frozenset(obstacle.value for obstacle in Obstacle)


def because(obstacle: Obstacle, error: APIError) -> APIError:
    """Add an obstacle to the causes of an error; return the error."""
    causes = error.details.setdefault("causes", [])
    causes.append({"reason": obstacle.value, "message": error.message})
    return error


def obstacle_of(error: APIError) -> Obstacle | None:
    """Return the first obstacle among the causes of an error, or ``None``."""
    causes = error.details.get("causes")
    for cause in causes if isinstance(causes, list) else ():
        reason = cause.get("reason") if isinstance(cause, dict) else None
        if isinstance(reason, str) and reason in _REASONS:
            return Obstacle(reason)
    return None
