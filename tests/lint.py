"""
``python tests/lint.py``: rules about single lines of this project, for which ruff has none.

* A test waits for an event, or looks again in a loop; it never waits for a time.  ``tests/README.rst`` says how a
  test waits.  A comment on the line, or above it, gives the reason for each other wait::

      await deferLater(reactor, 0.2)  # wait: REASON

  It does not read benchmarks and interop suites, which are about time.
* ``:param``, ``:ivar`` and ``:cvar`` in a docstring of the product name a parameter or an attribute.
* The program reads each of its settings: a setting that it never reads has no effect.

It prints ``path:line: message`` for each finding, and needs nothing but Python.
"""

from __future__ import annotations

import ast
import gc
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOT_READ = ("tests/benchmarks/", "tests/interop/", "tests/lint.py")
PAUSES = ("pause", "_pause", "_turn")
"""Functions that wait between two looks; each call must itself be in a loop that looks."""

_WAIT = re.compile(r"\b(?:callLater|communicate|deferLater|pause|react|select|sleep|wait\w*)\(")
_REASON = re.compile(r"(.*)# wait: ")
_NAMED = re.compile(r":(param|ivar|cvar) (\w+):")
_FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef

_Finding = tuple[int, str]


class Waits(ast.NodeVisitor):
    """
    The waits of one module that are neither for an event nor between two looks.

    :ivar found: the first and the last line of each.
    """

    def __init__(self) -> None:
        self.found: list[tuple[int, int]] = []
        self._loop: ast.AST | None = None

    def _enter(self, node: ast.AST, loop: ast.AST | None) -> None:
        before, self._loop = self._loop, loop
        self.generic_visit(node)
        self._loop = before

    def visit_FunctionDef(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ) -> None:
        if node.name not in PAUSES:
            self._enter(node, None)

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_While(self, node: ast.While | ast.For) -> None:
        self._enter(node, node)

    visit_For = visit_While

    def _is_polling(self, *kinds: type[ast.AST]) -> bool:
        """Return whether the innermost loop is of one of these kinds, and ends when it has seen something."""
        if isinstance(self._loop, ast.For):  # with no more than so many looks
            ends = any(isinstance(each, ast.Break | ast.Return) for each in ast.walk(self._loop))
            return ast.For in kinds and ends
        return type(self._loop) in kinds

    def visit_Await(self, node: ast.Await) -> None:
        if isinstance(node.value, ast.Call):
            _, name = _called(node.value)
            if name in PAUSES and not _is_turn(node.value.args):
                self._check(node, self._is_polling(ast.While, ast.For))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        owner, name = _called(node)
        arguments = {each.arg for each in node.keywords}
        if name == "deferLater":
            on_clock = "clock" in ast.unparse(node.args[0])
            is_turn = _is_turn(node.args[1:])
            self._check(node, on_clock or is_turn or self._is_polling(ast.While, ast.For))
        elif name == "callLater" and _fires(node.args):
            self._check(node, _is_turn(node.args) or self._is_polling(ast.While, ast.For))
        elif name in ("sleep", "react"):  # trial's timeout ends none of these
            self._check(node, self._is_polling(ast.For))
        elif owner == "os" and name in ("wait", "wait3", "wait4", "waitpid", "waitid"):
            self._check(node, "WNOHANG" in ast.unparse(node))
        elif owner == "select" and name == "select":
            self._check(node, len(node.args) == 4)
        elif name == "communicate":
            self._check(node, "timeout" in arguments)
        elif name == "wait" and owner != "self":
            self._check(node, bool(node.args or node.keywords))
        self.generic_visit(node)

    def _check(self, node: ast.expr, is_right: bool) -> None:
        if not is_right:
            self.found.append((node.lineno, node.end_lineno or node.lineno))


def _called(node: ast.Call) -> tuple[str, str]:
    """Return the owner of a function, and its name."""
    if isinstance(node.func, ast.Attribute):
        owner = node.func.value
        return owner.id if isinstance(owner, ast.Name) else "", node.func.attr
    return "", node.func.id if isinstance(node.func, ast.Name) else ""


def _is_turn(arguments: list[ast.expr]) -> bool:
    """Return whether a delay is one turn of the reactor."""
    return bool(arguments) and ast.unparse(arguments[0]) == "0"


def _fires(arguments: list[ast.expr]) -> bool:
    """Return whether a delayed call does nothing but fire a Deferred."""
    return len(arguments) > 1 and ast.unparse(arguments[1]).endswith((".callback", ".errback"))


def waits(path: str, text: str) -> Iterator[_Finding]:
    """Find waits for a time, and reasons without such a wait."""
    if path.startswith(NOT_READ) or not _WAIT.search(text):
        return
    reasons: dict[int, int] = {}  # The line of each reason, by the line that it is about.
    for number, line in enumerate(text.split("\n"), 1):
        if match := _REASON.match(line):
            reasons[number if match[1].strip() else number + 1] = number
    visitor = Waits()
    visitor.visit(ast.parse(text, path))
    used = set()
    for first, last in visitor.found:
        given = [line for line in range(first, last + 1) if line in reasons]
        used.update(given)
        if not given:
            yield (
                first,
                "wait for an event or look again in a loop (tests/README.rst), or say why not: # wait: ...",
            )
    for line in reasons.keys() - used:
        yield reasons[line], "nothing waits for a time here: remove the reason"


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements and those in them; :func:`ast.walk` would also take every expression."""
    for each in body:
        yield each
        for name in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(each, name, ()))
        for block in (*getattr(each, "handlers", ()), *getattr(each, "cases", ())):
            yield from _statements(block.body)


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}


@cache
def _own_members(node: ast.ClassDef) -> frozenset[str]:
    """Return the fields, attributes and methods of a class, and the parameters of its constructor."""
    names: set[str] = set()
    for each in _statements(node.body):
        for target in (*getattr(each, "targets", ()), getattr(each, "target", None)):
            for part in ast.walk(target) if target is not None else ():
                if isinstance(part, ast.Name | ast.Attribute):
                    names.add(part.id if isinstance(part, ast.Name) else part.attr)
        if isinstance(each, _FUNCTIONS):
            names.add(each.name)
            if each.name in ("__init__", "__new__"):
                names |= _parameters(each)
    return frozenset(names)


class Product:
    """The modules of the product, parsed."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._trees = {path: ast.parse(text, path) for path, text in texts.items()}
        self._classes: dict[str, list[ast.ClassDef]] = {}  # Names may repeat.
        for tree in self._trees.values():
            for node in _statements(tree.body):
                if isinstance(node, ast.ClassDef):
                    self._classes.setdefault(node.name, []).append(node)

    def _members(self, node: ast.ClassDef) -> set[str]:
        """Return the members of a class and of its bases in the product."""
        names, waiting, seen = set(_own_members(node)), [node], {node.name}
        while waiting:
            for part in (part for base in waiting.pop().bases for part in ast.walk(base)):
                name = getattr(part, "id", getattr(part, "attr", ""))
                if name not in seen:
                    seen.add(name)
                    for parent in self._classes.get(name, ()):
                        names |= _own_members(parent)
                        waiting.append(parent)
        return names

    def docstrings(self) -> Iterator[tuple[str, _Finding]]:
        """Find names in docstrings that neither a parameter nor an attribute has."""
        for path, tree in self._trees.items():
            for node in _statements(tree.body):
                if isinstance(node, (ast.ClassDef, *_FUNCTIONS)):
                    named = _NAMED.findall(ast.get_docstring(node) or "")
                    if not named:
                        continue
                    is_class = isinstance(node, ast.ClassDef)
                    known = self._members(node) if is_class else _parameters(node)
                    for field, name in named:
                        if name not in known:
                            yield (
                                path,
                                (node.lineno, f"{node.name} has no {name} (:{field} {name}:)"),
                            )

    def settings(self) -> Iterator[tuple[str, _Finding]]:
        """Find fields of a program's ``Settings`` that no module of their package reads."""
        for path, tree in self._trees.items():
            package = path.split("/")[1]
            if package == "wire":  # Its settings are those of protocols.
                continue
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and node.name.endswith("Settings"):
                    kind = node.name.removesuffix("Settings").lower()
                    read = self._read(package, kind or "settings")
                    for each in node.body:
                        match each:
                            case ast.AnnAssign(target=ast.Name(id=name)) if name not in read:
                                yield path, (each.lineno, f"nothing reads {node.name}.{name}")

    def _read(self, package: str, kind: str) -> set[str]:
        """
        Return the attributes that a package reads of objects with "settings", or the kind, in their names.

        A name of several words is that of a setting, whatever the name of its object.
        """
        return {
            node.attr
            for path, tree in self._trees.items()
            if path.split("/")[1] == package
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
            if "_" in node.attr or re.search(rf"(?i)settings|{kind}", ast.unparse(node.value))
        }


def findings() -> Iterator[tuple[str, _Finding]]:
    """Yield the path of each finding, its line and its message."""
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for place in ("tests", "twisted_exec")
        for path in sorted((ROOT / place).rglob("*.py"))
        if "_pb2" not in path.name
    }
    for path, text in texts.items():
        if path.startswith("tests/"):
            yield from ((path, each) for each in waits(path, text))
    product = Product({p: text for p, text in texts.items() if p.startswith("twisted_exec/")})
    yield from product.docstrings()
    yield from product.settings()


def main() -> int:
    gc.disable()  # It would visit the syntax trees again and again: three quarters of the time.
    found = sorted(findings())
    for path, (line, message) in found:
        print(f"{path}:{line}: {message}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
