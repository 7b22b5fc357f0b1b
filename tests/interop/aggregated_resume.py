"""
Consoles through a real kube-apiserver go on when programs behind it are killed or stopped.

No stock kubectl opens machines there, because they are no Pods.  So the ordinary sessions are those of
our client without ``resume``, over a WebSocket and over SPDY, which send what stock clients send.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.trial.unittest import TestCase

from tests import needs
from tests.flows import programs
from tests.flows.deployment import pause
from tests.flows.resuming import Typist
from tests.interop import chains
from tests.interop.aggregated_cluster import AggregatedCluster
from tests.interop.hosts import kubectl
from tests.interop.programs import answers
from twisted_exec.api.status import APIError
from twisted_exec.kube.console import ConsoleOptions, open_console
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.streaming.remotecommand.carriers import OVER_SPDY
from twisted_exec.wire.channel import V5

reactor: Any = _reactor

LINES = 3000
WORDS = 20


class Client:
    """
    A user of the machine's shell.

    :param end: returns how the session has ended; empty while it is open.
    :param leave: ends the session.
    """

    def __init__(
        self,
        name: str,
        type: Callable[[bytes], None],
        printed: Callable[[], bytes],
        end: Callable[[], str],
        leave: Callable[[], Awaitable[object]],
    ) -> None:
        self.name, self.type, self._printed, self.end = name, type, printed, end
        self.leave = leave
        self._start = 0

    @property
    def printed(self) -> bytes:
        """The output since the shell was ready."""
        return self._printed()[self._start :]

    async def ready(self) -> None:
        """Turn echo and prompt off; earlier output is shown again, so each waits for its own word."""
        self._start = len(self._printed())
        self.type(b"stty -echo; PS1=; echo re''ady-%b\n" % self.name.encode())
        await self.until(b"ready-%b\r\n" % self.name.encode())
        self._start = len(self._printed())

    async def until(self, expected: bytes) -> None:
        """Fires once the output has these bytes; fails if the session ends before."""
        while expected not in self.printed:
            if end := self.end():
                raise AssertionError(f"{self.name}: {end}; {self.printed[-500:]!r}")
            await pause()


class KilledTests(TestCase):
    """A machine with a shell, in a pool behind our API server, behind kube-apiserver."""

    skip = needs.aggregated()
    timeout = 240

    async def setUp(self) -> None:
        cluster = self.cluster = AggregatedCluster("resume")
        self.addCleanup(cluster.stop)
        cluster.start()
        self.runtime = chains.our_runtime(cluster.programs, cluster.make.revision, class_name="pty")
        chains.our_poollet(cluster, "local", self.runtime)
        chains.shell(cluster, "local")
        cluster.user("ada", [])
        words = ("create", "rolebinding", "ada", "--clusterrole=edit", "--user=ada")
        kubectl(cluster.kubeconfig, *words)
        self.kubeconfig = cluster.programs.path("ada.kubeconfig")
        while self.state() != "Running":
            await pause()

    def state(self) -> str:
        path = "jsonpath={.status.state}"
        return kubectl(self.cluster.kubeconfig, "get", "machine", "vm", "-o", path)

    async def ordinary(self, name: str, protocol: str) -> Client:
        """Open a session that its client cannot resume."""
        user, config = Typist(), load(self.kubeconfig)
        await open_console(
            config,
            "default",
            "vm",
            user,
            reactor,
            ConsoleOptions(protocols=[protocol], resume=False),
        )
        self.addCleanup(user.leave)

        def end() -> str:
            return f"{user.detached_with}, {user.ending}" if user.detached_with else ""

        return Client(name, user.type, lambda: user.printed, end, user.leave)

    def resumable(self) -> Client:
        """Start ``kubectl console``, without a terminal."""
        program = programs.start(["kubectl", "console", "vm"], env={"KUBECONFIG": self.kubeconfig})
        self.addCleanup(program.stop)

        def end() -> str:
            if program.exit_code is None:
                return ""
            return f"{program.exit_code}, {program.output[-500:].decode(errors='replace')}"

        return Client("console", program.type, lambda: program.stdout, end, program.stop)

    async def goes_on(self, client: Client, *programs: str, kill: bool = True) -> None:
        """Check that each byte arrives once in both directions, although programs are lost and started again."""
        await client.ready()
        # Output and keys are on their way in both directions when the program ends.
        client.type(
            b"i=0; while [ $i -lt %d ]; do echo line-$i; i=$((i+1)); done; " % LINES
            + b"while read w; do echo got-$w; [ $w = last ] && break; done; echo over\n"
        )
        await client.until(b"line-40\r\n")
        for word in range(WORDS):
            client.type(b"w%d\n" % word)
        for program in programs:
            self.cluster.programs.restart(program, kill=kill)
        client.type(b"last\n")
        await client.until(b"\nover\r\n")
        lines = [b"line-%d" % number for number in range(LINES)]
        lines += [b"got-w%d" % word for word in range(WORDS)] + [b"got-last", b"over"]
        expected = b"".join(line + b"\r\n" for line in lines)
        digests = [hashlib.sha256(each).hexdigest() for each in (client.printed, expected)]
        self.assertEqual(*digests, (client.name, client.printed[-200:]))

    @property
    def rejoins(self) -> int:
        """How many streams our API server has rejoined."""
        return self.cluster.programs.log(self.cluster.own_program).count("rejoins session")

    async def test_poollet(self) -> None:
        """Our API server rejoins ordinary sessions, and ``kubectl console`` resumes its own."""
        for name, protocol in (("websocket", V5), ("spdy", OVER_SPDY)):
            client = await self.ordinary(name, protocol)
            rejoins = self.rejoins
            await self.goes_on(client, "poollet-local")
            self.assertEqual(self.rejoins, rejoins + 1, name)
            await client.leave()
        rejoins = self.rejoins
        await self.goes_on(self.resumable(), "poollet-local")
        self.assertEqual(self.rejoins, rejoins)

    async def test_other_programs(self) -> None:
        """``kubectl console`` resumes its session when our API server or kube-apiserver is killed, or both."""
        client = self.resumable()
        ours, host = self.cluster.own_program, "kube-apiserver"
        for killed in ((ours,), (host,), (host, ours)):  # ours starts while the host starts
            await self.goes_on(client, *killed)

    async def ordinary_clients(self) -> list[Client]:
        """Open a session of each protocol that its client cannot resume."""
        return [
            await self.ordinary(name, protocol)
            for name, protocol in (("websocket", V5), ("spdy", OVER_SPDY))
        ]

    async def answers(self, client: Client, word: bytes) -> None:
        """Check both directions."""
        client.type(b"echo %b''%b\n" % (word[:2], word[2:]))
        await client.until(word + b"\r\n")

    async def ended(self, clients: Sequence[Client], reason: str) -> None:
        """Check how the sessions of clients end."""
        for client in clients:
            while not (end := client.end()):
                await pause()
            self.assertIn(reason, f"{client.name}: {end}")

    async def test_stopped(self) -> None:
        """When the poollet stops, all sessions go on; when our API server stops, ordinary ones end with the reason."""
        ordinary, ours = await self.ordinary_clients(), self.resumable()
        for client in ordinary:
            await client.ready()
        await self.goes_on(ours, "poollet-local", kill=False)
        for client in ordinary:
            await self.answers(client, b"poollet-stopped")
        await self.goes_on(ours, self.cluster.own_program, kill=False)
        await self.ended(ordinary, "exec-apiserver is restarting")

    async def test_killed_below_others(self) -> None:
        """
        When our API server or kube-apiserver is killed, ordinary sessions end without a reason; they show that the
        runtime is lost.
        """
        lost = "connection lost before the session's status, None"
        behind = "the connection behind this hop was lost"
        for killed, reason in (
            (self.cluster.own_program, lost),
            ("kube-apiserver", lost),
            ("runtime", behind),
        ):
            ordinary = await self.reopened()
            for client in ordinary:
                await client.ready()
            self.cluster.programs.restart(killed)
            await self.ended(ordinary, reason)

    async def reopened(self) -> list[Client]:
        """Open ordinary sessions as soon as kube-apiserver passes requests on again."""
        while True:
            try:
                return await self.ordinary_clients()
            except APIError:
                await pause()

    async def test_missing_role(self) -> None:
        """Our API server waits for its role, whose name is in its log, and needs no restart."""
        cluster, own = self.cluster, self.cluster.own_program
        binding = "exec-apiserver:extension-apiserver-authentication-reader"
        before = cluster.get("rolebinding", binding, "kube-system")
        kubectl(cluster.kubeconfig, "delete", "rolebinding", binding, "--namespace=kube-system")
        cluster.programs.restart(own)
        remedy = "bind its user to the role extension-apiserver-authentication-reader"
        while remedy not in cluster.programs.log(own):
            await pause()
        while not answers(f"{cluster.own_url}/healthz", cluster.pki.serving_ca):
            await pause()
        self.assertFalse(answers(f"{cluster.own_url}/readyz", cluster.pki.serving_ca))
        before["metadata"] = {"name": binding, "namespace": "kube-system"}
        cluster.apply(before)
        while not answers(f"{cluster.own_url}/readyz", cluster.pki.serving_ca):
            await pause()
        cluster.wait()  # kube-apiserver checks from time to time
        self.assertEqual(self.state(), "Running")
