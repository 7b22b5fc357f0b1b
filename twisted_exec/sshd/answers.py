"""
What the commands of :mod:`.commands` print, from the API server.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from twisted_exec.api.dialects import DIALECTS, Dialect
from twisted_exec.api.screens import ScreenForm, ScreenOptions
from twisted_exec.api.status import APIError, Forbidden, NotFound
from twisted_exec.cli.client import CommandClient
from twisted_exec.cli.commands.screen import printable
from twisted_exec.cli.suggestion import has_namespace
from twisted_exec.cli.table import table
from twisted_exec.kube.downloads import MachineLog, read_screen
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.machine_requests import TIMEOUT_SECONDS, opened_among, served_dialects
from twisted_exec.sshd.advice import DoorAdvice
from twisted_exec.sshd.commands import Command, Help, Listing, Log, Power

AGENT = "ssh (twisted-exec)"

MOST_LISTED = 1000


class Flow(Protocol):
    """A text that arrives, such as a log."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def abort(self) -> None: ...


class Output(Protocol):
    """The user."""

    def write(self, data: bytes) -> None:
        """Print output."""

    def say(self, line: str) -> None:
        """Print a message."""

    def flows(self, flow: Flow) -> None:
        """Take note of what writes from now on: pause it while the user takes no more."""


@dataclass(frozen=True)
class Place:
    """
    Where a command is carried out.

    :param config: with the user, and the namespace.
    :param machine: its name.
    :param reason: of the session; empty for none.
    """

    config: ClientConfig
    machine: str
    reactor: Any
    reason: str = ""

    @asynccontextmanager
    async def client(self, config: ClientConfig | None = None) -> AsyncIterator[CommandClient]:
        client = CommandClient(
            config or self.config, self.reactor, timeout_seconds=TIMEOUT_SECONDS, agent=AGENT
        )
        try:
            yield client
        finally:
            await client.close()


async def answer(command: Command, place: Place, output: Output) -> None:
    """
    Carry out a command.

    :raises APIError: the server refuses, or cannot be reached.
    :raises KubeConfigError: there are no usable credentials.
    """
    if isinstance(command, Help):
        output.write(command.text.encode())
    elif isinstance(command, Listing):
        await _list(command, place, output)
    elif isinstance(command, Log):
        await _log(command, place, output)
    elif isinstance(command, Power):
        await _power(command, place, output)
    else:
        await _screen(place, output)


async def _list(command: Listing, place: Place, output: Output) -> None:
    async with place.client() as client:
        dialects = await served_dialects(client, DIALECTS)
        namespace = place.config.namespace
        if command.where is not None:
            rows = await _rows(client, dialects, namespace)
        else:
            try:
                rows = await _rows(client, dialects, "")
            except APIError as refused:
                if refused.code != Forbidden.code:
                    raise
                rows = await _rows(client, dialects, namespace)
                output.say(f"These are of namespace {namespace}; for another: list NAMESPACE")
        if not rows and command.where is not None and not await has_namespace(client, namespace):
            raise NotFound(
                "namespaces",
                namespace,
                message=f'namespace "{namespace}" does not exist; {DoorAdvice.list_namespaces}',
            )
    if len(rows) > MOST_LISTED:
        output.say(f"There are more than {MOST_LISTED} machines; of one namespace: list NAMESPACE")
        rows = rows[:MOST_LISTED]
    if not rows:
        output.say("There are no machines.")
        return
    output.write(table(("NAMESPACE", "NAME", "STATE", "POWER"), sorted(rows)).encode())


async def _rows(
    client: CommandClient, dialects: Sequence[Dialect], namespace: str
) -> list[tuple[str, str, str, str]]:
    rows: list[dict[str, Any]] = []
    for dialect in dialects:
        rows += await client.list_first(
            dialect.workload, namespace, most=MOST_LISTED - len(rows), trim=_row_of
        )
    return [row["row"] for row in rows]


def _row_of(machine: dict[str, Any]) -> dict[str, Any]:
    metadata, spec, status = (machine.get(key) or {} for key in ("metadata", "spec", "status"))
    state = str(status.get("state") or "Pending")
    power = str(spec.get("power") or "On")
    row = str(metadata.get("namespace") or ""), str(metadata.get("name") or ""), state, power
    return {"row": row}


async def _log(command: Log, place: Place, output: Output) -> None:
    config = place.config

    def lost(why: str | None) -> None:
        output.say("the log is open again" if why is None else f"{why}; trying again")

    log = MachineLog(
        config, config.namespace, place.machine, place.reactor, agent=AGENT, lost=lost,
        since_option="--since",
    )  # fmt: skip
    await log.read(command.options, output.write, output.flows)


async def _screen(place: Place, output: Output) -> None:
    options = ScreenOptions(form=ScreenForm.TEXT)
    screen = await read_screen(
        place.config, place.config.namespace, place.machine, options, place.reactor,
        reason=place.reason, agent=AGENT,
    )  # fmt: skip
    output.write(printable(screen, ScreenForm.TEXT))
    if not screen.strip():
        output.say("the screen is empty")


async def _power(command: Power, place: Place, output: Output) -> None:
    patch = {"spec": {"power": command.state}}

    async def switch(config: ClientConfig, dialect: Dialect) -> None:
        async with place.client(config) as client:
            await client.patch(dialect.workload, place.machine, patch, config.namespace)

    await opened_among(switch, place.config, place.reactor, DIALECTS, TIMEOUT_SECONDS, None)
    output.say(f"{place.machine} is being powered {command.state.lower()}.")
