"""
What an object keeps in memory, however it keeps it.

A test that nothing of a finished session is left, or that a flood is not kept, compares what the
object retains with what it retained before, or with a limit::

    before = entries(cache, beside=[clock])
    ...
    self.assertEqual(entries(cache, beside=[clock]), before)
"""

from __future__ import annotations

import gc
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar
from unittest import TestCase

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

_Kind = TypeVar("_Kind")

_COLLECTIONS = (dict, list, set, frozenset, deque, array)
_TEXTS = (bytes, bytearray, memoryview, str)


def objects(owner: object, *, beside: Iterable[object] = ()) -> Iterator[object]:
    """
    Yield an object and all that it keeps alive.

    Classes, modules, loggers and clocks are everyone's, and left out; so is the test itself, which
    callbacks often refer to.

    :param beside: objects that the owner uses but does not own.
    """
    return (each for each, _ in _walk(owner, beside))


def _walk(owner: object, beside: Iterable[object]) -> Iterator[tuple[object, tuple[Any, ...]]]:
    """Yield each object, and the one through which it is reached: ``(object, (object, ...))``, or ``()``."""
    seen = {id(each) for each in beside}
    rest: list[tuple[object, tuple[Any, ...]]] = [(owner, ())]
    while rest:
        each, path = rest.pop()
        if id(each) in seen or isinstance(each, (type, ModuleType, Logger, TestCase)):
            continue
        if each is not owner and IReactorTime.providedBy(each):
            continue
        seen.add(id(each))
        yield each, path
        match each:
            case FunctionType():
                kept = list(each.__closure__ or ())  # not its module's globals
            case MethodType() | BuiltinFunctionType():
                kept = [each.__self__]
            case partial():
                kept = [each.func, *each.args, *each.keywords.values()]
            case _:
                kept = gc.get_referents(each)
        rest += [(one, (each, path)) for one in kept]


def instances(owner: object, kind: type[_Kind], *, beside: Iterable[object] = ()) -> list[_Kind]:
    """Return the objects of a class that an object retains."""
    return [each for each in objects(owner, beside=beside) if isinstance(each, kind)]


def only(owner: object, kind: type[_Kind]) -> _Kind:
    """
    Return the only object of a class that an object retains.

    :raises AssertionError: there is none, or there are several; it says through what each is reached.
    """
    found = [(each, path) for each, path in _walk(owner, ()) if isinstance(each, kind)]
    if len(found) == 1:
        return found[0][0]
    lines = [f"{len(found)} objects of {kind.__name__}"]
    for each, path in found:
        lines.append(f"{each!r:.200}")
        while path:
            each, path = path
            lines.append(f"    in {type(each).__qualname__} {each!r:.120}")
    raise AssertionError("\n".join(lines))


def entries(owner: object, *, beside: Iterable[object] = ()) -> int:
    """Return how many entries all collections have that an object retains."""
    found = list(objects(owner, beside=beside))
    attributes = {id(each.__dict__) for each in found if hasattr(each, "__dict__")}
    return sum(
        len(each) for each in found if isinstance(each, _COLLECTIONS) and id(each) not in attributes
    )


def weight(owner: object, *, beside: Iterable[object] = ()) -> int:
    """Return the length of all texts, in bytes or characters, that an object retains; keys do not count."""
    found = list(objects(owner, beside=beside))
    return sum(len(each) for each in found if isinstance(each, _TEXTS))
