"""
The ConsolePolicies and ConsoleRequests of one API server, as its store delivers them.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from twisted_exec.api.kinds import CONSOLEPOLICIES, CONSOLEREQUESTS, Object
from twisted_exec.api.kinds.consolerequests import expiry
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import Forbidden, NotFound, ServiceUnavailable
from twisted_exec.apiserver.consoles.policy_evaluation import (
    ParsedPolicy,
    approvals,
    check_presence,
    demand_of,
    evaluate,
    needs_use,
    parsed,
    reason_of,
)
from twisted_exec.apiserver.consoles.reservations import WAIT_SECONDS, Reservation, Reservations
from twisted_exec.apiserver.interfaces import Applicant, RecordingDemand, Strictness
from twisted_exec.auth.interfaces import User
from twisted_exec.auth.rules import Attributes
from twisted_exec.program.tasks import as_deferred
from twisted_exec.storage.follower import Followed, StoreFollower
from twisted_exec.storage.history import Key, key_of
from twisted_exec.storage.interfaces import ADDED, DELETED, Event, IStorage, Listing
from twisted_exec.wire.session_terms import Right, Terms

MOST_SECONDS = 60.0
"""Longest wait of the timer: the time of day may be set."""
_SPARE_MOMENTS = 16
_UNKNOWN = "the server does not know its ConsolePolicies and machines yet: try again"

_Asker = tuple[str, str]
"""Name of a user, and UID of a machine."""


@dataclass(frozen=True)
class Admitted:
    """
    The decision to open a session.

    :param terms: of the session, whose right may be lower than requested.
    :param reservation: the approval that the session will use up.
    :param reason: of the session: its user's, or that of an approval.
    """

    terms: Terms
    reservation: Reservation | None = None
    reason: str = ""


class ConsolePolicies(StoreFollower):
    """
    The policies of one API server, as the store's watches deliver them.

    Before its lists are complete, it allows no session. It has no work queue: an approval that is
    withdrawn ends with the change itself.

    :param now: seconds since the epoch.
    """

    def __init__(
        self,
        storage: IStorage,
        machines: Sequence[Resource],
        clock: IReactorTime,
        now: Callable[[], float],
    ) -> None:
        super().__init__(storage, clock)
        self._resources, self._clock, self._now = machines, clock, now
        self._listeners: list[Callable[[], None]] = []
        self._unlisted = {CONSOLEPOLICIES.resource, CONSOLEREQUESTS.resource}
        self._unlisted_machines = {(each.group, each.plural) for each in machines}
        self._policies: defaultdict[str, dict[str, ParsedPolicy]] = defaultdict(dict)
        self._requests: defaultdict[_Asker, dict[Key, Object]] = defaultdict(dict)
        self._moments: list[tuple[float, Key]] = []
        """A heap of the ends of approvals, and of the next changes of policies by their hours."""
        self._hours: dict[Key, float] = {}
        self._ends: dict[Key, float] = {}
        self._machines: dict[str, Object] = {}
        self._by_name: dict[tuple[str, str, Key], Object] = {}
        """By group, plural, namespace and name."""
        self._timer: IDelayedCall | None = None
        self._reservations = Reservations(
            storage, clock, now, self._present, self._remember, self._forget
        )

    def followed(self) -> list[Followed]:
        return [
            self._follow_all(CONSOLEPOLICIES.resource, self._policy_changed),
            self._follow_all(CONSOLEREQUESTS.resource, self._request_changed),
            *(
                self._follow_all(each, partial(self._machine_changed, each))
                for each in self._resources
            ),
        ]

    def _follow_all(self, resource: Resource, changed: Callable[[Event], None]) -> Followed:
        def listed(listing: Listing) -> None:
            for obj in listing.items:
                changed(Event(ADDED, obj, None, listing.version))
            self._unlisted.discard(resource)
            self._unlisted_machines.discard((resource.group, resource.plural))
            self._hint()

        return Followed(resource, changed, listed)

    def stopService(self) -> Deferred[None]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return super().stopService()

    def follow(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever a review may have another result than before."""
        self._listeners.append(changed)

    def is_strict(self, machine: Object, user: User) -> bool:
        """
        Return whether only the verbs of ``machines/console`` allow a user the use of a machine's console.

        It is true while that is unknown.
        """
        if self._unlisted:
            return True
        machine = self._machines.get(machine["metadata"].get("uid", ""), machine)
        return any(
            policy.strict or policy.problem
            for policy in self.selecting(machine)
            if policy.binds(user)
        )

    def recording_demand(
        self, machine: Object, user: User, wanted: Right
    ) -> RecordingDemand | None:
        """
        Return the recording of a session that the policies demand, or ``None``.

        :param machine: as for :meth:`is_strict`.
        """
        machine = self._machines.get(machine["metadata"].get("uid", ""), machine)
        return demand_of(self.binding(machine, user, wanted))

    def is_strict_for(self, attributes: Attributes) -> bool:
        """
        As :meth:`is_strict`, for the machine that a request names, or for its namespace.

        False for an unknown machine.

        :raises ServiceUnavailable: the lists that it depends on are incomplete.
        """
        self._check((attributes.group, attributes.resource))
        if not attributes.name:
            return self.strictness(attributes.namespace, attributes.user).strict
        name = (attributes.group, attributes.resource, (attributes.namespace, attributes.name))
        machine = self._by_name.get(name)
        return machine is not None and self.is_strict(machine, attributes.user)

    def strictness(self, namespace: str, user: User) -> Strictness:
        """
        Return whether the verbs are strict for a user at some machines of a namespace.

        :param namespace: empty for all namespaces.
        """
        if self._unlisted:
            return Strictness(True, _UNKNOWN)
        namespaces = [namespace] if namespace else list(self._policies)
        several = (self._policies.get(each, {}) for each in namespaces)
        strict = [
            policy
            for each in several
            for _, policy in sorted(each.items())
            if (policy.strict or policy.problem) and policy.binds(user)
        ]
        if not strict or (namespace and any(policy.selects_all for policy in strict)):
            return Strictness(bool(strict))
        return Strictness(
            True,
            f"{strict[0]} has strict verbs for some machines: ask for a machine by its name, such as "
            '"kubectl auth can-i drive machines/NAME --subresource=console"',
        )

    def selecting(self, machine: Object) -> list[ParsedPolicy]:
        """
        Return the policies that apply to a machine, by name.

        :raises ServiceUnavailable: the policies are not known yet.
        """
        self._check()
        policies = self._policies.get(machine["metadata"]["namespace"], {})
        return [policy for _, policy in sorted(policies.items()) if policy.selects(machine)]

    def binding(self, machine: Object, user: User, wanted: Right) -> list[ParsedPolicy]:
        """
        Return the policies that restrict a session at a machine; as :meth:`selecting`.

        :param wanted: the right that the session asks for.
        """
        selecting = self.selecting(machine)
        return [policy.of_session(wanted) for policy in selecting if policy.binds(user)]

    def uses_approvals(self, machine: Object, user: User, wanted: Right) -> bool:
        """
        Return whether an approval is for one session of a user at this machine.

        :raises ServiceUnavailable: the policies are not known yet.
        """
        return needs_use(self.binding(machine, user, wanted))

    def approved_session(
        self, applicant: Applicant, machine: Object, is_open: Callable[[str], bool]
    ) -> str:
        """
        Return the id of an open session of the user that uses an approval for one session; empty if
        there is none.

        :param is_open: returns whether the user has an open session with an id at this machine.
        """
        policies, now = self.binding(machine, applicant.user, applicant.wanted), self._now()
        for request in self.requests_of(applicant.user.name, machine["metadata"]["uid"]):
            session: str = request.get("status", {}).get("session", "")
            of_session = replace(applicant, session=session)
            if session and is_open(session) and approvals(policies, [request], of_session, now):
                return session
        return ""

    def _present(self, request: Object) -> Object | None:
        return self._requests.get(_asker(request), {}).get(key_of(request))

    def requests_of(self, user: str, uid: str) -> list[Object]:
        """Return the requests of a user for a machine."""
        return list(self._requests.get((user, uid), {}).values())

    def review(self, applicant: Applicant, uid: str, right: Right) -> Terms:
        """
        Decide again about a session that :meth:`open` allowed.

        :return: the present terms of the session.
        :raises Forbidden: a policy refuses the session now.
        :raises NotFound: the machine is not known.
        :raises APIError: no decision is possible now.
        """
        machine = self._machines.get(uid)
        if machine is None:
            self._check()
            raise NotFound("machines", uid, "", "the machine of the session is not known")
        return self._evaluated(applicant, machine, right)

    @as_deferred
    async def open(self, applicant: Applicant, machine: Object, right: Right) -> Admitted:
        """
        Decide about a new session.

        :param right: the right that the user has and asks for.
        :param machine: as read from the store for this session.
        :return: fires with the decision. Fails with :class:`~twisted_exec.api.status.Forbidden` if
            a policy refuses the session, and with another
            :class:`~twisted_exec.api.status.APIError` if no decision is possible now.
        """
        # A new session has used no approval, whatever its id: some callers choose that.  A resumed
        # session has, and its runtime will check that it is the same.
        new_session = replace(applicant, session=applicant.resumes)
        deadline = self._clock.seconds() + WAIT_SECONDS
        while True:
            check_presence(self.selecting(machine), applicant)
            policies, now = self.binding(machine, applicant.user, applicant.wanted), self._now()
            requests = self.requests_of(applicant.user.name, machine["metadata"]["uid"])
            if not needs_use(policies):
                return Admitted(
                    evaluate(policies, requests, new_session, machine, right, now),
                    reason=reason_of(policies, requests, new_session, now),
                )
            free = [each for each in requests if not self._reservations.has(each)]
            try:
                terms = evaluate(policies, free, new_session, machine, right, now)
            except Forbidden:
                evaluate(
                    policies, requests, new_session, machine, right, now
                )  # the message for all
                valid = approvals(policies, requests, new_session, now)
                reserved = filter(self._reservations.has, valid)
                await self._reservations.wait(key_of(next(reserved)), machine, deadline)
                continue
            (best, *_) = approvals(policies, free, new_session, now)
            check = partial(self._check_use, new_session, machine, right)
            return Admitted(
                terms,
                self._reservations.reserve(best, applicant, check),
                reason_of(policies, free, new_session, now),
            )

    def _check_use(
        self, new_session: Applicant, machine: Object, right: Right, request: Object
    ) -> bool:
        policies, now = self.binding(machine, new_session.user, new_session.wanted), self._now()
        if not needs_use(policies):
            return False
        if approvals(policies, [request], new_session, now):
            requests = self.requests_of(new_session.user.name, machine["metadata"]["uid"])
            evaluate(policies, requests, new_session, machine, right, now)
        else:
            evaluate(policies, [request], new_session, machine, right, now)
        return True

    def _evaluated(self, applicant: Applicant, machine: Object, right: Right) -> Terms:
        check_presence(self.selecting(machine), applicant)
        policies, uid = (
            self.binding(machine, applicant.user, applicant.wanted),
            machine["metadata"]["uid"],
        )
        requests = self.requests_of(applicant.user.name, uid)
        return evaluate(policies, requests, applicant, machine, right, self._now())

    def _check(self, machines: tuple[str, str] | None = None) -> None:
        if self._unlisted or machines in self._unlisted_machines:
            raise ServiceUnavailable(_UNKNOWN, retry_after_seconds=1)

    def _policy_changed(self, event: Event) -> None:
        namespace, name = key = key_of(event.obj)
        if event.type == DELETED:
            self._policies[namespace].pop(name, None)
            if not self._policies[namespace]:
                del self._policies[namespace]
            self._hours.pop(key, None)
        else:
            self._policies[namespace][name] = parsed(event.obj)
            self._expect_change(key)
        self._hint()

    def _expect_change(self, key: Key) -> None:
        policy = self._policies[key[0]].get(key[1])
        self._hours.pop(key, None)
        if policy is None or policy.hours is None:
            return
        now = self._now()
        closes = policy.hours.closes(now)
        moment = policy.hours.opens(now) if closes is None else closes
        if moment != float("inf"):
            self._hours[key] = moment
            self._add_moment(moment, key)

    def _add_moment(self, moment: float, key: Key) -> None:
        heapq.heappush(self._moments, (moment, key))
        # Most moments of objects that have changed since, or are gone, would stay for days.
        if len(self._moments) > 2 * (len(self._hours) + len(self._ends)) + _SPARE_MOMENTS:
            left = [*self._hours.items(), *self._ends.items()]
            self._moments = [(at, of) for of, at in left]
            heapq.heapify(self._moments)

    def _request_changed(self, event: Event) -> None:
        if event.type == DELETED:
            self._forget(event.obj)
        else:
            self._remember(event.obj)
        versions = [each for each in (event.previous, event.obj) if each is not None]
        changed = event.type == DELETED or len({_validity(each) for each in versions}) > 1
        if changed and any(map(_is_approved, versions)):
            self._hint()

    def _remember(self, request: Object) -> None:
        key = key_of(request)
        requests = self._requests[_asker(request)]
        if key in requests and _version(requests[key]) > _version(request):
            return
        requests[key] = request
        if _is_approved(request) and self._ends.get(key) != expiry(request):
            self._ends[key] = expiry(request)
            self._add_moment(expiry(request), key)

    def _forget(self, request: Object) -> None:
        asker = _asker(request)
        self._requests[asker].pop(key_of(request), None)
        self._ends.pop(key_of(request), None)
        if not self._requests[asker]:
            del self._requests[asker]

    def _machine_changed(self, resource: Resource, event: Event) -> None:
        metadata = event.obj["metadata"]
        name = (resource.group, resource.plural, key_of(event.obj))
        if event.type == DELETED:
            self._machines.pop(metadata["uid"], None)
            self._by_name.pop(name, None)
            return
        before = self._machines.get(metadata["uid"])
        self._machines[metadata["uid"]] = self._by_name[name] = event.obj
        if before is None or before["metadata"].get("labels") == metadata.get("labels"):
            return
        if self._selected(before) != self._selected(event.obj):
            self._hint()

    def _selected(self, machine: Object) -> list[str]:
        policies = self._policies.get(machine["metadata"]["namespace"], {})
        return [name for name, policy in policies.items() if policy.selects(machine)]

    def _hint(self) -> None:
        self._schedule()
        for changed in self._listeners:
            changed()

    def _schedule(self) -> None:
        # Not a PokedLoop: a right ends by the time of day, and listeners hear of it in the same turn.
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.running:
            return
        now = self._now()
        due = self._due(now)
        if due is not None:
            delay = min(max(due - now, 0.0), MOST_SECONDS)
            self._timer = self._clock.callLater(delay, self._timer_fired, due)

    def _due(self, now: float) -> float | None:
        while self._moments and self._moments[0][0] <= now:
            moment, key = heapq.heappop(self._moments)
            if self._ends.get(key) == moment:
                del self._ends[key]
            if self._hours.get(key) == moment:
                self._expect_change(key)
        return self._moments[0][0] if self._moments else None

    def _timer_fired(self, due: float) -> None:
        self._timer = None
        if self._now() >= due:
            self._hint()
        else:
            self._schedule()


def _asker(request: Object) -> _Asker:
    spec = request["spec"]
    return spec.get("user", ""), spec.get("machineUID", "")


def _validity(request: Object) -> tuple[bool, ...]:
    status = request.get("status", {})
    flags = (bool(status.get(key)) for key in ("approved", "denied", "session"))
    return (*flags, "deletionTimestamp" in request["metadata"])


def _is_approved(request: Object) -> bool:
    return bool(request.get("status", {}).get("approved"))


def _version(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])
