"""
Tests for :mod:`twisted_exec.program.start`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import uuid

from twisted.trial.unittest import SynchronousTestCase

from tests.heard import hear_signals
from tests.tiers import PROGRAMS

_FAILING = """
from twisted.internet import reactor, task
from twisted.internet.defer import fail
from twisted.logger import globalLogBeginner, textFileLogObserver
import sys
import uuid
from twisted_exec.program.start import fail_program
globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stdout)], redirectStandardIO=False)
from twisted.internet.defer import FirstError
from twisted.internet.error import CannotListenError
from twisted.python.failure import Failure
reactor.callWhenRunning(lambda: fail(%s).addErrback(fail_program, "exec-x", reactor))
reactor.run()
"""


_STOPPED_TWICE = """
import os, signal, sys
from twisted.internet import reactor, task
from twisted.internet.defer import Deferred
from twisted.logger import globalLogBeginner, textFileLogObserver
from twisted_exec.program.start import stop_once
globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stdout)], redirectStandardIO=False)
stop_once(reactor)

async def drain():
    for number in (signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), number)
        await task.deferLater(reactor, 0)
    print("drained")

reactor.addSystemEventTrigger("before", "shutdown", lambda: Deferred.fromCoroutine(drain()))
reactor.callWhenRunning(os.kill, os.getpid(), signal.SIGTERM)
reactor.run()
"""


_INTERRUPTED = """
import os, signal, sys
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted_exec.program.start import stop_once
stop_once(reactor)

def stop():
    reactor.callLater(0, os.kill, os.getpid(), signal.SIGINT)
    return Deferred()

reactor.addSystemEventTrigger("before", "shutdown", stop)
reactor.callWhenRunning(os.kill, os.getpid(), signal.SIGINT)
reactor.run()
"""


_HUNG_UP = """
import os, signal
from twisted.internet import reactor
from twisted_exec.program.start import stop_once
is_under_nohup = %s
if is_under_nohup:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
stop_once(reactor)
reactor.addSystemEventTrigger("before", "shutdown", print, "stopped")
reactor.callWhenRunning(reactor.callLater, 0, os.kill, os.getpid(), signal.SIGHUP)
if is_under_nohup:  # nothing else ends it
    reactor.callWhenRunning(reactor.callLater, 0.2, os.kill, os.getpid(), signal.SIGKILL)
reactor.run()
"""


class StopOnceTests(SynchronousTestCase):
    """Tests for :func:`stop_once`."""

    starts = PROGRAMS

    def setUp(self) -> None:
        hear_signals(self)

    def test_interrupted_twice(self) -> None:
        """A second Ctrl-C ends the process by the signal, whatever the stop waits for."""
        told = subprocess.run(
            [sys.executable, "-c", _INTERRUPTED], capture_output=True, timeout=600, check=False
        )
        self.assertEqual(told.returncode, -signal.SIGINT)
        self.assertNotIn(b"Traceback", told.stdout + told.stderr)

    def test_impatience(self) -> None:
        """Other signals during the stop are answered once and have no other effect."""
        told = subprocess.run(
            [sys.executable, "-c", _STOPPED_TWICE], capture_output=True, timeout=600, check=True
        )
        self.assertNotIn(b"Traceback", told.stdout)
        self.assertEqual(told.stdout.count(b"already stopping"), 1, told.stdout)
        self.assertIn(b"drained\n", told.stdout)

    def test_terminal_is_closed(self) -> None:
        """A program whose terminal is closed stops as it should, except under nohup."""
        for nohup, stopped in ((False, b"stopped\n"), (True, b"")):
            told = subprocess.run(
                [sys.executable, "-c", _HUNG_UP % nohup],
                capture_output=True,
                timeout=600,
                check=False,
            )
            self.assertEqual((told.stdout, told.returncode != 0), (stopped, nohup))


_TOLD = """
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted_exec.program.start import stop_once, report_start
stop_once(reactor)
ready = Deferred()
report_start(ready, "exec-x", reactor)
reactor.callWhenRunning(lambda: ready.%s)
reactor.callWhenRunning(reactor.callLater, 0, reactor.stop)
reactor.run()
"""


class TellStartTests(SynchronousTestCase):
    """Tests for :func:`report_start`."""

    starts = PROGRAMS

    def run_told(self, outcome: str) -> tuple[int, list[bytes]]:
        """Return the exit code and the messages sent to systemd."""
        name = f"twisted-exec-{uuid.uuid4()}"
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(listening.close)
        listening.bind(f"\0{name}")
        done = subprocess.run(
            [sys.executable, "-c", _TOLD % outcome],
            env={**os.environ, "NOTIFY_SOCKET": f"@{name}"},
            stdout=subprocess.DEVNULL,
            timeout=600,
        )
        listening.setblocking(False)
        told = []
        with contextlib.suppress(BlockingIOError):
            while True:
                told.append(listening.recv(100))
        return done.returncode, told

    def test_ready(self) -> None:
        """The program notifies systemd when it is ready and when it stops."""
        self.assertEqual(self.run_told("callback(None)"), (0, [b"READY=1", b"STOPPING=1"]))

    def test_failed(self) -> None:
        """A program that fails to start does not send READY=1."""
        self.assertEqual(self.run_told("errback(OSError('full'))"), (1, [b"STOPPING=1"]))


class FailProgramTests(SynchronousTestCase):
    """Tests for :func:`fail_program`."""

    starts = PROGRAMS

    def fails_with(self, error: str) -> bytes:
        """Return the output of a program whose start fails with this error; its exit code is 1."""
        told = subprocess.run(
            [sys.executable, "-c", _FAILING % error], capture_output=True, timeout=600, check=False
        )
        self.assertEqual(told.returncode, 1)
        self.assertNotIn(b"Traceback", told.stdout)
        self.assertEqual(told.stderr, b"")
        return told.stdout

    def test_ends(self) -> None:
        """A start that fails is one line in the log, and the program ends with 1."""
        told = self.fails_with('ValueError("no such\\nfile")')
        self.assertIn(b"exec-x: no such file\n", told)

    def test_one_of_several(self) -> None:
        """The line is about the service that failed, also if the program waits for several."""
        told = self.fails_with("FirstError(Failure(ValueError('no such file')), 0)")
        self.assertIn(b"exec-x: no such file\n", told)

    def test_terminal(self) -> None:
        """On a terminal the message is also the last line, after those of the services that stop."""
        ours, theirs = os.openpty()
        self.addCleanup(os.close, ours)
        subprocess.run(
            [sys.executable, "-c", _FAILING % 'ValueError("no such file")'],
            stdout=theirs,
            stderr=theirs,
            timeout=600,
            check=False,
        )
        os.close(theirs)
        # The kernel hands the output over by and by, and reports an error at its end.
        output = b""
        with contextlib.suppress(OSError):
            while data := os.read(ours, 65536):
                output += data
        lines = output.decode().splitlines()
        self.assertEqual(lines[-1], "exec-x: no such file")
        self.assertIn("Main loop terminated.", lines[-2])

    def test_port_in_use(self) -> None:
        """If listening fails, the message gives the address, the reason and a remedy."""
        told = self.fails_with(
            'CannotListenError("127.0.0.1", 6443, OSError(98, "Address already in use"))'
        )
        self.assertIn(
            b"exec-x: cannot listen on 127.0.0.1:6443: Address already in use: "
            b"free it, or choose another\n",
            told,
        )
        for number, told_as in (
            (
                13,
                b"Permission denied: choose an address at which this user may listen; a port below ",
            ),
            (99, b"Cannot assign requested address: choose an address of this host\n"),
        ):
            told = self.fails_with(f'CannotListenError("10.0.0.1", 443, OSError({number}, "x"))')
            self.assertIn(b"exec-x: cannot listen on 10.0.0.1:443: " + told_as, told)
        unknown = '__import__("socket").gaierror(-2, "Name or service not known")'
        told = self.fails_with(f'CannotListenError("nope", 443, {unknown})')
        self.assertIn(b"nope:443: Name or service not known: choose an address of this host", told)
        told = self.fails_with('CannotListenError(None, b"/x/sock", "Cannot acquire lock")')
        self.assertIn(b"exec-x: cannot listen on /x/sock: Cannot acquire lock: free it", told)
