"""
``python -m tests.costs [DIRECTORY]``: CPU seconds of the tests that trial has run in DIRECTORY, by package.

It prints the packages and the dearest tests. CPU seconds say what a test costs; its duration says how much else runs
on the machine.

A test's CPU seconds are those of the process that runs it and of the programs that end during the test, including
forked ones (``tests/flows/forks.py``) and the programs that those have started and waited for. Not counted: imports
of test modules, the process that forks programs, programs that tests share (``tests/shared.py``), and programs
whose parent has ended first, such as machines that are kept.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

DEAREST = 20


def measured(directory: Path) -> Counter[str]:
    """Return CPU seconds by test of the run in trial's temporary directory ``directory``."""
    tests: Counter[str] = Counter()
    for file in [directory / "costs", *directory.glob("*/costs")]:
        if file.exists():
            for line in file.read_text().splitlines():
                name, seconds = line.rsplit(" ", 1)
                tests[name] += float(seconds)  # type: ignore[assignment]
    return tests


def by_package(tests: Counter[str]) -> Counter[str]:
    """Add up the tests of each package; modules directly below ``tests`` belong to ``tests``."""
    packages: Counter[str] = Counter()
    for name, seconds in tests.items():
        package = name.split(".")[1]
        packages["tests" if package.startswith("test_") else package] += seconds
    return packages


def report(tests: Counter[str]) -> str:
    """Return the tables of packages and of the dearest tests."""
    packages = by_package(tests)
    lines = ["CPU seconds  package"]
    for name, seconds in packages.most_common():
        lines.append(f"{seconds:11.1f}  {name}")
    lines.append(f"{packages.total():11.1f}  all of {len(tests)} tests")
    lines.append(f"The {DEAREST} dearest tests:")
    lines += (f"{seconds:11.1f}  {name}" for name, seconds in tests.most_common(DEAREST))
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.costs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", type=Path, nargs="?", default="_trial_temp")
    options = parser.parse_args(arguments)
    tests = measured(options.directory)
    if not tests:
        parser.error(f"trial has run no test in {options.directory}")
    print(report(tests))


if __name__ == "__main__":
    main(sys.argv[1:])
