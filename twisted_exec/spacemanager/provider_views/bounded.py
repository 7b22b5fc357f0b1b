"""
An adaptor as the rest of the manager has it: every call ends in time, is counted, and fails with an ``APIError``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import CancelledError, Deferred, TimeoutError, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import APIError, GatewayTimeout, InternalError
from twisted_exec.spacemanager.interfaces import (
    IRotates,
    ISpaceProvider,
    Physical,
    SpaceInfo,
    Wanted,
)

LIST, NAMES, GET = "list_spaces", "list_names", "get"
CREATE, DELETE, ROTATE, CLOSE = "create", "delete", "rotate", "close"
SECONDS = {
    LIST: 60.0,
    NAMES: 60.0,
    GET: 30.0,
    CREATE: 120.0,
    DELETE: 120.0,
    ROTATE: 60.0,
    CLOSE: 30.0,
}
"""How long a call may take; by then it is cancelled."""

T = TypeVar("T")


class CallMetrics(Protocol):
    """Who counts calls."""

    def called(self, provider: str, call: str, seconds: float, code: int) -> None:
        """
        One has ended.

        :param code: 0 for one that went well, otherwise of its error; 499 for one that was cancelled.
        """


class NoMetrics:
    """Who does not."""

    def called(self, provider: str, call: str, seconds: float, code: int) -> None:
        """See :class:`CallMetrics`."""


class Making(Protocol):
    """Who has to know when something is made: what does not show it yet says nothing about it."""

    def making(self, physical: Physical) -> None:
        """It is being made from now on."""

    def made(self, physical: Physical) -> None:
        """It was, or was not; either way the next answer counts."""


@implementer(ISpaceProvider)
class Bounded:
    """
    :param provider: the adaptor.
    :param name: of the SpaceProviderDesc, for messages.
    :ivar knows: told of what is made.
    """

    _log = Logger()

    def __init__(
        self, provider: ISpaceProvider, name: str, clock: IReactorTime, counting: CallMetrics
    ) -> None:
        self._provider, self._name, self._clock = provider, name, clock
        self._counting = counting
        self.knows: Making | None = None

    @property
    def default_parent(self) -> str:
        """See :class:`ISpaceProvider`."""
        return str(self._provider.default_parent)

    def create(self, physical: Physical, wanted: Wanted) -> Deferred[None]:
        """See :meth:`ISpaceProvider.create`."""
        knows = self.knows
        if knows is None:
            return self._call(CREATE, lambda: self._provider.create(physical, wanted))
        knows.making(physical)

        def over(result: T) -> T:
            knows.made(physical)
            return result

        return self._call(CREATE, lambda: self._provider.create(physical, wanted)).addBoth(over)

    def delete(self, physical: Physical, owner: str) -> Deferred[None]:
        """See :meth:`ISpaceProvider.delete`."""
        return self._call(DELETE, lambda: self._provider.delete(physical, owner))

    def list_spaces(self) -> Deferred[Sequence[SpaceInfo]]:
        """See :meth:`ISpaceProvider.list_spaces`."""
        return self._call(LIST, self._provider.list_spaces)

    def list_names(self) -> Deferred[Sequence[Physical]]:
        """See :meth:`ISpaceProvider.list_names`."""
        return self._call(NAMES, self._provider.list_names)

    def get(self, physical: Physical) -> Deferred[SpaceInfo]:
        """See :meth:`ISpaceProvider.get`."""
        return self._call(GET, lambda: self._provider.get(physical))

    def watch(self, changed: Callable[[Physical | None], None]) -> Callable[[], None]:
        """See :meth:`ISpaceProvider.watch`; one that cannot be had is no failure."""
        try:
            end: Callable[[], None] = self._provider.watch(changed)
        except Exception:
            self._log.failure("provider {name}: its watch failed", name=self._name)
            return lambda: None
        return end

    def close(self) -> Deferred[None]:
        """See :meth:`ISpaceProvider.close`."""
        closing = self._call(CLOSE, self._provider.close)
        return closing.addErrback(lambda _: None)  # it was logged

    def _call(self, call: str, ask: Callable[[], Deferred[Any]]) -> Deferred[Any]:
        began = self._clock.seconds()
        asked: Deferred[Any] = maybeDeferred(ask)
        asked.addTimeout(SECONDS[call], self._clock)
        asked.addErrback(self._failed, call)
        return asked.addBoth(self._ended, call, began)

    def _failed(self, failure: Failure, call: str) -> Failure:
        if failure.check(APIError, CancelledError):
            return failure
        if failure.check(TimeoutError):
            why = (
                f'provider "{self._name}" gave no answer ({call}) within {SECONDS[call]:g} seconds'
            )
            return Failure(GatewayTimeout(f"{why}; see whether it runs and is reached from here"))
        self._log.failure(
            "provider {name}: {call} failed in a way that nobody thought of",
            failure,
            name=self._name,
            call=call,
        )
        told = f'the adaptor of provider "{self._name}" failed ({call}); see the log of the manager'
        return Failure(InternalError(told))

    def _ended(self, result: T, call: str, began: float) -> T:
        code = 0
        if isinstance(result, Failure):
            code = result.value.code if isinstance(result.value, APIError) else 499
        self._counting.called(self._name, call, self._clock.seconds() - began, code)
        return result


@implementer(IRotates)
class BoundedRotating(Bounded):
    """The same of one that can give new credentials."""

    def rotate(self, physical: Physical) -> Deferred[None]:
        """See :meth:`IRotates.rotate`."""
        return self._call(ROTATE, lambda: IRotates(self._provider).rotate(physical))


def bounded(
    provider: ISpaceProvider, name: str, clock: IReactorTime, counting: CallMetrics | None = None
) -> Bounded:
    """An adaptor with its calls bounded; it provides what the adaptor does."""
    kind = BoundedRotating if IRotates.providedBy(provider) else Bounded
    return kind(provider, name, clock, counting or NoMetrics())
