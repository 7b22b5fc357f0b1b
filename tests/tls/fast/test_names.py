"""
Tests for :mod:`twisted_exec.tls.fast.names`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from twisted.internet.defer import Deferred, DeferredSemaphore, gatherResults
from twisted.logger import LogEvent, Logger, formatEvent
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.flows import forks, programs
from tests.tiers import PROGRAMS
from twisted_exec.tls.fast import names
from twisted_exec.tls.fast.names import NAMES, PARTS

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "private-names.rst"

PACKAGES = {
    "Twisted": ["twisted"],
    "pyOpenSSL": ["OpenSSL"],
    "cryptography": ["cryptography", "OpenSSL"],
}
"""Packages that use the names of a library."""

DOCUMENTED = {"_exit", "_fields", "_replace"}
"""Names with an underscore that Python documents, of ``os`` and of named tuples."""


def is_private(name: str) -> bool:
    """Return whether a name starts with one underscore."""
    return name.startswith("_") and not name.startswith("__") and name.strip("_") != ""


def evaluated(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a module, without annotations, which are never evaluated."""
    yield tree
    for name, value in ast.iter_fields(tree):
        if name not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from evaluated(child)


def is_own(node: ast.expr) -> bool:
    """Return whether a node is ``self``, ``cls`` or ``super()``."""
    return ast.unparse(node) in ("self", "cls", "super()")


def defined(node: ast.AST) -> Iterator[str]:
    """Yield the name that a node gives to a function, class, variable or attribute."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
        case ast.Attribute(value=value, attr=name, ctx=ast.Store()) if is_own(value):
            yield name


def uses(tree: ast.Module) -> Iterator[str]:
    """
    Yield private names of other objects, and of modules, that a module uses and does not define.

    A name of ``self`` may be one of a base class: see :func:`overlaps`.
    """
    here = {name for node in ast.walk(tree) for name in defined(node)}
    for node in evaluated(tree):
        match node:
            case ast.Attribute(value=value, attr=name) if not is_own(value) and name not in here:
                yield name
            case ast.Import(names=aliases):
                yield from (part for each in aliases for part in each.name.split("."))
            case ast.ImportFrom(module=module, names=aliases) if not node.level:
                if not (module or "").startswith("twisted_exec"):
                    yield from (part for each in aliases for part in each.name.split("."))
                    yield from (module or "").split(".")
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr" | "setattr"),
                args=[_, ast.Constant(value=str(name)), *_],
            ) if name not in here:
                yield name


@cache
def mentioned(cls: type) -> frozenset[str]:
    """Return the names that the body of a class defines, or uses of ``self``."""
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):  # of no Python source
        return frozenset()
    nodes = list(evaluated(body))
    own = {each.attr for each in nodes if isinstance(each, ast.Attribute) and is_own(each.value)}
    return frozenset(own.union(*(defined(node) for node in nodes)))


def overlaps(cls: type) -> set[str]:
    """Return the private names that a class of the product shares with its foreign base classes."""
    ours = [each for each in cls.__mro__ if each.__module__.startswith("twisted_exec")]
    others = [each for each in cls.__mro__ if each not in ours]
    names = {name for each in ours for name in mentioned(each) if is_private(name)}
    return {name for each in others for name in names & {*mentioned(each), *vars(each)}}


def product_classes() -> Iterator[type]:
    """Yield the classes of all modules that can be imported here."""
    for path in sorted((ROOT / "twisted_exec").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if path.parent.name == "protos" or path.stem == "__main__":
            continue
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue  # of an optional library
        for each in vars(module).values():
            if inspect.isclass(each) and each.__module__ == name:
                yield each


SCRIPT = Path(__file__).with_name("renamed.py")
OTHERS = [
    "asyncio",
    "attr",
    "hyperlink",
    "hypothesis.stateful",
    "prometheus_client",
    "typing_extensions",
    "unittest",
    "zope.interface",
]
"""Half of the imports of :mod:`tests.tls.fast.renamed`; they do not import the libraries."""


class MissingTests(TestCase):
    """Programs run without a name of a library, and say so."""

    starts = PROGRAMS

    def setUp(self) -> None:
        self.nursery = forks.Nursery(OTHERS, {"PYTHONPATH": str(ROOT)})
        self.addCleanup(self.nursery.close)

    async def opened_without(self, name: str, library: str) -> tuple[str, list[str]]:
        """Open consoles with a library that has another name; return errors, and the warnings of the fast parts."""
        words = [name, *PACKAGES[library]] if name else []
        program = programs.fork([str(SCRIPT), *words], self.nursery, cwd=str(ROOT))
        self.addCleanup(program.stop)
        code = await program.ended
        return program.output.decode() if code else "", program.stdout.decode().splitlines()

    async def test_each(self) -> None:
        """Without any one of the names consoles open over TLS, and one warning names it and the remedy."""
        without = sorted({(each.name, each.library) for each in NAMES})
        turns = DeferredSemaphore(2)
        results = await gatherResults(
            [
                turns.run(lambda each=each: Deferred.fromCoroutine(self.opened_without(*each)))
                for each in without
            ]
        )
        for (name, library), (errors, warnings) in zip(without, results, strict=True):
            with self.subTest(name):
                self.assertEqual(errors, "")
                self.assertEqual(len(warnings), 1, warnings)
                self.assertRegex(warnings[0], rf"^{library} [0-9.]+\S*: no \S+\.{name}\b")
                self.assertIn(f"install an older {library}, or a newer twisted-exec", warnings[0])

    async def test_none(self) -> None:
        """With all of them nothing is logged."""
        self.assertEqual(await self.opened_without("", ""), ("", []))


class WarningTests(SynchronousTestCase):
    """A part whose names are missing."""

    def test_once(self) -> None:
        """The first look warns once, with all names and the price; the answer stays the same."""
        self.patch(names, "_results", {})  # a process looks once: these are what it has found
        self.patch(names, "_warned", set())
        events: list[LogEvent] = []
        self.patch(names, "_log", Logger(observer=events.append))
        for part, about in PARTS.items():
            with self.subTest(part):
                events.clear()
                names._warned.clear()
                self.assertFalse(names.is_usable(part, {}))
                self.assertFalse(names.is_usable(part, {}))
                (text,) = (formatEvent(event) for event in events)
                for each in NAMES:
                    if part in each.parts:
                        self.assertIn(f"no {each.owner}.{each.name}", text)
                self.assertIn(about.otherwise, text)
                self.assertIn(about.price, text)


class ListTests(SynchronousTestCase):
    """The list is complete, and the page agrees."""

    def test_page(self) -> None:
        """The page has each name with its part, and what runs without each part."""
        text = " ".join(PAGE.read_text().split())
        for part, about in PARTS.items():
            self.assertIn(f"* - {part} - {about.otherwise} - {about.price}", text)
        rows = {
            f"* - ``{each.owner}.{each.name}`` - {', '.join(each.parts)} - {each.reason} - {each.ticket or 'nowhere'} "
            for each in NAMES
        }
        for row in rows:
            self.assertIn(row, text)
        self.assertEqual(text.count("* - ``"), len(rows))

    def test_uses(self) -> None:
        """No module uses a private name of another object that is neither its own nor listed."""
        listed = {each.name for each in NAMES} | {each.owner.partition(".")[0] for each in NAMES}
        for path in sorted((ROOT / "twisted_exec").rglob("*.py")):
            if path.parent.name != "protos":
                names = set(filter(is_private, uses(ast.parse(path.read_text()))))
                self.assertEqual(names - listed - DOCUMENTED, set(), path)

    def test_subclasses(self) -> None:
        """No class uses or replaces a private name of a foreign base class that is not listed."""
        listed = {each.name for each in NAMES}
        found = {name for each in product_classes() for name in overlaps(each)}
        self.assertEqual(found - listed, set())
        self.assertIn("_makeTransport", found)
