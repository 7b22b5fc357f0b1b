"""A machine runtime that records its calls and gives scripted answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from zope.interface import implementer

from twisted_exec.iri.interfaces import IMachineLogs, IMachineRuntime
from twisted_exec.iri.revisions import CONSOLE, IRONCORE

_ALL = (*IRONCORE.calls.values(), *CONSOLE.calls.values())


@implementer(IMachineRuntime, IMachineLogs)
class ScriptedRuntime:
    """Each method calls ``answers[name](request, **facts)``, or answers an empty message."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, dict[str, str]]] = []
        self.answers: dict[str, Callable[..., Any]] = {}

    def _answer(self, name: str, request: Any, **facts: str) -> Deferred[Any]:
        self.calls.append((name, request, facts))
        response = next(one.response for one in _ALL if one.attribute == name)
        return maybeDeferred(self.answers.get(name, lambda *_, **__: response()), request, **facts)


def _method(name: str) -> Callable[..., Deferred[Any]]:
    def call(self: ScriptedRuntime, request: Any, **facts: str) -> Deferred[Any]:
        return self._answer(name, request, **facts)

    return call


for _one in _ALL:
    setattr(ScriptedRuntime, _one.attribute, _method(_one.attribute))
