"""
Results of each space provider: every case of its contract, for every adaptor.

``python -m tests.interop.space_table`` tries all and writes ``docs/reference/space-providers.rst``,
in some ten minutes; it writes nothing when a case failed.  An adaptor is tried over what its
provider was recorded to answer (``tests/spacemanager/providers``), and over the provider itself
where its programs are found (``tests/interop/space_*``).  With names of classes, such as
``RealLocalTests``, only those are tried, and nothing is written.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twisted.trial.reporter import TestResult
from twisted.trial.runner import TestLoader
from twisted.trial.unittest import TestCase

from tests.contracts.space_provider import CASES, SpaceProviderContract

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "space-providers.rst"
PLACES = ("tests/spacemanager/providers/**/test_*.py", "tests/interop/space_*.py")

_PAGE = """\
.. Written by ``python -m tests.interop.space_table``: change it there.

Tested space providers
======================

This page lists the behaviour that the Space Manager expects of every space provider, and the
providers for which it was tested on {date}.  Each cell is a test: ✓ means that it passed; a number
means that the case does not apply, for the reason below the table.  *Recorded* columns test our code for the
provider against recorded or documented answers; the other columns use the programs in the version
table.

{versions}
{untried}
{table}
Cases that do not apply
-----------------------

{reasons}
"""


@dataclass
class Column:
    """
    One provider, tried.

    :param why_not: why it was not; empty when it was.
    :param problems: by case: what failed.
    """

    title: str
    cannot: Mapping[str, str]
    version: str = ""
    why_not: str = ""
    problems: dict[str, str] = field(default_factory=dict)


class Result(TestResult):
    """Problems of a run, by the test's name."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: dict[str, str] = {}
        self.skipped = ""

    def addFailure(self, test: Any, fail: Any) -> None:
        super().addFailure(test, fail)
        self._note(test, fail)

    def addError(self, test: Any, error: Any) -> None:
        super().addError(test, error)
        self._note(test, error)

    def addSkip(self, test: Any, reason: Any) -> None:
        super().addSkip(test, reason)
        self.skipped = str(reason)

    def addSuccess(self, test: Any) -> None:
        super().addSuccess(test)
        sys.stdout.write(f"    {test.id().rpartition('.')[2]}\n")
        sys.stdout.flush()

    def _note(self, test: Any, what: Any) -> None:
        told = what.getErrorMessage() if hasattr(what, "getErrorMessage") else str(what[1])
        name = test.id().rpartition(".test_")[2]
        self.problems[name] = told
        sys.stdout.write(f"    {name}: {told}\n")


def suites() -> list[type[Any]]:
    """
    The classes that keep the contract, of all adaptors; those whose world has no title are none of
    a table.
    """
    found: dict[str, type[Any]] = {}
    for pattern in PLACES:
        for path in sorted(ROOT.glob(pattern)):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            if name == __spec__.name:
                continue
            module = importlib.import_module(name)
            for each in vars(module).values():
                if (
                    isinstance(each, type)
                    and issubclass(each, SpaceProviderContract)
                    and issubclass(each, TestCase)
                    and each.__module__ == name
                ):
                    found[f"{name}.{each.__name__}"] = each
    return list(found.values())


def tried(suite: type[Any]) -> Column:
    """Try one."""
    world = suite("test_interface").make_world()
    column = Column(world.title, world.cannot)
    if not column.title:
        return column
    sys.stdout.write(f"{column.title} ({suite.__name__})\n")
    result = Result()
    TestLoader().loadClass(suite).run(result)
    column.version, column.why_not = suite.version, result.skipped
    column.problems = result.problems
    return column


def reasons(columns: Sequence[Column]) -> dict[str, int]:
    """The numbers of all reasons, in the order of the table."""
    found: dict[str, int] = {}
    for case in CASES:
        for column in columns:
            if case in column.cannot:
                found.setdefault(column.cannot[case], len(found) + 1)
    return found


def table(columns: Sequence[Column]) -> Iterator[str]:
    """One row for each case."""
    numbers = reasons(columns)
    yield from (".. list-table::", "   :header-rows: 1", "   :class: clients", "", "   * - Case")
    yield from (f"     - {column.title}" for column in columns)
    for case, told in CASES.items():
        yield f"   * - {told}"
        for column in columns:
            number = numbers.get(column.cannot.get(case, ""))
            mark = "✗" if case in column.problems else "✓"
            yield f"     - {mark if number is None else f'({number})'}"


def versions(columns: Sequence[Column]) -> Iterator[str]:
    """Yield the lines of the table of providers and their tested versions."""
    yield from (".. list-table::", "   :header-rows: 1", "", "   * - Provider", "     - Version")
    for column in columns:
        yield f"   * - {column.title}"
        yield f"     - {column.version}".rstrip()


def untried(columns: Sequence[Column]) -> str:
    """Return a sentence about providers that were not tested, or an empty string."""
    titles = [column.title for column in columns if column.why_not]
    if not titles:
        return ""
    return f"Not tested, because the program was not available: {', '.join(titles)}.\n"


def page(columns: Sequence[Column], absent: Sequence[Column]) -> str:
    """The whole page."""
    return _PAGE.format(
        untried=untried(absent),
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        versions="\n".join(versions(columns)) + "\n",
        table="\n".join(table(columns)) + "\n",
        reasons="\n".join(
            f"({number})\n    {reason}" for reason, number in reasons(columns).items()
        ),
    )


def main(names: Sequence[str]) -> None:
    """Try everything, then write the page."""
    chosen = [each for each in suites() if not names or each.__name__ in names]
    with tempfile.TemporaryDirectory(prefix="space-table-") as scratch:
        os.chdir(scratch)
        columns = [column for column in map(tried, chosen) if column.title]
        os.chdir(ROOT)
    for column in columns:
        if column.why_not:
            sys.stdout.write(f"{column.title} was not tried: {column.why_not}\n")
    absent = [column for column in columns if column.why_not]
    columns = [column for column in columns if not column.why_not]
    sys.stdout.write("\n".join(table(columns)) + "\n")
    failures = [
        f"{column.title}: {case}: {told}"
        for column in columns
        for case, told in column.problems.items()
    ]
    if failures:
        raise SystemExit("\n".join(failures))
    if not names:
        PAGE.write_text(page(columns, absent), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
