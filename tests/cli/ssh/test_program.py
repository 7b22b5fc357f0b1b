"""
Tests for ``twisted_exec.cli.ssh.program``: stock ssh opens consoles.
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from typing import Any

from tests import needs
from tests.cli.console.test_credential_plugin import PluginCase
from tests.cli.console.test_program_process import ConsoleProcess
from tests.cli.console.test_program_resume import LONG, ResumeCase
from tests.cli.fleet.test_run import Shell
from tests.flows.programs import script
from twisted_exec.api.kinds.consolepolicies import APPROVAL_REQUIRED, REASON_REQUIRED
from twisted_exec.api.status import Forbidden
from twisted_exec.console.notices import HINT
from twisted_exec.ssh.host_keys import host_key
from twisted_exec.streaming.interfaces import Break, Ending, TerminalSize
from twisted_exec.testing.console import EchoAttachment, RecordingAttachment
from twisted_exec.wire.notices import encode_notice

from .support import SSHCase, reactor, resize

SIZE = TerminalSize(100, 30)


class CommandTests(SSHCase):
    """``ssh NAME.console run COMMAND``."""

    skip = needs.ssh()

    async def test_run(self) -> None:
        """The output is that of the command alone, and the exit code is the command's."""
        self.serve(Shell("vm"))
        process = self.ssh("vm.console", "run", "printf 'a\\nb'; exit 7")
        self.assertEqual((await process.ended, process.stdout), (7, b"a\nb"), process.stderr)
        self.assertEqual(process.stderr, b"")

    async def test_long_output(self) -> None:
        """All output arrives, also if it is more than ssh's window."""
        self.serve(Shell("vm"))
        process = self.ssh("vm.console", "run seq 1 500000")
        expected = b"".join(b"%d\n" % each for each in range(1, 500001))
        self.assertEqual(await process.ended, 0, process.stderr)
        self.assertEqual(process.stdout, expected)

    async def test_on_terminal(self) -> None:
        """With a terminal, lines end as a raw terminal needs it."""
        self.serve(Shell("vm"))
        process = self.ssh("-tt", "vm.console", "run", "printf 'a\\nb\\n'", size=SIZE)
        self.assertEqual(await self.ends_on_terminal(process), 0)
        self.assertTrue(process.stdout.startswith(b"a\r\nb\r\n"), process.stdout)

    async def test_other_commands(self) -> None:
        """Another command is refused, with the one that there is."""
        attachment = self.serve(RecordingAttachment())
        for words, message in (
            (("uname -a",), b'there is no command "uname"; to run a command in the shell of vm'),
            (("run",), b"run has no command: give one"),
            (("force",), b"force needs a terminal: ssh -t"),
            (("force ls",), b'there is no command "ls"'),
            (("run " + "x" * 100_000,), b"the command is too long"),
        ):
            process = self.ssh("vm.console", *words)
            # A console that is not taken over has no codes of a command.
            self.assertEqual(await process.ended, 1 if words == ("force",) else 125)
            self.assertIn(message, process.stderr)
        self.assertEqual(attachment.attachments, 0)

    async def test_refused(self) -> None:
        """The server's refusal is on standard error, and the exit code is that of a session that failed."""
        self.consoles.machines["default/vm"] = Forbidden("not you")
        process = self.ssh("vm.console", "run", "true")
        self.assertEqual(await process.ended, 125)
        self.assertIn(b"forbidden: not you", process.stderr)

    async def test_remedies(self) -> None:
        """The user of a command that cannot run reads what to do with ssh, not options of kubectl console."""
        other = b"\x1b]28747;%s0123abcd\x1b\\"
        text = f"the writer of this console is ada; you are an observer {HINT}"
        for shown, code, message in (
            (
                b"vm login: ",
                122,
                b'is at a login prompt ("vm login:"): log in first, in its console\n',
            ),
            (b"=> ", 122, b"boot a system first, in its console\n"),
            (b"Continue? [y/n] ", 122, b"answer it first, in its console\n"),
            (
                other % b"B",
                123,
                b"; Ctrl-C in its console ends it; at the prompt of a shell force run COMMAND",
            ),
            (encode_notice(text), 123, b"you are an observer (force run COMMAND takes over)\n"),
        ):
            self.serve(RecordingAttachment(shown))
            process = self.ssh("vm.console", "run", "true")
            self.assertEqual((await process.ended, process.stdout), (code, b""), process.stderr)
            self.assertIn(message, process.stderr)

    async def test_reason(self) -> None:
        """The reason comes from a variable."""
        self.serve(Shell("vm"))
        process = self.ssh("vm.console", "run", "true", EXEC_REASON="ticket 4711")
        self.assertEqual(await process.ended, 0, process.stderr)
        self.assertIn(b"reason=ticket%204711", self.consoles.queries[0])

    async def test_reason_required(self) -> None:
        """A refusal for a missing reason names the variable, unless a reason is not enough."""
        hint = b"use kubectl console --reason TICKET vm; by ssh: ssh -o SetEnv=EXEC_REASON=TICKET\n"
        for causes, is_enough in (
            ([REASON_REQUIRED], True),
            ([REASON_REQUIRED, APPROVAL_REQUIRED], False),
        ):
            details = {"causes": [{"reason": each, "message": ""} for each in causes]}
            text = "p requires a reason: use kubectl console --reason TICKET vm"
            self.consoles.machines["default/vm"] = Forbidden(text, details=details)
            process = self.ssh("vm.console", "run", "true")
            self.assertEqual(await process.ended, 125)
            self.assertIs(process.stderr.endswith(hint), is_enough, process.stderr)

    async def test_namespace(self) -> None:
        """The name may have a namespace."""
        self.serve(Shell("vm"), "prod/vm")
        process = self.ssh("vm.prod.console", "run", "echo $NAME")
        self.assertEqual((await process.ended, process.stdout), (0, b"vm\n"), process.stderr)

    async def test_two_sessions(self) -> None:
        """Sessions share a connection."""
        self.consoles.machines["default/vm"] = lambda: Shell("vm")
        # A path of a socket has at most 107 bytes.
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        options = ("ControlMaster=auto", f"ControlPath={directory}/%C", "ControlPersist=600")
        control = [word for each in options for word in ("-o", each)]
        for code in (3, 4):
            process = self.ssh(*control, "vm.console", "run", f"exit {code}")
            self.assertEqual(await process.exited, code, process.stderr)
        over = self.ssh(*control, "-O", "exit", "vm.console")
        self.assertEqual(await over.ended, 0)


class WatchTests(SSHCase):
    """A session without a terminal."""

    async def test_watches(self) -> None:
        """It is an observer, until the machine's session ends; what is typed is not sent, and that is said once."""
        attachment = self.serve(RecordingAttachment(b"login: "))
        process = self.ssh("vm.console")
        await process.until(b"login: ")
        process.type(b"root\n")
        process.type(b"root\n")
        process.transport.closeStdin()
        attachment.transport.write(b"booted\n")
        await process.until(b"booted\n")
        attachment.transport.end(Ending("Completed", "", 0))
        self.assertEqual(await process.ended, 0)
        self.assertEqual((attachment.received, attachment.input_ends), (b"", 0))
        self.assertTrue(attachment.transport.options.read_only)
        self.assertEqual(process.stderr.count(b"it only watches"), 1, process.stderr)
        self.assertIn(b"session ended: Completed\n", process.stderr)


class TerminalTests(SSHCase):
    """A session with a terminal."""

    def console(self, attachment: Any) -> Any:
        self.serve(attachment)
        return self.ssh("vm.console", size=SIZE)

    async def test_keys(self) -> None:
        """Keys reach the machine, those of kubectl console too, and its output the user."""
        attachment = EchoAttachment(b"$ ")
        process = self.console(attachment)
        await process.until(rb"Connected to vm\.")
        keys = bytes(each for each in range(256) if each not in b"~")
        process.type(keys)
        while len(attachment.received) < len(keys):
            await self._settle()
        self.assertEqual(attachment.received, keys)
        asked = attachment.transport.options
        self.assertEqual((asked.read_only, asked.tty), (False, True))

    async def test_size(self) -> None:
        """The machine gets the size of the window, and each new one."""
        attachment = EchoAttachment(b"$ ")
        process = self.console(attachment)
        await process.until(rb"Connected to vm\.")
        while not attachment.sizes:
            await self._settle()
        self.assertEqual(attachment.sizes, [SIZE])
        resize(self.near, TerminalSize(132, 43))
        process.signal(signal.SIGWINCH)
        while len(attachment.sizes) < 2:
            await self._settle()
        self.assertEqual(attachment.sizes[-1], TerminalSize(132, 43))

    async def test_break(self) -> None:
        """ssh's own escape sends BREAK, in the order of the keys."""
        attachment = EchoAttachment(b"$ ")
        process = self.console(attachment)
        await process.until(rb"Connected to vm\.")
        process.type(b"a\r~Bb")
        await process.until(rb"BREAK sent")
        while attachment.received != b"a\rb":
            await self._settle()
        self.assertEqual(attachment.wishes, [Break()])

    async def test_take_over(self) -> None:
        """An observer reads how to take over with ssh, and that does so."""
        attachment = EchoAttachment(b"$ ")
        process = self.console(attachment)
        await process.until(rb"Connected to vm\.")
        text = "the writer of this console is ada; you are an observer"
        attachment.transport.write(encode_notice(f"{text} {HINT}"))
        # It is broken in this window.
        await process.until(rb"you are an observer \(ssh -t with\s+the\s+command\s+force")
        process.type(b"\r~.")
        self.assertEqual(await self.ends_on_terminal(process), 255)
        again = self.ssh("-t", "vm.console", "force", size=SIZE)
        await again.until(rb"Connected to vm\.")
        asked = attachment.transport.options
        self.assertEqual((asked.force, asked.read_only), (True, False))

    async def test_leave(self) -> None:
        """ssh's own escape leaves: the server hears of it at once."""
        attachment = EchoAttachment(b"$ ")
        process = self.console(attachment)
        await process.until(rb"Connected to vm\.")
        process.type(b"\r~.")
        self.assertEqual(await self.ends_on_terminal(process), 255)
        while not attachment.detached_with:
            await self._settle()

    async def test_ending(self) -> None:
        """The user reads why the session ended, and ssh has the exit code."""
        attachment = EchoAttachment(b"$ ")
        process = self.console(attachment)
        await process.until(rb"Connected to vm\.")
        attachment.transport.write(b"half a line")
        attachment.transport.end(Ending("Completed", "/bin/sh exited with code 7", 7))
        self.assertEqual(await self.ends_on_terminal(process), 7)
        self.assertIn(
            b"half a line\r\nsession ended: Completed: /bin/sh exited with code 7\r\n",
            process.stdout,
        )

    async def test_unknown_machine(self) -> None:
        """The user reads what kubectl console says."""
        self.serve(RecordingAttachment(), "default/other")
        process = self.ssh("vm.console", size=SIZE)
        self.assertEqual(await self.ends_on_terminal(process), 1)
        self.assertIn(b'"vm" not found', process.stdout)


class RefusedTests(SSHCase):
    """What a console does not offer."""

    async def test_sentences(self) -> None:
        """Forwarding and variables are refused with a sentence, and the session goes on."""
        self.serve(Shell("vm"))
        process = self.ssh(
            "-A", "-o", "SendEnv=SECRET LC_ALL", "vm.console", "run", "true",
            SECRET="x", LC_ALL="C", SSH_AUTH_SOCK="/nonexistent",
        )  # fmt: skip
        self.assertEqual(await process.ended, 0, process.stderr)
        lines = process.stderr.decode().splitlines()
        self.assertEqual(
            lines, ['the variable "SECRET" is refused: there are EXEC_REASON, LANG, TERM']
        )

    async def test_subsystem(self) -> None:
        """A subsystem is refused with a sentence."""
        process = self.ssh("-s", "vm.console", "sftp")
        self.assertEqual(await process.ended, 1)
        self.assertIn(b'there is no subsystem "sftp"', process.stderr)

    async def test_forwarded_port(self) -> None:
        """A forwarded connection is refused with a sentence."""
        process = self.ssh("-W", "10.0.0.1:22", "vm.console")
        self.assertEqual(await process.ended, 255)
        self.assertIn(b"forwarding of ports is refused", process.stderr)


class ResumeTests(SSHCase, ResumeCase):
    """A lost connection to the API server."""

    async def test_resumes(self) -> None:
        """The session goes on, and the user reads about it."""
        self.console.print(b"$ ")
        process = self.ssh("vm.console", size=SIZE)
        await process.until(rb"\$ ")
        self.lose(*LONG)
        await process.until(rb"connection lost\r\n")
        process.type(b"ls\r")
        await process.until(rb"reconnected after \d+\.\d s")
        await self.until_typed(b"ls\r")
        self.console.print(b"bin\r\n")
        await process.until(rb"bin\r\n")


class PluginTests(SSHCase, PluginCase):
    """A kubeconfig with a credential plugin."""

    async def test_input(self) -> None:
        """The plugin gets none of what ssh sends, and prints nothing into it."""
        self.plugged("answer(token=f'read{sys.stdin.read()}')", "IfAvailable")
        self.serve(Shell("vm"))
        process = self.ssh("vm.console", "run", "echo hi")
        self.assertEqual((await process.ended, process.stdout), (0, b"hi\n"), process.stderr)
        self.assertEqual(set(self.tokens()), {"Bearer read"})

    async def test_early_keys(self) -> None:
        """Keys that are typed while the plugin runs are for the machine."""
        go = "os.path.join(here, 'go')"
        waiting = f"while not os.path.exists({go}): time.sleep(0.01)"
        self.plugged(f"{waiting}\nanswer(token='x')", "IfAvailable")
        attachment = self.serve(EchoAttachment())
        process = self.ssh("vm.console", size=SIZE)
        while not self.script.runs():
            await self._settle()
        process.type(b"early\r")
        (self.script.directory / "go").write_bytes(b"")
        while attachment.received != b"early\r":
            await self._settle()

    async def test_asks(self) -> None:
        """A plugin that must ask the user fails with a sentence."""
        self.plugged("answer(token='x')", "Always")
        process = self.ssh("vm.console", "run", "true")
        self.assertEqual(await process.ended, 125)
        self.assertIn(b"needs a terminal as standard input, and there is none", process.stderr)


class OtherTests(SSHCase):
    """The program outside of a session."""

    def proxy(self, **more: Any) -> ConsoleProcess:
        """Start the program without ssh."""
        process = ConsoleProcess()
        command = [script("twisted-exec"), "ssh", "proxy", "vm.console"]
        environment = {**self.environment, "KUBECONFIG": self.kubeconfig()}
        reactor.spawnProcess(process, command[0], command, env=environment, **more)
        self.addCleanup(self._kill, process)
        return process

    async def test_terminal(self) -> None:
        """A user who starts the program by hand reads what it is for."""
        process = self.proxy(usePTY=True)
        self.assertEqual(await process.ended, 1)
        self.assertIn(b"kubectl console --ssh-config", process.stdout)

    async def test_ends(self) -> None:
        """The program ends with ssh, however that closes its pipe."""
        for ends in (
            (lambda process: process.transport.closeStdin(),),
            (lambda process: process.signal(signal.SIGHUP),),
            (
                lambda process: process.transport.closeStdout(),
                lambda process: process.signal(signal.SIGHUP),
            ),
        ):
            process = self.proxy()
            await process.until(b"SSH-2.0-")
            for end in ends:
                end(process)
            self.assertEqual(await process.ended, 0)

    async def test_no_machine(self) -> None:
        """A host name that names no machine is refused before a session."""
        process = self.ssh("vm_1.console")
        self.assertEqual(await process.ended, 255)
        self.assertIn(b'"vm_1.console" names no machine', process.stderr)

    async def test_wrong_host_key(self) -> None:
        """ssh refuses another host key than the user's."""
        config = self.write_config()
        known_hosts = host_key(str(self.state / "foreign")).known_hosts
        text = config.read_text()
        path = next(each for each in text.splitlines() if "UserKnownHostsFile" in each)
        config.write_text(text.replace(path, f'    UserKnownHostsFile "{known_hosts}"'))
        process = self.ssh("vm.console", "run", "true", config=config)
        self.assertEqual(await process.ended, 255)
        self.assertIn(b"Host key verification failed", process.stderr)
