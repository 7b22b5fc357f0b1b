"""
Evaluation of ConsolePolicies, without I/O.

All policies that select a machine apply together: the session gets the strictest of their terms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from twisted_exec.api import fields, selectors
from twisted_exec.api.agents import is_agent
from twisted_exec.api.display import listed
from twisted_exec.api.kinds import Object
from twisted_exec.api.kinds.consolepolicies import (
    APPROVAL_REQUIRED,
    INPUT,
    NONE,
    NOT_ALLOWED,
    ONCE,
    POLICY_REQUIRED,
    REASON_REQUIRED,
    REQUIRED,
    STRICT,
)
from twisted_exec.api.kinds.consolerequests import (
    APPROVED,
    DELETED,
    DENIED,
    EXPIRED,
    PENDING,
    USED,
    WITHDRAWN,
    expiry,
    state_of,
    used_at,
)
from twisted_exec.api.kinds.hours import Hours, parse_hours
from twisted_exec.api.patterns import Pattern, PatternError, Search
from twisted_exec.api.selectors import LabelSelector
from twisted_exec.api.status import Forbidden
from twisted_exec.api.users import SERVICE_ACCOUNT_PREFIX
from twisted_exec.apiserver.interfaces import Applicant, RecordingDemand
from twisted_exec.auth import rbac
from twisted_exec.auth.interfaces import User
from twisted_exec.wire.session_terms import FULL, Right, Terms, stricter

_NAMED_POLICIES = 3
"""The most policies that the terms of a session name."""
_NAMED_REFUSALS = 5
_MOST_CAUSES = 20

_ACTS = {Right.OBSERVE: "observe", Right.DRIVE: "drive", Right.TAKEOVER: "take over"}
_PLAIN_REASON = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/#:-]{0,63}")
"""Reasons that a command may have without quotes."""
_OPTIONS = {Right.OBSERVE: "--read-only ", Right.DRIVE: "", Right.TAKEOVER: "--force "}
"""By which the client asks for a right, and for the approval that it needs."""


@dataclass(frozen=True)
class ParsedPolicy:
    """
    A parsed ConsolePolicy.

    :param subjects: ``("User", name)`` or ``("Group", name)`` of those whom it restricts; ``None`` for
        everybody.
    :param only_observes: it restricts its session to observe, and has no other condition for it.
    :param problem: why this server cannot evaluate it: then it refuses its sessions.
    """

    namespace: str
    name: str
    spec: Mapping[str, Any]
    selector: LabelSelector
    subjects: frozenset[tuple[str, str]] | None = None
    hours: Hours | None = None
    search: Search | None = None
    only_observes: bool = False
    problem: str = ""

    @property
    def strict(self) -> bool:
        """Return whether only the verbs of ``machines/console`` count."""
        return bool(self.spec.get("verbs") == STRICT)

    @property
    def requires_reason(self) -> bool:
        return bool(self.spec.get("reason") == REQUIRED)

    @property
    def requires_approval(self) -> bool:
        return bool(self.spec.get("approval", NONE) != NONE)

    def accepts(self, reason: str) -> bool:
        """Return whether a session may have a reason; empty: none."""
        if not self.requires_reason:
            return True
        return bool(reason) and (self.search is None or self.search.end_in(reason.encode()) >= 0)

    @property
    def selects_all(self) -> bool:
        """The policy applies to all machines of its namespace."""
        return self.selector == LabelSelector()

    def selects(self, machine: Object) -> bool:
        """Return whether the policy applies to a machine of its namespace."""
        return self.selector.matches(machine["metadata"].get("labels", {}))

    def binds(self, user: User) -> bool:
        """Return whether the policy restricts a user's sessions; if it cannot be evaluated, it does."""
        if self.subjects is None or self.problem:
            return True
        groups = (("Group", each) for each in user.groups)
        return ("User", user.name) in self.subjects or any(map(self.subjects.__contains__, groups))

    def of_session(self, wanted: Right) -> ParsedPolicy:
        """
        Return the policy for a session of a user whom it binds.

        :param wanted: the right that the session asks for.
        """
        if wanted > Right.OBSERVE or self.spec.get("restricts") != INPUT:
            return self
        return replace(self, spec={}, hours=None, search=None, only_observes=True)

    def __str__(self) -> str:
        return f'ConsolePolicy "{self.namespace}/{self.name}"'


def parsed(obj: Object) -> ParsedPolicy:
    """Parse a policy of the store."""
    spec, metadata = obj["spec"], obj["metadata"]
    policy = ParsedPolicy(metadata["namespace"], metadata["name"], spec, LabelSelector())
    try:
        policy = replace(policy, selector=selectors.of_object(spec.get("selector")))
        if spec.get("subjects"):
            subjects = frozenset(rbac.subjects(spec, policy.namespace))
            policy = replace(policy, subjects=subjects)
        if spec.get("hours"):
            week = parse_hours(spec["hours"], spec.get("timeZone", "UTC"))
            policy = replace(policy, hours=week)
        if spec.get("reasonPattern"):
            search = Search(Pattern(spec["reasonPattern"], is_regex=True))
            policy = replace(policy, search=search)
    except (ValueError, PatternError) as error:
        policy = replace(policy, problem=str(error))
    return policy


def evaluate(
    policies: Sequence[ParsedPolicy],
    requests: Sequence[Object],
    applicant: Applicant,
    machine: Object,
    right: Right,
    now: float,
) -> Terms:
    """
    Return the terms of a session, the strictest of all policies.

    :raises Forbidden: a policy refuses the session.
    """
    is_of_agent = is_agent(applicant.user.name)
    if is_of_agent and not _is_covered(policies):
        if applicant.wanted > Right.OBSERVE:
            check_agent(policies, applicant.user, machine)
        right = min(right, Right.OBSERVE)
    # An agent yields to people under any policy, and without one.
    own = replace(FULL, right=right, yields=is_of_agent)
    if not policies:
        return own
    valid = approvals(policies, requests, applicant, now)
    session = _Session(applicant, machine, right, requests, valid, now)
    terms, refusals = [own], []
    for policy in policies:
        try:
            terms.append(_terms(policy, session))
        except _Refused as refused:
            refusals.append(refused)
    if refusals:
        raise _forbidden(refusals)
    return replace(reduce(stricter, terms), policy=_names(policies))


def check_agent(policies: Iterable[ParsedPolicy], user: User, machine: Object) -> None:
    """
    Check that an agent may do more than observe a machine; anybody else may, as far as this goes.

    :param policies: that bind the user at the machine.
    :raises Forbidden: none of them has subjects, so nobody has set conditions for agents.
    """
    if not is_agent(user.name) or _is_covered(policies):
        return
    namespace = machine["metadata"]["namespace"]
    message = (
        f'agent "{user.name}" may only observe where no ConsolePolicy with subjects covers it: an administrator runs '
        f"kubectl apply -n {namespace} -f agents.yaml, a file in docs/howto of twisted-exec"
    )
    raise Forbidden(message, details={"causes": [{"reason": POLICY_REQUIRED, "message": message}]})


def _is_covered(policies: Iterable[ParsedPolicy]) -> bool:
    return any(policy.subjects is not None and not policy.problem for policy in policies)


def check_presence(policies: Iterable[ParsedPolicy], applicant: Applicant) -> None:
    """
    Check a session that these policies do not bind, but that others at the console would count as a person.

    :raises Forbidden: one of them requires several people, and the session's user does not count.
    """
    refusals = []
    for policy in policies:
        people = policy.spec.get("people", 1)
        if people > 1 and not policy.binds(applicant.user):
            try:
                _check_person(policy, people, applicant)
            except _Refused as refused:
                refusals.append(refused)
    if refusals:
        raise _forbidden(refusals)


def needs_use(policies: Iterable[ParsedPolicy]) -> bool:
    """Return whether a session uses up its approval."""
    return any(policy.spec.get("approval") == ONCE for policy in policies)


def approvals(
    policies: Sequence[ParsedPolicy],
    requests: Iterable[Object],
    applicant: Applicant,
    now: float,
) -> list[Object]:
    """
    Return the approved requests that count for a session, the best first.

    An approval for a reason does not count for a session with another reason.
    """

    def rank(request: Object) -> tuple[bool, bool, Right, float]:
        reason = applicant.reason or _reason(request)
        fits = all(policy.accepts(reason) for policy in policies)
        return "session" in request["status"], fits, _right(request), expiry(request)

    valid = [
        each
        for each in requests
        if _counts(each, applicant, now) and _is_for_reason(each, applicant)
    ]
    return sorted(valid, key=rank, reverse=True)


def reason_of(
    policies: Sequence[ParsedPolicy],
    requests: Iterable[Object],
    applicant: Applicant,
    now: float,
) -> str:
    """Return the reason of a session: its user's, or that of the approval which the policies need."""
    needed = any(each.requires_reason or each.requires_approval for each in policies)
    return _own_or_approved(
        applicant, approvals(policies, requests, applicant, now) if needed else []
    )


def needs_request(refusal: Forbidden) -> bool:
    """Return whether a session was refused because its user has not asked for an approval yet."""
    return any(
        cause["reason"] == APPROVAL_REQUIRED and "request" not in cause
        for cause in refusal.details.get("causes", ())
    )


def check_request(policies: Iterable[ParsedPolicy], request: Object, machine: Object) -> None:
    """
    Check that a session with the reason of a new request would be allowed to have it.

    :raises Forbidden: a policy requires another reason.
    """
    refusals = []
    for policy in policies:
        try:
            _check_reason(
                policy,
                _reason(request),
                _open(machine, "--request --reason TICKET", _right(request)),
            )
        except _Refused as refused:
            refusals.append(refused)
    if refusals:
        raise _forbidden(refusals)


@dataclass(frozen=True)
class _Problem:
    text: str
    remedy: str = ""
    cause: str = NOT_ALLOWED
    request: str = ""

    def as_cause(self) -> dict[str, str]:
        fields = {"reason": self.cause, "message": self.text, "request": self.request}
        return {name: value for name, value in fields.items() if value}


class _Refused(Exception):
    def __init__(self, *problems: _Problem) -> None:
        super().__init__(*problems)
        self.problems = problems


def _forbidden(refusals: Sequence[_Refused]) -> Forbidden:
    named = [problem for refused in refusals[:_NAMED_REFUSALS] for problem in refused.problems]
    needs_approval = any(each.cause == APPROVAL_REQUIRED for each in named)
    texts = [
        # The remedy for an approval gives the reason, too; a reason alone would be refused again.
        each.text
        if needs_approval and each.cause == REASON_REQUIRED
        else f"{each.text}{each.remedy}"
        for each in named
    ]
    more = len(refusals) - _NAMED_REFUSALS
    if more > 0:
        texts.append(f"and {more} more policies refuse it")
    problems = [problem for refused in refusals for problem in refused.problems]
    causes = [each.as_cause() for each in problems[:_MOST_CAUSES]]
    return Forbidden("; ".join(texts), details={"causes": causes})


@dataclass(frozen=True)
class _Session:
    """
    A session about which policies decide.

    :param requests: of its user for this machine.
    :param valid: the requests that count, the best first.
    """

    applicant: Applicant
    machine: Object
    right: Right
    requests: Sequence[Object]
    valid: Sequence[Object]
    now: float

    @property
    def wanted(self) -> Right:
        """The right for which the user asks, and may ask."""
        return min(self.right, self.applicant.wanted)

    @property
    def reason(self) -> str:
        return _own_or_approved(self.applicant, self.valid)


def _terms(policy: ParsedPolicy, session: _Session) -> Terms:
    if policy.problem:
        raise _refused(
            f"{policy} cannot be evaluated by this server: {policy.problem}; ask an administrator"
        )
    applicant, right, now = session.applicant, session.right, session.now
    if policy.only_observes:
        right = min(right, Right.OBSERVE)
    spec, ends, since = policy.spec, [_end_of_hours(policy, now)], applicant.since
    people = spec.get("people", 1)
    if people > 1:
        _check_person(policy, people, applicant)
    request = _requested(policy, session)
    if request is not None:
        ends.append(expiry(request))
        right = min(right, _right(request))
        since = min(since, used_at(request))  # also that of a session that was resumed
    if "maxSeconds" in spec:
        end = since + spec["maxSeconds"]
        if end <= now:
            raise _refused(f"{policy} allows sessions of at most {spec['maxSeconds']} seconds")
        ends.append(end)
    until = min(ends)
    return Terms(
        right=right,
        people=people,
        viewers=spec.get("viewers", 0),
        idle_seconds=spec.get("idleSeconds", 0),
        until=0 if until == float("inf") else int(until),
        policy=_names([policy]),
        input_rate=spec.get("inputBytesPerSecond", 0),
        yields=spec.get("yieldsToPeople", False),
    )


def _end_of_hours(policy: ParsedPolicy, now: float) -> float:
    if policy.hours is None:
        return float("inf")
    closes = policy.hours.closes(now)
    if closes is None:
        begins = policy.hours.text(policy.hours.opens(now))
        raise _refused(
            f"{policy} does not allow this console at this hour; its hours begin on {begins}"
        )
    return closes


def _requested(policy: ParsedPolicy, session: _Session) -> Object | None:
    problems: list[_Problem] = []
    request = None
    try:
        _check_reason(
            policy,
            session.reason,
            _open(session.machine, "--reason TICKET", session.wanted),
            f", or kubectl exec -it {_named(session.machine)} -- console --reason TICKET"
            if session.wanted > Right.OBSERVE
            else "",
        )
    except _Refused as refused:
        problems += refused.problems
    if policy.requires_approval:
        try:
            request = _approval(policy, session)
        except _Refused as refused:
            problems += refused.problems
    if problems:
        raise _Refused(*problems)
    return request


def _refused(text: str, remedy: str = "", cause: str = NOT_ALLOWED, request: str = "") -> _Refused:
    return _Refused(_Problem(text, remedy, cause, request))


def _check_reason(policy: ParsedPolicy, reason: str, command: str, otherwise: str = "") -> None:
    """
    Check a reason.

    :param command: gives a reason.
    :param otherwise: ends the message if there is no reason.
    """
    if policy.accepts(reason):
        return
    pattern = policy.spec.get("reasonPattern")
    needs = f"{policy} requires a reason" + (f" that matches {pattern}" if pattern else "")
    if policy.search is not None and (example := policy.search.example()):
        needs += f", such as {example}"
    raise _refused(
        f"{needs}, not {fields.shown(reason)}" if reason else needs,
        f": use {command}" + ("" if reason else otherwise),
        REASON_REQUIRED,
    )


def _check_person(policy: ParsedPolicy, people: int, applicant: Applicant) -> None:
    needs = f"{policy} requires {people} people at this console"
    _check_no_service_account(needs, applicant)
    if applicant.caller:
        raise _refused(f"{needs}, and impersonated users do not count: connect as yourself")


def _check_no_service_account(needs: str, applicant: Applicant) -> None:
    for name in (applicant.user.name, applicant.caller):
        if name.startswith(SERVICE_ACCOUNT_PREFIX):
            raise _refused(
                f"{needs}, and a ServiceAccount is not a person: use an account of your own"
            )


def _approval(policy: ParsedPolicy, session: _Session) -> Object:
    applicant, now = session.applicant, session.now
    approvers = policy.spec.get("approvers")
    hint = f" ({approvers})" if approvers else ""
    needs = f"{policy} requires the approval of another user{hint}"
    _check_no_service_account(needs, applicant)
    if session.valid:
        return session.valid[0]
    own = applicant.reason
    is_usable = policy.accepts(own) and _PLAIN_REASON.fullmatch(own) is not None
    options = f"--request --reason {own if is_usable else 'TICKET'}"
    ask = _open(session.machine, options, session.wanted)
    if applicant.session:  # it is open, so that a request which waits or was denied did not end it
        lost = _lost_approval(session)
        if lost is not None:
            raise _not_counting(needs, lost, session, ask)
        needs = f"{needs}, which this session does not have"
    of_reason = [each for each in session.requests if _is_for_reason(each, applicant)]
    of_others = [
        each
        for each in session.requests
        if _right(each) >= session.wanted and _counts(each, applicant, now)
    ]
    latest = _latest(of_reason or of_others or session.requests, session.wanted, now)
    if latest is not None and state_of(latest, now) not in (PENDING, APPROVED):
        waiting = [
            each
            for each in session.requests
            if state_of(each, now) == PENDING and _right(each) == session.wanted
        ]
        latest = _latest(waiting, session.wanted, now) or latest
    if latest is None:
        raise _refused(needs, f": request it with {ask}", APPROVAL_REQUIRED)
    name, namespace = latest["metadata"]["name"], latest["metadata"]["namespace"]
    status = latest.get("status", {})
    state = state_of(latest, now)
    if state == PENDING:
        is_of_right = _right(latest) == session.wanted
        otherwise = "" if is_of_right else f"; to {_ACTS[session.wanted]}, request it with {ask}"
        raise _refused(
            needs,
            f": {_your(latest, session)} waits for another user to run "
            f"twisted-exec request approve -n {namespace} {name}{otherwise}",
            APPROVAL_REQUIRED,
            name,
        )
    if _counts(latest, applicant, now):
        raise _refused(
            f"{needs}: that of {_your(latest, session)} is for the reason "
            f"{fields.shown(_reason(latest))}, not {fields.shown(applicant.reason)}",
            f": {'' if 'session' in status else 'give that reason or none, or '}request again with {ask}",
            APPROVAL_REQUIRED,
        )
    if state == APPROVED:  # for a session under another identity
        raise _refused(
            f'{needs}: request "{name}" is for another account of this name, or for a user who '
            "impersonates",
            f": make your own with {ask}",
            APPROVAL_REQUIRED,
        )
    raise _not_counting(needs, latest, session, ask)


def _not_counting(needs: str, request: Object, session: _Session, ask: str) -> _Refused:
    """Return the refusal of a session because a request counts no longer."""
    name, status = request["metadata"]["name"], request.get("status", {})
    by = status.get("decidedBy", "another user")
    remark = f" ({status['message']})" if status.get("message") else ""
    because = {
        DENIED: f"{by} denied it{remark}",
        WITHDRAWN: f"{by} withdrew the approval{remark}",
        USED: "its approval was for one session, which has begun",
        EXPIRED: "it has expired",
        DELETED: "it is being deleted",
    }[_state(request, session.applicant, session.now)]
    return _refused(
        f"{needs}: {_your(request, session)} does not count, {because}",
        f"; request again with {ask}",
        APPROVAL_REQUIRED,
        name,
    )


def _lost_approval(session: _Session) -> Object | None:
    """
    Return the approval that an open session had, and that counts no longer.

    That is the approval that the session has used, or of approvals for any session the last one to end.
    """
    applicant, now = session.applicant, session.now

    def is_lost(request: Object) -> bool:
        state, is_used = _state(request, applicant, now), "session" in request.get("status", {})
        return (
            state in (WITHDRAWN, EXPIRED, DELETED)
            and bool(
                request.get("status", {}).get("expirationTime")
            )  # only approvals have that time
            and (not is_used or _is_used_by(request, applicant))
            and _is_of(request, applicant)
        )

    def key(request: Object) -> tuple[bool, str]:
        status, deleted = request["status"], request["metadata"].get("deletionTimestamp", "")
        withdrawn = status.get("decisionTime", "") if status.get("denied") else ""
        return _is_used_by(request, applicant), deleted or withdrawn or status["expirationTime"]

    return max(filter(is_lost, session.requests), key=key, default=None)


def _state(request: Object, applicant: Applicant, now: float) -> str:
    """Return the state of a request for a session: a used approval expires for its own session."""
    state = state_of(request, now)
    is_over = state == USED and expiry(request) <= now and _is_used_by(request, applicant)
    return EXPIRED if is_over else state


def _latest(requests: Sequence[Object], wanted: Right, now: float) -> Object | None:
    """Return the request that a refusal names: rather one for the wanted right, and one that waits."""

    def key(request: Object) -> tuple[bool, bool, str, str]:
        metadata = request["metadata"]
        waits = state_of(request, now) in (PENDING, APPROVED)
        is_of_right = _right(request) == wanted
        return is_of_right, waits, metadata["creationTimestamp"], metadata["name"]

    return max(requests, key=key, default=None)


def _counts(request: Object, applicant: Applicant, now: float) -> bool:
    spec, status = request["spec"], request.get("status", {})
    if not status.get("approved") or status.get("denied") or expiry(request) <= now:
        return False
    if "deletionTimestamp" in request["metadata"]:  # finalizers may keep it
        return False
    if "session" in status and not _is_used_by(request, applicant):
        return False
    # Approvals are never by the user; this holds also for a store that was written by hand.
    decider = status.get("decidedBy", "")
    if decider in ("", spec.get("user"), spec.get("caller")) or is_agent(decider):
        return False
    return _is_of(request, applicant)


def _is_used_by(request: Object, applicant: Applicant) -> bool:
    """Return whether a session, or the session that it resumes, has used an approval."""
    status = request.get("status", {})
    users = {status.get("session"), status.get("previousSession")} - {None}
    # A session that is being resumed has not yet recorded its own id.
    return not users.isdisjoint((applicant.session, applicant.resumes))


def _is_of(request: Object, applicant: Applicant) -> bool:
    """Return whether a request is of the account of a session's user."""
    spec, user = request["spec"], applicant.user
    uid = spec.get("userUID", "")
    is_user = spec.get("user") == user.name and (not uid or not user.uid or uid == user.uid)
    return bool(is_user and spec.get("caller", "") == applicant.caller)


def _reason(request: Object) -> str:
    return str(request["spec"].get("reason", "")).strip(" ")


def _own_or_approved(applicant: Applicant, valid: Sequence[Object]) -> str:
    return applicant.reason or (_reason(valid[0]) if valid else "")


def _is_for_reason(request: Object, applicant: Applicant) -> bool:
    return not applicant.reason or _reason(request) in ("", applicant.reason)


def _right(request: Object) -> Right:
    return Right[str(request["spec"]["right"]).upper()]


def _names(policies: Sequence[ParsedPolicy]) -> str:
    return listed((f"{each.namespace}/{each.name}" for each in policies), _NAMED_POLICIES)


def _your(request: Object, session: _Session) -> str:
    """Return how a refusal names a request of the session's user."""
    right = _right(request)
    purpose = "" if right == session.wanted else f" to {_ACTS[right]}"
    return f'your request "{request["metadata"]["name"]}"{purpose}'


def _named(machine: Object) -> str:
    metadata = machine["metadata"]
    return f"-n {metadata['namespace']} {metadata['name']}"


def _open(machine: Object, options: str, right: Right) -> str:
    return f"kubectl console {_OPTIONS[right]}{options} {_named(machine)}"


def demand_of(policies: Iterable[ParsedPolicy]) -> RecordingDemand | None:
    """Return the strictest demand of the policies of a machine; ``None`` if they have none."""
    demands = [
        RecordingDemand(
            recording["input"],
            recording["mode"] == REQUIRED,
            recording["retentionDays"],
            (policy.name,),
        )
        for policy in policies
        if (recording := policy.spec.get("recording")) is not None
    ]
    return reduce(RecordingDemand.stricter, demands) if demands else None
