"""
Tests use what ``twisted_exec`` offers, not its private names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests import parts

ROOT = Path(__file__).parents[1]

_BY_NAME = {"addPatch", "delattr", "getattr", "hasattr", "object", "patch", "setattr"}
"""Calls that take the name of an attribute as a string; ``object`` is that of ``mock.patch``."""

_PRIVATE_WORD = re.compile(r"\b_[A-Za-z0-9]\w*")


def is_private(name: str) -> bool:
    """Return whether a name starts with one underscore."""
    return name.startswith("_") and not name.startswith("__") and name.strip("_") != ""


def definitions(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the private functions, classes, variables and attributes of ``self`` that a module defines."""
    for node in nodes:
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                pass
            case ast.Name(id=name, ctx=ast.Store()):
                pass
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                pass
            case _:
                continue
        if is_private(name):
            yield name


def other_modules(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names under which a module imports what does not come from ``twisted_exec``."""
    for node in nodes:
        match node:
            case ast.Import(names=aliases):
                pass
            case ast.ImportFrom(module=module, names=aliases) if not (module or "").startswith(
                "twisted_exec"
            ):
                pass
            case _:
                continue
        for alias in aliases:
            if not alias.name.startswith("twisted_exec"):
                yield alias.asname or alias.name.partition(".")[0]


def uses(source: str, private: set[str]) -> Iterator[tuple[int, str]]:
    """
    Yield the line and the name of each use of a private name of ``twisted_exec``.

    ``a._b._c`` counts twice.  An attribute of ``self``, of a module that is not from ``twisted_exec``,
    or with a name that the test defines itself does not count.

    :param private: the names that ``twisted_exec`` defines.
    """
    if private.isdisjoint(_PRIVATE_WORD.findall(source)):
        return
    nodes = list(ast.walk(ast.parse(source)))  # once, because it is what takes time
    elsewhere = private - set(definitions(nodes))
    others = {"self", "cls", *other_modules(nodes)}
    for node in nodes:
        match node:
            case ast.ImportFrom(module=str(module), names=aliases) if module.startswith(
                "twisted_exec"
            ):
                for alias in aliases:
                    if is_private(alias.name):
                        yield node.lineno, alias.name
            case ast.Attribute(value=ast.Name(id=base)) if base in others:
                pass
            case ast.Attribute(attr=name) if name in elsewhere:
                yield node.lineno, name
            case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called), args=args) if (
                called in _BY_NAME
            ):
                for argument in args:
                    match argument:
                        case ast.Constant(value=str(text)):
                            module, _, name = text.rpartition(".")
                            if name in elsewhere and (
                                not module or module.startswith("twisted_exec")
                            ):
                                yield node.lineno, name


class PrivateNamesTests(SynchronousTestCase):
    """A test that needs a private name breaks when only the implementation changes."""

    def test_ceiling(self) -> None:
        """Ever fewer uses of private names are left."""
        private: set[str] = set()
        for path in (ROOT / "twisted_exec").rglob("*.py"):
            source = path.read_text(encoding="utf-8")
            if _PRIVATE_WORD.search(source):
                private.update(definitions(ast.walk(ast.parse(source))))
        found = [
            f"{path.relative_to(ROOT)}:{line} {name}"
            for path in sorted((ROOT / "tests").rglob("*.py"))
            for line, name in sorted(uses(path.read_text(encoding="utf-8"), private))
        ]
        allowed = parts.budgets(parts.BUDGETS.read_text())[
            "private names of the product that tests use"
        ]
        self.assertLessEqual(
            len(found), allowed, "\n".join(["more private names than before:", *found])
        )

    def test_uses(self) -> None:
        """Imports, attributes and names in strings count; what the test owns does not."""
        source = """
import os
from twisted_exec.journal import _LIMIT, files
from tests.journal import support

class Tests:
    def test(self):
        self._open = support._open
        self.patch(files, "_LIMIT", 1)
        self.patch(support, "unrelated", "_LIMIT of a sentence")
        patch("twisted_exec.journal.files._LIMIT", 1)
        os._exit(self.journal._tail._marks, self._tail, self.journal._open)
"""
        private = {"_LIMIT", "_open", "_exit", "_tail", "_marks"}
        expected = [(3, "_LIMIT"), (9, "_LIMIT"), (11, "_LIMIT"), (12, "_marks"), (12, "_tail")]
        self.assertEqual(sorted(uses(source, private)), expected)
