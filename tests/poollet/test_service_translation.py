"""
A poollet before a runtime of another make, which knows no version 5 of remote command.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import TCP4ServerEndpoint

from tests.chain import PATIENCE_SECONDS, reactor, until
from tests.poollet.chain import API_SERVER, EXEC, PoolletCase
from tests.poollet.doubles import MACHINES
from tests.streaming.foreign import Foreign
from twisted_exec.api.status import APIError
from twisted_exec.streaming.http.site import Site
from twisted_exec.streaming.http.upgrade_client import UpgradeRequest
from twisted_exec.streaming.interfaces import COMPLETED, MACHINE_DELETED, Ending, TerminalSize
from twisted_exec.streaming.remotecommand.client import ConsoleClient, connect
from twisted_exec.testing.console import RecordingUser
from twisted_exec.wire.channel import V5


class TranslationTests(PoolletCase):
    """A user of version 5, as kubectl is from 1.30 on."""

    async def setUp(self) -> None:
        await super().setUp()
        self.foreign = Foreign(reactor)
        site = Site(self.foreign, reactor)
        port: Any = await TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1").listen(site)
        self.addCleanup(lambda: maybeDeferred(port.stopListening))
        self.addCleanup(site.drain)
        self.port = port.getHost().port
        ask = self.runtime.exec
        self.patch(self.runtime, "exec", lambda *args, **more: self.fresh_url(ask, args, more))
        self.user = RecordingUser()

    def fresh_url(self, ask: Any, args: Any, more: Any) -> Any:
        """Every URL is valid for one request."""
        path = f"/exec/{len(self.runtime.execs)}"
        self.foreign.tokens.add(path.encode())
        self.runtime.url = f"http://127.0.0.1:{self.port}{path}"
        return ask(*args, **more)

    def attach(self) -> Deferred[ConsoleClient]:
        head = UpgradeRequest(
            b"GET", EXEC.format("lab", "vm").encode(), b"poollet", [(b"X-Remote-User", b"jane")]
        )
        endpoint = self.endpoint(API_SERVER)
        return connect(
            endpoint,
            head,
            self.user,
            clock=reactor,
            timeout_seconds=PATIENCE_SECONDS,
            protocols=[V5],
        )

    async def test_session(self) -> None:
        """Both directions work to the end, with one session on record; the runtime creates two URLs."""
        await self.start()
        client = await self.attach()
        client.resize(TerminalSize(80, 24))
        client.write(b"root\n")
        attachment = self.foreign.attachments[0]
        await until(lambda: attachment.received and attachment.sizes)
        attachment.transport.write(b"bye")
        attachment.transport.end(Ending(COMPLETED, exit_code=7))
        await until(lambda: self.user.detached_with and not len(self.poollet.consoles.sessions))
        self.assertEqual(self.user.received, b"bye")
        self.assertEqual([ending.exit_code for ending in self.user.endings], [7])
        (session,) = {call[3] for call in self.runtime.execs}
        self.assertEqual(len(self.runtime.execs), 2)
        self.assertEqual([event["event"] for event in self.audit], ["start", "end"])
        last = self.audit[-1]
        self.assertEqual((last["session"], last["user"]), (session, "jane"))
        self.assertEqual((last["bytes_to_machine"], last["bytes_to_user"]), (5, 3))

    async def test_deleted(self) -> None:
        """A machine that is deleted ends its session with the reason, without the runtime's help."""
        await self.start()
        await self.attach()
        await self.client.delete(MACHINES, "vm", "lab")
        await until(lambda: self.user.detached_with)
        self.assertEqual([ending.reason for ending in self.user.endings], [MACHINE_DELETED])

    async def test_no_longer_there(self) -> None:
        """The user reads the runtime's answer to the second request."""
        await self.start()
        self.foreign.refusal = (404, "machine is gone")
        with self.assertRaises(APIError) as caught:
            await self.attach()
        self.assertEqual(caught.exception.code, 404)
        self.assertEqual(caught.exception.message, 'machine "vm": machine is gone')
        await until(lambda: len(self.audit) == 2)
        self.assertEqual(self.audit[-1]["code"], 404)
