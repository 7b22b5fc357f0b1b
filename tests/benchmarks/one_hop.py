"""
One hop with TLS on both sides, against nginx's stream proxy and a direct line.

All candidates have the same backend and are measured in turn in the same
run, several rounds each; medians are printed, and their ratios to nginx.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import procfs
from twisted_exec.tls.pki.authority import Authority

from . import load

ROUNDS = 3
BULK_BYTES = 512 << 20
ROUND_TRIPS = 6000
IDLE_SESSIONS = 300


@dataclass
class Candidate:
    """Something to measure: where to connect, and which processes work for it."""

    name: str
    connect: load.Opener
    pids: Sequence[int] = ()  # none: nothing stands between


@dataclass(frozen=True)
class Figures:
    """Medians of one candidate.  CPU is the relay's alone; ``None`` for the direct line."""

    megabytes_per_second: float
    cpu_seconds_per_gigabyte: float | None
    round_trip_us: float
    cpu_us_per_round_trip: float | None
    kilobytes_per_idle_session: float | None
    cpu_ms_per_session: float | None


def make_certificates(directory: Path) -> None:
    """One CA, one server certificate for localhost."""
    authority = Authority.create("benchmark")
    (directory / "ca.crt").write_bytes(authority.certificate_pem)
    issued = authority.issue_server(["localhost", "127.0.0.1"], common_name="localhost")
    issued.write(str(directory / "server.crt"), str(directory / "server.key"))


@contextmanager
def running(*argv: str) -> Iterator[tuple[int, int]]:
    """A process of ours that prints its port first: ``(pid, port)``."""
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        yield child.pid, int(child.stdout.readline())
    finally:
        child.terminate()
        child.wait()


_NGINX = """
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
worker_processes 1;
daemon off;
pid {directory}/nginx.pid;
error_log {directory}/nginx.log;
events {{ worker_connections 4096; }}
stream {{
  server {{
    listen 127.0.0.1:{port} ssl backlog=1024;
    ssl_certificate {directory}/server.crt;
    ssl_certificate_key {directory}/server.key;
    ssl_session_cache off;
    ssl_session_tickets off;
    proxy_pass 127.0.0.1:{backend};
    proxy_buffer_size 64k;
    proxy_ssl on;
    proxy_ssl_verify on;
    proxy_ssl_name localhost;
    proxy_ssl_trusted_certificate {directory}/ca.crt;
    proxy_ssl_session_reuse off;
  }}
}}
"""


@contextmanager
def nginx(directory: Path, backend_port: int) -> Iterator[tuple[int, int]]:
    """nginx as a TLS-to-TLS stream proxy: ``(pid, port)``."""
    with load.socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    configuration = directory / "nginx.conf"
    configuration.write_text(_NGINX.format(directory=directory, port=port, backend=backend_port))
    child = subprocess.Popen(
        ["nginx", "-c", str(configuration), "-p", str(directory), "-e", f"{directory}/nginx.log"]
    )
    try:
        wait_until(lambda: _answers(port))
        yield child.pid, port
    finally:
        child.terminate()
        child.wait()


def _answers(port: int) -> bool:
    try:
        load.socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("a program that is measured did not come up")
        time.sleep(0.02)


def spent(pids: Sequence[int], work: Callable[[], float | list[float]]) -> tuple[object, float]:
    """Do the work; its result, and the CPU seconds that ``pids`` spent on it."""
    before = cpu_seconds(pids)
    result = work()
    return result, cpu_seconds(pids) - before


def cpu_seconds(pids: Sequence[int]) -> float:
    """CPU time of processes and their children, more exact than in ticks: nginx works in a child."""
    return sum(
        procfs.exact_cpu_seconds(each) for pid in pids for each in [pid, *procfs.descendants(pid)]
    )


def resident_bytes(pids: Sequence[int]) -> int:
    return sum(procfs.resident_bytes(pid) for pid in pids)


def bulk(candidate: Candidate) -> tuple[float, float]:
    """MB/s and CPU seconds per GB of one round."""
    seconds, cpu = spent(
        candidate.pids, lambda: load.seconds_to_swallow(candidate.connect, BULK_BYTES)
    )
    assert isinstance(seconds, float)
    return BULK_BYTES / seconds / 1e6, cpu / (BULK_BYTES / 1e9)


def keystrokes(candidate: Candidate) -> tuple[float, float]:
    """Median round trip and CPU per round trip, both in microseconds, of one round."""
    times, cpu = spent(candidate.pids, lambda: load.round_trips(candidate.connect, ROUND_TRIPS))
    assert isinstance(times, list)
    return load.median_microseconds(times), cpu / ROUND_TRIPS * 1e6


def idle_cost(candidate: Candidate) -> tuple[float | None, float | None]:
    """Kilobytes held and CPU milliseconds spent per session that is opened and then idle."""
    if not candidate.pids:
        return None, None
    load.idle(candidate.connect, 20)  # what the first sessions allocate is not theirs alone
    memory, cpu = resident_bytes(candidate.pids), cpu_seconds(candidate.pids)
    lines = load.idle(candidate.connect, IDLE_SESSIONS)
    grown = resident_bytes(candidate.pids) - memory
    spent_cpu = cpu_seconds(candidate.pids) - cpu
    for line in lines:
        line.close()
    return grown / IDLE_SESSIONS / 1e3, spent_cpu / IDLE_SESSIONS * 1e3


def measure(candidates: list[Candidate]) -> dict[str, Figures]:
    """Round after round, every candidate in turn, so that a drifting machine drifts for all."""
    bulks: dict[str, list[tuple[float, float]]] = {one.name: [] for one in candidates}
    keys: dict[str, list[tuple[float, float]]] = {one.name: [] for one in candidates}
    for _ in range(ROUNDS):
        for one in candidates:
            bulks[one.name].append(bulk(one))
            keys[one.name].append(keystrokes(one))
    figures = {}
    for one in candidates:
        kilobytes, opening = idle_cost(one)
        speed, cpu = (statistics.median(column) for column in zip(*bulks[one.name], strict=True))
        trip, key_cpu = (statistics.median(column) for column in zip(*keys[one.name], strict=True))
        relayed = bool(one.pids)
        figures[one.name] = Figures(
            speed,
            cpu if relayed else None,
            trip,
            key_cpu if relayed else None,
            kilobytes,
            opening,
        )
    return figures


_ROWS: list[tuple[str, Callable[[Figures], float | None], str]] = [
    ("throughput, MB/s", lambda f: f.megabytes_per_second, "higher is better"),
    ("CPU s per GB", lambda f: f.cpu_seconds_per_gigabyte, "lower"),
    ("round trip, us (median)", lambda f: f.round_trip_us, "lower"),
    ("CPU us per keystroke", lambda f: f.cpu_us_per_round_trip, "lower"),
    ("kB per idle session", lambda f: f.kilobytes_per_idle_session, "lower"),
    ("CPU ms per session opened", lambda f: f.cpu_ms_per_session, "lower"),
]


def table(figures: dict[str, Figures], against: str) -> Iterator[str]:
    """One line per figure: each candidate's value and its ratio to ``against``."""
    yield f"{'':28}" + "".join(f"{name:>24}" for name in figures)
    for title, value, better in _ROWS:
        reference = value(figures[against])
        cells = []
        for one in figures.values():
            got = value(one)
            ratio = f"({got / reference:.2f}x)" if got is not None and reference else ""
            cells.append(f"{'-':>24}" if got is None else f"{got:>14.1f} {ratio:>9}")
        yield f"{title:28}" + "".join(cells) + f"  {better}"
    direct = figures["direct"].round_trip_us
    added = {name: one.round_trip_us - direct for name, one in figures.items() if name != "direct"}
    told = ", ".join(
        f"{name} {us:.0f} us ({us / added[against]:.2f}x)" for name, us in added.items()
    )
    yield f"added round trip: {told}"


def main(directory: Path) -> None:
    make_certificates(directory)
    python = (sys.executable, "-m")
    with ExitStack() as stack:
        _, port = stack.enter_context(running(*python, "tests.benchmarks.load", str(directory)))
        relay = (*python, "tests.benchmarks.relay", str(directory), str(port))
        relays = {
            "nginx stream": stack.enter_context(nginx(directory, port)),
            "ours": stack.enter_context(running(*relay)),
            "ours on stock endpoints": stack.enter_context(running(*relay, "stock")),
        }
        candidates = [Candidate("direct", load.opener(directory, port))] + [
            Candidate(name, load.opener(directory, where), [pid])
            for name, (pid, where) in relays.items()
        ]
        print("One hop, TLS on both sides; ratios to nginx's stream proxy")
        for line in table(measure(candidates), "nginx stream"):
            print(line)
