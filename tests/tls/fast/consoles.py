"""
Consoles through a chain of servers that uses all fast parts; run by :mod:`tests.tls.fast.renamed`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor
from twisted.internet.interfaces import IStreamClientEndpoint

from tests.streaming.places import PlacesTestCase, pki
from tests.streaming.test_proxy_chain import HEAD, Hop, Machine
from twisted_exec.streaming.http.site import Site
from twisted_exec.streaming.interfaces import COMPLETED, Ending
from twisted_exec.streaming.remotecommand.client import connect
from twisted_exec.testing.console import EchoAttachment, RecordingUser
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.endpoints import client_endpoint, server_endpoint, unix_client_endpoint


class ConsoleTests(PlacesTestCase):
    """Users, two proxies and a machine: TLS whose sessions are resumed, TCP, and TLS above a UNIX socket."""

    async def serve(self, dispatcher: Any, kind: str) -> IStreamClientEndpoint:
        """Listen; the endpoint connects there."""
        path = f"{self.directory()}/s"
        where = f"unix:{path}" if kind == "unix" else "tcp:0:interface=127.0.0.1"
        server, client = None, None
        if kind != "tcp":
            server = self.server_tls(resumable=True)
            client = ClientTLS("localhost", ca_pem=pki()[0], resumes=True)
        port: Any = await server_endpoint(reactor, where, server).listen(Site(dispatcher, reactor))
        self.addCleanup(port.stopListening)
        if kind == "unix":
            return unix_client_endpoint(reactor, path, client)
        return client_endpoint(reactor, "127.0.0.1", port.getHost().port, client)

    async def test_consoles(self) -> None:
        """Two users, one after the other, have their keys echoed, and much output."""
        machine = Machine()
        machine.make = lambda: EchoAttachment(greeting=b"login: ")
        second = Hop("poollet", await self.serve(machine, "unix"))
        first = Hop("apiserver", await self.serve(second, "tcp"))
        entry = await self.serve(first, "tls")
        for _ in range(2):
            user = RecordingUser()
            client = await connect(entry, HEAD, user, clock=reactor, timeout_seconds=600)
            client.write(b"root\n")
            await self.until(lambda user=user: user.received == b"login: root\n")
            client.write(b"x" * 300_000)
            await self.until(lambda user=user: len(user.received) == 300_012)
            client.end_input()
            await self.until(lambda user=user: user.endings)
            self.assertEqual(user.endings, [Ending(COMPLETED)])
            for hop in (first, second, machine):
                await self.until(lambda hop=hop: not len(hop.sessions))
