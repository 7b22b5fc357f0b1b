"""Checks of a machine and of everything behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError

from twisted_exec.api.conditions import (
    CONSOLE_LINE,
    CONSOLE_STORED,
    POWER_SWITCHED,
    POWER_UNKNOWN,
    SERVER_OFF,
    condition_of,
    is_powered_off,
)
from twisted_exec.api.dialects import Dialect, missing_class, pool_labels
from twisted_exec.api.display import listed
from twisted_exec.api.kinds import EVENTS, SELFSUBJECTACCESSREVIEWS, Object
from twisted_exec.api.kinds.events import written
from twisted_exec.api.missing_right import MissingRight
from twisted_exec.api.obstacles import doctor_advice
from twisted_exec.api.status import APIError, Forbidden, NotFound, message_of
from twisted_exec.api.times import seconds
from twisted_exec.cli.advice import KUBECTL
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.console.approval import (
    AFTER_APPROVAL,
    approving,
    named,
    waiting_request,
)
from twisted_exec.cli.doctor.findings import Unusable
from twisted_exec.cli.doctor.remedies import (
    API_SERVER,
    LINE_OF_DRIVER,
    LINES,
    OUTPUT,
    POOLLET,
    RUNTIME,
    of_ending,
    of_policies,
    of_refusal,
    other_class,
    other_offer,
    other_pool,
)
from twisted_exec.cli.doctor.server_checks import ExaminedServer, undiscovered, why_of
from twisted_exec.cli.explanations import ask_for_role, grant, in_right_namespace
from twisted_exec.cli.refusal_texts import lacking_right
from twisted_exec.cli.suggestion import suggest_machine, suggest_pool
from twisted_exec.console.notices import RoleNotices, outage_of
from twisted_exec.kube.console import ConsoleOptions, open_console
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.kube.machine_requests import DOCTOR_AGENT, served_dialects
from twisted_exec.streaming.remotecommand.stream import ConsoleStream, ConsoleUser
from twisted_exec.wire.endings import LINE_LOST, Ending
from twisted_exec.wire.marks import Notice
from twisted_exec.wire.session_terms import Right
from twisted_exec.wire.stream_options import CONSOLE

LINE_SECONDS = 1.0
"""Time that a session must last to be good."""

CONSOLE_SUBRESOURCE = "console"
"""The virtual subresource whose verbs are the rights at a console."""

_LEFT_SECONDS = 5.0
_NO_CLASS = "MachineClassNotReady"
"""Reason of a machine's condition Ready."""
_MOST_NAMED, _MOST_REASONS = 10, 3


async def check_machine(
    server: ExaminedServer,
    client: CommandClient,
    name: str,
    among: Sequence[Dialect],
    user: str,
) -> None:
    """
    Check a machine and everything behind it.

    :raises Unusable: further checks cannot run.
    """
    await _MachineCheck(server, client, name, user).run(among)


class _MachineCheck:
    _dialect: Dialect

    def __init__(self, server: ExaminedServer, client: CommandClient, name: str, user: str) -> None:
        self._server, self._client, self._name = server, client, name
        self._user = user or "USER"
        self._namespace, self._report = server.config.namespace, server.report
        self._is_read = False  # the server has shown the machine to the user
        self._line_condition: Object = {}  # Ready, if it says that the line is broken
        self._way = ""  # to the console, if the machine's driver has chosen one
        self._lacks_console = False  # and the report says so
        self._observes = False  # and may not type
        self._unready, self._unready_remedy = "", ""  # message of Ready, otherwise

    async def run(self, among: Sequence[Dialect]) -> None:
        machine = await self._find(among)
        self._is_read = machine is not None
        await self._check_rights()
        usable = True
        if machine is not None:
            pool = await self._find_pool(machine)
            usable = await self._check_object(machine, pool)
            if self._dialect.pool_name(machine):
                usable = await self._check_pool(machine, pool) and usable
                await self._check_output(machine)
        if usable:
            await self._open_console()
        if self._line_condition:
            remedy = LINES.get(self._line_condition.get("reason", ""), LINE_OF_DRIVER)
            self._report.error("line", why_of(self._line_condition), remedy)

    @property
    def _named(self) -> str:
        return f'{self._dialect.noun} "{self._name}"'

    async def _find(self, among: Sequence[Dialect]) -> Object | None:
        try:
            served = await served_dialects(self._client, among)
        except APIError as problem:
            raise await undiscovered(self._server, self._client, problem, among) from None
        if not served:
            kinds = ", ".join(dict.fromkeys(each.workload.qualified for each in among))
            message = f"{self._server.config.server} has none of {kinds}"
            remedy = "choose the right cluster with --context, or the right kind with --dialect"
            raise self._report.fatal("api", message, remedy)
        listed = ", ".join(each.workload.qualified for each in served)
        self._report.ok("api", f"the server has {listed}")
        refusals = []
        for self._dialect in served:
            try:
                return await self._client.get(self._dialect.workload, self._name, self._namespace)
            except APIError as refused:
                refusals.append((refused, self._dialect))
        for refusal, self._dialect in refusals:
            if refusal.code == Forbidden.code:
                self._cannot_read("machine", f"{self._named} and its pool", refusal)
                return None
        first, self._dialect = refusals[0]
        if first.code != NotFound.code:
            remedy = "check the API server's log"
            raise self._report.fatal("machine", first.message, remedy)
        await self._check_rights()
        raise await self._missing()

    async def _missing(self) -> Unusable:
        workload = self._dialect.workload
        message = f'{self._named} not found in namespace "{self._namespace}"'
        hint = await suggest_machine(self._client, self._dialect, self._name, self._namespace)
        remedy = hint or f"see kubectl get {workload.plural} -A, and use -n NAMESPACE"
        return self._report.fatal("machine", message, remedy)

    async def _check_rights(self) -> None:
        plural = self._dialect.workload.plural
        try:
            allowed = await self._console_rights()
            self._lacks_console = not allowed
            for subresource in ("", "log"):
                status = await self._review("get", subresource)
                if status.get("allowed"):
                    allowed.append(f"get {plural}/{subresource}".removesuffix("/"))
                elif subresource or not self._lacks_console:  # roles for consoles include get
                    self._report.warning("rights", *self._lacking("get", subresource, status))
        except APIError as problem:
            message = f"the server does not say what this user may do: {problem.message}"
            self._report.skipped("rights", message)
            return
        if allowed:
            self._report.ok("rights", f"may {', '.join(allowed)} in namespace {self._namespace}")

    async def _console_rights(self) -> list[str]:
        plural = self._dialect.workload.plural
        opening = await self._review("create", "exec")
        rights = [f"create {plural}/exec"] if opening.get("allowed") else []
        for right in sorted(Right, reverse=True):
            status = await self._review(right.verb, CONSOLE_SUBRESOURCE)
            if status.get("allowed"):
                if right is Right.OBSERVE and not rights:
                    self._observes = True
                    message, remedy = self._lacking(Right.DRIVE.verb, CONSOLE_SUBRESOURCE, {})
                    self._report.warning("rights", f"{message}; --read-only works now", remedy)
                return [*rights, f"{right.verb} {plural}/{CONSOLE_SUBRESOURCE}"]
        if not rights:
            message, remedy = self._lacking("create", "exec", opening)
            if not self._is_read:
                remedy = in_right_namespace(self._namespace, remedy)
            self._report.error("rights", message, remedy)
        return rights

    def _lacking(self, verb: str, subresource: str, status: Object) -> tuple[str, str]:
        reason = str(status.get("reason") or status.get("evaluationError") or "")
        plural = self._dialect.workload.plural
        what = f"{verb} {plural}/{subresource}".removesuffix("/")
        message = f"may not {what} in namespace {self._namespace}"
        right = MissingRight(
            self._user, verb, self._dialect.group, plural, subresource, self._namespace
        )
        remedy = ask_for_role(right, observing_helps=not self._observes)
        return message + (f": {reason}" if reason else ""), remedy

    async def _review(self, verb: str, subresource: str) -> Object:
        attributes = {
            "namespace": self._namespace,
            "verb": verb,
            "group": self._dialect.group,
            "resource": self._dialect.workload.plural,
            "subresource": subresource,
            "name": self._name,
        }
        review = {"spec": {"resourceAttributes": attributes}}
        answer = await self._client.create(SELFSUBJECTACCESSREVIEWS.resource, review)
        return answer.get("status") or {}

    async def _find_pool(self, machine: Object) -> Object | APIError:
        """Return the machine's pool, or why it cannot be read; an empty object if the machine has none."""
        name = self._dialect.pool_name(machine)
        try:
            return await self._client.get(self._dialect.pool, name) if name else {}
        except APIError as refused:
            return refused

    async def _check_object(self, machine: Object, pool: Object | APIError) -> bool:
        name, dialect, report = self._name, self._dialect, self._report
        if "deletionTimestamp" in machine["metadata"]:
            remedy = "wait until it is gone, and create it again"
            report.error("machine", f"{self._named} is being deleted", remedy)
            return False
        state = str((machine.get("status") or {}).get("state") or "Unknown")
        ready = condition_of(machine, "Ready")
        is_unready = ready.get("status") in ("False", "Unknown")
        if is_powered_off(machine):
            remedy = KUBECTL.power_on(dialect, name, self._namespace)
            off = f"{self._named} is powered off"
            if condition_of(machine, POWER_SWITCHED).get("status") == "False":
                off = f"the console of {self._named} is closed by spec.power, which does not switch the machine itself"
            report.error("machine", off, remedy)
            return False
        if not dialect.pool_name(machine):
            await self._report_unplaced(machine)
            return False
        way = condition_of(machine, CONSOLE_LINE)
        self._way = f": {_message_of(way)}" if way.get("status") == "True" else ""
        if is_unready and _is_about_line(ready):
            self._line_condition = ready
        elif is_unready and not _is_missing(pool):  # otherwise the pool's error is the reason
            await self._report_unready(machine, state, ready)
            return True
        named = f'{dialect.pool_noun} "{dialect.pool_name(machine)}"'
        report.ok("machine", f"{self._named} is {state}, in {named}")
        return True

    async def _report_unplaced(self, machine: Object) -> None:
        dialect = self._dialect
        problem, remedy = await self._check_class(machine)
        # Events expire; the condition stays.
        why = await self._newest_warning(machine) or why_of(condition_of(machine, "Ready"))
        details = why if problem in why else "; ".join(filter(None, (problem, why)))
        message = f"{self._named} has no {dialect.pool_noun}" + (f": {details}" if details else "")
        self._report.error("machine", message, remedy or self._placing_remedy(machine, why))

    def _placing_remedy(self, machine: Object, why: str) -> str:
        dialect = self._dialect
        labels = pool_labels(dialect, machine)
        if labels and labels in why:
            kinds = dialect.pool.plural
            return (
                f"label a {dialect.pool_noun} (see kubectl get {kinds} --show-labels): kubectl label "
                f"{kinds} NAME {labels}; or change the {dialect.noun}'s spec.{dialect.pool_selector}"
            )
        return (
            f"see kubectl describe {dialect.pool.plural}; the scheduler assigns a pool as soon as one "
            f"fits. spec.{dialect.class_reference} is immutable: for another class, delete the "
            f"{dialect.noun} and create it again"
        )

    async def _report_unready(self, machine: Object, state: str, ready: Object) -> None:
        problem, remedy = await self._check_class(machine)
        if not remedy and ready.get("reason") == _NO_CLASS:
            remedy = other_offer(self._dialect, self._dialect.class_name(machine))
        message = f"{self._named} is {state} and not ready: {why_of(ready)}"
        if problem and problem not in message:
            message += f"; {problem}"
        event = await self._newest_warning(machine, unready=ready)
        message += f"; newest Warning Event: {event}" if event else ""
        plural = self._dialect.workload.plural
        describe = f"see kubectl describe {plural} {self._name} -n {self._namespace}"
        self._unready = _message_of(ready)
        is_remedy = ready.get("reason") == SERVER_OFF  # in its message
        mend = "do what the message says" if is_remedy else "mend what the message names"
        mend = f"{mend}; {describe}" if self._unready else describe
        self._unready_remedy = remedy or mend
        self._report.warning("machine", message, self._unready_remedy)

    async def _check_class(self, machine: Object) -> tuple[str, str]:
        """Return the problem of the machine's class, and the remedy; empty unless it is missing."""
        dialect, name = self._dialect, self._dialect.class_name(machine)
        if not name:
            return "", ""
        try:
            await self._client.get(dialect.workload_class, name)
        except APIError as refused:
            if refused.code != NotFound.code:
                self._cannot_read("machine", f'class "{name}"', refused)
                return "", ""
        else:
            return "", ""
        names: list[str] | None
        try:
            listed = await self._client.list(dialect.workload_class)
            names = [str(each["metadata"]["name"]) for each in listed["items"]]
        except APIError:
            names = None
        return missing_class(name, names), other_class(dialect, name)

    async def _newest_warning(self, machine: Object, *, unready: Object | None = None) -> str:
        """
        Return the machine's newest Warning Event; empty if there is none.

        :param unready: condition to which the Event must add something: it is not older, and says
            something else.
        """
        selector = f"involvedObject.uid={machine['metadata'].get('uid', '')},type=Warning"
        try:
            listed = await self._client.list(
                EVENTS.resource, self._namespace, field_selector=selector
            )
        except APIError as refused:
            if refused.code != NotFound.code:  # the server has Events
                self._cannot_read("machine", f"the Events of {self._named}", refused)
            return ""
        event: Object = max(filter(_message_of, listed["items"]), key=written, default={})
        if event and unready is not None:
            message = _message_of(unready)
            if written(event) < _changed(unready) or (message and message in _message_of(event)):
                return ""
        return why_of(event)

    async def _check_pool(self, machine: Object, pool: Object | APIError) -> bool:
        report, name = self._report, self._dialect.pool_name(machine)
        named = f'{self._dialect.pool_noun} "{name}"'
        if isinstance(pool, APIError):
            if not _is_missing(pool):
                self._cannot_read("pool", named, pool)
                return True
            message = f"{named} does not exist"
            if event := await self._newest_warning(machine):
                message = event if message in event else f"{message}; {event}"
            elif hint := await suggest_pool(self._client, self._dialect):
                message = f"{message}; {hint}"
            report.error("pool", message, other_pool(self._dialect))
            return False
        ready = condition_of(pool, "Ready")
        addresses = (pool.get("status") or {}).get("addresses") or []
        if not addresses:
            remedy = "start its poollet, or set its --addresses"
            report.error("pool", f"{named} reports no address", remedy)
            return False
        if ready.get("status") in (None, "True"):
            first = ", ".join(str(each.get("address")) for each in addresses[:4])
            report.ok("pool", f"{named} is at {first}")
        elif ready.get("reason") == "RuntimeUnreachable":
            message = f"{named} is not ready: {why_of(ready)}"
            report.error("runtime", message, RUNTIME)
        else:
            message = f"{named} is not ready: {why_of(ready)}"
            report.error("poollet", message, POOLLET)
        return True

    async def _check_output(self, machine: Object) -> None:
        """Report the machines of the pool whose output is not on the disk of their runtime."""
        machines = await self._unstored(machine)
        if not machines:
            return
        pool = f'{self._dialect.pool_noun} "{self._dialect.pool_name(machine)}"'
        conditions = (condition_of(each, CONSOLE_STORED) for each in machines)
        reasons = listed(dict.fromkeys(map(_message_of, conditions)), _MOST_REASONS, "; ")
        metadata = [each["metadata"] for each in machines]
        names = sorted(f"{each['namespace']}/{each['name']}" for each in metadata)
        message = f"in {pool}: {reasons}: {listed(names, _MOST_NAMED)}"
        self._report.warning("output", message, OUTPUT)

    async def _unstored(self, machine: Object) -> Sequence[Object]:
        """Return those machines of the pool whose output is not on disk, as far as the user may read them."""
        dialect = self._dialect
        pool = f"{dialect.pool_field}={dialect.pool_name(machine)}"
        selector = f"{pool},status.conditions.{CONSOLE_STORED}=False"
        for namespace in ("", self._namespace):
            try:
                found = await self._client.list(
                    dialect.workload, namespace, field_selector=selector
                )
            except APIError as refused:
                if refused.code == Forbidden.code:
                    continue
                break  # the server of another project does not know the selector
            return list(found["items"])
        is_stored = condition_of(machine, CONSOLE_STORED).get("status") != "False"
        return [] if is_stored else [machine]

    def _cannot_read(self, check: str, named: str, refused: APIError) -> None:
        """Report a part that is skipped: the user lacks a right, or the server fails."""
        message, remedy = f"cannot read {named}: {_why(refused)}", ""
        if (right := lacking_right(refused)) is not None and not right.namespace:
            remedy = ask_for_role(right)  # a role in the machine's namespace does not help
        if all(each.message != message for each in self._report.findings):
            self._report.skipped(check, message, remedy)

    async def _open_console(self) -> None:
        server, visitor = self._server, _Visitor()
        try:
            stream = await open_console(
                server.config,
                self._namespace,
                self._name,
                visitor,
                server.reactor,
                ConsoleOptions(
                    timeout_seconds=server.timeout_seconds,
                    stream=replace(CONSOLE, read_only=True),
                    among=[self._dialect],
                    agent=DOCTOR_AGENT,
                ),
            )
        except (APIError, KubeConfigError) as problem:
            await self._judge_refusal(problem)
            return
        await visitor.within(LINE_SECONDS, server.reactor)
        self._report.works("pool")
        self._report.ok("poollet", "forwards the console")
        self._report.ok("runtime", "serves the console")
        self._judge_line(visitor)
        stream.leave()
        await visitor.within(_LEFT_SECONDS, server.reactor)

    async def _judge_refusal(self, problem: APIError | KubeConfigError) -> None:
        advice = doctor_advice(self._name, self._namespace)
        message = message_of(problem).removesuffix(f"; {advice}")
        condition = _message_of(self._line_condition)
        if condition and condition in message:
            return  # run() reports the condition, which says the same
        if isinstance(problem, APIError):
            if await self._judge_policies(problem):
                return
            check, remedy = of_refusal(problem)
        else:
            check, remedy = "credentials", "correct what the message names"
        if check == "rights" and self._lacks_console:
            return
        if self._unready and self._unready in message:
            check, remedy = "machine", self._unready_remedy
            message = "its console cannot be opened"  # for the same reason
        elif check == "machine" and not remedy:
            remedy = KUBECTL.power_on(self._dialect, self._name, self._namespace)
        self._report.error(check, message, remedy)

    async def _judge_policies(self, refusal: APIError) -> bool:
        """Report the conditions of ConsolePolicies; return whether they refused the console."""
        found = of_policies(refusal, self._name, self._namespace, observes=self._observes)
        if found is None:
            return False
        if found.can_ask:  # nothing is broken
            message, remedy = f"was not opened: {found.message}", found.remedy
            request = await waiting_request(self._client, self._namespace, refusal)
            if request is not None:
                message = f"{message}; your {named(request)} waits"
                command = approving(self._namespace, request["metadata"]["name"])
                remedy = f"another user runs {command}; {AFTER_APPROVAL}"
            self._report.skipped("console", message, remedy)
        else:
            self._report.error("console", found.message, found.remedy)
        return True

    def _judge_line(self, visitor: _Visitor) -> None:
        ending = visitor.ending
        if ending is not None:
            message = ": ".join(filter(None, (ending.reason, ending.message)))
            remedy = of_ending(ending, self._dialect, self._name, self._namespace)
            self._report.error("line", f"the session ended at once: {message}", remedy)
        elif visitor.has_left:
            message = f"the connection to the API server was lost: {visitor.reason}"
            self._report.error("server", message, API_SERVER)
        elif self._line_condition:
            pass  # the session waits for the line; run() reports the condition
        elif visitor.notices.outage:  # newer than the condition
            self._report.error("line", visitor.notices.outage, LINES[LINE_LOST])
        else:
            output = "has output" if visitor.received else "was silent so far"
            message = f"is open, and {output}{self._way}"
            if self._way.startswith(f": {POWER_UNKNOWN}"):
                self._report.warning("line", message, LINE_OF_DRIVER)
            else:
                self._report.ok("line", message)


def _is_missing(found: Object | APIError) -> bool:
    return isinstance(found, APIError) and found.code == NotFound.code


def _message_of(obj: Object) -> str:
    return str(obj.get("message") or "")


def _changed(condition: Object) -> float:
    """Return when the status changed, in seconds since the epoch; 0 if the condition does not say."""
    try:
        return seconds(str(condition.get("lastTransitionTime")))
    except ValueError:
        return 0.0


def _is_about_line(ready: Object) -> bool:
    """Return whether a line is broken, maybe for a reason of its driver."""
    # A driver chooses its reason, and a condition has no further member: only the runtime's words tell what it is about.
    return ready.get("reason") in LINES or outage_of(_message_of(ready)) is not None


def _why(refused: APIError) -> str:
    """Return the right that a user lacks, and a namespace's role that has it; the message of other refusals."""
    right = lacking_right(refused)
    if right is None:
        return refused.message
    what = f"{right.verb} {right.resource}/{right.subresource}".removesuffix("/")
    if not right.namespace:
        return f"may not {what}"
    role, _ = grant(right)
    has = f"; the role {role} has this right" if role else ""
    return f"may not {what} in namespace {right.namespace}{has}"


class _Notices(RoleNotices):
    outage = ""

    def read(self, notice: Notice) -> None:
        super().read(notice)
        # A session without marks gets notices in its output, where they have no kind.
        if (outage := outage_of(notice.text)) is not None:
            self.outage = outage


class _Visitor(ConsoleUser):
    def __init__(self) -> None:
        self.received = 0
        self.notices = _Notices()
        self.ending: Ending | None = None
        self.reason = ""
        self.has_left = False
        self._waiting: Deferred[None] | None = None

    async def within(self, seconds: float, reactor: Any) -> None:
        if self.has_left:
            return
        self._waiting = Deferred()
        self._waiting.addTimeout(seconds, reactor)
        try:
            await self._waiting
        except TimeoutError:
            pass
        finally:
            self._waiting = None

    def attached(self, stream: ConsoleStream) -> None:
        """See ``ConsoleUser``."""

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self.notices.feed(data)

    def ended(self, ending: Ending) -> None:
        self.ending = ending

    def detached(self, reason: str) -> None:
        self.has_left, self.reason = True, reason
        if self._waiting is not None:
            self._waiting.callback(None)
