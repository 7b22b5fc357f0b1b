"""
Tests for :mod:`twisted_exec.cli.runtime.console`: consoles behind exec URLs of our make and of others.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ServerEndpoint

from tests.cli.console.test_program_process import ConsoleProcess
from tests.iri.test_client import RPCCase
from tests.streaming.foreign import Foreign
from tests.tiers import PROGRAMS
from twisted_exec.api.status import APIError, NotFound
from twisted_exec.cli.runtime.console import open_console
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.poollet.exec_urls import Dialler
from twisted_exec.streaming.http.site import Site
from twisted_exec.streaming.remotecommand.stream import ConsoleUser
from twisted_exec.testing.console import EchoAttachment
from twisted_exec.wire.stream_options import CONSOLE

COMMAND = "import sys; from twisted_exec.cli.main import main; sys.exit(main())"


class User(ConsoleUser):
    """Records the events of one console."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def attached(self, stream: Any) -> None:
        self.told.append("attached")

    def data_received(self, data: bytes) -> None:
        self.told.append(data)

    def ended(self, ending: Any) -> None:
        self.told.append(ending)

    def detached(self, reason: str) -> None:
        self.told.append(None)


class ExecCase(RPCCase):
    """A runtime whose exec URLs lead to a console's end of another make."""

    async def lead(self, **more: Any) -> Foreign:
        """Serve a foreign console server; each Exec makes a URL that works for a single request."""
        foreign = Foreign(reactor, **more)
        foreign.make = EchoAttachment
        site = Site(foreign, reactor)  # type: ignore[arg-type]
        endpoint = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")  # type: ignore[arg-type]
        port = await endpoint.listen(site)
        self.addCleanup(port.stopListening)
        self.urls = 0

        def exec_(request: pb.ExecRequest, **facts: str) -> pb.ExecResponse:
            if request.machine_id != "m":
                raise NotFound("machines", request.machine_id)
            self.urls += 1
            path = f"/exec/token{self.urls}"
            foreign.tokens.add(path.encode())
            return pb.ExecResponse(url=f"http://127.0.0.1:{port.getHost().port}{path}")

        self.runtime.answers["exec"] = exec_
        self.serve()
        return foreign

    async def open(self, machine_id: str = "m", **more: Any) -> Any:
        client = self.connect()
        dialler = Dialler(reactor, runtime=self.target)
        self.user = User()
        stream = await open_console(
            client,
            dialler,
            machine_id,
            self.user,
            reactor,
            options=CONSOLE,
            login="Zoë",
            machine_uid="u-1",
            **more,
        )
        self.addCleanup(stream.abort)
        return stream


class OpenTests(ExecCase):
    """Tests for :func:`open_console`."""

    async def test_version_four(self) -> None:
        """Version 4 of the WebSocket protocol is tried second, with a new URL."""
        foreign = await self.lead()
        stream = await self.open()
        self.assertEqual((stream.protocol, self.urls), ("v4.channel.k8s.io", 2))
        self.assertEqual(foreign.asked, [b"websocket", b"websocket"])

    async def test_spdy_only(self) -> None:
        """If the server only speaks SPDY, the third URL uses SPDY."""
        foreign = await self.lead(speaks=())
        stream = await self.open()
        self.assertEqual((stream.protocol, self.urls), ("v4.channel.k8s.io", 3))
        self.assertEqual(foreign.asked[-1], b"SPDY/3.1")

    async def test_for_whom(self) -> None:
        """The Exec and the stream request carry the user's name and the machine's uid."""
        foreign = await self.lead()
        await self.open()
        facts = {"user": "Zoë", "machine_uid": "u-1", "session": ""}
        self.assertEqual(self.runtime.calls[0][2], facts)
        head = {name.lower(): values for name, values in foreign.heads[-1].items()}
        self.assertEqual(head[b"x-twisted-exec-user"], [b"Zo%C3%AB"])
        self.assertEqual(head[b"x-twisted-exec-machine-uid"], [b"u-1"])
        self.assertEqual(foreign.queries[-1][b"tty"], [b"true"])

    async def test_unknown_machine(self) -> None:
        """An unknown machine is not found, after a single request."""
        await self.lead()
        with self.assertRaises(NotFound):
            await self.open("nobody")
        self.assertEqual(len(self.runtime.calls), 1)

    async def test_refusal(self) -> None:
        """A refusal that concerns the request itself is not retried with another protocol."""
        foreign = await self.lead()
        foreign.refusal = 409, "busy"
        with self.assertRaises(APIError) as caught:
            await self.open(protocols=["v4.channel.k8s.io", "v4.channel.k8s.io"])
        self.assertEqual((caught.exception.code, self.urls), (409, 1))

    async def test_empty(self) -> None:
        """A runtime that returns no console URL is a 501 error."""
        await self.lead()
        self.runtime.answers["exec"] = lambda _, **__: pb.ExecResponse()
        with self.assertRaises(APIError) as caught:
            await self.open()
        self.assertEqual(caught.exception.code, 501)

    async def test_elsewhere(self) -> None:
        """A URL that leads to another host in the clear is not dialled."""
        await self.lead()
        self.runtime.answers["exec"] = lambda _, **__: pb.ExecResponse(url="http://192.0.2.1/x")
        with self.assertRaises(APIError) as caught:
            await self.open()
        self.assertEqual(caught.exception.code, 502)


class ProcessTests(ExecCase):
    """The program as a process, on a terminal and on pipes."""

    starts = PROGRAMS

    def spawn(self, machine_id: str, **how: Any) -> ConsoleProcess:
        program = ConsoleProcess()
        argv = [sys.executable, "-c", COMMAND, "iri", "exec", machine_id, "--address", self.target]
        transport = reactor.spawnProcess(  # type: ignore[attr-defined]
            program, argv[0], argv, env=dict(os.environ), **how
        )
        self.addCleanup(lambda: transport.pid and transport.signalProcess("KILL"))
        return program

    async def test_terminal(self) -> None:
        """
        Typed bytes reach the machine, its output reaches the screen, and the escape key leaves.
        """
        await self.lead(speaks=())
        program = self.spawn("m", usePTY=True)
        await program.until(rb"Connected to m\.")
        program.type(b"hello\r")
        await program.until(b"hello")
        program.type(b"\x1d")
        self.assertEqual(await program.ended, 0)

    async def test_refused(self) -> None:
        """A machine that is not there is one line and exit code 1."""
        await self.lead()
        program = self.spawn("nobody")
        self.assertEqual(await program.ended, 1)
        self.assertEqual(program.stderr, b'machine "nobody" not found\n')
