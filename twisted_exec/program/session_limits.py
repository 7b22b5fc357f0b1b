"""
Limits of sessions and connections, which fit into the file descriptors of a program.

:mod:`twisted_exec.streaming.sessions.registry` refuses sessions above them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from twisted_exec.program.descriptors import descriptor_limit

MOST_SESSIONS = 10_000
"""Most sessions by default, whatever the descriptors: each also takes up to 100 KiB of memory."""

_USERS_SHARE = 4
"""Divisor of the sessions that one user may have."""
_LEAST_RESERVED = 100
_RESERVED_SHARE = 100

_LEAST_CONNECTIONS = 8


@dataclass(frozen=True)
class SessionLimits:
    """
    Limits of the concurrent sessions of one program.

    :param descriptors: the limit of file descriptors that the others were made for.
    """

    total: int
    per_user: int
    descriptors: int = field(default_factory=descriptor_limit)
    per_session: int = 2

    @classmethod
    def fitting(
        cls,
        total: int | None = None,
        per_user: int | None = None,
        *,
        per_session: int = 2,
        users_share: int = _USERS_SHARE,
    ) -> SessionLimits:
        """
        Return limits that fit into the descriptors of this process.

        :param total: by default as many as fit, at most :data:`MOST_SESSIONS`.
        :param per_user: by default the ``users_share``-th part.
        :raises ValueError: so many do not fit.
        """
        descriptors = descriptor_limit()
        most = max(1, (descriptors - _reserved(descriptors)) // per_session)
        if total is not None and total > most:
            needed = total * per_session + _reserved(total * per_session)
            raise ValueError(
                f"{total} sessions need {needed} file descriptors, and the limit is {descriptors}: "
                "raise it (LimitNOFILE= of systemd, ulimit -n), or allow fewer sessions"
            )
        total = min(most, MOST_SESSIONS) if total is None else total
        per_user = max(1, total // users_share) if per_user is None else min(per_user, total)
        return cls(total, per_user, descriptors, per_session)

    def connections_beside(self, sessions: int) -> int:
        """
        Return how many connections that are not sessions fit.

        Usually at most half of the descriptors, so that watches leave room for sessions.
        """
        left = self.descriptors - _reserved(self.descriptors) // 2 - self.per_session * sessions
        return max(_LEAST_CONNECTIONS, min(self.descriptors // 2, left))

    def __str__(self) -> str:
        return (
            f"at most {self.total} sessions, {self.per_user} of one user; "
            f"the limit of file descriptors is {self.descriptors}"
        )


Limiting = Callable[[], SessionLimits]


def _reserved(descriptors: int) -> int:
    """Return how many descriptors are for other uses than sessions."""
    return max(_LEAST_RESERVED, descriptors // _RESERVED_SHARE)
