"""
Tests with two figures: a small one for every run, and a large one for ``tox -e soak``.

Some tests repeat one thing many times, or move many bytes.  They look for an interleaving, a leak
or a cut that is handled badly, and a tenth of the figure finds nearly all of these.  ``FIGURES``
holds both figures of each such test, and the least that the small one must exceed.  A test reads
its figure with :func:`figure`; the environment variable ``SOAK`` selects the large one.

``python -m tests.soak [OPTION ...]``: run exactly these tests under trial with their large figures.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from unittest import TestCase, TestSuite

from twisted.trial.runner import TestLoader

import tests


@dataclass(frozen=True)
class Figure:
    """
    How often or how much.

    :ivar default: for every run.
    :ivar soak: for ``tox -e soak``.
    """

    default: int
    soak: int


FIGURES = {
    # MiB in each direction.  More than a machine's end buffers (256 KiB).  The test goes on until the
    # buffers of the sockets are full as well and the writer pauses: after 4 MiB on Linux.
    "streaming.test_chain.ChainTests.test_much": Figure(2, 16),
    # Sessions.  More than four: each of the four endings must come again after the fourth session,
    # whose descriptors are the measure.
    "streaming.test_chain.ChainTests.test_many": Figure(20, 200),
    # Sessions.  A tenth of it, which is the most that may be left, must exceed the few objects that
    # other parts of the process allocate meanwhile.
    "streaming.proxy.test_passing.MemoryTests.test_many": Figure(600, 6000),
}
"""By the name of the method in ``tests``; classes that inherit the test share the figure."""


def figure(test: TestCase) -> int:
    """Return the figure of the test that runs."""
    found = FIGURES[name(test)]
    return found.soak if os.environ.get("SOAK") else found.default


def name(test: TestCase) -> str:
    """Return the test's name in ``FIGURES``, or ``""``."""
    method = test.id().rpartition(".")[2]
    for each in type(test).__mro__:
        name = f"{each.__module__}.{each.__qualname__}.{method}".removeprefix("tests.")
        if name in FIGURES:
            return name
    return ""


def main(arguments: list[str]) -> None:
    """Run trial in place of this program."""
    every = _flat(TestLoader().loadPackage(tests, recurse=True))
    names = [each.id() for each in every if name(each)]
    command = [sys.executable, "-m", "twisted.trial", *arguments, *names]
    os.execve(sys.executable, command, {**os.environ, "SOAK": "1"})


def _flat(suite: TestSuite) -> list[TestCase]:
    return [
        test for each in suite for test in (_flat(each) if isinstance(each, TestSuite) else [each])
    ]


if __name__ == "__main__":
    main(sys.argv[1:])
