"""
Every kubectl, through a proxy of ours, to the streaming server of a real kubelet.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

import treq
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent

from tests import needs
from tests.flows import kubectls, programs
from tests.flows.kubectl.translated import ProxiedPods, Runtime, Served
from twisted_exec.streaming.http.site import Request
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
from twisted_exec.streaming.interfaces import Break, Role, TerminalSize
from twisted_exec.streaming.remotecommand.carriers import OVER_SPDY
from twisted_exec.streaming.remotecommand.client import connect
from twisted_exec.testing.console import RecordingUser

DATA = b"".join(b"%015d\n" % number for number in range(1 << 16))


class KubeletStreamsTests(TestCase):
    """It speaks SPDY, and WebSockets up to version 4; a URL of its own is good for one request."""

    timeout = 300
    skip = needs.kubelet_streams()

    async def setUp(self) -> None:
        self.kubectls = kubectls.found()
        home = self.mktemp()
        with open(home, "w"):
            self.env = {"HOME": home + ".d", "KUBECONFIG": home}
        self.server = programs.start([needs.kubelet_streams_program()])
        self.addCleanup(self.server.stop)
        found = await self.server.until(rb"127\.0\.0\.1:(\d+)\n")
        self.port = int(found.group(1))
        self.served = Served()
        self.addCleanup(self.served.stop)
        self.http = treq.client.HTTPClient(Agent(reactor))
        self.urls = 0
        self.pods = ProxiedPods(Runtime(self.port, self._url))
        self.url = f"http://127.0.0.1:{await self.served.serve(self.pods)}"

    def _url(self, request: Request) -> Deferred[bytes]:
        return Deferred.fromCoroutine(self._ask_for_url(request.args))

    async def _ask_for_url(self, args: dict[bytes, list[bytes]]) -> bytes:
        """Request a URL, as a kubelet does from its runtime."""
        self.urls += 1
        query: dict[Any, bytes] = {"cmd": b" ".join(args[b"command"])}
        query |= {name: args.get(name, [b""])[0] for name in (b"stdin", b"tty")}
        answer = await self.http.get(f"http://127.0.0.1:{self.port}/url?{urlencode(query)}")
        url = await treq.text_content(answer)
        told = re.fullmatch(r"http://127\.0\.0\.1:\d+(/exec/.+)", url)
        assert told is not None, url
        return told.group(1).encode()

    async def run_kubectl(self, name: str, *argv: str, stdin: bytes = b"") -> tuple[int, str, str]:
        """Exit code, standard output, everything printed."""
        self.urls = 0
        server = f"--server={self.url}"
        told = await kubectls.run(
            self.kubectls[name], server, "exec", *argv, env=self.env, stdin=stdin
        )
        self.assertEqual(self.urls, 1 if kubectls.carrier(name) == "SPDY/3.1" else 2, name)
        return told

    async def test_input(self) -> None:
        """A megabyte goes in, the same comes out, its end ends the session."""
        for name in self.kubectls:
            code, stdout, told = await self.run_kubectl(name, "-i", "p1", "--", "cat", stdin=DATA)
            self.assertEqual((code, stdout == DATA.decode()), (0, True), (name, told[-300:]))

    async def test_exit_code(self) -> None:
        """Output and errors apart, and the process's code."""
        for name in self.kubectls:
            code, stdout, told = await self.run_kubectl(name, "p1", "--", "ls", "/", "/nowhere")
            self.assertEqual(code, 2, (name, told))
            self.assertIn("etc", stdout)
            self.assertNotIn("nowhere", stdout)
            self.assertIn("No such file", told)
            self.assertIn("command terminated with exit code 2", told)

    async def test_much(self) -> None:
        """Three megabytes, and the end right behind them."""
        for name in self.kubectls:
            code, stdout, told = await self.run_kubectl(
                name, "p1", "--", "head", "-c", "3000000", "/dev/zero"
            )
            self.assertEqual((code, len(stdout)), (0, 3000000), (name, told[-300:]))

    async def test_no_such_command(self) -> None:
        """The failure has the server's message."""
        for name in self.kubectls:
            code, _, told = await self.run_kubectl(name, "p1", "--", "/no/such/command")
            self.assertEqual(code, 1, name)
            self.assertIn("/no/such/command: no such file or directory", told)

    async def test_terminal(self) -> None:
        """Keys and sizes."""
        for name in self.kubectls:
            argv = [self.kubectls[name], f"--server={self.url}", "exec", "-it", "p1", "--", "cat"]
            program = programs.terminal(argv, **self.env)
            self.addCleanup(program.stop)
            await program.until(rb"\[80x24\]")
            programs.resize(program, 100, 30)
            await program.until(rb"\[100x30\]")
            program.type(b"hello\n")
            await program.until(rb"hello")
            await program.stop(9)

    async def test_wishes(self) -> None:
        """
        A BREAK or a role is to it a size that it has already: it says that size once more, and
        goes on.
        """
        args = {b"command": [b"cat"], b"stdin": [b"true"], b"tty": [b"true"]}
        for protocol in ("v4.channel.k8s.io", OVER_SPDY):
            path, user = await self._ask_for_url(args), RecordingUser()
            client = await connect(
                TCP4ClientEndpoint(reactor, "127.0.0.1", self.port),
                UpgradeRequest(b"GET", path, b"127.0.0.1", []),
                user,
                clock=reactor,  # type: ignore[arg-type]
                timeout_seconds=20,
                protocols=(protocol,),
            )
            client.resize(TerminalSize(80, 24))
            await self.shows(user, b"[80x24]", 1)
            client.wish(Break())
            client.wish(Role.WRITER)
            await self.shows(user, b"[80x24]", 3)
            client.resize(TerminalSize(100, 30))
            await self.shows(user, b"[100x30]", 1)
            client.write(b"hello\n")
            await self.shows(user, b"hello", 1)
            self.assertEqual(user.detached_with, [])
            client.abort()

    async def shows(self, user: RecordingUser, text: bytes, times: int) -> None:
        """Wait for the output, as long as the test may run."""
        while user.received.count(text) < times:
            self.assertEqual(user.detached_with, [])
            await deferLater(reactor, 0.01)  # type: ignore[arg-type]
