"""
Tests for docstrings: what they name exists.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

PRODUCT = Path(__file__).parents[1] / "twisted_exec"
_FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
_NAMED = re.compile(r":(param|ivar|cvar) (\w+):")


@cache
def trees() -> dict[str, ast.Module]:
    """Return the parsed modules of the product by their paths."""
    paths = (path for path in PRODUCT.rglob("*.py") if not path.name.endswith("_pb2.py"))
    return {str(path.relative_to(PRODUCT)): ast.parse(path.read_text()) for path in paths}


def statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements and those in them; :func:`ast.walk` would also take every expression."""
    for each in body:
        yield each
        for name in ("body", "orelse", "finalbody"):
            yield from statements(getattr(each, name, ()))
        for block in (*getattr(each, "handlers", ()), *getattr(each, "cases", ())):
            yield from statements(block.body)


@cache
def classes() -> dict[str, list[ast.ClassDef]]:
    """Return the classes of the product by their names; names may repeat."""
    found: dict[str, list[ast.ClassDef]] = {}
    for tree in trees().values():
        for node in statements(tree.body):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    return found


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names of the parameters of a function."""
    return {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}


@cache
def own_members(node: ast.ClassDef) -> frozenset[str]:
    """Return the fields, attributes and methods of a class, and what it is created with."""
    names: set[str] = set()
    for each in statements(node.body):
        for target in (*getattr(each, "targets", ()), getattr(each, "target", None)):
            for part in ast.walk(target) if target is not None else ():
                if isinstance(part, ast.Name | ast.Attribute):
                    names.add(part.id if isinstance(part, ast.Name) else part.attr)
        if isinstance(each, _FUNCTIONS):
            names.add(each.name)
            if each.name in ("__init__", "__new__"):
                names |= parameters(each)
    return frozenset(names)


def members(node: ast.ClassDef) -> set[str]:
    """Return the members of a class and of its bases in the product."""
    names, waiting, seen = set(own_members(node)), [node], {node.name}
    while waiting:
        for part in (part for base in waiting.pop().bases for part in ast.walk(base)):
            name = getattr(part, "id", getattr(part, "attr", ""))
            if name not in seen:
                seen.add(name)
                for parent in classes().get(name, ()):
                    names |= own_members(parent)
                    waiting.append(parent)
    return names


def unknown() -> Iterator[str]:
    """Yield the names in docstrings that nothing has."""
    for path, tree in trees().items():
        for node in statements(tree.body):
            if isinstance(node, (ast.ClassDef, *_FUNCTIONS)):
                named = _NAMED.findall(ast.get_docstring(node) or "")
                if not named:
                    continue
                known = members(node) if isinstance(node, ast.ClassDef) else parameters(node)
                for field, name in named:
                    if name not in known:
                        yield f"{path}:{node.lineno}: {node.name} has no {name} (:{field} {name}:)"


class DocstringTests(SynchronousTestCase):
    """The docstrings of the product."""

    def test_parameters(self) -> None:
        """Each ``:param``, ``:ivar`` and ``:cvar`` names a parameter or an attribute."""
        self.assertEqual(list(unknown()), [])
