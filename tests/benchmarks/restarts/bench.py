"""
Planned restarts below open consoles: each program gets SIGTERM and is started again.

``python -m tests.benchmarks restarts [SESSIONS [RESTARTS [PART ...]]]``; without words 200 sessions, five restarts of each
program, and all parts.  A part is a program (``api``, ``poollet``, ``runtime``, ``standalone``), or ``objects``: an API
server that stores 10 000 machines, without sessions.

Ten users type a line every 0.1 s at machines that print their input; the other sessions read.  The pause is the longest
time from a key to its echo around a restart.  At the end each session must have got exactly what was typed.

Clients and programs share the cores: with few sessions a pause is mostly the start of a program, with many of them
also the work of all that return at once.
"""

from __future__ import annotations

import os
import resource
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import DeferredSemaphore, gatherResults

from tests.flows.deployment import pause, run_reactor
from tests.flows.resuming import Typist
from twisted_exec.program.tasks import as_deferred
from twisted_exec.wire.stream_options import CONSOLE

from .. import api
from ..fairness.quiet import median
from .programs import ECHO, READY, Programs, Standalone

reactor: Any = _reactor

SESSIONS, RESTARTS, OBJECTS = 200, 5, 10_000
_AT_A_MACHINE = 10
_TYPISTS = 10
_TYPING_SECONDS = 0.1
_OPENED_AT_ONCE = 10


class Session(Typist):
    """
    A session at a machine that prints what is typed.

    :ivar longest_seconds: from a key to its echo, since it was last set to 0.
    """

    def __init__(self) -> None:
        super().__init__()
        self._awaited: deque[tuple[int, float]] = deque()
        self.longest_seconds = 0.0

    def type(self, data: bytes) -> None:
        super().type(data)
        self._awaited.append((len(READY) + self.sent_bytes, reactor.seconds()))

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        while self._awaited and self._awaited[0][0] <= self.printed_bytes:
            seconds = reactor.seconds() - self._awaited.popleft()[1]
            self.longest_seconds = max(self.longest_seconds, seconds)

    async def until_size(self, size: int) -> None:
        """Fires when the output has this many bytes."""
        await self.until(lambda: self.printed_bytes >= size)


class Restarts:
    """
    Sessions of a deployment, and what its restarts do to them.

    :ivar machines: the sessions at each machine; the first one may type.
    """

    def __init__(self, place: Programs, count: int) -> None:
        self.place = place
        self.machines: list[list[Session]] = []
        self._count, self._opening = count, DeferredSemaphore(_OPENED_AT_ONCE)

    @property
    def sessions(self) -> Sequence[Session]:
        return [session for sessions in self.machines for session in sessions]

    @property
    def typists(self) -> Sequence[Session]:
        return [sessions[0] for sessions in self.machines[:_TYPISTS]]

    async def open(self) -> None:
        """Create the machines, and open all sessions."""
        names = [f"m{number}" for number in range(-(-self._count // _AT_A_MACHINE))]
        await gatherResults([self._create(name) for name in names])
        users = [self.place.user(number) for number in range(len(names))]
        opening = [
            self._opening.run(
                self._open,
                names[number % len(names)],
                users[number % len(users)],
                number < len(names),
            )
            for number in range(self._count)
        ]
        sessions: Any = await gatherResults(opening, consumeErrors=True)
        self.machines = [sessions[first :: len(names)] for first in range(len(names))]
        for typist in self.typists:
            typist.type_on(_TYPING_SECONDS)

    @as_deferred
    async def _create(self, name: str) -> None:
        await self.place.create_machine(name, ECHO)

    @as_deferred
    async def _open(self, name: str, kubeconfig: str, may_type: bool) -> Session:
        # A runtime that was restarted does not know who the writer was.
        options = replace(CONSOLE, read_only=not may_type)
        session: Any = await Session.at(kubeconfig, name, options=options)
        await session.until_printed(READY)
        return session  # type: ignore[no-any-return]

    async def measure(self, name: str, count: int) -> None:
        """Restart a program several times, and print the figures."""
        ended, ready, lost = [], [], []
        pauses: list[float] = []
        for _ in range(count):
            await self._calm()
            before = {session: len(session.seconds) for session in self.sessions}
            ended.append(await self.restart(name))
            ready.append(self.place.ready_seconds)
            for session, resumes in before.items():
                await session.until_resumed(resumes + 1)
            await self._calm(reset=False)
            pauses += [typist.longest_seconds for typist in self.typists]
            lost += [sum(session.seconds[resumes:]) for session, resumes in before.items()]
        print(
            f"  {name:10} ended after {_figures(ended)}; ready after {_figures(ready)};"
            f" keys wait {_figures(pauses)}; {len(self.sessions)} sessions lost for {_figures(lost)}",
            flush=True,
        )

    async def restart(self, name: str) -> float:
        """Stop a program, and start it again; return how long its end took."""
        began = reactor.seconds()
        await self.place.end(name, kill=False)
        seconds = reactor.seconds() - began
        await getattr(self.place, f"start_{name}")()
        return float(seconds)

    async def _calm(self, *, reset: bool = True) -> None:
        """Fires when each user has the echo of a key that is typed from now on."""
        for typist in self.typists:
            await typist.until_size(len(READY) + typist.sent_bytes + 1)
            if reset:
                typist.longest_seconds = 0.0

    async def close(self) -> None:
        """Compare what was typed with what each session has got, and leave."""
        for typist in self.typists:
            typist.stop_typing()
        for typist, *readers in self.machines:
            expected = READY + typist.sent
            for session in (typist, *readers):
                await session.until_size(len(expected))
                assert session.printed == expected, "a session has other bytes than were typed"
                assert not any(session.uncertain) and not session.gaps
        for session in self.sessions:
            await session.leave()


async def _with_sessions(place: Programs, count: int, restarts: int, names: Sequence[str]) -> None:
    try:
        await place.start()
        sessions = Restarts(place, count)
        await sessions.open()
        await pause(1.0)
        for name in names:
            await sessions.measure(name, restarts)
        await sessions.close()
    finally:
        await place.stop()


async def _with_objects(directory: Path, restarts: int) -> None:
    (stored := directory / "stored").mkdir(mode=0o700)
    with api.running(stored, OBJECTS):
        pass
    place = Programs(str(directory / "objects"))
    place.storage = f"sqlite:{stored / 'store.sqlite'}"
    ended, ready = [], []
    try:
        await place.start_api()
        for _ in range(restarts):
            ended.append(await Restarts(place, 0).restart("api"))
            ready.append(place.ready_seconds)
    finally:
        await place.stop()
    print(
        f"  api with {OBJECTS} machines: ended after {_figures(ended)}; ready after {_figures(ready)}"
    )


def main(directory: Path, *words: str) -> None:
    """
    Run the benchmark.

    :param words: the number of sessions, the number of restarts, and the parts.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(directory / "bytecode")
    numbers = [int(word) for word in words if word.isdigit()]
    count, restarts = (*numbers, *(SESSIONS, RESTARTS)[len(numbers) :])
    chosen = [word for word in words if not word.isdigit()]

    async def measured() -> None:
        for kind in (Programs, Standalone):
            names = [name for name in kind.names if not chosen or name in chosen]
            if names:
                place = kind(str(directory / kind.__name__.lower()))
                await _with_sessions(place, count, restarts, names)
        if not chosen or "objects" in chosen:
            await _with_objects(directory, restarts)

    print("Seconds, the median and the longest:")
    run_reactor(measured)


def _figures(seconds: Sequence[float]) -> str:
    return f"{median(seconds):.2f}, {max(seconds):.2f}"
