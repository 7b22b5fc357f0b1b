"""A provider whose calls are limited in time, and counted."""

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
    IRotatesCredentials,
    ISpaceProvider,
    Physical,
    SpaceInfo,
    SpaceRequest,
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
"""Timeouts of calls."""

T = TypeVar("T")


class CallMetrics(Protocol):
    """Counts calls."""

    def called(self, provider: str, call: str, seconds: float, code: int) -> None:
        """
        Count a finished call.

        :param code: 0 for success, 499 for a cancelled call, otherwise the code of the error.
        """


class NoMetrics:
    """Counts nothing."""

    def called(self, provider: str, call: str, seconds: float, code: int) -> None:
        """See :class:`CallMetrics`."""


class CreationListener(Protocol):
    """Is notified of creations."""

    def making(self, physical: Physical) -> None:
        """Handle the start of a creation."""

    def made(self, physical: Physical) -> None:
        """Handle the end of a creation, successful or not."""


@implementer(ISpaceProvider)
class Bounded:
    """
    A provider with bounded calls.

    Calls have timeouts, and are counted. Failures other than cancellations are ``APIError``.
    """

    _log = Logger()

    def __init__(
        self, provider: ISpaceProvider, name: str, clock: IReactorTime, counting: CallMetrics
    ) -> None:
        self._provider, self._name, self._clock = provider, name, clock
        self._counting = counting
        self.listener: CreationListener | None = None

    @property
    def default_parent(self) -> str:
        return str(self._provider.default_parent)

    def create(self, physical: Physical, request: SpaceRequest) -> Deferred[None]:
        listener = self.listener
        if listener is None:
            return self._call(CREATE, lambda: self._provider.create(physical, request))
        listener.making(physical)

        def over(result: T) -> T:
            listener.made(physical)
            return result

        return self._call(CREATE, lambda: self._provider.create(physical, request)).addBoth(over)

    def delete(self, physical: Physical, owner: str) -> Deferred[None]:
        return self._call(DELETE, lambda: self._provider.delete(physical, owner))

    def list_spaces(self) -> Deferred[Sequence[SpaceInfo]]:
        return self._call(LIST, self._provider.list_spaces)

    def list_names(self) -> Deferred[Sequence[Physical]]:
        return self._call(NAMES, self._provider.list_names)

    def get(self, physical: Physical) -> Deferred[SpaceInfo]:
        return self._call(GET, lambda: self._provider.get(physical))

    def watch(self, changed: Callable[[Physical | None], None]) -> Callable[[], None]:
        try:
            end: Callable[[], None] = self._provider.watch(changed)
        except Exception:
            self._log.failure("provider {name}: its watch failed", name=self._name)
            return lambda: None
        return end

    def close(self) -> Deferred[None]:
        closing = self._call(CLOSE, self._provider.close)
        return closing.addErrback(lambda _: None)  # already logged

    def _call(self, call: str, ask: Callable[[], Deferred[Any]]) -> Deferred[Any]:
        began = self._clock.seconds()
        calling: Deferred[Any] = maybeDeferred(ask)
        calling.addTimeout(SECONDS[call], self._clock)
        calling.addErrback(self._failed, call)
        return calling.addBoth(self._ended, call, began)

    def _failed(self, failure: Failure, call: str) -> Failure:
        if failure.check(APIError, CancelledError):
            return failure
        if failure.check(TimeoutError):
            why = (
                f'provider "{self._name}" gave no answer ({call}) within {SECONDS[call]:g} seconds'
            )
            return Failure(GatewayTimeout(f"{why}; see whether it runs and is reached from here"))
        self._log.failure(
            "provider {name}: unexpected failure of {call}",
            failure,
            name=self._name,
            call=call,
        )
        message = f'provider "{self._name}" failed ({call}); see the log of the manager'
        return Failure(InternalError(message))

    def _ended(self, result: T, call: str, began: float) -> T:
        code = 0
        if isinstance(result, Failure):
            code = result.value.code if isinstance(result.value, APIError) else 499
        self._counting.called(self._name, call, self._clock.seconds() - began, code)
        return result


@implementer(IRotatesCredentials)
class BoundedRotating(Bounded):
    """A bounded provider that can rotate credentials."""

    def rotate(self, physical: Physical) -> Deferred[None]:
        return self._call(ROTATE, lambda: IRotatesCredentials(self._provider).rotate(physical))


def bounded(
    provider: ISpaceProvider, name: str, clock: IReactorTime, counting: CallMetrics | None = None
) -> Bounded:
    """Wrap a provider."""
    kind = BoundedRotating if IRotatesCredentials.providedBy(provider) else Bounded
    return kind(provider, name, clock, counting or NoMetrics())
