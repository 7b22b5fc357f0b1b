"""
Console logs, read through three processes by stock kubectls, which see each machine as a Pod.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from twisted.trial.unittest import TestCase

from tests import needs, procfs, soak
from tests.flows import kubectls, shared
from tests.flows.consoles import watch
from tests.flows.deployment import Deployment, gone, pause
from tests.flows.programs import Program, script, start
from tests.flows.test_three_programs import binding
from tests.tiers import PROGRAMS
from twisted_exec.api import kinds
from twisted_exec.api.status import APIError
from twisted_exec.api.times import nanoseconds

MACHINES = kinds.MACHINES.resource
HOPS = ("api", "poollet", "runtime")
LOG = "/apis/compute.ironcore.dev/v1alpha1/namespaces/default/machines/sh/log"
PROMPT = rb"[#$] "
COMPARED_BYTES = 3 << 20
"""Of the newest output: programs of tests keep little more."""
FLOOD = b"stty -echo; seq -f %%015.0f 1 %d; stty echo; echo E''ND\n"
"""Of so many lines, each of 16 bytes."""

STEADY_LINES = 60 * 4096
STEADY = (
    b"stty -echo; for k in $(seq 0 59); do seq -f %015.0f $((k*4096)) $((k*4096+4095)); "
    b"sleep 0.06; done; stty echo; echo E''ND\n"
)
"""About 1 MB/s for four seconds."""


class LogCase(TestCase):
    """
    One pty machine whose log is read.

    :cvar ends_programs: the tests end programs, and get a deployment of their own.
    """

    starts = PROGRAMS
    exact = True
    ends_programs = False

    async def setUp(self) -> None:
        if self.ends_programs:
            self.deployment = Deployment(self.mktemp())
            self.addCleanup(self.deployment.stop)
            await self.deployment.start()
        else:
            self.deployment = await shared.deployment(self)
        await self.deployment.create_machine("sh", "shell")
        self.env = {"KUBECONFIG": self.deployment.admin}

    async def say(self, *words: str) -> None:
        """Make the machine print each word on a line of its own."""
        screen = await watch(self.deployment.admin, "sh")
        end = await screen.until(PROMPT)
        for word in words:
            # Split the word, so that its echo does not look like the output.
            screen.type(f"echo {word[0]}''{word[1:]}\n".encode())
            end = await screen.until(rb"%b\r\n" % word.encode(), start=end)
            end = await screen.until(PROMPT, start=end)
        await screen.leave()

    async def until_back(self) -> None:
        """Wait until the console opens again, which may be later than the machine's state says."""
        while True:
            try:
                return await (await watch(self.deployment.admin, "sh")).leave()
            except APIError:
                await pause()

    def follow(self, *options: str, kubeconfig: str = "") -> Program:
        """Start ``kubectl logs -f``."""
        argv = ["kubectl", "logs", "-f", "sh", *options]
        program = start(argv, env={"KUBECONFIG": kubeconfig or self.deployment.admin})
        self.addCleanup(program.stop)
        return program

    def audit(self, hop: str) -> list[dict[str, object]]:
        """Return a hop's audit records of logs."""
        lines = Path(self.deployment.path(f"{hop}.audit")).read_text().splitlines()
        records = [json.loads(line) for line in lines]
        return [record for record in records if record["subresource"] == "log"]

    async def power(self, power: str, state: str) -> None:
        spec = {"spec": {"power": power}}
        await self.deployment.client.patch(MACHINES, "sh", spec, "default")
        await self.deployment.machine_in_state("sh", state)


class KubectlTests(LogCase):
    """An old, a middle and a new kubectl."""

    async def test_32_log(self) -> None:
        """Every option selects its part of the log; there is no previous boot yet."""
        before = time.time_ns()
        await self.say("one", "two", "three")
        after = time.time_ns()
        found = kubectls.found()
        for name in kubectls.some():
            kubectl = found[name]

            async def logs(*options: str, name: str = name, kubectl: str = kubectl) -> str:
                code, out, told = await kubectls.run(kubectl, "logs", "sh", *options, env=self.env)
                self.assertEqual(code, 0, f"{name}: {told}")
                return out

            whole = await logs()
            for word in ("one", "two", "three"):
                self.assertIn(f"\r\n{word}\r\n", whole, name)
            # The log ends with a prompt, which is an incomplete line.
            last = await logs("--tail=2")
            self.assertTrue(last.startswith("three\r\n"), f"{name}: {last!r}")
            self.assertEqual(await logs("--limit-bytes=10"), whole[:10], name)
            self.assertEqual(await logs("--since=1h"), whole, name)
            self.assertEqual(await logs("--since-time=2100-01-01T00:00:00Z"), "", name)
            for line in (await logs("--timestamps", "--tail=2")).splitlines():
                told, _, _ = line.partition(" ")
                self.assertEqual(len(told), len("2026-11-20T05:00:00.123456789Z"), name)
                # Output within 0.01 s shares a timestamp, and within a line output within 1 s.
                self.assertLess(before - 10**9, nanoseconds(told), name)
                self.assertLess(nanoseconds(told), after, name)
            code, _, told = await kubectls.run(kubectl, "logs", "sh", "-p", env=self.env)
            self.assertEqual(code, 1, name)
            self.assertIn('the log of machine "sh" has no previous boot; it has only boot 1', told)

    async def test_raw(self) -> None:
        """
        ``machines/log`` serves the log under the machine's own name, and validates its options.
        """
        await self.say("one")
        code, out, told = await kubectls.run(
            "kubectl", "get", "--raw", f"{LOG}?tailLines=2", env=self.env
        )
        self.assertEqual((code, out.startswith("one\r\n")), (0, True), told)
        code, _, told = await kubectls.run(
            "kubectl", "get", "--raw", f"{LOG}?tailLines=-1", env=self.env
        )
        self.assertEqual(code, 1)
        self.assertIn("tailLines: Invalid value: -1: must be greater than or equal to 0", told)

    test_32_log.skip = test_raw.skip = needs.kubectl()  # type: ignore[attr-defined]


class FollowTests(LogCase):
    """``kubectl logs -f``."""

    skip = needs.kubectl()

    async def test_life_of_a_machine(self) -> None:
        """
        A follower sees new output and survives the end of the shell and power off; deleting the
        machine ends it with success.
        """
        follower = self.follow()
        await self.say("first")
        first = await follower.until(rb"first\r\n")
        screen = await watch(self.deployment.admin, "sh")
        screen.type(b"exit\n")
        await screen.ended
        await self.say("second")
        await follower.until(rb"second\r\n")
        await self.power("Off", "Shutdown")
        code, out, told = await kubectls.run("kubectl", "logs", "sh", env=self.env)
        self.assertEqual(code, 0, told)
        self.assertIn("second\r\n", out)
        await self.power("On", "Running")
        await self.say("third")
        await follower.until(rb"third\r\n")
        await self.deployment.client.delete(MACHINES, "sh", "default")
        self.assertEqual(await follower.ended, 0, follower.output)
        # A disk that does not answer at the start of the machine is named before that.
        self.assertNotIn(b"twisted-exec", follower.output[first.end() :])

    async def test_withdrawn(self) -> None:
        """
        Without its RoleBinding a follower ends: the reason is on the user's screen, and every hop records one end.
        """
        deployment, bindings = self.deployment, kinds.ROLEBINDINGS.resource
        await deployment.client.create(bindings, binding("eve", "edit"), "default")
        await self.say("first")
        follower = self.follow(kubeconfig=deployment.kubeconfig("eve"))
        await follower.until(rb"first\r\n")
        await deployment.client.delete(bindings, "eve", "default")
        self.assertNotEqual(await follower.ended, 0)
        self.assertRegex(
            follower.output,
            rb'\[twisted-exec: AuthorizationWithdrawn: .*"eve" cannot get resource "machines/log"',
        )
        await deployment.stop()
        for hop in HOPS:
            start, end = self.audit(hop)
            self.assertEqual((start["event"], end["event"]), ("start", "end"), hop)
            self.assertEqual((end["user"], start["session"]), ("eve", end["session"]), hop)
        self.assertEqual(self.audit("api")[1]["reason"], "AuthorizationWithdrawn")

    async def test_leaves(self) -> None:
        """When a follower leaves, every hop records one end, with the same session id."""
        await self.say("first")
        follower = self.follow()
        await follower.until(rb"first\r\n")
        await follower.stop()
        for hop in HOPS:
            while len(self.audit(hop)) < 2:
                await pause()
        ends = [self.audit(hop)[1] for hop in HOPS]
        self.assertEqual({end["reason"] for end in ends}, {"client closed"})
        self.assertEqual(len({end["session"] for end in ends}), 1)
        text, *framed = [end["bytes_to_user"] for end in ends]
        self.assertEqual(len(set(framed)), 1)
        self.assertLess(text, framed[0])  # the heads of frames count, too

    async def test_slow(self) -> None:
        """
        While a follower does not read, the machine continues, and no hop buffers much, which the large
        figure shows; when it reads again, it gets all output from the journal.
        """
        flood_lines = (soak.figure(self) << 20) // 16
        await self.say("first")
        follower = self.follow()
        await follower.until(rb"first\r\n")
        pids = {hop: getattr(self.deployment, hop).transport.pid for hop in HOPS}
        before = {hop: procfs.resident_bytes(pid) for hop, pid in pids.items()}
        assert follower.transport is not None
        follower.transport.pauseProducing()
        screen = await watch(self.deployment.admin, "sh")
        screen.type(FLOOD % flood_lines)
        await screen.leave()
        while "END\r\n" not in (await self.tail()):
            await pause(0.5)
        for hop, pid in pids.items() if soak.is_large() else ():
            grown = procfs.resident_bytes(pid) - before[hop]
            self.assertLess(grown, 8 << 20, f"{hop} grew by {grown} bytes")
        follower.transport.resumeProducing()
        await follower.until(rb"\nEND\r\n")
        _, out, _ = await kubectls.run("kubectl", "logs", "sh", env=self.env)
        got, whole = (each.partition(b"\nEND\r\n")[0] for each in (follower.output, out.encode()))
        self.assertTrue(got[-COMPARED_BYTES:] == whole[-COMPARED_BYTES:])
        if b"bytes skipped" not in whole:  # as in a journal whose disk was too slow
            newest = re.findall(rb"\n(\d{15})\r", got)
            first = flood_lines - len(newest) + 1
            expected = [b"%015d" % number for number in range(first, flood_lines + 1)]
            self.assertTrue(newest == expected)

    async def tail(self) -> str:
        _, out, told = await kubectls.run("kubectl", "logs", "sh", "--tail=2", env=self.env)
        return out or told


class LossTests(LogCase):
    """Programs that are killed with SIGKILL while a follower reads about 1 MB/s."""

    ends_programs = True
    skip = needs.kubectl()

    async def setUp(self) -> None:
        await super().setUp()
        self.out = Path(self.mktemp()).absolute()

    def follow_into_file(self, *command: str) -> Program:
        """Start a follower whose output is complete in a file."""
        argv = ["sh", "-c", 'exec "$@" >"$OUT"', "sh", *command]
        env = {"KUBECONFIG": self.deployment.admin, "OUT": str(self.out)}
        program = start(argv, env=env)
        self.addCleanup(program.stop)
        return program

    async def steady(self) -> None:
        """Let the machine print numbers; some have reached the file."""
        screen = await watch(self.deployment.admin, "sh")
        await screen.until(PROMPT)
        screen.type(STEADY)
        await screen.leave()
        await self.reaches(lambda text: len(text) > 1 << 20)

    async def reaches(self, condition: Callable[[bytes], bool]) -> None:
        while not condition(self.out.read_bytes() if self.out.exists() else b""):
            await pause()

    def check_numbers(self, complete: bool = True) -> None:
        """Every number came once, in order."""
        numbers = re.findall(rb"^(\d{15})\r$", self.out.read_bytes(), re.MULTILINE)
        expected = [b"%015d" % number for number in range(len(numbers))]
        wrong = next(
            (pair for pair in zip(numbers, expected, strict=True) if pair[0] != pair[1]), None
        )
        self.assertIsNone(wrong)
        if complete:
            self.assertEqual(len(numbers), STEADY_LINES)

    async def test_poollet(self) -> None:
        """A killed poollet costs a follower no byte, and the API server records one session."""
        follower = self.follow_into_file("kubectl", "logs", "-f", "sh")
        await self.steady()
        await self.deployment.poollet.stop(signal.SIGKILL)
        await self.deployment.start_poollet()
        await self.reaches(lambda text: b"\nEND\r\n" in text)
        self.check_numbers()
        await follower.stop()
        while len(self.audit("api")) < 2:
            await pause()
        start, end = self.audit("api")
        self.assertEqual((start["event"], end["event"]), ("start", "end"))
        # kubectl prints lines, so it has not printed the prompt.
        self.assertGreaterEqual(end["bytes_to_user"], self.out.stat().st_size)

    async def test_runtime(self) -> None:
        """
        A killed runtime loses its shell; the log continues with the next one, behind everything that
        the first one printed.
        """
        follower = self.follow_into_file("kubectl", "logs", "-f", "sh")
        await self.steady()
        await self.deployment.runtime.stop(signal.SIGKILL)
        await self.deployment.start_runtime()
        await self.until_back()
        await self.say("again")
        await self.reaches(lambda text: b"again\r\n" in text)
        self.check_numbers(complete=False)
        code, whole, told = await kubectls.run("kubectl", "logs", "sh", env=self.env)
        self.assertEqual(code, 0, told)
        self.assertTrue(whole.encode().startswith(self.out.read_bytes()))
        code, previous, told = await kubectls.run("kubectl", "logs", "sh", "-p", env=self.env)
        self.assertEqual(code, 0, told)
        self.assertIn("000000000000001\r\n", previous)
        self.assertNotIn("again", previous)
        self.assertIsNone(follower.exit_code)

    async def test_restarted(self) -> None:
        """Runtime and poollet that are stopped and started end no follower either."""
        follower = self.follow_into_file("kubectl", "logs", "-f", "sh")
        await self.steady()
        deployment = self.deployment
        await deployment.poollet.stop()
        await deployment.start_poollet()
        await self.reaches(lambda text: b"\nEND\r\n" in text)
        self.check_numbers()
        await deployment.runtime.stop()
        await deployment.start_runtime()
        await self.until_back()
        await self.say("again")
        await self.reaches(lambda text: b"again\r\n" in text)
        self.assertNotIn(b"twisted-exec:", self.out.read_bytes())
        self.assertIsNone(follower.exit_code)

    async def test_api_server(self) -> None:
        """``twisted-exec logs --follow`` continues when the API server is killed."""
        follower = self.follow_into_file(script("twisted-exec"), "logs", "-f", "sh")
        await self.steady()
        await self.deployment.api.stop(signal.SIGKILL)
        await self.deployment.start_api()
        await self.reaches(lambda text: b"\nEND\r\n" in text)
        self.check_numbers()
        self.assertIsNone(follower.exit_code)


class StubbornTests(LogCase):
    """A shell that ignores signals."""

    async def test_deleted(self) -> None:
        """Deleting a machine whose shell ignores HUP and TERM ends it."""
        screen = await watch(self.deployment.admin, "sh")
        screen.type(b"trap '' HUP TERM INT; echo p$$id; while :; do sleep 1; done\n")
        end = await screen.until(rb"p\d+id\r\n")
        pid = int(screen.output[:end].rsplit(b"p", 1)[1].split(b"id", 1)[0])
        self.assertTrue(os.path.exists(f"/proc/{pid}"))
        await self.deployment.client.delete(MACHINES, "sh", "default")
        lost = await screen.ended
        self.assertEqual(lost.ending.reason, "MachineDeleted")
        await gone(self.deployment.client, MACHINES, "sh", "default")
        while os.path.exists(f"/proc/{pid}"):
            await pause()


class DeletedTests(LogCase):
    """What a deleted machine printed."""

    ends_programs = True

    async def deleted(self) -> tuple[int, str]:
        """Run ``twisted-exec logs --deleted``; return its exit code, and all of its output."""
        code = "from twisted_exec.cli.main import main; raise SystemExit(main())"
        argv = [sys.executable, "-c", code, "logs", "sh", "--deleted"]
        program = start([*argv, "--plain"], env={"KUBECONFIG": self.deployment.admin})
        self.addCleanup(program.stop)
        ended = await program.ended
        return ended, program.output.decode()

    async def test_deleted(self) -> None:
        """It is read by the machine's name, also after a restart of the runtime."""
        code, told = await self.deleted()
        self.assertEqual(code, 1)
        self.assertIn('there is no console of a deleted machine "sh"', told)
        await self.say("first")
        await self.deployment.client.delete(MACHINES, "sh", "default")
        await gone(self.deployment.client, MACHINES, "sh", "default")
        for restarts in (False, True):
            if restarts:
                await self.deployment.runtime.stop()
                await self.deployment.start_runtime()
            code, text = await self.deleted()
            self.assertEqual(code, 0, text)
            self.assertIn("\nfirst\n", text)
