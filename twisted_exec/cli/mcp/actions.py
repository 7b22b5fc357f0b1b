"""
The tools that change something: typing, commands, BREAK, power, requests, recordings.

The API server decides whether the agent may.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.kinds import CONSOLEREQUESTS
from twisted_exec.api.kinds.consolerequests import (
    APPROVED,
    DENIED,
    EXPIRED,
    PENDING,
    WITHDRAWN,
    state_of,
)
from twisted_exec.api.status import APIError, NotFound
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.console.script import SETTLE_SECONDS, Expect, Script
from twisted_exec.cli.console.session import TIMED_OUT_CODE, Outcome
from twisted_exec.cli.console.shell_run import Remedies, ShellRun
from twisted_exec.cli.failures import InputError
from twisted_exec.cli.mcp.consoles import Consoles, HeldConsole
from twisted_exec.cli.mcp.keys import typed
from twisted_exec.cli.mcp.output import ANSWER_BYTES, newest_output
from twisted_exec.cli.mcp.reading import Facts, Reader, search_of
from twisted_exec.cli.mcp.refusals import MAY_ONLY_OBSERVE

QUIET_SECONDS = 0.5
"""A machine that prints nothing for this time has answered."""
MOST_QUIET_SECONDS = 3.0
_LOOK_SECONDS = 0.1
_STALLED_LOOKS = 50
"""So often, none of the input was delivered: the machine takes none at present."""
_LONGEST_PREFIX = 200
_MOST_REQUESTS = 8
"""So many requests for a machine are remembered."""
_BELOW = "shown below"
"""Stands for a line of the machine in a message: the answer has it where output belongs."""

REMEDIES = Remedies(
    force="a person",
    stop="send with keys ctrl-c stops it",
    log_in="log in first, with send",
    boot="use send, or boot a system first",
    answer="answer it first, with send",
    leave="leave it with send, such as with its key for that",
    run="run",
    earlier_run="run",
)


class Typing(Script):
    """
    Types once, and passes on what the machine prints until it has the input and is quiet.

    :param data: what to type.
    """

    def __init__(self, clock: IReactorTime, data: bytes) -> None:
        super().__init__(clock)
        self._data = data

    def _begin(self) -> None:
        self._type(self._data)
        self._await_delivery(0, 0)

    def _await_delivery(self, before: int, looks: int) -> None:
        """Wait for the quiet only when the machine has the input, which a policy may slow down."""
        undelivered = 0 if self._session is None else self._session.waiting_keys
        looks = 0 if undelivered != before else looks + 1
        if undelivered and looks < _STALLED_LOOKS:
            look = partial(self._await_delivery, undelivered, looks)
            self._timers.after("delivery", _LOOK_SECONDS, look)
            return
        self._timers.after("quiet", QUIET_SECONDS, self._finish)
        self._timers.after("limit", MOST_QUIET_SECONDS, self._finish)

    def _output(self, data: bytes, plain: bytes) -> bytes:
        self._timers.restart("quiet")
        return data

    def _finish(self) -> None:
        self._conclude(Outcome())


class _Answer(Expect):
    """Types, and waits for an answer, which must not be that to the keys of another user."""

    @property
    def _types(self) -> bool:
        return True


class _Run(ShellRun):
    """A run whose messages have no text of the machine."""

    @property
    def last_line(self) -> str:
        return _BELOW if super().last_line else ""

    @property
    def shown_line(self) -> bytes:
        return self._line


class _Printed:
    """What the machine printed during a call: the newest part."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._dropped_bytes = 0

    def take(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > 4 * ANSWER_BYTES:
            excess = len(self._data) - 2 * ANSWER_BYTES
            self._dropped_bytes += excess
            del self._data[:excess]

    def newest(self) -> tuple[list[str], int]:
        """Return the rows that fit into an answer, and how many bytes before them do not."""
        rows, omitted = newest_output(bytes(self._data))
        return rows, self._dropped_bytes + omitted


class Actor:
    """
    Acts as one user.

    :param consoles: those that are held.
    """

    def __init__(self, reader: Reader, consoles: Consoles, reactor: Any) -> None:
        self._reader, self._consoles, self._reactor = reader, consoles, reactor

    async def send(
        self, namespace: str, name: str, arguments: Mapping[str, Any]
    ) -> tuple[Facts, list[str]]:
        """Type, and return what is printed then."""
        try:
            data = typed(arguments.get("text", ""), arguments.get("keys", ()))
        except ValueError as problem:
            raise InputError(str(problem)) from None
        pattern = arguments.get("wait_for")
        script: Script = Typing(self._reactor, data)
        if (search := search_of(pattern)) is not None:
            script = _Answer(self._reactor, [data, ("wait_for", search)], limited=False)
        console = await self._open(namespace, name, arguments.get("reason", ""))
        facts, rows, outcome = await self._drive(console, script, arguments["timeout_seconds"])
        if search is not None:
            facts["matched"] = not outcome.exit_code
        if not await console.settled() and (waiting := console.waiting_keys):
            facts["warning"] = (
                f"the machine has not got the last {waiting} keys yet; they are typed while the session lasts"
            )
        if outcome.exit_code not in (0, TIMED_OUT_CODE):
            raise Failed(outcome.line, facts, rows)
        return facts, rows

    async def run(
        self, namespace: str, name: str, arguments: Mapping[str, Any]
    ) -> tuple[Facts, list[str]]:
        """Run a command, and return its output and exit code."""
        console = await self._open(namespace, name, arguments.get("reason", ""))
        try:
            script = _Run(
                self._reactor,
                arguments["command"],
                remedies=REMEDIES,
                machine=f'machine "{name}"',
                nonce=console.nonce,
            )
        except ValueError as problem:
            raise InputError(str(problem)) from None
        facts, rows, outcome = await self._drive(console, script, arguments["timeout_seconds"])
        if outcome.line:
            # The session goes on: an approval may be for this one alone, and the advice may be to type.
            raise Failed(outcome.line, facts, rows or newest_output(script.shown_line)[0])
        return {"exit_code": outcome.exit_code, **facts}, rows

    async def _open(self, namespace: str, name: str, reason: str) -> HeldConsole:
        return await self._consoles.at(self._reader.config, (namespace, name), reason)

    async def _drive(
        self, console: HeldConsole, script: Script, seconds: float
    ) -> tuple[Facts, list[str], Outcome]:
        printed = _Printed()
        script.denied = MAY_ONLY_OBSERVE
        before = console.position
        # A script first waits until the console is quiet.
        outcome = await console.drive(script, printed.take, seconds + SETTLE_SECONDS)
        facts: Facts = {}
        if (begin := console.began or before or console.first) is not None:
            facts |= {"epoch": begin.epoch, "offset": begin.offset}
        if not console.is_gone and (after := console.position) is not None:
            facts["next_offset"] = after.offset
        rows, omitted = printed.newest()
        if omitted:
            facts["omitted_bytes"] = omitted
        return facts, rows, outcome

    async def send_break(self, namespace: str, name: str, reason: str) -> Facts:
        """Send BREAK."""
        console = await self._open(namespace, name, reason)
        await console.send_break()
        return {"sent": "BREAK"}

    async def leave(self, namespace: str, name: str) -> Facts:
        """End the session at a console, when the machine has what was typed."""
        console = self._consoles.open_at((namespace, name))
        if console is None:
            return {"left": False}
        facts: Facts = {"left": True}
        if not await console.settled() and (waiting := console.waiting_keys):
            facts["warning"] = f"the machine may not get the last {waiting} keys"
        console.close()
        return facts

    async def power(self, namespace: str, name: str, state: str) -> Facts:
        """Power a machine on or off."""
        access = self._reader.access(namespace, name)
        async with access.client() as client:
            await access.set_power(client, state)
        return {"power": state}

    async def start_recording(self, namespace: str, name: str, reason: str) -> Facts:
        """Begin a recording."""
        access = self._reader.access(namespace, name)
        async with access.client() as client:
            recording = await access.record(client, reason)
            return {"recording": recording}

    async def end_recording(self, namespace: str, name: str, recording: str) -> Facts:
        """End a recording, or the only one."""
        access = self._reader.access(namespace, name)
        async with access.client() as client:
            if not recording:
                names = sorted(await access.open_recordings(client))
                if len(names) != 1:
                    there = ", ".join(names) or "none"
                    raise InputError(f"recordings of the machine that go on: {there}; name one")
                recording = names[0]
            await access.end_recording(client, recording)
        return {"ended": recording}

    async def request(self, namespace: str, name: str, arguments: Mapping[str, Any]) -> Facts:
        """
        Create a ConsoleRequest, or return what became of one.

        One that was denied, withdrawn or has expired is not made again with the same arguments, unless the agent
        says so.
        """
        client = self._reader.client()
        try:
            if named := arguments.get("request"):
                request = await client.get(CONSOLEREQUESTS.resource, named, namespace)
                if (machine := str(request["spec"].get("machine"))) != name:
                    raise InputError(
                        f'request "{named}" is for machine "{machine}", and not for "{name}"'
                    )
                return _about(request)
            known = await self._requested(client, namespace, name)
            reason = arguments.get("reason")
            same = [request for request in known if not reason or _is_for(request, arguments)]
            found = _live(same)
            if found is None and not arguments.get("again"):
                found = _newest(same, DENIED, WITHDRAWN, EXPIRED)
            if found is None:
                if not reason:
                    raise InputError(
                        "reason: say why you need the console, for the person who decides"
                    )
                found = await self._create(client, namespace, name, arguments)
            other = _live([request for request in known if request is not found])
            return _about(found) | ({} if other is None else {"other": _about(other)})
        finally:
            await client.close()

    async def _create(
        self, client: CommandClient, namespace: str, name: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        spec = {"machine": name, **{key: arguments[key] for key in ("right", "reason", "seconds")}}
        body = {"metadata": {"generateName": f"{name[:_LONGEST_PREFIX]}-"}, "spec": spec}
        request = await client.create(CONSOLEREQUESTS.resource, body, namespace)
        names = self._consoles.requests.setdefault((namespace, name), [])
        names.append(str(request["metadata"]["name"]))
        del names[:-_MOST_REQUESTS]
        return request

    async def _requested(
        self, client: CommandClient, namespace: str, name: str
    ) -> list[dict[str, Any]]:
        """Return the newest requests for a machine, the last one first, without those that were deleted."""
        requests = []
        for known in reversed(self._consoles.requests.get((namespace, name), ())):
            try:
                requests.append(await client.get(CONSOLEREQUESTS.resource, known, namespace))
            except APIError as refusal:
                if refusal.code != NotFound.code:
                    raise
        return requests


class Failed(Exception):
    """
    A call that failed when the machine had printed something.

    :param rows: as of :func:`~twisted_exec.cli.mcp.output.rows_of`.
    """

    def __init__(self, line: str, facts: Facts, rows: list[str]) -> None:
        super().__init__(line)
        self.line, self.facts, self.rows = line, facts, rows


def _is_for(request: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    """Return whether a request is for what a call asks for."""
    return all(request["spec"].get(key) == arguments[key] for key in ("right", "reason", "seconds"))


def _live(requests: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the newest request that is approved, or else the newest that waits."""
    return _newest(requests, APPROVED) or _newest(requests, PENDING)


def _newest(requests: Sequence[dict[str, Any]], *states: str) -> dict[str, Any] | None:
    """Return the first request that has one of these states; ``None`` if there is none."""
    now = time.time()
    return next((request for request in requests if state_of(request, now) in states), None)


def _about(request: Mapping[str, Any]) -> Facts:
    status = request.get("status") or {}
    facts: Facts = {
        "request": str(request["metadata"]["name"]),
        "state": state_of(dict(request), time.time()).lower(),
    }
    facts |= {
        key: request["spec"][key]
        for key in ("right", "reason", "seconds")
        if key in request["spec"]
    }
    for key in ("decidedBy", "expirationTime", "message"):
        if status.get(key):
            facts[key] = str(status[key])
    return facts
