"""
Console logs, read through three processes by stock kubectls, which see each machine as a Pod.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from tests import needs, procfs
from twisted_exec.api import kinds
from twisted_exec.api.times import nanoseconds

from . import kubectls
from .consoles import watch
from .deployment import Deployment, gone, pause
from .programs import Program, start
from .test_three_programs import binding

MACHINES = kinds.MACHINES.resource
HOPS = ("api", "poollet", "runtime")
LOG = "/apis/compute.ironcore.dev/v1alpha1/namespaces/default/machines/sh/log"
PROMPT = rb"[#$] "
FLOOD_BYTES = 16 << 20
FLOOD = f"stty -echo; seq -f %015.0f 1 {FLOOD_BYTES // 16}; stty echo; echo E''ND\n".encode()


class LogCase(TestCase):
    """One pty machine whose log is read."""

    timeout = 180

    async def setUp(self) -> None:
        self.deployment = Deployment(self.mktemp())
        self.addCleanup(self.deployment.stop)
        await self.deployment.start()
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
    """Every installed kubectl."""

    async def test_32_log(self) -> None:
        """Every option selects its part of the log; ``--previous`` is refused."""
        before = time.time_ns()
        await self.say("one", "two", "three")
        after = time.time_ns()
        for name, kubectl in kubectls.found().items():

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
            self.assertIn('previous terminated container "console"', told, name)

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
        await follower.until(rb"first\r\n")
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
        self.assertNotIn(b"twisted-exec", follower.output)

    async def test_withdrawn(self) -> None:
        """
        Without its RoleBinding a follower ends within 30 s: the reason is on the user's
        screen, and every hop records one end.
        """
        deployment, bindings = self.deployment, kinds.ROLEBINDINGS.resource
        await deployment.client.create(bindings, binding("eve", "edit"), "default")
        await self.say("first")
        follower = self.follow(kubeconfig=deployment.kubeconfig("eve"))
        await follower.until(rb"first\r\n")
        await deployment.client.delete(bindings, "eve", "default")
        since = reactor.seconds()
        self.assertNotEqual(await follower.ended, 0)
        self.assertLess(reactor.seconds() - since, 30)
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
        self.assertEqual(len({end["bytes_to_user"] for end in ends}), 1)

    async def test_slow(self) -> None:
        """
        While a follower does not read, the machine continues and no hop buffers much; when it reads
        again, a notice gives the skipped bytes and output continues.
        """
        await self.say("first")
        follower = self.follow()
        await follower.until(rb"first\r\n")
        pids = {hop: getattr(self.deployment, hop).transport.pid for hop in HOPS}
        before = {hop: procfs.resident_bytes(pid) for hop, pid in pids.items()}
        assert follower.transport is not None
        follower.transport.pauseProducing()
        screen = await watch(self.deployment.admin, "sh")
        screen.type(FLOOD)
        await screen.leave()
        while "END\r\n" not in (await self.tail()):
            await pause()
        for hop, pid in pids.items():
            grown = procfs.resident_bytes(pid) - before[hop]
            self.assertLess(grown, 8 << 20, f"{hop} grew by {grown} bytes")
        follower.transport.resumeProducing()
        await follower.until(rb"\nEND\r\n")
        self.assertRegex(follower.output, rb"\[twisted-exec: \d+ bytes skipped\]\r\n")

    async def tail(self) -> str:
        _, out, told = await kubectls.run("kubectl", "logs", "sh", "--tail=2", env=self.env)
        return out or told


class StubbornTests(LogCase):
    """A shell that ignores signals."""

    async def test_deleted(self) -> None:
        """Deleting a machine whose shell ignores HUP and TERM ends it within ten seconds."""
        screen = await watch(self.deployment.admin, "sh")
        screen.type(b"trap '' HUP TERM INT; echo p$$id; while :; do sleep 1; done\n")
        end = await screen.until(rb"p\d+id\r\n")
        pid = int(screen.output[:end].rsplit(b"p", 1)[1].split(b"id", 1)[0])
        self.assertTrue(os.path.exists(f"/proc/{pid}"))
        since = reactor.seconds()
        await self.deployment.client.delete(MACHINES, "sh", "default")
        lost = await screen.ended
        self.assertEqual(lost.ending.reason, "MachineDeleted")
        await gone(self.deployment.client, MACHINES, "sh", "default")
        while os.path.exists(f"/proc/{pid}"):
            await pause()
        self.assertLess(reactor.seconds() - since, 10)
