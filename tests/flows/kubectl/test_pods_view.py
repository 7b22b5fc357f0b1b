"""
Machines as Pods, as old and new stock kubectls see them, through three processes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows import kubectls, shared
from tests.flows.consoles import watch
from tests.flows.deployment import POOL, pause
from tests.flows.programs import Program, resize, start, terminal
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object

MACHINES = kinds.MACHINES.resource
NO_COMMANDS = (
    'machine "sh": a serial console runs no commands: kubectl console sh --run COMMAND types'
)
ADDRESS = "127.0.0.1"
WAIT = "--timeout=600s"
"""Of ``kubectl wait``, which by default fails after 30 s."""


class PodsTestCase(TestCase):
    """A shell that is a Pod, and three kubectls of this machine."""

    skip = needs.kubectl()

    async def setUp(self) -> None:
        found = kubectls.found()
        self.kubectls = {name: found[name] for name in kubectls.some()}
        self.deployment = await shared.deployment(self)
        await self.deployment.create_machine("sh", "shell")
        self.env = self.environment(self.deployment.admin)

    def environment(self, kubeconfig: str) -> dict[str, str]:
        """Return the environment of a kubectl that keeps nothing between tests."""
        return {"KUBECONFIG": str(Path(kubeconfig).resolve()), "HOME": str(Path(self.mktemp()))}

    async def kubectl(
        self,
        name: str,
        *words: str,
        code: int = 0,
        stdin: bytes = b"",
        answer: bytes = b"",
        env: Any = None,
    ) -> str:
        """Run kubectl, check its exit code, and return all of its output."""
        ended, _, told = await kubectls.run(
            self.kubectls[name], *words, env=env or self.env, stdin=stdin, answer=answer
        )
        self.assertEqual(ended, code, (name, words, told))
        return told

    def in_terminal(self, name: str, *words: str) -> Program:
        program = terminal([self.kubectls[name], *words], **self.env)
        self.addCleanup(program.stop)
        return program

    async def set_power(self, power: str, state: str) -> None:
        """Set the machine's power and wait for the state."""
        await self.deployment.client.patch(MACHINES, "sh", {"spec": {"power": power}}, "default")
        await self.deployment.machine_in_state("sh", state)

    def audit(self) -> list[Object]:
        """Return the API server's audit records of sessions."""
        lines = Path(self.deployment.path("api.audit")).read_text().splitlines()
        return [each for each in map(json.loads, lines) if each["event"] != "request"]


class LookTests(PodsTestCase):
    """``kubectl get``, ``describe`` and ``wait``."""

    async def test_look(self) -> None:
        """Tables, wide tables, JSON, ``describe`` and ``wait`` present the machine as a Pod."""
        machine = await self.deployment.client.get(MACHINES, "sh", "default")
        for name in self.kubectls:
            table = await self.kubectl(name, "get", "pods")
            self.assertRegex(
                table,
                r"^NAME +READY +STATUS +RESTARTS +AGE\nsh +1/1 +Running +0 +\d+[sm]\S*\n$",
            )
            wide = await self.kubectl(name, "get", "po", "sh", "-o", "wide")
            self.assertRegex(
                wide, rf"AGE +IP +NODE +NOMINATED NODE .*\nsh .* <none> +{POOL} +<none>"
            )
            pod = json.loads(await self.kubectl(name, "get", "pod/sh", "-o", "json"))
            self.assertEqual(pod["metadata"]["uid"], machine["metadata"]["uid"], name)
            self.assertEqual(pod["spec"]["nodeName"], POOL)
            self.assertRegex(await self.kubectl(name, "get", "all"), r"sh +1/1")
            told = await self.kubectl(name, "describe", "pod", "sh")
            self.assertRegex(told, rf"Node: +{POOL}/{ADDRESS}")
            self.assertRegex(told, r"Controlled By: +Machine/sh")
            self.assertRegex(told, r"Started: +\w{3}, \d\d \w{3} 20\d\d ")
            for condition in ("condition=Ready", "jsonpath={.status.phase}=Running"):
                told = await self.kubectl(name, "wait", "pod", "sh", f"--for={condition}", WAIT)
                self.assertEqual(told, "pod/sh condition met\n")
            field = "--field-selector=spec.nodeName=elsewhere"
            self.assertIn("No resources found", await self.kubectl(name, "get", "pods", field))

    async def test_watch(self) -> None:
        """``get -w`` follows the power; a machine that is off is Completed and refuses consoles."""
        for name in kubectls.some():
            await self.kubectl(name, "wait", "pod", "sh", "--for=condition=Ready", WAIT)
            program = start([self.kubectls[name], "get", "pods", "-w"], env=self.env)
            self.addCleanup(program.stop)
            await program.until(rb"sh +1/1 +Running")
            await self.set_power("Off", "Shutdown")
            await program.until(rb"sh +0/1 +Completed")
            for words in (("attach", "-i", "sh"), ("exec", "-i", "sh", "--", "console")):
                told = await self.kubectl(name, *words, code=1)
                self.assertIn("completed pod; current phase is Succeeded", told)
            described = await self.kubectl(name, "describe", "pod", "sh")
            self.assertIn("set its spec.power to On", described)
            await self.set_power("On", "Running")
            await program.until(rb"Completed(?s:.*)sh +1/1 +Running")
            await program.stop()

    async def test_silent_pool(self) -> None:
        """Pods of a pool whose poollet has stopped are Unknown until it is back."""
        await self.deployment.poollet.stop()
        unknown = "--for=jsonpath={.status.phase}=Unknown"
        await self.kubectl("kubectl", "wait", "pod", "sh", unknown, WAIT)
        told = await self.kubectl("kubectl", "get", "pods")
        self.assertRegex(told, r"sh +0/1 +Unknown")
        described = await self.kubectl("kubectl", "describe", "pod", "sh")
        self.assertRegex(
            described, rf'Reason: +NodeLost\nMessage: +machine pool "{POOL}" is not ready'
        )
        await self.deployment.start_poollet()
        await self.kubectl("kubectl", "wait", "pod", "sh", "--for=condition=Ready", WAIT)


class RefusalTests(PodsTestCase):
    """Operations that machines do not support."""

    async def test_refusals(self) -> None:
        """Unsupported operations are refused in one line that names the alternative."""
        for name in self.kubectls:
            for words, told in (
                (("exec", "sh", "--", "ls"), NO_COMMANDS),
                (("exec", "-it", "sh", "--", "sh", "-c", "ls"), NO_COMMANDS),
                (("exec", "sh", "-c", "other", "--", "console"), 'container "other" is not valid'),
                (("cp", "sh:/etc/passwd", "passwd"), NO_COMMANDS),
                (("cp", __file__, "sh:/tmp/x"), NO_COMMANDS),
                (("debug", "sh", "--image=y"), NO_COMMANDS),
                (("port-forward", "sh", "0:80"), 'no port of pod "sh" can be forwarded'),
                (("delete", "pod", "sh"), 'read-only: delete machine "sh" in API group'),
                (("label", "pod", "sh", "a=b"), 'read-only: patch machine "sh" in API group'),
                (("run", "x", "--image=y"), "read-only: create machines in API group"),
            ):
                self.assertIn(told, await self.kubectl(name, *words, code=1), (name, words))
        await self.kubectl("kubectl", "get", "pod", "sh")

    async def test_rights(self) -> None:
        """Permissions on Pods follow those on machines, also in ``kubectl auth can-i``."""
        env = self.environment(self.deployment.kubeconfig("jane"))
        questions = (
            ("get", "pods"),
            ("create", "pods/exec"),
            ("create", "pods", "--subresource=exec"),
            ("create", "pods", "--subresource=attach"),
        )
        for name in kubectls.some():
            for words in questions:
                told = await self.kubectl(name, "auth", "can-i", *words, code=1, env=env)
                self.assertTrue(told.startswith("no"), told)
            told = await self.kubectl(name, "get", "pods", code=1, env=env)
            self.assertIn("this needs list machines in API group compute.ironcore.dev", told)
            for role in ("view", "edit"):
                binding = (f"jane-{role}", f"--clusterrole={role}", "--user=jane")
                await self.kubectl(name, "create", "rolebinding", *binding)
            await self.allowed(name, env)
            for words in questions:
                told = await self.kubectl(name, "auth", "can-i", *words, env=env)
                self.assertEqual(told, "yes\n", words)
            listed = await self.kubectl(name, "auth", "can-i", "--list", env=env)
            self.assertRegex(listed, r"pods/exec +\[\] +\[\] +\[create get\]")
            told = await self.kubectl(name, "auth", "can-i", "delete", "pods", code=1, env=env)
            self.assertIn("no - pods here are machines", told)
            for role in ("view", "edit"):
                await self.kubectl(name, "delete", "rolebinding", f"jane-{role}")

    async def allowed(self, name: str, env: dict[str, str]) -> None:
        """Wait until the new roles take effect."""
        while True:
            code, _, _ = await kubectls.run(
                self.kubectls[name], "auth", "can-i", "create", "machines/exec", env=env
            )
            if not code:
                return
            await pause()


class ConsoleTests(PodsTestCase):
    """``kubectl attach`` and ``exec``."""

    async def shows_size(self, program: Program, columns: int, rows: int) -> None:
        """Repeat ``stty size`` until it prints this size: sizes do not wait for earlier keys."""
        shown = b""
        while shown != b"%d %d\r\n" % (rows, columns):
            start = len(program.output)
            program.type(b"stty size\n")
            # The echo may come before the prompt, and the answer directly behind the prompt.
            shown = (await program.until(rb"\d+ \d+\r\n", start=start))[0]

    async def test_pipe(self) -> None:
        """Piped input is typed; its end ends the session once the machine is quiet."""
        cases = [
            (number, name, words)
            for number, name in enumerate(self.kubectls)
            for words in (("exec", "-i"), ("attach", "-i"))
        ]
        # Each case waits until its machine is quiet; they run at once, each on its own machine.
        await gatherResults(
            [Deferred.fromCoroutine(self.pipe(*case)) for case in cases], consumeErrors=True
        )

    async def pipe(self, number: int, name: str, words: tuple[str, ...]) -> None:
        machine = f"{words[0]}-{number}"
        await self.deployment.create_machine(machine, "shell")
        command = ("--", "console") if words[0] == "exec" else ()
        stdin, answer = b"echo $((6*7))=%d\n" % number, b"\n42=%d\r\n" % number
        await self.kubectl(name, *words, machine, *command, stdin=stdin, answer=answer)

    async def test_terminal(self) -> None:
        """Keys and sizes arrive, the exit code returns, and the audit log has every session."""
        opened = []
        for name in self.kubectls:
            for words in (("attach", "-it"), ("exec", "-it")):
                # Use a new machine each time: repeated exits of a shell delay its restart.
                machine = f"{words[0]}-{name.replace('.', '-')}"
                made = await self.deployment.create_machine(machine, "shell")
                command = ("--", "console") if words[0] == "exec" else ()
                program = self.in_terminal(name, *words, machine, *command)
                await self.shows_size(program, 80, 24)
                resize(program, 100, 30)
                await self.shows_size(program, 100, 30)
                program.type(b"exit 7\n")
                self.assertEqual(await program.ended, 7, (name, words, program.output))
                opened.append((machine, made["metadata"]["uid"]))
        self.assertEqual({(each["machine"], each["uid"]) for each in self.audit()}, set(opened))
        self.assertEqual(
            {(each["namespace"], each["user"], each["pool"]) for each in self.audit()},
            {("default", "admin", POOL)},
        )

    async def test_logs(self) -> None:
        """
        ``kubectl logs`` shows past and new output, and needs the permission for ``machines/log``.
        """
        screen = await watch(self.deployment.admin, "sh")
        await screen.ask(b"echo first$((40+2))\n", rb"first42\r\n")
        env = self.environment(self.deployment.kubeconfig("jane"))
        await self.kubectl(
            "kubectl", "create", "rolebinding", "j", "--clusterrole=view", "--user=jane"
        )
        for number, name in enumerate(self.kubectls):
            self.assertIn("first42\r\n", await self.kubectl(name, "logs", "sh"))
            words = ("logs", "sh", "--limit-bytes=5", "--timestamps", "--since=1h")
            self.assertEqual(len(await self.kubectl(name, *words)), 5)
            told = await self.kubectl(name, "logs", "sh", code=1, env=env)
            self.assertIn('cannot get resource "machines/log"', told)
            program = start([self.kubectls[name], "logs", "-f", "sh"], env=self.env)
            self.addCleanup(program.stop)
            await program.until(rb"first42\r\n")
            screen.type(b"echo more$((100+%d))\n" % number)
            await program.until(rb"more%d\r\n" % (100 + number))
            await program.stop()
        await screen.leave()

    async def test_company(self) -> None:
        """A Pod's console is the machine's console: both kinds of users see the same output."""
        screen = await watch(self.deployment.admin, "sh")
        program = self.in_terminal("kubectl", "attach", "-it", "sh")
        program.type(b"echo b$((40+3))b\n")
        await screen.until(rb"b43b")
        await program.until(rb"b43b")
        screen.type(b"echo c$((40+4))c\n")
        await program.until(rb"c44c")
        await program.stop(9)
        await screen.leave()

    async def test_deleted(self) -> None:
        """Deleting a machine ends its attachments with a message that names it."""
        for name in kubectls.some():
            await self.deployment.create_machine("gone", "shell")
            program = self.in_terminal(name, "attach", "-it", "gone")
            program.type(b"echo d$((40+5))d\n")
            await program.until(rb"d45d")
            await self.deployment.client.delete(MACHINES, "gone", "default")
            self.assertEqual(await program.ended, 1)
            self.assertIn(b'machine "gone" was deleted', program.output)
            while "gone" in await self.kubectl(name, "get", "pods"):
                await pause()
