"""
Scripts with ``kubectl console --run``, ``--expect`` and ``--send``, through three processes.
"""

from __future__ import annotations

import re
import signal
import sys
import tarfile
from pathlib import Path

from tests.cli.console.test_program_process import AHEAD
from tests.flows.consoles import watch
from tests.flows.programs import Program, script, start
from tests.flows.test_three_programs import binding
from twisted_exec.api import kinds

from .test_logs import PROMPT, LogCase

CODE = """
import sys
from twisted_exec.cli.console import script
from twisted_exec.cli.console.main import main
script.PROBE_SECONDS = 600.0
sys.exit(main())
"""
"""The program; a busy machine's shell may answer late."""


class ScriptTests(LogCase):
    """A shell in a pseudo-terminal."""

    def console(self, *options: str, kubeconfig: str = "", code: str = CODE, **env: str) -> Program:
        argv = [sys.executable, "-c", code, "sh", *options]
        program = start(argv, env={"KUBECONFIG": kubeconfig or self.deployment.admin, **env})
        self.addCleanup(program.stop)
        return program

    async def result(self, *options: str, kubeconfig: str = "") -> tuple[int, bytes]:
        program = self.console(*options, kubeconfig=kubeconfig)
        code = await program.ended
        return code, program.stdout

    async def test_run(self) -> None:
        """The output is that of the command alone, and the exit code is the command's."""
        await self.say("before")
        code, out = await self.result("--run", "printf 'a\\nb'; exit 7")
        self.assertEqual((code, out), (7, b"a\nb"))
        code, out = await self.result("--run", "seq 1 20000")
        self.assertEqual((code, out), (0, b"".join(b"%d\n" % each for each in range(1, 20001))))

    async def test_viewers(self) -> None:
        """Other viewers, logs and screens have the lines that are typed, and the output."""
        screen = await watch(self.deployment.admin, "sh")
        begin = await screen.until(PROMPT)
        code, _ = await self.result("--run", "echo it''s; exit 3")
        self.assertEqual(code, 3)
        await screen.until(rb"(?s)_te='echo it.*\x1b\]28747;B.*its\r\n.*\x1b\]28747;E", start=begin)
        await screen.leave()
        for command in ("logs --plain", "screen", "logs"):
            argv = [script("twisted-exec"), *command.split(), "sh"]
            program = start(argv, env={"KUBECONFIG": self.deployment.admin})
            self.addCleanup(program.stop)
            self.assertEqual(await program.ended, 0)
            self.assertIn(b"_te='echo it", program.stdout, command)
            self.assertIn(b"its\n", program.stdout.replace(b"\r", b""), command)

    async def test_documented_pipe(self) -> None:
        """The example of the how-to page that packs files of a machine makes an archive that can be read."""
        page = Path(__file__).parents[3] / "docs" / "howto" / "scripts.rst"
        (line,) = re.findall(r"\$ kubectl console web-1 (--run .* > etc\.tgz)", page.read_text())
        self.assertIn(" /etc ", line)
        directory = Path(self.mktemp()).absolute()
        (directory / "etc").mkdir(parents=True)
        (directory / "etc" / "hostname").write_text("web-1")
        # The size of /etc says nothing, and the message of tar about the leading slash stays.
        line = line.replace("/etc", str(directory / "etc"))
        command = f'kubectl() {{ "$PYTHON" -c "$CODE" sh "$@"; }}; cd {directory}; kubectl {line}'
        env = {"KUBECONFIG": self.deployment.admin, "PYTHON": sys.executable, "CODE": CODE}
        program = start(["sh", "-c", command], env=env)
        self.addCleanup(program.stop)
        self.assertEqual(await program.ended, 0)
        with tarfile.open(directory / "etc.tgz") as archive:
            names = [Path(each).name for each in archive.getnames()]
        self.assertIn("hostname", names)

    async def test_two_runs(self) -> None:
        """A run types nothing into the command of another run."""
        first = self.console("--run", "echo started; cat")
        await first.until(b"started\n")
        second = self.console("--run", "echo two")
        self.assertEqual((await second.ended, second.stdout), (123, b""))
        self.assertIn(b"the command of an earlier --run has not ended", second.output)
        await self.result("--send", "\\x04")  # the end of cat's input
        self.assertEqual((await first.ended, first.stdout), (0, b"started\n"))

    async def test_dialogue(self) -> None:
        """Texts are typed and awaited in order; a text that does not come has an exit code."""
        steps = ("--send", "read -p 'name: ' x; echo hi-$x\\r", "--expect", "name: $")
        code, out = await self.result(*steps, "--send", "ada\\r", "--expect", "^hi-\\w+")
        self.assertEqual(code, 0)
        self.assertIn(b"hi-ada", out)

    async def test_timeout(self) -> None:
        """When the time of --timeout is over, the user reads which text has not come."""
        passed = Path(self.mktemp()).absolute()
        passed.touch()
        steps = ("--send", "echo wa''its\\r", "--expect", "waits", "--expect", "never")
        limit = ("--timeout", "100")
        program = self.console(*steps, *limit, code=AHEAD, PASSED=str(passed))
        await program.until(b"waits")
        passed.write_bytes(bytes(100))  # so many seconds
        program.transport.signalProcess(signal.SIGWINCH)  # type: ignore[union-attr]
        self.assertEqual(await program.ended, 124)
        self.assertIn(b'"never" was not printed', program.output)

    async def test_disk_full(self) -> None:
        """A script whose last output cannot be written fails."""
        for steps in (("--run", "id"), ("--send", "id\\r", "--expect", "uid=")):
            argv = [sys.executable, "-c", CODE, "sh", *steps]
            shell = ["sh", "-c", 'exec "$@" >/dev/full', "sh", *argv]
            program = start(shell, env={"KUBECONFIG": self.deployment.admin})
            self.addCleanup(program.stop)
            self.assertEqual(await program.ended, 125)
            self.assertIn(b"cannot write output: No space left on device", program.output)

    async def test_login_prompt(self) -> None:
        """Nothing is typed at a login prompt."""
        screen = await watch(self.deployment.admin, "sh")
        end = await screen.until(PROMPT)
        screen.type(b"printf 'vm lo''gin: '; read x; echo typed:$x.\n")
        end = await screen.until(rb"vm login: ", start=end)
        program = self.console("--run", "id")
        self.assertEqual(await program.ended, 122)
        self.assertIn(b"is at a login prompt", program.output)
        screen.type(b"z\n")
        await screen.until(rb"typed:z\.", start=end)
        await screen.leave()

    async def test_writer(self) -> None:
        """While another user is the writer, nothing is typed, unless the script takes over for a while."""
        await self.deployment.client.create(
            kinds.ROLEBINDINGS.resource, binding("ada", "edit"), "default"
        )
        ada = self.deployment.kubeconfig("ada", [])
        screen = await watch(self.deployment.admin, "sh")
        await screen.until(PROMPT)
        program = self.console("--run", "echo done", kubeconfig=ada)
        self.assertEqual(await program.ended, 123)
        self.assertIn(b"the writer of this console is admin", program.output)
        piped = self.console("--linger", "1", kubeconfig=ada)
        piped.type(b"echo lost\n")
        await piped.until(b"the writer of this console is admin; you are an observer \\(--force ")
        piped.transport.closeStdin()  # type: ignore[union-attr]
        self.assertEqual((await piped.ended, piped.stdout), (1, b""))
        self.assertTrue(
            piped.output.endswith(b"the input was not sent: the writer of this console is admin\n")
        )
        self.assertEqual(piped.output.count(b"\n"), 2)
        code, out = await self.result("--run", "echo done", "--force", kubeconfig=ada)
        self.assertEqual((code, out), (0, b"done\n"))
        await screen.until(b"you are the writer of this console again; ada has left")
        await screen.leave()

    async def test_no_machine(self) -> None:
        """A session that cannot be opened has an exit code of its own."""
        await self.deployment.client.delete(kinds.MACHINES.resource, "sh", "default")
        code, out = await self.result("--run", "true")
        self.assertEqual((code, out), (125, b""))
