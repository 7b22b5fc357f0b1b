"""Tests for :mod:`twisted_exec.streaming.remotecommand.resuming_client`."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.retained import instances
from tests.streaming.remotecommand.resuming import HEAD, Client, ResumingUser
from twisted_exec.api.obstacles import Obstacle, because
from twisted_exec.api.status import APIError, Conflict, NotFound
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    MACHINE_DELETED,
    RESUMED,
    Break,
    Ending,
    Role,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.client import LOST, connect
from twisted_exec.streaming.remotecommand.first_user import FirstUser
from twisted_exec.streaming.remotecommand.input_log import LIMIT_PIECES, WINDOW_PIECES
from twisted_exec.testing.console import RecordingProducer, RecordingUser
from twisted_exec.testing.network import MemoryNetwork
from twisted_exec.testing.resumable_console import ResumableConsole
from twisted_exec.wire.channel import V4, V5, Channel
from twisted_exec.wire.endings import encode_ending
from twisted_exec.wire.errors import LocalProtocolError
from twisted_exec.wire.marks import At, EchoTime, Notice, NoticeKind, encode_mark
from twisted_exec.wire.resize import Message
from twisted_exec.wire.resume import MARKS, Position

VECTORS = Path(__file__).with_name("resume_vectors.json")


class ResumingCase(SynchronousTestCase):
    """A client at a console, attached."""

    protocol = "v5.channel.k8s.io"

    def setUp(self) -> None:
        self.clock = Clock()
        self.server = ResumableConsole(self.clock)
        self.end = self.make()
        self.client = self.end.client

    def make(self, user: Any = None) -> Client:
        return Client(self.server, self.clock, user, self.protocol)

    @property
    def user(self) -> Any:
        return self.end.user

    @property
    def line(self) -> list[Any]:
        """What reached the line, with neighbouring bytes joined."""
        joined: list[Any] = []
        for item in self.server.line:
            if isinstance(item, bytes) and joined and isinstance(joined[-1], bytes):
                joined[-1] += item
            else:
                joined.append(item)
        return joined

    def assert_over(self, reason: str) -> None:
        self.assertEqual(self.user.detached_with, [reason])
        self.end.wait(60)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertTrue(all(not each.connected for each in self.end.network.transports))


class OpeningTests(SynchronousTestCase):
    """A user who leaves while the session opens."""

    def leave_after(self, steps: int) -> tuple[ResumableConsole, bool]:
        """Leave after some steps of the network; return the server, and whether the session was open."""
        clock, network = Clock(), MemoryNetwork()
        server = ResumableConsole(clock)
        opening = connect(
            network.endpoint(server),
            HEAD,
            FirstUser(ResumingUser(), lambda *_: Deferred(), clock),
            clock=clock,
            timeout_seconds=30,
            protocols=[V5],
            resume=MARKS,
        )
        for _ in range(steps):
            for transport in list(network.transports):
                transport.step(16)
        if opening.called:
            self.successResultOf(opening).abort()
            return server, True
        opening.cancel()
        network.pump()
        self.failureResultOf(opening, CancelledError)
        self.assertEqual(clock.getDelayedCalls(), [])
        self.assertTrue(all(not each.connected for each in network.transports))
        return server, False

    def test_each_moment(self) -> None:
        """Whenever the user leaves, the server keeps no session."""
        opened = 0
        for steps in itertools.count():
            server, is_open = self.leave_after(steps)
            if is_open:
                break
            self.assertEqual(server.sessions, [], steps)
            opened += len(server.connections)
        self.assertGreater(opened, 10)

    def test_impatient(self) -> None:
        """Cancelling once more does not wait for the server."""
        for opens in (False, True):
            clock, network = Clock(), MemoryNetwork()
            opening = connect(
                network.endpoint(
                    ResumableConsole(clock) if opens else Factory.forProtocol(Protocol)
                ),
                HEAD,
                FirstUser(ResumingUser(), lambda *_: Deferred(), clock),
                clock=clock,
                timeout_seconds=30,
                protocols=[V5],
                resume=MARKS,
            )
            opening.cancel()
            network.transports[1].step(1 << 16)
            network.transports[0].step(1 << 16)
            self.assertNoResult(opening)
            opening.cancel()
            self.failureResultOf(opening, CancelledError)
            network.pump()
            self.assertTrue(all(not each.connected for each in network.transports))


class OutageTests(ResumingCase):
    """What the user and the line get over an outage."""

    def test_ordinary(self) -> None:
        """Without an outage the session is as any other."""
        self.assertIs(self.user.stream, self.client)
        self.assertEqual((self.client.session, self.client.protocol), ("s-1", self.protocol))
        self.assertTrue(self.client.can_half_close)
        self.client.resize(TerminalSize(80, 24))
        self.client.write(b"ls\r")
        self.client.wish(Break())
        self.end.pump()
        self.server.print(b"file\r\n")
        self.server.notice("hello")
        self.server.acknowledge()
        self.end.pump()
        self.assertEqual(self.line, [b"ls\r", Break()])
        self.assertEqual(self.server.sizes, [TerminalSize(80, 24)])
        self.assertEqual((self.user.items, self.user.notices), ([b"file\r\n"], ["hello"]))
        self.server.end(Ending(COMPLETED, exit_code=3))
        self.end.pump()
        self.assertEqual(self.user.endings[0].exit_code, 3)
        self.assert_over("connection closed")

    def test_output(self) -> None:
        """Output goes on at the byte at which it stopped, also if it was on its way."""
        self.server.print(b"one")
        self.end.pump()
        self.server.print(b"two")
        self.end.cut()
        self.server.print(b"three")
        self.end.wait(1)
        self.assertEqual(self.user.received, b"onetwothree")
        self.assertEqual(self.user.outages, [LOST])
        ((seconds, uncertain),) = self.user.returns
        self.assertEqual((round(seconds, 3), uncertain), (0.1, 0))
        self.assertEqual(self.client.session, "s-2")

    def test_status(self) -> None:
        """The client knows its position, the round trip, and how often it was resumed."""
        self.assertTrue(self.client.is_resumable)
        self.assertEqual(self.client.resumes, 0)
        self.server.print(b"one")
        self.end.wait(6)
        assert self.client.position is not None
        self.assertEqual((self.client.position.offset, self.client.round_trip_seconds), (3, 0))
        for count in (1, 2):
            self.end.cut()
            self.end.wait(1)
            self.assertEqual(self.client.resumes, count)

    def test_latency(self) -> None:
        """Times that the server or the hops report belong to one connection: none outlives it."""
        self.assertIsNone(self.client.echo_seconds)
        self.server.live[0].mark(EchoTime(3000))
        self.end.wait(6)
        self.assertEqual(self.client.echo_seconds, 0.003)
        self.end.cut()
        self.end.pump()
        self.assertIsNone(self.client.echo_seconds)
        self.assertIsNone(self.client.round_trip_seconds)
        self.assertEqual((self.client.overdue_seconds, self.client.round_trips), (0, ()))
        self.end.wait(1)
        self.assertEqual(self.client.resumes, 1)
        self.assertIsNone(self.client.echo_seconds)
        self.assertEqual(self.client.round_trip_seconds, 0)

    def test_input(self) -> None:
        """Input that did not arrive is sent again, and input of the outage behind it."""
        self.client.write(b"a")
        self.end.pump()
        self.client.write(b"b")
        self.client.wish(Break(300))
        self.end.cut()
        self.client.write(b"c")
        self.client.wish(Role.WRITER)
        self.client.resize(TerminalSize(80, 24))
        self.client.resize(TerminalSize(132, 43))
        self.client.end_input()
        self.client.write(b"too late")
        self.assertEqual(self.line, [b"a"])
        self.end.wait(1)
        self.assertEqual(self.line, [b"ab", Break(300), b"c", Role.WRITER, None])
        self.assertEqual(self.server.sizes, [TerminalSize(132, 43)])

    def test_message(self) -> None:
        """A message to other users goes past the input, and is not sent during an outage, nor behind it."""
        self.client.say(Message("one"))
        self.end.pump()
        self.end.cut()
        self.client.say(Message("two"))
        self.end.wait(1)
        self.client.say(Message("three"))
        self.end.pump()
        self.assertEqual(self.server.messages, ["one", "three"])
        self.assertEqual((self.line, self.client.resumes), ([], 1))

    def test_nothing_before_ack(self) -> None:
        """A resumed stream sends nothing before the server's Ack."""
        self.client.write(b"a")
        self.end.cut()
        self.clock.advance(0.1)
        (mine, _) = self.end.network.transports[-2:]
        mine.step(1 << 16)  # the request arrives
        self.client.write(b"b")
        self.client.resize(TerminalSize(80, 24))
        self.assertEqual(mine.queued, b"")
        self.end.pump()
        self.assertEqual(self.line, [b"ab"])

    def test_lost_answer(self) -> None:
        """If the 101 is lost, the key before works again."""
        self.server.print(b"one")
        self.end.cut()
        self.clock.advance(0.1)
        self.end.network.transports[-2].step(1 << 16)  # the request arrives, its answer does not
        self.assertEqual(len(self.server.connections), 2)
        self.end.cut()
        self.end.wait(1)
        self.assertEqual(self.user.received, b"one")
        self.assertEqual([each and each.session for each in self.server.requests[1:]], ["s-1"] * 2)
        self.assertEqual(len(self.user.returns), 1)

    def test_black_hole(self) -> None:
        """
        A server that is silent for 20 s is lost; attempts take at most 10 s, then 20 s.

        The keys that were typed into the silence wait, as do those that are typed after the loss.
        """
        self.end.wait(7)
        self.end.freeze()
        self.end.link.state = "hole"
        self.server.print(b"out")
        self.client.write(b"in")
        self.end.wait(20)
        self.assertEqual(self.user.outages, ["the server has not answered for 20 seconds"])
        self.client.write(b"put")
        self.assertEqual(self.client.waiting_keys, 5)
        self.end.wait(30)
        self.assertEqual(self.end.link.attempts, 4)
        self.end.link.state = "up"
        self.end.wait(22)
        self.assertEqual((self.user.received, self.line), (b"out", [b"input"]))

    def test_unconfirmed(self) -> None:
        """
        The server owes the confirmation from the first key on that it got, or from its last one; what
        is typed into a loss was not sent.
        """
        self.assertEqual((self.client.unconfirmed, self.client.owed_seconds), ((0, 0), 0))
        self.end.wait(3)
        self.client.write(b"abc")
        self.clock.advance(1)
        self.client.write(b"d")
        self.clock.advance(1)
        self.assertEqual((self.client.unconfirmed, self.client.owed_seconds), ((4, 0), 2))
        self.end.pump()
        self.client.write(b"ef")
        self.server.acknowledge()
        self.end.pump()
        self.client.write(b"g")
        self.clock.advance(1)
        self.assertEqual(self.client.owed_seconds, 1)
        self.end.cut()
        sent, _ = self.client.unconfirmed
        self.client.write(b"hij")
        self.assertEqual(self.client.unconfirmed, (sent, 3))

    def test_gap(self) -> None:
        """Output that is no longer retained is a gap with its size."""
        self.server.print(b"one")
        self.end.pump()
        self.end.link.state = "down"
        self.end.cut()
        self.server.print(b"twothree")
        self.server.forget(6)
        self.end.link.state = "up"
        self.end.wait(1)
        self.assertEqual(self.user.items, [b"one", 3, b"three"])
        self.assertEqual(self.client.missed_bytes, 5)

    def test_caught_up(self) -> None:
        """The user learns when the output that was missed is there: once for each loss."""
        for missed in (b"", b"two"):
            self.setUp()
            self.server.print(b"one")
            self.end.pump()
            self.end.cut()
            self.server.print(missed)
            self.end.wait(1)
            self.server.print(b"three")
            self.end.pump()
            expected = [each for each in (b"one", missed, "caught up", b"three") if each]
            self.assertEqual(self.user.order, expected)

    def test_caught_up_after_pause(self) -> None:
        """So does a user whose output is paused at the return, and who knows of that before."""
        for missed in (b"", b"two"):
            self.setUp()
            self.server.print(b"one")
            self.end.pump()
            self.client.pause_output()
            self.end.cut()
            self.server.print(missed)
            self.end.wait(1)
            self.assertEqual((self.user.order, len(self.user.returns)), ([b"one"], 1))
            self.client.resume_output()
            self.end.pump()
            expected = [each for each in (b"one", missed, "caught up") if each]
            self.assertEqual(self.user.order, expected)

    def test_slow_user(self) -> None:
        """A gap can open while the stream goes on."""
        (connection,) = self.server.live
        self.server.print(b"one")
        connection.mark(At(Position(self.server.epoch, 10)))
        self.end.pump()
        self.assertEqual(self.user.items, [b"one", 7])

    def test_unknown_gap(self) -> None:
        """After a power cut of the machine's host nobody knows how much the gap has."""
        (connection,) = self.server.live
        self.server.print(b"one")
        connection.mark(At(Position(self.server.epoch, 1 << 27), exact=False))
        self.end.pump()
        self.assertEqual(self.user.items, [b"one", None])

    def test_other_journal(self) -> None:
        """Nobody knows how much output is missing between two journals."""
        self.server.print(b"one")
        self.end.pump()
        self.server.restart(new_journal=True)
        self.server.print(b"two")
        self.end.wait(1)
        self.assertEqual(self.user.items, [b"one", None, b"two"])

    def test_restarted_server(self) -> None:
        """
        Nobody knows which input a server got that was restarted: the user is told how much, and none
        of it is sent again.
        """
        self.client.write(b"abc")
        self.end.pump()
        self.server.acknowledge()
        self.end.pump()
        self.client.write(b"de")
        self.server.restart()
        self.client.write(b"f")
        self.end.wait(1)
        self.assertEqual(self.user.returns[0][1], 3)
        self.client.write(b"g")
        self.end.wait(1)
        self.assertEqual(self.line, [b"abcg"])
        self.server.restart()  # and counting goes on from 0
        self.server.acknowledge()
        self.end.wait(1)

    def test_announced_restart(self) -> None:
        """
        A server that says that it restarts has told which input its machine got: the rest is sent again, also by a
        user who has paused the output, and nothing is uncertain.
        """
        for is_paused in (False, True):
            self.setUp()
            self.server.print(b"$ ")
            self.client.write(b"abc")
            self.end.pump()
            if is_paused:
                self.client.pause_output()
                self.server.print(b"not read")
            self.server.stop("exec-runtime is\n restarting")
            self.client.write(b"de")  # it arrives behind the last Ack
            self.end.pump()
            self.server.restart()
            self.client.resume_output()
            self.end.wait(1)
            self.assertEqual(self.user.outages, ["exec-runtime is restarting"])
            self.assertEqual(self.user.returns[0][1], 0)
            self.client.write(b"f")
            self.end.wait(1)
            self.assertEqual(b"".join(self.line), b"abcdef")
            output = b"".join(each for each in self.user.items if isinstance(each, bytes))
            self.assertEqual(output, b"$ not read" if is_paused else b"$ ")
            self.server.acknowledge()
            self.client.write(b"g")
            self.end.pump()
            self.server.restart()  # and that without a word
            self.end.wait(1)
            self.assertEqual(self.user.returns[1][1], 1)

    def begin_restarted(self) -> None:
        """Lose keys in a restart; the server sends the first mark, and no position yet."""
        self.server.print(b"one")
        self.client.write(b"abc")
        self.end.pump()
        self.server.restart()
        self.server.greeting = b'{"Ack":null}\n'
        self.end.wait(1)
        self.server.greeting, self.server.sessions[0].settled = None, 0
        self.assertEqual(self.user.returns, [])

    def test_typed_before_told(self) -> None:
        """What a user types who does not know yet that keys are lost is dropped, too, and counts."""
        self.begin_restarted()
        self.client.write(b"d")
        self.end.pump()
        assert self.client.position is not None
        self.server.live[0].mark(At(self.client.position))
        self.end.pump()
        self.assertEqual((self.user.returns[0][1], self.user.unsent), (4, 1))
        self.client.write(b"e")
        self.end.wait(1)
        self.assertEqual(self.line, [b"abce"])

    def test_leave_before_told(self) -> None:
        """A user who leaves meanwhile learns of lost keys first, and does not wait for the position."""
        self.begin_restarted()
        self.client.write(b"d")
        self.client.leave()
        self.assertEqual((self.user.returns[0][1], self.user.unsent), (4, 1))
        self.end.wait(1)
        self.assertEqual((self.line, len(self.user.detached_with)), ([b"abc"], 1))

    def test_typed_while_away(self) -> None:
        """
        Keys that a user types behind uncertain ones, while the server restarts, are dropped, and
        counted apart; they are sent if no key before them is uncertain.
        """
        for is_settled in (False, True):
            self.setUp()
            self.server.print(b"$ ")
            self.client.write(b"abc")
            self.end.pump()
            if is_settled:
                self.server.acknowledge()
                self.end.pump()
            self.end.link.state = "down"
            self.end.cut()
            self.client.write(b"defg")
            self.server.restart()
            self.end.link.state = "up"
            self.end.wait(2)
            ((_, uncertain),) = self.user.returns
            dropped = (0, 0) if is_settled else (7, 4)
            self.assertEqual((uncertain, self.user.unsent), dropped)
            self.client.write(b"h")
            self.end.wait(1)
            typed = b"defgh" if is_settled else b"h"
            self.assertEqual(b"".join(self.line), b"abc" + typed)

    def test_back_late(self) -> None:
        """
        A user's keys are dropped and counted if the server is back after the time for which it keeps
        a session; later keys are sent. The input of a program is sent in any case.
        """
        for sends_late, seconds, returns, typed in (
            (False, 20, (0, 0), b"acdefg"),
            (False, 40, (4, 3), b"ag"),
            (True, 40, (0, 0), b"acdefg"),
        ):
            self.setUp()
            self.server.seconds = 30
            self.end = self.make()
            self.client = self.end.client
            self.user.sends_late = sends_late
            self.server.print(b"$ ")
            self.client.write(b"a")
            self.end.pump()
            self.server.acknowledge()
            self.end.pump()
            self.end.freeze()
            self.client.write(b"c")  # it does not reach the server
            self.end.link.state = "down"
            self.end.cut()
            self.client.write(b"def")
            self.assertIs(self.client.drops_keys, False)
            self.end.wait(seconds)
            self.assertIs(self.client.drops_keys, bool(returns[0]))
            self.end.link.state = "up"
            self.end.wait(30)
            ((_, uncertain),) = self.user.returns
            self.assertEqual((uncertain, self.user.unsent), returns)
            self.client.write(b"g")
            self.end.wait(1)
            self.assertEqual(b"".join(self.line), typed)

    def test_lost_before_told(self) -> None:
        """The user reads of lost keys although the next connection is lost at once."""
        self.begin_restarted()
        self.end.cut()
        self.end.wait(1)
        self.assertEqual([uncertain for _, uncertain in self.user.returns], [3])

    def test_paused_output(self) -> None:
        """A user who reads nothing gets nothing, over any number of connections."""
        self.server.print(b"one")
        self.end.pump()
        self.client.pause_output()
        self.server.print(b"two")
        for _ in range(2):
            self.end.pump()
            self.end.cut()
            self.server.print(b".")
            self.end.wait(1)
        self.assertEqual((self.user.received, len(self.user.returns)), (b"one", 2))
        self.client.resume_output()
        self.end.pump()
        self.assertEqual(self.user.received, b"onetwo..")

    def test_source(self) -> None:
        """The source of the input pauses when the log is full, and goes on when it has room."""
        producer = RecordingProducer()
        self.client.registerProducer(producer, True)
        self.end.link.state = "down"
        self.end.cut()
        self.client.write(b"x" * (LIMIT_PIECES - 1))
        self.assertEqual(producer.calls, [])
        self.client.write(b"x")
        self.assertEqual(producer.calls, ["pause"])
        self.end.link.state = "up"
        self.end.wait(1)
        self.assertEqual(sum(map(len, self.line)), WINDOW_PIECES)
        self.server.acknowledge()
        self.end.pump()
        self.assertEqual(producer.calls, ["pause", "resume"])
        self.assertEqual(self.line, [b"x" * LIMIT_PIECES])

    def test_source_that_acts(self) -> None:
        """A source that may go on after a loss can pause the output, leave or abort; the user learns of the loss once."""

        class Source(RecordingProducer):
            def resumeProducing(self) -> None:
                super().resumeProducing()
                act()

        for name in ("pause_output", "leave", "abort"):
            self.setUp()
            self.server.print(b"$ ")
            self.end.pump()
            act = getattr(self.client, name)
            source = Source()
            self.client.registerProducer(source, True)
            self.client.write(b"x" * LIMIT_PIECES)
            self.server.restart()
            self.end.wait(1)
            self.assertEqual(source.calls, ["pause", "resume"], name)
            self.assertEqual(len(self.user.returns), name != "abort", name)
            self.assertEqual(len(self.user.detached_with), name != "pause_output", name)
            if name == "pause_output":
                self.client.resume_output()
                self.server.print(b"on")
                self.end.pump()
                self.assertIn(b"on", self.user.received)

    def test_blocked(self) -> None:
        """Input waits for a transport that is full."""
        mine = self.end.network.transports[0]
        mine.producer.pauseProducing()
        self.client.write(b"a")
        self.end.pump()
        self.assertEqual(self.line, [])
        mine.producer.resumeProducing()
        self.end.pump()
        self.assertEqual(self.line, [b"a"])

    def test_no_callbacks(self) -> None:
        """A user without the further callbacks reads messages and gaps in the output."""
        user = RecordingUser()
        self.end = self.make(user)
        self.client = self.end.client
        self.client.write(b"ab")
        self.end.pump()
        self.server.notice("hi\x1b[2J")
        self.end.pump()
        self.server.restart(new_journal=True)
        self.end.wait(1)
        self.assertEqual(
            user.received.decode(),
            "\r\n[twisted-exec: hi?[2J]\r\n"
            "\r\n[twisted-exec: the connection was lost: 2 keys may not have reached the machine]\r\n"
            "\r\n[twisted-exec: output is missing here]\r\n",
        )

    def test_lost_before_position(self) -> None:
        """A session that is lost before its first marks begins anew; its input is uncertain."""
        self.server = ResumableConsole(self.clock)
        self.server.print(b"one")
        self.server.greeting = b""
        self.end = self.make()
        self.client = self.end.client
        self.client.write(b"ab")
        self.end.pump()
        self.server.greeting = None
        self.end.cut()
        self.end.wait(1)
        self.assertEqual(self.server.requests, [None, None])
        self.assertEqual((self.user.items, self.user.returns[0][1]), ([b"one"], 2))
        self.client.write(b"c")
        self.end.cut()
        self.end.wait(1)
        self.assertEqual(self.line, [b"abc"])

    def test_no_keys_shown(self) -> None:
        """Keys are in no representation of the client's objects."""
        key = self.server.live[0].key
        for shown in instances(self.client, object, beside=[self.server]):
            if type(shown).__module__.startswith("twisted_exec.streaming.remotecommand"):
                self.assertNotIn(key, repr(shown))


class AnswerTests(ResumingCase):
    """Pings, by which the server knows what was typed before a start of the machine."""

    RESTARTED = Notice("the machine has started again", NoticeKind.RESTARTED)

    def setUp(self) -> None:
        super().setUp()
        self.server.print(b"$ ")
        self.end.pump()
        self.user.sends_late = False
        self.asked()

    def asked(self) -> int:
        """Send a ping; return the number of answers since the last call."""
        self.server.ask()
        return self.answers()

    def answers(self) -> int:
        self.end.pump()
        answers, self.server.answers = self.server.answers, 0
        return answers

    def wait(self, seconds: float) -> int:
        """Let time pass; return the number of answers since the last call."""
        self.clock.advance(seconds)
        return self.answers()

    def test_restarted(self) -> None:
        """Behind a start of the machine a ping is answered when the user types no more."""
        self.client.write(b"a")
        self.assertEqual(self.asked(), 1)
        self.server.notice(self.RESTARTED)
        self.assertEqual((self.asked(), self.wait(0.6)), (0, 0))
        self.client.write(b"b")
        self.assertEqual(self.wait(0.6), 0)
        self.client.write(b"\x1b[<0;1;1M")  # the mouse types nothing
        self.assertEqual(self.wait(0.3), 0)
        self.assertEqual(self.line, [b"ab\x1b[<0;1;1M"])  # the server discards and counts it
        self.assertEqual(self.wait(0.2), 1)
        self.client.write(b"c")
        self.assertEqual(self.asked(), 1)

    def test_quiet_user(self) -> None:
        """It is answered at once to a user who has typed nothing for a second."""
        self.client.write(b"a")
        self.assertEqual(self.wait(1), 0)
        self.server.notice(self.RESTARTED)
        self.assertEqual(self.asked(), 1)

    def test_request(self) -> None:
        """A request, such as a BREAK, counts as typed."""
        self.client.wish(Break())
        self.server.notice(self.RESTARTED)
        self.assertEqual((self.asked(), self.wait(0.9), self.wait(0.2)), (0, 0, 1))

    def test_program(self) -> None:
        """A program, which types by what it reads, is not held up."""
        self.user.sends_late = True
        self.client.write(b"a")
        self.server.notice(self.RESTARTED)
        self.assertEqual(self.asked(), 1)
        self.end.cut()
        self.client.write(b"b")
        self.end.wait(0.5)
        self.assertEqual((len(self.user.returns), self.answers()), (1, 1))

    def test_resumed(self) -> None:
        """So it is behind an outage, in which the machine may have started again."""
        self.server.notice(self.RESTARTED)
        self.client.write(b"a")
        self.asked()
        self.end.cut()
        self.client.write(b"b")
        self.end.wait(0.5)
        self.assertEqual((len(self.user.returns), self.line), (1, [b"ab"]))
        self.assertEqual(self.answers(), 0)
        self.end.wait(0.6)
        self.assertEqual(self.answers(), 1)

    def test_paused_output(self) -> None:
        """A user who has not got the notice yet does not answer the ping behind it."""
        self.client.pause_output()
        self.server.notice(self.RESTARTED)
        self.assertEqual(self.asked(), 0)
        self.client.write(b"a")
        self.client.resume_output()
        self.assertEqual((self.answers(), self.wait(1.1)), (0, 1))

    def test_leave(self) -> None:
        """Nothing waits behind the end."""
        self.client.write(b"a")
        self.server.notice(self.RESTARTED)
        self.asked()
        self.client.leave()
        self.end.pump()
        self.assert_over("connection closed")


class EndTests(ResumingCase):
    """Ends of a session."""

    def lose(self) -> None:
        self.end.link.state = "down"
        self.end.cut()

    def test_refused(self) -> None:
        """A session that the server no longer has ends with the reason."""
        self.lose()
        self.end.wait(90)
        self.server.expire()
        self.end.link.state = "up"
        self.end.wait(2)
        self.assert_over(
            "the session could not be resumed: refused with 404; the server keeps a lost session for"
            " 60 s; open the console again"
        )

    def test_refused_early(self) -> None:
        """Before the server's time is over, the reason says nothing about it."""
        self.refuse(NotFound("exec", "vm"))
        self.assertNotIn("keeps a lost session", self.user.detached_with[0])

    def test_refused_without_account(self) -> None:
        """The user decides whether there is anything to say about the keys."""
        self.user.dropped = lambda dropped, unsent: ""
        self.refuse(NotFound("exec", "vm"))
        self.assertTrue(self.user.detached_with[0].endswith("; open the console again"))

    def refuse(self, refusal: APIError) -> None:
        """Lose the connection, type three keys, and refuse the next attempt."""
        self.lose()
        self.client.write(b"ls\r")
        self.server.refusals = [refusal]
        self.end.link.state = "up"
        self.end.wait(2)

    def check_deletion(self, refusal: APIError, message: str) -> None:
        self.refuse(refusal)
        message += "; 3 keys typed meanwhile were discarded"
        self.assertEqual(self.user.endings, [Ending(MACHINE_DELETED, message)])
        self.assert_over(message)

    def test_deleted(self) -> None:
        """
        A session whose machine was deleted during the outage ends as one that is open at that time,
        and says which keys are lost.
        """
        gone = NotFound("machines", "vm", "compute.ironcore.dev")
        self.check_deletion(gone, 'machine "vm" was deleted')

    def test_being_deleted(self) -> None:
        """So does one whose machine is still being deleted, in the words of the server."""
        refusal = Conflict('machine "vm" is being deleted; see its log')
        self.check_deletion(because(Obstacle.BEING_DELETED, refusal), refusal.message)

    def test_recreated(self) -> None:
        """So does one whose machine's name another machine has now."""
        refusal = NotFound(
            "machines", "vm", message='machine "vm" was deleted; another has its name'
        )
        self.check_deletion(because(Obstacle.RECREATED, refusal), refusal.message)

    def check_no_deletion(self, refusal: APIError) -> None:
        self.refuse(refusal)
        self.assertEqual(self.user.endings, [])
        self.assertIn("could not be resumed", self.user.detached_with[0])

    def test_unknown_session(self) -> None:
        """A server that does not have the session does not say that the machine was deleted."""
        self.check_no_deletion(NotFound("exec", "vm"))

    def test_unknown_at_runtime(self) -> None:
        """Nor does a runtime that does not know the machine."""
        self.check_no_deletion(NotFound("machines", "vm"))

    def test_other_pool(self) -> None:
        """Nor does the poollet of a pool that the machine has left."""
        unknown = NotFound("machines", "vm", "compute.ironcore.dev")
        self.check_no_deletion(because(Obstacle.NOT_IN_POOL, unknown))

    def test_refused_keys(self) -> None:
        """The reason says how many keys are lost: those that were sent last, and those typed since."""
        sent = "2 keys may not have reached the machine"
        for typed, ends in (
            ((b"", b"abc"), "3 keys typed meanwhile were discarded"),
            ((b"ls", b""), sent),
            ((b"ls", b"\r"), f"{sent}; 1 key typed after that was discarded"),
        ):
            self.setUp()
            self.end.link.state = "down"
            for part in typed:
                if part:
                    self.client.write(part)
                if part is typed[0]:
                    self.end.pump()
                    self.lose()
            self.end.wait(90)
            self.server.expire()
            self.end.link.state = "up"
            self.end.wait(2)
            self.assertTrue(self.user.detached_with[0].endswith(f"again; {ends}"), ends)

    def test_beyond_the_end(self) -> None:
        """So does one whose output the server does not know."""
        self.server.print(b"abc")
        self.end.pump()
        self.lose()
        self.server.journal.clear()
        self.end.link.state = "up"
        self.end.wait(2)
        self.assertIn("refused with 400", self.user.detached_with[0])

    def test_busy(self) -> None:
        """A server that is busy, or not there, is tried again."""
        self.lose()
        self.server.refusals = [(503, None), (429, 3), (502, None), (504, None)]
        self.end.link.state = "up"
        self.end.wait(3.1)
        self.assertEqual(self.user.returns, [])
        self.end.wait(3)
        self.assertEqual(len(self.user.returns), 1)

    def test_hindrance(self) -> None:
        """While no attempt succeeds, the reason of the last failure is known."""
        self.lose()
        self.assertEqual(self.end.client.hindrance, "")
        self.end.wait(2)
        self.assertIn("refused", self.end.client.hindrance)

    def test_no_answer(self) -> None:
        """A server that cannot resume sessions at all is recognised."""
        self.server.print(b"one")
        self.end.pump()
        self.lose()
        self.server.agrees = False
        self.server.print(b"two")
        self.end.link.state = "up"
        self.end.wait(2)
        self.assertEqual(self.user.received, b"one")
        self.assert_over(
            "the session could not be resumed: the server cannot resume this session;"
            " open the console again"
        )

    def test_status_without_answer(self) -> None:
        """The status of a session that is not this one is not this one's."""
        self.lose()
        self.server.agrees = False
        self.end.link.state = "up"
        self.clock.advance(0.2)
        mine = self.end.network.transports[-2]
        while not self.server.live:
            mine.step(1 << 16)
        self.server.end(Ending(COMPLETED))
        self.end.wait(1)
        self.assertEqual(self.user.endings, [])
        self.assertIn("the server cannot resume this session", self.user.detached_with[0])

    def test_leave(self) -> None:
        """Leaving closes the session behind the input so far."""
        self.client.write(b"x" * (WINDOW_PIECES + 10))
        self.client.leave()
        self.client.write(b"too late")
        self.end.pump()
        self.server.print(b"not for this user")
        self.server.acknowledge()
        self.end.pump()
        self.assertEqual(self.line, [b"x" * (WINDOW_PIECES + 10)])
        self.assertEqual((self.user.received, self.server.sessions), (b"", []))
        self.assert_over("connection closed")

    def test_leave_stuck(self) -> None:
        """A machine that takes no input does not keep a user who leaves."""
        self.client.write(b"x" * (WINDOW_PIECES + 10))
        self.client.leave()
        self.end.wait(6)
        self.assertEqual(self.server.sessions, [])
        self.assert_over("connection closed")

    def test_leave_lost(self) -> None:
        """A loss while the user leaves is the end."""
        self.client.write(b"x" * (WINDOW_PIECES + 10))
        self.client.leave()
        self.end.cut()
        self.assertEqual(self.user.outages, [])
        self.assert_over(LOST)

    def test_leave_without_connection(self) -> None:
        """Without a connection, or while an attempt is made, leaving ends at once."""
        for act in ("leave", "abort"):
            for state in ("down", "hole", "up"):
                self.setUp()
                self.lose()
                self.end.link.state = state
                self.clock.advance(0.15)
                getattr(self.client, act)()
                self.assertEqual(len(self.user.detached_with), 1)
                getattr(self.client, act)()
                self.assert_over(self.user.detached_with[0])

    def test_user_without_notices(self) -> None:
        """A user that has no place for notices gets them in the output, but no messages of other users."""
        self.end = self.make(RecordingUser())
        self.server.notice("one")
        self.server.notice(Notice('message from bob: "two"', NoticeKind.SAID))
        self.end.pump()
        self.assertEqual(self.user.received, Notice("one").output)

    def test_leave_in_callbacks(self) -> None:
        """The user may leave from any callback."""

        class Leaving(ResumingUser):
            where = ""

            def outage(self, reason: str) -> None:
                super().outage(reason)
                self.leave_at("outage")

            def resumed(self, seconds: float, uncertain: int, unsent: int) -> None:
                super().resumed(seconds, uncertain, unsent)
                self.leave_at("resumed")

            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                self.leave_at("data")

            def leave_at(self, where: str) -> None:
                if where == self.where:
                    self.stream.leave()

        for where in ("outage", "resumed", "data"):
            self.end = self.make(Leaving())
            self.client = self.end.client
            self.user.where = where
            self.lose()
            self.server.print(b"one")
            self.end.link.state = "up"
            self.end.wait(2)
            self.assertEqual(len(self.user.detached_with), 1, where)
            self.server.expire()
            self.assertEqual(self.server.sessions[1:], [])

    def test_abort(self) -> None:
        """Aborting resets the connection, and there is no other."""
        self.client.abort()
        self.end.pump()
        self.assert_over("connection lost")
        self.assertEqual(self.end.link.attempts, 1)

    def test_ended_at_once(self) -> None:
        """A status instead of the first Ack, or of the position behind it, ends the session too."""
        for greeting in (b"", b'{"Ack":null}\n'):
            self.setUp()
            self.lose()
            self.assertEqual(self.server.live, [])
            self.server.greeting = greeting
            self.end.link.state = "up"
            self.clock.advance(0.2)
            while not self.server.live:
                self.end.step()
            self.server.end(Ending(COMPLETED))
            self.end.wait(1)
            self.assertEqual(self.user.endings, [Ending(COMPLETED)])
            self.assert_over("connection closed")

    def test_broken_at_once(self) -> None:
        """A server that breaks the protocol behind the first Ack ends the session."""
        self.lose()
        self.server.greeting = b'{"Ack":null}\n' * 2
        self.end.link.state = "up"
        self.end.wait(1)
        why = "an Ack without a number is not at the beginning"
        self.assert_over(f"the server broke the protocol: {why}")

    def test_resumed_elsewhere(self) -> None:
        """The status Resumed ends a session that has not been resumed by this client."""
        self.server.end(Ending(RESUMED, "by another client"))
        self.end.pump()
        self.assertEqual(self.user.endings, [Ending(RESUMED, "by another client")])
        self.assert_over("connection closed")

    def test_late_attempt(self) -> None:
        """
        An attempt that was given up may arrive late, and end the connection that came after it.  Then
        the key before is still valid.
        """
        earlier = self.server.sessions[0].keys
        self.end.cut()
        self.end.wait(1)
        (connection,), (session,) = self.server.live, self.server.sessions
        session.keys, session.connection = dict(earlier), None
        connection.carrier.send_status(encode_ending(Ending(RESUMED, "late"), self.protocol))
        connection.carrier.close()
        self.server.print(b"out")
        self.client.write(b"in")
        self.end.wait(1)
        self.assertEqual((self.user.endings, len(self.user.returns)), ([], 2))
        self.assertEqual((self.user.received, self.line), (b"out", [b"in"]))

    def test_mistakes(self) -> None:
        """A server that breaks the protocol ends the session; the client does not come back."""
        for marks, problem in (
            (b'{"Ack":7}\n', "7 pieces of input are settled, of 0 to 0"),
            (b'{"Ack":null}\n', "an Ack without a number is not at the beginning"),
            (b'{"Ack":[]}\n', "a mark Ack has no valid number"),
            (encode_mark(At(Position("0" * 15 + "1", 0))), "the output goes back"),
        ):
            self.setUp()
            self.server.print(b"one")
            self.server.live[0].carrier.send(Channel.RESIZE, marks)
            self.end.wait(10)
            (reason,) = self.user.detached_with
            self.assertIn(f"the server broke the protocol: {problem}", reason)
            self.assertEqual(self.end.link.attempts, 1)

    def test_mistakes_of_resumed_stream(self) -> None:
        """So does one that breaks it when the session is resumed."""
        for marks in (
            b'{"Ack":7}\n',
            encode_mark(Notice("x")),
            encode_mark(At(Position("0" * 16, 0))),
        ):
            self.setUp()
            self.lose()
            self.server.greeting = marks
            self.end.link.state = "up"
            self.end.wait(10)
            (reason,) = self.user.detached_with
            self.assertIn("could not be resumed: the server broke the protocol", reason)


class VectorTests(SynchronousTestCase):
    """The steps in ``resume_vectors.json``, which the page's tests take, too."""

    def test_vectors(self) -> None:
        """Each step has the result that the file says."""
        for vector in json.loads(VECTORS.read_text()):
            for case in vector.get("cases", [None]):
                self.clock = Clock()
                self.server = ResumableConsole(self.clock)
                self.end: Any = None
                self.is_lost, self.name = False, f"{vector['name']}: {case}"
                if case is None:
                    steps = vector["steps"]
                else:
                    marks, broken = {"marks": case["marks"]}, {"expect": {"broken": case["broken"]}}
                    steps = [*vector["opening"], marks, broken]
                for step in steps:
                    ((name, value),) = step.items()
                    getattr(self, f"step_{name}")(value)
                    self.end.pump()
                self.step_expect({})

    def step_requests(self, requests: list[Any]) -> None:
        """The client asks for a connection with these texts; the server refuses, or sends these marks."""
        before = len(self.server.heads)
        self.server.refusals = [(each["refused"], None) for each in requests if "refused" in each]
        self.server.greeting = b"".join(map(mark_bytes, requests[-1]["answer"]))
        if self.end is None:
            self.end = Client(self.server, self.clock)
            self.client, self.user = self.end.client, self.end.user
        else:
            self.end.link.state = "up"
            self.end.wait(1)
        texts = [head["x-twisted-exec-resume"] for _, head in self.server.heads[before:]]
        self.assertEqual(texts, [each["text"] for each in requests], self.name)

    def step_lose(self, _: object) -> None:
        self.end.link.state = "down"
        self.end.cut()

    def step_type(self, text: str) -> None:
        self.client.write(text.encode())

    def step_break(self, milliseconds: int) -> None:
        self.client.wish(Break(milliseconds))

    def step_role(self, role: str) -> None:
        self.client.wish(Role(role))

    def step_marks(self, marks: list[Any]) -> None:
        for mark in marks:
            self.server.connections[-1].carrier.send(Channel.RESIZE, mark_bytes(mark))

    def step_output(self, text: str) -> None:
        self.server.connections[-1].carrier.send(Channel.STDOUT, text.encode())

    def step_expect(self, expected: dict[str, Any]) -> None:
        """Compare what has happened since the last time; nothing else may have happened."""
        sent: list[Any] = []
        for item in self.server.line:
            if isinstance(item, Break):
                sent.append({"Break": item.milliseconds})
            elif isinstance(item, Role):
                sent.append({"Role": item.value})
            elif sent and isinstance(sent[-1], str):
                sent[-1] += item.decode()
            else:
                sent.append(item.decode())
        items = self.user.items
        lost = [uncertain for _, uncertain in self.user.returns if uncertain]
        unsent = self.user.unsent
        happened = {
            "sent": sent,
            "output": b"".join(each for each in items if isinstance(each, bytes)).decode(),
            "skipped": [each for each in items if not isinstance(each, bytes)],
            "uncertain": {"sent": lost[0] - unsent, "unsent": unsent} if lost else None,
        }
        broken = expected.get("broken")
        nothing = {"sent": [], "output": "", "skipped": [], "uncertain": None}
        if broken is not None:
            (why,) = self.user.detached_with
            self.assertIn(f"the server broke the protocol: {broken}", why, self.name)
            self.user.detached_with.clear()
        else:
            self.assertEqual(happened, {**nothing, **expected}, self.name)
        self.assertEqual(self.user.detached_with, [], self.name)
        for each in (self.server.line, items, self.user.returns):
            each.clear()


def mark_bytes(mark: Any) -> bytes:
    """Return a mark of a vector as it is sent; a text is sent as it is."""
    return (mark if isinstance(mark, str) else json.dumps(mark) + "\n").encode()


class Version4Tests(ResumingCase):
    """Version 4, which cannot signal the end of input."""

    protocol = V4

    def test_end_of_input(self) -> None:
        """The end of input is an error of the caller; everything else works."""
        with self.assertRaises(LocalProtocolError):
            self.client.end_input()
        self.client.write(b"a")
        self.end.cut()
        self.server.print(b"out")
        self.end.wait(1)
        self.assertEqual((self.user.received, self.line), (b"out", [b"a"]))
