"""
Tests for :mod:`twisted_exec.storage.handover.client`, without a successor.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.protocol import connectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from tests.contracts.storage import MACHINES, machine
from twisted_exec.api.encoded import json_of
from twisted_exec.api.status import GatewayTimeout, ServiceUnavailable
from twisted_exec.storage.handover.client import ANSWER_SECONDS, LOST_SECONDS, SuccessorClient
from twisted_exec.storage.handover.messages import (
    Answer,
    Change,
    Current,
    Decoder,
    Hello,
    Item,
    ListBegin,
    ListEnd,
    Message,
    Request,
    encode,
)
from twisted_exec.storage.history import History, created
from twisted_exec.storage.interfaces import ADDED, Event
from twisted_exec.storage.writer import Write


@implementer(IStreamClientEndpoint)
class Successor:
    """An endpoint whose peer is the test."""

    def __init__(self, clock: Clock) -> None:
        self.is_up = True
        self.clock = clock
        self.attempts: list[float] = []

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """As :meth:`IStreamClientEndpoint.connect`."""
        self.attempts.append(self.clock.seconds())
        if not self.is_up:
            return fail(ConnectError())
        protocol = protocolFactory.buildProtocol(None)
        assert protocol is not None
        self.protocol, self.transport, self._decoder = protocol, StringTransport(), Decoder()
        self.protocol.makeConnection(self.transport)
        return succeed(protocol)

    def received(self) -> list[tuple[Message, bytes]]:
        """Return what the client has sent since the last call."""
        messages = self._decoder.feed(self.transport.value())
        self.transport.clear()
        return messages

    def send(self, message: Message, body: bytes = b"") -> None:
        """Send a message to the client."""
        self.protocol.dataReceived(encode(message, body))

    def go(self) -> None:
        """Lose the connection."""
        self.protocol.connectionLost(connectionDone)


class ClientTests(TestCase):
    """A predecessor."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.successor = Successor(self.clock)
        self.history = History()
        self.is_trusted = True
        self.writes: list[Write] = []
        self.client = SuccessorClient(
            self.history, self.successor, self.clock, is_trusted=lambda _: self.is_trusted
        )

    def start(self) -> Deferred[str]:
        lost = self.client.start()
        self.addCleanup(self.stop)
        return lost

    def stop(self) -> None:
        """Stop, and expect that the writes that are left fail."""
        self.client.stop()
        for write in self.writes:
            write.done.addErrback(lambda _: None)

    def write(self, name: str = "a") -> Write:
        write = Write(ADDED, MACHINES, machine(name))
        self.client.add(write)
        self.writes.append(write)
        return write

    def report(self, version: int, name: str = "a") -> None:
        obj = created(machine(name), version).obj
        self.successor.send(Change(MACHINES.qualified, ADDED, version), json_of(obj))

    def test_begins_where_the_copy_ends(self) -> None:
        """The first message says which version is here."""
        self.history.apply(MACHINES.qualified, created(machine("a"), 7))
        self.start()
        self.assertEqual(self.successor.received(), [(Hello(1, 7), b"")])

    def test_held_writes(self) -> None:
        """Writes wait until the copy is current, and are then sent in order."""
        self.start()
        first, second = self.write("a"), self.write("b")
        self.assertEqual(len(self.successor.received()), 1)
        self.successor.send(Current())
        sent = self.successor.received()
        self.assertEqual(
            [(message, body) for message, body in sent],
            [
                (Request(number, ADDED, vars_of_machines()), json_of(machine(name)))
                for number, name in ((1, "a"), (2, "b"))
            ],
        )
        self.report(1, "a")
        self.successor.send(Answer(1, 1))
        self.assertEqual(self.successResultOf(first.done)["metadata"]["resourceVersion"], "1")
        self.assertNoResult(second.done)

    def test_answer_behind_a_list(self) -> None:
        """A write whose change became part of a list has its result all the same."""
        self.start()
        self.successor.send(Current())
        write = self.write()
        self.successor.send(ListBegin())
        obj = created(machine("a"), 5).obj
        self.successor.send(Item(MACHINES.qualified), json_of(obj))
        self.successor.send(ListEnd(5))
        self.successor.send(Answer(1, 5))
        self.assertEqual(self.successResultOf(write.done), obj)
        self.assertEqual(
            (self.history.version, self.history.get(MACHINES, "default", "a")), (5, obj)
        )

    def test_lost_answer(self) -> None:
        """After a lost connection nobody knows whether a write was made, and its writer gets to know that."""
        self.start()
        self.successor.send(Current())
        write = self.write()
        self.successor.go()
        self.failureResultOf(write.done, GatewayTimeout)

    def test_connects_again(self) -> None:
        """After a lost connection it goes on with the next successor, at the next change."""
        lost = self.start()
        self.successor.send(Current())
        self.report(1, "a")
        self.successor.is_up = False
        self.successor.go()
        write = self.write("c")
        self.clock.pump([0.1] * 90)
        self.assertNoResult(write.done)
        self.successor.is_up = True
        self.clock.advance(0.5)
        self.assertEqual(self.successor.received(), [(Hello(1, 1), b"")])
        self.report(2, "b")
        self.successor.send(Current())
        ((request, _),) = self.successor.received()
        self.assertIsInstance(request, Request)
        self.clock.advance(LOST_SECONDS - 0.1)
        self.assertNoResult(lost)
        self.assertEqual(self.history.version, 2)

    def test_another_user(self) -> None:
        """A socket of another user gets nothing, and nothing from it counts."""
        self.is_trusted = False
        self.start()
        self.assertEqual(self.successor.received(), [])
        self.assertTrue(self.successor.transport.disconnected)

    def test_lost(self) -> None:
        """A successor that is away for too long is lost: writes fail, and nothing is tried any more."""
        lost = self.start()
        self.successor.send(Current())
        self.successor.is_up = False
        self.successor.go()
        held = self.write()
        self.clock.pump([0.1] * 99)
        self.assertNoResult(lost)
        self.clock.advance(0.2)
        self.assertIn("cannot be reached", self.successResultOf(lost))
        self.failureResultOf(held.done, ServiceUnavailable)
        self.failureResultOf(self.write().done, ServiceUnavailable)
        attempts = len(self.successor.attempts)
        self.clock.pump([1.0] * 60)
        self.assertEqual(len(self.successor.attempts), attempts)

    def test_never_current(self) -> None:
        """A successor that accepts and hangs up again is not asked all the time, and is lost in time."""
        lost = self.start()
        for _ in range(200):
            self.successor.go()
            self.clock.advance(0.05)
        self.successResultOf(lost)
        self.assertLess(len(self.successor.attempts), 30)

    def test_no_answer(self) -> None:
        """A successor that answers nothing counts as gone."""
        self.start()
        self.successor.send(Current())
        self.write()
        self.clock.advance(ANSWER_SECONDS)
        self.assertTrue(self.successor.transport.disconnected)

    def test_bad_messages(self) -> None:
        """A message that cannot be ends the connection and changes nothing."""
        self.history.apply(MACHINES.qualified, created(machine("a"), 7))
        self.start()
        events: list[Event] = []
        self.history.watch(MACHINES, None, events.append, "")
        obj = json_of(created(machine("a"), 8).obj)
        for message, body in [
            (Change(MACHINES.qualified, ADDED, 7), obj),
            (Change(MACHINES.qualified, "DELETED", 8), json_of(machine("b"))),
            (Change(MACHINES.qualified, "RENAMED", 8), obj),
            (Change(MACHINES.qualified, ADDED, 8), b"{}"),
            (Item(MACHINES.qualified), obj),
            (ListEnd(9), b""),
            (Answer(9, 1), b""),
            (Hello(1, 1), b""),
        ]:
            self.successor.send(message, body)
            self.assertTrue(self.successor.transport.disconnected, message)
            self.successor.go()
            self.clock.advance(1)
        self.assertEqual((events, self.history.version), ([], 7))


def vars_of_machines() -> dict[str, object]:
    """Return the fields of the resource."""
    return {
        "group": MACHINES.group,
        "version": MACHINES.version,
        "plural": MACHINES.plural,
        "kind": MACHINES.kind,
        "namespaced": True,
    }
