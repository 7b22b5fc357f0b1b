"""
Tries every client that is here, and writes what was found into the documentation.

``python -m tests.clients.matrix`` writes ``docs/reference/clients.rst``; it needs every
client, and writes nothing when a cell failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults

from . import kubectl, scripts
from .client import Client
from .place import Chain
from .table import Row

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "clients.rst"

AT_ONCE = 3
"""Rows at a time: most of a row is waiting."""


async def here() -> list[Client]:
    """The clients that this machine has, in the order of the table."""
    return [*await kubectl.found(), *scripts.found()]


async def find(clients: Sequence[Client]) -> tuple[list[Row], list[str]]:
    """
    Try them, on one chain.

    :return: a row for each, in their order, and what did not work.
    """
    chain, failures, turns = Chain(), [], DeferredSemaphore(AT_ONCE)

    async def row(number: int, client: Client) -> Row:
        return await client.attempt(await chain.place(f"client-{number}"), failures)

    def in_turn(number: int, client: Client) -> Deferred[Row]:
        return turns.run(lambda: Deferred.fromCoroutine(row(number, client)))

    try:
        await chain.start()
        rows = await gatherResults(
            [in_turn(*one) for one in enumerate(clients)], consumeErrors=True
        )
    finally:
        await chain.stop()
    return list(rows), failures
