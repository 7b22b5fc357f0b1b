"""
Actions of a kubectl with the Pod of :mod:`tests.interop.leaf_clusters`; each action is a column
of the table.

Every action is a process of that kubectl, whose output and exit code are held to what the same
command would give in the leaf.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.server
import os
import pty
import random
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from tests.interop.leaf_clusters import LINES

SECONDS = 60.0
MEBIBYTE = 1 << 20
PARALLEL = 6
"""Connections at a time through one port-forward."""


class Kubectl:
    """
    One kubectl and the cluster that it asks.

    :param scratch: an empty directory; the Pod's containers have the same files.
    :param logged_between: a moment after the first half of the log was written.
    """

    def __init__(
        self, program: str, kubeconfig: str, scratch: Path, logged_between: datetime
    ) -> None:
        self.argv = [program, f"--kubeconfig={kubeconfig}"]
        self.scratch, self.logged_between = scratch, logged_between
        # Each has a cache of its own: versions do not read each other's.
        self.env = {**os.environ, "HOME": str(scratch)}

    def run(self, *argv: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        """Exit code, standard output, standard error."""
        done = subprocess.run(
            [*self.argv, *argv], input=stdin, capture_output=True, timeout=SECONDS, env=self.env
        )
        return done.returncode, done.stdout, done.stderr

    def version(self) -> str:
        """As in ``v1.33.1``."""
        found = re.search(rb"v1\.\d+\.\d+", self.run("version", "--client")[1])
        assert found is not None
        return found[0].decode()

    @contextmanager
    def running(self, *argv: str, stdin: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """Run kubectl until the block is left."""
        process = subprocess.Popen(
            [*self.argv, *argv],
            stdin=subprocess.PIPE if stdin is None else stdin,
            stdout=subprocess.PIPE if stdin is None else stdin,
            stderr=subprocess.STDOUT,
            env=self.env,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def expect(found: object, wanted: object, told: bytes = b"") -> None:
    """
    Compare.

    :raises AssertionError: they differ; with what kubectl printed.
    """
    if found != wanted:
        raise AssertionError(f"{found!r:.400}, not {wanted!r:.400}; {told[-600:]!r}")


def until(file: int, pattern: bytes) -> bytes:
    """
    Read from a pipe or a terminal; :return: everything up to a match.

    :raises AssertionError: it ended, or does not print that in time.
    """
    read, deadline = b"", time.monotonic() + SECONDS
    while not re.search(pattern, read):
        ready, _, _ = select.select([file], [], [], max(0.0, deadline - time.monotonic()))
        try:
            data = os.read(file, 65536) if ready else b""
        except OSError:  # A terminal whose other end is closed.
            data = b""
        if not data:
            raise AssertionError(f"no {pattern!r} in {read[-600:]!r}")
        read += data
    return read


def output(kubectl: Kubectl) -> None:
    """``exec``: standard output and standard error arrive separately."""
    code, out, err = kubectl.run(
        "exec", "web", "-c", "main", "--", "sh", "-c", "echo out; echo problem >&2"
    )
    expect((code, out, b"problem" in err), (0, b"out\n", True), err)


def input(kubectl: Kubectl) -> None:
    """``exec -i``: 1 MiB of input is echoed back, and the end of input arrives."""
    data = random.Random(1).randbytes(MEBIBYTE)
    code, out, err = kubectl.run("exec", "-i", "web", "-c", "main", "--", "cat", stdin=data)
    expect((code, out == data), (0, True), err)


SIZES = """
while [ "$(stty size)" != "41 101" ]; do sleep 0.05; done; echo first
while [ "$(stty size)" != "30 80" ]; do sleep 0.05; done; echo second
read -r line; echo "<$line>"; exit 3
"""


def terminal(kubectl: Kubectl) -> None:
    """``exec -it``: the terminal's size, a resize, keys, and the exit code."""
    ours, theirs = pty.openpty()
    try:
        _resize(ours, 41, 101)
        argv = ["exec", "-it", "web", "-c", "main", "--", "sh", "-c", SIZES]
        with kubectl.running(*argv, stdin=theirs) as process:
            until(ours, b"first")
            _resize(ours, 30, 80)
            # The pty is not a controlling terminal, so the kernel sends no SIGWINCH.
            process.send_signal(signal.SIGWINCH)
            until(ours, b"second")
            os.write(ours, b"keys\n")
            told = until(ours, b"<keys>")
            expect(process.wait(SECONDS), 3, told)
    finally:
        os.close(ours)
        os.close(theirs)


def _resize(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def exit_code(kubectl: Kubectl) -> None:
    """kubectl exits with the exit code of the process."""
    code, out, err = kubectl.run("exec", "web", "-c", "main", "--", "sh", "-c", "exit 5")
    expect((code, out, b"exit code 5" in err), (5, b"", True), err)


def attach(kubectl: Kubectl) -> None:
    """``attach -i``: input reaches the container's own process, which answers."""
    with kubectl.running("attach", "-i", "web", "-c", "echo") as process:
        assert process.stdin is not None and process.stdout is not None
        word = f"hello-{random.getrandbits(32):x}".encode()
        process.stdin.write(word + b"\n")
        process.stdin.flush()
        until(process.stdout.fileno(), b"<" + word + b">")


class _Answer(http.server.BaseHTTPRequestHandler):
    body = random.Random(2).randbytes(MEBIBYTE)

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: object) -> None:
        """Discard the log."""


def port_forward(kubectl: Kubectl) -> None:
    """``port-forward``: concurrent connections with 1 MiB each, then another connection."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def fetch(url: str) -> bool:
        with urllib.request.urlopen(url, timeout=SECONDS) as response:
            return bool(response.read() == _Answer.body)

    try:
        with kubectl.running("port-forward", "pod/web", f":{server.server_port}") as process:
            assert process.stdout is not None
            told = until(process.stdout.fileno(), rb"127\.0\.0\.1:\d+ -> \d+\n")
            port = re.search(rb"127\.0\.0\.1:(\d+)", told)
            assert port is not None
            url = f"http://127.0.0.1:{int(port[1])}/"
            with ThreadPoolExecutor(PARALLEL) as pool:
                expect(list(pool.map(fetch, [url] * PARALLEL)), [True] * PARALLEL)
            expect(fetch(url), True)
    finally:
        server.shutdown()
        server.server_close()


def copy_in(kubectl: Kubectl) -> None:
    """``cp`` of a file into the container: the bytes are the same."""
    _copied(kubectl, lambda source, to: ("cp", "-c", "main", source, f"web:{to}"))


def copy_out(kubectl: Kubectl) -> None:
    """``cp`` of a file out of the container: the bytes are the same."""
    _copied(kubectl, lambda source, to: ("cp", "-c", "main", f"web:{source}", to))


def _copied(kubectl: Kubectl, command: Callable[[str, str], tuple[str, ...]]) -> None:
    source, copy = kubectl.scratch / "source", kubectl.scratch / "copy"
    source.write_bytes(random.Random(3).randbytes(3 * MEBIBYTE))
    copy.unlink(missing_ok=True)
    code, _, err = kubectl.run(*command(str(source), str(copy)))
    expect(code, 0, err)
    sums = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (source, copy)]
    expect(sums[1], sums[0], err)


def _lines(kubectl: Kubectl, wanted: list[str], *options: str) -> None:
    code, out, err = kubectl.run("logs", "web", "-c", "main", *options)
    expect((code, out.decode()), (0, "".join(f"{line}\n" for line in wanted)), err)


def logs(kubectl: Kubectl) -> None:
    """``logs``: the complete log."""
    _lines(kubectl, LINES)


def tail_none(kubectl: Kubectl) -> None:
    """``logs --tail=0``: no output."""
    _lines(kubectl, [], "--tail=0")


def tail(kubectl: Kubectl) -> None:
    """``logs --tail=3``: the last three lines."""
    _lines(kubectl, LINES[-3:], "--tail=3")


def since(kubectl: Kubectl) -> None:
    """``logs --since=10m``: the newer half."""
    _lines(kubectl, LINES[10:], "--since=10m")


def since_time(kubectl: Kubectl) -> None:
    """``logs --since-time``: the newer half."""
    _lines(kubectl, LINES[10:], f"--since-time={kubectl.logged_between:%Y-%m-%dT%H:%M:%SZ}")


def limit_bytes(kubectl: Kubectl) -> None:
    """``logs --limit-bytes=20``: exactly 20 bytes."""
    code, out, err = kubectl.run("logs", "web", "-c", "main", "--limit-bytes=20")
    expect((code, out), (0, "\n".join(LINES).encode()[:20]), err)


def timestamps(kubectl: Kubectl) -> None:
    """``logs --timestamps``: each line has its own timestamp."""
    code, out, err = kubectl.run("logs", "web", "-c", "main", "--timestamps")
    found = re.findall(rb"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (line \d+)$", out, re.MULTILINE)
    expect((code, [line.decode() for line in found]), (0, LINES), err)


def previous(kubectl: Kubectl) -> None:
    """``logs --previous``: the previous run, or a one-line error if there was none."""
    code, out, err = kubectl.run("logs", "web", "-c", "main", "--previous")
    expect((code, out), (0, b"crashed\n"), err)
    code, out, err = kubectl.run("logs", "web", "-c", "echo", "--previous")
    wanted = b'previous terminated container "echo" in pod "web" not found'
    expect((code, out, wanted in err, b"{" in err), (1, b"", True, False), err)


def follow(kubectl: Kubectl) -> None:
    """``logs -f``: new output as it is printed."""
    with kubectl.running("logs", "-f", "--tail=1", "web", "-c", "talker") as process:
        assert process.stdout is not None
        told = until(process.stdout.fileno(), rb"(tick \d+\n){4}")
        numbers = [int(number) for number in re.findall(rb"tick (\d+)\n", told)]
        expect(numbers, list(range(numbers[0], numbers[0] + len(numbers))), told)


ACTIONS: dict[str, Callable[[Kubectl], None]] = {
    "exec": output,
    "exec -i": input,
    "exec -it": terminal,
    "exit code": exit_code,
    "attach": attach,
    "port-forward": port_forward,
    "cp in": copy_in,
    "cp out": copy_out,
    "logs": logs,
    "--tail=0": tail_none,
    "--tail": tail,
    "--since": since,
    "--since-time": since_time,
    "--limit-bytes": limit_bytes,
    "--timestamps": timestamps,
    "--previous": previous,
    "-f": follow,
}
"""The columns of the table, and what is tried for each."""
