"""
Admission of ConsoleRequests: who may create, decide and withdraw them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from twisted_exec.api import times
from twisted_exec.api.agents import is_agent, person_of, person_uid
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLEREQUESTS, Object
from twisted_exec.api.kinds.consolerequests import EXPIRED, PENDING, PENDING_SECONDS, state_of
from twisted_exec.api.missing_right import MissingRight
from twisted_exec.api.status import (
    Conflict,
    Forbidden,
    TooManyRequests,
)
from twisted_exec.api.users import SERVICE_ACCOUNT_PREFIX
from twisted_exec.apiserver.consoles.machine_references import MachineReferences
from twisted_exec.apiserver.consoles.policies import ConsolePolicies
from twisted_exec.apiserver.consoles.policy_evaluation import check_agent, check_request
from twisted_exec.apiserver.interfaces import CREATE, UPDATE, Change, IAdmission
from twisted_exec.auth.interfaces import IAuthorizer, User
from twisted_exec.auth.rules import CONSOLE, Attributes
from twisted_exec.storage.follower import Followed, StoreFollower
from twisted_exec.storage.history import Key, key_of
from twisted_exec.storage.interfaces import DELETED, Event, IStorage
from twisted_exec.wire.session_terms import Right

MOST_PENDING = 50
"""The most requests of one user in one namespace that wait for a decision."""
NAME_SECONDS = PENDING_SECONDS
"""Time for which the name of a deleted request is not used again."""
MOST_DELETED = 1000
"""
The most deleted requests of one user within :data:`NAME_SECONDS`; then the user can create none.
"""
_MOST_NAMES = 50_000

_SET_BY_SERVER = ("user", "userUID", "caller", "machineUID")


@implementer(IAdmission)
class RequestRights(StoreFollower):
    """
    Admission of ConsoleRequests.

    A request is for its creator, and for the machine that has the name at that moment. An approver
    is another person, also with regard to impersonation, and needs the right to ``drive`` the
    console of the machine. ServiceAccounts neither create nor approve requests, because users who
    edit a namespace can create tokens for several of them.

    A session could not use an approval for a reason that a policy refuses, so the request is refused; likewise one of
    an agent that no policy lets do more than observe.

    The name of a deleted request is not free at once: an approver might read one request and
    approve another.

    :param now: seconds since the epoch.
    """

    def __init__(
        self,
        storage: IStorage,
        dialects: Sequence[Dialect],
        authorizer: IAuthorizer,
        now: Callable[[], float],
        policies: ConsolePolicies,
    ) -> None:
        super().__init__(storage)
        self._authorizer, self._now, self._policies = authorizer, now, policies
        self._references = MachineReferences(storage, dialects, authorizer)
        self._deleted: dict[Key, tuple[float, str]] = {}
        """By name: when a request was deleted, and its user; oldest first."""
        self._deletions: Counter[str] = Counter()

    def followed(self) -> list[Followed]:
        return [Followed(CONSOLEREQUESTS.resource, self._changed)]

    def _changed(self, event: Event) -> None:
        if event.type != DELETED:
            return
        key, user = key_of(event.obj), person_of(event.obj["spec"].get("user", ""))
        self._forget(key)
        self._deleted[key] = self._now(), user
        self._deletions[user] += 1
        if len(self._deleted) > _MOST_NAMES:
            self._forget(next(iter(self._deleted)))

    def _forget(self, key: Key) -> None:
        _, user = self._deleted.pop(key, (0.0, ""))
        self._deletions[user] -= 1
        if self._deletions[user] <= 0:
            del self._deletions[user]

    def _forget_old(self) -> None:
        oldest = self._now() - NAME_SECONDS
        while self._deleted:
            key, (at, _) = next(iter(self._deleted.items()))
            if at > oldest:
                return
            self._forget(key)

    def admit(self, change: Change) -> Deferred[None]:
        """As :meth:`IAdmission.admit`; sets what the server records, in place."""
        if change.kind is not CONSOLEREQUESTS or change.new is None:
            return succeed(None)
        if change.operation == CREATE:
            return Deferred.fromCoroutine(self._created(change.user, change.new))
        if change.operation == UPDATE and change.subresource == "approval":
            assert change.old is not None
            return Deferred.fromCoroutine(self._decided(change.user, change.new, change.old))
        return succeed(None)

    async def _created(self, user: User, request: Object) -> None:
        spec, metadata = request["spec"], request["metadata"]
        self._check_name(user, request)
        if _is_service_account(user):
            raise Forbidden(
                f'consolerequests "{metadata["name"]}" is forbidden: a ServiceAccount is not a person; '
                "ask for an approval with an account of your own"
            )
        for key in _SET_BY_SERVER:
            spec.pop(key, None)
        machine = await self._references.find(user, request, "console request")
        wanted = Right[spec["right"].upper()]
        policies = self._policies.binding(machine, user, wanted)
        if wanted > Right.OBSERVE:
            check_agent(policies, user, machine)
        check_request(policies, request, machine)
        spec |= {"user": user.name, "machineUID": machine["metadata"]["uid"]}
        if uid := person_uid(user):
            spec["userUID"] = uid
        if user.impersonated_by is not None:
            spec["caller"] = user.impersonated_by.name
        await self._check_number(user, metadata["namespace"])

    def _check_name(self, user: User, request: Object) -> None:
        self._forget_old()
        deletions = self._deletions[person_of(user.name)]
        if deletions >= MOST_DELETED:
            raise TooManyRequests(
                f'{deletions} console requests of user "{user.name}" were deleted '
                "within a day: try again tomorrow",
                retry_after_seconds=3600,
            )
        if key_of(request) in self._deleted:
            name = request["metadata"]["name"]
            raise Conflict(
                f'a consolerequest with the name "{name}" was deleted less than a day ago, and an '
                "approver could confuse the two: use another name, or metadata.generateName"
            )

    async def _check_number(self, user: User, namespace: str) -> None:
        listing = await self._storage.list(CONSOLEREQUESTS.resource, namespace, stale=True)
        now, person = self._now(), person_of(user.name)
        pending = sum(
            person_of(each["spec"].get("user", "")) == person and state_of(each, now) == PENDING
            for each in listing.items
        )
        if pending >= MOST_PENDING:
            raise TooManyRequests(
                f'user "{user.name}" has {pending} console requests that wait for a decision in the '
                f'namespace "{namespace}": delete those that are not needed'
            )

    async def _decided(self, user: User, new: Object, old: Object) -> None:
        status, before = new["status"], old.get("status", {})
        decision = bool(status.get("approved")), bool(status.get("denied"))
        if decision == (bool(before.get("approved")), bool(before.get("denied"))):
            if status != before:
                await self._check_approver(user, new)
            return
        await self._check_approver(user, new)
        now, name = self._now(), new["metadata"]["name"]
        if status.get("approved"):
            if state_of(old, now) == EXPIRED:
                raise Conflict(
                    f'consolerequests "{name}" waited for more than a day and cannot be approved '
                    "any more: its user must create another"
                )
            await self._check_machine(new)
            status["expirationTime"] = times.timestamp(now + new["spec"]["seconds"])
        status |= {"decidedBy": user.name, "decisionTime": times.timestamp(now)}

    async def _check_approver(self, user: User, request: Object) -> None:
        spec, refusal = request["spec"], _refusal(user, request)
        if any(each and is_agent(each.name) for each in (user, user.impersonated_by)):
            raise Forbidden(
                f"{refusal}: an agent is not a person; a person must approve or deny it"
            )
        if is_agent(spec.get("user", "")):
            await self._check_approver_of_agent(user, request)
        requesters = {spec.get("user"), spec.get("caller")} - {None, ""}
        impersonator = user.impersonated_by
        account = "" if is_agent(spec.get("user", "")) else spec.get("userUID", "")
        if user.name in requesters or (account and user.uid == account):
            raise Forbidden(f"{refusal}: another user must approve or deny it")
        if impersonator is not None and (
            impersonator.name in requesters or (account and impersonator.uid == account)
        ):
            raise Forbidden(
                f'{refusal}: user "{impersonator.name}", who created it, impersonates that user'
            )
        if _is_service_account(user):
            raise Forbidden(
                f"{refusal}: a ServiceAccount is not a person; approve with an account of your own"
            )
        await self._check_drive(user, request)

    async def _check_approver_of_agent(self, user: User, request: Object) -> None:
        """
        Check that an approver may decide for an agent.

        The agent counts as its person, who may approve only where no policy has this person ask another one.
        """
        spec, refusal = request["spec"], _refusal(user, request)
        person, uid = person_of(spec["user"]), spec.get("userUID", "")
        for each in (user, user.impersonated_by):
            if each is None or (each.name != person and (not uid or each.uid != uid)):
                continue
            if each is not user:
                raise Forbidden(
                    f'{refusal}: user "{each.name}", whose agent asks, impersonates that user'
                )
            machine = await self._machine_of(request)
            for policy in self._policies.selecting(machine):
                if policy.requires_approval and policy.binds(user) and not _is_denied(request):
                    raise Forbidden(
                        f"{refusal}: it is of your own agent, and {policy} requires the approval of another "
                        "user for you, too"
                    )

    async def _check_drive(self, user: User, request: Object) -> None:
        spec, namespace = request["spec"], request["metadata"]["namespace"]
        resource = self._references.dialect(spec["machineResource"]).workload
        attributes = Attributes(
            user,
            Right.DRIVE.verb,
            resource.group,
            resource.version,
            resource.plural,
            CONSOLE,
            namespace,
            spec["machine"],
        )
        decision = await self._authorizer.authorize(attributes)
        if not decision.allows_everything:
            message = (
                f"{_refusal(user, request)}: an approver must be allowed to {Right.DRIVE.verb} "
                f'{resource.plural}/{CONSOLE} of "{spec["machine"]}" in the namespace "{namespace}"'
            )
            right = MissingRight(
                user.name, Right.DRIVE.verb, resource.group, resource.plural, CONSOLE, namespace
            )
            raise Forbidden(message, details={"causes": [right.cause(message)]})

    async def _check_machine(self, request: Object) -> None:
        spec, metadata = request["spec"], request["metadata"]
        machine = await self._machine_of(request)
        if machine["metadata"]["uid"] != spec["machineUID"]:
            raise Conflict(
                f'consolerequests "{metadata["name"]}" is for an earlier machine '
                f'"{spec["machine"]}", which was deleted: its user must create another'
            )

    async def _machine_of(self, request: Object) -> Object:
        spec, namespace = request["spec"], request["metadata"]["namespace"]
        resource = self._references.dialect(spec["machineResource"]).workload
        machine: Object = await self._storage.get(resource, namespace, spec["machine"])
        return machine


def _is_denied(request: Object) -> bool:
    return bool(request["status"].get("denied"))


def _is_service_account(user: User) -> bool:
    users = (user, user.impersonated_by)
    return any(each and each.name.startswith(SERVICE_ACCOUNT_PREFIX) for each in users)


def _refusal(user: User, request: Object) -> str:
    name = request["metadata"]["name"]
    return f'consolerequests "{name}" is forbidden: user "{user.name}" cannot decide about it'
