"""
A resumed session is exact: a search over interleavings of losses, delays and resumes.

The client talks to :class:`~twisted_exec.testing.resumable_console.ResumableConsole` over a network
in memory, whose connections deliver any amount at any time, freeze, and break with whatever they
have not delivered.  At each moment the user has got what the console printed, with gaps of the right
size, and the line has got what the user typed: in order, and nothing twice.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests import soak
from tests.streaming.remotecommand.resuming import Client
from twisted_exec.streaming.interfaces import Break, Role, TerminalSize
from twisted_exec.testing.resumable_console import ResumableConsole
from twisted_exec.wire.channel import V4, V5

CHUNKS = st.sampled_from((1, 7, 60, 200, 1 << 16))


class Exactness(RuleBasedStateMachine):
    """
    One user, one console, and everything that can happen between them.

    :ivar typed: the input as single pieces, since counting began.
    :ivar line_start: how much the line had got by then.
    :ivar seen: what of the user's items has been checked.
    """

    def connect(self, protocol: str) -> None:
        """Make the server and the client."""
        self.server: Any = ResumableConsole(self.clock)
        self.end = Client(self.server, self.clock, protocol=protocol)

    @initialize(protocol=st.sampled_from((V5, V4)))
    def start(self, protocol: str) -> None:
        self.clock = Clock()
        self.connect(protocol)
        self.user = self.end.user
        self.typed: list[Any] = []
        self.counter = 0
        self.size: TerminalSize | None = None
        self.line_start = self.returns_seen = self.seen = 0
        self.epoch, self.offset = self.server.epoch, 0
        self.expired = self.paused = self.input_over = False

    # The user.

    def remember(self, *pieces: Any) -> None:
        if not self.input_over:
            self.typed += pieces

    @rule(size=st.integers(1, 300))
    def type(self, size: int) -> None:
        # Each byte is a key of its own, because the client counts what it drops in keys.
        data = bytes(ord(" ") + (self.counter + i) % 89 for i in range(size))
        self.counter += size
        self.end.client.write(data)
        self.remember(*(data[i : i + 1] for i in range(size)))

    @rule(wish=st.sampled_from((Break(), Role.WRITER, Role.OBSERVER)))
    def wish(self, wish: Break | Role) -> None:
        self.end.client.wish(wish)
        self.remember(wish)

    @precondition(lambda self: self.end.client.can_half_close and not self.input_over)
    @rule(number=st.integers(0, 7))
    def end_input(self, number: int) -> None:
        if number != 5:
            return  # rarely, because nothing can be typed after that
        self.end.client.end_input()
        self.remember(None)
        self.input_over = True

    @rule(columns=st.integers(1, 500))
    def resize(self, columns: int) -> None:
        self.size = TerminalSize(columns, 24)
        self.end.client.resize(self.size)

    @rule()
    def pause_or_resume(self) -> None:
        self.paused = not self.paused
        if self.paused:
            self.end.client.pause_output()
            self.items_at_pause = len(self.user.items)
        else:
            self.end.client.resume_output()

    # The server.

    @rule(data=st.binary(min_size=1, max_size=300))
    def print(self, data: bytes) -> None:
        self.server.print(data)

    @rule()
    def acknowledge(self) -> None:
        self.server.acknowledge()

    @rule(back=st.integers(0, 400))
    def forget(self, back: int) -> None:
        self.server.forget(len(self.server.journal) - back)

    @rule(new_journal=st.booleans())
    def restart(self, new_journal: bool) -> None:
        self.server.restart(new_journal=new_journal)

    @rule(code=st.sampled_from((429, 503, 502)))
    def refuse(self, code: int) -> None:
        self.server.refusals = [(code, None)]

    @precondition(lambda self: not self.server.live)
    @rule(number=st.integers(0, 31))
    def expire(self, number: int) -> None:
        if number != 21:
            return  # rarely, because it is the end
        self.server.expire()
        self.expired = True

    # The network.

    @rule(index=st.integers(0, 7), chunk=CHUNKS)
    def deliver(self, index: int, chunk: int) -> None:
        newest = self.end.network.transports[-8:]
        transport = newest[index % len(newest)]
        if transport not in self.end.frozen:
            transport.step(chunk)

    @rule(chunk=CHUNKS, times=st.integers(1, 5))
    def deliver_all(self, chunk: int, times: int) -> None:
        for _ in range(times):
            self.end.step(chunk)

    @rule(index=st.integers(0, 7))
    def break_connection(self, index: int) -> None:
        newest = self.end.network.transports[-8:]
        newest[index % len(newest)].abortConnection()

    @rule()
    def freeze(self) -> None:
        self.end.freeze()

    @rule(state=st.sampled_from(("up", "up", "down", "hole")))
    def change_link(self, state: str) -> None:
        self.end.link.state = state

    @rule(seconds=st.sampled_from((0.05, 0.3, 1.0, 5.0, 25.0)))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def recover(self) -> None:
        self.end.link.state = "up"
        self.end.wait(11)

    @rule(data=st.binary(min_size=1, max_size=300), back=st.integers(0, 300))
    def print_unseen(self, data: bytes, back: int) -> None:
        self.end.cut()
        self.server.print(data)
        self.forget(back)

    # What must hold.

    @invariant()
    def output_is_exact(self) -> None:
        if not hasattr(self, "user"):
            return
        items, self.seen = self.user.items[self.seen :], len(self.user.items)
        for item in items:
            if item is None:
                self.epoch = self.next_journal_with_output()
                self.offset = self.first_position_in_journal
            elif isinstance(item, int):
                assert item > 0
                self.offset += item
            else:
                journal = self.server.journals[self.epoch]
                assert journal[self.offset : self.offset + len(item)] == item
                self.offset += len(item)
        position = self.end.client.position
        if position is not None and not self.end.client._connection.is_placed:
            assert (position.epoch, position.offset) == (self.epoch, self.offset)

    first_position_in_journal = 0

    def next_journal_with_output(self) -> str:
        """Return the journal in which the client is now."""
        position = self.end.client.position
        assert position is not None
        received = 0
        for item in reversed(self.user.items):
            if item is None:
                break
            received += item if isinstance(item, int) else len(item)
        self.first_position_in_journal = position.offset - received
        return str(position.epoch)

    @invariant()
    def paused_user_gets_nothing(self) -> None:
        if hasattr(self, "user") and self.paused:
            assert len(self.user.items) == self.items_at_pause

    @invariant()
    def input_is_exact(self) -> None:
        if not hasattr(self, "user"):
            return
        for _, uncertain in self.user.returns[self.returns_seen :]:
            self.forget_uncertain(uncertain)
        self.returns_seen = len(self.user.returns)
        line = self.pieces()[self.line_start :]
        assert line == self.typed[: len(line)]

    def pieces(self) -> list[Any]:
        """Return what the line has got, each byte apart; the end of the input may repeat."""
        pieces: list[Any] = []
        for item in self.server.line:
            if isinstance(item, bytes):
                pieces += [item[i : i + 1] for i in range(len(item))]
            elif item is not None or None not in pieces:
                pieces.append(item)
        return pieces

    def forget_uncertain(self, uncertain: int) -> None:
        """The client has dropped input: the line has all that was before, and perhaps some of it."""
        if not uncertain:
            return
        end_kept = None in self.typed
        kept = len(self.typed) - uncertain - end_kept
        line = self.pieces()[self.line_start :]
        assert line[:kept] == self.typed[:kept]
        arrived = 0
        while arrived < len(line) and line[arrived] == self.typed[arrived]:
            arrived += 1
        self.line_start += arrived
        self.typed = self.typed[max(kept + uncertain, arrived) :]

    @invariant()
    def sessions_are_over_only_when_they_expire(self) -> None:
        if hasattr(self, "user") and self.user.detached_with:
            assert self.expired, self.user.detached_with
            assert not self.user.endings

    def teardown(self) -> None:
        """With a network that works again everything arrives."""
        if not hasattr(self, "user"):
            return
        self.server.refusals = []
        self.end.link.state = "up"
        if self.paused:
            self.pause_or_resume()
            self.output_is_exact()  # of one journal at a time: the next connection may have another
        for _ in range(12):
            self.end.wait(10)
            self.server.acknowledge()
        self.output_is_exact()
        self.input_is_exact()
        self.sessions_are_over_only_when_they_expire()
        if not self.user.detached_with:
            assert self.epoch == self.server.epoch
            assert self.offset == len(self.server.journal)
            assert len(self.pieces()) - self.line_start == len(self.typed)
            if self.size is not None:
                assert self.server.sizes[-1] == self.size
            self.end.client.leave()
            self.end.wait(10)
            assert self.server.sessions == []
        assert len(self.user.detached_with) == 1
        self.end.wait(60)
        assert self.clock.getDelayedCalls() == []


class MachineTests(SynchronousTestCase):
    """The search."""

    def test_exactness(self) -> None:
        """Nothing is lost and nothing is repeated, whatever happens to the connections."""
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            Exactness,
            settings=settings(
                max_examples=soak.figure(self), stateful_step_count=60, deadline=None
            ),
        )
