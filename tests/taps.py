"""What command lines of programs are refused with."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence

from twisted.python.usage import Options
from twisted.trial.unittest import SynchronousTestCase


def refusal(test: SynchronousTestCase, program: str, make: Callable[[], object]) -> str:
    """
    What somebody reads whose command line cannot be meant: one line, and exit code 1.

    :param make: reads the command line, and makes the service.
    """
    test.patch(sys, "stdout", io.StringIO())
    with test.assertRaises(SystemExit) as caught:
        make()
    message = str(caught.exception.code)
    test.assertTrue(message.startswith(f"{program}: "), message)
    test.assertNotIn("\n", message)
    return message


def assert_required(
    test: SynchronousTestCase, options: Callable[[], Options], words: Sequence[str]
) -> None:
    """
    Check that each option is named in the refusal of a command line without it.

    :param words: all that a command line needs, as ``--name=value``.
    """
    for missing in words:
        rest = [each for each in words if each != missing]
        with test.assertRaisesRegex(SystemExit, missing.partition("=")[0]):
            options().parseOptions(rest)
