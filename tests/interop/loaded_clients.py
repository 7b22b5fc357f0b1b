"""
Console clients as processes, each with a busy machine of its own: they type and print all the time.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure
from zope.interface import implementer

from tests.flows import busy_machine
from tests.flows.busy_machine import LINE_BYTES, harmless_line, plain_line
from tests.flows.deployment import pause
from tests.flows.resuming import CabledDeployment

from .numbered import Output, Typed, typed_line

reactor: Any = _reactor

BYTES_PER_SECOND = 40_000
_UNTIL_SECONDS = 90.0
_KEPT_MESSAGES = 2000
_CALM_BYTES = 10_000

_CLASS = """\
- name: {name}
  driver: pty
  command: [{python}, {program}, {directory}, "{speed}"{asks}]
  same_user: true
  capabilities: {{cpu: "1", memory: 64Mi}}
  quantity: 10
"""


class BusyMachine:
    """
    A busy machine of a deployment, which has a class of its own.

    :param asks: each line asks the terminal for something.
    :param bytes_per_second: how fast it prints, if its readers keep up.
    :ivar typed: what it has got, checked.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        *,
        asks: bool = False,
        bytes_per_second: int = BYTES_PER_SECOND,
    ) -> None:
        self.name, self.asks, self.bytes_per_second = name, asks, bytes_per_second
        self._directory = (directory / name).resolve()
        self._directory.mkdir()
        self.typed = Typed()
        self._read = 0

    def definition(self) -> str:
        """Return its class, for the configuration of the runtime."""
        return _CLASS.format(
            name=self.name,
            python=sys.executable,
            program=busy_machine.__file__,
            directory=self._directory,
            speed=self.bytes_per_second,
            asks=", asks" if self.asks else "",
        )

    def check_typed(self) -> None:
        """
        Check what it has got since the last call.

        :raises WrongBytesError: it has got other keys than were typed.
        """
        path = self._directory / "typed"
        if path.exists():
            with path.open("rb") as record:
                record.seek(self._read)
                data = record.read()
            self._read += len(data)
            self.typed.add(data)

    @property
    def processes(self) -> list[int]:
        """One for each of its starts."""
        return list(map(int, (self._directory / "starts").read_text().split()))

    def stop_printing(self) -> None:
        """Let it print its last line."""
        (self._directory / "stop").touch()


async def start_busy(
    deployment: CabledDeployment, names: Sequence[str], asking: Sequence[str] = ()
) -> list[BusyMachine]:
    """Start a deployment and its busy machines, last those that ask the terminal."""
    machines = [BusyMachine(name, deployment.directory) for name in names]
    machines += [BusyMachine(name, deployment.directory, asks=True) for name in asking]
    classes = "".join(each.definition() for each in machines)
    (deployment.directory / "runtime.yaml").write_text(f"classes:\n{classes}")
    await deployment.start_programs()
    for each in machines:
        await deployment.create_class(each.name, "64Mi")
        await deployment.create_machine(each.name, each.name)
    return machines


@implementer(IPushProducer)
class LoadedClient(ProcessProtocol):
    """
    A client that prints to its standard output and sends its standard input.

    Below a machine that asks the terminal it is on one, which gets no query.

    :param argv: starts it.
    :cvar typing_seconds: from one line to the next.
    :ivar types: it is the machine's typist.
    :ivar output: what it has printed, checked.
    :ivar longest_pause: of its output, in seconds, since :meth:`rest`.
    :ivar messages: the end of what it has printed to its standard error.
    :ivar failure: why it has failed, as soon as it has.
    :ivar exit_code: once it has ended; negative for a signal.
    """

    typing_seconds = 0.02
    exit_code: int | None = None

    def __init__(
        self, machine: BusyMachine, argv: Sequence[str], env: dict[str, str], *, types: bool
    ) -> None:
        self.machine = machine
        self.output = Output(harmless_line if machine.asks else plain_line)
        self.failure: str | None = None
        self.messages = b""
        self.longest_pause = 0.0
        self._argv, self.env, self.types = list(argv), env, types
        self._is_leaving = self._is_full = False
        self._last_output = reactor.seconds()
        self._lines = 0
        self._typing = LoopingCall(self._type)
        self.typist = machine.typed.typists
        machine.typed.typists += types

    def start(self) -> None:
        """Start the process."""
        env = {**os.environ, **self.env}
        reactor.spawnProcess(self, self._argv[0], self._argv, env=env, usePTY=self.machine.asks)
        if self.types:
            transport: Any = self.transport
            transport.pipes[0].registerProducer(self, True)
            self._typing.start(self.typing_seconds, now=False)

    @property
    def arrived(self) -> int:
        """How many of its keys the machine has got."""
        self.machine.check_typed()
        return self.machine.typed.arrived(self.typist)

    @property
    def sent_bytes(self) -> int:
        return self._lines * LINE_BYTES

    def stop_typing(self) -> None:
        if self._typing.running:
            self._typing.stop()

    def _type(self) -> None:
        if not self._is_full:
            transport: Any = self.transport
            transport.write(typed_line(self.typist, self._lines))
            self._lines += 1

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        assert self.transport is not None
        os.kill(self.transport.pid, number)

    async def kill(self) -> None:
        """Kill it: it can say nothing any more."""
        self._is_leaving = True
        self.signal(signal.SIGKILL)
        await self._ended()

    async def stop(self) -> None:
        """End it."""
        if self.transport is not None and self.transport.pid is not None:
            self._is_leaving = True
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
            await self._ended()

    async def _ended(self) -> None:
        while self.transport is not None and self.transport.pid is not None:
            await pause()

    def rest(self) -> None:
        """Begin to measure pauses."""
        self.longest_pause, self._last_output = 0.0, reactor.seconds()

    async def until(self, condition: Callable[[], object], seconds: float = _UNTIL_SECONDS) -> None:
        """Fires once a condition is true; fails if the client fails first."""
        late = reactor.seconds() + seconds
        while not condition():
            self.check()
            assert reactor.seconds() < late, self._told("too late")
            await pause()

    def check(self) -> None:
        """:raises AssertionError: the client has failed."""
        assert self.failure is None, self._told(self.failure or "")

    def _told(self, what: str) -> str:
        return (
            f"{self._argv}: {what}; got {self.output.size} bytes, sent {self.sent_bytes}, "
            f"arrived {self.arrived}; {self.output.notices[-5:]}; {self.messages!r}"
        )

    def pauseProducing(self) -> None:
        self._is_full = True

    def resumeProducing(self) -> None:
        self._is_full = False

    def stopProducing(self) -> None:
        self.stop_typing()

    def outReceived(self, data: bytes) -> None:
        now = reactor.seconds()
        self.longest_pause = max(self.longest_pause, now - self._last_output)
        self._last_output = now
        if self.failure is not None:
            return
        try:
            self.output.add(data)
        except AssertionError as problem:
            self.failure = str(problem)

    def errReceived(self, data: bytes) -> None:
        self.messages = (self.messages + data)[-_KEPT_MESSAGES:]

    def processEnded(self, reason: Failure) -> None:
        self.stop_typing()
        self.exit_code = getattr(reason.value, "exitCode", None) or -(
            getattr(reason.value, "signal", None) or 0
        )
        if not self._is_leaving and self.failure is None:
            self.failure = f"ended: {reason.getErrorMessage()}"


async def calm(clients: Sequence[LoadedClient]) -> None:
    """Fires when bytes pass in both directions, for each client."""
    before = [(each, each.output.size, each.arrived) for each in clients]
    for client, shown, arrived in before:
        await client.until(partial(_passes, client, shown, arrived))


def _passes(client: LoadedClient, shown: int, arrived: int) -> bool:
    is_typed = not client.types or client.arrived > arrived + LINE_BYTES
    return is_typed and client.output.size > shown + _CALM_BYTES


async def compare(clients: Sequence[LoadedClient]) -> tuple[int, int]:
    """Stop the load, and compare both directions; return how many bytes of output and input are equal."""
    for client in clients:
        client.stop_typing()
    for client in clients:
        if client.types:
            await client.until(partial(_has_all, client))
    for client in clients:
        client.machine.stop_printing()
    for client in clients:
        await client.until(partial(_has_ended, client))
        assert client.output.stream is not None
        client.output.stream.report(f"output of {client.machine.name}")
    machines = {client.machine.name: client.machine for client in clients}.values()
    for machine in machines:
        for stream in machine.typed.streams.values():
            stream.report(f"input of {machine.name}")
    typed = sum(stream.size for machine in machines for stream in machine.typed.streams.values())
    return sum(client.output.size for client in clients), typed


def _has_all(client: LoadedClient) -> bool:
    return client.arrived == client.sent_bytes


def _has_ended(client: LoadedClient) -> bool:
    return client.output.has_ended
