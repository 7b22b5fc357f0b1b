"""
``kubectl-console`` as a process: on pipes and on a pseudo-terminal.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from importlib.metadata import packages_distributions
from itertools import groupby
from typing import Any

import yaml
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from tests.chain import until
from tests.kube.console_cases import REVIEWS, ConsolesCase
from tests.tiers import PROGRAMS
from twisted_exec.api.kinds.consolepolicies import APPROVAL_REQUIRED
from twisted_exec.api.status import Conflict, Forbidden, ServiceUnavailable
from twisted_exec.api.times import timestamp
from twisted_exec.console.notices import HINT
from twisted_exec.streaming.http.responses import respond_json
from twisted_exec.streaming.http.routes import not_found
from twisted_exec.streaming.interfaces import (
    MACHINE_DELETED,
    Break,
    Ending,
    Role,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.server import READ_ONLY
from twisted_exec.testing.console import EchoAttachment, RecordingAttachment
from twisted_exec.wire.notices import encode_notice

reactor: Any = _reactor

_WAIT_LINE = re.compile(rb"\r\x1b\[K(connecting [^\r]*)?")
"""Drawn while a connection takes longer than a second, as on a busy host."""

COMMAND = "import sys; from twisted_exec.cli.console.main import main; sys.exit(main())"
DRAWN_AGAIN = f"""
from twisted_exec.cli.console.connecting import ProgressLine
erase = ProgressLine.erase
def erase_and_draw(line):
    erase(line)
    if line._timer is not None:
        line._timer.reset(0)
ProgressLine.erase = erase_and_draw
{COMMAND}
"""
"""The program; it draws its line with seconds right after each message."""
LIST_MODULES = """
import gc, os, sys
from twisted.internet import endpoints, reactor, ssl
before = set(sys.modules)
from twisted_exec.cli.console.main import main
code = main()
with open(os.environ["MODULES"], "w") as file:
    file.write(f"{gc.isenabled()} {gc.get_freeze_count() > len(gc.get_objects())}\\n")
    file.write(" ".join(set(sys.modules) - before))
sys.exit(code)
"""
"""
The same; it writes whether it collects garbage, and leaves out what the imports made; and a list of the modules
that it imported.
"""

MODULES = [
    "api.declared_reasons",
    "api.dialects",
    "api.display",
    "api.missing_right",
    "api.names",
    "api.obstacles",
    "api.resource",
    "api.spaces",
    "api.status",
    "cli.advice",
    "cli.console.connecting",
    "cli.console.menu_command",
    "cli.console.dialog",
    "cli.console.display",
    "cli.console.escape",
    "cli.console.first_screen",
    "cli.console.interfaces",
    "cli.console.machine",
    "cli.console.main",
    "cli.console.options",
    "cli.console.outage",
    "cli.console.patience",
    "cli.console.pausable_timers",
    "cli.console.people",
    "cli.console.process",
    "cli.console.program",
    "cli.console.session",
    "cli.console.status",
    "cli.console.streams",
    "cli.console.takeover",
    "cli.console.terminal",
    "cli.console.type_ahead",
    "cli.console.views",
    "cli.console.window",
    "cli.explanations",
    "cli.machine_options",
    "cli.messages",
    "cli.options",
    "cli.parser",
    "cli.refusal_texts",
    "cli.times",
    "console.notices",
    "control.backoff",
    "kube.console",
    "kube.kubeconfig.client_config",
    "kube.kubeconfig.connection",
    "kube.kubeconfig.credentials",
    "kube.kubeconfig.entries",
    "kube.kubeconfig.environment",
    "kube.kubeconfig.expiry",
    "kube.kubeconfig.headers",
    "kube.kubeconfig.loader",
    "kube.machine_requests",
    "kube.recording_news",
    "streaming.http.upgrade_client",
    "streaming.http.upgrade_server",
    "streaming.http.websocket",
    "streaming.interfaces",
    "streaming.lifecycle",
    "streaming.paced_connection",
    "streaming.remotecommand.carrier",
    "streaming.remotecommand.carriers",
    "streaming.remotecommand.client",
    "streaming.remotecommand.first_user",
    "streaming.remotecommand.message_carrier",
    "streaming.remotecommand.pings",
    "streaming.remotecommand.stream",
    "streaming.tcp_info",
    "streaming.transports",
    "tls.client",
    "tls.deadlines",
    "tls.endpoints",
    "tls.errors",
    "tls.fast.accepting",
    "tls.fast.descriptor",
    "tls.fast.loop",
    "tls.fast.names",
    "tls.fast.openssl",
    "tls.fast.records",
    "tls.fast.resumption",
    "tls.fast.transport",
    "tls.files",
    "tls.listening",
    "tls.pem",
    "tls.server",
    "tls.turns",
    "tls.unix",
    "wire.channel",
    "wire.endings",
    "wire.errors",
    "wire.keys",
    "wire.marks",
    "wire.notices",
    "wire.plain_http",
    "wire.resize",
    "wire.resume",
    "wire.session_terms",
    "wire.stream_options",
    "wire.terminal_modes",
    "wire.typed_keys",
    "wire.upgrade",
]
"""Our modules that a session needs.  Each costs about 2 ms at every start."""

MODULES_OF_REFUSAL = {
    "api.agents",
    "api.selectors",
    "api.users",
    "auth.default_roles",
    "auth.interfaces",
    "auth.rbac",
    "auth.rules",
    "kube.answer_heads",
    "kube.answers",
    "kube.bodies",
    "kube.client",
    "kube.interfaces",
    "kube.late_credentials",
    "kube.read_only_hint",
    "kube.transport",
}
"""More modules that a refusal needs, to look whether the user may observe, and for the role that would help."""

LIBRARIES = {"autobahn", "cbor2", "click", "h11", "hyperlink", "txaio"}
"""Libraries that a session needs: HTTP, WebSockets, what autobahn imports; and PyYAML, unless the kubeconfig is JSON."""

HEAVY = {"decimal", "twisted.web.client", "twisted.web.http", "twisted.web.server"}

SET_CLOCK = f"""
import os, time
now, noon = time.time, os.path.abspath(os.environ["NOON"])
time.time = lambda: now() + 3600 * os.path.exists(noon)
{COMMAND}
"""
"""The same, with a wall clock that is an hour ahead as soon as a file exists."""

AHEAD = f"""
import os, time
now, passed = time.monotonic, os.environ["PASSED"]
time.monotonic = lambda: now() + os.path.getsize(passed)
{COMMAND}
"""
"""The same, with a monotonic clock that is ahead by as many seconds as a file has bytes."""


def ours_of(modules: set[str]) -> list[str]:
    """Return the sorted names of our modules, without packages."""
    ours = {name for name in modules if name.startswith("twisted_exec.")}
    packages = {name.rpartition(".")[0] for name in ours}
    return sorted(each.removeprefix("twisted_exec.") for each in ours - packages)


class ConsoleProcess(ProcessProtocol):
    """
    One run of ``kubectl-console``.

    ``exited`` fires with the exit code, or with minus the signal; ``ended`` when
    all output is read, too.
    """

    def __init__(self) -> None:
        self.stdout = b""
        self.stderr = b""
        self.exited: Deferred[int] = Deferred()
        self.ended: Deferred[int] = Deferred()
        self._waiting: list[tuple[bytes, Deferred[None]]] = []

    def outReceived(self, data: bytes) -> None:
        self.stdout += data
        self._look()

    def errReceived(self, data: bytes) -> None:
        self.stderr += data
        self._look()

    def _look(self) -> None:
        for wanted, seen in self._waiting[:]:
            if re.search(wanted, self.stdout):
                self._waiting.remove((wanted, seen))
                seen.callback(None)

    def until(self, pattern: bytes) -> Deferred[None]:
        """
        Fires when standard output (on a terminal: all output) holds ``pattern``; fails when the
        program ends without it.
        """
        seen: Deferred[None] = Deferred()
        self._waiting.append((pattern, seen))
        self._look()
        return seen

    def type(self, data: bytes) -> None:
        self.transport.write(data)

    def signal(self, number: int) -> None:
        self.transport.signalProcess(number)

    def processExited(self, reason: Failure) -> None:
        self.exited.callback(_code(reason))

    def processEnded(self, reason: Failure) -> None:
        waiting, self._waiting = self._waiting, []
        for wanted, seen in waiting:
            seen.errback(AssertionError(f"no {wanted!r} in {self.stdout!r}; {self.stderr!r}"))
        self.ended.callback(_code(reason))


def _code(reason: Failure) -> int:
    value: Any = reason.value
    if reason.check(ProcessDone):
        return 0
    return int(value.exitCode if value.signal is None else -value.signal)


class ProcessCase(ConsolesCase):
    """Runs the program against a server of consoles."""

    def start(self, *arguments: str, **more: Any) -> ConsoleProcess:
        """Start ``kubectl console vm ARGUMENTS``; ``more`` goes to ``spawnProcess``."""
        process = ConsoleProcess()
        command = [sys.executable, "-c", more.pop("command", COMMAND), "vm", *arguments]
        environment = {**os.environ, "KUBECONFIG": self.kubeconfig()}
        environment.update(more.pop("env", {}))
        reactor.spawnProcess(process, command[0], command, env=environment, **more)
        self.addCleanup(self._kill, process)
        return process

    def start_with_clock(self, *arguments: str) -> ConsoleProcess:
        """Start the program with a clock that :meth:`pass_seconds` puts forward."""
        self.passed = os.path.abspath(self.mktemp())
        with open(self.passed, "wb"):
            return self.start(*arguments, command=AHEAD, env={"PASSED": self.passed})

    def pass_seconds(self, process: ConsoleProcess, seconds: int) -> None:
        """Put the clock of the program forward."""
        with open(self.passed, "ab") as file:
            file.write(bytes(seconds))
        process.signal(signal.SIGWINCH)  # to wake it

    def _kill(self, process: ConsoleProcess) -> Deferred[int] | None:
        if process.exited.called:
            return None
        process.signal(signal.SIGKILL)
        return process.exited

    def serve(self, attachment: RecordingAttachment) -> RecordingAttachment:
        self.consoles.machines["default/vm"] = lambda: attachment
        return attachment

    async def ends_with(self, process: ConsoleProcess, code: int, stderr: str = "") -> None:
        """Wait for the end; check the exit code and the line on standard error."""
        told = await process.ended
        self.assertEqual(process.stderr.decode(), f"{stderr}\n" if stderr else "")
        self.assertEqual(told, code)


class PipeTests(ProcessCase):
    """Standard input and output are pipes, as in scripts."""

    starts = PROGRAMS
    exact = True

    async def test_input_and_its_end(self) -> None:
        """Input and its end are sent, all output is written, and the exit code is 0."""
        attachment = self.serve(EchoAttachment())
        process = self.start()
        content = os.urandom(1 << 20)
        process.type(content)
        process.transport.closeStdin()
        await self.ends_with(process, 0)
        self.assertEqual(process.stdout, content)
        self.assertEqual(attachment.input_ends, 1)
        self.assertEqual(attachment.sizes, [])

    async def test_notice(self) -> None:
        """A notice to an observer is on standard error; a pipe has no keys, so it reads the option alone."""
        attachment = self.serve(EchoAttachment(b"$ "))
        process = self.start()
        await process.until(rb"\$ ")
        text = "the writer of this console is ~f or ada; you are an observer"
        attachment.transport.write(encode_notice(f"{text} {HINT}"))
        attachment.transport.write(b"booted")
        await process.until(rb"booted")
        process.transport.closeStdin()
        await self.ends_with(process, 0, f"{text} (--force takes over)")
        self.assertEqual(process.stdout, b"$ booted")

    async def test_read_only(self) -> None:
        """A ``--read-only`` session shows output, discards input, and says so once."""
        attachment = self.serve(EchoAttachment(greeting=b"login: "))
        process = self.start("--read-only")
        await process.until(b"login: ")
        process.type(b"root\n")
        process.transport.closeStdin()
        await self.ends_with(process, 0, READ_ONLY.text)
        self.assertEqual((attachment.received, attachment.input_ends), (b"", 1))
        self.assertEqual(process.stdout, b"login: ")
        asked = attachment.transport.options
        self.assertEqual((asked.read_only, asked.tty), (True, False))

    async def test_force(self) -> None:
        """``--force`` travels in the request; input from a pipe has no escape menu."""
        attachment = self.serve(EchoAttachment())
        process = self.start("--force")
        process.type(b"~.~B\n")
        process.transport.closeStdin()
        await self.ends_with(process, 0)
        self.assertEqual((attachment.received, attachment.wishes), (b"~.~B\n", []))
        asked = attachment.transport.options
        self.assertEqual((asked.force, asked.read_only), (True, False))

    async def test_linger(self) -> None:
        """After the end of input the session goes on until it is quiet."""

        class Late(RecordingAttachment):
            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                reactor.callLater(0.2, self.transport.write, b"later")

        attachment = self.serve(Late())
        process = self.start_with_clock("--linger", "600")
        process.type(b"version\r")
        process.transport.closeStdin()
        await process.until(b"later")
        self.pass_seconds(process, 600)
        await self.ends_with(process, 0)
        self.assertEqual((attachment.received, process.stdout), (b"version\r", b"later"))
        self.assertEqual(attachment.input_ends, 0)

    async def test_exit_code(self) -> None:
        """The command exits with the process's exit code and prints why the session ended."""

        class Exiting(RecordingAttachment):
            def attached(self, transport: Any) -> None:
                super().attached(transport)
                transport.write(b"bye\n")
                transport.end(Ending("Completed", "/bin/sh exited with code 7", 7))

        self.serve(Exiting())
        process = self.start()
        await self.ends_with(process, 7, "session ended: Completed: /bin/sh exited with code 7")
        self.assertEqual(process.stdout, b"bye\n")

    async def test_ended_from_the_other_side(self) -> None:
        """A session that the server ends is one line with the reason, and exit code 1."""
        attachment = self.serve(RecordingAttachment(b"up"))
        process = self.start()
        await process.until(b"up")
        attachment.transport.end(Ending(MACHINE_DELETED, 'machine "vm" was deleted'))
        await self.ends_with(process, 1, 'session ended: MachineDeleted: machine "vm" was deleted')

    async def test_one_file(self) -> None:
        """In a file with both outputs the last message has a line of its own; none is added without a message."""
        command = f"import os; os.dup2(1, 2); {COMMAND}"
        attachment = self.serve(RecordingAttachment(b"=> "))
        process = self.start(command=command)
        await process.until(b"=> ")
        attachment.transport.end(Ending(MACHINE_DELETED, "bye"))
        await process.ended
        self.assertEqual(process.stdout, b"=> \nsession ended: MachineDeleted: bye\n")
        process = self.start("--linger", "0.1", command=command)
        await process.until(b"=> ")
        process.transport.closeStdin()
        await process.ended
        self.assertEqual(process.stdout, b"=> ")

    async def test_refusals(self) -> None:
        """A refusal by the server is printed as one line."""
        await self.ends_with(self.start(), 1, 'machine "vm" not found in namespace "default"')
        self.consoles.machines["default/vm"] = Forbidden("user test may not")
        await self.ends_with(self.start(), 1, "forbidden: user test may not")
        # With the role to ask for it is long, so it begins with its point.
        words = (
            'vm is forbidden: User "test" cannot drive resource "machines/console" in API group '
        )
        words += '"compute.ironcore.dev"'
        self.consoles.machines["default/vm"] = Forbidden(words)
        grant = "clusterrolebinding test-console-user --clusterrole=console-user --user=test"
        await self.ends_with(
            self.start(),
            1,
            f"you may not open vm: {words}; ask an administrator for the role console-user "
            f"(console-observer suffices for --read-only): kubectl create {grant}",
        )

    async def test_rights_of_options(self) -> None:
        """A refusal asks at once for the role that the options need, too."""
        words = (
            'User "test" cannot create resource "machines/exec" in API group "compute.ironcore.dev"'
        )
        self.consoles.machines["default/vm"] = Forbidden(words)
        ask = "ask an administrator for the"
        for options, told in (
            (
                ("--force",),
                f"you may not take over vm: %; to take over, {ask} role console-operator",
            ),
            (("--record",), f"you may not open vm: %; {ask} role edit"),
            (
                ("--force", "--record"),
                f"you may not take over vm: %; to take over, {ask} roles console-operator and edit",
            ),
        ):
            process = self.start(*options)
            await process.ended
            told = told.replace("%", f"forbidden: {words}")
            self.assertIn(f"{told}: kubectl create ", process.stderr.decode())

    async def test_request_without_need(self) -> None:
        """With --request the console opens at once if no policy requires an approval; other refusals are printed."""
        self.consoles.machines["default/vm"] = Forbidden("user test may not")
        await self.ends_with(self.start("--request"), 1, "forbidden: user test may not")
        self.serve(EchoAttachment())
        process = self.start("--request")
        process.type(b"x")
        await process.until(b"x")
        process.transport.closeStdin()
        await self.ends_with(process, 0)

    async def test_piped_input_before_an_approval(self) -> None:
        """The machine gets the input of a script after the approval."""
        serve = self.consoles.dispatch

        async def dispatch(request: Any) -> None:
            if b"/consolerequests" not in request.path:
                await serve(request)
                return
            metadata = {"name": "vm-1", "creationTimestamp": timestamp(time.time())}
            status = {"approved": request.method == b"GET"}
            if status["approved"]:
                self.serve(EchoAttachment())
            respond_json(request, 200, {"metadata": metadata, "spec": {}, "status": status})

        self.consoles.dispatch = dispatch  # type: ignore[method-assign]
        refusal = Forbidden("no", details={"causes": [{"reason": APPROVAL_REQUIRED}]})
        self.consoles.machines["default/vm"] = refusal
        process = self.start("--request")
        process.type(b"uptime\n")
        process.transport.closeStdin()
        await process.until(b"uptime")
        self.assertEqual(await process.ended, 0)
        self.assertNotIn(b"discarded", process.stderr)

    async def test_lost(self) -> None:
        """A connection lost without a status is a failure."""
        attachment = self.serve(RecordingAttachment(b"up"))
        process = self.start()
        await process.until(b"up")
        attachment.transport.cut()
        await self.ends_with(process, 1, "connection lost before the session's status")

    async def test_timeout(self) -> None:
        """``--timeout`` limits the whole session."""
        self.serve(RecordingAttachment(b"up"))
        process = self.start("--timeout", "1")
        self.assertEqual(await process.ended, 124)
        # Behind it, on a slow machine: what it waited for.
        self.assertTrue(process.stderr.startswith(b"timed out, as --timeout says"), process.stderr)

    async def test_modules(self) -> None:
        """
        A session imports only what it needs, because a user waits for it, and collects no garbage among that.
        """
        self.serve(EchoAttachment())
        modules = await self.modules_of(0)
        self.assertEqual(ours_of(modules), sorted(MODULES))
        self.assertEqual(modules & HEAVY, set())
        installed = {name.partition(".")[0] for name in modules}
        libraries = {name for name in installed if name in packages_distributions()}
        self.assertEqual(libraries - LIBRARIES - {"twisted", "twisted_exec", "cryptography"}, set())

    async def test_modules_of_refusal(self) -> None:
        """A refusal imports little more, because a user waits for it, too."""
        why = (
            'User "bob" cannot create resource "machines/exec" in API group "compute.ironcore.dev"'
        )
        refusal = Forbidden(f'forbidden: {why} in the namespace "default"')
        self.consoles.machines["default/vm"] = refusal
        modules = await self.modules_of(1)
        self.assertEqual(set(ours_of(modules)) - {*MODULES}, MODULES_OF_REFUSAL)

    async def modules_of(self, exit_code: int) -> set[str]:
        """Return the modules that a session imports; one key is typed."""
        path, config = self.mktemp(), self.kubeconfig()
        with open(config) as file:
            document = yaml.safe_load(file)
        with open(config, "w") as file:
            json.dump(document, file)
        process = self.start(command=LIST_MODULES, env={"MODULES": path, "KUBECONFIG": config})
        process.type(b"x")
        process.transport.closeStdin()
        self.assertEqual(await process.ended, exit_code, process.stderr)
        with open(path) as file:
            self.assertEqual(file.readline(), "True True\n")
            return set(file.read().split())

    def test_before_the_request(self) -> None:
        """autobahn is imported while the server opens the console, and not before."""
        script = "import sys, twisted_exec.cli.console.session; print('autobahn' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
        self.assertEqual(done.stdout, b"False\n")

    async def test_clock_is_set(self) -> None:
        """Setting the clock forward does not end a session."""
        self.serve(EchoAttachment())
        noon = self.mktemp()
        process = self.start("--timeout", "600", command=SET_CLOCK, env={"NOON": noon})
        process.type(b"before")
        await process.until(b"before")
        with open(noon, "w"):
            process.type(b"after")
        await process.until(b"after")
        process.transport.closeStdin()
        await self.ends_with(process, 0)

    async def test_no_server(self) -> None:
        """If the connection is refused, the error names the server."""
        path = self.kubeconfig()
        with open(path) as file:
            text = file.read().replace(self.config.server, "http://127.0.0.1:1")
        with open(path, "w") as file:
            file.write(text)
        process = self.start(env={"KUBECONFIG": path})
        refusal = "cannot reach http://127.0.0.1:1: connection refused"
        remedy = "start that API server, or choose another cluster with --context"
        await self.ends_with(process, 1, f"{refusal}; {remedy}")

    async def test_bad_kubeconfig(self) -> None:
        """A kubeconfig error names the file and the problem."""
        process = self.start("--context", "none")
        self.assertEqual(await process.ended, 1)
        self.assertRegex(
            process.stderr.decode(), r'\A/.*kubeconfig: no context "none"; there are: .+\n\Z'
        )
        process = self.start(env={"KUBECONFIG": "/nonexistent"})
        self.assertEqual(await process.ended, 1)
        self.assertRegex(process.stderr.decode(), r"\Ano kubeconfig: /nonexistent .*\n\Z")

    async def test_reader_went_away(self) -> None:
        """With a closed standard output, as in ``| head``, the command ends silently."""
        attachment = self.serve(RecordingAttachment(b"up"))
        process = self.start()
        await process.until(b"up")
        process.transport.closeStdout()
        attachment.transport.write(b"more\n")
        await self.ends_with(process, 0)

    async def test_unread_input(self) -> None:
        """A script says that it does not read its standard input if that has data; --quiet omits this."""
        unread = "standard input is not sent to the machine: --run, --expect and --send have all of the input"
        with open(__file__, "rb") as file:
            for words, line in (((), unread), (("--quiet",), "")):
                self.serve(EchoAttachment(b"up"))
                children: dict[int, Any] = {0: file.fileno(), 1: "r", 2: "r"}
                process = self.start("--expect", "up", *words, childFDs=children)
                await self.ends_with(process, 0, line)
            children = {0: file.fileno(), 1: "r", 2: "r"}
            command = f"import sys; sys.argv[1] = '--all'; {COMMAND}"
            process = self.start("--run", "true", command=command, childFDs=children)
            await process.ended  # this server has no list
            self.assertEqual(process.stderr.decode().splitlines()[0], unread)

    async def test_disk_full(self) -> None:
        """Failure to write output fails the command."""
        self.serve(RecordingAttachment(b"precious"))
        full = os.open("/dev/full", os.O_WRONLY)
        self.addCleanup(os.close, full)
        process = self.start(childFDs={0: "w", 1: full, 2: "r"})
        await self.ends_with(process, 1, "cannot write output: No space left on device")

    async def test_closed_descriptors(self) -> None:
        """A missing standard input is read as empty."""
        attachment = self.serve(EchoAttachment(b"up"))
        process = self.start(childFDs={1: "r", 2: "r"})
        await self.ends_with(process, 0)
        self.assertEqual((process.stdout, attachment.input_ends), (b"up", 1))

    async def test_closed_standard_error(self) -> None:
        """Without a standard error nobody gets the last message, and standard output has the machine's alone."""
        attachment = self.serve(RecordingAttachment(b"=> "))
        process = self.start(childFDs={0: "w", 1: "r"})
        await process.until(b"=> ")
        attachment.transport.end(Ending(MACHINE_DELETED, "bye"))
        await self.ends_with(process, 1)
        self.assertEqual(process.stdout, b"=> ")
        command = "import os; from twisted_exec.cli.console import program, session; os.close(2); "
        command += "raise SystemExit(program.conclude(session.Outcome(1, 'last'), mid_line=True))"
        process = self.start(command=command)
        await self.ends_with(process, 1)
        self.assertEqual(process.stdout, b"")

    async def test_standard_error_elsewhere(self) -> None:
        """The last message goes elsewhere, and the shell's prompt begins a line of the terminal."""
        command = "from twisted_exec.cli.console import program, session; "
        command += "print('=> ', end='', flush=True); "
        command += "raise SystemExit(program.conclude(session.Outcome(1, 'last'), mid_line=True))"
        for line in (True, False):
            far, near = os.openpty()
            self.addCleanup(os.close, far)
            if not line:
                command = command.replace("mid_line=True", "mid_line=False")
            process = self.start(command=command, childFDs={0: "w", 1: near, 2: "r"})
            os.close(near)
            await self.ends_with(process, 1, "last")
            self.assertEqual(os.read(far, 100), b"=> \r\n" if line else b"=> ")

    async def test_signal(self) -> None:
        """A signal ends the session first; the program then dies of the signal."""
        attachment = self.serve(RecordingAttachment(b"up"))
        process = self.start()
        await process.until(b"up")
        process.signal(signal.SIGINT)
        await self.ends_with(process, -signal.SIGINT)
        self.assertEqual(attachment.detached_with, ["client closed"])

    async def test_slow_reader(self) -> None:
        """A slow reader pauses the machine's output, and no output is lost."""

        class Producer:
            paused = False

            def pauseProducing(self) -> None:
                self.paused = True

            def resumeProducing(self) -> None:
                self.paused = False

            def stopProducing(self) -> None:
                pass

        attachment = self.serve(RecordingAttachment(b"up"))
        process = self.start()
        await process.until(b"up")
        process.transport.pauseProducing()
        producer = Producer()
        attachment.transport.registerProducer(producer, True)
        content = os.urandom(1 << 16)
        sent = 0
        while not producer.paused:
            attachment.transport.write(content)
            sent += 1
            await self._settle()
            self.assertLess(sent, 1000, "nobody holds the output back")
        attachment.transport.unregisterProducer()
        attachment.transport.end(Ending("Completed"))
        await self._settle()
        process.transport.resumeProducing()
        await self.ends_with(process, 0, "session ended: Completed")
        self.assertEqual(process.stdout, b"up" + content * sent)


class TerminalCase(ProcessCase):
    """Runs the program on a terminal."""

    def start_on_terminal(self, *arguments: str, **more: Any) -> ConsoleProcess:
        far, near = os.openpty()
        # Kept open, so that the terminal outlives the program and the test can inspect it.
        self.near = os.dup(near)
        self.addCleanup(self._close_near)
        self.before = termios.tcgetattr(near)
        self.set_size(TerminalSize(80, 24))
        return self.start(*arguments, usePTY=(far, near, os.ttyname(near)), **more)

    def set_size(self, size: TerminalSize) -> None:
        told = struct.pack("HHHH", size.rows, size.columns, 0, 0)
        fcntl.ioctl(self.near, termios.TIOCSWINSZ, told)

    def _close_near(self) -> None:
        if self.near >= 0:
            os.close(self.near)
            self.near = -1

    async def ends_so(self, process: ConsoleProcess, code: int) -> None:
        """Wait for the end; check the exit code and that the terminal is restored."""
        told = await process.exited
        self.assertEqual(termios.tcgetattr(self.near), self.before)
        self.assertTrue(os.get_blocking(self.near))
        self._close_near()
        await process.ended
        self.assertEqual(told, code, process.stdout)


class TerminalTests(TerminalCase):
    """Standard input, output and error are a terminal."""

    starts = PROGRAMS

    async def test_input_from_pipe(self) -> None:
        """Input from a pipe is not typed ahead at the terminal: nothing precedes the machine's output."""
        self.serve(EchoAttachment())
        piped = (
            "import os; r, w = os.pipe(); os.write(w, b'from a pipe'); os.dup2(r, 0); os.close(w)\n"
        )
        process = self.start_on_terminal(command=piped + COMMAND)
        await process.until(rb"from a pipe")
        await self.ends_so(process, 0)
        self.assertEqual(_WAIT_LINE.sub(b"", process.stdout), b"from a pipe\r\n")

    async def test_interrupted_script(self) -> None:
        """The message about Ctrl-C, which the terminal echoes during a script, begins a line."""
        command = """
import signal
from twisted_exec.cli.console import program, session
try:
    print("ready", flush=True)
    signal.pause()
except KeyboardInterrupt:
    program.conclude(session.Outcome(signal=signal.SIGINT, line="interrupted"), mid_line=False)
"""
        process = self.start_on_terminal(command=command)
        await process.until(b"ready\r\n")
        process.type(b"\x03")
        await self.ends_so(process, -signal.SIGINT)
        self.assertEqual(process.stdout, b"ready\r\n^C\r\ninterrupted\r\n")

    async def test_leaving_script(self) -> None:
        """A user who tries to leave a script with Ctrl-] reads once what ends it; what was typed before says nothing."""
        for typed_ahead, count in ((b"", 1), (b"ls\r", 0)):
            attachment = self.serve(EchoAttachment(b"$ "))
            process = self.start_on_terminal("--expect", "never")
            process.type(typed_ahead)
            await until(lambda machine=attachment: machine.attachments)
            process.type(b"\x1d")
            if count:
                await process.until(rb"Ctrl-C ends this program")
                process.type(b"\x1d\r")
            process.type(b"\x03")
            await self.ends_so(process, -signal.SIGINT)
            self.assertEqual(process.stdout.count(b"Ctrl-C ends this program"), count)
            self.assertEqual(attachment.received, b"")

    async def test_raw_and_escape(self) -> None:
        """Every key goes to the machine, Ctrl-C too; Ctrl-] leaves with 0, and a line says so."""
        attachment = self.serve(EchoAttachment(b"$ "))
        process = self.start_on_terminal()
        await process.until(rb"Connected to vm\. Ctrl-\] leaves, ~\? helps\.\r\n\$ ")
        process.type(b"a\x03\x04\x1a\r")
        await process.until(rb"a\x03\x04\x1a\r")
        process.type(b"\x1d")
        await self.ends_so(process, 0)
        self.assertTrue(process.stdout.endswith(b"\r\nDisconnected from vm.\r\n"), process.stdout)
        self.assertEqual(attachment.received, b"a\x03\x04\x1a\r")
        self.assertEqual(attachment.detached_with, ["client closed"])

    async def test_quiet(self) -> None:
        """With --quiet only the machine's output and the help are printed."""
        self.serve(EchoAttachment(b"$ "))
        process = self.start_on_terminal("--quiet")
        await process.until(rb"\A\$ ")
        process.type(b"~?")
        await process.until(rb"At the start of a line, right after Enter:\r\n")
        process.type(b"\x1d")
        await self.ends_so(process, 0)
        self.assertNotIn(b"onnected", process.stdout)

    async def test_other_escape(self) -> None:
        """With another escape key, Ctrl-] is sent to the machine."""
        attachment = self.serve(EchoAttachment(b"$ "))
        process = self.start_on_terminal("--escape", "^a")
        await process.until(rb"Ctrl-A leaves\.\r\n\$ ")
        process.type(b"\x1d\x01")
        await self.ends_so(process, 0)
        self.assertEqual(attachment.received, b"\x1d")

    async def test_menu(self) -> None:
        """Menu commands at the start of a line are sent in order with the input."""
        attachment = self.serve(EchoAttachment(b"$ "))
        process = self.start_on_terminal()
        await process.until(rb"\$ ")
        process.type(b"~?")
        await process.until(
            rb"vm \(default\) at http\S+\r\nAt the start of a line, right after Enter:\r\n"
            rb"(.*\r\n)*  ~~   a ~\r\n\$ "
        )
        process.type(b"a~B\r~B~Sh~f~r~~\r")
        await process.until(rb"a~B\rh~\r")
        self.assertEqual(attachment.received, b"a~B\rh~\r")
        self.assertEqual(attachment.wishes, [Break(), Break(), Role.WRITER, Role.OBSERVER])
        process.type(b"~.")
        await self.ends_so(process, 0)
        self.assertEqual(attachment.detached_with, ["client closed"])

    async def test_other_machine(self) -> None:
        """The menu switches to another machine: one session ends, the next opens in the same terminal."""
        first, second = EchoAttachment(b"one$ \x1b[?1049h"), EchoAttachment(b"two$ ")
        self.serve(first)
        self.consoles.machines["default/web-1"] = lambda: second
        process = self.start_on_terminal()
        await process.until(rb"one\$ ")
        process.type(b"~L")
        await process.until(
            rb";1H   1  vm     Pending  \(this one\).*;1H   2  web-1  Pending.*;1H.*Switch to "
        )
        process.type(b"2\r")
        await process.until(rb"\x1b\[\?1049l\r\nConnected to web-1\..*\r\ntwo\$ ")
        process.type(b"ls\r")
        await process.until(rb"ls\r")
        process.type(b"\x1d")
        await self.ends_so(process, 0)
        self.assertEqual((first.received, second.received), (b"", b"ls\r"))
        self.assertEqual(first.detached_with, ["client closed"])

    async def test_other_machine_refused(self) -> None:
        """If the chosen machine has no console, the user reads why, and is back in the former role."""
        first, again = EchoAttachment(b"one$ "), EchoAttachment(b"one again$ ")
        self.serve(first)
        self.consoles.machines["default/web-1"] = Conflict("machine is powered off")
        for arguments, greeting in (((), rb"Connected to vm\..*\r\n"), (("--quiet",), b"")):
            process = self.start_on_terminal(*arguments)
            await process.until(rb"one\$ ")
            first.transport.write(
                encode_notice(f"this console has no writer; you are an observer {HINT}")
            )
            await process.until(rb"you are an observer")
            self.serve(again)
            process.type(b"~Lweb\r")
            await process.until(rb"machine is powered off\r\n" + greeting + rb"one again\$ ")
            self.assertTrue(again.transport.options.observe)
            process.type(b"\x1d")
            await self.ends_so(process, 0)
            self.serve(first)

    async def test_interrupted_reset(self) -> None:
        """A user who ends the program during a reset reads that the machine stays off, and the remedy."""
        serve, power = self.consoles.dispatch, "On"

        async def dispatch(request: Any) -> None:
            nonlocal power
            if request.path.decode() == REVIEWS:
                raise not_found()  # so that the program lets the server decide
            if not request.path.endswith(b"/machines/vm"):
                await serve(request)
                return
            if request.method == b"PATCH":
                power = json.loads(request.content.read())["spec"]["power"]
            machine = {"status": {"state": "Running"}, "spec": {"power": power}}
            respond_json(request, 200, machine)

        self.consoles.dispatch = dispatch  # type: ignore[method-assign]
        remedy = 'kubectl patch machine vm -n default --type=merge -p \'{"spec":{"power":"On"}}\''
        left = b"vm stays powered off; power it on:\r\n  %s\r\n" % remedy.encode()
        for key, code, line in (
            (b"\x03", -signal.SIGINT, left),
            (b"", -signal.SIGTERM, left),
            (b"\x1d", 0, b"Left before the console of vm was open; " + left),
        ):
            self.serve(EchoAttachment(b"$ "))
            process = self.start_on_terminal()
            await process.until(rb"\$ ")
            process.type(b"~P")
            await process.until(rb"f off, r reset")
            process.type(b"ry")
            await process.until(rb"being reset\. Ctrl-C ends this program; the machine may")
            if key:
                process.type(key)
            else:
                process.signal(signal.SIGTERM)
            await self.ends_so(process, code)
            self.assertTrue(process.stdout.endswith(b"\n" + line), process.stdout[-300:])
            self.assertEqual(power, "Off")
            power = "On"

    async def test_menu_of_a_read_only_session(self) -> None:
        """In a read-only session the menu sends no request and explains why."""
        attachment = self.serve(EchoAttachment(b"login: "))
        process = self.start_on_terminal("--read-only")
        await process.until(b"login: ")
        process.type(b"~f")
        await process.until(b"This session is read-only")
        process.type(b"~.")
        await self.ends_so(process, 0)
        self.assertEqual(attachment.wishes, [])

    async def test_31_no_escape(self) -> None:
        """With --escape none every key is the machine's."""
        attachment = self.serve(EchoAttachment(b"$ "))
        process = self.start_on_terminal("--escape", "none")
        await process.until(rb"Connected to vm\.\r\n\$ ")
        process.type(b"\r~.~?\x1d!")
        await process.until(b"!")
        self.assertEqual(attachment.received, b"\r~.~?\x1d!")
        attachment.transport.end(Ending("Completed"))
        await self.ends_so(process, 0)

    async def test_size(self) -> None:
        """The terminal's size is sent at the start and whenever it changes."""
        attachment = self.serve(EchoAttachment(b"$ "))
        process = self.start_on_terminal()
        await process.until(rb"\$ ")
        self.set_size(TerminalSize(132, 43))
        process.signal(signal.SIGWINCH)
        while len(attachment.sizes) < 2:
            await self._settle()
        # The terminal itself may signal as well, so the last one may come twice.
        told = [size for size, _ in groupby(attachment.sizes)]
        self.assertEqual(told, [TerminalSize(80, 24), TerminalSize(132, 43)])
        process.type(b"\x1d")
        await self.ends_so(process, 0)

    async def test_ended_from_the_other_side(self) -> None:
        """The reason is printed on a line of its own, after the terminal is restored."""
        attachment = self.serve(EchoAttachment(b"$ "))
        process = self.start_on_terminal()
        await process.until(rb"\$ ")
        attachment.transport.end(Ending(MACHINE_DELETED, "machine gone"))
        await self.ends_so(process, 1)
        self.assertIn(b"$ \r\nsession ended: MachineDeleted: machine gone\r\n", process.stdout)

    async def test_keys_before_an_approval(self) -> None:
        """
        The machine gets no key that was typed before another user approved; the greeting counts them.

        It gets those that are typed after that, while the console opens, except behind a command that
        needs the console. The user reads that the server does not answer.
        """
        serve, first, last = self.consoles.dispatch, Deferred[None](), Deferred[None]()
        opening, status, outage = [first, last], dict[str, Any](), False

        async def dispatch(request: Any) -> None:
            if b"/consolerequests" not in request.path:
                if b"/exec" in request.path:
                    await opening.pop(0)
                await serve(request)
            elif outage:
                raise ServiceUnavailable("busy")
            else:
                metadata = {"name": "vm-1", "creationTimestamp": timestamp(time.time() - 90)}
                respond_json(request, 200, {"metadata": metadata, "spec": {}, "status": status})

        self.consoles.dispatch = dispatch  # type: ignore[method-assign]
        cause = {"reason": APPROVAL_REQUIRED, "message": "a policy requires it"}
        refusal = Forbidden("no", details={"causes": [cause]})
        for command, sent in ((b"", b"ls\r"), (b"~L", b"")):
            opening[:], outage = [first := Deferred(), last := Deferred()], False
            status.clear()
            self.consoles.machines["default/vm"] = refusal
            process = self.start_on_terminal("--request", env={"TERM": "xterm"})
            await process.until(rb"connecting to vm")
            process.type(b"ab~f\r~fcd")
            await process.until(rb"this command waits until the console is open")
            first.callback(None)
            await process.until(rb'request "vm-1" waits for the approval of another user')
            process.type(b"touch\r")
            await process.until(
                rb'request "vm-1" waits for another user, \d min \d+ s; 15 keys will not'
            )
            outage = True
            await process.until(rb"busy; trying again\r\n")
            process.type(b"~s")
            await process.until(
                rb'not connected yet: request "vm-1" waits for another user, \d min \d+ s; no\s+answer\s+of\s+'
                rb"the\s+server\s+for\s+\d\s+s:\s+busy"
            )
            if command:
                process.type(command)
                await process.until(rb"no\s+further\s+key\s+is\s+sent\s+until\s+then")
            outage = False
            await process.until(rb"the server answers again\r\n")
            attachment = self.serve(EchoAttachment(b"$ "))
            status.update(approved=True, decidedBy="bob", expirationTime="soon")
            await process.until(rb'user "bob" approved request "vm-1", until soon\r\n')
            process.type(b"ls\r~s")
            await process.until(rb"(?s)until soon\r\n.*not connected yet\r\n")
            last.callback(None)
            await process.until(
                rb"%d keys typed before this session were discarded\r\nConnected to vm\..*\r\n\$ %s"
                % (15 + 3 * (not sent), sent)
            )
            self.assertEqual(attachment.received, sent)
            process.type(b"\x1d")
            await self.ends_so(process, 0)

    async def test_told_while_seconds_are_counted(self) -> None:
        """A message replaces the line with the seconds, also if that is drawn again at the same moment."""
        serve, opening = self.consoles.dispatch, Deferred[None]()

        async def dispatch(request: Any) -> None:
            await opening
            await serve(request)

        self.consoles.dispatch = dispatch  # type: ignore[method-assign]
        process = self.start_on_terminal(env={"TERM": "xterm"}, command=DRAWN_AGAIN)
        await process.until(rb"\x1b\[Kconnecting to vm [^\r]*, \d+ s")
        process.type(b"~L")
        await process.until(rb"this command works when the console is open")
        self.assertNotRegex(process.stdout, rb"\d s *this command")
        process.type(b"\x1d")
        await self.ends_so(process, 0)
        self.assertNotRegex(process.stdout, rb"\d s *Left")
        opening.callback(None)

    async def test_left_in_an_editor(self) -> None:
        """On leaving, the modes that the machine set on the terminal are reset."""
        self.serve(EchoAttachment(b"\x1b[?1049h\x1b[?25lvi"))
        process = self.start_on_terminal()
        await process.until(rb"vi")
        process.type(b"\x1d")
        await self.ends_so(process, 0)
        end = b"\x1b[?25h\x1b[?1049l\r\nDisconnected from vm.\r\n"
        self.assertTrue(process.stdout.endswith(end), process.stdout)

    async def test_script_at_an_editor(self) -> None:
        """Only the modes that were printed at the terminal are reset, and not those of earlier output."""
        self.serve(EchoAttachment(b"\x1b[?1049h\x1b[2;20r\x1b[?25lvi"))
        process = self.start_on_terminal("--expect", "vi")
        await self.ends_so(process, 0)
        self.assertEqual(_WAIT_LINE.sub(b"", process.stdout), b"")
        self.serve(EchoAttachment(b"\x1b[?1049h"))
        process = self.start_on_terminal("--send", "\x1b[?25l.", "--expect", ".")
        await self.ends_so(process, 0)
        self.assertEqual(_WAIT_LINE.sub(b"", process.stdout), b"\x1b[?25l.\x1b[?25h\r\n")

    async def test_refused(self) -> None:
        """A refused connection leaves the terminal untouched."""
        process = self.start_on_terminal("--quiet")  # or a slow server is named as well
        await self.ends_so(process, 1)
        self.assertEqual(process.stdout, b'machine "vm" not found in namespace "default"\r\n')

    async def test_signals(self) -> None:
        """The terminal is restored whichever signal ends the program."""
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            self.serve(EchoAttachment(b"$ "))
            process = self.start_on_terminal()
            await process.until(rb"\$ ")
            process.signal(number)
            await self.ends_so(process, -number)

    async def test_interrupted_while_connecting(self) -> None:
        """Ctrl-C ends a program that has no session yet, and so does the key that leaves."""
        waiting: list[Any] = []
        self.consoles.dispatch = lambda request: _never(waiting)  # type: ignore[method-assign]
        for key, code, line in (
            (b"\x03", -signal.SIGINT, b""),
            (b"\x1d", 0, b"Left before the console of vm was open.\r\n"),
        ):
            waiting.clear()
            process = self.start_on_terminal(env={"TERM": "xterm"})
            while not waiting:
                await self._settle()
            await process.until(
                rb"\r\x1b\[Kconnecting to vm at http\S+: waiting for the machine, \d+ s"
            )
            process.type(key)
            await self.ends_so(process, code)
            self.assertTrue(process.stdout.endswith(b"\r\x1b[K" + line), process.stdout[-80:])

    async def test_slow(self) -> None:
        """The line about a slow connection is erased before the greeting."""
        serve, late = self.consoles.dispatch, Deferred[None]()

        async def dispatch(request: Any) -> None:
            await late
            await serve(request)

        self.consoles.dispatch = dispatch  # type: ignore[method-assign]
        self.serve(EchoAttachment(b"$ "))
        process = self.start_on_terminal(env={"TERM": "xterm"})
        await process.until(b"connecting to vm")
        late.callback(None)
        await process.until(rb"\r\x1b\[KConnected to vm.*\r\n\$ ")
        process.type(b"\x1d")
        await self.ends_so(process, 0)


async def _never(waiting: list[Any]) -> None:
    deferred: Deferred[None] = Deferred()
    waiting.append(deferred)
    await deferred
