"""
Tests for :mod:`twisted_exec.program.start`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import uuid

from twisted.trial.unittest import SynchronousTestCase

from tests.heard import hear_signals
from twisted_exec.program.start import BrowserOptions, ProgramOptions, duration, refusal, seconds

_FAILING = """
from twisted.internet import reactor, task
from twisted.internet.defer import fail
from twisted.logger import globalLogBeginner, textFileLogObserver
import sys
import uuid
from twisted_exec.program.start import fail_program
globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stdout)], redirectStandardIO=False)
from twisted.internet.error import CannotListenError
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
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(os.getpid(), number)
        await task.deferLater(reactor, 0)
    print("drained")

reactor.addSystemEventTrigger("before", "shutdown", lambda: Deferred.fromCoroutine(drain()))
reactor.callWhenRunning(os.kill, os.getpid(), signal.SIGTERM)
reactor.run()
"""


_HUNG_UP = """
import os, signal
from twisted.internet import reactor
from twisted_exec.program.start import stop_once
if %s:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
stop_once(reactor)
reactor.addSystemEventTrigger("before", "shutdown", print, "stopped")
reactor.callWhenRunning(reactor.callLater, 0, os.kill, os.getpid(), signal.SIGHUP)
reactor.callWhenRunning(reactor.callLater, 0.2, os.kill, os.getpid(), signal.SIGKILL)
reactor.run()
"""


class StopOnceTests(SynchronousTestCase):
    """Tests for :func:`stop_once`."""

    def setUp(self) -> None:
        hear_signals(self)

    def test_impatience(self) -> None:
        """Signals during the stop are answered once and have no other effect."""
        told = subprocess.run(
            [sys.executable, "-c", _STOPPED_TWICE], capture_output=True, timeout=60, check=True
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
                timeout=60,
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
            timeout=60,
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


class ProgramOptionsTests(SynchronousTestCase):
    """Tests for :class:`ProgramOptions`."""

    def test_one_line(self) -> None:
        """A usage error is one line that refers to the help, with exit code 1."""

        class XOptions(ProgramOptions):
            program = "exec-x"
            optParameters = [["port", "p", "6443", "Where to listen."]]

        for arguments in (["--prot", "1"], ["surplus"], ["--port"]):
            with self.assertRaises(SystemExit) as caught:
                XOptions().parseOptions(arguments)
            line = str(caught.exception.code)
            self.assertTrue(line.startswith("exec-x: "), line)
            self.assertIn("see twistd exec-x --help", line)
            self.assertNotIn("\n", line)

    def test_paths(self) -> None:
        """Relative paths are made absolute when options are read; an omitted path stays None."""

        class XOptions(ProgramOptions):
            program = "exec-x"
            paths = ("state", "other")
            optParameters = [["state", None, "here", "A path."], ["other", None, None, "Another."]]

        options = XOptions()
        options.parseOptions([])
        self.assertEqual((options["state"], options["other"]), (os.path.abspath("here"), None))

    def test_duration(self) -> None:
        """Longer times are written as Go writes them."""
        for text, wanted in (("8760h", 31536000), ("1h30m", 5400), ("45s", 45), ("0s", 0)):
            self.assertEqual(duration(text), wanted)
        for text in ("", "1", "h", "1d", "30m1h", "-1h", "1.5h", "99999999h"):
            with self.assertRaises(ValueError) as caught:
                duration(text)
            told = f"{text!r} is no duration such as 8760h, 1h30m or 45s"
            self.assertEqual(str(caught.exception), told)

    def test_names_the_option(self) -> None:
        """The message for an invalid value names its option; that for a surplus word quotes it."""

        class XOptions(ProgramOptions):
            program = "exec-x"
            optParameters = [
                ["port", "p", 1, "Where to listen.", int],
                ["drain", None, 5.0, "How long.", seconds],
            ]

        for arguments, told in (
            (["--port", "x"], "--port: invalid literal for int() with base 10: 'x'"),
            (["--drain", "nan"], "--drain: 'nan' is no number of seconds from 0 to 3600"),
            (["--drain=-1"], "--drain: '-1' is no number of seconds from 0 to 3600"),
            (["surplus"], "'surplus' belongs to no option"),
        ):
            with self.assertRaises(SystemExit) as caught:
                XOptions().parseOptions(arguments)
            line = f"exec-x: {told}; see twistd exec-x --help"
            self.assertEqual(caught.exception.code, line)
        options = XOptions()
        options.parseOptions(["--port=7", "--drain=0.5"])
        self.assertEqual((options["port"], options["drain"]), (7, 0.5))

    def test_refusal(self) -> None:
        """Python prints it and exits with 1."""
        self.assertEqual(
            refusal("exec-x", "no --kubeconfig\nis given").code,
            "exec-x: no --kubeconfig is given; see twistd exec-x --help",
        )

    def test_usage(self) -> None:
        """The help shows defaults that are not empty."""

        class XOptions(ProgramOptions):
            program = "exec-x"
            optParameters = [
                ["file", None, "", "A file that has a description which goes on over two lines."],
                ["port", None, 7, "A port.", int],
            ]

        usage = XOptions().getUsage(80)
        self.assertIn("[default: 7]", usage)
        self.assertNotRegex(usage, r"\[default:\s*\]")

    def test_long_names(self) -> None:
        """Beneath a long option name the help starts on the next line; words are not broken."""

        class XOptions(ProgramOptions):
            program = "exec-x"
            longdesc = "What it is."
            optParameters = [
                ["cluster-signing-kube-apiserver-certificate", "c", "a", "Words and more " * 6],
                ["storage", None, None, f"One of {'x' * 75}."],
            ]

        lines = XOptions().getUsage(80).splitlines()
        self.assertEqual(
            lines[1:4],
            [
                "  -c, --cluster-signing-kube-apiserver-certificate=",
                " " * 10 + "Words and more Words and more Words and more Words and more Words and",
                " " * 10 + "more Words and more [default: a]",
            ],
        )
        self.assertIn(f"{' ' * 10}{'x' * 75}.", lines)
        self.assertEqual(lines[-1], "What it is.")


class BrowserOptionsTests(SynchronousTestCase):
    """Tests for :class:`BrowserOptions`."""

    def test_origins(self) -> None:
        """Sites are named one by one, in any spelling."""
        options = BrowserOptions()
        options.parseOptions(["--allowed-origin", "https://A.example:443", "--allowed-origin=null"])
        self.assertEqual(options["allowed-origin"], [b"https://a.example", b"null"])

    def test_no_origin(self) -> None:
        """An allowed origin that is not a site is refused."""
        with self.assertRaises(SystemExit):
            BrowserOptions().parseOptions(["--allowed-origin", "*"])


class FailProgramTests(SynchronousTestCase):
    """Tests for :func:`fail_program`."""

    def fails_with(self, error: str) -> bytes:
        """Return the output of a program whose start fails with this error; its exit code is 1."""
        told = subprocess.run(
            [sys.executable, "-c", _FAILING % error], capture_output=True, timeout=60, check=False
        )
        self.assertEqual(told.returncode, 1)
        self.assertNotIn(b"Traceback", told.stdout)
        self.assertEqual(told.stderr, b"")
        return told.stdout

    def test_ends(self) -> None:
        """A start that fails is one line in the log, and the program ends with 1."""
        told = self.fails_with('ValueError("no such\\nfile")')
        self.assertIn(b"exec-x: no such file\n", told)

    def test_port_in_use(self) -> None:
        """If listening fails, the message gives the address, the reason and a remedy."""
        told = self.fails_with(
            'CannotListenError("127.0.0.1", 6443, OSError(98, "Address already in use"))'
        )
        self.assertIn(
            b"exec-x: cannot listen on 127.0.0.1:6443: Address already in use: "
            b"free it, or choose another address or port\n",
            told,
        )
        for number, told_as in (
            (13, b"Permission denied: choose a place that this user may listen on; a port below "),
            (99, b"Cannot assign requested address: choose an address of this host\n"),
        ):
            told = self.fails_with(f'CannotListenError("10.0.0.1", 443, OSError({number}, "x"))')
            self.assertIn(b"exec-x: cannot listen on 10.0.0.1:443: " + told_as, told)
        unknown = '__import__("socket").gaierror(-2, "Name or service not known")'
        told = self.fails_with(f'CannotListenError("nope", 443, {unknown})')
        self.assertIn(b"nope:443: Name or service not known: choose an address of this host", told)
        told = self.fails_with('CannotListenError(None, b"/x/sock", "Cannot acquire lock")')
        self.assertIn(b"exec-x: cannot listen on /x/sock: Cannot acquire lock: free it", told)
