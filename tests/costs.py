"""
``python -m tests.costs [DIRECTORY]``: CPU seconds of the tests that trial has run in DIRECTORY, by package.

It prints the packages, beside their budgets, and the dearest tests. It fails if all tests together took more than
twice the sum of the budgets: hosts differ, and one package may cost more on some of them. CPU seconds say what a
test costs; its duration says how much else runs on the machine.

A test's CPU seconds are those of the process that runs it and of the programs that end during the test, including
forked ones (``tests/flows/forks.py``) and the programs that those have started and waited for. Not counted: imports
of test modules, the process that forks programs, programs that tests share (``tests/shared.py``), and programs
whose parent has ended first, such as machines that are kept and successors of a hand-over.

``--write`` makes the figures of a run of all tests the new budgets.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

BUDGETS = Path(__file__).with_name("budgets.txt")
MARGIN = 2
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


def budgets(text: str) -> Counter[str]:
    """Read lines of a package and its CPU seconds."""
    lines = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return Counter({name: int(seconds) for name, seconds in lines})


def report(tests: Counter[str], allowed: Counter[str]) -> str:
    """Return the tables of packages and of the dearest tests."""
    packages = by_package(tests)
    lines = ["CPU seconds  budget  package"]
    for name, seconds in packages.most_common():
        lines.append(f"{seconds:11.1f}  {allowed[name] or '-':>6}  {name}")
    lines.append(f"{packages.total():11.1f}  {allowed.total():6}  all of {len(tests)} tests")
    lines.append(f"The {DEAREST} dearest tests:")
    lines += (f"{seconds:11.1f}  {name}" for name, seconds in tests.most_common(DEAREST))
    return "\n".join(lines)


def excess(tests: Counter[str], allowed: Counter[str]) -> str:
    """Return what to do if the tests took far more than the budgets allow; otherwise nothing."""
    if tests.total() <= MARGIN * allowed.total():
        return ""
    return (
        f"The tests took {tests.total():.0f} CPU seconds, more than {MARGIN} times the {allowed.total()} of "
        f"tests/{BUDGETS.name}. Compare the packages above with their budgets, and make the dearest tests cheaper. "
        "If the tests are worth it, write new budgets after a run of all tests: "
        "python -m tests.costs --write"
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.costs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", type=Path, nargs="?", default="_trial_temp")
    parser.add_argument("--write", action="store_true", help="write budgets instead of a report")
    options = parser.parse_args(arguments)
    tests = measured(options.directory)
    if not tests:
        parser.error(f"trial has run no test in {options.directory}")
    if options.write:
        heading = (
            "# CPU seconds of each package's tests, from a run of all tests; see tests/costs.py.\n"
        )
        packages = sorted(by_package(tests).items())
        BUDGETS.write_text(
            heading + "".join(f"{name} {seconds:.0f}\n" for name, seconds in packages)
        )
        return 0
    allowed = budgets(BUDGETS.read_text())
    print(report(tests, allowed))
    if problem := excess(tests, allowed):
        print(problem)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
