"""
The CEL library, in this process: cel-cpp with the Python package of the CEL project.

The library is ``cel-expr-python``: the core language, and its extensions for strings and optional
values.  It limits the iterations of loops and the depth of expressions, but neither the patterns of
``matches`` nor memory; see :mod:`.cost`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

PACKAGE = "cel_expr_python"
_KEPT = 1024
_MISMATCH, _UNKNOWN = "found no matching overload", "undeclared reference"


class Missing(Exception):
    """The library is not installed."""


class EvaluationFailed(Exception):
    """An expression has no value; the message is the library's, and may quote values."""


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
        Compile an expression; it is kept.

        :raises Missing: the library is.
        :raises EvaluationFailed: it does not compile.
        """
        self._compiled(text)

    def value(self, text: str, values: Mapping[str, Any]) -> Any:
        """
        Evaluate in this process.

        :return: the value as in JSON.
        :raises Missing: the library is.
        :raises EvaluationFailed: it does not compile, or has no value.
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
