"""
Faults of connections and programs at random moments, and how often each came.

A fault lasts as long as its function; what it has broken is whole again then, and sessions go on.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.task import deferLater

from tests.benchmarks.fairness.quiet import median
from tests.flows.cables import Cable
from tests.flows.resuming import CabledDeployment

from .lossy_network import LossyNetwork

reactor: Any = _reactor

MOMENTS = int(os.environ.get("MOMENTS", "20"))
SEED = int(os.environ.get("SEED", str(random.getrandbits(32))))

LONGEST_CALM_SECONDS = 0.5
_LONGEST_SILENCE_SECONDS = 9.0
_LONGEST_STOP_SECONDS = 7.0

# How often each kind of fault comes: those that take long are rare.
_OFTEN, _SOMETIMES, _SELDOM = 12, 5, 2


class Faults:
    """
    Breaks connections and programs of a deployment.

    :param cables: names of the connections that may fail.
    :param programs: ``api``, ``poollet`` and ``runtime``, those that may fail.
    :param network: drops packets; ``None`` if nothing can.
    :ivar compared: how many bytes of output and of input were found equal, set at the end of a run.
    """

    def __init__(
        self,
        deployment: CabledDeployment,
        choice: random.Random,
        cables: Sequence[str],
        programs: Sequence[str],
        network: LossyNetwork | None,
    ) -> None:
        self._deployment, self._choice, self._network = deployment, choice, network
        self._cables = [deployment.cables[name] for name in cables]
        self._actions: dict[str, Callable[[], Awaitable[None]]] = {}
        self._weights: dict[str, int] = {}
        self._counts: Counter[str] = Counter()
        self._latest = ""
        self.compared: tuple[int, int] | None = None
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)
        for name, cable in zip(cables, self._cables, strict=True):
            self.add(f"reset {name}", _OFTEN, lambda cable=cable: self._reset(cable))
            self.add(f"forget {name}", _SOMETIMES, lambda cable=cable: self._forget(cable))
            self.add(
                f"reset {name}, and another", _SOMETIMES, lambda cable=cable: self._both(cable)
            )
            if network is not None:
                self.add(f"drop packets of {name}", _SELDOM, lambda cable=cable: self._drop(cable))
                self.add(f"lose path of {name}", 1, lambda cable=cable: self._lose(cable))
        self.add("reset all", _SOMETIMES, self._reset_all)
        for name in programs:
            self.add(f"kill {name}", _SELDOM, lambda name=name: self._restart(name, kill=True))
            self.add(f"end {name}", _SELDOM, lambda name=name: self._restart(name, kill=False))
            self.add(f"stop {name}", _SELDOM, lambda name=name: self.stop(name))

    def add(self, name: str, weight: int, action: Callable[..., Awaitable[None]]) -> None:
        """Add a kind of fault."""
        self._actions[name], self._weights[name] = action, weight

    async def next(self) -> str:
        """Bring about a fault at a random moment; return its name."""
        await self.wait(LONGEST_CALM_SECONDS)
        name = self._choice.choices(list(self._weights), list(self._weights.values()))[0]
        self._counts[name] += 1
        self._latest = name
        await self._actions[name]()
        return name

    def took(self, name: str, seconds: Sequence[float]) -> None:
        """Take note of the time that sessions stood still."""
        self._seconds[name] += seconds

    def report(self) -> None:
        """Print each fault with its number and times, and the whole run in one line."""
        for name, count in sorted(self._counts.items()):
            taken = self._seconds[name]
            times = f"{median(taken):.2f} s, at most {max(taken):.2f} s" if taken else "none"
            print(f"{name:26} {count:4} times; pause of a session: median {times}")
        print(f"the last one: {self._latest}")
        longest = max(chain.from_iterable(self._seconds.values()), default=0.0)
        equal = "not all bytes compared"
        if self.compared is not None:
            equal = "{} bytes of output and {} of input equal".format(*self.compared)
        print(f"in all: {self._counts.total()} moments, {equal}, longest pause {longest:.2f} s")

    async def wait(self, most: float) -> None:
        """Wait for a random time."""
        await deferLater(reactor, self._choice.uniform(0, most), lambda: None)

    async def stop(self, program: str, seconds: float | None = None) -> None:
        """Stop a program for a while; see :meth:`stop_for_a_while`."""
        process = getattr(self._deployment, program).transport
        await self.stop_for_a_while(lambda number: os.kill(process.pid, number), seconds)

    async def stop_for_a_while(
        self, send: Callable[[int], None], seconds: float | None = None
    ) -> None:
        """Stop a process, and let it go on after a time, by default a random one."""
        send(signal.SIGSTOP)
        try:
            if seconds is None:
                await self.wait(_LONGEST_STOP_SECONDS)
            else:
                await deferLater(reactor, seconds)
        finally:
            send(signal.SIGCONT)

    async def _reset(self, cable: Cable) -> None:
        cable.cut()

    async def _reset_all(self) -> None:
        for cable in self._cables:
            cable.cut()

    async def _forget(self, cable: Cable) -> None:
        cable.forget()

    async def _both(self, cable: Cable) -> None:
        cable.cut()
        await self.wait(0.3)
        self._choice.choice(self._cables).cut()

    async def _drop(self, cable: Cable) -> None:
        assert self._network is not None
        ports = [cable.port, cable.target]
        self._network.drop(ports)
        try:
            await self.wait(_LONGEST_SILENCE_SECONDS)
        finally:
            self._network.mend(ports)

    async def _lose(self, cable: Cable) -> None:
        """Drop all further packets of the present connections; others can be made."""
        assert self._network is not None
        made = cable.made
        self._network.drop(cable.ports)
        while cable.made == made:
            await self.wait(0.2)

    async def _restart(self, program: str, *, kill: bool) -> None:
        await self._deployment.restart(program, kill=kill)
