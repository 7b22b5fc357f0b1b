"""
The Python that a benchmark and its programs run on, and whether it was built with optimizations.

Distributions and ``python.org`` build theirs with them; a plain ``./configure && make`` does not.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.flows.programs import script


@dataclass(frozen=True)
class Build:
    """
    How an interpreter was compiled.

    :ivar level: the optimization of C code, such as ``-O2``; ``-O0`` is none.
    :ivar profiled: the compiler had a profile of the interpreter at work (PGO).
    :ivar debug: it checks itself (``--with-pydebug``).
    """

    level: str
    profiled: bool
    debug: bool

    @property
    def optimized(self) -> bool:
        """Return whether its figures may be compared with those of users' interpreters."""
        return self.level in ("-O2", "-O3") and self.profiled and not self.debug

    def __str__(self) -> str:
        profile = "with" if self.profiled else "without"
        text = f"{self.level} {profile} profile-guided optimization"
        return text + (", --with-pydebug" if self.debug else "")


def build(variables: Mapping[str, Any]) -> Build:
    """
    Read how an interpreter was compiled.

    :param variables: those of :func:`sysconfig.get_config_vars`.
    """
    levels = re.findall(r"-O\w*", variables.get("PY_CFLAGS") or "")  # the last one counts
    # Debian runs "make profile-opt", which is no option of configure, and then removes the flags of
    # the profile from the records of the build; configure itself always records them for gcc and clang.
    profiled = (
        "--enable-optimizations" in (variables.get("CONFIG_ARGS") or "")
        or variables.get("PGO_PROF_USE_FLAG") == ""
    )
    return Build(levels[-1] if levels else "-O0", profiled, bool(variables.get("Py_DEBUG")))


def heading(name: str) -> str:
    """Return what stands above a benchmark's figures: its name, the interpreter, and a mark if need be."""
    own = build(sysconfig.get_config_vars())
    line = f"== {name}: Python {platform.python_version()}, {own} =="
    return line if own.optimized else f"{line}\n== NOT OPTIMIZED: do not compare these figures =="


@contextmanager
def with_bytecode(directory: Path, plugin: str) -> Iterator[None]:
    """
    Let programs load bytecode, as those of users do, and have that of one program compiled.

    A program that compiles keeps free memory, in which connections would hide.

    :param directory: where the bytecode is.
    """
    with patch.dict(os.environ, PYTHONPYCACHEPREFIX=str(directory / "bytecode")):
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        words = [script("twistd"), plugin, "--help"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        yield
