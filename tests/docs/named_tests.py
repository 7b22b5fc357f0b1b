"""
Tests that pages of the documentation name.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def functions_of(module: str) -> frozenset[str]:
    """
    Return the names of all functions of a test module, such as ``auth.test_jose``.

    A method of a class at the top of the module is there twice: as ``test_x`` and as ``Class.test_x``.
    """
    path = TESTS.joinpath(*module.split(".")).with_suffix(".py")
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {node.name for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)}
    for each in tree.body:
        if isinstance(each, ast.ClassDef):
            names |= {
                f"{each.name}.{node.name}" for node in each.body if isinstance(node, _FUNCTIONS)
            }
    return frozenset(names)


def exists(name: str) -> bool:
    """Return whether there is a test, such as ``auth.test_jose.test_x`` or ``auth.test_jose.Class.test_x``."""
    *module, owner, test = name.split(".")
    if owner[:1].isupper():
        return f"{owner}.{test}" in functions_of(".".join(module))
    return test in functions_of(".".join([*module, owner]))
