"""
The CEL library, in this process or in one for expressions whose cost has no small bound.

The library limits the iterations of loops and the depth of expressions, but neither the patterns of
``matches`` nor memory. The limits of the other process (:func:`main`) are those of the kernel: a
job that takes too much memory or time ends it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any

from twisted_exec.program.job_limits import allow_time, limit_process
from twisted_exec.program.job_messages import encode, read

PACKAGE = "cel_expr_python"
_KEPT = 1024
_MISMATCH, _UNKNOWN = "found no matching overload", "undeclared reference"

MEMORY_BYTES = 512 << 20
CPU_SECONDS = 1
"""Limit of the CPU time of one job."""
PRIORITY = 10
"""Niceness of the process, see ``nice(1)``."""


class Missing(Exception):
    """The library is not installed."""


class EvaluationFailed(Exception):
    """An expression has no value; the message may quote values."""


class Expressions:
    """
    Expressions over the same variables.

    :param variables: of any type; those without a value are null.
    :param lenient: compare numbers across types, as Kubernetes does.
    """

    def __init__(self, variables: tuple[str, ...], *, lenient: bool = False) -> None:
        self.variables, self.lenient = variables, lenient
        self._compiled = lru_cache(_KEPT)(self._compile)
        self._environment: Any = None

    def check(self, text: str) -> None:
        """
        Compile an expression.

        :raises Missing: the library is not installed.
        :raises EvaluationFailed: it does not compile.
        """
        self._compiled(text)

    def value(self, text: str, values: Mapping[str, Any]) -> Any:
        """
        Evaluate in this process.

        :raises Missing: the library is not installed.
        :raises EvaluationFailed: it has no value.
        """
        program = self._compiled(text)
        try:
            value = program.eval(data={**dict.fromkeys(self.variables), **values})
            plain, failed = value.plain_value(), str(value.type()) == "ERROR"
        except Exception as error:  # the library's C++ raises various types
            raise EvaluationFailed(str(error)) from None
        if failed:
            raise EvaluationFailed(str(plain))
        return plain

    def _compile(self, text: str) -> Any:
        if self._environment is None:
            self._environment = _environment(self.variables)
        try:
            return self._environment.compile(text)
        except Exception as error:  # as above
            if not self.lenient or _MISMATCH not in str(error) or _UNKNOWN in str(error):
                raise EvaluationFailed(str(error)) from None
        # This library compares numbers across types at run time, but its type checker does not.
        try:
            return self._environment.compile(text, disable_check=True)
        except Exception as error:  # as above
            raise EvaluationFailed(str(error)) from None


def _environment(variables: tuple[str, ...]) -> Any:
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_optional, ext_strings
    except ImportError:
        raise Missing from None
    return cel.NewEnv(
        variables=dict.fromkeys(variables, cel.Type.DYN),
        extensions=[ext_strings.ExtStrings(), ext_optional.ExtOptional()],
    )


def main() -> None:
    """Do jobs until standard input ends."""
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
