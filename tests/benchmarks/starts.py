"""
Starts that people wait for: ``exec-standalone``, ``kubectl version``, ``kubectl attach`` and ``kubectl console``.

All run with bytecode files, as for users, and in turn, round after round; medians are printed.  The first byte is the
machine's, in a terminal, counted from the start of the process; CPU time is that of the whole session, which ends as
soon as that byte is there.
"""

from __future__ import annotations

import os
import pty
import signal
import statistics
import subprocess
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests import procfs
from tests.flows.programs import script

ROUNDS, START_ROUNDS = 15, 5
MACHINE = "demo-shell"
READY = b"ready; the administrator's kubeconfig"
ESCAPE = b"\x1d"
"""Ctrl-], which ends ``kubectl console``."""
COMMANDS = {
    "kubectl version": ("kubectl", "version"),
    "kubectl attach": ("kubectl", "attach", "-it", MACHINE),
    "kubectl console": ("kubectl", "console", MACHINE),
    "kubectl-console": (script("kubectl-console"), MACHINE),
}
ARCHIVE = os.environ.get("CLIENT_ARCHIVE")
"""Directory of the unpacked self-contained archive of the client, to measure it, too."""
if ARCHIVE:
    COMMANDS["of the archive"] = (os.path.join(ARCHIVE, "kubectl-console"), MACHINE)


def main(directory: Path) -> None:
    """Run the benchmark."""
    environment = {
        **os.environ,
        "PATH": f"{Path(script('kubectl-console')).parent}:{os.environ['PATH']}",
        "KUBECONFIG": str(directory / "exec-state/admin.kubeconfig"),
        "PYTHONPYCACHEPREFIX": str(directory / "bytecode"),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    starts: list[tuple[float, float]] = []
    for number in range(START_ROUNDS + 1):
        program, seconds, cpu_seconds = start(directory, environment)
        try:
            if number:  # the first start writes the bytecode
                starts.append((seconds, cpu_seconds))
            if number == START_ROUNDS:
                clients(environment)
        finally:
            program.send_signal(signal.SIGINT)
            program.communicate()
    wall, cpu = (statistics.median(each) * 1e3 for each in zip(*starts, strict=True))
    print(
        f"exec-standalone, the second start and later: ready after {wall:.0f} ms, CPU {cpu:.0f} ms"
    )


def start(
    directory: Path, environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], float, float]:
    """Start ``exec-standalone``; return it with the seconds and CPU seconds until it was ready."""
    began = time.perf_counter()
    options = ("--port=0", "--no-keep-machines")
    program = subprocess.Popen(
        [script("twistd"), "-n", "--pidfile=", "exec-standalone", *options],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert program.stdout is not None
    output = b""
    while READY not in output:
        line = program.stdout.readline()
        if not line:
            raise RuntimeError(f"exec-standalone ended:\n{output.decode(errors='replace')}")
        output += line
    return program, time.perf_counter() - began, procfs.exact_cpu_seconds(program.pid)


def clients(environment: Mapping[str, str]) -> None:
    """Measure and print the clients."""
    figures: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for number in range(ROUNDS + 1):
        for name, command in COMMANDS.items():
            measured = run(command, environment)
            if number:
                figures[name].append(measured)
    medians = {
        name: [statistics.median(each) * 1e3 for each in zip(*rows, strict=True)]
        for name, rows in figures.items()
    }
    bare = medians["kubectl version"][0]
    for name, (first, cpu) in medians.items():
        beyond = f" ({first - bare:+.0f} ms)" if first != bare else ""
        print(f"{name:16} first byte {first:4.0f} ms{beyond:10} CPU {cpu:4.0f} ms", flush=True)


def run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """
    Run a client until its first byte; return the seconds until then, and the CPU seconds of all of it.

    ``kubectl version`` ends by itself, and the last of its bytes counts.
    """
    began = time.perf_counter()
    child, terminal = pty.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # its messages are no bytes of the machine
        os.execvpe(command[0], command, environment)
    while _read(terminal) and command[-1] != MACHINE:
        pass
    seconds = time.perf_counter() - began
    if "attach" in command:
        os.kill(child, signal.SIGTERM)
    elif command[-1] == MACHINE:
        os.write(terminal, ESCAPE)
    while _read(terminal):
        pass
    usage = os.wait4(child, 0)[2]
    os.close(terminal)
    return seconds, usage.ru_utime + usage.ru_stime


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # Linux' end of a terminal
        return b""
