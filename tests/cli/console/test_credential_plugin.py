"""
Tests for :mod:`twisted_exec.cli.console.credential_plugin`: ``kubectl console`` with credential
plugins.
"""

from __future__ import annotations

import json
import signal
import termios
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests.cli.console.test_program_process import COMMAND, ConsoleProcess, TerminalCase, reactor
from tests.kube.plugins import V1, PluginScript
from tests.tiers import PROGRAMS
from twisted_exec.cli.console.credential_plugin import run_plugin_in_terminal
from twisted_exec.cli.console.session import TIMED_OUT, ConsoleSession
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, ExecPlugin
from twisted_exec.testing.console import EchoAttachment

ASKING = """
sys.stderr.write("Password: ")
sys.stderr.flush()
answer(token=sys.stdin.readline().strip())
"""
WAITING = """
os.rename(os.path.join(here, "runs"), os.path.join(here, "begun"))
time.sleep(600)
"""


class PluginCase(TerminalCase):
    """Runs the program with a kubeconfig whose user has a credential plugin."""

    def plugged(self, body: str, mode: str) -> None:
        self.script = PluginScript(Path(self.mktemp()), body)
        self.mode = mode

    def kubeconfig(self) -> str:
        """Write a kubeconfig for the server and that user, and return its path."""
        plugin = {"command": "./plugin", "apiVersion": V1, "interactiveMode": self.mode}
        config = {
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": self.config.server}}],
            "users": [{"name": "u", "user": {"exec": plugin}}],
        }
        path = self.script.directory / "kubeconfig"
        path.write_text(json.dumps(config))
        return str(path)

    def tokens(self) -> list[str]:
        return [head.getRawHeaders("authorization", [""])[0] for head in self.consoles.heads]


class AskPluginTests(TestCase):
    """Tests for :func:`run_plugin_in_terminal`."""

    async def test_both_are_interrupted(self) -> None:
        """Ctrl-C takes precedence over an error of the plugin: the session ends by SIGINT."""
        self.addCleanup(signal.signal, signal.SIGCHLD, signal.getsignal(signal.SIGCHLD))
        session = ConsoleSession(reactor, interactive=True)
        reactor.callFromThread(session.interrupted, signal.SIGINT)
        asking = run_plugin_in_terminal(
            ClientConfig("https://a", plugin=ExecPlugin("/nonexistent/plugin", V1)),
            reactor,
            session,
            interactive=False,
            timeout_seconds=None,
            then=lambda _: self.fail("there is nothing to go on with"),
        )
        asking.addErrback(lambda failure: session.failed(str(failure.value)))
        outcome = await session.finished
        self.assertEqual((outcome.signal, outcome.line), (signal.SIGINT, ""))


class PipeTests(PluginCase):
    """Standard input and output are pipes."""

    starts = PROGRAMS

    def failure(self) -> str:
        """Return the message about a plugin that ends with exit code 3."""
        return (
            f"the credential plugin {self.script.path} failed with exit code 3; run it by hand, or log in again: "
            f'it is the plugin of user "u" in {self.script.directory / "kubeconfig"} (context "x")'
        )

    async def run_to_its_end(self) -> ConsoleProcess:
        self.consoles.machines["default/vm"] = EchoAttachment
        process = self.start()
        process.type(b"typed")
        process.transport.closeStdin()
        return process

    async def test_token(self) -> None:
        """The plugin gets none of the input; what it says on standard error passes."""
        self.plugged("sys.stderr.write('hello\\n'); answer(token='t' + sys.stdin.read())", "Never")
        process = await self.run_to_its_end()
        await self.ends_with(process, 0, "hello")
        self.assertEqual((process.stdout, self.tokens()), (b"typed", ["Bearer t"]))

    async def test_asked_again(self) -> None:
        """After the server refuses a token, the plugin runs once more for a new token."""
        self.plugged("answer(token=f't{count}')", "IfAvailable")
        self.consoles.tokens = {"Bearer t2"}
        await self.ends_with(await self.run_to_its_end(), 0)
        self.assertEqual(self.tokens(), ["Bearer t1", "Bearer t2"])

    async def test_fails(self) -> None:
        """A failing plugin is one line that names it."""
        self.plugged("sys.exit(3)", "Never")
        told = self.failure()
        await self.ends_with(await self.run_to_its_end(), 1, told)

    async def test_no_terminal(self) -> None:
        """A plugin that needs a terminal fails without one, and the error says so."""
        self.plugged("", "Always")
        told = "needs a terminal as standard input, and there is none"
        process = await self.run_to_its_end()
        await self.ends_with(process, 1, f"the credential plugin {self.script.path} {told}")

    async def test_script(self) -> None:
        """Of a script, a failing plugin is an error of the session, and not of the command."""
        self.plugged("sys.exit(3)", "Never")
        told = self.failure()
        for words in (("--run", "id"), ("--expect", "x"), ("--send", "x")):
            await self.ends_with(self.start(*words), 125, told)

    async def test_fleet(self) -> None:
        """Of many machines, a failing plugin is the same error, each time: its end does not go unnoticed."""
        self.plugged("sys.exit(3)", "Never")
        told = self.failure()
        for words in (("--all",), ("--all", "--run", "id")):
            process = self.start(*words, command=f"import sys; del sys.argv[1]\n{COMMAND}")
            await self.ends_with(process, 1, told)

    async def test_timeout(self) -> None:
        """``--timeout`` also limits the plugin."""
        self.plugged("time.sleep(600)", "Never")
        for words in ((), ("--run", "id")):
            await self.ends_with(self.start("--timeout", "1", *words), 124, TIMED_OUT)

    async def test_signal(self) -> None:
        """A signal ends the plugin and the program."""
        self.plugged(WAITING, "Never")
        process = self.start()
        while not (self.script.directory / "begun").exists():
            await self._settle()
        process.signal(signal.SIGTERM)
        await self.ends_with(process, -signal.SIGTERM)
        self.assertEqual(self.consoles.heads, [])


class PersonTests(PluginCase):
    """A person at a terminal."""

    starts = PROGRAMS

    async def test_asks_the_person(self) -> None:
        """
        The plugin prompts before the terminal becomes raw; afterwards input goes to the machine.
        """
        self.consoles.machines["default/vm"] = EchoAttachment
        self.plugged(ASKING, "Always")
        process = self.start_on_terminal("--raw", "--kubeconfig", self.kubeconfig())
        await process.until(b"Password: ")
        self.assertTrue(termios.tcgetattr(self.near)[3] & termios.ICANON)
        process.type(b"secret\n")
        await process.until(b"leaves")
        self.assertEqual(self.tokens(), ["Bearer secret"])
        self.assertFalse(termios.tcgetattr(self.near)[3] & termios.ICANON)
        process.type(b"x")
        await process.until(rb"helps\.\r\nx")
        process.type(b"\x1d")
        await self.ends_so(process, 0)
        self.assertIs(self.script.runs()[0]["info"]["spec"]["interactive"], True)

    async def test_interrupted(self) -> None:
        """Ctrl-C at the plugin's prompt ends the program by SIGINT."""
        self.plugged(ASKING, "IfAvailable")
        process = self.start_on_terminal()
        await process.until(b"Password: ")
        process.type(b"\x03")
        await self.ends_so(process, -signal.SIGINT)
        self.assertEqual(self.consoles.heads, [])
