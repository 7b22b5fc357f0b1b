"""
Checks of a machine: rights, the objects, and the console through poollet and runtime.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError

from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import SELFSUBJECTACCESSREVIEWS, Object
from twisted_exec.api.status import APIError, Forbidden, NotFound, message_of
from twisted_exec.cli.doctor.report import Report, Unusable
from twisted_exec.cli.doctor.server import AGENT, Server
from twisted_exec.kube.client import KubeClient
from twisted_exec.kube.consoles.exec import open_console, served_dialects
from twisted_exec.kube.kubeconfig.client_config import KubeConfigError
from twisted_exec.streaming.remotecommand.client import ConsoleClient
from twisted_exec.wire.remotecommand.messages import Ending
from twisted_exec.wire.stream_options import CONSOLE

LINE_SECONDS = 1.0
"""A broken line ends the session at once; a session that lasts so long is good."""

_LEFT_SECONDS = 5.0


async def check_machine(
    server: Server, client: KubeClient, name: str, among: Sequence[Dialect]
) -> None:
    """
    Check a machine and everything behind it.

    :param among: its possible dialects.
    :raises Unusable: further checks cannot run.
    """
    await _MachineCheck(server, client, name).run(among)


class _MachineCheck:
    _dialect: Dialect

    def __init__(self, server: Server, client: KubeClient, name: str) -> None:
        self._server, self._client, self._name = server, client, name
        self._namespace, self._report = server.config.namespace, server.report

    async def run(self, among: Sequence[Dialect]) -> None:
        machine = await self._find(among)
        await self._check_rights()
        usable = machine is None or self._check_object(machine)
        pool = self._dialect.pool_name(machine) if machine is not None else ""
        if pool:
            await self._check_pool(pool)
        if usable:
            await self._open_console()

    async def _find(self, among: Sequence[Dialect]) -> Object | None:
        """Find the machine and its dialect; ``None`` if we may not read it."""
        try:
            served = await served_dialects(self._client, among)
        except APIError as problem:
            remedy = "check the rights of this user: discovery is for all authenticated users"
            raise self._report.fatal("api", problem.message, remedy) from None
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
                return None
        first, self._dialect = refusals[0]
        if first.code != NotFound.code:
            remedy = "check the API server's log"
            raise self._report.fatal("machine", first.message, remedy)
        await self._check_rights()
        raise await self._missing()

    async def _missing(self) -> Unusable:
        noun, workload = self._dialect.noun, self._dialect.workload
        message = f'{noun} "{self._name}" not found in namespace "{self._namespace}"'
        here = await self._names(self._namespace)
        others = await self._names("", f"metadata.name={self._name}")
        if others:
            namespaces = sorted(namespace for namespace, _ in others)
            remedy = f"it is in namespace {', '.join(namespaces)}: use -n {namespaces[0]}"
        elif near := difflib.get_close_matches(self._name, [name for _, name in here], 1):
            remedy = f"did you mean {near[0]}?"
        else:
            remedy = f"see kubectl get {workload.plural} -A, and use -n NAMESPACE"
        return self._report.fatal("machine", message, remedy)

    async def _names(self, namespace: str, field_selector: str = "") -> list[tuple[str, str]]:
        """Return namespaces and names of machines; none if we may not list."""
        workload = self._dialect.workload
        try:
            listed = await self._client.list(workload, namespace, field_selector=field_selector)
        except APIError:
            return []
        return [
            (str(each["metadata"].get("namespace", "")), str(each["metadata"].get("name", "")))
            for each in listed["items"]
        ]

    async def _check_rights(self) -> None:
        plural = self._dialect.workload.plural
        rights = (("create", "exec", True), ("get", "", False), ("get", "log", False))
        allowed = []
        for verb, subresource, is_needed in rights:
            what = f"{verb} {plural}/{subresource}" if subresource else f"{verb} {plural}"
            try:
                status = await self._review(verb, subresource)
            except APIError as problem:
                self._report.skipped("rights", f"the server does not answer: {problem.message}")
                return
            if status.get("allowed"):
                allowed.append(what)
                continue
            reason = str(status.get("reason") or status.get("evaluationError") or "")
            message = f"may not {what} in namespace {self._namespace}"
            message += f": {reason}" if reason else ""
            remedy = (
                "ask an administrator for it, such as: kubectl create rolebinding NAME "
                f"--clusterrole=edit --user=USER -n {self._namespace}"
            )
            if is_needed:
                self._report.error("rights", message, remedy)
            else:
                self._report.warning("rights", message, remedy)
        if allowed:
            self._report.ok("rights", f"may {', '.join(allowed)} in namespace {self._namespace}")

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

    def _check_object(self, machine: Object) -> bool:
        """Return whether a console can be opened."""
        name, dialect, report = self._name, self._dialect, self._report
        if "deletionTimestamp" in machine["metadata"]:
            remedy = "wait until it is gone, and create it again"
            report.error("machine", f"{name} is being deleted", remedy)
            return False
        if (machine.get("spec") or {}).get("power") == "Off":
            on = """-p '{"spec":{"power":"On"}}'"""
            remedy = (
                f"kubectl patch {dialect.workload.plural} {name} -n {self._namespace} "
                f"--type=merge {on}"
            )
            report.error("machine", f"{name} is powered off", remedy)
            return False
        if not dialect.pool_name(machine):
            remedy = (
                f"see the Events of kubectl describe {dialect.workload.plural} {name} "
                f"-n {self._namespace}, or set spec.{dialect.pool_reference}"
            )
            report.error("machine", f"{name} has no {dialect.pool_noun}", remedy)
            return False
        status = machine.get("status") or {}
        ready = _ready(machine)
        state = str(status.get("state") or "Unknown")
        if ready.get("status") in ("False", "Unknown"):
            why = ": ".join(filter(None, (ready.get("reason"), ready.get("message"))))
            remedy = f"kubectl describe {dialect.workload.plural} {name} -n {self._namespace}"
            report.warning("machine", f"{name} is {state} and not ready: {why}", remedy)
        else:
            report.ok(
                "machine", f"{name} is {state}, in {dialect.pool_noun} {dialect.pool_name(machine)}"
            )
        return True

    async def _check_pool(self, name: str) -> None:
        noun, report = self._dialect.pool_noun, self._report
        try:
            pool = await self._client.get(self._dialect.pool, name)
        except APIError as refused:
            if refused.code == NotFound.code:
                remedy = "start its poollet, which creates it, or assign the machine to another"
                report.error("pool", f"{noun} {name} does not exist", remedy)
            else:
                report.skipped("pool", f"cannot read it: {refused.message}")
            return
        ready = _ready(pool)
        why = ": ".join(filter(None, (ready.get("reason"), ready.get("message"))))
        addresses = (pool.get("status") or {}).get("addresses") or []
        if not addresses:
            remedy = "start its poollet, or set its --addresses"
            report.error("pool", f"{noun} {name} reports no address", remedy)
        elif ready.get("status") in (None, "True"):
            first = ", ".join(str(each.get("address")) for each in addresses[:4])
            report.ok("pool", f"{name} at {first}")
        elif ready.get("reason") == "RuntimeUnreachable":
            report.error("runtime", f"{noun} {name} is not ready: {why}", _RUNTIME)
        else:
            report.error("poollet", f"{noun} {name} is not ready: {why}", _POOLLET)

    async def _open_console(self) -> None:
        """Open the console as an observer, and leave it again."""
        server, visitor = self._server, _Visitor()
        try:
            stream = await open_console(
                server.config,
                self._namespace,
                self._name,
                visitor,
                server.reactor,
                timeout_seconds=server.timeout_seconds,
                options=replace(CONSOLE, read_only=True),
                among=[self._dialect],
                agent=AGENT,
            )
        except (APIError, KubeConfigError) as problem:
            _blame(self._report, problem)
            return
        await visitor.within(LINE_SECONDS, server.reactor)
        self._report.ok("poollet", "forwards the console")
        self._report.ok("runtime", "serves the console")
        self._judge_line(visitor)
        stream.leave()
        await visitor.within(_LEFT_SECONDS, server.reactor)

    def _judge_line(self, visitor: _Visitor) -> None:
        ending = visitor.ending
        if ending is not None:
            message = ": ".join(filter(None, (ending.reason, ending.message)))
            remedy = "see the console's log (kubectl logs), and the runtime's log"
            self._report.error("line", f"the session ended at once: {message}", remedy)
        elif visitor.has_left:
            remedy = "see the logs of the API server and of the poollet"
            self._report.error("line", f"the session was lost: {visitor.reason}", remedy)
        elif visitor.received:
            self._report.ok("line", "is open, and has output")
        else:
            self._report.ok("line", "is open, and was silent so far")


def _ready(obj: Object) -> Object:
    """Return the condition Ready; empty if there is none."""
    conditions = (obj.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each.get("type") == "Ready"), {})


_POOLLET = "see that exec-poollet runs and reaches the API server: its log, and /readyz"
_RUNTIME = "see that the runtime runs (its log), and --machine-runtime-endpoint of the poollet"
_HOPS: tuple[tuple[str, str, str], ...] = (
    ('pool "', "poollet", _POOLLET),
    ('fleet "', "poollet", _POOLLET),
    ("runtime", "runtime", _RUNTIME),
    ("not running yet", "runtime", _RUNTIME),
)
"""Text of a refusal, the part that it is about, and the remedy."""


def _blame(report: Report, problem: Exception) -> None:
    """Add a refused console to the report, under the name of the part that the message names."""
    message, code = message_of(problem), getattr(problem, "code", 0)
    if code == Forbidden.code:
        report.error("rights", message, "ask an administrator for the right that the message names")
        return
    for text, check, remedy in _HOPS:
        if text in message:
            report.error(check, message, remedy)
            return
    report.error("console", message, "see the log of the API server")


class _Visitor:
    """The user of a console who only looks whether it works."""

    def __init__(self) -> None:
        self.received = 0
        self.ending: Ending | None = None
        self.reason = ""
        self.has_left = False
        self._waiting: Deferred[None] | None = None

    async def within(self, seconds: float, reactor: Any) -> None:
        """Wait for the end of the session, at most for a time."""
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

    def attached(self, stream: ConsoleClient) -> None:
        """See ``ConsoleUser``."""

    def data_received(self, data: bytes) -> None:
        self.received += len(data)

    def ended(self, ending: Ending) -> None:
        self.ending = ending

    def detached(self, reason: str) -> None:
        self.has_left, self.reason = True, reason
        if self._waiting is not None:
            self._waiting.callback(None)
