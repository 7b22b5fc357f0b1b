"""
What an object keeps in memory, however it keeps it.

A test that nothing of a finished session is left, or that a flood is not kept, compares what the
object retains with what it retained before, or with a limit::

    before = entries(cache, beside=[clock])
    ...
    self.assertEqual(entries(cache, beside=[clock]), before)

This is no way to an object that a test wants to use: take a parameter of its constructor, or the private name.
"""

from __future__ import annotations

import gc
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TypeVar
from unittest import TestCase

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

_Kind = TypeVar("_Kind")

_REPEATED = 4
_COLLECTIONS = (dict, list, set, frozenset, deque, array)
_TEXTS = (bytes, bytearray, memoryview, str)


def _objects(owner: object, beside: Iterable[object]) -> Iterator[object]:
    """
    Yield an object and all that it keeps alive.

    Classes, modules, loggers and clocks are everyone's, and left out; so is the test itself, which
    callbacks often refer to.

    :param beside: objects that the owner uses but does not own.
    """
    seen = {id(each) for each in beside}
    rest = [owner]
    while rest:
        each = rest.pop()
        if id(each) in seen or isinstance(each, (type, ModuleType, Logger, TestCase)):
            continue
        if each is not owner and IReactorTime.providedBy(each):
            continue
        seen.add(id(each))
        yield each
        match each:
            case FunctionType():
                rest += each.__closure__ or ()  # not its module's globals
            case MethodType() | BuiltinFunctionType():
                rest.append(each.__self__)
            case partial():
                rest += [each.func, *each.args, *each.keywords.values()]
            case _:
                rest += gc.get_referents(each)


def instances(owner: object, kind: type[_Kind], *, beside: Iterable[object] = ()) -> list[_Kind]:
    """Return the objects of a class that an object retains."""
    return [each for each in _objects(owner, beside) if isinstance(each, kind)]


def entries(owner: object, *, beside: Iterable[object] = ()) -> int:
    """Return how many entries all collections have that an object retains."""
    found = list(_objects(owner, beside))
    attributes = {id(each.__dict__) for each in found if hasattr(each, "__dict__")}
    return sum(
        len(each) for each in found if isinstance(each, _COLLECTIONS) and id(each) not in attributes
    )


def growth(
    owner: object, act: Callable[[], object], *, first: int = 1, beside: Iterable[object] = ()
) -> int:
    """
    Return how many more entries an object retains after an act is repeated.

    :param first: how often the act is done before, until caches and metrics have their entries.
    """
    for _ in range(first):
        act()
    before = entries(owner, beside=beside)
    for _ in range(_REPEATED):
        act()
    return entries(owner, beside=beside) - before


def weight(owner: object, *, beside: Iterable[object] = ()) -> int:
    """Return the length of all texts, in bytes or characters, that an object retains; keys do not count."""
    found = list(_objects(owner, beside))
    return sum(len(each) for each in found if isinstance(each, _TEXTS))
