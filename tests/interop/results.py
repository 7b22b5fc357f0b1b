"""
Each suite in a process of its own, and the table of their results.

Results and logs are files below the work directory, by commit, so that a run that was interrupted goes on
where it was.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Set
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .builds import CHECKOUT

SUITE_SECONDS = float(os.environ.get("SUITE_SECONDS", "3600"))
"""A suite that has not ended by then has failed."""


@dataclass
class Result:
    """
    What became of a suite.

    :ivar passed: number of tests; so are ``failed`` and ``skipped``.
    :ivar reasons: why tests were skipped, or which failed.
    """

    suite: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0
    reasons: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """``passed``, ``failed``, ``skipped`` (all tests), or ``in part`` (some were skipped)."""
        if self.failed or not self.passed + self.skipped:
            return "failed"
        if not self.skipped:
            return "passed"
        return "in part" if self.passed else "skipped"


def run(names: list[str], may_skip: Set[str], work: Path) -> int:
    """
    Run suites one after the other, and print the table.

    :param names: suites, or tests of them such as ``rollback.MixedTests``.
    :return: exit code; 1 if a suite failed, or was skipped whole and is not in ``may_skip``.
    """
    directory = work / "results" / _commit()
    directory.mkdir(parents=True, exist_ok=True)
    results = [_result(name, directory) for name in names]
    print(table(results))
    bad = [
        each.suite
        for each in results
        if each.verdict == "failed" or (each.verdict == "skipped" and each.suite not in may_skip)
    ]
    if bad:
        print(f"failed, or skipped whole without --may-skip: {', '.join(bad)}; logs: {directory}")
    return 1 if bad else 0


def _commit() -> str:
    command = (
        "git",
        "-C",
        str(CHECKOUT),
        "describe",
        "--always",
        "--dirty=-changed",
        "--abbrev=12",
    )
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _result(name: str, directory: Path) -> Result:
    file, log = directory / f"{name}.json", directory / f"{name}.log"
    if file.exists():
        earlier = Result(**json.loads(file.read_text()))
        if earlier.verdict == "passed":
            return earlier
    began = time.monotonic()
    command = [sys.executable, "-m", "twisted.trial", "--reporter=bwverbose"]
    command += [f"--temp-directory={directory / name}.trial", f"tests.interop.{name}"]
    with open(log, "wb") as output:
        suite = subprocess.Popen(
            command,
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            process_group=0,
        )
        try:
            suite.wait(SUITE_SECONDS)
        except subprocess.TimeoutExpired:
            output.write(f"\nno end within {SUITE_SECONDS:g} s\n".encode())
        finally:
            if suite.poll() is None:
                # As an interrupt does, so that tests end the programs that they have started.
                os.killpg(suite.pid, signal.SIGINT)
                suite.wait()
    result = parse(name, log.read_text(errors="replace"))
    result.seconds = round(time.monotonic() - began)
    file.write_text(json.dumps(asdict(result)))
    print(_row(result), flush=True)
    return result


def parse(name: str, log: str) -> Result:
    """Read what trial printed; a log without its closing line is a failure."""
    result = Result(name)
    closing = re.findall(r"^(?:PASSED|FAILED) \((.*)\)$", log, re.MULTILINE)
    counts = dict(re.findall(r"(\w+)=(\d+)", closing[-1])) if closing else {}
    result.passed = int(counts.get("successes", 0))
    result.failed = int(counts.get("failures", 0)) + int(counts.get("errors", 0))
    result.skipped = int(counts.get("skips", 0))
    if not closing:
        result.failed, lines = 1, log.strip().splitlines()
        result.reasons = lines[-1:]
        return result
    for word, reason in re.findall(r"^\[(SKIPPED|FAIL|ERROR)\]\n(.*)", log, re.MULTILINE):
        if word == "SKIPPED" and reason not in result.reasons:
            result.reasons.append(reason)
    for test in re.findall(r"^(\S+) \.\.\. +\[(?:FAILURE|ERROR)\]$", log, re.MULTILINE):
        result.reasons.append(f"{test} failed")
    return result


def table(results: list[Result]) -> str:
    """Return the table as text."""
    heading = f"{'suite':22} {'result':8} {'passed':>6} {'failed':>6} {'skipped':>7} {'seconds':>7}  reasons"
    return "\n".join([heading, *map(_row, results)])


def _row(result: Result) -> str:
    each = result
    numbers = f"{each.passed:6} {each.failed:6} {each.skipped:7} {each.seconds:7.0f}"
    return f"{each.suite:22} {each.verdict:8} {numbers}  {'; '.join(each.reasons)}"
