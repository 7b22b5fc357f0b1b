"""
System calls of each hop for a key and for an opening, counted by ``strace``.

API server and poollet have TLS, the runtime has a UNIX socket and a pty.  The least for TLS on a socket is
four calls for a key and direction: ``epoll_wait``, two reads (OpenSSL reads the head of a record alone), and a
write.  A key is typed and echoed, so it passes each hop in both directions: at least 8 calls in the API
server, and 7 in the poollet, which reads from the runtime's socket without TLS.  All threads count.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from .chain import QUIET, Chain, run, with_chain
from .one_hop import wait_until

HOPS = {"api": "API server", "poollet": "poollet", "runtime": "runtime"}
KEYS = 2000
OPENINGS = 100
WARM = 10
_SHOWN = 0.05


def calls(table: str) -> Counter[str]:
    """
    Return how often each system call was made.

    :param table: what ``strace -c`` prints; the column of errors is empty for most calls.
    """
    counted: Counter[str] = Counter()
    for line in table.splitlines():
        cells = line.split()
        if len(cells) in (5, 6) and cells[3].isdigit() and cells[-1] != "total":
            counted[cells[-1]] += int(cells[3])
    return counted


def traced(pid: int, report: Path) -> subprocess.Popen[bytes]:
    """Begin to count the system calls of a process; :func:`ended` returns them."""
    messages = report.with_suffix(".messages")
    with messages.open("wb") as errors:
        command = ["strace", "-c", "-f", "-o", str(report), "-p", str(pid)]
        tracer = subprocess.Popen(command, stderr=errors)
    try:
        wait_until(lambda: tracer.poll() is not None or b"attached" in messages.read_bytes())
        if tracer.poll() is not None:
            raise PermissionError(messages.read_text().strip())
    except BaseException:  # also an interrupt: the process must not stay traced
        tracer.kill()
        tracer.wait()
        raise
    return tracer


def ended(tracer: subprocess.Popen[bytes], report: Path) -> Counter[str]:
    """Let go of the process, and return its calls."""
    tracer.send_signal(signal.SIGINT)
    tracer.wait()
    return calls(report.read_text())


def counted(chain: Chain, directory: Path, work: Callable[[], None]) -> dict[str, Counter[str]]:
    """Return the system calls of each hop during some work."""
    reports = {hop: directory / f"{hop}.calls" for hop in HOPS}
    tracers: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for hop, report in reports.items():
            tracers[hop] = traced(chain.pid(hop), report)
        work()
    finally:
        found = {hop: ended(tracer, reports[hop]) for hop, tracer in tracers.items()}
    return found


def line(hop: str, counts: Counter[str], times: int) -> str:
    """Return the calls of a hop for each of ``times`` pieces of work, the frequent ones by name."""
    named = (
        f"{name} {count / times:.2f}"
        for name, count in counts.most_common()
        if count / times >= _SHOWN
    )
    return f"  {HOPS[hop]:12}{counts.total() / times:8.2f}: {', '.join(named)}"


def measure(chain: Chain, directory: Path) -> None:
    run(chain.through(QUIET), b"cat")
    console = chain.through(QUIET)
    console.until(b"BEGIN\n")

    def keys() -> None:
        for _ in range(KEYS):
            console.type(b"x")
            console.receive()

    def openings() -> None:
        for _ in range(OPENINGS):
            opened = chain.through(QUIET)
            opened.receive()
            opened.close()

    keys()
    found = counted(chain, directory, keys)
    print(f"System calls for each of {KEYS} keys, in both directions (the least: 8 and 7)")
    for hop, counts in found.items():
        print(line(hop, counts, KEYS))
    console.close()
    for _ in range(WARM):
        chain.through(QUIET).close()
    time.sleep(1)  # the ends of those
    found = counted(chain, directory, openings)
    print(f"System calls for each of {OPENINGS} consoles that are opened and closed")
    for hop, counts in found.items():
        print(line(hop, counts, OPENINGS))


def main(directory: Path) -> None:
    """Run the whole benchmark, or say what to install."""
    if shutil.which("strace") is None:
        print("syscalls: strace is not on PATH (strace); nothing is counted.")
        return

    try:
        with_chain(directory, lambda chain: measure(chain, directory), QUIET)
    except PermissionError as problem:
        print(f"syscalls: {problem}; nothing is counted.")
