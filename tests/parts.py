"""
``python -m tests.parts [ROOT]``: how many parts the product in ROOT (this checkout) has.

It prints a table of all measures, and one of the packages.  A part is what a reader must know of: a module, a
package, an import, a public name, a statement.  Lines are not counted, because formatting changes them.  Generated
modules (``*_pb2``) are left out.  No number is a goal: the report shows where to look.

``--circles`` prints the modules of each circle, ``--names`` the class names with several meanings, ``--longest``
the longest functions and those with the most parameters, ``--options`` the places of each option.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
NAME = "twisted_exec"
LONG_FUNCTION_LINES, MANY_PARAMETERS = 60, 8
STANDALONE = "standalone.tap"
"""The module that a start of ``exec-standalone`` imports."""
CONSOLE = Path("tests/cli/console/test_program_process.py")
"""It lists the modules that a session of ``kubectl console`` imports."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def is_text(node: ast.stmt) -> bool:
    """Return whether a statement is a bare string: documentation."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


@dataclass(frozen=True)
class Function:
    """
    A function or method.

    :ivar lines: with code of its own, without its docstring.
    :ivar parameters: without ``self`` and ``cls``.
    """

    name: str
    lines: int
    parameters: int


@dataclass(frozen=True)
class Module:
    """
    A module of the product.

    :ivar name: with dots, from the top.
    :ivar package: itself, if it is a package, or the package that it is in.
    """

    name: str
    package: str
    source: str = field(repr=False)

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def statement_nodes(self) -> list[ast.stmt]:
        """All statements, those in functions and classes too."""
        found: list[ast.stmt] = []
        rest: list[ast.AST] = [self.tree]
        while rest:
            # No expression has statements in it.
            for child in ast.iter_child_nodes(rest.pop()):
                if isinstance(child, ast.stmt):
                    found.append(child)
                if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                    rest.append(child)
        return found

    @property
    def imports(self) -> Iterator[ast.Import | ast.ImportFrom]:
        """Statements anywhere in the module."""
        return (n for n in self.statement_nodes if isinstance(n, ast.Import | ast.ImportFrom))

    @cached_property
    def import_lines(self) -> set[int]:
        return {n for each in self.imports for n in range(each.lineno, each.end_lineno + 1)}  # type: ignore[operator]

    @cached_property
    def docstrings(self) -> set[ast.stmt]:
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        found = [self.tree, *(n for n in self.statement_nodes if isinstance(n, kinds))]
        return {n.body[0] for n in found if n.body and is_text(n.body[0])}

    @property
    def statements(self) -> int:
        """Without imports and docstrings; a statement on one line or on several counts the same."""
        return sum(
            not isinstance(n, ast.Import | ast.ImportFrom) and n not in self.docstrings
            for n in self.statement_nodes
        )

    @cached_property
    def code_lines(self) -> set[int]:
        """Without imports, docstrings and comments."""
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.source).readline):
            if token.type not in _NO_CODE:
                lines.update(range(token.start[0], token.end[0] + 1))
        for text in self.docstrings:
            lines.difference_update(range(text.lineno, text.end_lineno + 1))  # type: ignore[operator]
        return lines - self.import_lines

    @property
    def functions(self) -> Iterator[Function]:
        """All functions, with the classes and functions around them in their names."""

        def visit(node: ast.AST, prefix: str, in_class: bool) -> Iterator[Function]:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, _Function):
                    own = self.code_lines & {*range(child.lineno, child.end_lineno + 1)}  # type: ignore[operator]
                    arguments = child.args
                    names = [
                        each.arg
                        for each in arguments.posonlyargs + arguments.args + arguments.kwonlyargs
                    ]
                    bound = in_class and names[:1] in (["self"], ["cls"])
                    count = len(names) + bool(arguments.vararg) + bool(arguments.kwarg) - bound
                    yield Function(f"{self.name}:{prefix}{child.name}", len(own), count)
                    yield from visit(child, f"{prefix}{child.name}.", False)
                elif isinstance(child, ast.ClassDef):
                    yield from visit(child, f"{prefix}{child.name}.", True)
                elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                    yield from visit(child, prefix, in_class)

        return visit(self.tree, "", False)

    @property
    def public(self) -> Iterator[str]:
        """Public functions, classes and variables that the module defines."""
        for node in self.tree.body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    names = [node.name]
                case ast.Assign(targets=targets):
                    names = [each.id for each in targets if isinstance(each, ast.Name)]
                case ast.AnnAssign(target=ast.Name(id=name)):
                    names = [name]
                case _:
                    continue
            yield from (name for name in names if not name.startswith("_"))

    @property
    def classes(self) -> Iterator[str]:
        """Public classes at the top of the module."""
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name

    def targets(self, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
        """Yield the module and the name, or "", that a statement imports; a name may be a module."""
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
            return
        base = node.module or ""
        if node.level:
            around = self.package.split(".")
            around = around[: len(around) - node.level + 1]
            base = ".".join([*around, *([base] if base else [])])
        yield from ((base, alias.name) for alias in node.names)


class Product:
    """All modules below a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules: dict[str, Module] = {}
        for path in sorted((root / NAME).rglob("*.py")):
            if "_pb2" in path.name:
                continue
            parts = path.relative_to(root).with_suffix("").parts
            package = ".".join(parts[:-1])
            name = package if parts[-1] == "__init__" else ".".join(parts)
            self.modules[name] = Module(name, package, path.read_text(encoding="utf-8"))

    @property
    def packages(self) -> Counter[str]:
        """The number of modules in each."""
        return Counter(each.package for each in self.modules.values())

    def _defining(self, module: str, name: str) -> str:
        """Return the module that defines what another one exports."""
        seen = set()
        while (module, name) not in seen:
            seen.add((module, name))
            if f"{module}.{name}" in self.modules:
                return f"{module}.{name}"
            if module not in self.modules:
                return module
            for node in self.modules[module].tree.body:
                if isinstance(node, ast.ImportFrom):
                    for alias, (base, original) in zip(
                        node.names, self.modules[module].targets(node), strict=True
                    ):
                        if (alias.asname or alias.name) == name and base.startswith(NAME):
                            module, name = base, original
        return module

    @cached_property
    def edges(self) -> set[tuple[str, str]]:
        """Imports of modules by modules, of the module that defines a name where another one exports it."""
        found = set()
        for module in self.modules.values():
            for node in module.imports:
                for base, name in module.targets(node):
                    if base.partition(".")[0] == NAME:
                        target = self._defining(base, name) if name else base
                        if target in self.modules and target != module.name:
                            found.add((module.name, target))
        return found

    def package_edges(self, depth: int = 2) -> set[tuple[str, str]]:
        """Imports between packages, cut off at a depth below the top."""

        def cut(name: str) -> str:
            return ".".join(self.modules[name].package.split(".")[: depth + 1])

        return {(cut(a), cut(b)) for a, b in self.edges if cut(a) != cut(b)}

    @property
    def circles(self) -> list[list[str]]:
        """Modules that import each other, also for types only or in functions."""
        return [sorted(each) for each in _components(self.modules, self.edges) if len(each) > 1]

    @property
    def several_meanings(self) -> dict[str, list[str]]:
        """Public class names that several modules define."""
        found = defaultdict(list)
        for module in self.modules.values():
            for name in module.classes:
                found[name].append(module.name)
        return {name: modules for name, modules in found.items() if len(modules) > 1}

    @cached_property
    def options(self) -> Counter[str]:
        """Lines that name each option: a field of one class of ``Settings`` that is a flag, too."""
        fields: Counter[str] = Counter()
        for module in self.modules.values():
            for node in module.tree.body:
                if isinstance(node, ast.ClassDef) and node.name.endswith("Settings"):
                    fields.update(
                        each.target.id
                        for each in node.body
                        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
                    )
        text = "\n".join(each.source for each in self.modules.values())
        lines = [re.findall(r"[a-z]\w*(?:-\w+)*", line) for line in text.splitlines()]
        words = Counter(word for line in lines for word in set(line))
        # A name of a single word means other things, too.
        return Counter(
            {
                name: words[name] + words[name.replace("_", "-")]
                for name, count in fields.items()
                if count == 1 and "_" in name and f'"{name.replace("_", "-")}"' in text
            }
        )

    def imported_by_standalone(self) -> int:
        """Return how many of our modules a start of ``exec-standalone`` imports."""
        script = (
            f"import sys, {NAME}.{STANDALONE}; "
            f"print(sum(name.partition('.')[0] == {NAME!r} for name in sys.modules))"
        )
        command = [sys.executable, "-c", script]
        return int(subprocess.run(command, cwd=self.root, capture_output=True, check=True).stdout)

    def imported_by_console(self) -> int:
        """Return how many of our modules a session of ``kubectl console`` imports, as its test lists them."""
        for node in ast.parse((self.root / CONSOLE).read_text(encoding="utf-8")).body:
            match node:
                case ast.Assign(targets=[ast.Name(id="MODULES")], value=ast.List(elts=names)):
                    return len(names)
        raise ValueError(f"{CONSOLE} lists no modules")

    def measures(self) -> dict[str, int]:
        """Return all figures by their names."""
        modules = self.modules.values()
        functions = [each for module in modules for each in module.functions]
        return {
            "modules": len(modules),
            "packages": len(self.packages) - 1,  # all others are in one
            "modules of the largest package": max(self.packages.values()),
            "import lines": sum(len(each.import_lines) for each in modules),
            "edges between packages at depth 2": len(self.package_edges()),
            "edges between modules": len(self.edges),
            "circles": len(self.circles),
            "class names with several meanings": len(self.several_meanings),
            "public names": sum(len(list(each.public)) for each in modules),
            "lines that name an option, at the median": int(median(self.options.values())),
            "functions above 60 lines": sum(each.lines > LONG_FUNCTION_LINES for each in functions),
            "functions above 8 parameters": sum(
                each.parameters > MANY_PARAMETERS for each in functions
            ),
            "lines of the longest function": max(each.lines for each in functions),
            "most parameters of a function": max(each.parameters for each in functions),
            "statements": sum(each.statements for each in modules),
            "modules imported by exec-standalone": self.imported_by_standalone(),
            "modules imported by kubectl console": self.imported_by_console(),
        }


def _components(nodes: Iterable[str], edges: set[tuple[str, str]]) -> list[list[str]]:
    """Return the strongly connected components (Kosaraju's algorithm)."""
    forward, backward = defaultdict(list), defaultdict(list)
    for a, b in edges:
        forward[a].append(b)
        backward[b].append(a)

    def reach(start: str, graph: dict[str, list[str]], seen: set[str]) -> list[str]:
        """Return the nodes that are not seen yet, each after those that it leads to."""
        order, stack = [], [(start, iter(graph[start]))]
        seen.add(start)
        while stack:
            node, following = stack[-1]
            new = next((each for each in following if each not in seen), None)
            if new is None:
                order.append(node)
                stack.pop()
            else:
                seen.add(new)
                stack.append((new, iter(graph[new])))
        return order

    seen: set[str] = set()
    order = [node for each in nodes if each not in seen for node in reach(each, forward, seen)]
    seen = set()
    return [reach(each, backward, seen) for each in reversed(order) if each not in seen]


def table(measures: dict[str, int]) -> str:
    """Return a line for each measure."""
    return "\n".join([" count  measure", *(f"{n:6}  {name}" for name, n in measures.items())])


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.parts", description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=ROOT)
    for flag in ("--circles", "--names", "--longest", "--options"):
        parser.add_argument(flag, action="store_true")
    chosen = parser.parse_args(arguments)
    product = Product(chosen.root.resolve())
    print(table(product.measures()))
    print("\nmodules  statements  package")
    for package, count in sorted(product.packages.items()):
        own = [each for each in product.modules.values() if each.package == package]
        print(f"{count:7}  {sum(each.statements for each in own):10}  {package}")
    if chosen.circles:
        print("\n" + "\n".join(" ".join(each) for each in product.circles))
    if chosen.names:
        for name, modules in sorted(product.several_meanings.items()):
            print(f"{name}: {' '.join(modules)}")
    if chosen.longest:
        functions = [each for module in product.modules.values() for each in module.functions]
        for each in sorted(functions, key=lambda f: -f.lines)[:20]:
            print(f"{each.lines:4} lines {each.name}")
        for each in sorted(functions, key=lambda f: -f.parameters)[:40]:
            print(f"{each.parameters:4} parameters {each.name}")
    if chosen.options:
        for name, count in product.options.most_common():
            print(f"{count:4} {name}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # | head
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # Python flushes once more at its end
