"""Streams and logs of Pods that are machines, and refusals of changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from zope.interface import implementer

from twisted_exec.api.declared_reasons import check_reason
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.fields import shown
from twisted_exec.api.kinds import CONSOLE, PODS, machine_kind
from twisted_exec.api.kinds.consolerecordings import recorded_input
from twisted_exec.api.status import (
    BadRequest,
    MethodNotAllowed,
    NotFound,
    NotImplementedByBackend,
)
from twisted_exec.apiserver.consoles.routes import console_facts
from twisted_exec.apiserver.machine_pods.names import PodNames
from twisted_exec.apiserver.machine_pods.storage import READ_ONLY
from twisted_exec.apiserver.serving.query import Query
from twisted_exec.apiserver.serving.requests import query_of
from twisted_exec.apiserver.serving.rest import root_of
from twisted_exec.apiserver.serving.target import RequestTarget
from twisted_exec.auth.dispatcher import GatedRoutes
from twisted_exec.auth.subresources import EXEC, LOG
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.routes import RouteMatch
from twisted_exec.streaming.location import IStreamAdmission, Location
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.text.relay import Relay

_PODS = f"{root_of(PODS)}/namespaces/{{namespace}}/{PODS.resource.plural}"
_POD = f"{_PODS}/{{name}}"
_WORDS = {b"POST": "create", b"PUT": "replace", b"PATCH": "patch", b"DELETE": "delete"}
_OPTIONS = "--read-only, --force, --reason TEXT and --record or --record=INPUT"


@implementer(IStreamAdmission)
class MachineOfPod:
    """Admits users to the machine that a Pod shows."""

    def __init__(self, machines: Mapping[Dialect, IStreamAdmission]) -> None:
        self._machines = {
            machine_kind(dialect).resource: each for dialect, each in machines.items()
        }

    def admit(self, context: RequestContext) -> Deferred[Location]:
        return Deferred.fromCoroutine(self._admit(context))

    async def _admit(self, context: RequestContext) -> Location:
        target = context.target
        resource = target.kind.resource
        try:
            location: Location = await self._machines[resource].admit(context)
        except NotFound as error:
            # The user asked for a Pod. If only the pool of its machine is missing, the error stays.
            if error.details.get("kind") != resource.plural:
                raise
            *_, pod, _subresource = context.segments
            raise NotFound(PODS.resource.plural, pod) from None
        return location


@implementer(IStreamAdmission)
class MachinePodAdmission:
    """Admits users to ``.../pods/NAME/attach`` and ``.../pods/NAME/exec``."""

    def __init__(self, machines: IStreamAdmission) -> None:
        self._machines = machines

    def admit(self, context: RequestContext) -> Deferred[Location]:
        return Deferred.fromCoroutine(self._admit(context))

    async def _admit(self, context: RequestContext) -> Location:
        *_, pod, subresource = context.segments
        query = query_of(context)
        command = query.texts("command") if subresource == "exec" else []
        console, options = ConsoleCommand.of(command), context.options
        # Clients of Pods know no options of consoles: a command has them.
        context.options = replace(
            options,
            read_only=options.read_only or console.read_only,
            force=options.force or console.force,
            # A program that runs a command without input waits for its end.
            input_ended=subresource == "exec" and not query.flag("stdin") and not console.read_only,
        )
        if console.reason:
            context.learn(reason=check_reason(console.reason))
        if console.record is not None:
            context.demanded_input = recorded_input(console.record)
        # Authorize first: an unauthorized client must learn nothing else.
        location: Location = await self._machines.admit(context)
        check_container(query)
        if subresource == "exec" and console.problem:
            known = f"the command {CONSOLE} {console.problem}; its options are {_OPTIONS}"
            raise BadRequest(known if console.is_known else _no_commands(pod))
        _check_streams(query)
        return location


def check_container(query: Query) -> None:
    """
    Check the container that a request names.

    :raises BadRequest: it is another than the console.
    """
    container = query.text("container")
    if container not in ("", CONSOLE):
        raise BadRequest(
            f"container {shown(container)} is not valid: the only one is {CONSOLE}, the machine's "
            "serial console"
        )


@dataclass(frozen=True)
class ConsoleCommand:
    """
    The only command of a machine: ``console``, with options for which kubectl has none.

    :param is_known: the first word is ``console``.
    :param problem: why the command is not valid; empty if it is.
    :param record: the input to record; empty for the default, ``None`` for no recording.
    """

    is_known: bool = False
    problem: str = ""
    read_only: bool = False
    force: bool = False
    reason: str = ""
    record: str | None = None

    @classmethod
    def of(cls, command: Sequence[str]) -> ConsoleCommand:
        """Parse the words of a command; the options count also if the command is not valid."""
        first, *words = command or [""]
        rest = iter(words)
        parsed = cls(first == CONSOLE)
        problems = [] if parsed.is_known else ["is another command"]
        for word in rest:
            name, equals, value = word.partition("=")
            if word == "--read-only":
                parsed = replace(parsed, read_only=True)
            elif word == "--force":
                parsed = replace(parsed, force=True)
            elif name == "--record" and parsed.record is None:
                parsed = replace(parsed, record=value)
            elif name == "--reason" and not parsed.reason:
                parsed = replace(parsed, reason=value if equals else next(rest, ""))
                problems += ["has no text behind --reason"] * (not parsed.reason)
            elif name in ("--record", "--reason"):
                problems.append(f"has {name} twice")
            else:
                problems.append(f"has no option {shown(word)}")
        if parsed.read_only and parsed.force:
            problems.append("has either --read-only or --force")
        return replace(parsed, problem=next(iter(problems), ""))


def _no_commands(name: str) -> str:
    return (
        f"a serial console runs no commands: kubectl console {name} --run COMMAND types a command into "
        f"the shell there; kubectl attach -it {name}, or kubectl exec -it {name} -- {CONSOLE}, opens the console"
    )


def _check_streams(query: Query) -> None:
    if not any(query.flag(name) for name in ("stdin", "stdout", "stderr")):
        raise BadRequest("you must specify at least 1 of stdin, stdout, stderr")


def add_pod_consoles(
    routes: GatedRoutes, names: PodNames, dialects: Sequence[Dialect], proxy: Proxy, relay: Relay
) -> None:
    """Add ``pods/attach``, ``pods/exec`` and ``pods/log``."""
    facts = console_facts(dialects)

    def machine(subresource: str, match: RouteMatch[Any]) -> RequestTarget:
        dialect, name = names.machine(match.values["name"])
        return RequestTarget(machine_kind(dialect), match.values["namespace"], name, subresource)

    console, log = partial(machine, EXEC.name), partial(machine, LOG.name)
    for subresource in ("attach", "exec"):
        path = f"{_POD}/{subresource}"
        routes.add_session(["GET", "POST"], path, proxy.handle, target=console, session=facts)
    routes.add_session(["GET"], f"{_POD}/{LOG.name}", relay.handle, target=log, session=facts)


def add_refusals(routes: GatedRoutes, names: PodNames) -> None:
    """Add routes that refuse what a console lacks, and what a view does not allow."""
    read_only = partial(_read_only, names)
    routes.add(["GET", "POST"], f"{_POD}/portforward", _no_ports)
    routes.add(["POST", "DELETE"], _PODS, read_only)
    routes.add(["PUT", "PATCH", "DELETE"], _POD, read_only)
    routes.add(["PUT", "PATCH"], f"{_POD}/status", read_only)
    routes.add(["PUT", "PATCH"], f"{_POD}/ephemeralcontainers", _no_containers)


async def _no_ports(context: RequestContext) -> None:
    raise NotImplementedByBackend(
        f'no port of pod "{context.values["name"]}" can be forwarded: it is a machine, of which only the '
        "serial console can be reached"
    )


async def _no_containers(context: RequestContext) -> None:
    raise MethodNotAllowed(
        f'machine "{context.values["name"]}": {_no_commands(context.values["name"])}'
    )


async def _read_only(names: PodNames, context: RequestContext) -> None:
    request, values = context.request, context.values
    request.setHeader(b"Allow", b"GET")
    dialect, name = names.machine(values.get("name", ""))
    which = f'{dialect.noun} "{name}"' if name else dialect.workload.plural
    remedy = f"{_WORDS[request.method]} {which} in API group {dialect.group} instead"
    raise MethodNotAllowed(f"{READ_ONLY}: {remedy}")
