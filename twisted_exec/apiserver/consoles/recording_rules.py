"""
Admission of ConsoleRecordings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from twisted_exec.api import fields
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.fields import Cause
from twisted_exec.api.kinds import CONSOLEPOLICIES, CONSOLERECORDINGS, Object
from twisted_exec.api.kinds.consolerecordings import (
    CLOSED,
    ENDING,
    FAILED,
    SET_BY_SERVER,
    ended_spec,
)
from twisted_exec.api.kinds.consolerecordings import state_of as recording_state_of
from twisted_exec.api.status import (
    Conflict,
    Forbidden,
    Invalid,
)
from twisted_exec.apiserver.consoles.machine_references import MachineReferences
from twisted_exec.apiserver.interfaces import CREATE, UPDATE, Change, IAdmission
from twisted_exec.apiserver.serving.target import RequestTarget, attributes_of
from twisted_exec.auth.interfaces import IAuthorizer, User
from twisted_exec.recording.proof_lines import HeadContent, InvalidRecording, decode_head
from twisted_exec.storage.interfaces import IStorage

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
        metadata = recording["metadata"]
        for name in recording["spec"].get("policies", ()):
            policy = RequestTarget(CONSOLEPOLICIES, metadata["namespace"], name)
            updating = attributes_of(user, "update", policy)
            if not (await self._authorizer.authorize(updating)).allows_everything:
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
