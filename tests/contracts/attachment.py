"""
The contract of attachment transports: every streaming protocol runs the same scenarios.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.task import Clock
from zope.interface import implementer_only
from zope.interface.verify import verifyObject

from twisted_exec.streaming.interfaces import (
    COMPLETED,
    IDLE,
    LINE_LOST,
    SHUTTING_DOWN,
    Break,
    Ending,
    IAttachment,
    IAttachmentTransport,
    Role,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.carriers import StreamLimits
from twisted_exec.streaming.remotecommand.server import (
    MAY_NOT_SAY,
    NO_BREAK,
    NO_MESSAGES,
    NO_ROLES,
    READ_ONLY,
)
from twisted_exec.testing.console import EchoAttachment, RecordingAttachment, RecordingProducer
from twisted_exec.testing.network import MemoryClient
from twisted_exec.wire.session_terms import FULL, Right, Terms

if TYPE_CHECKING:
    from twisted.trial.unittest import SynchronousTestCase
else:
    SynchronousTestCase = object

Heard = tuple[str, bytes] | str
"""
``("output", b"hi")``, ``("status", b"{...}")``, ``("pong", b"1")``; ``"ping"``: a ping from the
server; ``"end"``: the protocol's normal close; ``"broken"``: its close for a protocol error.
"""

BREAK = b'{"Width":80,"Height":24,"Break":250}\n'

MESSAGE = (
    '{"Width":80,"Height":24,"Message":"I  reboot it: \u00e9 \\u001b[31m\u202e \\n"}\n'.encode()
)

SUCCESS = b'{"metadata":{},"status":"Success"}'


class ContractUser(ABC):
    """
    The user's side of a session that is up.

    :ivar broken: bytes that are not a valid client frame.
    """

    client: MemoryClient
    broken: bytes

    @abstractmethod
    def types(self, data: bytes) -> None:
        """Send input."""

    @abstractmethod
    def resizes(self, document: bytes) -> None:
        """Send terminal sizes, exactly as given."""

    @abstractmethod
    def ends_input(self) -> None:
        """Signal the end of input."""

    @abstractmethod
    def pings(self, number: int) -> None:
        """Send a ping with this number, from 0 up."""

    @abstractmethod
    def leaves(self) -> None:
        """Close the connection with the protocol's closing handshake."""

    @abstractmethod
    def hears(self) -> list[Heard]:
        """Return what the server sent since the last call."""

    def output(self) -> bytes:
        """Return the output since the last call; fail if the server sent anything else."""
        heard = self.hears()
        assert all(one[0] == "output" for one in heard), heard
        return b"".join(bytes(one[1]) for one in heard)  # type: ignore[arg-type]

    @property
    def flow(self) -> Any:
        """The producer that the connection's transport pauses when its buffer is full."""
        return self.client.transport.producer


class AttachmentTransportContract(SynchronousTestCase):
    """
    Mix it in before the test case, and implement :meth:`new_user`.

    The test case has a server in memory and:

    :cvar limits: of the server.
    :ivar clock: its clock.
    :ivar attach: sets the next user's attachment; it is kept as ``attachment``.
    """

    limits: StreamLimits
    clock: Clock
    attachment: RecordingAttachment
    attach: Callable[[RecordingAttachment], None]

    def new_user(self, query: bytes = b"") -> ContractUser:
        """An established session; the server has sent nothing yet."""
        raise NotImplementedError

    def begin(
        self, attachment: RecordingAttachment | None = None, query: bytes = b""
    ) -> ContractUser:
        """An established session with this attachment."""
        self.attach(RecordingAttachment() if attachment is None else attachment)
        return self.new_user(query)

    @property
    def transport(self) -> Any:
        return self.attachment.transport

    # The attachment's view.

    def test_provided(self) -> None:
        """The transport and the attachment provide their interfaces."""
        self.begin()
        verifyObject(IAttachmentTransport, self.transport)
        verifyObject(IAttachment, self.attachment)
        self.assertEqual(self.attachment.attachments, 1)
        self.assertEqual((self.transport.session, self.transport.user), ("s-1", "ann"))

    def test_both_ways(self) -> None:
        """Input arrives in order, and so does output; both are counted without framing."""
        user = self.begin()
        for data in (b"a", b"bc" * 20000, b"\0\xff"):
            user.types(data)
            self.transport.write(data)
        expected = b"a" + b"bc" * 20000 + b"\0\xff"
        self.assertEqual(self.attachment.received, expected)
        self.assertEqual(user.output(), expected)
        counted = (self.transport.bytes_to_machine, self.transport.bytes_to_user)
        self.assertEqual(counted, (len(expected), len(expected)))

    def test_pieces(self) -> None:
        """Output goes in pieces of 32 KiB at most, each in one frame."""
        user = self.begin()
        self.transport.write(bytes(range(256)) * 300)
        sizes = [len(data) for _, data in user.hears()]  # type: ignore[misc]
        self.assertEqual(sum(sizes), 256 * 300)
        self.assertLessEqual(max(sizes), 32 << 10)
        self.assertLessEqual(len(sizes), 4)

    def test_empty_write(self) -> None:
        """An empty write sends nothing."""
        user = self.begin()
        self.transport.write(b"")
        self.assertEqual(user.hears(), [])

    def test_at_once(self) -> None:
        """An attachment may write as soon as it is attached."""
        user = self.begin(RecordingAttachment(greeting=b"login: "))
        self.assertEqual(user.output(), b"login: ")

    def test_sizes(self) -> None:
        """Sizes may be split anywhere; an invalid document stops further sizes, but not input."""
        user = self.begin()
        for part in (b'{"Width":80,"Height":24}\n{"Wi', b'dth":81,"Height":25}\n', b"x", b"{}"):
            user.resizes(part)
        user.types(b"on")
        self.assertEqual(self.attachment.sizes, [TerminalSize(80, 24), TerminalSize(81, 25)])
        self.assertEqual(self.attachment.received, b"on")

    def test_wishes(self) -> None:
        """Break and role requests keep their order among the keys, also while input is paused."""
        user = self.begin()
        self.transport.pause_input()
        user.types(b"a")
        user.resizes(BREAK)
        user.types(b"b")
        user.resizes(b'{"Width":80,"Height":24,"Role":"watch"}\n')
        self.assertEqual((self.attachment.received, self.attachment.wishes), (b"", []))
        self.transport.resume_input()
        self.assertEqual(self.attachment.received, b"ab")
        self.assertEqual(self.attachment.wishes, [Break(250), Role.OBSERVER])
        self.assertEqual((self.attachment.sizes, user.hears()), ([], []))

    def test_break_and_key(self) -> None:
        """An attachment that pauses for its BREAK gets the key behind it afterwards."""

        class Breaking(RecordingAttachment):
            def wished(self, wish: Break | Role) -> None:
                super().wished(wish)
                self.transport.pause_input()

        user = self.begin(Breaking())
        user.resizes(BREAK)
        user.types(b"h")
        self.assertEqual(self.attachment.received, b"")
        self.transport.resume_input()
        self.assertEqual(self.attachment.received, b"h")

    def waiting(self) -> int:
        """Return how many keys and requests wait for the attachment."""
        return len(self.transport._input)  # Neither end sees it.

    def test_many_wishes(self) -> None:
        """A user that floods an attachment with break requests is paused, as with input."""
        user = self.begin()
        self.transport.pause_input()
        while user.client.transport.producerState == "producing":
            user.resizes(BREAK * 100)
            self.assertLess(self.waiting(), self.limits.input_bytes)
        self.transport.resume_input()
        self.assertEqual(user.client.transport.producerState, "producing")

    def test_23_sizes_that_nobody_takes(self) -> None:
        """Sizes that the attachment ignores do not pause input, pile up, or leave timers behind."""

        class Deaf(RecordingAttachment):
            def window_changed(self, size: TerminalSize) -> None:
                pass

        user = self.begin(Deaf())
        self.transport.pause_input()
        for number in range(1, 2001):
            user.resizes(b'{"Width":%d,"Height":24}' % number)
        self.assertLess(self.waiting(), self.limits.input_bytes)
        self.transport.resume_input()
        user.types(b"on")
        self.assertEqual(self.attachment.received, b"on")
        user.leaves()
        self.assertEqual(len(self.attachment.detached_with), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_nothing_but_a_console(self) -> None:
        """An attachment without break or role support reports each to the user once."""

        @implementer_only(IAttachment)
        class Plain(RecordingAttachment):
            """An attachment of an application that implements only the console."""

        user = self.begin(Plain())
        for _ in range(3):
            user.resizes(BREAK + b'{"Width":80,"Height":24,"Role":"drive"}' + MESSAGE)
        told = [NO_BREAK, NO_ROLES, NO_MESSAGES]
        self.assertEqual(user.hears(), [("output", each.output) for each in told])
        self.assertEqual((self.attachment.wishes, self.attachment.messages), ([], []))

    def test_messages(self) -> None:
        """
        A message to other users is neither input nor a size, and does not wait for the machine.

        Text that is no UTF-8, has nothing printable or is too long for the stream of sizes is left out.
        """
        user = self.begin()
        self.transport.pause_input()
        user.types(b"a")
        user.resizes(MESSAGE)
        for text in ('"\\u00e9\\u0151"', '"  "', "7", "null"):
            user.resizes(b'{"Width":0,"Height":0,"Message":%s}' % text.encode())
        user.resizes(b'{"Width":0,"Height":0,"Message":"\xff"}')
        self.assertEqual(self.attachment.messages, ["I reboot it: \u00e9 ?[31m?"])
        self.assertEqual((self.attachment.received, self.waiting()), (b"", 1))
        self.assertEqual((self.attachment.sizes, self.attachment.wishes), ([], []))
        self.transport.resume_input()
        self.assertEqual((self.attachment.received, len(self.attachment.messages)), (b"a", 1))

    def test_messages_of_an_observer(self) -> None:
        """
        A session that only observes by choice sends messages.

        A session without the right to type sends none, whatever it was opened for, and reads why once.
        """
        for query in (b"", b"&readOnly=true"):
            user = self.begin(query=b"?stdin=true&stdout=true&tty=true" + query)
            self.transport.hold_to(Terms(right=Right.OBSERVE))
            for _ in range(3):
                user.resizes(MESSAGE)
            ((_, told),) = user.hears()
            self.assertEqual(told.split(), MAY_NOT_SAY.output.split())  # wrapped without a size
            self.assertEqual(self.attachment.messages, [])
            self.transport.hold_to(FULL)
            user.resizes(MESSAGE)
            self.assertEqual(len(self.attachment.messages), 1)

    def test_paused_input(self) -> None:
        """Nothing is delivered between pause and resume, and nothing is lost; both may repeat."""
        user = self.begin()
        self.transport.pause_input()
        self.transport.pause_input()
        user.types(b"one")
        user.types(b"two")
        self.assertEqual(self.attachment.received, b"")
        self.transport.resume_input()
        self.transport.resume_input()
        user.types(b"three")
        self.assertEqual(self.attachment.received, b"onetwothree")

    def test_piece_by_piece(self) -> None:
        """An attachment may pause after each piece; input already read stays queued."""

        class OneByOne(RecordingAttachment):
            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                self.transport.pause_input()

        user = self.begin(OneByOne())
        for data in (b"a", b"b", b"c"):
            user.types(data)
        for expected in (b"a", b"ab", b"abc", b"abc"):
            self.assertEqual(self.attachment.received, expected)
            self.transport.resume_input()

    def test_bounded_input(self) -> None:
        """
        Paused input is buffered up to a limit, and pings are still answered; at the limit the
        transport stops reading from the user.
        """
        user = self.begin()
        limit = self.limits.input_bytes
        self.transport.pause_input()
        user.types(b"a" * (limit - 1))
        user.pings(1)
        self.assertEqual(user.hears(), [("pong", b"1")])
        self.assertEqual(user.client.transport.producerState, "producing")
        user.types(b"b")
        self.assertEqual(user.client.transport.producerState, "paused")
        self.transport.write(b"output goes on")
        self.assertEqual(user.output(), b"output goes on")
        self.transport.resume_input()
        self.assertEqual(self.attachment.received, b"a" * (limit - 1) + b"b")
        self.assertEqual(user.client.transport.producerState, "producing")

    def test_producer(self) -> None:
        """A producer is paused while the user does not read, and resumed when it does."""
        user = self.begin()
        producer = RecordingProducer()
        self.transport.registerProducer(producer, True)
        user.flow.pauseProducing()
        user.flow.pauseProducing()
        user.flow.resumeProducing()
        self.assertEqual(producer.calls, ["pause", "pause", "resume"])
        self.transport.unregisterProducer()
        user.flow.pauseProducing()
        self.assertEqual(len(producer.calls), 3)
        late = RecordingProducer()
        self.transport.registerProducer(late, True)
        self.assertTrue(late.paused)

    def test_two_producers(self) -> None:
        """A second producer is refused."""
        self.begin()
        self.transport.registerProducer(RecordingProducer(), True)
        with self.assertRaises(RuntimeError):
            self.transport.registerProducer(RecordingProducer(), True)

    # Signs of life.

    def test_pings(self) -> None:
        """
        Pings are answered; for a user that stops reading, only the latest, once it reads again.
        """
        user = self.begin()
        user.pings(0)
        self.assertEqual(user.hears(), [("pong", b"0")])
        user.flow.pauseProducing()
        for number in range(1000):
            user.pings(number)
        self.assertEqual(user.hears(), [])
        user.flow.resumeProducing()
        self.assertEqual(user.hears(), [("pong", b"999")])

    def test_30_quiet(self) -> None:
        """A session may stay idle: the user is pinged every 30 s and need not answer."""
        user = self.begin()
        self.clock.advance(29)
        self.assertEqual(user.hears(), [])
        for _ in range(3):
            self.clock.advance(30)
            self.assertEqual(user.hears(), ["ping"])
        user.flow.pauseProducing()
        self.clock.advance(3600)
        self.assertEqual(user.hears(), [])
        self.assertEqual(self.attachment.detached_with, [])

    # Time limits.

    def test_idle(self) -> None:
        """
        A user who sends nothing is warned, and the session ends; output is no sign of a user.
        """
        user = self.begin()
        self.transport.hold_to(Terms(idle_seconds=20, policy="a/x"))
        for signal in (lambda: user.types(b"x"), lambda: user.resizes(BREAK)):
            self.clock.advance(17)
            signal()
        self.clock.advance(17)
        user.types(b"")
        self.transport.write(b"output")
        self.assertEqual([each for each in user.hears() if each != "ping"], [("output", b"output")])
        self.clock.advance(1)
        ((_, warning),) = user.hears()
        self.assertIn(b"[twisted-exec: this session ends in 2s unless you type: ", bytes(warning))
        self.clock.advance(2)
        (name, status), end = user.hears()
        self.assertEqual((name, end), ("status", "end"))
        self.assertEqual(json.loads(status)["reason"], IDLE)
        self.assertEqual(self.attachment.detached_with, [IDLE])
        user.types(b"y")
        self.assertEqual(self.attachment.received, b"x")
        user.leaves()
        self.over(user, IDLE)

    def test_idle_observer(self) -> None:
        """The keys of a read-only user show that there is a user."""
        user = self.begin(query=b"?stdin=true&stdout=true&tty=true&readOnly=true")
        self.transport.hold_to(Terms(idle_seconds=20))
        for signal in (lambda: user.types(b"x"), lambda: user.resizes(BREAK)):
            self.clock.advance(17)
            signal()
        self.clock.advance(17)
        self.assertEqual(
            [each for each in user.hears() if each != "ping"], [("output", READ_ONLY.output)]
        )

    def test_no_time_limit(self) -> None:
        """Time limits that are gone leave no timer, nor does a session that has ended."""
        user = self.begin()
        timers = len(self.clock.getDelayedCalls())
        self.transport.hold_to(Terms(idle_seconds=20))
        self.assertEqual(len(self.clock.getDelayedCalls()), timers + 1)
        self.transport.hold_to(FULL)
        self.assertEqual(len(self.clock.getDelayedCalls()), timers)
        self.transport.hold_to(Terms(idle_seconds=20))
        self.transport.end(Ending(COMPLETED))
        user.leaves()
        self.over(user, COMPLETED)

    # What the user asked for.

    def test_21_looking_on(self) -> None:
        """A read-only user's keys and sizes do not reach the machine; a notice says so."""
        user = self.begin(query=b"?stdin=true&stdout=true&tty=true&readOnly=true")
        self.assertTrue(self.transport.options.read_only)
        user.resizes(b'{"Width":80,"Height":24}')
        user.resizes(BREAK + b'{"Width":80,"Height":24,"Role":"drive"}')
        self.assertEqual((user.hears(), self.attachment.wishes), ([], []))
        user.types(b"rm")
        user.types(b" -rf /\n")
        self.assertEqual(user.hears(), [("output", READ_ONLY.output)])
        self.assertEqual((self.attachment.received, self.attachment.sizes), (b"", []))
        self.assertEqual(self.transport.bytes_to_machine, 0)
        self.transport.write(b"seen")
        self.assertEqual(user.output(), b"seen")

    def test_looking_on_later(self) -> None:
        """A read-only user who types again later gets the notice again, but not for the mouse."""
        user = self.begin(query=b"?stdin=true&stdout=true&tty=true&readOnly=true")
        told = []
        for seconds, keys in ((0, b"x"), (6, b"x"), (6, b"\x1b[<35;10;5M"), (0, b"x")):
            self.clock.advance(seconds)
            user.types(keys)
            told.append(user.hears().count(("output", READ_ONLY.output)))
        self.assertEqual(told, [1, 0, 0, 1])

    def test_21_no_input_asked(self) -> None:
        """Without stdin=true, input is dropped silently; terminal sizes still count."""
        user = self.begin(query=b"?stdout=true&tty=true")
        user.types(b"x" * 5000)
        user.resizes(BREAK + b'{"Width":80,"Height":24}')
        self.assertEqual(self.attachment.wishes, [])
        self.assertEqual((self.attachment.received, user.hears()), (b"", []))
        self.assertEqual(self.attachment.sizes, [TerminalSize(80, 24)])

    def test_options(self) -> None:
        """An attachment can read the stream options of the request."""
        self.begin(query=b"?stdin=1&stdout=1&tty=1&force=true")
        options = self.transport.options
        self.assertEqual((options.tty, options.force, options.read_only), (True, True, False))

    # The end.

    def ended(self, ending: Ending) -> tuple[ContractUser, Any]:
        """Return the user, and the Status that it received."""
        user = self.begin()
        self.transport.write(b"last words")
        self.transport.end(ending)
        self.transport.end(Ending(SHUTTING_DOWN))
        self.transport.write(b"too late")
        output, (name, status), end = user.hears()
        self.assertEqual((output, name, end), (("output", b"last words"), "status", "end"))
        self.assertFalse(user.client.closed)
        self.assertEqual(self.attachment.detached_with, [])
        return user, json.loads(status)

    def over(self, user: ContractUser, reason: str) -> None:
        """The connection is closed, not reset; the attachment is detached and no timer is left."""
        self.assertTrue(user.client.closed)
        self.assertFalse(user.client.aborted)
        self.assertEqual(self.attachment.detached_with, [reason])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_order(self) -> None:
        """
        Output, status and the protocol's close are sent; the server closes after the user does.
        """
        user, status = self.ended(Ending(COMPLETED))
        self.assertEqual(status, {"metadata": {}, "status": "Success"})
        user.leaves()
        self.over(user, COMPLETED)

    def test_user_just_closes(self) -> None:
        """A user may drop the connection after the status, without a closing handshake."""
        user, status = self.ended(Ending(LINE_LOST, "the line is lost"))
        self.assertEqual((status["status"], status["message"]), ("Failure", "the line is lost"))
        user.client.lose()
        self.over(user, LINE_LOST)

    def test_exit_code(self) -> None:
        """The status carries a process's exit code."""
        _, status = self.ended(Ending(COMPLETED, exit_code=7))
        self.assertEqual(status["reason"], "NonZeroExitCode")
        self.assertEqual(status["details"]["causes"], [{"reason": "ExitCode", "message": "7"}])

    def test_input_after_the_end(self) -> None:
        """Input after the end is dropped."""
        user, _ = self.ended(Ending(COMPLETED))
        user.types(b"typed")
        user.resizes(b'{"Width":1,"Height":1}')
        self.assertEqual((self.attachment.received, self.attachment.sizes), (b"", []))

    def test_end_while_input_is_paused(self) -> None:
        """A paused user is read again after the end, so that its close is noticed."""
        user = self.begin()
        self.transport.pause_input()
        user.types(b"x" * self.limits.input_bytes)
        self.transport.end(Ending(COMPLETED))
        self.assertEqual(user.client.transport.producerState, "producing")
        user.leaves()
        self.over(user, COMPLETED)
        self.assertEqual(self.attachment.received, b"")

    def test_silent_user(self) -> None:
        """After the end, the server waits ``close_seconds`` for the user to close, then closes."""
        user, _ = self.ended(Ending(COMPLETED))
        self.clock.advance(self.limits.close_seconds - 1)
        self.assertFalse(user.client.closed)
        self.clock.advance(1)
        self.over(user, COMPLETED)

    def test_slow_reader(self) -> None:
        """A user that is still reading output gets more time with each read."""
        user = self.begin()
        flow = user.flow
        flow.pauseProducing()
        self.transport.end(Ending(COMPLETED))
        for _ in range(5):
            self.clock.advance(self.limits.close_seconds - 1)
            flow.pauseProducing()
            flow.resumeProducing()
        self.assertFalse(user.client.closed)
        self.clock.advance(self.limits.close_seconds)
        self.assertTrue(user.client.closed)

    def test_stuck_reader(self) -> None:
        """After the end, the connection of a user that reads nothing is reset."""
        user = self.begin()
        user.flow.pauseProducing()
        user.client.transport.loseConnection = lambda: None  # a buffer that never empties
        self.transport.end(Ending(COMPLETED))
        self.clock.advance(self.limits.close_seconds)
        self.assertFalse(user.client.closed)
        del user.client.transport.loseConnection
        self.clock.advance(self.limits.close_seconds)
        self.assertTrue(user.client.aborted)
        self.assertEqual(self.attachment.detached_with, [COMPLETED])

    def test_user_leaves(self) -> None:
        """A closing user detaches the attachment once; later calls of the attachment do nothing."""
        user = self.begin()
        self.transport.registerProducer(RecordingProducer(), True)
        user.leaves()
        self.over(user, "client closed")
        self.transport.write(b"nobody is there")
        self.transport.pause_input()
        self.transport.resume_input()
        self.transport.unregisterProducer()
        self.transport.end(Ending(COMPLETED))
        self.over(user, "client closed")

    def test_30_user_vanishes(self) -> None:
        """A lost connection detaches the attachment; a late producer is stopped."""
        user = self.begin()
        user.client.lose()
        self.over(user, "connection closed")
        late = RecordingProducer()
        self.transport.registerProducer(late, True)
        self.assertEqual(late.calls, ["stop"])

    def test_end_at_once(self) -> None:
        """An attachment may end the session from within ``attached``."""

        class Refusing(RecordingAttachment):
            def attached(self, transport: IAttachmentTransport) -> None:
                super().attached(transport)
                transport.end(Ending(LINE_LOST, "no line"))

        user = self.begin(Refusing())
        (name, status), end = user.hears()
        self.assertEqual((name, end), ("status", "end"))
        self.assertEqual(json.loads(status)["message"], "no line")

    def test_cut(self) -> None:
        """``cut`` resets the connection and detaches the attachment."""
        user = self.begin()
        self.transport.cut()
        self.assertTrue(user.client.aborted)
        self.assertEqual(len(self.attachment.detached_with), 1)

    # Users that break the protocol.

    def test_violation(self) -> None:
        """A protocol error yields a status that names it and detaches the attachment at once."""
        user = self.begin()
        user.client.send(user.broken)
        (name, status), *_, end = user.hears()
        self.assertEqual((name, end), ("status", "broken"))
        self.assertIn("the client broke the protocol: ", json.loads(status)["message"])
        (why,) = self.attachment.detached_with
        self.assertIn("protocol error: ", why)
        self.clock.advance(self.limits.close_seconds)
        self.over(user, why)

    def test_violation_after_the_end(self) -> None:
        """After the end, a protocol error closes the connection at once."""
        user, _ = self.ended(Ending(COMPLETED))
        user.client.send(user.broken)
        self.over(user, COMPLETED)


class EndOfInputContract(AttachmentTransportContract):
    """The contract for protocols that can signal the end of input."""

    def test_end_of_input(self) -> None:
        """The end of input follows all queued input, once; output continues."""
        user = self.begin()
        self.transport.pause_input()
        user.types(b"ab")
        user.ends_input()
        self.assertEqual((self.attachment.received, self.attachment.input_ends), (b"", 0))
        self.transport.resume_input()
        self.assertEqual((self.attachment.received, self.attachment.input_ends), (b"ab", 1))
        self.transport.write(b"still here")
        self.assertEqual(user.output(), b"still here")

    def test_echo(self) -> None:
        """An echo session ends with success after the end of input."""
        user = self.begin(EchoAttachment())
        user.types(b"hi")
        user.ends_input()
        self.assertEqual(user.hears(), [("output", b"hi"), ("status", SUCCESS), "end"])


class NoEndOfInputContract(AttachmentTransportContract):
    """The contract for protocols that cannot signal the end of input."""

    def test_no_end_of_input(self) -> None:
        """The end-of-input message of a newer version is ignored."""
        user = self.begin()
        user.ends_input()
        user.types(b"on")
        self.assertEqual((self.attachment.received, self.attachment.input_ends), (b"on", 0))
