"""
Limits of the door: of connections before their login, in all and from one address, and of one user's
connections and sessions.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from twisted_exec.program.options.declaration import OPTION
from twisted_exec.program.options.shared import limit

TOO_MANY_IN_ALL = "there are too many connections at this server: try again later"
EVICTED = (
    "there are too many connections that have not logged in, and yours was the oldest: try again"
)


@dataclass(frozen=True)
class Limits:
    """
    Limits of the door.

    :param connections: at a time, in all.
    :param before_login: of these, those that have not logged in.
    :param before_login_per_address: of these, those from one IPv4 address, or one /64 of IPv6.
    :param connections_per_user: at a time.
    :param sessions_per_user: at a time, in all connections.
    """

    connections: int = field(
        default=2000,
        metadata={OPTION: limit("max-connections", "Connections at a time.")},
    )
    before_login: int = field(
        default=100,
        metadata={
            OPTION: limit(
                "max-logins",
                "Connections at a time that have not logged in; a further one ends the oldest of them.",
            )
        },
    )
    before_login_per_address: int = field(
        default=20,
        metadata={
            OPTION: limit(
                "max-logins-per-address",
                "Those from one IPv4 address, or one /64 of IPv6; a further one ends the oldest of them.",
            )
        },
    )
    connections_per_user: int = field(
        default=50,
        metadata={OPTION: limit("max-connections-per-user", "Connections of one user at a time.")},
    )
    sessions_per_user: int = field(
        default=100,
        metadata={
            OPTION: limit(
                "max-sessions-per-user",
                "Sessions of one user at a time, in all connections; a connection has at most 10.",
            )
        },
    )


class Stranger(Protocol):
    """A connection that has not logged in."""

    @property
    def origin(self) -> str: ...

    def evict(self) -> None:
        """End, to make room for another."""


class Admission:
    """Counts connections, and says which are too many."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._strangers: OrderedDict[Stranger, None] = OrderedDict()  # the oldest comes first
        self._origins: dict[str, OrderedDict[Stranger, None]] = {}
        self._users: Counter[str] = Counter()
        self._sessions: Counter[str] = Counter()

    @property
    def strangers(self) -> int:
        """Connections that have not logged in."""
        return len(self._strangers)

    @property
    def logged_in(self) -> int:
        """Connections that have logged in."""
        return self._users.total()

    @property
    def sessions(self) -> int:
        return self._sessions.total()

    def enter(self, stranger: Stranger) -> str:
        """Count a new connection; return why it is refused, and not counted, or an empty string."""
        limits = self.limits
        if self.strangers + self.logged_in >= limits.connections and not self.strangers:
            return TOO_MANY_IN_ALL
        neighbours = self._origins.get(stranger.origin, OrderedDict())
        is_full = self.strangers + self.logged_in >= limits.connections
        if len(neighbours) >= limits.before_login_per_address:
            self._evict_first(neighbours)
        elif is_full or self.strangers >= limits.before_login:
            self._evict_first(self._strangers)
        self._strangers[stranger] = None
        self._origins.setdefault(stranger.origin, OrderedDict())[stranger] = None
        return ""

    def _evict_first(self, strangers: Iterable[Stranger]) -> None:
        oldest = next(iter(strangers))
        self.leave(oldest)
        oldest.evict()

    def leave(self, stranger: Stranger) -> None:
        """Count a connection no more that has logged in, or ended before; others have no effect."""
        if stranger in self._strangers:
            del self._strangers[stranger]
            neighbours = self._origins[stranger.origin]
            del neighbours[stranger]
            if not neighbours:
                del self._origins[stranger.origin]

    def log_in(self, user: str) -> str:
        """Count a connection of a user; return why it is refused, and not counted, or an empty string."""
        most = self.limits.connections_per_user
        if self._users[user] >= most:
            return f"you have {most} connections to this server, and more are not allowed: end one"
        self._users[user] += 1
        return ""

    def log_out(self, user: str) -> None:
        """Count a connection of a user no more."""
        _decrement(self._users, user)

    def begin(self, user: str) -> str:
        """Count a session; return why it is refused, and not counted, or an empty string."""
        most = self.limits.sessions_per_user
        if self._sessions[user] >= most:
            return f"you have {most} sessions at this server, and more are not allowed: end one"
        self._sessions[user] += 1
        return ""

    def end(self, user: str) -> None:
        """Count a session no more."""
        _decrement(self._sessions, user)


def _decrement(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
