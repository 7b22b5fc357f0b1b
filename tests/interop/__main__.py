"""
``python -m tests.interop [--list] [NAME ...]``: run interoperability suites under trial.

A suite is a module of this package that defines test cases; without names all of them run.  A
suite skips itself when its programs are not installed (see the docstring of ``tests.interop``).
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
from unittest import TestCase

from twisted.trial.runner import TestLoader

from . import __name__ as package
from . import __path__ as directories


def suites() -> list[str]:
    """Return the names of all suites, sorted: modules of this package with tests of their own."""
    modules = (module.name for module in pkgutil.iter_modules(directories))
    return sorted(name for name in modules if name != "__main__" and _has_tests(name))


def _has_tests(name: str) -> bool:
    module = importlib.import_module(f"{package}.{name}")
    loader = TestLoader()
    return any(
        loader.loadClass(each).countTestCases()
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, TestCase)
        and each.__module__ == module.__name__
    )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog=f"python -m {package}", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the names of all suites")
    parser.add_argument("names", metavar="NAME", nargs="*", help="a suite, such as replicas")
    options = parser.parse_args(arguments)
    available = suites()
    if options.list:
        print("\n".join(available))
        return
    names = [name.removeprefix(f"{package}.") for name in options.names] or available
    unknown = sorted({name.partition(".")[0] for name in names} - set(available))
    if unknown:
        parser.error(f"no such suite: {', '.join(unknown)}; --list prints all of them")
    trial = [sys.executable, "-m", "twisted.trial", "--reporter=bwverbose"]
    os.execv(sys.executable, trial + [f"{package}.{name}" for name in names])


if __name__ == "__main__":
    main(sys.argv[1:])
