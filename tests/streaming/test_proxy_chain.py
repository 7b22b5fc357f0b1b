"""
A chain of streams on real sockets: the user's end, two proxies, the machine's end.

Each leg is what it is between our programs: TLS, TLS, then a UNIX socket.
"""

from __future__ import annotations

import gc
import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from zope.interface import implementer

from tests import soak
from tests.audits import AuditList
from tests.streaming.passing import carry
from tests.wire.test_blocks import HOSTILE
from twisted_exec.api.status import APIError, NotFound
from twisted_exec.program.audit import Trail
from twisted_exec.streaming.context import RequestContext
from twisted_exec.streaming.http.responses import Dispatcher, respond_json
from twisted_exec.streaming.http.session_requests import BUSY_REQUESTS
from twisted_exec.streaming.http.site import HTTPChannel, Request, Site
from twisted_exec.streaming.http.upgrade_client import Upgraded, UpgradeRequest
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    INTERNAL,
    MACHINE_DELETED,
    REVOKED,
    Ending,
    TerminalSize,
)
from twisted_exec.streaming.location import IStreamAdmission, Location
from twisted_exec.streaming.proxied import ProxySettings
from twisted_exec.streaming.proxy import Proxy
from twisted_exec.streaming.remotecommand.carriers import OVER_SPDY, StreamLimits, choose_protocol
from twisted_exec.streaming.remotecommand.client import ATTEMPTS, ConsoleClient, connect
from twisted_exec.streaming.remotecommand.serving import serve
from twisted_exec.streaming.remotecommand.translate import LOST as MACHINE_LOST
from twisted_exec.streaming.sessions.hop_messages import forwarded_session_id, parse_ending
from twisted_exec.streaming.sessions.registry import Sessions
from twisted_exec.streaming.splice import LOST
from twisted_exec.testing.console import (
    EchoAttachment,
    RecordingAttachment,
    RecordingProducer,
    RecordingUser,
)
from twisted_exec.tls.client import ClientTLS
from twisted_exec.tls.endpoints import client_endpoint
from twisted_exec.tls.fast.descriptor import TLSOnDescriptor
from twisted_exec.tls.spares import SpareConnections
from twisted_exec.wire.blocks import Mark
from twisted_exec.wire.channel import V5

from .places import PlacesTestCase, pki, turn

HEAD = UpgradeRequest(b"GET", b"/machines/vm/exec", b"localhost")


@implementer(IStreamAdmission)
class Forward:
    """Locates a single endpoint."""

    def __init__(self, next_hop: IStreamClientEndpoint) -> None:
        self.next_hop = next_hop

    def admit(self, context: RequestContext) -> Deferred[Location]:
        session = forwarded_session_id(context.request) or context.subject.session
        context.learn(session=session, user="ann", caller="before")
        way = [("next", self.next_hop)]
        return succeed(Location(way, context.request.uri, b"next"))


class Hop(Dispatcher):
    """A proxy."""

    def __init__(self, name: str, next_hop: IStreamClientEndpoint) -> None:
        super().__init__()
        self.records = AuditList()
        self.sessions = Sessions(Trail(self.records, name, reactor))
        self.proxy = Proxy(
            Forward(next_hop),
            ProxySettings(name),
            sessions=self.sessions,
            clock=reactor,
            caller_of=lambda request: succeed("before"),
        )

    async def dispatch(self, request: Request) -> None:
        await carry(self.proxy, request)


class Machine(Dispatcher):
    """The machine's end: one attachment for each session."""

    def __init__(self) -> None:
        super().__init__()
        self.records = AuditList()
        self.sessions = Sessions(Trail(self.records, "runtime", reactor))
        self.attachments: list[RecordingAttachment] = []
        self.make: Any = RecordingAttachment
        self.limits = StreamLimits()

    async def dispatch(self, request: Request) -> None:
        if request.method == b"DELETE":
            session, ending = parse_ending(request.args)
            self.sessions.end(lambda one: one.session == session, ending)
            respond_json(request, 200, {})
            return
        if b"nothing" in request.path:
            raise NotFound("machines", "nothing")
        choose_protocol(request)
        session = forwarded_session_id(request) or "none"
        record = self.sessions.open(replace(request.subject, session=session, user="ann"))
        self.attachments.append(self.make())
        serve(
            request,
            self.attachments[-1],
            session=session,
            user="ann",
            clock=reactor,
            limits=self.limits,
            entry=record,
        )


def _of_requests() -> list[object]:
    """Return the request objects in memory."""
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, (Request, HTTPChannel, Upgraded))]


class ChainTests(PlacesTestCase):
    """A user's session through a chain of servers."""

    protocols: Sequence[str] = ATTEMPTS
    make_machine: Callable[[], Machine] = Machine

    async def start(self) -> None:
        self.machine = self.make_machine()
        last = await self.listen("unix", Site(self.machine, reactor))
        self.second = Hop("poollet", last)
        self.first = Hop("apiserver", await self.middle())
        self.entry = await self.listen("tls", Site(self.first, reactor))
        self.user = RecordingUser()

    async def middle(self) -> IStreamClientEndpoint:
        """Listen for the first hop; the endpoint connects to the second one."""
        return await self.listen("tls", Site(self.second, reactor))

    async def open(self, user: RecordingUser | None = None) -> ConsoleClient:
        client = await connect(
            self.entry,
            HEAD,
            user or self.user,
            clock=reactor,
            timeout_seconds=600,
            protocols=self.protocols,
        )
        return client

    async def over(self, *endings: Ending) -> None:
        """The session is over everywhere, on record once at every hop."""
        await self.until(lambda: self.user.detached_with)
        await self.until(
            lambda: (
                not (
                    len(self.machine.sessions)
                    or len(self.first.sessions)
                    or len(self.second.sessions)
                )
            )
        )
        self.assertEqual(self.user.endings, list(endings))
        ids = set()
        for hop in (self.first, self.second, self.machine):
            hop.records.check_pairs()
            ids.add(hop.records[0]["session"])
        self.assertEqual(len(ids), 1)

    async def test_session(self) -> None:
        """Input, sizes, the end of input, output and the status pass through the chain."""
        await self.start()
        self.machine.make = lambda: EchoAttachment(greeting=b"login: ")
        client = await self.open()
        client.resize(TerminalSize(80, 24))
        client.write(b"root\n")
        await self.until(lambda: self.user.received == b"login: root\n")
        self.assertEqual(self.machine.attachments[0].sizes, [TerminalSize(80, 24)])
        client.end_input()
        await self.over(Ending(COMPLETED))
        record = self.first.records[-1]
        self.assertEqual((client.session, record["event"]), (record["session"], "end"))
        self.assertEqual(self.machine.records[-1]["bytes_to_user"], 12)
        self.assertEqual(self.machine.records[-1]["reason"], COMPLETED)

    async def test_much(self) -> None:
        """Many MiB in each direction at once arrive complete."""
        await self.start()
        self.machine.make = EchoAttachment
        client = await self.open()
        data = bytes(range(256)) * 4096
        flow = RecordingProducer()
        client.registerProducer(flow, True)
        mebibytes = 0
        while mebibytes < soak.figure(self) or not flow.calls:
            client.write(data)
            mebibytes += 1
            await self.until(lambda: not flow.paused)
        client.end_input()
        await self.over(Ending(COMPLETED))
        received = hashlib.sha256(self.user.received).digest()
        self.assertEqual(received, hashlib.sha256(data * mebibytes).digest())

    async def test_exit_code(self) -> None:
        """The exit code reaches the user after the last output."""
        await self.start()
        await self.open()
        attachment = self.machine.attachments[0]
        attachment.transport.write(b"x" * 3_000_000)
        attachment.transport.end(Ending(COMPLETED, exit_code=3))
        await self.until(lambda: self.user.endings)
        self.assertEqual(len(self.user.received), 3_000_000)
        self.assertEqual(self.user.endings[0].exit_code, 3)
        await self.over(*self.user.endings)

    async def test_slow_user(self) -> None:
        """A user who does not read pauses the machine's writer and loses no output."""
        await self.start()
        client = await self.open()
        client.pause_output()
        transport = self.machine.attachments[0].transport
        flow = RecordingProducer()
        transport.registerProducer(flow, True)
        written = 0
        while not flow.paused:
            transport.write(b"y" * 32768)
            written += 32768
            await turn()
        for _ in range(200):
            await turn()
        self.assertTrue(flow.paused)
        self.assertLess(written, 32 << 20)
        self.assertEqual(self.user.received, b"")
        client.resume_output()
        await self.until(lambda: len(self.user.received) == written)
        self.assertFalse(flow.paused)
        client.leave()
        await self.over()

    async def test_paused_machine(self) -> None:
        """A machine that takes no input stops the user's writer."""
        await self.start()
        client = await self.open()
        attachment = self.machine.attachments[0]
        attachment.transport.pause_input()
        flow = RecordingProducer()
        client.registerProducer(flow, True)
        written = 0
        while not flow.paused:
            client.write(b"z" * 32768)
            written += 32768
            await turn()
        attachment.transport.resume_input()
        await self.until(lambda: len(attachment.received) == written)
        client.leave()
        await self.over()

    async def test_user_leaves(self) -> None:
        """A user who leaves ends the session at every hop."""
        await self.start()
        client = await self.open()
        client.leave()
        await self.over()
        self.assertEqual(self.machine.attachments[0].detached_with, ["client closed"])

    async def test_user_vanishes(self) -> None:
        """A user whose connection is reset ends the session at every hop."""
        await self.start()
        client = await self.open()
        client.abort()
        await self.over()
        self.assertEqual(len(self.machine.attachments[0].detached_with), 1)

    async def test_machine_vanishes(self) -> None:
        """If a machine's end dies without a status, the first hop reports the loss."""
        await self.start()
        await self.open()
        self.machine.attachments[0].transport.write(b"almost")
        await self.until(lambda: self.user.received)
        self.machine.attachments[0].transport.cut()
        await self.over(Ending(INTERNAL, LOST))
        self.assertEqual(self.user.received, b"almost")

    async def test_middle_vanishes(self) -> None:
        """The first hop also reports a cut at a proxy in the middle."""
        await self.start()
        await self.open()
        for session in self.second.sessions.live():
            session.cut()
        await self.over(Ending(INTERNAL, LOST))

    async def test_ended_in_the_middle(self) -> None:
        """An ending of the first hop reaches the user as a status, through all hops."""
        await self.start()
        await self.open()
        ending = Ending(MACHINE_DELETED, 'machine "vm" was deleted')
        self.first.sessions.end(lambda one: one.user == "ann", ending)
        await self.over(ending)
        for hop in (self.first, self.second, self.machine):
            self.assertEqual(hop.records.ends(), [(MACHINE_DELETED, None)])

    async def test_idle(self) -> None:
        """During a session no object of the requests that opened it is kept."""
        before = {id(each) for each in _of_requests()}  # other tests may leave some
        await self.start()
        client = await self.open()
        for _ in range(5):
            await turn()
        kept = [each for each in _of_requests() if id(each) not in before]
        self.assertEqual(kept, [])
        client.leave()
        await self.over()

    async def test_refused(self) -> None:
        """A refusal of the last hop reaches the user unchanged."""
        await self.start()
        head = replace(HEAD, path=b"/nothing")
        with self.assertRaises(APIError) as caught:
            await connect(self.entry, head, self.user, clock=reactor, timeout_seconds=600)
        self.assertEqual(caught.exception.code, 404)
        self.assertEqual(caught.exception.message, 'machines "nothing" not found')
        self.assertEqual(self.first.records.ends()[0][1], 404)

    async def test_many(self) -> None:
        """Many sessions opened and closed in every way leave nothing open."""
        sessions = soak.figure(self)
        await self.start()
        self.machine.make = EchoAttachment
        readers = None
        for number in range(sessions):
            user = RecordingUser()
            client = await self.open(user)
            client.write(b"hi")
            await self.until(lambda user=user: user.received == b"hi")
            how = number % 4
            if how == 0:
                client.end_input()
            elif how == 1:
                client.leave()
            elif how == 2:
                client.abort()
            else:
                self.machine.attachments[-1].transport.cut()
            await self.until(lambda user=user: user.detached_with)
            if number == 3:
                await self.until(lambda: not len(self.first.sessions))
                await self.until(lambda: not len(self.machine.sessions))
                readers = len(reactor.getReaders())
        await self.until(
            lambda: (
                not (
                    len(self.machine.sessions)
                    or len(self.first.sessions)
                    or len(self.second.sessions)
                )
            )
        )
        await self.until(lambda: len(reactor.getReaders()) <= readers)
        for hop in (self.first, self.second, self.machine):
            hop.records.check_pairs()
            self.assertEqual(len(hop.records), 2 * sessions)


class SPDYChainTests(ChainTests):
    """The same over SPDY, which the middle passes on unread as well."""

    protocols = (OVER_SPDY,)


class CountingSite(Site):
    """Counts the sessions after which it has kept the connection."""

    kept = 0

    def _following(self, transport: TLSOnDescriptor, mark: Mark) -> Any:
        protocol = super()._following(transport, mark)
        self.kept += protocol is not None
        return protocol


class OneConnectionTests(ChainTests):
    """The same over a connection between the proxies that has carried a session before."""

    async def middle(self) -> IStreamClientEndpoint:
        self.site = CountingSite(self.second, reactor, spare_seconds=lambda _: 60.0)
        tls = ClientTLS("localhost", ca_pem=pki()[0])
        await self.listen("tls", self.site)
        inner = client_endpoint(reactor, "127.0.0.1", self.port, tls)
        self.spares = SpareConnections(Clock())  # it stands, so that none is made in advance
        self.addCleanup(self.end_connections)
        return self.spares.endpoint("middle", inner, tls)

    async def end_connections(self) -> None:
        """End the connections that wait for something to carry, as a program does when it drains."""
        self.spares.close()
        for hop in (self.first, self.second):
            hop.proxy.state.control.close()
        await self.until(lambda: not self.site.connections)

    async def start(self) -> None:
        await super().start()
        await turn()  # the reactor runs, and has its own readers
        self.readers = len(reactor.getReaders())
        await self.session(EchoAttachment, b"first", lambda client: client.leave())
        await self.until(lambda: len(self.spares))
        self.assertEqual(self.site.kept, 1)
        for hop in (self.first, self.second, self.machine):
            hop.records.clear()
        self.machine.attachments.clear()
        self.machine.make = RecordingAttachment

    async def session(
        self, make: Any, data: bytes, *ends: Callable[[ConsoleClient], object]
    ) -> None:
        """A whole session that echoes its input; it ends in all these ways at once."""
        self.machine.make, user = make, RecordingUser()
        client = await self.open(user)
        for start in range(0, len(data), 7):
            client.write(data[start : start + 7])
        await self.until(lambda: len(user.received) >= len(data))
        self.assertEqual(user.received, data)
        self.assertEqual(self.machine.attachments[-1].received, data)
        for end in ends:
            end(client)
        await self.until(lambda: user.detached_with)
        await self.until(
            lambda: (
                not (
                    len(self.machine.sessions)
                    + len(self.first.sessions)
                    + len(self.second.sessions)
                )
            )
        )

    async def test_every_order(self) -> None:
        """However sessions end, the next one over the same connection has its own bytes."""
        await self.start()

        def by(hop: Any, reason: str) -> Callable[[ConsoleClient], object]:
            ending = Ending(reason, "ended here")
            return lambda _: hop.sessions.end(lambda one: one.user == "ann", ending)

        ends: list[Callable[[ConsoleClient], object]] = [
            lambda client: client.leave(),
            lambda client: client.end_input(),
            lambda client: client.abort(),
            lambda _: self.machine.attachments[-1].transport.end(Ending(COMPLETED, exit_code=3)),
            lambda _: self.machine.attachments[-1].transport.cut(),
            by(self.first, REVOKED),
            by(self.first, MACHINE_DELETED),
            by(self.second, MACHINE_DELETED),
            lambda _: [one.cut() for one in self.second.sessions.live()],
            lambda _: [one.cut() for one in self.first.sessions.live()],
            lambda _: [one.transports()[1].abortConnection() for one in self.first.sessions.live()],
        ]
        chance = random.Random(67)
        sessions = soak.figure(self)
        for number in range(sessions):
            hostile = chance.sample(HOSTILE, len(HOSTILE))
            data = (
                b"%d:" % number + b"".join(hostile) + chance.randbytes(chance.choice((1, 50, 400)))
            )
            both = chance.sample(ends, chance.choice((1, 1, 2)))
            await self.session(EchoAttachment, data, *both)
        self.assertGreater(self.site.kept, sessions // 3)
        for _ in range(BUSY_REQUESTS):
            await self.session(EchoAttachment, b"last", by(self.second, MACHINE_DELETED))
        await self.end_connections()
        await self.until(lambda: len(reactor.getReaders()) <= self.readers)
        for hop in (self.first, self.second, self.machine):
            hop.records.check_pairs()
            self.assertEqual(len(hop.records), 2 * (sessions + BUSY_REQUESTS))


class Older(Machine):
    """A machine's end of another make: no version 5, and it knows of no endings."""

    refuses = b"websocket"

    async def dispatch(self, request: Request) -> None:
        if request.requestHeaders.getRawHeaders(b"upgrade") == [self.refuses]:
            request.channel.transport.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            request.channel.transport.loseConnection()
        elif request.method == b"DELETE":
            raise NotFound("sessions", "")
        else:
            await super().dispatch(request)


class OneSpeaksOnlySPDYTests(ChainTests):
    """The same with a user of version 5, where the last hop speaks for the machine's end."""

    protocols = (V5,)
    make_machine = Older

    async def test_machine_vanishes(self) -> None:
        """If the machine's end dies without a status, the user's session fails."""
        await self.start()
        await self.open()
        self.machine.attachments[0].transport.write(b"almost")
        await self.until(lambda: self.user.received)
        self.machine.attachments[0].transport.cut()
        await self.over(Ending(INTERNAL, MACHINE_LOST))
        self.assertEqual(self.user.received, b"almost")

    async def test_ended_in_the_middle(self) -> None:
        """An ending of the first hop reaches the user as a status, without the machine's help."""
        await self.start()
        await self.open()
        ending = Ending(MACHINE_DELETED, 'machine "vm" was deleted')
        self.first.sessions.end(lambda one: one.user == "ann", ending)
        await self.over(ending)
        for hop in (self.first, self.second):
            self.assertEqual(hop.records.ends(), [(MACHINE_DELETED, None)])
        self.assertEqual(self.machine.records.ends(), [("client closed", None)])


class WebSocketOnly(Older):
    """A machine's end that speaks WebSockets only."""

    refuses = b"SPDY/3.1"


class OneSpeaksOnlyWebSocketsTests(OneSpeaksOnlySPDYTests):
    """The same with a user of SPDY, where the machine's end speaks WebSockets only."""

    protocols = (OVER_SPDY,)
    make_machine = WebSocketOnly
