"""
The tools of one user: arguments in, results out; what fails is explained with its remedy.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from twisted_exec.api.agents import AGENTS, is_agent
from twisted_exec.api.display import display_name
from twisted_exec.api.kinds.reviews import SELFSUBJECTREVIEWS
from twisted_exec.api.names import dns_label, dns_subdomain
from twisted_exec.api.status import APIError
from twisted_exec.cli.failures import InputError
from twisted_exec.cli.mcp.actions import Actor, Failed
from twisted_exec.cli.mcp.consoles import Consoles
from twisted_exec.cli.mcp.output import ANSWER_BYTES, FACTS_BYTES, marked, newest, printable
from twisted_exec.cli.mcp.protocol import failure, text_block
from twisted_exec.cli.mcp.reading import Facts, Reader, moment
from twisted_exec.cli.mcp.refusals import refused
from twisted_exec.cli.mcp.table import BY_NAME, TOOLS, Tool, faults, with_defaults
from twisted_exec.cli.messages import age, one_line
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, KubeConfigError
from twisted_exec.kube.transport import IdleConnections
from twisted_exec.tls.errors import TLSConfigError

_MOST_FAULTS = 4
_MOST_PEOPLE = 50
_LONGEST_MESSAGE = 900
_LONGEST_NAME = 64
_Result = tuple[Facts, list[str] | None]


class ConsoleTools:
    """
    The tools of one session of MCP.

    Each call uses the configuration of its beginning.  Consoles that are held stay with the one that opened them.

    :param current: returns the present configuration: the server and the user's identity; its namespace is the default.
    :param connections: to the server, of all users.
    """

    def __init__(
        self, current: Callable[[], ClientConfig], reactor: Any, connections: IdleConnections
    ) -> None:
        self._current, self._reactor, self._connections = current, reactor, connections
        self._consoles = Consoles(reactor)
        self._calls: _Calls | None = None

    def list(self) -> Sequence[Mapping[str, Any]]:
        return [tool.describe() for tool in TOOLS]

    def close(self) -> None:
        self._consoles.close()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        config = self._current()
        if self._calls is None or self._calls.config != config:
            # Not changed in place: a call that goes on must not act as a user that was not checked.
            self._calls = _Calls(config, self._consoles, self._reactor, self._connections)
        return await self._calls.call(name, arguments)


class _Calls:
    """
    The calls with one configuration.

    :param consoles: those of the session.
    """

    def __init__(
        self, config: ClientConfig, consoles: Consoles, reactor: Any, connections: IdleConnections
    ) -> None:
        self.config, self._consoles = config, consoles
        self._reader = Reader(config, reactor, connections)
        self._actor = Actor(self._reader, self._consoles, reactor)
        self._is_agent = False
        self._calls: Mapping[str, Callable[[str, str, Mapping[str, Any]], Awaitable[_Result]]] = {
            "list_machines": self._list_machines,
            "get_screen": self._get_screen,
            "read_log": self._reader.log,
            "wait_for": self._wait_for,
            "who_is_watching": self._who_is_watching,
            "request_access": self._request_access,
            "send": self._actor.send,
            "run": self._actor.run,
            "send_break": self._send_break,
            "power": self._power,
            "leave_console": self._leave_console,
            "start_recording": self._start_recording,
            "end_recording": self._end_recording,
        }

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        tool = BY_NAME[name]
        wrong = [
            fault for fault, _ in zip(faults(tool, arguments), range(_MOST_FAULTS), strict=False)
        ]
        if wrong:
            return failure(_message(f"{name}: {'; '.join(wrong)}"))
        complete = with_defaults(tool, arguments)
        machine = complete.get("machine", "")
        namespace = complete.get("namespace") or self.config.namespace
        for what, value, problem in (
            ("machine", machine, dns_subdomain(machine) if machine else ()),
            ("namespace", namespace, dns_label(namespace)),
        ):
            if problem:
                line = f'{name}: {what} "{value[:_LONGEST_NAME]}" is no name: {problem[0]}'
                if what == "machine" and (parts := _parts(value)):
                    line = f'{name}: use machine "{parts[1]}" with namespace "{parts[0]}"'
                return failure(_message(line))
        where = f"{namespace}/{machine}"
        try:
            await self._check_identity(tool)
            facts, rows = await self._calls[name](namespace, machine, complete)
        except Failed as problem:
            said = [_message(problem.line), _facts(where, problem.facts)]
            spare = ANSWER_BYTES - FACTS_BYTES - sum(len(line.encode()) for line in said)
            rows = newest(problem.rows, spare)
            blocks = [*said, marked(where, rows)] if rows else said
            return {"content": [text_block(block) for block in blocks], "isError": True}
        except (InputError, KubeConfigError, TLSConfigError) as problem:
            return failure(_message(str(problem)))
        except APIError as refusal:
            line = self._explain(refusal, tool, namespace, machine)
            if ending := self._consoles.endings.pop((namespace, machine), ""):
                line += f"; your last session there ended: {printable(one_line(ending))}"
            return failure(line)
        blocks = [_facts(where if machine else "", facts)]
        if rows is not None:
            blocks.append(marked(where, rows))
        return {"content": [text_block(block) for block in blocks], "isError": False}

    async def _check_identity(self, tool: Tool) -> None:
        """
        Refuse to act as a person: it would be the person who typed.

        :raises InputError: the user is no agent.
        """
        if self._is_agent or not tool.acts:
            return
        client = self._reader.client()
        try:
            review = await client.create(SELFSUBJECTREVIEWS.resource, {})
        finally:
            await client.close()
        info = (review.get("status") or {}).get("userInfo") or {}
        user, groups = str(info.get("username") or ""), info.get("groups") or ()
        if not (is_agent(user) and AGENTS in groups):
            raise InputError(
                f'{tool.name} needs the identity of an agent, and this is user "{one_line(user)}", for whom only the '
                "tools that read work: the person runs twisted-exec mcp login NAME, and gives this server the "
                "kubeconfig that it writes"
            )
        self._is_agent = True

    def _explain(self, refusal: APIError, tool: Tool, namespace: str, machine: str) -> str:
        config = replace(self.config, namespace=namespace)
        return _message(refused(refusal, tool, namespace, machine, config))

    # The calls.

    async def _list_machines(self, namespace: str, _: str, arguments: Mapping[str, Any]) -> _Result:
        everywhere = arguments.get("all_namespaces", False)
        selector, offset = arguments.get("label_selector", ""), arguments.get("offset", 0)
        return await self._reader.machines("" if everywhere else namespace, selector, offset), None

    async def _get_screen(self, namespace: str, name: str, arguments: Mapping[str, Any]) -> _Result:
        at = moment("at", arguments.get("at"))
        facts, rows = await self._reader.screen(namespace, name, at)
        return facts if at is not None else await self._with_state(facts, namespace, name), rows

    async def _wait_for(self, namespace: str, name: str, arguments: Mapping[str, Any]) -> _Result:
        facts, rows = await self._reader.wait(namespace, name, arguments)
        return facts if facts["matched"] else await self._with_state(facts, namespace, name), rows

    async def _with_state(self, facts: Facts, namespace: str, name: str) -> Facts:
        """Return facts with why nothing may happen at a machine: its power, and input that does not arrive."""
        if await self._reader.is_off(namespace, name):
            facts = {**facts, "power": "Off"}
        console = self._consoles.open_at((namespace, name))
        if console is not None and console.blocked:
            facts = {**facts, "input": f"does not arrive: {console.blocked}"}
        return facts

    async def _who_is_watching(self, namespace: str, name: str, _: Mapping[str, Any]) -> _Result:
        sessions = [
            {
                "user": display_name(person.user),
                "connected": not person.is_lost,
                **({"for": age(person.seconds)} if person.seconds is not None else {}),
            }
            for person in await self._reader.people(namespace, name)
        ]
        facts: Facts = {"sessions": sessions[:_MOST_PEOPLE], "count": len(sessions)}
        console = self._consoles.open_at((namespace, name))
        attendance = console.stream.attendance if console is not None else None
        if attendance is not None:
            facts["writer"] = attendance.writer or "nobody"
        return facts, None

    async def _request_access(
        self, namespace: str, name: str, arguments: Mapping[str, Any]
    ) -> _Result:
        return await self._actor.request(namespace, name, arguments), None

    async def _send_break(self, namespace: str, name: str, arguments: Mapping[str, Any]) -> _Result:
        return await self._actor.send_break(namespace, name, arguments.get("reason", "")), None

    async def _power(self, namespace: str, name: str, arguments: Mapping[str, Any]) -> _Result:
        return await self._actor.power(namespace, name, arguments["state"]), None

    async def _leave_console(self, namespace: str, name: str, _: Mapping[str, Any]) -> _Result:
        return await self._actor.leave(namespace, name), None

    async def _start_recording(
        self, namespace: str, name: str, arguments: Mapping[str, Any]
    ) -> _Result:
        reason = arguments.get("reason", "")
        return await self._actor.start_recording(namespace, name, reason), None

    async def _end_recording(
        self, namespace: str, name: str, arguments: Mapping[str, Any]
    ) -> _Result:
        recording = arguments.get("recording", "")
        return await self._actor.end_recording(namespace, name, recording), None


def _parts(value: str) -> tuple[str, str] | None:
    """Return the namespace and name of a machine that is named as in the facts of answers."""
    namespace, slash, name = value.partition("/")
    if not slash or [*dns_label(namespace), *dns_subdomain(name)]:
        return None
    return namespace, name


def _facts(where: str, facts: Facts) -> str:
    whole = {"machine": where, **facts} if where else facts
    return printable(json.dumps(whole, ensure_ascii=False))


def _message(text: str) -> str:
    line = printable(one_line(text))
    return line if len(line) <= _LONGEST_MESSAGE else f"{line[:_LONGEST_MESSAGE]}..."
