"""
``python -m tests.interop [NAME ...]``: run suites that use foreign programs, under trial.

A suite is a module of this package that defines test cases; without names all of them run.  A
suite skips itself when its programs are not installed (see the docstring of ``tests.interop``).
``--all`` builds the programs first, runs each suite by itself, and prints a table.
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
from . import builds, results


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {package}",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", action="store_true", help="print the names of all suites")
    parser.add_argument(
        "--all",
        action="store_true",
        help="build the programs, run each suite (or those named) in a process of its own, and print a table; "
        "a suite that has passed on this commit is not run again",
    )
    parser.add_argument(
        "--may-skip",
        action="append",
        default=[],
        metavar="NAME",
        help="with --all: a suite whose programs may be missing",
    )
    parser.add_argument(
        "--build", action="store_true", help="build the programs NAME ..., or all, and exit"
    )
    parser.add_argument(
        "--environment", action="store_true", help="print the variables of built programs"
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="a suite, such as replicas")
    return parser


def main(arguments: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    work = builds.work_directory()
    if options.build:
        try:
            return 1 if builds.build(builds.select(options.names), work) else 0
        except LookupError as unknown:
            parser.error(str(unknown))
    if options.environment:
        for name, value in builds.variables(work).items():
            print(f"export {name}={value}")
        return 0
    available = suites()
    if options.list:
        print("\n".join(available))
        return 0
    names = [name.removeprefix(f"{package}.") for name in options.names] or available
    unknown = sorted(
        {name.partition(".")[0] for name in [*names, *options.may_skip]} - set(available)
    )
    if unknown:
        parser.error(f"no such suite: {', '.join(unknown)}; --list prints all of them")
    if options.all:
        if missing := builds.missing_packages():
            print(f"not installed: apt-get install {' '.join(missing)}")
        builds.build(builds.BUILDS, work)
        os.environ |= builds.variables(work)
        return results.run(names, frozenset(options.may_skip), work)
    os.environ |= builds.variables(work)
    trial = [sys.executable, "-m", "twisted.trial", "--reporter=bwverbose"]
    os.execv(sys.executable, trial + [f"{package}.{name}" for name in names])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
