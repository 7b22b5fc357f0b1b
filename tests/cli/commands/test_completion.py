"""
Tests for ``twisted-exec completion`` with real shells, kubectl and API servers.
"""

from __future__ import annotations

import io
import json
import os
import sys
from contextlib import redirect_stdout

from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from tests import needs
from tests.apiserver.chain import ChainTestCase
from tests.flows import kubectls, programs
from tests.tiers import PROGRAMS
from twisted_exec.cli.main import main

KUBECONFIG = """
contexts:
- {name: "arn:aws:eks:one"}
- {name: "arn:aws:eks:two"}
- {name: alpha}
"""

MODULES = {
    "twisted-exec": "main",
    "kubectl-console": "console.main",
    "kubectl_complete-console": "commands.completion",
}


class PrintTests(SynchronousTestCase):
    """Commands without a shell."""

    def printed(self, *arguments: str) -> list[str]:
        stdout = io.StringIO()
        with redirect_stdout(stdout):
            self.assertEqual(main(arguments), 0)
        return stdout.getvalue().splitlines()

    def test_scripts(self) -> None:
        """There is a script for each shell, which names both programs."""
        for shell in ("bash", "zsh", "fish"):
            script = "\n".join(self.printed("completion", shell))
            self.assertIn("kubectl-console", script)

    def test_bash_words(self) -> None:
        """For bash only the part of the word behind its last separator is printed."""
        line = "twisted-exec doctor --dialect=sph"
        self.assertEqual(
            self.printed("__complete", "--bash", str(len(line)), "sph", "--", line),
            ["spheric", "spheric-machines"],
        )
        quoted = "twisted-exec 'com"
        self.assertEqual(
            self.printed("__complete", "--bash", str(len(quoted)), "com", "--", quoted),
            ["completion"],
        )
        self.assertEqual(
            self.printed("__complete", "--bash", "18", "rest", "--", "twisted-exec  rest"),
            ["restore"],
        )


class ShellCase(TestCase):
    """A directory with our programs, and a kubeconfig."""

    def setUp(self) -> None:
        self.directory = os.path.abspath(self.mktemp())
        os.makedirs(self.directory)
        for name, module in MODULES.items():
            path = os.path.join(self.directory, name)
            with open(path, "w", encoding="ascii") as file:
                file.write(
                    f"#!{sys.executable}\nimport sys\n"
                    f"from twisted_exec.cli.{module} import main\nsys.exit(main())\n"
                )
            os.chmod(path, 0o755)
        kubeconfig = os.path.join(self.directory, "kubeconfig")
        with open(kubeconfig, "w", encoding="ascii") as file:
            file.write(KUBECONFIG)
        self.environment = {
            "PATH": f"{self.directory}:{os.environ['PATH']}",
            "KUBECONFIG": kubeconfig,
            "HOME": self.directory,
            "TERM": "dumb",
        }

    async def typed(self, shell: list[str], start: str) -> None:
        """Type lines into an interactive shell, and wait until it has completed them."""
        program = programs.terminal(shell, columns=400, PS1="$ ", **self.environment)
        self.addCleanup(program.stop, 9)
        program.type(f"{start}; echo re''ady\n".encode())
        await program.until(rb"ready\r?\n")
        for line, completed in (
            ("twisted-exec comp", "twisted-exec completion"),
            ("twisted-exec doctor --context=arn:aws:eks:o", "--context=arn:aws:eks:one"),
            ("twisted-exec doctor --context al", "--context alpha"),
            ("twisted-exec doctor --output=j", "--output=json"),
            (f"twisted-exec backup {self.directory}/kubeco", "/kubeconfig"),
            (f"twisted-exec pki user --kubeconfig={self.directory}/kubeco", "/kubeconfig"),
            ("kubectl-console --read", "kubectl-console --read-only"),
        ):
            begin = len(program.output)
            program.type(f"{line}\t".encode())
            await program.until(completed.encode() + rb"\b", start=begin)
            begin = len(program.output)
            program.type(b"\x15echo do''ne\n")
            await program.until(rb"done\r?\n", start=begin)


class BashTests(ShellCase):
    """bash."""

    starts = PROGRAMS

    async def test_bash(self) -> None:
        """An interactive bash completes commands, options, contexts and files."""
        shell = ["bash", "--norc", "--noprofile", "-i"]
        await self.typed(shell, "source <(twisted-exec completion bash)")

    async def test_kubectl(self) -> None:
        """
        Without bash-completion, kubectl's completion says once what is missing, and offers no files.

        With it, it stays as it is.
        """
        again = "__kubectl_init_completion 2>&1 || echo failed"
        call = f"source <(twisted-exec completion bash); {again}"
        kubectl = "__kubectl_init_completion() { echo original; }"
        for start, output, says in (
            (kubectl, b"failed\n", True),
            (f"{kubectl}; _get_comp_words_by_ref() {{ :; }}", b"original\n", False),
        ):
            shell = ["bash", "--norc", "-c", f"{start}; {call}; {again}"]
            bash = programs.start(shell, env=self.environment)
            self.assertEqual(await bash.ended, 0)
            self.assertTrue(bash.stdout.endswith(output * 2), bash.stdout)
            self.assertEqual(bash.stdout.count(b"the package bash-completion is missing"), says)
            self.assertLess(max(map(len, bash.stdout.splitlines())), 80, bash.stdout)


class ZshTests(ShellCase):
    """zsh."""

    starts = PROGRAMS
    skip = needs.zsh()

    async def test_zsh(self) -> None:
        """An interactive zsh completes commands, options, contexts and files."""
        start = "autoload -Uz compinit; compinit -u -D; source <(twisted-exec completion zsh)"
        await self.typed(["zsh", "-f", "-i"], start)


class FishTests(ShellCase):
    """fish."""

    starts = PROGRAMS
    skip = needs.fish()

    async def test_fish(self) -> None:
        """fish completes commands, options, contexts and files."""
        lines = (
            "doctor --context=ar",
            "comp",
            "doctor --output j",
            f"backup {self.directory}/kubeco",
        )
        asks = "; ".join(f"complete -C'twisted-exec {line}'" for line in lines)
        script = f"twisted-exec completion fish | source; {asks}; complete -C'kubectl-console --re'"
        fish = programs.start(["fish", "--no-config", "-c", script], env=self.environment)
        self.assertEqual(await fish.ended, 0)
        words = [line.partition("\t")[0] for line in fish.stdout.decode().splitlines()]
        for word in (
            "--context=arn:aws:eks:one",
            "completion",
            "json",
            f"{self.directory}/kubeconfig",
            "--read-only",
        ):
            self.assertIn(word, words)


class KubectlTests(ShellCase):
    """kubectl's protocol for plugins."""

    starts = PROGRAMS
    skip = needs.kubectl()

    async def test_kubectl(self) -> None:
        """kubectl completes the plugin's options and their values."""
        kubectl = kubectls.found()["kubectl"]
        for words, wanted in (
            (["--context", "al"], "alpha\n:4\n"),
            (["vm", "--read-on"], "--read-only\t"),
            (["--kubeconfig", ""], ":0\n"),
        ):
            words = ["__complete", "console", *words]
            code, out, _ = await kubectls.run(kubectl, *words, env=self.environment)
            self.assertEqual(code, 0)
            self.assertTrue(out.startswith(wanted), out)


class ServerTests(ChainTestCase):
    """Names from an API server, asked for by a process: each has one reactor."""

    starts = PROGRAMS

    async def words(self, *words: str) -> list[str]:
        """The candidates for ``kubectl console`` with these words."""
        run = "from twisted_exec.cli.commands.completion import main; raise SystemExit(main())"
        path = self.kubeconfig("user-admin")
        argv = [sys.executable, "-c", run, "--kubeconfig", path, *words]
        program = programs.start(argv)
        self.assertEqual(await program.ended, 0, program.output)
        self.assertEqual(program.output, program.stdout)
        return program.stdout.decode().splitlines()

    async def test_machines(self) -> None:
        """The machines of the namespace are candidates."""
        for name in ("vm-2", "vm-1", "other"):
            await self.make_machine(name)
        self.assertEqual(await self.words("vm"), ["vm-1", "vm-2", ":4"])
        self.assertEqual(await self.words("-n", "lab", ""), [":4"])

    async def test_namespaces(self) -> None:
        """The namespaces of the server are candidates."""
        self.assertIn("kube-system", await self.words("-n", "kube-"))

    async def test_hostile(self) -> None:
        """A name with other characters than names have is no candidate."""

        class Answer(Resource):
            isLeaf = True

            def render(self, request: Request) -> bytes:
                request.setHeader("content-type", "application/json")
                names = ("default", "\x1b]0;x\x07", "a b", "a\nb", "$(id)")
                items = [{"metadata": {"name": name}} for name in names]
                return json.dumps({"items": items, "metadata": {}}).encode()

        endpoint = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
        port = await endpoint.listen(Site(Answer()))
        self.addCleanup(port.stopListening)
        server = f"http://127.0.0.1:{port.getHost().port}"
        self.assertEqual(await self.words("--server", server, "-n", ""), ["default", ":4"])

    async def test_errors(self) -> None:
        """An error is silent: it would disturb the line that the user types."""
        self.assertEqual(await self.words("--token", "nix", "--server", "https://[", ""), [":4"])
        self.assertEqual(await self.words("--context", "nix", ""), [":4"])
