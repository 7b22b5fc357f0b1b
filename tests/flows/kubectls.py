"""
The real kubectls of this machine: the one on PATH, and other versions in the directory of the file
it links to.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from . import programs


def found() -> dict[str, str]:
    """``{"kubectl": path, "kubectl.1.27": path ...}``, oldest named version first."""
    default = shutil.which("kubectl")
    if default is None:
        return {}
    beside = Path(os.path.realpath(default)).parent
    versions = [
        path for path in beside.glob("kubectl.*") if re.fullmatch(r"kubectl\.1\.\d+", path.name)
    ]
    versions.sort(key=lambda path: int(path.name.rsplit(".", 1)[1]))
    return {path.name: str(path) for path in versions} | {"kubectl": default}


def carrier(name: str) -> str:
    """Return the default stream protocol of a kubectl."""
    return "SPDY/3.1" if name in ("kubectl.1.27", "kubectl.1.28", "kubectl.1.29") else "websocket"


def some() -> list[str]:
    """Return the names of the oldest, a middle and the newest kubectl."""
    names = list(found())
    return list(dict.fromkeys((names[0], names[len(names) // 2], names[-1])))


async def run(
    kubectl: str, *argv: str, env: Mapping[str, str], stdin: bytes = b"", seconds: float = 100
) -> tuple[int, str, str]:
    """Run kubectl; return its exit code, standard output, and all of its output."""
    program = programs.start([kubectl, *argv], env=env)
    assert program.transport is not None
    if stdin:
        program.type(stdin)
    program.transport.closeStdin()
    program.ended.addTimeout(seconds, programs._reactor)
    code = await program.ended
    return code, program.stdout.decode(errors="replace"), program.output.decode(errors="replace")
