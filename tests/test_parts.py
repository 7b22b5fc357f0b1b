"""
Tests for :mod:`tests.parts`: the product has no more parts than its budgets allow.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests import parts


class BudgetTests(SynchronousTestCase):
    """This checkout."""

    def test_budgets(self) -> None:
        """No measure is above its budget, and each has one."""
        measures = parts.Product(parts.ROOT).measures()
        allowed = parts.budgets(parts.BUDGETS.read_text(encoding="utf-8"))
        above = {name: value for name, value in measures.items() if value > allowed[name]}
        self.assertEqual(
            above, {}, f"more than {parts.BUDGETS} allows:\n{parts.table(measures, allowed)}"
        )


class ProductTests(SynchronousTestCase):
    """A small product."""

    def product(self, **modules: str) -> parts.Product:
        root = Path(self.mktemp())
        for name, source in modules.items():
            path = root / parts.NAME / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
            (path.parent / "__init__.py").touch()
        (root / parts.NAME / "__init__.py").touch()
        return parts.Product(root)

    def test_edges(self) -> None:
        """Relative imports, those in functions and those of modules count, and what another module exports."""
        product = self.product(
            a__one="X = 1",
            a__two="from .one import X as Y\nimport os",
            b="def f():\n    from .a import two\nfrom twisted_exec.a.two import Y",
        )
        self.assertEqual(
            {
                (x.removeprefix("twisted_exec."), y.removeprefix("twisted_exec."))
                for x, y in product.edges
            },
            {("a.two", "a.one"), ("b", "a.two"), ("b", "a.one")},
        )
        self.assertEqual(product.package_edges(), {("twisted_exec", "twisted_exec.a")})
        self.assertEqual(product.circles, [])

    def test_circles(self) -> None:
        """Imports for types make circles, too."""
        product = self.product(
            one="import twisted_exec.two",
            two="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import three",
            three="from .one import x",
        )
        names = [f"twisted_exec.{name}" for name in ("one", "three", "two")]
        self.assertEqual(product.circles, [names])

    def test_statements(self) -> None:
        """Docstrings, comments, imports and line breaks make no statements."""
        source = '"""Text."""\nimport os  # why\nx = (\n    1,\n)\nif x:\n    pass\n'
        module = self.product(one=source).modules["twisted_exec.one"]
        self.assertEqual(module.statements, 3)
        self.assertEqual(module.import_lines, {2})
        self.assertEqual(module.code_lines, {3, 4, 5, 6, 7})

    def test_names(self) -> None:
        """Public functions, classes and variables; classes of one name in two modules."""
        product = self.product(
            one="class A: pass\nb = 1\n_c = 2\nd: int\ndef e(): pass\nclass _F: pass",
            two="class A: pass",
        )
        one = product.modules["twisted_exec.one"]
        self.assertEqual(list(one.public), ["A", "b", "d", "e"])
        self.assertEqual(product.several_meanings, {"A": ["twisted_exec.one", "twisted_exec.two"]})

    def test_functions(self) -> None:
        """``self`` is no parameter; the lines of a docstring do not count."""
        source = (
            'class A:\n    def f(self, a, *b, c=1, **d):\n        """Text."""\n        return a'
        )
        (function,) = self.product(one=source).modules["twisted_exec.one"].functions
        self.assertEqual(function, parts.Function("twisted_exec.one:A.f", 2, 4))

    def test_options(self) -> None:
        """Lines with the field or the flag of an option count, once each."""
        product = self.product(
            one="class Settings:\n    idle_seconds: float = 1\n    other_name: int = 2",
            two='flags = ["idle-seconds"]\nx = idle_seconds, idle_seconds',
        )
        self.assertEqual(product.options, {"idle_seconds": 3})

    def test_head(self) -> None:
        """A reader that ends early, such as ``head``, is no error."""
        source = 'class Settings:\n    idle_seconds = "idle-seconds"\n    idle_seconds: str\ndef f(): pass'
        root = self.product(standalone__tap=source).root
        console = root / parts.CONSOLE
        console.parent.mkdir(parents=True)
        console.write_text('MODULES = ["a"]')
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "w") as closed:
            result = subprocess.run(
                [sys.executable, "-m", "tests.parts", str(root.resolve())],
                cwd=parts.ROOT,
                stdout=closed,
                stderr=subprocess.PIPE,
                check=False,
            )
        self.assertEqual((result.returncode, result.stderr), (0, b""))


class TableTests(SynchronousTestCase):
    """Budgets and the table."""

    def test_budgets(self) -> None:
        """Comments are left out."""
        self.assertEqual(
            parts.budgets("# why\npublic names: 3\n\na: 4"), {"public names": 3, "a": 4}
        )

    def test_table(self) -> None:
        """A number above its budget is marked."""
        text = parts.table({"a": 2, "b": 3, "c": 1}, {"a": 1, "b": 3})
        self.assertEqual(
            text.splitlines()[1:],
            ["     2       1  a  <- above its budget", "     3       3  b", "     1       -  c"],
        )
