"""
The sessions of all users: bound to their users, bounded for each and in all, ended when idle.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.status import NotFound, ServiceUnavailable, TooManyRequests
from twisted_exec.cli.mcp.protocol import ServerSession
from twisted_exec.mcp.users import Caller
from twisted_exec.program.options.declaration import OPTION
from twisted_exec.program.options.shared import limit

IDLE_SECONDS = 900.0
"""A session without a request for this time ends."""
LONGEST_SECONDS = 8 * 3600.0
"""The longest life of a session: then the client begins another, with what the program's kubeconfig says by then."""

_ID_BYTES = 24


@dataclass(frozen=True)
class Limits:
    """Limits of sessions and calls."""

    sessions: int = field(
        default=2000,
        metadata={OPTION: limit("max-sessions", "Sessions at a time, in all.")},
    )
    sessions_per_user: int = field(
        default=50,
        metadata={
            OPTION: limit(
                "max-sessions-per-user",
                "Sessions of one user at a time; a further one ends the one that was idle longest.",
            )
        },
    )
    calls_per_user: int = field(
        default=32,
        metadata={OPTION: limit("max-calls-per-user", "Calls of one user at a time.")},
    )


@dataclass(eq=False)
class Bound:
    """
    A session, and its user.

    :ivar requests: under way.
    """

    id: str
    caller: Caller
    session: ServerSession
    begun: float
    used: float
    requests: int = 0


class Sessions:
    """
    The sessions.

    When there are too many in all, the person who has the most, with all agents, loses an idle one to those with fewer.

    :param make: makes the session of a user.
    """

    def __init__(
        self, limits: Limits, make: Callable[[Caller], ServerSession], clock: IReactorTime
    ) -> None:
        self.limits = limits
        self._make, self._clock = make, clock
        self._by_id: dict[str, Bound] = {}
        self._by_user: dict[str, dict[str, Bound]] = {}
        self._people: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def calls(self) -> int:
        """Calls under way."""
        return sum(len(each.session.calls) for each in self._by_id.values())

    def requests_of(self, caller: Caller) -> int:
        """Return the requests of a user that are under way, or wait for their turn."""
        own = self._by_user.get(caller.name, {})
        return sum(each.requests for each in own.values())

    @contextmanager
    def used(self, bound: Bound) -> Iterator[None]:
        """Keep a session during a request."""
        bound.requests += 1
        try:
            yield
        finally:
            bound.requests -= 1
            bound.used = self._clock.seconds()

    def begin(self, caller: Caller) -> Bound:
        """
        Begin a session.

        :raises APIError: there are too many.
        """
        own = self._by_user.get(caller.name, {})
        if len(own) >= self.limits.sessions_per_user:
            idle = [each for each in own.values() if not each.requests]
            if not idle:
                raise TooManyRequests(
                    f"you have {len(own)} sessions here, and none is idle: end one",
                    retry_after_seconds=5,
                )
            self.end(min(idle, key=lambda each: each.used))
        elif len(self._by_id) >= self.limits.sessions:
            self._make_room(caller.person)
        now = self._clock.seconds()
        bound = Bound(secrets.token_urlsafe(_ID_BYTES), caller, self._make(caller), now, now)
        self._by_id[bound.id] = bound
        self._by_user.setdefault(caller.name, {})[bound.id] = bound
        self._people[caller.person] += 1
        return bound

    def _make_room(self, person: str) -> None:
        crowd, most = self._people.most_common(1)[0]
        # Somebody with one session loses it only for another of their own.
        loser = crowd if most > self._people[person] + 1 else person
        every = self._by_id.values()
        idle = [each for each in every if not each.requests and each.caller.person == loser]
        if not idle:
            raise ServiceUnavailable(
                "there are too many sessions here: try again later", retry_after_seconds=30
            )
        self.end(min(idle, key=lambda each: each.used))

    def find(self, id: str, caller: Caller) -> Bound:
        """
        Return a session of a user.

        :raises NotFound: the user has no such session; so a stolen id does not even say that there is one.
        """
        bound = self._by_id.get(id)
        if bound is None or bound.caller != caller:
            raise NotFound("sessions", "", message="there is no such session: begin another one")
        bound.used = self._clock.seconds()
        return bound

    def end(self, bound: Bound) -> None:
        """End a session; a second call does nothing."""
        if self._by_id.pop(bound.id, None) is None:
            return
        own = self._by_user[bound.caller.name]
        del own[bound.id]
        if not own:
            del self._by_user[bound.caller.name]
        person = bound.caller.person
        self._people[person] -= 1
        if not self._people[person]:
            del self._people[person]
        bound.session.close()

    def sweep(self) -> None:
        """End the sessions that are idle, or too old and without a request."""
        now = self._clock.seconds()
        for bound in list(self._by_id.values()):
            is_idle = now - bound.used >= IDLE_SECONDS
            is_old = now - bound.begun >= LONGEST_SECONDS
            if not bound.requests and (is_idle or is_old):
                self.end(bound)

    def close(self) -> None:
        """End all sessions."""
        for bound in list(self._by_id.values()):
            self.end(bound)
