"""
The time from the loss of connections to the first mark of the resumed streams.
"""

from __future__ import annotations

import os

from twisted.internet.defer import Deferred, gatherResults

from tests.flows.resuming import CabledDeployment, Typist

from ..fairness.quiet import median, percentile

SESSIONS = int(os.environ.get("SESSIONS", "1000"))
_SESSIONS_PER_USER = 10
_MACHINES = 10
_LOSSES = 50
_AT_ONCE = 20


async def measure(deployment: CabledDeployment) -> None:
    """Measure one session, and many at once."""
    names = [f"sh-{number}" for number in range(_MACHINES)]
    for name in names:
        await deployment.create_machine(name, "shell")
    (one,) = await _open(deployment, names, 1)
    for count in range(1, _LOSSES + 1):
        deployment.near.cut()
        await one.until_resumed(count)
    _row("one session", one.seconds)
    many = await _open(deployment, names, SESSIONS)
    for title, cable in (("client", deployment.near), ("poollet's", deployment.middle)):
        before = [len(each.seconds) for each in many]
        cable.cut()
        for each, count in zip(many, before, strict=True):
            await each.until(lambda each=each, count=count: len(each.seconds) > count, 300)
        taken = [each.seconds[-1] for each in many]
        _row(f"{SESSIONS} sessions at once, {title} connections cut", taken)
    for each in (one, *many):
        await each.leave()


async def _open(deployment: CabledDeployment, names: list[str], number: int) -> list[Typist]:
    users = -(-number // _SESSIONS_PER_USER)
    kubeconfigs = [deployment.through_cable(f"user-{user}") for user in range(users)]
    result: list[Typist] = []
    for first in range(0, number, _AT_ONCE):
        opening = [
            Deferred.fromCoroutine(
                Typist.at(kubeconfigs[each // _SESSIONS_PER_USER], names[each % len(names)])
            )
            for each in range(first, min(first + _AT_ONCE, number))
        ]
        result += await gatherResults(opening, consumeErrors=True)
    for each in result:
        await each.until(lambda each=each: each.printed_bytes)
    return result


def _row(title: str, taken: list[float]) -> None:
    middle, late = median(taken) * 1e3, percentile(taken, 99) * 1e3
    print(f"ms to resume, {title}: median {middle:.0f}, p99 {late:.0f}, max {max(taken) * 1e3:.0f}")
