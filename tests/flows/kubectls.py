"""
The real kubectls of this machine: the one on PATH, and other versions in the directory of the file
it links to.

Where those versions are, the one on PATH is Google's dispatcher, which starts another kubectl of the server's
version: two starts for each command.  Importing this module lets ``kubectl`` be the newest version itself.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from . import programs

_T = TypeVar("_T")
_VERSION = re.compile(r"kubectl\.1\.(\d+)")


def found() -> dict[str, str]:
    """``{"kubectl": path, "kubectl.1.27": path ...}``, oldest named version first."""
    default = shutil.which("kubectl")
    if default is None:
        return {}
    beside = Path(os.path.realpath(default)).parent
    versions = [path for path in beside.glob("kubectl.*") if _VERSION.fullmatch(path.name)]
    versions.sort(key=lambda path: int(path.name.rsplit(".", 1)[1]))
    return {path.name: str(path) for path in versions} | {"kubectl": default}


def _avoid_dispatcher() -> None:
    paths = list(found().values())
    # A worker has the PATH of the process that has started it.
    if len(paths) < 2 or _VERSION.fullmatch(Path(os.path.realpath(paths[-1])).name):
        return
    directory, owner = tempfile.mkdtemp(prefix="kubectl-"), os.getpid()
    os.symlink(paths[-2], os.path.join(directory, "kubectl"))
    os.environ["PATH"] = f"{directory}{os.pathsep}{os.environ['PATH']}"

    @atexit.register
    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(directory, ignore_errors=True)


_avoid_dispatcher()


def carrier(name: str) -> str:
    """Return the default stream protocol of a kubectl."""
    return "SPDY/3.1" if name in ("kubectl.1.27", "kubectl.1.28", "kubectl.1.29") else "websocket"


def some() -> list[str]:
    """Return the names of the oldest, a middle and the newest kubectl."""
    return spread(list(found()), 3)


def spread(versions: Sequence[_T], most: int) -> list[_T]:
    """Return at most ``most`` versions, at least two, with the first and the last among them."""
    if len(versions) <= most:
        return list(versions)
    return [versions[round(number * (len(versions) - 1) / (most - 1))] for number in range(most)]


async def run(
    kubectl: str,
    *argv: str,
    env: Mapping[str, str],
    stdin: bytes = b"",
    answer: bytes = b"",
    seconds: float = 600,
) -> tuple[int, str, str]:
    """
    Run kubectl; return its exit code, standard output, and all of its output.

    :param answer: a pattern of the output for which the end of the input waits.  Consoles do not wait longer
        than two seconds for an answer to input that has ended.
    """
    program = programs.start([kubectl, *argv], env=env)
    assert program.transport is not None
    if stdin:
        program.type(stdin)
    if answer:
        await program.until(answer)
    program.transport.closeStdin()
    program.ended.addTimeout(seconds, programs._reactor)
    code = await program.ended
    return code, program.stdout.decode(errors="replace"), program.output.decode(errors="replace")
