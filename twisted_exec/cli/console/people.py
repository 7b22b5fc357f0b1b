"""
The people at a console: their names, and who joins and leaves.

Names come from the ConsoleSessions, so only users who may list these read them. Others read
numbers.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from twisted_exec.api.display import display_name
from twisted_exec.api.status import APIError
from twisted_exec.cli.messages import age
from twisted_exec.kube.machine_requests import DOCTOR_AGENT

if TYPE_CHECKING:
    from twisted.python.failure import Failure

    from twisted_exec.cli.console.menu import MachineAccess
    from twisted_exec.streaming.remotecommand.stream import ConsoleStream
    from twisted_exec.wire.marks import Attendance

NOT_LISTED = "names are for users who may list consolesessions"

NAMES_SECONDS = 1.0
"""Time for the names of the viewers in the status, and in a question."""
LOOK_SECONDS = 0.7
"""The object of a session appears a moment after it; all clients do not look at the same time."""
ATTEMPTS = 4
"""Looks at the list until it has as many sessions as there are: an object outlives its session."""
MOST_TOLD = 20
"""At consoles with more sessions nobody reads who joins and leaves: each change costs a list per client."""

_NOT_LISTED = (401, 403, 404)
"""Codes of a server that lists no sessions for this user."""
_MOST_NAMES = 12
_MOST_IN_LINE = 3
_MOST_REMEMBERED = 8


@dataclass(frozen=True)
class Person:
    """
    One session at a console.

    :param user: the name that other people read.
    :param is_own: it is the session that looks.
    :param is_lost: its connection is lost.
    :param seconds: since it began, or since its connection is lost; ``None`` if unknown.
    """

    user: str
    is_own: bool = False
    is_lost: bool = False
    seconds: float | None = None


async def people_at(access: MachineAccess, session: str) -> Sequence[Person]:
    """
    List the sessions at a console.

    :param session: the id of the session that looks.
    :raises APIError: the user may not list sessions, or the server has none.
    """
    # Imported here, because most sessions list nobody.
    from twisted_exec.api.kinds.consolesessions import CONSOLESESSIONS

    resource = access.dialect.workload
    machine_resource = f"{resource.plural}.{resource.group}"
    async with access.client() as client:
        listed = await client.list(
            CONSOLESESSIONS.resource,
            access.config.namespace,
            field_selector=f"spec.machine={access.name}",
            trim=_short,
        )
    now = time.time()
    return [
        Person(
            _named(spec["user"], spec["agent"]),
            bool(session) and spec["session"] == session,
            bool(spec["away"]),
            _since(spec["away"] or spec["began"], now),
        )
        for spec in listed["items"]
        if spec["machineResource"] in ("", machine_resource)
    ]


def _short(session: dict[str, Any]) -> dict[str, Any]:
    spec, status = session.get("spec") or {}, session.get("status") or {}
    began = (session.get("metadata") or {}).get("creationTimestamp")
    names = "user", "agent", "session", "machineResource"
    texts = {name: str(spec.get(name) or "") for name in names}
    return {**texts, "away": str(status.get("awaySince") or ""), "began": str(began or "")}


def _named(user: str, agent: str) -> str:
    # The user is named, too, because a client may give any agent.
    return f"{DOCTOR_AGENT} of {display_name(user)}" if agent == DOCTOR_AGENT else user


def _since(moment: str, now: float) -> float | None:
    from twisted_exec.api.times import seconds  # most sessions list nobody

    try:
        return max(0.0, now - seconds(moment))
    except ValueError:
        return None


def names_of(people: Iterable[Person]) -> str:
    """
    Return each user once, with the number of sessions and the time of the longest: ``ada (you), bob (2, for 20 s), eve
    (lost, for 3 s)``.

    The time of the session that looks is missing: the user reads it in the status, and the server's is shorter after a
    resume at another server.

    As ``viewerNames`` of the web console does, which has no times; of many users only the first.
    """
    people = list(people)
    own = next((each.user for each in people if each.is_own), None)
    present: defaultdict[str, list[Person]] = defaultdict(list)
    lost: defaultdict[str, list[Person]] = defaultdict(list)
    for each in people:
        (lost if each.is_lost else present)[each.user].append(each)
    names = []
    if own is not None and own in present:
        names.append(_described(present.pop(own), "you"))
    names += [_described(present[user]) for user in sorted(present)]
    names += [_described(lost[user], "lost") for user in sorted(lost)]
    if (more := len(names) - _MOST_NAMES) > 1:
        names[_MOST_NAMES:] = [f"and {more} more"]
    return ", ".join(names)


def _described(sessions: Sequence[Person], note: str = "") -> str:
    count = str(len(sessions)) if len(sessions) > 1 else ""
    others = (each.seconds for each in sessions if not each.is_own)
    longest = max((each for each in others if each is not None), default=None)
    since = "" if longest is None else f"for {age(longest)}"
    more = ", ".join(filter(None, (note, count, since)))
    return display_name(sessions[0].user) + (f" ({more})" if more else "")


class SharedSession(Protocol):
    """The session, as its people need it; :class:`.ConsoleSession` describes the members."""

    @property
    def facts(self) -> ConsoleStream: ...
    @property
    def is_carried(self) -> bool: ...
    def inform(self, line: str) -> None: ...


class People:
    """
    The people at the console of one session.

    :param list_people: lists the sessions at the console, for the session with an id; ``None`` if
        nobody can.
    :param tells: tell the user who joins and leaves.
    """

    def __init__(
        self,
        session: SharedSession,
        clock: IReactorTime,
        list_people: Callable[[str], Awaitable[Sequence[Person]]] | None,
        *,
        tells: bool,
    ) -> None:
        self._session, self._clock = session, clock
        self._list_people, self._tells = list_people, tells
        self._company: Company | None = None
        self._naming: Deferred[None] | None = None

    async def _look(self) -> Sequence[Person]:
        assert self._list_people is not None
        return await self._list_people(self._session.facts.session)

    def _look_soon(self) -> Deferred[Sequence[Person]]:
        return Deferred.fromCoroutine(self._look()).addTimeout(NAMES_SECONDS, self._clock)

    async def soon(self) -> Sequence[Person]:
        """List the people; empty if the server does not do so soon."""
        if self._list_people is None or not self._session.is_carried:
            return ()
        try:
            return await self._look_soon()
        except (APIError, TimeoutError):
            return ()

    def name(self, tell: Callable[[str], None]) -> None:
        """
        Look for the names of the people.

        :param tell: gets :func:`names_of` them, soon: why there are none if the user may not list
            them, and an empty string if they are not known.
        """

        def unnamed(failure: Failure) -> str:
            error = failure.value
            return NOT_LISTED if isinstance(error, APIError) and error.code == 403 else ""

        session = self._session
        if self._list_people is None or session.facts.attendance is None or not session.is_carried:
            tell("")
            return
        self._naming = self._look_soon().addCallbacks(names_of, unnamed).addCallback(tell)

    def changed(self, attendance: Attendance) -> None:
        """Tell the user who has joined and left."""
        if self._tells and self._list_people is not None:
            if self._company is None:
                self._company = Company(self._clock, self._look, self._session.inform)
            self._company.changed(attendance)

    def heard(self, notice: str) -> None:
        """See :meth:`Company.heard`."""
        if self._company is not None:
            self._company.heard(notice)

    def stop(self) -> None:
        """Tell nothing more."""
        if self._naming is not None:
            self._naming.cancel()
        if self._company is not None:
            self._company.stop()


class Company:
    """
    Tells a user who joins and leaves, at a console that is shared.

    :param look: lists the people at the console; fails with an :class:`.APIError` without the right.
    :param tell: gets a line.
    """

    def __init__(
        self,
        clock: IReactorTime,
        look: Callable[[], Awaitable[Sequence[Person]]],
        tell: Callable[[str], None],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._clock, self._look, self._tell, self._jitter = clock, look, tell, jitter
        self._count = self._lost = 0  # sessions, and those of them whose connections are lost
        self._told_count: int | None = None  # that the user knows of
        self._people: Sequence[Person] | None = None  # at the last look
        self._is_alone = False  # nobody else was there, so there was no look yet
        self._may_look = True  # and read names, as far as the server's answers say
        self._following: Deferred[None] | None = None
        self._heard: deque[str] = deque(maxlen=_MOST_REMEMBERED)

    def changed(self, attendance: Attendance) -> None:
        """Take note of the number of sessions at the console."""
        self._count, self._lost = attendance.viewers, attendance.lost
        if self._told_count is None and self._following is None and self._count == 1:
            # A user who comes before the first look has joined.
            self._told_count, self._is_alone = 1, True
        if self._following is None and self._count != self._told_count:
            self._following = Deferred.fromCoroutine(self._follow())
            self._following.addErrback(lambda failure: failure.trap(CancelledError))

    def heard(self, notice: str) -> None:
        """Take note of a notice, which may say already that a user has left."""
        self._heard.append(notice)

    def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()

    async def _follow(self) -> None:
        # Not a PokedLoop: it ends when the number is explained.
        attempts = ATTEMPTS
        while self._count != self._told_count:
            await deferLater(self._clock, LOOK_SECONDS * (1 + self._jitter()))
            count, people = self._count, None
            attempts -= 1
            if count <= MOST_TOLD:
                try:
                    people = await self._look()
                except APIError as problem:
                    if problem.code in _NOT_LISTED:
                        self._may_look = False
                    elif self._may_look:  # an outage: the names follow later
                        if not attempts:
                            break  # until the number is told again
                        continue
                else:
                    self._may_look = True
            if people is None or len(people) == count or not attempts:
                self._compare(count, people)
                attempts = ATTEMPTS
        self._following = None

    def _compare(self, count: int, people: Sequence[Person] | None) -> None:
        is_complete = people is not None and len(people) == count
        before = self._people
        if self._is_alone:
            before = [each for each in people or () if each.is_own] or None
            self._is_alone = False
        if people is not None and before is not None:
            people = _without_strangers(people, before)
        self._people = people
        before_count, self._told_count = self._told_count, count
        if before_count is None or max(count, before_count) > MOST_TOLD:
            return
        if people is not None and before is not None:
            self._tell_names(before, people, is_complete=is_complete)
        elif count != before_count:
            act = "joined" if count > before_count else "left"
            present = max(0, count - self._lost)
            sessions = "1 session" if present == 1 else f"{present} sessions"
            lost = f", {self._lost} lost" if self._lost else ""
            self._tell(f"somebody has {act} ({sessions}{lost})")

    def _tell_names(
        self, before: Sequence[Person], people: Sequence[Person], *, is_complete: bool
    ) -> None:
        old, new = (Counter(each.user for each in some) for some in (before, people))
        connected = Counter(each.user for each in people if not each.is_lost)
        own = next((each.user for each in people if each.is_own), None)
        joined = [display_name(user) for user in new if user not in old]
        left = [display_name(user) for user in old if user not in new]
        if own is not None and is_complete and connected[own] > old[own] > 0:
            joined.insert(0, "another session of yours")
        left = [name for name in left if not self._has_read_of(name)]
        changes = [_clause(names, act) for names, act in ((joined, "joined"), (left, "left"))]
        if line := "; ".join(filter(None, changes)):
            self._tell(line)

    def _has_read_of(self, name: str) -> bool:
        return any(f"{name} has left" in each.split("; ") for each in self._heard)


def _without_strangers(people: Sequence[Person], before: Sequence[Person]) -> Sequence[Person]:
    """
    Return the people without the lost sessions of users who were not there before.

    Such a session has not joined: it has left, and the server lists it until it can no longer come back.
    """
    known = {each.user for each in before}
    return [each for each in people if not each.is_lost or each.user in known]


def _clause(names: Sequence[str], act: str) -> str:
    if not names:
        return ""
    more = len(names) - _MOST_IN_LINE
    shown = [*names[:_MOST_IN_LINE], f"{more} more"] if more > 0 else names
    if len(shown) == 1:
        return f"{shown[0]} has {act}"
    return f"{', '.join(shown[:-1])} and {shown[-1]} have {act}"
