"""
What an attachment may expect of its transport, and the user of the machine's end, whatever
the protocol beneath: the same scenarios are played with each.
"""

from __future__ import annotations

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.task import Clock
from zope.interface import implementer_only
from zope.interface.verify import verifyObject

from twisted_exec.streaming.interfaces import (
    COMPLETED,
    LINE_LOST,
    SHUTTING_DOWN,
    Break,
    Ending,
    IAttachment,
    IAttachmentTransport,
    Role,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.carriers import Limits
from twisted_exec.streaming.remotecommand.server import NO_BREAK, NO_ROLES, READ_ONLY
from twisted_exec.testing.attachment import EchoAttachment, RecordingAttachment
from twisted_exec.testing.flow import RecordingProducer
from twisted_exec.testing.http import MemoryClient

if TYPE_CHECKING:
    from twisted.trial.unittest import SynchronousTestCase
else:
    SynchronousTestCase = object

Heard = tuple[str, bytes] | str
"""
``("output", b"hi")``, ``("status", b"{...}")``, ``("pong", b"1")``; ``"ping"``: the server asks;
``"end"``: all is said, in the protocol's way; ``"broken"``: it says that we broke the protocol.
"""

BREAK = b'{"Width":80,"Height":24,"Break":250}\n'

SUCCESS = b'{"metadata":{},"status":"Success"}'


class ContractUser(ABC):
    """
    The user's side of a session that is up.

    :ivar broken: what is no frame of a client's.
    """

    client: MemoryClient
    broken: bytes

    @abstractmethod
    def types(self, data: bytes) -> None:
        """Input."""

    @abstractmethod
    def resizes(self, document: bytes) -> None:
        """Sizes, as they are on the wire."""

    @abstractmethod
    def ends_input(self) -> None:
        """There is no more of it."""

    @abstractmethod
    def pings(self, number: int) -> None:
        """Ask for a sign of life, a number from 0 up."""

    @abstractmethod
    def leaves(self) -> None:
        """Politely."""

    @abstractmethod
    def hears(self) -> list[Heard]:
        """What the server said since the last time."""

    def output(self) -> bytes:
        """Of it the output; there must be nothing else."""
        heard = self.hears()
        assert all(one[0] == "output" for one in heard), heard
        return b"".join(bytes(one[1]) for one in heard)  # type: ignore[arg-type]

    @property
    def flow(self) -> Any:
        """What the connection's transport holds back when its buffer is full."""
        return self.client.transport.producer


class AttachmentTransportContract(SynchronousTestCase):
    """
    Mix it in before the test case, and say how a user's side is made.

    The test case has a server in memory and:

    :cvar limits: of the server.
    :ivar clock: its clock.
    :ivar attach: says which attachment the next user is to meet; it is kept as ``attachment``.
    """

    limits: Limits
    clock: Clock
    attachment: RecordingAttachment
    attach: Callable[[RecordingAttachment], None]

    def new_user(self, query: bytes = b"") -> ContractUser:
        """A session that is up; nothing was said that is to be heard."""
        raise NotImplementedError

    def begin(
        self, attachment: RecordingAttachment | None = None, query: bytes = b""
    ) -> ContractUser:
        """A session that is up."""
        self.attach(RecordingAttachment() if attachment is None else attachment)
        return self.new_user(query)

    @property
    def transport(self) -> Any:
        return self.attachment.transport

    # The attachment's view.

    def test_provided(self) -> None:
        """The transport and the attachment are what they say."""
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
        """Writing nothing is nothing."""
        user = self.begin()
        self.transport.write(b"")
        self.assertEqual(user.hears(), [])

    def test_at_once(self) -> None:
        """An attachment may write as soon as it is attached."""
        user = self.begin(RecordingAttachment(greeting=b"login: "))
        self.assertEqual(user.output(), b"login: ")

    def test_sizes(self) -> None:
        """Sizes arrive, however they are cut; what is none ends them, and nothing else."""
        user = self.begin()
        for part in (b'{"Width":80,"Height":24}\n{"Wi', b'dth":81,"Height":25}\n', b"x", b"{}"):
            user.resizes(part)
        user.types(b"on")
        self.assertEqual(self.attachment.sizes, [TerminalSize(80, 24), TerminalSize(81, 25)])
        self.assertEqual(self.attachment.received, b"on")

    def test_wishes(self) -> None:
        """A BREAK and a role come in order with what is typed, also when that waits."""
        user = self.begin()
        self.transport.pause_input()
        user.types(b"a")
        user.resizes(BREAK)
        user.types(b"b")
        user.resizes(b'{"Width":80,"Height":24,"Role":"watch"}\n')
        self.assertEqual((self.attachment.received, self.attachment.wishes), (b"", []))
        self.transport.resume_input()
        self.assertEqual(self.attachment.received, b"ab")
        self.assertEqual(self.attachment.wishes, [Break(250), Role.WATCH])
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

    def test_many_wishes(self) -> None:
        """A user that floods an attachment with them is made to wait, as one that types."""
        user = self.begin()
        self.transport.pause_input()
        while user.client.transport.producerState == "producing":
            user.resizes(BREAK * 100)
            self.assertLess(len(self.transport._input), self.limits.input_bytes)
        self.transport.resume_input()
        self.assertEqual(user.client.transport.producerState, "producing")

    def test_23_sizes_that_nobody_takes(self) -> None:
        """Sizes of which nobody takes notice hold nothing up, are not kept, and outlive nothing."""

        class Deaf(RecordingAttachment):
            def window_changed(self, size: TerminalSize) -> None:
                pass

        user = self.begin(Deaf())
        self.transport.pause_input()
        for number in range(1, 2001):
            user.resizes(b'{"Width":%d,"Height":24}' % number)
        self.assertLess(len(self.transport._input), self.limits.input_bytes)
        self.transport.resume_input()
        user.types(b"on")
        self.assertEqual(self.attachment.received, b"on")
        user.leaves()
        self.assertEqual(len(self.attachment.detached_with), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_nothing_but_a_console(self) -> None:
        """Where there is neither BREAK nor a role the user is told so, once."""

        @implementer_only(IAttachment)
        class Plain(RecordingAttachment):
            """As an application may have it."""

        user = self.begin(Plain())
        for _ in range(3):
            user.resizes(BREAK + b'{"Width":80,"Height":24,"Role":"drive"}')
        self.assertEqual(user.hears(), [("output", NO_BREAK), ("output", NO_ROLES)])
        self.assertEqual(self.attachment.wishes, [])

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
        """An attachment may take one piece and pause again; what was read already waits too."""

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
        Input is kept up to a limit while the attachment takes none, and pings are answered
        as long; then the user is not read any more.
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
        """There is room for one producer."""
        self.begin()
        self.transport.registerProducer(RecordingProducer(), True)
        with self.assertRaises(RuntimeError):
            self.transport.registerProducer(RecordingProducer(), True)

    # Signs of life.

    def test_pings(self) -> None:
        """A ping is answered, and while the user reads nothing only the latest, later."""
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
        """A session may be quiet for ever: the user is pinged, and not pressed for an answer."""
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

    # What the user asked for.

    def test_21_looking_on(self) -> None:
        """Neither keys nor sizes of one who looks on reach the machine; they are told so, once."""
        user = self.begin(query=b"?stdin=true&stdout=true&tty=true&readOnly=true")
        self.assertTrue(self.transport.options.read_only)
        user.resizes(b'{"Width":80,"Height":24}')
        user.resizes(BREAK + b'{"Width":80,"Height":24,"Role":"drive"}')
        self.assertEqual((user.hears(), self.attachment.wishes), ([], []))
        user.types(b"rm")
        user.types(b" -rf /\n")
        self.assertEqual(user.hears(), [("output", READ_ONLY)])
        self.assertEqual((self.attachment.received, self.attachment.sizes), (b"", []))
        self.assertEqual(self.transport.bytes_to_machine, 0)
        self.transport.write(b"seen")
        self.assertEqual(user.output(), b"seen")

    def test_21_no_input_asked(self) -> None:
        """Input of one who asked for output alone is dropped without a word; sizes count."""
        user = self.begin(query=b"?stdout=true&tty=true")
        user.types(b"x" * 5000)
        user.resizes(BREAK + b'{"Width":80,"Height":24}')
        self.assertEqual(self.attachment.wishes, [])
        self.assertEqual((self.attachment.received, user.hears()), (b"", []))
        self.assertEqual(self.attachment.sizes, [TerminalSize(80, 24)])

    def test_options(self) -> None:
        """An attachment can see the stream options of the request, under their old name too."""
        self.begin(query=b"?stdin=1&stdout=1&tty=1&force=true")
        options = self.transport.options
        self.assertEqual((options.tty, options.force, options.read_only), (True, True, False))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.assertIs(self.transport.asked, options)
        self.assertEqual([each.category for each in caught], [DeprecationWarning])

    # The end.

    def ended(self, ending: Ending) -> tuple[ContractUser, Any]:
        """The user, and the Status that it got."""
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
        """The connection is closed, not reset, the attachment detached, nothing left to do."""
        self.assertTrue(user.client.closed)
        self.assertFalse(user.client.aborted)
        self.assertEqual(self.attachment.detached_with, [reason])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_order(self) -> None:
        """Output, status, the protocol's end; then the user leaves, and only then we do."""
        user, status = self.ended(Ending(COMPLETED))
        self.assertEqual(status, {"metadata": {}, "status": "Success"})
        user.leaves()
        self.over(user, COMPLETED)

    def test_user_just_closes(self) -> None:
        """Some leave without a word."""
        user, status = self.ended(Ending(LINE_LOST, "the line is lost"))
        self.assertEqual((status["status"], status["message"]), ("Failure", "the line is lost"))
        user.client.lose()
        self.over(user, LINE_LOST)

    def test_exit_code(self) -> None:
        """A process's code is in the status."""
        _, status = self.ended(Ending(COMPLETED, exit_code=7))
        self.assertEqual(status["reason"], "NonZeroExitCode")
        self.assertEqual(status["details"]["causes"], [{"reason": "ExitCode", "message": "7"}])

    def test_input_after_the_end(self) -> None:
        """What the user still sends is thrown away."""
        user, _ = self.ended(Ending(COMPLETED))
        user.types(b"typed")
        user.resizes(b'{"Width":1,"Height":1}')
        self.assertEqual((self.attachment.received, self.attachment.sizes), (b"", []))

    def test_end_while_input_is_paused(self) -> None:
        """A user that was made to wait is read again, to see it leave."""
        user = self.begin()
        self.transport.pause_input()
        user.types(b"x" * self.limits.input_bytes)
        self.transport.end(Ending(COMPLETED))
        self.assertEqual(user.client.transport.producerState, "producing")
        user.leaves()
        self.over(user, COMPLETED)
        self.assertEqual(self.attachment.received, b"")

    def test_silent_user(self) -> None:
        """A user that never leaves is waited for, but not for ever."""
        user, _ = self.ended(Ending(COMPLETED))
        self.clock.advance(self.limits.close_seconds - 1)
        self.assertFalse(user.client.closed)
        self.clock.advance(1)
        self.over(user, COMPLETED)

    def test_slow_reader(self) -> None:
        """A user that still reads the output is given more time, each time it reads."""
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
        """One that reads nothing is cut off in the end."""
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
        """A user that leaves is told once; what the attachment does afterwards is harmless."""
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
        """So is one whose connection is lost."""
        user = self.begin()
        user.client.lose()
        self.over(user, "connection closed")
        late = RecordingProducer()
        self.transport.registerProducer(late, True)
        self.assertEqual(late.calls, ["stop"])

    def test_end_at_once(self) -> None:
        """An attachment may end while it is attached."""

        class Refusing(RecordingAttachment):
            def attached(self, transport: IAttachmentTransport) -> None:
                super().attached(transport)
                transport.end(Ending(LINE_LOST, "no line"))

        user = self.begin(Refusing())
        (name, status), end = user.hears()
        self.assertEqual((name, end), ("status", "end"))
        self.assertEqual(json.loads(status)["message"], "no line")

    def test_cut(self) -> None:
        """When there is no time left, the connection is reset."""
        user = self.begin()
        self.transport.cut()
        self.assertTrue(user.client.aborted)
        self.assertEqual(len(self.attachment.detached_with), 1)

    # Users that break the protocol.

    def test_violation(self) -> None:
        """They get a status and are told what they did; the attachment ends at once."""
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
        """Whoever breaks it while the session ends is hung up on."""
        user, _ = self.ended(Ending(COMPLETED))
        user.client.send(user.broken)
        self.over(user, COMPLETED)


class EndOfInputContract(AttachmentTransportContract):
    """The same for protocols that can tell the end of input."""

    def test_end_of_input(self) -> None:
        """The input ends once, after all of it; nothing comes behind, and output goes on."""
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
        """A whole session: input, its echo, the input's end, success."""
        user = self.begin(EchoAttachment())
        user.types(b"hi")
        user.ends_input()
        self.assertEqual(user.hears(), [("output", b"hi"), ("status", SUCCESS), "end"])


class NoEndOfInputContract(AttachmentTransportContract):
    """The same for those that cannot."""

    def test_no_end_of_input(self) -> None:
        """What would tell it in a newer version is passed over."""
        user = self.begin()
        user.ends_input()
        user.types(b"on")
        self.assertEqual((self.attachment.received, self.attachment.input_ends), (b"on", 0))
