"""
The process that evaluates expressions whose cost has no small bound.

It reads jobs from its standard input and writes values to its standard output, one at a time, until
the input ends.  Its limits are those of the kernel: a job that takes too much memory or time ends
the process, and the pool notices.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from typing import Any

from twisted_exec.program.job_messages import allow_time, encode, limit_process, read

from .language import EvaluationFailed, Expressions, Missing

MEMORY_BYTES = 512 << 20
CPU_SECONDS = 1
"""For one job."""
PRIORITY = 10
"""Below that of programs, see ``nice(1)``."""


def main() -> None:
    """Do all jobs."""
    with suppress(Missing):
        Expressions(()).check("true")  # load the library: later no file can be opened
    limit_process(MEMORY_BYTES)
    os.nice(PRIORITY)
    while (message := read(sys.stdin.buffer)) is not None:
        allow_time(CPU_SECONDS)
        sys.stdout.buffer.write(encode(answer(message[0])))
        sys.stdout.buffer.flush()


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Do one job."""
    expressions = _expressions(tuple(job["variables"]), job["lenient"])
    try:
        value = expressions.value(job["expression"], job["values"])
        encode({"value": value})
    except EvaluationFailed as error:
        return {"failed": str(error)}
    except Missing:
        return {"failed": "there is no CEL library in the process"}
    except (TypeError, ValueError):
        return {"failed": "its value is not JSON"}
    return {"value": value}


@cache
def _expressions(variables: tuple[str, ...], lenient: bool) -> Expressions:
    return Expressions(variables, lenient=lenient)
