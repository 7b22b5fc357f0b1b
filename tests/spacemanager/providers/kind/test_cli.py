"""Tests for :mod:`twisted_exec.spacemanager.providers.kind.cli`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.contracts.space_world import pause
from tests.tiers import PROGRAMS
from twisted_exec.api.status import BadGateway, GatewayTimeout, ServiceUnavailable
from twisted_exec.spacemanager.providers.kind.cli import CompletedRun, KindCli, error_of

reactor: Any = _reactor


class KindCliTests(TestCase):
    """Tests for :class:`KindCli`, with one-line shell scripts as the program."""

    starts = PROGRAMS

    def setUp(self) -> None:
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()

    def cli(self, script: str, **environ: str) -> KindCli:
        """Return a KindCli whose program is this shell script."""
        program = self.directory / "kind"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        path = f"{self.directory}{os.pathsep}{os.environ['PATH']}"
        return KindCli(reactor, {"PATH": path, **environ})

    def run_(self, script: str, seconds: float = 600, **environ: str) -> Deferred[CompletedRun]:
        self.made = self.cli(script, **environ)
        running = self.made.run("get", "clusters", seconds=seconds)
        return Deferred.fromCoroutine(running)

    async def test_ran(self) -> None:
        """A run returns the exit code, stdout, and the error message from stderr."""
        ran = await self.run_('echo "$@"; echo "ERROR: no" >&2; exit 3')
        self.assertEqual(ran, CompletedRun(3, b"get clusters\n", "no"))

    async def test_environment(self) -> None:
        """SF 10: kind gets the environment that selects docker, but no KUBECONFIG."""
        ran = await self.run_(
            'echo "$KUBECONFIG|$KIND_EXPERIMENTAL_PROVIDER|$DOCKER_HOST"',
            KUBECONFIG="/home/me/.kube/config",
            KIND_EXPERIMENTAL_PROVIDER="podman",
            DOCKER_HOST="unix:///x",
        )
        self.assertEqual(ran.out, b"|podman|unix:///x\n")

    async def test_missing(self) -> None:
        """If kind is not on PATH, the run fails with 503 and a message that says so."""
        cli = KindCli(reactor, {"PATH": str(self.directory)})
        with self.assertRaises(ServiceUnavailable) as caught:
            await cli.run("get", "clusters", seconds=600)
        self.assertIn("the program kind is not on PATH", caught.exception.message)

    def test_no_log(self) -> None:
        """If the log of an independent run cannot be opened, the run fails with 503."""
        cli, missing = self.cli("true"), str(self.directory / "none" / "log")
        with self.assertRaises(ServiceUnavailable) as caught:
            cli.make(["create", "x"], missing, missing, 0, lambda: None)
        self.assertIn("cannot be started: No such file", caught.exception.message)

    async def until_ended(self, pid: int) -> None:
        """Wait until a process has ended."""
        while True:
            try:
                stat = Path(f"/proc/{pid}/stat").read_text()
            except FileNotFoundError:
                return
            if stat.rpartition(")")[2].split()[0] == "Z":
                return
            await pause(0.01)

    async def child(self) -> int:
        """Wait for the PID of the child that the program starts."""
        file = self.directory / "pid"
        while not file.exists() or not file.read_text().strip():
            await pause(0.01)
        return int(file.read_text())

    CHILD = "sh -c 'echo $$ > \"$0\"; exec sleep 1000' {}/pid & wait"

    async def test_cancelled(self) -> None:
        """Cancelling a run kills the program and its children."""
        running = self.run_(self.CHILD.format(self.directory))
        pid = await self.child()
        running.cancel()
        with self.assertRaises(CancelledError):
            await running
        self.assertEqual(self.made.running, set())
        await self.until_ended(pid)

    async def test_cancelled_at_once(self) -> None:
        """A run cancelled before it has its own process group is killed too."""
        running = self.run_("exec sleep 1000")
        (run,) = self.made.running
        pid = run.transport.pid
        running.cancel()
        with self.assertRaises(CancelledError):
            await running
        await self.until_ended(pid)

    async def test_too_slow(self) -> None:
        """A run that exceeds its time limit is killed and fails with 504."""
        running = self.run_("exec sleep 1000", 0.1)
        (run,) = self.made.running
        pid = run.transport.pid
        with self.assertRaises(GatewayTimeout) as caught:
            await running
        self.assertIn("kind get clusters did not end within 0.1 s", caught.exception.message)
        await self.until_ended(pid)

    async def test_closed(self) -> None:
        """close() ends all runs, whose Deferreds fail with 503."""
        running = self.run_(self.CHILD.format(self.directory))
        pid = await self.child()
        (run,) = self.made.running
        await self.made.close()
        self.assertIsNone(run.transport.pid, "closed while the process was there")
        with self.assertRaises(ServiceUnavailable):
            await running
        await self.until_ended(pid)

    async def test_endless(self) -> None:
        """Endless stdout fails with 502; of a long stderr only the end is kept."""
        with self.assertRaises(BadGateway):
            await self.run_("exec yes")
        ran = await self.run_('head -c 3000000 /dev/zero >&2; echo "ERROR: end" >&2')
        self.assertEqual(ran.errors, "end")

    async def test_at_once(self) -> None:
        """At most 4 runs are active at once; further runs wait."""
        cli = self.cli("sleep 0.05")
        calls = [Deferred.fromCoroutine(cli.run("get", "x", seconds=600)) for _ in range(10)]
        self.assertEqual(len(cli.running), 4)
        for call in calls:
            await call

    async def test_made(self) -> None:
        """A create run survives close(), and writes its output and exit code to files."""
        go = self.directory / "go"
        cli = self.cli(f'until [ -e {go} ]; do sleep 0.01; done; echo "$@"; echo so >&2; exit 7')
        ended: Deferred[None] = Deferred()
        files = [str(self.directory / name) for name in ("code", "log")]
        lock = os.open(self.directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        group = cli.make(["create", "x"], *files, lock, lambda: ended.callback(None))
        os.close(lock)
        self.assertGreater(group, 1)
        await cli.close()
        go.touch()
        await ended
        self.assertEqual([Path(file).read_text() for file in files], ["7\n", "create x\nso\n"])

    def test_made_and_over(self) -> None:
        """A run that has already ended has process group 0."""

        class Quick:
            pid = None

            def spawnProcess(self, *about: Any, **more: Any) -> Any:
                return self

        cli = KindCli(Quick(), {"PATH": os.environ["PATH"]}, "true")
        files = [str(self.directory / name) for name in ("code", "log")]
        self.assertEqual(cli.make(["create", "x"], *files, 0, lambda: None), 0)


class SaidTests(SynchronousTestCase):
    """Tests for :func:`error_of`."""

    def test_error(self) -> None:
        """The message starts after ERROR; progress lines and control characters are dropped."""
        told = (
            b"Creating cluster ...\n \xe2\x9c\x93 Ensuring\nERROR: failed: \x1b[31mwhy\n\nOutput: x"
        )
        self.assertEqual(error_of(told), "failed: [31mwhy Output: x")

    def test_else(self) -> None:
        """Without ERROR the output itself is used, as one line of at most 500 characters."""
        self.assertEqual(error_of(b"a\nb"), "a b")
        self.assertEqual(len(error_of(b"x" * 100000)), 500)
        self.assertEqual(len(error_of(b"ERROR: " + b"x" * 100000)), 500)
