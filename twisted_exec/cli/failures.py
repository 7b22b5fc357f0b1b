"""
The line about a command that failed, and its exit code.
"""

from __future__ import annotations

import sys

from twisted_exec.cli.messages import Colour, for_stderr, output_failure, painter
from twisted_exec.program.libraries import missing_library


class InputError(Exception):
    """A command cannot do what its arguments ask for; the message is one line."""


def crashed(command: str, error: BaseException, code: int = 1) -> int:
    """Print an error that a command does not expect; return the exit code."""
    if isinstance(error, ModuleNotFoundError):
        return failed(command, missing_library(error), code)
    why = output_failure(error) or f"internal error: {type(error).__name__}: {error}"
    return failed(command, why, code)


def failed(command: str, why: str, code: int = 1) -> int:
    """Print an error, see :func:`.for_stderr`; return the exit code."""
    start = f"twisted-exec {command}:"
    text = for_stderr(f"{start} {why}").removeprefix(start)
    print(f"{painter(sys.stderr)(start, Colour.RED)}{text}", file=sys.stderr)
    return code
