"""
A console under load in both directions whose connections and programs fail at random moments.

``MOMENTS`` is the number of failures (20 without it), ``SEED`` repeats a run.  Connections are reset
at both ends or at one, go silent, or are reset again while the client resumes; API server and poollet
are killed and stopped.  At the end the output of the writer and of an observer is compared with what
the machine has printed, and what the machine has got with what was typed.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from tests.benchmarks.fairness.quiet import median
from tests.flows.busy_machine import printed
from tests.flows.deployment import pause
from tests.flows.resuming import BUSY, CabledDeployment, Typist

reactor: Any = _reactor

MOMENTS = int(os.environ.get("MOMENTS", "20"))
SEED = int(os.environ.get("SEED", str(random.getrandbits(32))))

_BYTES_PER_SECOND = 60_000
_LONGEST_CALM_SECONDS = 0.5
_SILENCE_SECONDS = 2.0
"""After this time without a sign of life the client gives a connection up."""

_CABLES = ("near", "middle", "far")
_PROGRAMS = ("api", "poollet")


class Failures:
    """What may fail, by name; each returns when the cause is gone."""

    def __init__(self, deployment: CabledDeployment, choice: random.Random) -> None:
        self._deployment, self._choice = deployment, choice
        self.actions: dict[str, Callable[[], Awaitable[None]]] = {}
        self.weights: dict[str, int] = {}
        for name in _CABLES:
            self._add(f"cut {name}", 10, self._cut, name)
            self._add(f"forget {name}", 4, self._forget, name)
            self._add(f"silence {name}", 1, self._silence, name)
            self._add(f"cut {name} twice", 4, self._cut_twice, name)
        for program in _PROGRAMS:
            self._add(f"kill {program}", 2, self._restart, program, True)
            self._add(f"stop {program}", 1, self._restart, program, False)
        self._add("cut all", 4, self._cut_all)

    def _add(self, name: str, weight: int, action: Any, *arguments: object) -> None:
        self.actions[name] = lambda: action(*arguments)
        self.weights[name] = weight

    def draw(self) -> str:
        """Return the name of the next failure."""
        return self._choice.choices(list(self.weights), list(self.weights.values()))[0]

    async def _cut(self, name: str) -> None:
        self._deployment.cables[name].cut()

    async def _cut_all(self) -> None:
        for cable in self._deployment.cables.values():
            cable.cut()

    async def _forget(self, name: str) -> None:
        self._deployment.cables[name].forget()

    async def _cut_twice(self, name: str) -> None:
        self._deployment.cables[name].cut()
        await self.wait(0.3)
        self._deployment.cables[self._choice.choice(_CABLES)].cut()

    async def _silence(self, name: str) -> None:
        cable = self._deployment.cables[name]
        cable.silence()
        await self.wait(2 * _SILENCE_SECONDS)
        cable.mend()

    async def _restart(self, program: str, kill: bool) -> None:
        await self._deployment.restart(program, kill=kill)

    async def wait(self, most: float) -> None:
        """Wait for a random time."""
        await deferLater(reactor, self._choice.uniform(0, most), lambda: None)


class ResumeTests(TestCase):
    """One machine, a writer and an observer."""

    timeout = 300 + 10 * MOMENTS

    async def test_moments(self) -> None:
        """Nothing is missing and nothing is there twice, in both directions."""
        choice = random.Random(SEED)
        deployment = CabledDeployment(self.mktemp(), speed=_BYTES_PER_SECOND)
        self.addCleanup(deployment.stop)
        await deployment.start()
        await deployment.create_machine("busy", BUSY)
        users = [await self.user(deployment, name) for name in ("ada", "bob")]
        writer = users[0]
        writer.type_on()
        failures = Failures(deployment, choice)
        counts: Counter[str] = Counter()
        times: defaultdict[str, list[float]] = defaultdict(list)
        print(f"\n{MOMENTS} moments, SEED={SEED}")
        for _ in range(MOMENTS):
            await failures.wait(_LONGEST_CALM_SECONDS)
            name = failures.draw()
            counts[name] += 1
            before = len(writer.seconds)
            await failures.actions[name]()
            await Deferred.fromCoroutine(self.calm(deployment, users))
            times[name] += writer.seconds[before:]
        for name, count in sorted(counts.items()):
            taken = times[name]
            told = f"{median(taken):.2f} s, at most {max(taken):.2f} s" if taken else "unnoticed"
            print(f"{name:20} {count:5} times; resumed {len(taken)} times, median {told}")
        await self.compare(deployment, users)

    async def user(self, deployment: CabledDeployment, name: str) -> Typist:
        """Open the console as a user."""
        kubeconfig = deployment.through_cable(name)
        user = await Typist.at(kubeconfig, "busy", silence_seconds=_SILENCE_SECONDS)
        self.addCleanup(user.leave)
        return user

    async def calm(self, deployment: CabledDeployment, users: list[Typist]) -> None:
        """Fires when bytes pass in both directions, for both users."""
        shown, typed = [each.printed_bytes for each in users], deployment.typed_bytes
        for user, size in zip(users, shown, strict=True):
            await user.until(lambda user=user, size=size: user.printed_bytes > size + 10_000)
        await users[0].until(lambda: deployment.typed_bytes > typed + 16)

    async def compare(self, deployment: CabledDeployment, users: list[Typist]) -> None:
        """Compare both directions."""
        writer = users[0]
        writer.stop_typing()
        await writer.until(lambda: deployment.typed_bytes >= writer.sent_bytes)
        deployment.stop_printing()
        for user in users:
            await user.until_printed(rb"END\n", user.printed_bytes - 100)
            size = user.printed_bytes - len(b"END\n")
            self.report("output", user.printed[:size], printed(size))
            self.assertEqual((user.gaps, set(user.uncertain) - {0}), ([], set()))
        self.report("input", deployment.typed, writer.sent)
        await pause()

    def report(self, what: str, got: bytes, expected: bytes) -> None:
        """Print the sum of one direction and check that it is the same at both ends."""
        sums = [hashlib.sha256(each).hexdigest()[:16] for each in (got, expected)]
        print(f"{what}: {len(got)} bytes of {len(expected)}, SHA-256 {sums[0]}... of {sums[1]}...")
        self.assertEqual(sums[0], sums[1], what)
