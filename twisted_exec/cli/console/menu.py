"""
Commands of the escape menu that need a dialog.

Requests to the API server have the user's credentials: the server decides who may see and switch
machines.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from twisted_exec.api.conditions import POWER_SWITCHED, condition_of
from twisted_exec.api.dialects import Dialect
from twisted_exec.api.kinds import CONSOLEPOLICIES, CONSOLERECORDINGS
from twisted_exec.api.kinds.consolerecordings import CLOSED, FAILED
from twisted_exec.api.kinds.reviews import SELFSUBJECTACCESSREVIEWS
from twisted_exec.api.missing_right import MissingRight
from twisted_exec.api.resource import Resource
from twisted_exec.api.status import APIError, GatewayTimeout
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.console.dialog import Dialog, safe
from twisted_exec.cli.console.escape import EscapeCommand
from twisted_exec.cli.console.interfaces import NextSession
from twisted_exec.cli.console.pager import Pager
from twisted_exec.cli.console.scrollback import Scrollback
from twisted_exec.cli.console.space import who
from twisted_exec.cli.explanations import grant
from twisted_exec.control.polling import until
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.transport import IdleConnections
from twisted_exec.wire.notices import wrapped_and_cut

SECONDS = 10.0
"""Short, because the user waits."""
OFF_SECONDS = 90.0
"""Time limit for a machine to go off, before it is switched on again."""
LOOK_SECONDS = 1.0
BEGIN_SECONDS = 5.0
"""Time limit for a recording to begin, or to say why it does not."""

NO_SERVER = "This console comes from a runtime, not from an API server, which knows other machines, power and recordings."

NOT_SWITCHED = (
    "The power only opens and closes its console: its class does not switch the machine itself."
)

WHEN_OFF = "Open consoles wait a minute for its next start, then they end."
"""Users read this before they power a machine off; runtimes can set another time."""
WHEN_RESET = (
    "It is powered off, and on again when it has stopped; this console opens again after that."
)
"""The web console says the same."""

RECORDED = (
    "What the machine prints is kept, and of what is typed only what the machine echoes. The recording goes on "
    "until a user ends it."
)
"""The web console says the same."""

_LONGEST_PREFIX = 200
_RUNNING, _PENDING, _SHUTDOWN = "Running", "Pending", "Shutdown"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class PowerOfMachine:
    """
    What the API server says of a machine.

    :param power: the one that its users want: ``On`` or ``Off``.
    :param problem: why it is not ready; empty if it is.
    :param is_switched: false if the power only opens and closes the console.
    """

    state: str
    power: str
    problem: str
    is_switched: bool = True

    def text(self, name: str) -> str:
        """Return it as a message, with the power that is observed if that is another one."""
        line = f"Machine {name} is {self.state}; its power is {self.power}."
        is_as_wanted = self.power == "Off" and self.state == _SHUTDOWN
        if not self.problem or is_as_wanted:
            return line
        return f"{line}\nIt is not ready: {self.problem.rstrip('.')}."


@dataclass(frozen=True)
class MachineAccess:
    """
    The machine of a session, at its API server.

    :param config: with the namespace.
    :param connections: to share with others.
    """

    config: ClientConfig
    dialect: Dialect
    name: str
    agent: str
    reactor: Any
    connections: IdleConnections | None = None

    @asynccontextmanager
    async def client(self) -> AsyncIterator[CommandClient]:
        client = CommandClient(
            self.config,
            self.reactor,
            timeout_seconds=SECONDS,
            agent=self.agent,
            connections=self.connections,
        )
        try:
            yield client
        finally:
            await client.close()

    async def set_power(self, client: CommandClient, power: str) -> None:
        patch = {"spec": {"power": power}}
        await client.patch(self.dialect.workload, self.name, patch, self.config.namespace)

    async def may(self, client: CommandClient, verb: str, subresource: str = "") -> bool:
        """Return whether the user has a permission on the machine, as far as the server says so."""
        return await self._may(client, verb, self.dialect.workload, subresource, self.name)

    async def may_record(self, client: CommandClient) -> bool:
        """Return whether the user may begin a recording, as far as the server says so."""
        return await self._may(client, "create", CONSOLERECORDINGS.resource)

    async def may_play(self, client: CommandClient) -> bool:
        """Return whether the user may play recordings, as far as the server says so."""
        return await self._may(client, "get", CONSOLERECORDINGS.resource, "content")

    async def may_end_required(self, client: CommandClient) -> bool:
        """Return whether the user may end recordings that policies require, as far as the server says so."""
        return await self._may(client, "update", CONSOLEPOLICIES.resource)

    async def _may(
        self,
        client: CommandClient,
        verb: str,
        resource: Resource,
        subresource: str = "",
        name: str = "",
    ) -> bool:
        attributes = {
            "namespace": self.config.namespace,
            "verb": verb,
            "group": resource.group,
            "resource": resource.plural,
            "subresource": subresource,
            "name": name,
        }
        review = {"spec": {"resourceAttributes": attributes}}
        try:
            answer = await client.create(SELFSUBJECTACCESSREVIEWS.resource, review)
        except APIError:
            return True  # the server decides when the user goes on
        return bool((answer.get("status") or {}).get("allowed", True))

    async def grant(
        self, client: CommandClient, verb: str, subresource: str = ""
    ) -> tuple[str, str]:
        """
        Return the smallest role with a permission on the machine, and the command that grants it.
        """
        return await self._grant(client, verb, self.dialect.workload, subresource)

    async def grant_recording(self, client: CommandClient) -> tuple[str, str]:
        """Return the smallest role that may begin a recording, and the command that grants it."""
        return await self._grant(client, "create", CONSOLERECORDINGS.resource)

    async def _grant(
        self, client: CommandClient, verb: str, resource: Resource, subresource: str = ""
    ) -> tuple[str, str]:
        user = await who(client) or "USER"
        right = MissingRight(
            user, verb, resource.group, resource.plural, subresource, self.config.namespace
        )
        role, command = grant(right)
        return role, safe(command)

    async def grant_playing(self, client: CommandClient) -> tuple[str, str]:
        """Return the smallest role that may play recordings, and the command that grants it."""
        return await self._grant(client, "get", CONSOLERECORDINGS.resource, "content")

    async def record(self, client: CommandClient, reason: str = "") -> str:
        """Begin a recording of the machine; return its name."""
        spec = {
            "machine": self.name,
            "machineResource": self.dialect.workload.qualified,
            "input": "masked",
            **({"reason": reason} if reason else {}),
        }
        body = {"metadata": {"generateName": f"{self.name[:_LONGEST_PREFIX]}-"}, "spec": spec}
        made = await client.create(CONSOLERECORDINGS.resource, body, self.config.namespace)
        return str(made["metadata"]["name"])

    async def await_recording(self, client: CommandClient, name: str) -> str:
        """Wait until a recording begins or cannot begin, for a limited time; return what the user reads."""
        status: dict[str, Any] = {}

        async def is_known() -> bool:
            read = await client.get(CONSOLERECORDINGS.resource, name, self.config.namespace)
            status.update(read.get("status") or {})
            return bool(status.get("phase") or status.get("message"))

        with suppress(APIError):  # a user may begin some, and not read them
            await until(is_known, self.reactor, LOOK_SECONDS, BEGIN_SECONDS)
        phase, message = (str(status.get(key) or "") for key in ("phase", "message"))
        recording, why = f"The recording {safe(name)}", safe(message).rstrip(".")
        if phase == FAILED:
            return f"{recording} has failed: {why}."
        if phase:
            return f"{recording} has begun. ~R ends it."
        if why:
            later = "It begins by itself as soon as that is possible; ~R ends it."
            return f"{recording} has not begun: {why}. {later}"
        return f"{recording} begins. ~R ends it."

    async def open_recordings(self, client: CommandClient) -> dict[str, bool]:
        """Return the names of the machine's recordings that go on, and whether the user may end each."""
        resource = CONSOLERECORDINGS.resource
        listed = await client.list(resource, self.config.namespace, trim=lambda each: each)
        required = {
            str(each["metadata"]["name"]): bool((each.get("spec") or {}).get("policies"))
            for each in listed["items"]
            if self._goes_on(each)
        }
        may_end = not any(required.values()) or await self.may_end_required(client)
        return {name: may_end or not required[name] for name in sorted(required)}

    def _goes_on(self, recording: dict[str, Any]) -> bool:
        spec = recording.get("spec") or {}
        phase = (recording.get("status") or {}).get("phase")
        is_of_machine = (
            spec.get("machine") == self.name
            and (spec.get("machineResource") or self.dialect.workload.qualified)
            == self.dialect.workload.qualified
        )
        return is_of_machine and not spec.get("ended") and phase not in (CLOSED, FAILED)

    async def end_recording(self, client: CommandClient, name: str) -> None:
        """End a recording."""
        patch = {"spec": {"ended": True}}
        await client.patch(CONSOLERECORDINGS.resource, name, patch, self.config.namespace)

    async def read(self, client: CommandClient) -> PowerOfMachine:
        machine = await client.get(self.dialect.workload, self.name, self.config.namespace)
        ready = condition_of(machine, "Ready")
        problem = str(ready.get("message") or "") if ready.get("status") == "False" else ""
        power = str(machine.get("spec", {}).get("power") or "On")
        is_switched = condition_of(machine, POWER_SWITCHED).get("status") != "False"
        return PowerOfMachine(_state(machine), power, safe(problem), is_switched)


async def act(
    command: EscapeCommand,
    dialog: Dialog,
    scrollback: Scrollback,
    machine: str,
    access: MachineAccess | None,
) -> NextSession | None:
    """
    Carry out a command; of a takeover only the explanation of its refusal.

    :param access: ``None`` without an API server.
    :raises APIError: the server refuses a request.
    """
    if command in _SERVER_COMMANDS:
        if access is None:
            dialog.tell(NO_SERVER)
            return None
        return await _SERVER_COMMANDS[command](dialog, access)
    if command is EscapeCommand.TAKE_OVER:
        if access is not None:
            await _explain_takeover(dialog, access)
        return None
    lines = scrollback.lines()
    name = f"{_UNSAFE.sub('_', machine)}-{time.strftime('%Y%m%d-%H%M%S')}.log"
    if command is EscapeCommand.SAVE:
        with suppress(OSError):  # it was deleted
            dialog.tell(
                f"A name without a directory is a file in {safe(os.getcwd())}. Ctrl-C cancels."
            )
        question = f"Save {_count(lines)} in [{name}]: "
        path = await dialog.line(question)
        while path is not None and (problem := _write(lines, path or name)):
            dialog.tell(f"{problem}; give another name.")
            path = await dialog.line(question)
        dialog.tell("Nothing was saved." if path is None else _saved(lines, path or name))
        return None
    sought = ""
    if command is EscapeCommand.SEARCH and not (sought := await dialog.line("Search for: ") or ""):
        return None
    pager = Pager(lines, dialog.size)
    if sought:
        pager.search(sought)
    if pager.message:
        dialog.tell(f'No line has "{sought}".')
        return None
    await dialog.view(pager, partial(_write_or_explain, lines), name)
    return None


async def page_through(dialog: Dialog, lines: Sequence[str]) -> None:
    """Show a long message, broken at blanks, in a view that begins at its first line."""
    pager = Pager(lines, dialog.size, wrapped_and_cut)
    pager.press("g")
    name = f"message-{time.strftime('%Y%m%d-%H%M%S')}.txt"
    await dialog.view(pager, partial(_write_or_explain, lines), name)


def _write_or_explain(lines: Sequence[str], path: str) -> str:
    return _write(lines, path) or _saved(lines, path)


def _write(lines: Sequence[str], path: str) -> str:
    """Write lines into a new, private file; return the problem, or empty."""
    try:
        file = os.open(os.path.expanduser(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(file, "w", encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for line in lines)
    except FileExistsError:
        return f"{safe(path)} exists, and is left as it is"
    except (OSError, ValueError) as problem:
        return f"{safe(path)} cannot be written: {getattr(problem, 'strerror', None) or problem}"
    return ""


def _saved(lines: Sequence[str], path: str) -> str:
    return f"Saved {_count(lines)} in {safe(os.path.abspath(os.path.expanduser(path)))}."


def _count(lines: Sequence[str]) -> str:
    return "1 line" if len(lines) == 1 else f"{len(lines)} lines"


async def _explain_takeover(dialog: Dialog, access: MachineAccess) -> None:
    async with access.client() as client:
        with dialog.waiting("asking the server who grants it"):
            verb = "takeover" if await access.may(client, "drive", "console") else "drive"
            role, command = await access.grant(client, verb, "console")
    dialog.tell(f"An administrator grants the role {role} so: {command}")


async def _switch(dialog: Dialog, access: MachineAccess) -> NextSession | None:
    namespace = access.config.namespace
    async with access.client() as client:
        with dialog.waiting("asking the server for the machines"):
            listed = await client.list(access.dialect.workload, namespace, trim=_short)
    states = {safe(each["metadata"]["name"]): _state(each) for each in listed["items"]}
    machines, heading = sorted(states), f"Machines in namespace {namespace}:"
    while True:
        names = machines[: dialog.size.rows - 2]  # between the heading and the question
        if len(machines) > len(names):
            names = machines[: max(1, dialog.size.rows - 3)]
        width = max(map(len, names), default=0)
        rows = [
            f"  {number:>2}  {name:<{width}}  {states[name]}{'  (this one)' * (name == access.name)}"
            for number, name in enumerate(names, 1)
        ]
        if len(machines) > len(names):
            rows.append(f"  and {len(machines) - len(names)} more: type a part of the name")
        dialog.tell("\n".join([heading, *rows]))
        text = await dialog.line("Switch to (number or name; Enter stays here): ")
        if not text:
            return None
        if text.isascii() and text.isdigit() and 0 < int(text[:9]) <= len(names):
            text = machines[int(text) - 1] if text not in states else text
        matches = [text] if text in states else [name for name in sorted(states) if text in name]
        if len(matches) == 1:
            if matches[0] != access.name:
                return NextSession(matches[0])
            dialog.tell(f"This is the console of {access.name}.")
            return None
        if matches:
            machines = matches
            heading = f'{len(matches)} names in namespace {namespace} have "{safe(text)}" in them:'
        else:
            dialog.tell(f'No name in namespace {namespace} has "{safe(text)}" in it.')


async def _power(dialog: Dialog, access: MachineAccess) -> NextSession | None:
    name = access.name
    async with access.client() as client:
        with dialog.waiting(f"asking the server about {name}"):
            machine = await access.read(client)
            may_switch = await access.may(client, "patch")
            role, command = ("", "") if may_switch else await access.grant(client, "patch")
        dialog.tell(machine.text(name))
        if not may_switch:
            dialog.tell(
                f"You may not change it; ask an administrator for the role {role}: {command}"
            )
            return None
        if machine.state == _PENDING and machine.power != "Off":
            dialog.tell("It has not started yet: there is nothing to power off or to reset.")
            return None
        effects = {
            "f": f"Power off {name}? The programs of the machine end. {WHEN_OFF}",
            "r": f"Reset {name}? The programs of the machine end. {WHEN_RESET}",
        }
        offer = "f off, r reset (off and on)"
        if not machine.is_switched:
            dialog.tell(NOT_SWITCHED)
            effects = {"f": f"Close the console of {name}? The machine itself goes on. {WHEN_OFF}"}
            offer = "f off (closes the console)"
        if machine.power == "Off":
            effects, offer = {"o": ""}, "o on"  # nothing is lost by that
        choice = await dialog.key(f"Power: {offer}; any other key cancels: ")
        if effect := effects.get(choice):
            dialog.tell(effect)
            if await dialog.key("y confirms; any other key cancels: ") != "y":
                choice = ""
        if choice not in effects:
            keys = ("o", "f", "r") if machine.is_switched else ("o", "f")
            why = f": it is {machine.power} already" if choice in keys else ""
            dialog.tell(f"The power was not changed{why}.")
            return None
        power = "On" if choice == "o" else "Off"
        with dialog.waiting(f"asking the server to power {name} {power.lower()}"):
            # The server says now whether the user may switch it.
            await access.set_power(client, power)
    if choice == "r":
        return NextSession(name, reset=True)
    if machine.is_switched:
        dialog.tell(f"{name} is being powered {power.lower()}.")
    else:
        opened = "opened" if power == "On" else "closed"
        dialog.tell(f"The console of {name} is being {opened}; the machine itself is not switched.")
    return None


async def _record(dialog: Dialog, access: MachineAccess) -> NextSession | None:
    recordings: dict[str, bool] = {}
    plays = ""
    async with access.client() as client:
        with dialog.waiting("asking the server about recordings"):
            may_record = await access.may_record(client)
            role, command = ("", "") if may_record else await access.grant_recording(client)
            with suppress(APIError):  # a user may begin some, and not list them
                recordings = await access.open_recordings(client) if may_record else {}
            if may_record and not await access.may_play(client):
                player, right = await access.grant_playing(client)
                plays = f" You may not play it; to do so, ask an administrator for the role {player}: {right}"
    if not may_record:
        dialog.tell(
            f"You may not record {access.name}; ask an administrator for the role {role}: {command}"
        )
        return None
    if recordings:
        dialog.tell(f"Recordings of {access.name} that go on: {', '.join(map(safe, recordings))}")
        names = [name for name, may_end in recordings.items() if may_end]
        for name in recordings.keys() - names:
            dialog.tell(
                f"{safe(name)} ends after the last session; only users who may update its policy can end it earlier."
            )
        last = "r begins another recording; any other key cancels: "
        if names:
            which = f"the recording {safe(names[0])}" if len(recordings) > 1 else "it"
            last = f"e ends {which if len(names) == 1 else 'the one that you name'}; {last}"
        key = await dialog.key(last)
        if key == "e" and names:
            await _end_recording(dialog, access, names)
            return None
        if key != "r":
            dialog.tell("Nothing was changed.")
            return None
    dialog.tell(f"Record {access.name}? {RECORDED}{plays}")
    if await dialog.key("y begins the recording; any other key cancels: ") != "y":
        dialog.tell("No recording was begun.")
        return None
    async with access.client() as client:
        with dialog.waiting(f"asking the server to record {access.name}"):
            name = await access.record(client)
        with dialog.waiting("waiting for the recording to begin"):
            outcome = await access.await_recording(client, name)
    dialog.tell(outcome)
    return None


async def _end_recording(dialog: Dialog, access: MachineAccess, names: list[str]) -> None:
    name = names[0] if len(names) == 1 else await dialog.line("End the recording (name): ")
    if name not in names:
        dialog.tell("No recording was ended.")
        return
    async with access.client() as client:
        with dialog.waiting(f"asking the server to end {safe(name)}"):
            await access.end_recording(client, name)
    dialog.tell(f"The recording {safe(name)} ends.")


_SERVER_COMMANDS = {
    EscapeCommand.MACHINES: _switch,
    EscapeCommand.POWER: _power,
    EscapeCommand.RECORD: _record,
}


async def switch_on_again(access: MachineAccess, switched_on: Callable[[], None]) -> None:
    """
    Wait until a machine has stopped, switch it on, and wait until it runs; each wait has a limit.

    :param switched_on: called when its power is ``On``.
    :raises APIError: the server refuses a request, or the machine did not stop.
    """
    async with access.client() as client:

        async def is_running() -> bool:
            return (await access.read(client)).state == _RUNNING

        async def is_off() -> bool:
            return not await is_running()

        reactor = access.reactor
        deadline = reactor.seconds() + 2 * OFF_SECONDS
        has_stopped = await until(is_off, reactor, LOOK_SECONDS, OFF_SECONDS)
        await access.set_power(client, "On")
        switched_on()
        if not has_stopped:
            raise GatewayTimeout(
                f"machine {access.name} was not reset: it was still running {OFF_SECONDS:.0f} s after it was "
                "powered off; its power is On again"
            )
        # If it does not run in time, the refusal of the console says more.
        await until(is_running, reactor, LOOK_SECONDS, deadline - reactor.seconds())


def _short(machine: dict[str, Any]) -> dict[str, Any]:
    name = machine["metadata"].get("name", "")
    return {"metadata": {"name": name}, "status": {"state": _state(machine)}}


def _state(machine: dict[str, Any]) -> str:
    return safe(machine.get("status", {}).get("state") or _PENDING)
