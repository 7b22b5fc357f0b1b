"""
Tests for :mod:`tests.benchmarks`: a benchmark that waits in vain ends, and says what it waited for.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests import procfs
from tests.benchmarks.console import Console
from tests.tiers import PROGRAMS

_STUCK = """
import asyncio, socket, subprocess, sys
from twisted.internet.defer import Deferred
from tests.benchmarks import __main__ as benchmarks
from tests.flows.deployment import run_reactor

near, far = socket.socketpair()

def in_a_thread(directory):
    child = subprocess.Popen(["sleep", "600"])  # wait: the benchmark's limit ends it
    print(child.pid, flush=True)
    near.recv(1)  # the echo of a key

async def for_a_machine():
    await Deferred()  # the state of a machine

def in_the_reactor(directory):
    async def measured():
        await for_a_machine()
    run_reactor(measured)

benchmarks.BENCHMARKS = {"stuck": benchmarks.Benchmark(locals()[sys.argv[1]], "", minutes=1 / 600)}
benchmarks.main([])
"""


class LimitTests(SynchronousTestCase):
    """A benchmark that never ends by itself."""

    starts = PROGRAMS

    def run_it(self, body: str) -> tuple[str, str]:
        """Run the benchmark; return its output, and what it says in the end."""
        script = self.mktemp()
        with open(script, "w") as file:
            file.write(_STUCK)
        done = subprocess.run(
            [sys.executable, script, body],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("benchmark stuck: no end within 0.1 s. It waits here:", done.stderr)
        return done.stdout, done.stderr

    def test_thread(self) -> None:
        """The limit names the line that waits, and ends what the benchmark has started."""
        output, said = self.run_it("in_a_thread")
        self.assertIn("near.recv(1)  # the echo of a key", said)
        (pid,) = re.findall(r"^(\d+)$", output, re.M)
        self.assertFalse(procfs.is_running(int(pid)))

    def test_coroutine(self) -> None:
        """In a benchmark with a reactor, the limit names what its coroutine awaits."""
        _, said = self.run_it("in_the_reactor")
        self.assertIn("await for_a_machine()", said)
        self.assertIn("await Deferred()  # the state of a machine", said)


class ConsoleTests(SynchronousTestCase):
    """Waits at a console that prints too little."""

    def setUp(self) -> None:
        near, self.far = socket.socketpair()
        self.addCleanup(self.far.close)
        self.addCleanup(near.close)
        self.far.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + self.frame(b"login: "))
        # The limit passes in each test, since nothing answers.
        self.console = Console(near, "localhost", "/exec", patience_seconds=0.01)

    def frame(self, output: bytes) -> bytes:
        return bytes((0x82, len(output) + 1, 1)) + output

    def test_mark(self) -> None:
        """The error has the mark that did not come, and what came."""
        problem = self.assertRaises(TimeoutError, self.console.until, b"BEGIN\n")
        self.assertEqual(
            str(problem),
            "waited 0.01 s for b'BEGIN\\n' in the output; the last output was b'login: '",
        )

    def test_echo(self) -> None:
        """So has the error about a key without an echo, such as that of an observer."""
        self.console.receive()
        self.far.sendall(self.frame(b"you are an observer"))
        self.console.receive()
        self.console.type(b"x")
        problem = self.assertRaises(TimeoutError, self.console.receive)
        self.assertIn("for output; the last output was b'you are an observer'", str(problem))

    def test_opening(self) -> None:
        """A hop that does not answer the request is named by what it owes."""
        near, far = socket.socketpair()
        self.addCleanup(far.close)
        self.addCleanup(near.close)
        problem = self.assertRaises(
            TimeoutError, Console, near, "localhost", "/exec", patience_seconds=0.01
        )
        self.assertIn("for an answer to the upgrade request", str(problem))
