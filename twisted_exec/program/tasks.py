"""Coroutines of services: methods that return a Deferred, and turns of the reactor."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from twisted_exec.api.status import APIError

_P = ParamSpec("_P")
_T = TypeVar("_T")


def as_deferred(function: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, Deferred[_T]]:
    """Decorate a coroutine function: a call begins at once, and returns a Deferred."""

    @wraps(function)
    def begin(*args: _P.args, **kwargs: _P.kwargs) -> Deferred[_T]:
        return Deferred.fromCoroutine(function(*args, **kwargs))

    return begin


async def settled(done: Deferred[_T]) -> _T:
    """
    Wait for a Deferred, and leave no reference cycle if it fails with an API error.

    ``await`` of a Deferred that has failed already adds its own frame to the error's traceback.
    The frame refers to the Deferred, so the error would keep itself, and all that its callers work on,
    until the garbage collector finds it.
    """
    try:
        return await done
    except APIError as error:
        del done
        raise error.with_traceback(None) from None


async def ends_within(
    seconds: float, clock: IReactorTime, work: Coroutine[Any, Any, object]
) -> bool:
    """Run a coroutine; return false if it takes longer, and is cancelled."""
    ending = Deferred.fromCoroutine(work).addCallback(lambda _: True)
    return await ending.addTimeout(seconds, clock, onTimeoutCancel=lambda *_: False)


def each_alone(
    things: Iterable[_T], act: Callable[[_T], object], failed: Callable[[_T], object]
) -> None:
    """
    Call a function for each of several things, also if it fails for one of them.

    :param failed: called with a thing for which ``act`` has failed, while the exception is handled.
    """
    for each in things:
        try:
            act(each)
        except Exception:
            failed(each)
