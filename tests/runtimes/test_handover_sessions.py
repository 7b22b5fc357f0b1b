"""
Tests for :mod:`twisted_exec.runtimes.handover`, and for streams that stay behind.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.runtimes.processes import Runtime
from tests.streaming.frames import masked
from twisted_exec.console.line import LineEnded
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    MACHINE_DELETED,
    SHUTTING_DOWN,
    Ending,
    Role,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.carriers import OVER_SPDY
from twisted_exec.wire import spdy_headers
from twisted_exec.wire.channel import V4, V5
from twisted_exec.wire.resize import Break, Message
from twisted_exec.wire.session_terms import Right, Terms


class SessionsCase(SynchronousTestCase):
    """A runtime that is replaced."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.runtime = Runtime(self.clock)

    def live(self, number: int = -1) -> Any:
        """The sessions in the registry of a process."""
        processes = [*self.runtime.retired, self.runtime.process]
        return processes[number].server.sessions.live()


class InvalidStateTests(SessionsCase):
    """State of a process that is none."""

    def test_refused(self) -> None:
        """It is refused with an error that says what is wrong."""
        self.runtime.ours()
        values = self.runtime.process.freeze()
        session = values["sessions"][0]
        for damaged in (
            {**values, "sessions": [{**session, "viewer": {}}]},
            {**values, "sessions": [[]]},
            {key: value for key, value in values.items() if key != "kept"},
        ):
            with self.assertRaisesRegex(ValueError, "these are no sessions of a runtime"):
                self.runtime.process.sessions.restore(damaged)


class OurClientTests(SessionsCase):
    """Sessions that their clients resume."""

    def test_exact(self) -> None:
        """Output and input go on exactly, several times, and the user reads nothing about it."""
        ours = self.runtime.ours()
        for number in range(5):
            self.runtime.print(b"before %d " % number)
            ours.client.write(b"a%d" % number)
            self.runtime.pass_seconds(1)
            values = self.runtime.process.freeze()
            ours.client.write(b"b%d" % number)
            self.runtime.pass_seconds(0.01)
            self.runtime.upgrade(values)
            ours.client.write(b"c%d" % number)
            self.runtime.print(b"after %d " % number)
            self.runtime.pass_seconds(2)
        self.assertEqual(ours.user.received, bytes(self.runtime.printed))
        self.assertEqual(self.runtime.typed, b"".join(b"a%db%dc%d" % (n, n, n) for n in range(5)))
        self.assertEqual(ours.user.notices, [])
        self.assertEqual([uncertain for _, uncertain in ours.user.returns], [0] * 5)
        self.assertTrue(all(seconds < 0.2 for seconds, _ in ours.user.returns))

    def test_away(self) -> None:
        """The session of a user who is away waits in the next process."""
        ours = self.runtime.ours()
        ours.client.write(b"ls")
        self.runtime.pass_seconds(1)
        ours.link.state = "down"
        ours.cut()
        self.assertTrue(self.runtime.process.server.kept_sessions.waits_for("ann", "uid-x"))
        self.runtime.upgrade()
        self.runtime.pump()
        self.assertTrue(self.runtime.process.server.kept_sessions.waits_for("ann", "uid-x"))
        ours.client.write(b"\r")
        ours.link.state = "up"
        self.runtime.pass_seconds(5)
        self.assertEqual(self.runtime.typed, b"ls\r")
        self.assertEqual(ours.user.returns[0][1], 0)

    def test_not_back(self) -> None:
        """A session that nobody resumes ends in the next process."""
        ours = self.runtime.ours()
        ours.link.state = "down"
        self.runtime.upgrade()
        self.runtime.pass_seconds(59)
        self.assertEqual(len(self.runtime.process.shared.viewers), 1)
        self.runtime.pass_seconds(2)
        self.assertEqual(self.runtime.process.shared.viewers, ())

    def test_many_of_a_user(self) -> None:
        """More sessions of one user move than may be away at once."""
        clients = [self.runtime.ours() for _ in range(20)]
        self.runtime.upgrade()
        self.runtime.pass_seconds(2)
        for each in clients:
            self.assertEqual((len(each.user.returns), each.user.detached_with), (1, []))
        self.assertEqual(len(self.live()), 20)
        self.assertEqual(self.live(0), [])

    def test_used_key(self) -> None:
        """A key that was used in the former process is worth nothing in the next one."""
        ours = self.runtime.ours()
        first = ours.client._keys[0]
        ours.cut()
        self.runtime.pass_seconds(1)
        ours.client.write(b"x")
        self.runtime.pass_seconds(1)
        self.runtime.upgrade()
        ours.client._keys = [first]
        self.runtime.pass_seconds(2)
        (reason,) = ours.user.detached_with
        self.assertIn("no such session to resume", reason)

    def test_tokens(self) -> None:
        """A token that was not used yet opens a console in the next process."""
        head = self.runtime.head()
        self.runtime.upgrade()
        self.assertEqual(self.runtime.process.cache.outstanding, 1)
        self.runtime.head = lambda user="ann": head  # type: ignore[method-assign]
        user = self.runtime.stock()
        self.runtime.print(b"ok")
        self.runtime.pump()
        self.assertEqual(user.received, b"ok")

    def test_failed(self) -> None:
        """If the successor fails, streams go on as if nothing had been."""
        ours, stock = self.runtime.ours(), self.runtime.stock("bob")
        self.runtime.process.freeze()
        ours.client.write(b"ls")
        self.runtime.pass_seconds(3)
        self.runtime.process.thaw()
        self.runtime.print(b"files")
        self.runtime.pass_seconds(1)
        self.assertEqual(self.runtime.typed, b"ls")
        self.assertEqual(ours.user.received, b"files")
        self.assertTrue(stock.received.endswith(b"files"))
        self.assertEqual(ours.user.outages, [])


class StockClientTests(SessionsCase):
    """Streams that the hop before rejoins in the next process."""

    def test_exact(self) -> None:
        """Output and input go on exactly over several upgrades, with each protocol."""
        for protocol in (V5, V4, OVER_SPDY):
            runtime = self.runtime = Runtime(self.clock)
            stock = runtime.stock(protocol=protocol)
            for number in range(4):
                runtime.print(b"before %d " % number)
                stock.stream.write(b"a%d" % number)
                runtime.pass_seconds(1)
                values = runtime.process.freeze()
                stock.stream.write(b"b%d" % number)
                runtime.pass_seconds(0.1)
                runtime.upgrade(values)
                stock.stream.write(b"c%d" % number)
                runtime.print(b"after %d " % number)
                runtime.pass_seconds(2)
            self.assertEqual(stock.received, bytes(runtime.printed), protocol)
            self.assertEqual(runtime.typed, b"".join(b"a%db%dc%d" % (n, n, n) for n in range(4)))
            self.assertEqual((stock.endings, stock.detached_with), ([], []))

    def test_at_any_byte(self) -> None:
        """It goes on exactly if it is replaced in the middle of messages, and what is on the way stays."""
        for protocol, turns in product((V5, V4, OVER_SPDY), range(0, 72, 3)):
            runtime = self.runtime = Runtime(self.clock)
            stock = runtime.stock(protocol=protocol)
            for number in range(2):
                runtime.print(b"some output %d, " % number)
                stock.stream.write(b"some input %d, " % number)
                stock.stream.resize(TerminalSize(100 + number, 30))
                for _ in range(turns):
                    runtime.step(1)
                values = runtime.process.freeze()
                stock.stream.write(b"more input %d, " % number)
                for _ in range(turns % 7):
                    runtime.step(1)
                runtime.upgrade(values)
            runtime.print(b"last")
            runtime.pass_seconds(3)
            where = f"{protocol}, {turns} turns"
            self.assertEqual((stock.endings, stock.received), ([], bytes(runtime.printed)), where)
            typed = [b"some input %d, more input %d, " % (number, number) for number in range(2)]
            self.assertEqual(runtime.typed, b"".join(typed), where)
            self.assertEqual(runtime.process.shared.size, TerminalSize(101, 30), where)

    def test_fragments(self) -> None:
        """A message of which only some fragments have come arrives whole."""
        message = masked(b"\x00ab", fin=False) + masked(b"cd", 0, fin=False) + masked(b"ef", 0)
        for size in range(len(message)):
            runtime = self.runtime = Runtime(self.clock)
            hop = runtime.hop("offer")
            key = re.search(rb"key=([^;\r]+)", hop.got)[1].decode()  # type: ignore[index]
            hop.transport.write(message[:size])
            runtime.pump()
            runtime.upgrade()
            hop = runtime.hop(f"key={key}; received=0", session="s1")
            received = int(re.search(rb"received=(\d+)", hop.got)[1])  # type: ignore[index]
            hop.transport.write(message[received:])
            runtime.pump()
            self.assertEqual(runtime.typed, b"abcdef", size)

    def test_waiting_input(self) -> None:
        """Input that the machine does not take yet waits in the next process."""
        stock = self.runtime.stock()
        self.runtime.process.shared.viewers[0].pause_input()
        stock.stream.write(b"a")
        stock.stream.wish(Break(300))
        stock.stream.wish(Role.OBSERVER)
        stock.stream.end_input()
        self.runtime.pump()
        self.assertEqual(self.runtime.typed, b"")
        self.runtime.upgrade()
        self.runtime.pass_seconds(1)
        self.assertEqual(self.runtime.process.line.items, [b"a", Break(300)])
        self.runtime.pass_seconds(5)
        self.assertEqual([each.reason for each in stock.endings], [COMPLETED])

    def test_acknowledged(self) -> None:
        """Answers to pings of the former process count; what they acknowledge is no longer kept."""
        for protocol in (V5, OVER_SPDY):
            runtime = self.runtime = Runtime(self.clock)
            runtime.stock(protocol=protocol)
            runtime.print(bytes(60 << 10))
            runtime.pass_seconds(1)
            runtime.print(bytes(10 << 10))
            values = runtime.process.freeze()
            _, first, _, pings = values["sessions"][0]["stream"]["state"]["transport"]
            self.assertEqual((first, len(pings)), (0, 1), protocol)
            runtime.upgrade(values)
            runtime.pass_seconds(1)
            (session,) = runtime.process.freeze()["sessions"]
            _, first, _, pings = session["stream"]["state"]["transport"]
            self.assertGreater(first, 70 << 10, protocol)
            self.assertEqual(pings, [], protocol)

    def test_long_freeze(self) -> None:
        """Pings that are due while the process is frozen do not count, unless it goes on."""
        for is_replaced, protocol in product((True, False), (V5, OVER_SPDY)):
            runtime = self.runtime = Runtime(self.clock)
            stock = runtime.stock(protocol=protocol)
            values = runtime.process.freeze()
            stock.stream.write(b"ls")
            runtime.pass_seconds(45)
            self.assertEqual(runtime.typed, b"")
            if is_replaced:
                runtime.upgrade(values)
            else:
                runtime.process.thaw()
            runtime.print(b"files")
            runtime.pass_seconds(100)
            self.assertEqual((stock.received, stock.endings), (b"files", []))
            self.assertEqual(runtime.typed, b"ls")

    def test_question(self) -> None:
        """A ping of a client that reads nothing is answered by the next process."""
        hop = self.runtime.hop("offer")
        key = re.search(rb"key=([^;\r]+)", hop.got)[1].decode()  # type: ignore[index]
        received = len(hop.got.partition(b"\r\n\r\n")[2])
        server_end = self.runtime.network.transports[1]
        self.runtime.frozen.add(server_end)
        for _ in range(8):
            self.runtime.print(bytes(32 << 10))
        hop.transport.write(masked(b"are you there?", 9))
        self.runtime.pass_seconds(1)
        self.runtime.upgrade()
        hop = self.runtime.hop(f"key={key}; received={received}", session="s1")
        self.runtime.pass_seconds(1)
        self.assertEqual(hop.got.count(b"\x8a\x0eare you there?"), 1)

    def test_large_headers(self) -> None:
        """Over SPDY, headers that are too large to be kept end the session with the reason."""
        self.patch(spdy_headers, "_MAX_REPLAY_BYTES", 20)
        stock, other = self.runtime.stock(protocol=OVER_SPDY), self.runtime.stock("bob")
        self.runtime.upgrade()
        self.runtime.print(b"last")
        self.runtime.pass_seconds(1)
        self.assertEqual([each.reason for each in stock.endings], [SHUTTING_DOWN])
        self.assertEqual((other.received[-4:], other.endings), (b"last", []))

    def test_replaced_again_at_once(self) -> None:
        """A successor that is replaced before the stream has resumed there loses nothing."""
        for turns, frozen_turns in product(range(8), range(4)):
            runtime = self.runtime = Runtime(self.clock)
            stock = runtime.stock()
            runtime.upgrade()
            stock.stream.write(b"ls")
            for _ in range(turns):
                runtime.step()
            values = runtime.process.freeze()
            for _ in range(frozen_turns):
                runtime.step()
            runtime.upgrade(values)
            runtime.print(b"files")
            runtime.pass_seconds(3)
            self.assertEqual((stock.endings, stock.received), ([], b"files"))
            self.assertEqual(runtime.typed, b"ls")

    def test_messages(self) -> None:
        """Messages between users are not in a stock client's output."""
        stock, ours = self.runtime.stock("bob"), self.runtime.ours()
        for number in range(3):
            ours.client.say(Message(f"hello {number}"))
            self.runtime.pass_seconds(1)
            self.runtime.upgrade()
            self.runtime.pass_seconds(2)
        text = "your message to 0 viewers (1 more cannot show it)"
        receipts = [f'{text}: "hello {number}"' for number in range(3)]
        self.assertEqual([each for each in ours.user.notices if "message" in each], receipts)
        self.assertNotIn(b"message", stock.received)
        self.assertNotIn(b"hello", stock.received)

    def test_exit_code(self) -> None:
        """The end of the machine reaches the user, with reason and exit code."""
        stock = self.runtime.stock()
        self.runtime.upgrade()
        self.runtime.pass_seconds(1)
        self.runtime.print(b"bye")
        ending = Ending(COMPLETED, "the process ended with exit code 3", 3)
        self.runtime.process.line.close(LineEnded(ending))
        self.runtime.pass_seconds(1)
        self.assertEqual((stock.received, stock.endings), (b"bye", [ending]))
        self.assertTrue(self.runtime.retired[0].retiring.called)  # type: ignore[union-attr]

    def test_roles(self) -> None:
        """Roles move, and notices about them reach the user."""
        ann, bob = self.runtime.stock("ann"), self.runtime.stock("bob")
        bob.received = b""
        self.runtime.upgrade()
        self.runtime.pass_seconds(1)
        self.assertEqual((ann.received, bob.received), (b"", b""))
        bob.stream.wish(Role.WRITER)
        self.runtime.pass_seconds(1)
        self.assertIn(b"bob has taken over this console", ann.received)
        bob.stream.write(b"b")
        self.runtime.pass_seconds(1)
        ann.stream.write(b"a")
        self.runtime.pass_seconds(1)
        self.assertEqual(self.runtime.typed, b"b")
        self.assertIn(b"what you type is not sent", ann.received)

    def test_size(self) -> None:
        """The size of the terminal is known, and may change."""
        stock = self.runtime.stock()
        stock.stream.resize(TerminalSize(100, 30))
        self.runtime.pass_seconds(1)
        self.runtime.upgrade()
        self.runtime.pass_seconds(1)
        stock.stream.resize(TerminalSize(90, 20))
        self.runtime.pass_seconds(1)
        self.assertEqual(set(self.runtime.process.line.sizes[:-1]), {TerminalSize(100, 30)})
        self.assertEqual(self.runtime.process.line.sizes[-1], TerminalSize(90, 20))

    def test_end_of_input(self) -> None:
        """A script that ends its input ends when the machine is quiet."""
        stock = self.runtime.stock()
        self.runtime.upgrade()
        stock.stream.write(b"date\r")
        stock.stream.end_input()
        self.runtime.pass_seconds(1)
        self.runtime.print(b"Sunday")
        self.runtime.pass_seconds(4)
        self.assertEqual(self.runtime.typed, b"date\r")
        self.assertEqual([each.reason for each in stock.endings], [COMPLETED])

    def test_leaves(self) -> None:
        """A user who leaves ends the session."""
        stock = self.runtime.stock()
        self.runtime.upgrade()
        self.runtime.pass_seconds(1)
        stock.stream.leave()
        self.runtime.pass_seconds(1)
        self.assertEqual(self.runtime.process.shared.viewers, ())
        self.assertEqual((self.live(0), self.live(1)), ([], []))

    def test_ended_by_a_hop(self) -> None:
        """A hop ends the session by the token of the stream, also right after the upgrade."""
        for seconds in (0.0, 1.0):
            runtime = self.runtime = Runtime(self.clock)
            stock = runtime.stock()
            token = runtime.token
            runtime.upgrade()
            runtime.clock.advance(seconds)
            runtime.pass_seconds(seconds)
            ending = Ending(MACHINE_DELETED, 'machine "lab/x" was deleted')
            runtime.process.cache.stream(token, session="s1", user="ann").end(ending)
            runtime.pass_seconds(2)
            self.assertEqual(stock.endings, [ending])

    def test_terms(self) -> None:
        """A hop changes the terms of the session by the token of the stream."""
        stock = self.runtime.stock()
        token = self.runtime.token
        self.runtime.upgrade()
        self.runtime.pass_seconds(1)
        stream = self.runtime.process.cache.stream(token, session="s1", user="ann")
        stream.limit_to(Terms(Right.OBSERVE))
        stock.stream.write(b"x")
        self.runtime.pass_seconds(1)
        self.assertEqual(self.runtime.typed, b"")
        self.assertIn(b"from now on you may only observe", stock.received)
        self.runtime.upgrade()
        stock.stream.write(b"y")
        self.runtime.pass_seconds(1)
        self.assertEqual(self.runtime.typed, b"")
        stream = self.runtime.process.cache.stream(token, session="s1", user="ann")
        stream.limit_to(Terms())
        self.runtime.pass_seconds(1)
        self.assertIn(b"you may type at this console again", stock.received)

    def test_lost_successor(self) -> None:
        """If no process has the session any more, the user gets the reason."""
        stock = self.runtime.stock()
        self.runtime.upgrade()
        self.runtime.process = Runtime(self.clock).process
        self.runtime.pass_seconds(1)
        (ending,) = stock.endings
        self.assertIn("its session is over", ending.message)

    def test_hop_not_back(self) -> None:
        """A stream whose hop does not come leaves the console after the time of a lost hop."""
        hop = self.runtime.hop("offer")
        hop.transport.loseConnection()
        self.runtime.upgrade()
        self.runtime.pass_seconds(29)
        self.assertEqual(len(self.runtime.process.shared.viewers), 1)
        self.runtime.pass_seconds(2)
        self.assertEqual(self.runtime.process.shared.viewers, ())
        self.assertEqual((self.live(), self.runtime.process.server.ordinary), ([], {}))

    def test_foreign_hop(self) -> None:
        """Without a hop that rejoins the stream the session ends with the reason, and no other does."""
        stock = self.runtime.stock()
        foreign = self.runtime.stock("bob", is_foreign=True)
        self.runtime.upgrade()
        self.runtime.print(b"last")
        self.runtime.pass_seconds(1)
        (ending,) = foreign.endings
        self.assertEqual(ending.reason, SHUTTING_DOWN)
        self.assertIn("could not go on: open the console again", ending.message)
        self.assertEqual((stock.received, stock.endings), (b"last", []))
        self.assertTrue(self.runtime.retired[0].retiring.called)  # type: ignore[union-attr]

    def test_state_of_0_2_0(self) -> None:
        """Streams that release 0.2.0 goes on to serve are refused in one line, which says what to do."""
        self.runtime.stock()
        values = self.runtime.process.freeze()
        values["sessions"][0]["stream"] = {
            "subject": {},
            "tokens": [],
            "terms": "",
            "rejoin": "",
            "socket": "/run/streams-1.sock",
        }
        successor = Runtime(self.clock).process
        with self.assertRaisesRegex(ValueError, r"of stock clients \(1\) .*: restart the program"):
            successor.sessions.restore(values)
        self.assertEqual(successor.shared.viewers, ())

    def test_rejoined(self) -> None:
        """A hop that is replaced, too, rejoins the stream, again and again."""
        hop = self.runtime.hop("offer")
        key = re.search(rb"key=([^;\r]+)", hop.got)[1].decode()  # type: ignore[index]
        self.runtime.print(b"one")
        self.runtime.pass_seconds(1)
        received = hop.got.partition(b"\r\n\r\n")[2]
        for number in range(3):
            self.runtime.upgrade()
            self.runtime.pass_seconds(1)
            hop.transport.abortConnection()
            self.runtime.print(b"%d" % number)
            self.runtime.pass_seconds(1)
            hop = self.runtime.hop(f"key={key}; received={len(received)}", session="s1")
            self.runtime.pass_seconds(1)
            self.assertIn(b"101", hop.got)
            hop.transport.write(masked(b"\x00k%d" % number))
            self.runtime.pass_seconds(1)
            received += hop.got.partition(b"\r\n\r\n")[2]
        output = b"".join(re.findall(rb"\x01([one012]+)", received))
        self.assertEqual(output, b"one012")
        self.assertEqual(self.runtime.typed, b"k0k1k2")
        stream = self.runtime.process.cache.stream(self.runtime.token, session="s1", user="ann")
        stream.end(Ending(MACHINE_DELETED, "deleted"))
        self.runtime.pass_seconds(1)
        self.assertIn(b"MachineDeleted", hop.got)

    def test_rejoined_by_another_user(self) -> None:
        """The key of a stream that has moved is worth nothing for another user or session."""
        hop = self.runtime.hop("offer")
        key = re.search(rb"key=([^;\r]+)", hop.got)[1].decode()  # type: ignore[index]
        self.runtime.upgrade()
        self.runtime.pass_seconds(1)
        value = f"key={key}; received=0"
        for other in (
            self.runtime.hop(value, session="s9"),
            self.runtime.hop(value, user="bob", session="s1"),
        ):
            self.assertIn(b"HTTP/1.1 404", other.got)

    def test_slow_reader(self) -> None:
        """A client that reads slowly slows down nobody, and misses what every slow client misses."""
        stock = self.runtime.stock()
        self.runtime.upgrade()
        self.runtime.pass_seconds(1)
        stock.stream.pause_output()
        for _ in range(40):
            self.runtime.print(bytes(64 << 10))
            self.runtime.pass_seconds(0.1)
        stock.stream.resume_output()
        self.runtime.pass_seconds(5)
        self.assertTrue(b"bytes skipped" in stock.received)
        self.runtime.print(b"last")
        self.runtime.pass_seconds(1)
        self.assertTrue(stock.received.endswith(b"last"))

    def test_blocked(self) -> None:
        """A client that reads nothing stops neither the others nor the hand-over, and goes on later."""
        for protocol in (V5, V4, OVER_SPDY):
            runtime = self.runtime = Runtime(self.clock)
            healthy, blocked = runtime.stock("ann", protocol), runtime.stock("bob", protocol)
            blocked.stream.pause_output()
            for _ in range(40):
                runtime.print(bytes(64 << 10))
                runtime.pass_seconds(0.1)
            for number in range(3):
                runtime.upgrade()
                runtime.print(b"%d" % number)
                healthy.stream.write(b"k%d" % number)
                runtime.pass_seconds(2)
            self.assertTrue(healthy.received.endswith(b"012"), protocol)
            self.assertEqual(runtime.typed, b"k0k1k2")
            blocked.stream.resume_output()
            runtime.pass_seconds(5)
            runtime.print(b"last")
            runtime.pass_seconds(1)
            self.assertIn(b"bytes skipped", blocked.received)
            self.assertTrue(blocked.received.endswith(b"last"))
            self.assertEqual((healthy.endings, blocked.endings), ([], []))

    def test_half_open(self) -> None:
        """A connection that delivers nothing any more does not stop the others."""
        dead, healthy = self.runtime.stock("ann"), self.runtime.stock("bob")
        self.runtime.frozen.add(self.runtime.network.transports[0])
        self.runtime.frozen.add(self.runtime.network.transports[1])
        for _ in range(40):
            self.runtime.print(bytes(64 << 10))
            self.runtime.pass_seconds(0.1)
        self.assertLess(len(dead.received), len(healthy.received))
        self.runtime.upgrade()
        self.runtime.pass_seconds(1)
        self.runtime.print(b"last")
        self.runtime.pass_seconds(1)
        self.assertTrue(healthy.received.endswith(b"last"))
        self.assertEqual(healthy.endings, [])

    def test_killed_hop(self) -> None:
        """A stream whose hop has just been killed waits in the next process; the others go on."""
        hop, healthy = self.runtime.hop("offer"), self.runtime.stock("bob")
        key = re.search(rb"key=([^;\r]+)", hop.got)[1].decode()  # type: ignore[index]
        hop.transport.abortConnection()
        self.runtime.print(b"1")
        self.runtime.pass_seconds(1)
        self.runtime.upgrade()
        self.runtime.print(b"2")
        self.runtime.pass_seconds(1)
        self.assertTrue(self.runtime.retired[-1].retiring.called)  # type: ignore[union-attr]
        hop = self.runtime.hop(f"key={key}; received=0", session="s1")
        self.runtime.print(b"3")
        self.runtime.pass_seconds(1)
        output = hop.got.partition(b"\r\n\r\n")[2]
        self.assertEqual(b"".join(re.findall(rb"\x01([123]+)", output)), b"123")
        self.assertTrue(healthy.received.endswith(b"123"))
        self.assertEqual(healthy.endings, [])

    def test_one_fails(self) -> None:
        """A stream that the successor cannot continue ends with the reason, and no other one does."""
        users = [self.runtime.stock(user) for user in ("ann", "bob", "cy")]
        values = self.runtime.process.freeze()
        (state,) = [each for each in values["sessions"] if each["viewer"]["user"] == "bob"]
        del state["stream"]["state"]["transport"]
        self.runtime.upgrade(values)
        self.runtime.pass_seconds(1)
        self.runtime.print(b"last")
        self.runtime.pass_seconds(1)
        ann, bob, cy = users
        for each in (ann, cy):
            self.assertTrue(each.received.endswith(b"last"))
            self.assertEqual(each.endings, [])
        (ending,) = bob.endings
        self.assertIn("there is no stream to rejoin", ending.message)
        self.assertEqual({each.subject.user for each in self.live()}, {"ann", "cy"})
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)

    def test_one_is_not_exported(self) -> None:
        """A session whose state cannot be had ends with the reason, and the hand-over goes on."""
        bob, ann = self.runtime.stock("bob"), self.runtime.stock("ann")

        def tokens_of(live: Any) -> Any:
            if live.subject.user == "bob":
                raise RuntimeError("a bug")
            return get(live)

        get = self.runtime.process.cache.tokens_of
        self.patch(self.runtime.process.cache, "tokens_of", tokens_of)
        self.runtime.upgrade()
        self.runtime.pass_seconds(1)
        self.runtime.print(b"last")
        self.runtime.pass_seconds(1)
        self.assertEqual((ann.endings, ann.received[-4:]), ([], b"last"))
        self.assertEqual([each.reason for each in bob.endings], [SHUTTING_DOWN])
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_without_resuming(self) -> None:
        """It works in a runtime that keeps no sessions of its users, too; so do streams of ours."""
        self.runtime = Runtime(self.clock, resume_seconds=0)
        stock = self.runtime.stock()
        for _ in range(2):
            self.runtime.upgrade()
            stock.stream.write(b"x")
            self.runtime.pass_seconds(1)
        self.assertEqual(self.runtime.typed, b"xx")
        self.assertEqual(stock.endings, [])
