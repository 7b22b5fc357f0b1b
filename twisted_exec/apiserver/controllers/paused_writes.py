"""Writes that the store refuses in a namespace, such as a namespace whose quota is used up."""

from __future__ import annotations

import random
from collections.abc import Collection, Container, Iterator
from enum import Enum

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from twisted_exec.api.status import APIError
from twisted_exec.control.backoff import Backoff, Backoffs
from twisted_exec.storage.history import Key

FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 60.0


class Operation(Enum):
    """A kind of write; the value is the log's message for a refusal."""

    BIND = "machines cannot be assigned to pools"
    SET_CONDITION = "conditions of machines cannot be written"
    RECORD_EVENT = "Events of machines cannot be recorded"


_Scope = tuple[Operation, str]
"""A kind of write in one namespace."""


class PausedWrites:
    """
    Machines whose writes wait because the store has refused such a write in their namespace.

    Each kind of write has a back-off in each namespace, so that a namespace with thousands of machines
    costs one refused write per pause, and one line of the log per cause. After the pause, one held
    machine is tried; when the store accepts its write, the others follow.

    :param rng: for the random part of back-off.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, rng: random.Random | None = None) -> None:
        self._machines: dict[_Scope, dict[Key, None]] = {}
        self._refusals: Backoffs[_Scope] = Backoffs(
            clock, lambda: Backoff(FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, rng)
        )

    def is_paused(self, operation: Operation, namespace: str) -> bool:
        """Return whether the back-off of these writes lasts."""
        return self._refusals.wait_seconds((operation, namespace)) > 0

    def hold(self, operation: Operation, key: Key) -> None:
        """Keep a machine until such a write is accepted, or until it is its turn in :meth:`due`."""
        self._machines.setdefault((operation, key[0]), {})[key] = None

    def refused(self, operation: Operation, namespace: str, error: APIError) -> None:
        """Pause these writes, for longer after each refusal; log a new cause."""
        if self._refusals.failed((operation, namespace), f"{error.code} {error.reason}"):
            self._log.warn(
                "namespace {namespace}: {problem}: {error}",
                namespace=namespace,
                problem=operation.value,
                error=error.message,
            )

    def accepted(self, operation: Operation, namespace: str) -> Collection[Key]:
        """End the back-off of these writes, and return the machines that they held."""
        self._refusals.succeeded((operation, namespace))
        return self._machines.pop((operation, namespace), {})

    def due(self, pending: Container[Key]) -> Iterator[Key]:
        """
        Take one machine for each back-off that has paused long enough.

        :param pending: machines that still have to be written; the holds of others are dropped.
        """
        for scope in list(self._machines):
            if self._refusals.wait_seconds(scope) > 0:
                continue
            held = self._machines[scope]
            while held:
                key, _ = held.popitem()
                if key in pending:
                    yield key
                    break
            if not held:
                del self._machines[scope]

    def wait_seconds(self) -> float | None:
        """Return how long until a held machine is due; ``None`` if none is held."""
        return min(map(self._refusals.wait_seconds, self._machines), default=None)
