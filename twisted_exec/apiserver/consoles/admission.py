"""
Admission of ConsoleRequests and ConsoleRecordings, and of labels that select ConsolePolicies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from twisted_exec.api import fields, times
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds import CONSOLEPOLICIES, CONSOLERECORDINGS, CONSOLEREQUESTS, Object
from twisted_exec.api.kinds.consolerecordings import (
    CLOSED,
    ENDING,
    FAILED,
    SET_BY_SERVER,
    ended_spec,
)
from twisted_exec.api.kinds.consolerecordings import state_of as recording_state_of
from twisted_exec.api.kinds.consolerequests import EXPIRED, PENDING, PENDING_SECONDS, state_of
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import (
    APIError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    TooManyRequests,
)
from twisted_exec.api.users import SERVICE_ACCOUNT_PREFIX
from twisted_exec.apiserver.consoles.policies import ConsolePolicies
from twisted_exec.apiserver.consoles.policy_evaluation import ParsedPolicy, check_request
from twisted_exec.apiserver.interfaces import CREATE, UPDATE, Change, IAdmission
from twisted_exec.auth.console_rights import CONSOLE
from twisted_exec.auth.gate import forbidden, hidden
from twisted_exec.auth.interfaces import Decision, IAuthorizer, User
from twisted_exec.auth.rules import Attributes
from twisted_exec.recording.chain import HeadContent, InvalidRecording, decode_head
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

    A session could not use an approval for a reason that a policy refuses, so the request is refused.

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
        key, user = key_of(event.obj), event.obj["spec"].get("user", "")
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
        check_request(self._policies.selecting(machine), request, machine)
        spec |= {"user": user.name, "machineUID": machine["metadata"]["uid"]}
        if user.uid:
            spec["userUID"] = user.uid
        if user.impersonated_by is not None:
            spec["caller"] = user.impersonated_by.name
        await self._check_number(user, metadata["namespace"])

    def _check_name(self, user: User, request: Object) -> None:
        self._forget_old()
        if self._deletions[user.name] >= MOST_DELETED:
            raise TooManyRequests(
                f'{self._deletions[user.name]} console requests of user "{user.name}" were deleted '
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
        now = self._now()
        pending = sum(
            each["spec"].get("user") == user.name and state_of(each, now) == PENDING
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
        requesters = {spec.get("user"), spec.get("caller")} - {None, ""}
        impersonator = user.impersonated_by
        if user.name in requesters or (user.uid and user.uid == spec.get("userUID")):
            raise Forbidden(f"{refusal}: another user must approve or deny it")
        if impersonator is not None and (
            impersonator.name in requesters
            or (impersonator.uid and impersonator.uid == spec.get("userUID"))
        ):
            raise Forbidden(
                f'{refusal}: user "{impersonator.name}", who created it, impersonates that user'
            )
        if _is_service_account(user):
            raise Forbidden(
                f"{refusal}: a ServiceAccount is not a person; approve with an account of your own"
            )
        await self._check_drive(user, request)

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
            raise Forbidden(
                f"{_refusal(user, request)}: an approver must be allowed to {Right.DRIVE.verb} "
                f'{resource.plural}/{CONSOLE} of "{spec["machine"]}" in the namespace "{namespace}"'
            )

    async def _check_machine(self, request: Object) -> None:
        spec, metadata = request["spec"], request["metadata"]
        resource = self._references.dialect(spec["machineResource"]).workload
        machine = await self._storage.get(resource, metadata["namespace"], spec["machine"])
        if machine["metadata"]["uid"] != spec["machineUID"]:
            raise Conflict(
                f'consolerequests "{metadata["name"]}" is for an earlier machine '
                f'"{spec["machine"]}", which was deleted: its user must create another'
            )


def _is_service_account(user: User) -> bool:
    users = (user, user.impersonated_by)
    return any(each and each.name.startswith(SERVICE_ACCOUNT_PREFIX) for each in users)


def _refusal(user: User, request: Object) -> str:
    name = request["metadata"]["name"]
    return f'consolerequests "{name}" is forbidden: user "{user.name}" cannot decide about it'


MOST_OPEN, MOST_RETAINED = 16, 1000
"""The most recordings of one machine that users create: open ones, and all."""


@implementer(IAdmission)
class RecordingRules:
    """
    Admission of ConsoleRecordings.

    Only users with the right to update a ConsolePolicy may delete or change a recording that it
    required: the editors and administrators of a namespace are under its policies.

    A signed head in the status, which is proof against a person with control of the runtime's host,
    is never replaced by an earlier one.

    :param now: seconds since the epoch.
    """

    def __init__(
        self,
        storage: IStorage,
        dialects: Sequence[Dialect],
        authorizer: IAuthorizer,
        now: Callable[[], float],
    ) -> None:
        self._storage, self._authorizer, self._now = storage, authorizer, now
        self._references = MachineReferences(storage, dialects, authorizer)

    def admit(self, change: Change) -> Deferred[None]:
        """As :meth:`IAdmission.admit`; sets what the server records, in place."""
        if change.kind is not CONSOLERECORDINGS:
            return succeed(None)
        return Deferred.fromCoroutine(self._admit(change))

    async def _admit(self, change: Change) -> None:
        old, new = change.old, change.new
        if change.operation == CREATE and new is not None:
            await self._created(change.user, new)
        elif change.operation == UPDATE and old is not None and new is not None:
            if change.subresource:
                _check_head(new, old)
                return
            await self._check_policies(change.user, old, "change")
            if new["spec"].get("ended") and not old["spec"].get("ended"):
                new["spec"] = ended_spec(
                    new["spec"], self._now(), f'user "{change.user.name}" ended it'
                )
        elif old is not None:
            await self._check_policies(change.user, old, "delete")

    async def _created(self, user: User, recording: Object) -> None:
        spec = recording["spec"]
        for key in (*SET_BY_SERVER, "ended"):
            spec.pop(key, None)
        machine = await self._references.find(user, recording, "console recording")
        dialect = self._references.dialect(spec["machineResource"])
        pool = dialect.pool_name(machine)
        if not pool:
            raise Conflict(
                f'{dialect.workload.qualified} "{spec["machine"]}" is not bound to a pool yet, and the '
                f"recording would not begin: wait for the scheduler or set spec.{dialect.pool_reference}"
            )
        await self._check_number(recording, machine)
        spec |= {"user": user.name, "machineUID": machine["metadata"]["uid"], "pool": pool}

    async def _check_number(self, recording: Object, machine: Object) -> None:
        namespace, uid = recording["metadata"]["namespace"], machine["metadata"]["uid"]
        listing = await self._storage.list(CONSOLERECORDINGS.resource, namespace, stale=True)
        states = [
            recording_state_of(each)
            for each in listing.items
            if each["spec"].get("machineUID") == uid and not each["spec"].get("endsWithSessions")
        ]
        open_ = [each for each in states if each not in (CLOSED, FAILED, ENDING)]
        for number, limit, which, verb in (
            (len(open_), MOST_OPEN, "open recordings", "end"),
            (len(states), MOST_RETAINED, "recordings", "delete"),
        ):
            if number >= limit:
                raise Forbidden(
                    f'{CONSOLERECORDINGS.resource.qualified} is forbidden: machine "{recording["spec"]["machine"]}" '
                    f"has {limit} {which}, the limit: {verb} one of them first"
                )

    async def _check_policies(self, user: User, recording: Object, verb: str) -> None:
        metadata, resource = recording["metadata"], CONSOLEPOLICIES.resource
        for name in recording["spec"].get("policies", ()):
            attributes = Attributes(
                user,
                "update",
                resource.group,
                resource.version,
                resource.plural,
                namespace=metadata["namespace"],
                name=name,
            )
            if not (await self._authorizer.authorize(attributes)).allows_everything:
                raise Forbidden(
                    f'{CONSOLERECORDINGS.resource.qualified} "{metadata["name"]}" is forbidden: ConsolePolicy '
                    f'"{metadata["namespace"]}/{name}" requires this recording, and user "{user.name}" cannot '
                    f"{verb} it without permission to update that policy; the server ends it after the "
                    "last session, and deletes it after its retention"
                )


def _check_head(new: Object, old: Object) -> None:
    before, after = old.get("status", {}), new.get("status", {})
    text = after.get("head", "")
    if text == before.get("head", ""):
        if before.get("head") and before.get("epoch") != after.get("epoch"):
            raise _invalid(
                new, after, "status.epoch", "must not change: a recording has one journal"
            )
        return
    try:
        head = _decoded(text)
    except InvalidRecording:
        raise _invalid(new, after, "status.head", "must be one line '# head ...'") from None
    if not before.get("head"):
        return
    stored = _decoded(before["head"])
    if stored.closed:
        raise _invalid(new, after, "status.head", "must not change after the recording was closed")
    if before.get("epoch") != after.get("epoch") or head.recording != stored.recording:
        raise _invalid(new, after, "status.head", "must be of the same recording and journal")
    is_earlier = head.block < stored.block or head.offset < stored.offset
    if is_earlier or (head.block == stored.block and head.chain != stored.chain):
        raise _invalid(
            new,
            after,
            "status.head",
            f"must continue the stored head, which is at block {stored.block} and offset {stored.offset}: "
            "the recording was cut, or made anew",
        )


def _decoded(text: str) -> HeadContent:
    return decode_head(text.encode("utf-8", "replace") + b"\n")[0]


def _invalid(recording: Object, status: Object, field: str, problem: str) -> Invalid:
    value = status.get(field.rpartition(".")[2], "")
    cause: Cause = fields.invalid(field, value, problem)
    resource = CONSOLERECORDINGS.resource
    return Invalid(resource.kind, recording["metadata"]["name"], [cause], resource.group)


class MachineReferences:
    """Finds the machine in ``spec.machine`` and ``spec.machineResource``."""

    def __init__(
        self, storage: IStorage, dialects: Sequence[Dialect], authorizer: IAuthorizer
    ) -> None:
        self._storage, self._authorizer = storage, authorizer
        self._dialects = {each.workload.qualified: each for each in dialects}

    def dialect(self, qualified: str) -> Dialect:
        """
        Return the dialect of a resource of machines.

        :raises BadRequest: the resource is not that of machines.
        """
        dialect = self._dialects.get(qualified)
        if dialect is None:
            served = ", ".join(self._dialects)
            raise BadRequest(f'spec.machineResource "{qualified}" is not served here: use {served}')
        return dialect

    async def find(self, user: User, obj: Object, noun: str) -> Object:
        """
        Return the machine of a new object, and note its resource in the object.

        The user needs a right at the machine, so that others do not learn whether it exists.
        """
        spec, namespace = obj["spec"], obj["metadata"]["namespace"]
        dialects = list(self._dialects.values())
        if "machineResource" in spec:
            dialects = [self.dialect(spec["machineResource"])]
        missing: NotFound | None = None
        refusal: APIError | None = None
        for resource in (each.workload for each in dialects):
            try:
                await self._check_visible(user, resource, namespace, spec["machine"], noun)
                machine = await self._storage.get(resource, namespace, spec["machine"])
            except NotFound as error:
                missing = missing or error
            except Forbidden as error:
                refusal = refusal or error
            else:
                spec["machineResource"] = resource.qualified
                return machine
        problem = missing or refusal
        assert problem is not None
        raise problem

    async def _check_visible(
        self, user: User, resource: Resource, namespace: str, name: str, noun: str
    ) -> None:
        reading = Attributes(
            user, "get", resource.group, resource.version, resource.plural, "", namespace, name
        )
        observing = replace(reading, verb=Right.OBSERVE.verb, subresource=CONSOLE)
        decision = Decision(False)
        for attributes in (reading, observing):
            decision = await self._authorizer.authorize(attributes)
            if decision.allows_everything:
                return
        if decision.hidden:
            raise hidden(observing, decision.reason)
        raise forbidden(observing, f"a {noun} needs this right, or get on the machine")


@implementer(IAdmission)
class PolicyLabels:
    """Requires the right to ``update`` a policy for labels that take a machine out of it."""

    def __init__(
        self, policies: ConsolePolicies, dialects: Sequence[Dialect], authorizer: IAuthorizer
    ) -> None:
        self._policies, self._authorizer = policies, authorizer
        self._machines = frozenset(each.workload for each in dialects)

    def admit(self, change: Change) -> Deferred[None]:
        if change.operation != UPDATE or change.kind.resource not in self._machines:
            return succeed(None)
        assert change.new is not None and change.old is not None
        before, after = (each["metadata"].get("labels", {}) for each in (change.old, change.new))
        if before == after:
            return succeed(None)
        return Deferred.fromCoroutine(self._check(change))

    async def _check(self, change: Change) -> None:
        assert change.new is not None and change.old is not None
        remaining = {policy.name for policy in self._policies.selecting(change.new)}
        for policy in self._policies.selecting(change.old):
            if policy.name not in remaining and not await self._may_update(change, policy):
                machine = change.old["metadata"]["name"]
                plural = change.kind.resource.qualified
                raise Forbidden(
                    f'{plural} "{machine}" is forbidden: without these labels {policy} would not '
                    f'apply to it any more, and user "{change.user.name}" cannot update that policy'
                )

    async def _may_update(self, change: Change, policy: ParsedPolicy) -> bool:
        resource = CONSOLEPOLICIES.resource
        attributes = Attributes(
            change.user,
            "update",
            resource.group,
            resource.version,
            resource.plural,
            namespace=policy.namespace,
            name=policy.name,
        )
        return bool((await self._authorizer.authorize(attributes)).allows_everything)
