"""
Reservations of approvals: a session uses its approval when the next hop has opened the session.

Sessions of one server take turns at an approval.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from twisted_exec.api.kinds import CONSOLEREQUESTS, Object
from twisted_exec.api.status import APIError, Conflict, NotFound, ServiceUnavailable
from twisted_exec.api.times import timestamp
from twisted_exec.apiserver.interfaces import Applicant
from twisted_exec.storage.history import Key, key_of
from twisted_exec.storage.interfaces import IStorage

WAIT_SECONDS = 10.0
"""Longest wait of a session for another session that is being opened with the same approval."""
_ATTEMPTS = 5
_RESOURCE = CONSOLEREQUESTS.resource

_USE_FIELDS = ("session", "useTime")


class Reservations:
    """
    The approvals that sessions of this server have reserved.

    Sessions of one server take turns at an approval.

    :param remember: is called with a request that was read or written.
    :param now: seconds since the epoch.
    """

    def __init__(
        self,
        storage: IStorage,
        clock: IReactorTime,
        now: Callable[[], float],
        present: Callable[[Object], Object | None],
        remember: Callable[[Object], None],
        forget: Callable[[Object], None],
    ) -> None:
        self._storage, self._clock, self.now = storage, clock, now
        self.present, self._remember, self._forget = present, remember, forget
        self._reserved: dict[Key, Reservation] = {}
        self._waiting: defaultdict[Key, dict[Deferred[None], None]] = defaultdict(dict)

    def has(self, request: Object) -> bool:
        """Return whether a session has reserved an approval."""
        return "session" not in request.get("status", {}) and key_of(request) in self._reserved

    def reserve(
        self, request: Object, applicant: Applicant, check: Callable[[Object], bool]
    ) -> Reservation:
        """
        Reserve an approval, which no other session has.

        :param check: returns whether the session still needs an approval; raises
            :class:`~twisted_exec.api.status.Forbidden` if it is refused.
        """
        reservation = Reservation(self, request, applicant, check)
        if "session" not in request["status"]:
            self._reserved[key_of(request)] = reservation
        return reservation

    async def wait(self, request: Key, machine: Object, deadline: float) -> None:
        """
        Wait until the session that has reserved an approval needs it no more.

        :raises ServiceUnavailable: it takes too long.
        """
        waiting = self._waiting[request]
        turn: Deferred[None] = Deferred()
        waiting[turn] = None
        turn.addTimeout(max(deadline - self._clock.seconds(), 0.0), self._clock)
        try:
            await turn
        except TimeoutError:
            raise ServiceUnavailable(
                f'another session of yours at machine "{machine["metadata"]["name"]}" is being opened '
                "with the approval for one session: try again",
                retry_after_seconds=1,
            ) from None
        finally:
            waiting.pop(turn, None)

    def free(self, request: Key, reservation: Reservation) -> None:
        """Let other sessions use an approval, if it still counts for any."""
        if self._reserved.get(request) is not reservation:
            return
        del self._reserved[request]
        for turn in list(self._waiting.pop(request, {})):  # each leaves, or waits again
            turn.callback(None)

    async def update(self, request: Object, status: Object) -> bool:
        """Write the status of a request; return false if the request has changed meanwhile."""
        updated = {**request, "metadata": {**request["metadata"]}, "status": status}
        try:
            # The next evaluation may come before the watch delivers the update.
            self._remember(await self._storage.update(_RESOURCE, updated))
        except (Conflict, NotFound):
            await self.read(request)
            return False
        return True

    async def read(self, request: Object) -> Object | None:
        """Read a request from the store, if it is still there."""
        try:
            stored: Object = await self._storage.get(_RESOURCE, *key_of(request))
        except NotFound:
            self._forget(request)
            return None
        self._remember(stored)
        return stored


class Reservation:
    """
    An approval for one session, which no other new session of this server can use meanwhile.

    The session calls :meth:`use` before it is open, and one of the other methods at last.
    """

    _log = Logger()

    def __init__(
        self,
        reservations: Reservations,
        request: Object,
        applicant: Applicant,
        check: Callable[[Object], bool],
    ) -> None:
        self._reservations, self._request = reservations, request
        self._applicant, self._check = applicant, check
        self._writing: Deferred[None] | None = None

    def use(self) -> Deferred[None]:
        """
        Record in the approval that the session uses it: the next hop has opened the session.

        Cancelling does not give up the write.

        :return: fails with :class:`~twisted_exec.api.status.Forbidden` if the session may not be
            opened, and with another :class:`~twisted_exec.api.status.APIError` if the approval
            cannot be written.
        """
        used: Deferred[None] = Deferred()
        writing = self._writing = Deferred.fromCoroutine(self._use())
        writing.addBoth(self._pass_on, used)
        return used

    def _pass_on(self, result: Failure | None, used: Deferred[None]) -> None:
        # Not the write itself: cancelling that would leave open whether the store has it.
        used.callback(result)

    async def _use(self) -> None:
        for _ in range(_ATTEMPTS):
            request = self._reservations.present(self._request) or self._deleted()
            if not self._check(request):
                return
            if await self._reservations.update(request, self._used(request["status"])):
                return
        raise ServiceUnavailable(
            f'the console request "{self._request["metadata"]["name"]}" keeps changing: try again'
        )

    def _deleted(self) -> Object:
        moment = timestamp(self._reservations.now())
        return {
            **self._request,
            "metadata": {**self._request["metadata"], "deletionTimestamp": moment},
        }

    def _used(self, status: Object) -> Object:
        used = {**status, "session": self._applicant.session}
        if "session" in status:
            # Not what the approval names now: that may be an attempt to resume which has failed.
            used["previousSession"] = self._applicant.resumes
        else:
            used["useTime"] = timestamp(self._reservations.now())
        return used

    def opened(self) -> None:
        """The session is open."""
        self._reservations.free(key_of(self._request), self)

    def not_opened(self, problem: BaseException) -> None:
        """
        The session was not opened: give the approval back, also if :meth:`use` has marked it.
        """
        if self._writing is None:
            self.opened()
            return
        self._writing.addCallback(lambda _: Deferred.fromCoroutine(self._give_back()))
        self._writing.addErrback(self._failed)
        self._writing.addCallback(lambda _: self.opened())

    async def _give_back(self) -> None:
        for _ in range(_ATTEMPTS):
            request = await self._reservations.read(self._request)
            status = {} if request is None else request["status"]
            if status.get("session") != self._applicant.session or "previousSession" in status:
                return
            status = {key: value for key, value in status.items() if key not in _USE_FIELDS}
            if request is None or await self._reservations.update(request, status):
                return

    def _failed(self, failure: Failure) -> None:
        name = self._request["metadata"]["name"]
        if failure.check(APIError):
            why = failure.getErrorMessage()
            self._log.warn("cannot give back approval {name}: {why}", name=name, why=why)
        else:
            self._log.failure("cannot give back approval {name}", failure, name=name)
