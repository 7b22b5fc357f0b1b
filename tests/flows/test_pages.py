"""
Pages of the documentation whose commands start programs: every command, as a reader types it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import textwrap
from datetime import UTC, datetime, timedelta
from getpass import getuser
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests import needs, procfs
from tests.docs.commands import commands, missing, says
from tests.ports import reserved_port
from tests.tiers import PROGRAMS

from . import programs
from .deployment import pause

ROOT = Path(__file__).parents[2]
_READY = re.compile(r"ready when it logs\s+``(\S+ \S+ \S+)")
_NAME = re.compile(r"\bdemo-shell-[a-z0-9]{5}\b")
_AT_A_TERMINAL = re.compile(r"kubectl console \S+")


class PageCase(TestCase):
    """
    A reader with a home directory, who types one command after another into one shell.

    :cvar page: its path below ``docs``.
    """

    starts = PROGRAMS
    skip = needs.kubectl() or needs.qemu()
    page = ""

    def setUp(self) -> None:
        self.home = tempfile.mkdtemp(prefix="exec-")
        self.addCleanup(shutil.rmtree, self.home, True)
        os.symlink(ROOT, f"{self.home}/twisted-exec")
        self.text = (ROOT / "docs" / f"{self.page}.rst").read_text(encoding="utf-8")
        self.text = self.text.replace("/home/ada", self.home)
        self.env = {
            "HOME": self.home,
            "PATH": f"{os.path.dirname(programs.script('twistd'))}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "KUBECONFIG": "",
        }
        self.state = f"{self.home}/.shell"
        Path(self.state).write_text(f"set -a; cd {self.home}\n")
        self.running: list[programs.Program] = []
        self.addCleanup(self.stop)

    async def stop(self) -> None:
        """Stop the programs as with Ctrl-C in each terminal, the last one first."""
        while self.running:
            await self.running.pop().stop(signal.SIGINT)

    def start(self, line: str) -> programs.Program:
        """Start a command with the directory and the environment of the commands before it."""
        program = programs.start(["bash", "-c", f". {self.state}; {line}"], env=self.env)
        self.addCleanup(program.stop)
        return program

    async def shell(self, line: str) -> str:
        """Run a command to its end; ``cd``, variables and ``$?`` hold for the commands behind it."""
        keep = f"""{{ export -p; printf 'set -a; cd %q\\n(exit %s)\\n' "$PWD" $code; }} > {self.state}.new"""
        program = self.start(f"{line}\ncode=$?; {keep}; mv {self.state}.new {self.state}")
        await program.ended
        return program.output.decode()

    async def prints(self, line: str, documented: str) -> None:
        """Run a command, which prints what the page says."""
        if "get machines" in line:
            await self.shell("kubectl wait machines --all --for=condition=Ready --timeout=600s")
        visits = _AT_A_TERMINAL.fullmatch(line) and documented.startswith("Connected")
        printed = await (self.visit(line) if visits else self.shell(line))
        self.assert_printed(line, documented, printed)

    def assert_printed(self, line: str, documented: str, printed: str) -> None:
        # A slow connection draws lines, and erases them.
        printed = re.sub(r"[^\n]*\r\x1b\[K", "", printed)
        # The prompt of root differs.
        printed = re.sub(r"^# ", "$ ", printed, flags=re.MULTILINE)
        self.assertEqual(missing(documented, printed), [], f"{line}\n{printed}")

    def assert_said(self, documented: str, printed: str) -> None:
        """A message was printed, whose lines the page breaks."""
        self.assertTrue(says(documented, printed), f"{documented}\n{printed}")

    async def serve(self, line: str, ready: str) -> None:
        """Start a program that goes on, and wait for what it prints when it is ready."""
        self.running.append(program := self.start(f"exec {line}"))
        await program.until(re.escape(ready).encode())

    def terminal(self, line: str) -> programs.Program:
        """Start a command in a terminal."""
        argv = ["bash", "-c", f". {self.state}; exec {line}"]
        program = programs.terminal(argv, columns=118, rows=40, **self.env)
        self.addCleanup(program.stop)
        return program

    async def open(self, line: str) -> programs.Program:
        """Open a console in a terminal."""
        console = self.terminal(line)
        await console.until(rb"Connected to .*\r\n")
        return console

    async def visit(self, line: str) -> str:
        """Open a console in a terminal, and leave it."""
        console = await self.open(line)
        console.type(b"\x1d")
        await console.ended
        return console.output.decode()


class ThreeTerminalsTests(PageCase):
    """``docs/howto/three-terminals.rst``"""

    page = "howto/three-terminals"

    def setUp(self) -> None:
        super().setUp()
        for port in ("7443", "20250"):
            self.text = self.text.replace(port, str(reserved_port(self)))

    async def test_every_command(self) -> None:
        """Each command prints what the page says, and in the end nothing is left."""
        ready = _READY.findall(self.text)
        for line, documented in commands(self.text):
            if "twistd" in line:
                await self.serve(line, ready.pop(0))
                continue
            if "rm -r" in line:
                machines = procfs.machines_of(f"{self.home}/consoles/runtime-state")
                self.assertEqual(machines, [])
                await self.stop()
            await self.prints(line, documented)
        self.assertEqual(ready, [])
        self.assertFalse(os.path.exists(f"{self.home}/consoles"))


class StandaloneCase(PageCase):
    """A reader in a checkout, who has ``exec-standalone``."""

    def setUp(self) -> None:
        super().setUp()
        os.symlink(ROOT / "docs", f"{self.home}/docs")
        os.symlink(Path(programs.script("twistd")).parents[1], f"{self.home}/.venv")
        # The names that the server has given to objects of the page.
        self.names: dict[str, str] = {}

    async def standalone(self) -> None:
        """Start it at a port of the test's own."""
        port = str(reserved_port(self))
        self.text = self.text.replace("6443", port)
        options = f"--port {port} --no-keep-machines"
        await self.serve(f"twistd -n --pidfile= exec-standalone {options}", "Ready. In another")

    async def demo(self) -> None:
        """Start it, and use its machines as the administrator."""
        await self.standalone()
        await self.shell("export KUBECONFIG=$PWD/exec-state/admin.kubeconfig")
        await self.shell("kubectl wait machines --all --for=condition=Ready --timeout=600s")

    def renamed(self, text: str) -> str:
        """Return a text of the page with the names of its objects."""
        return _NAME.sub(lambda match: self.names[match[0]], text)

    def learn_names(self, documented: str, printed: str) -> None:
        """Take note of the names that the server has given to objects of the page."""
        if match := _NAME.search(documented):
            self.names.setdefault(match[0], _NAME.findall(printed)[0])

    async def at_terminal(self, line: str) -> programs.Program:
        """Start a program in a terminal."""
        argv = ["bash", "-c", f". {self.state}; exec env {line}"]
        program = programs.terminal(argv, columns=118, rows=40, **self.env)
        self.addCleanup(program.stop)
        return program

    async def until_says(self, program: programs.Program, documented: str, start: int = 0) -> None:
        """Wait for a message, wherever its lines break."""
        while not says(documented, printed := program.output[start:].decode(errors="replace")):
            self.assertIsNone(program.exit_code, f"{documented}\n{printed}")
            await pause()

    async def leave(self, console: programs.Program) -> None:
        console.type(b"\x1d")
        await console.ended

    async def ask(self, line: str, documented: str) -> programs.Program:
        """Ask for an approval at a terminal, and wait."""
        asking = await self.at_terminal(line)
        await self.until_says(asking, documented)
        self.learn_names(documented, asking.output.decode())
        return asking

    async def echo(self, program: programs.Program) -> None:
        """Type a command at the prompt, and read the answer."""
        start = len(program.output)
        program.type(b"echo $((40+2))\r")
        await program.until(rb"\n42\r\n", start=start)


class FirstConsoleTests(StandaloneCase):
    """``docs/tutorial/first-console.rst``"""

    page = "tutorial/first-console"

    async def test_every_command(self) -> None:
        """Each command prints what the page says, at the shell and in the consoles."""
        shell: programs.Program | None = None
        for line, documented in commands(self.text):
            if "exec-standalone" in line:
                await self.standalone()
                continue
            if line == "kubectl console demo-vm":
                printed = await self.talk_to_firmware(line)
                # The release of the firmware, and how far it has come, differ.
                absent = [
                    each for each in re.findall(r"^\S+", documented, re.M) if each not in printed
                ]
                self.assertEqual(absent, [], printed)
                continue
            if line == "kubectl console demo-shell":
                shell = await self.open(line)
                continue
            if shell is not None:
                printed = await self.type_to_shell(shell, line)
                shell = None if "$?" in line else shell
            elif line == "kubectl console mine":
                is_open = "Connected" in documented
                printed = await (self.delete_meanwhile if is_open else self.refused)(line)
            elif line.startswith("twisted-exec web"):
                await self.serve(line, "http://127.0.0.1:")
                await self.running.pop().stop(signal.SIGINT)
                continue
            else:
                await self.prints(line, documented)
                continue
            self.assert_printed(line, documented, printed)

    async def talk_to_firmware(self, line: str) -> str:
        """Type what the page types at the prompt of U-Boot; return the output."""
        console = await self.open(line)
        await console.until(rb"autoboot")
        for typed, answer in (
            (b"\r", rb"=> "),
            (b"version\r", rb"GNU ld"),
            (b"echo q$arch\r", b"qx86"),
        ):
            console.type(typed)
            await console.until(answer)
        console.type(b"\x1d")
        await console.ended
        return console.output.decode()

    async def type_to_shell(self, console: programs.Program, line: str) -> str:
        """Type a command into the console of the shell, or ask for the exit code of the client."""
        if "$?" in line:
            return f"{await console.ended}\n"
        start = len(console.output)
        console.type(f"{line}\r".encode())
        if line.startswith("exit"):
            await console.ended
        else:
            await console.until(rb"\r\n[#$] ", start=start)
        return console.output[start:].decode()

    async def refused(self, line: str) -> str:
        """Run a command in a terminal, which opens no console."""
        console = self.terminal(line)
        await console.ended
        return console.output.decode()

    async def delete_meanwhile(self, line: str) -> str:
        """Delete the machine while its console is open."""
        console = await self.open(line)
        await console.until(rb"[#$] ")
        await self.shell("kubectl delete machine mine")
        await console.ended
        return console.output.decode()


class ScriptsTests(StandaloneCase):
    """``docs/howto/scripts.rst``"""

    page = "howto/scripts"

    async def test_every_command(self) -> None:
        """Each command for the machines of ``exec-standalone`` prints what the page says."""
        await self.standalone()
        await self.shell("export KUBECONFIG=$PWD/exec-state/admin.kubeconfig")
        # A key that is typed while the machine boots changes what it prints.
        while (await self.shell("kubectl logs demo-vm")).count("No ethernet found") < 2:
            await pause(0.5)
        is_elsewhere = False
        for line, documented in commands(self.text.replace("\n   root\n", f"\n   {getuser()}\n")):
            # web-1 is a line that no reader has yet; the code of its command is not asked for.
            is_elsewhere = "web-1" in line or (is_elsewhere and line == "echo $?")
            if not is_elsewhere:
                await self.prints(line, documented)


class AlertsTests(StandaloneCase):
    """``docs/howto/alerts.rst``"""

    page = "howto/alerts"

    async def test_every_command(self) -> None:
        """Each command prints what the page says, once the runtime has found the pattern."""
        await self.standalone()
        await self.shell("export KUBECONFIG=$PWD/exec-state/admin.kubeconfig")
        for line, documented in commands(self.text):
            if line.startswith("kubectl get "):
                while missing(documented, await self.shell(line)):
                    await pause(0.5)
            else:
                await self.prints(line, documented)


class ShareTests(StandaloneCase):
    """``docs/howto/share-a-console.rst``"""

    page = "howto/share-a-console"

    async def test_every_command(self) -> None:
        """The commands of the administrator make two users, who may open the console."""
        await self.demo()
        for line, documented in commands(self.text):
            if "kubectl console" not in line:
                await self.prints(line, documented)
        for user in ("ada", "bob"):
            line = f"env KUBECONFIG={user}.kubeconfig kubectl console demo-shell"
            self.assertIn("Connected to demo-shell", await self.visit(line))


class PoliciesTests(StandaloneCase):
    """``docs/howto/console-policies.rst``"""

    page = "howto/console-policies"
    _ADA = re.compile(r"kubectl (?:console|exec|attach|create -f|label machine \S+ tier-$)")
    _BOB = re.compile(r"twisted-exec request|kubectl patch consolerequest")
    _REFUSED = re.compile(r"Error from server|forbidden:|twisted-exec request approve:")
    # The page describes these two, and does not show them.
    _IDLE = """kubectl apply -f - <<EOF
apiVersion: console.twisted-exec.dev/v1alpha1
kind: ConsolePolicy
metadata: {name: idle}
spec: {selector: {matchLabels: {tier: production}}, idleSeconds: 2, maxSeconds: 4}
EOF"""
    _MINE = """KUBECONFIG=bob.kubeconfig kubectl create -f - <<EOF
apiVersion: console.twisted-exec.dev/v1alpha1
kind: ConsoleRequest
metadata: {name: mine}
spec: {machine: demo-shell, reason: OPS-9, seconds: 600}
EOF"""

    async def test_every_command(self) -> None:
        """Each command prints what the page says, typed by the administrator, ada and bob."""
        await self.demo()
        self.text = self.closed_today(self.text)
        for line, documented in commands(self.text):
            line = self.renamed(line)
            user = "ada" if self._ADA.match(line) else "bob" if self._BOB.match(line) else ""
            line = f"KUBECONFIG={user}.kubeconfig {line}" if user else line
            if "kind: ConsolePolicy" in line:
                await self.shell("kubectl delete consolepolicies --all")
            if line.endswith(" approve mine"):
                await self.shell(self._MINE)
            if "this session ends" in documented:
                await self.be_ended(line, documented)
            elif "needs 2 people" in documented:
                await self.four_eyes(line, documented)
            elif documented.startswith("# echo"):
                kubectl = await self.at_terminal(line)
                await kubectl.until(rb"[#$] ")
                await self.echo(kubectl)
                await kubectl.stop(signal.SIGHUP)
            elif "--request" in line:
                asking = await self.ask(line, documented)
            elif documented.startswith("Connected"):
                await self.visit(f"env {line}")
            else:
                printed = await self.shell(line)
                code = await self.shell("echo $?")
                # Events have no order.
                events = documented.splitlines() if "get events" in line else [documented]
                for each in events:
                    self.assert_said(each, printed)
                is_refused = bool(self._REFUSED.match(documented))
                self.assertEqual(code, f"{is_refused:d}\n", f"{line}\n{printed}")
                self.learn_names(documented, printed)
            if "request approve demo-shell" in line:
                await asking.until(rb"Connected to .*\r\n")
                await self.leave(asking)

    @staticmethod
    def closed_today(text: str) -> str:
        """Return the page as it is on a day without hours in its policy."""
        day = (datetime.now(UTC) + timedelta(days=3)).strftime("%a")
        text = text.replace("days: [Mon, Tue, Wed, Thu, Fri]", f"days: [{day}]")
        return text.replace("hours begin on Mon", f"hours begin on {day}")

    async def be_ended(self, line: str, documented: str) -> None:
        """The policy ends a session; a user of stock kubectl types meanwhile."""
        await self.shell("kubectl delete consolepolicies --all")
        await self.shell(self._IDLE)
        console = await self.at_terminal(line)
        while console.exit_code is None and "attach" in line:
            console.type(b"\r")
            await pause()
        await console.ended
        for each in documented.splitlines():
            self.assert_said(each, console.output.decode())

    async def four_eyes(self, line: str, documented: str) -> None:
        """ada types alone, then with bob, then alone again."""
        _, alone, discarded = documented.splitlines()
        ada = await self.open(f"env {line}")
        await self.until_says(ada, alone)
        ada.type(b"x")
        await self.until_says(ada, discarded)
        bob = await self.at_terminal("KUBECONFIG=bob.kubeconfig kubectl attach -it demo-shell")
        await self.until_says(ada, "[twisted-exec: the machine gets input now]")
        await self.echo(ada)
        await bob.until(rb"\n42\r\n")
        start = len(ada.output)
        await bob.stop(signal.SIGHUP)
        await self.until_says(ada, alone, start)
        await self.leave(ada)


class RecordingsTests(StandaloneCase):
    """``docs/howto/recordings.rst``, but what needs a bucket, a node server or another player."""

    page = "howto/recordings"
    _ELSEWHERE = re.compile(r"asciinema|nodeserver|/srv/|describe|location|machine vm-1")
    _BOB = """server=$(kubectl config view --minify -o 'jsonpath={.clusters[0].cluster.server}')
twisted-exec pki user exec-state/pki --user bob --server $server --kubeconfig bob.kubeconfig
kubectl create rolebinding bob --clusterrole=admin --user=bob"""

    async def test_every_command(self) -> None:
        """Each command prints what the page says."""
        await self.demo()
        os.symlink("exec-state/pki", f"{self.home}/pki")
        await self.shell(f"cp pki/ca.crt ca.crt; {self._BOB}")
        self.text = re.sub(r"2026\S+Z 2026\S+Z", "1h 2999-01-01T00:00:00Z", self.text)
        policy = re.search(r"code-block:: yaml\n\n((?:   .*\n)+)", self.text)
        assert policy is not None
        await self.shell(f"kubectl apply -f - <<END\n{textwrap.dedent(policy[1])}END")
        for line, documented in commands(self.text):
            if self._ELSEWHERE.search(line):
                continue
            line = self.renamed(line)
            if line.endswith(" demo-vm --record"):
                await self.shell("kubectl delete consolepolicies --all")
            if " list " in line:
                await self.close()
            if " vm-1.cast --ca" in line:
                await self.shell("cp demo-shell.cast vm-1.cast")
            if "kubectl console" in line:
                await self.record(line, documented)
            elif "kubectl exec" in line:
                kubectl = await self.at_terminal(line)
                await kubectl.until(rb"(?:[#$]|=>) ")
                await kubectl.stop(signal.SIGHUP)
            else:
                is_refused = documented.startswith("Error")
                user = "KUBECONFIG=bob.kubeconfig " if is_refused else ""
                printed = await self.shell(f"{user}{line}")
                code = await self.shell("echo $?")
                if is_refused:
                    self.assert_said(documented, printed)
                else:
                    # Behind "#" are commands on the runtime's host.
                    documented = re.sub(r"^# (?s:.*)", "", documented, flags=re.MULTILINE)
                    self.assert_printed(line, documented, printed)
                self.assertEqual(code, f"{is_refused:d}\n", f"{line}\n{printed}")
                self.learn_names(documented, printed)

    async def record(self, line: str, documented: str) -> None:
        """Open a console, which is recorded, and type the command of the page if there is one."""
        console = await self.at_terminal(line)
        for each in documented.splitlines()[:2] or [
            "Connected to demo-vm.",
            "This console is recorded",
        ]:
            await self.until_says(console, each)
        if "hello recorded" in documented:
            console.type(b"echo hello recorded\r")
            await console.until(rb"\nhello recorded\r\n")
        await self.leave(console)

    async def close(self) -> None:
        """End the recording of the page's policy, which would end by itself a minute or two later."""
        name = f"recording {self.names['demo-shell-fz4ph']}"
        closed = "--for=jsonpath={.status.phase}=Closed --timeout=600s"
        end = """--type=merge -p '{"spec":{"ended":true}}'"""
        await self.shell(f"kubectl patch {name} {end}; kubectl wait {name} {closed}")


class TokensTests(StandaloneCase):
    """``docs/howto/tokens-for-programs.rst``"""

    page = "howto/tokens-for-programs"

    async def test_every_command(self) -> None:
        """Each command of a user succeeds, and the token opens the console."""
        await self.demo()
        for line, _ in commands(self.text):
            if "kubectl console" in line:
                await self.visit(line.replace("KUBECONFIG=", "env KUBECONFIG="))
            elif "exec-apiserver" not in line:
                printed = await self.shell(line)
                self.assertEqual(await self.shell("echo $?"), "0\n", f"{line}\n{printed}")


class ReadingTests(StandaloneCase):
    """Pages about output that is there: each command, but those that wait or want a second boot."""

    page = "howto/read-logs"
    _ELSEWHERE = re.compile(
        r"kubectl logs.* -f|--follow|--previous|--boot|--between|--grep|less -R|jq "
    )

    async def read(self) -> None:
        await self.demo()
        typed = 0
        for line, documented in commands(self.text):
            if self._ELSEWHERE.search(line) or "-o wide" in line:
                continue
            typed += 1
            printed = await self.shell(line)
            code = await self.shell("echo $?")
            self.assertEqual(code, "1\n" if documented == "no\n" else "0\n", f"{line}\n{printed}")
            if documented in ("yes\n", "no\n"):
                self.assert_printed(line, documented, printed)
        self.assertGreater(typed, 3)

    async def test_logs(self) -> None:
        """``docs/howto/read-logs.rst``"""
        await self.read()

    async def test_screens(self) -> None:
        """``docs/howto/see-screens.rst``"""
        self.text = (ROOT / "docs/howto/see-screens.rst").read_text(encoding="utf-8")
        await self.read()
