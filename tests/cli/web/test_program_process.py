"""``kubectl console --web`` as a process, from the URL to Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from tests.cli.console.test_program_process import COMMAND, ConsoleProcess, ProcessCase, reactor
from tests.tiers import PROGRAMS
from twisted_exec.kube.console import ConsoleOptions, open_console
from twisted_exec.kube.kubeconfig.client_config import ClientConfig
from twisted_exec.kube.transport import HTTPTransport, Request
from twisted_exec.testing.console import EchoAttachment, RecordingUser

BROWSER = """#!{python}
import json, socket, sys, urllib.request
with socket.create_connection(("127.0.0.1", {port})) as report:
    page = urllib.request.urlopen(sys.argv[1]).read().decode()
    report.sendall(json.dumps([sys.argv, page]).encode())
"""
PATIENT = f"""
from twisted_exec.cli.web import login, program
program.VALID_SECONDS = login.VALID_SECONDS = 600.0
{COMMAND}
"""
"""The program; a slow browser needs more than half a minute for a URL."""
URL = re.compile(r"http://127\.0\.0\.1:(\d+)/console/#secret=(\S+)")


class _Report(Protocol):
    def __init__(self, done: Deferred[list[Any]]) -> None:
        self._done, self._data = done, b""

    def dataReceived(self, data: bytes) -> None:
        self._data += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._done.callback(json.loads(self._data))


class _Until(RecordingUser):
    """A user who waits for output and for the end."""

    def __init__(self) -> None:
        super().__init__()
        self.echoed: Deferred[None] = Deferred()
        self.left: Deferred[str] = Deferred()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.echoed.called:
            self.echoed.callback(None)

    def detached(self, reason: str) -> None:
        self.left.callback(reason)


class WebProcessTests(ProcessCase):
    """A user who opens the page."""

    starts = PROGRAMS

    async def browser(self) -> tuple[str, Deferred[list[Any]]]:
        """Return a program that reports its arguments and the page that they name."""
        report: Deferred[list[Any]] = Deferred()
        factory = Factory.forProtocol(lambda: _Report(report))  # type: ignore[arg-type]
        port = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(factory)
        self.addCleanup(port.stopListening)
        path = Path(self.mktemp()).absolute()
        path.write_text(BROWSER.format(python=sys.executable, port=port.getHost().port))
        path.chmod(0o700)
        return str(path), report

    async def log_in(self, port: str, secret: str) -> tuple[int, Any]:
        http = HTTPTransport(ClientConfig(f"http://127.0.0.1:{port}"), reactor)
        body = json.dumps({"secret": secret}).encode()
        code, _, answer = await http.collect(
            Request("POST", "/console/login", body), timeout_seconds=600, limit_bytes=1 << 16
        )
        await http.close()
        return code, json.loads(answer)

    def urls(self, process: ConsoleProcess) -> list[tuple[str, str]]:
        return URL.findall(process.stdout.decode())

    async def test_session(self) -> None:
        """
        The browser gets the URL without its secret in any arguments; the secret works once; Enter
        shows another; a console opens; Ctrl-C tells it and ends the program.
        """
        self.serve(EchoAttachment())
        browser, report = await self.browser()
        process = self.start("--web", command=PATIENT, env={"BROWSER": browser})
        await process.until(b"Ctrl-C ends")
        self.assertIn(b"opens in your browser", process.stdout)
        [(port, secret)] = self.urls(process)
        arguments, page = await report
        self.assertNotIn(secret, " ".join(arguments))
        self.assertIn(f"http://127.0.0.1:{port}/console/#secret={secret}", page)
        if os.path.exists("/proc/self/cmdline"):
            self.assertNotIn(secret, Path(f"/proc/{process.transport.pid}/cmdline").read_text())
        code, answer = await self.log_in(port, secret)
        self.assertEqual(code, 200)
        self.assertEqual((await self.log_in(port, secret))[0], 403)

        process.type(b"\n")
        await process.until(b"(?s)secret=.*secret=\\S+\nIt works once, for 600 seconds.\n")
        again, fresh = self.urls(process)[1]
        self.assertEqual((again, await self.log_in(port, fresh)), (port, (200, answer)))

        user = _Until()
        config = ClientConfig(f"http://127.0.0.1:{port}", token=answer["token"])
        stream = await open_console(
            config, "default", "vm", user, reactor, ConsoleOptions(resume=False)
        )
        stream.write(b"hello")
        await user.echoed
        process.signal(signal.SIGINT)
        await user.left
        await self.ends_with(process, 130)

    async def test_refused_credentials(self) -> None:
        """The terminal says, beside the URL, that the server does not accept the credentials."""
        self.consoles.tokens = {"Bearer good"}
        nowhere = dict.fromkeys(("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"), "")
        process = self.start("--web", "--token", "wrong", env=nowhere, usePTY=True)
        told = rb"\s+".join(b"does not accept the bearer token of the command line".split())
        await process.until(b"(?s)Ctrl-C ends.*" + told)
