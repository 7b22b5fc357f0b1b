"""
Everything that can happen to the sessions of a machine, in any order: a search over interleavings.

Two users of our client and one of a stock client have sessions at one machine.  The runtimes, the
console and the clients are real; the network and the clock are the test's.
Connections deliver any amount at any time, break, lose their path, or end at one side only.  Users
take over from each other, leave for longer than a session is kept, and come back.  The machine ends
and starts again.  The runtime restarts, and is killed.

The machine prints terminal queries all the time, and any connection may be lost within one.  A
terminal must get them only as far as they were printed after its connection was made.
"""

from __future__ import annotations

import re
from collections.abc import Callable
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
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests import soak
from tests.runtimes.processes import Runtime
from tests.streaming.remotecommand.resuming import ResumingUser
from twisted_exec.streaming.interfaces import LINE_LOST, Ending, Role
from twisted_exec.testing.console import RecordingUser
from twisted_exec.testing.network import MemoryTransport
from twisted_exec.wire.stream_options import CONSOLE

KEPT_SECONDS = 60
CRASH = Ending(LINE_LOST, "the emulator ended")
NAMES = ("ada", "bob", "eve")
RESUMING, STOCK = NAMES[:2], NAMES[2]

SIZES = st.sampled_from((1, 5, 300, 1500, 5000))
CHUNKS = st.sampled_from((1, 40, 200, 1000, 1 << 16))
SECONDS = st.sampled_from((0.05, 0.3, 1.0, 5.0, 12.0, 25.0, 70.0))

_NOTICE = re.compile(rb"\r\n\[twisted-exec: (?:[^\r\n]|\r\n  )*\]\r\n")
_HALF_NOTICE = re.compile(rb"\r(\n(\[[^\r]*\r?)?)?\Z")
_PRINTED = bytes(range(32, 243)) + b"\x1b[6n"
"""What the machine prints, again and again, without a carriage return, with which notices begin."""
_HARMLESS = _PRINTED.replace(b"\x9a", b"\x80").replace(b"\x1b[6n", b"\x1b[6_")
"""The same with its queries changed: for the kind of the terminal, and for the place of its cursor."""
_DIGITS = 256 // (3 * len(NAMES))


def _keys(number: int) -> bytes:
    """
    Return all keys that one user may type.

    Each three of them are a number, and each digit shows its place and its user.  So a key that is
    repeated, or comes too late, cannot be mistaken for another one.
    """
    first = 3 * number * _DIGITS
    return b"".join(
        bytes((first + a, first + _DIGITS + b, first + 2 * _DIGITS + c))
        for a in range(_DIGITS)
        for b in range(_DIGITS)
        for c in range(_DIGITS)
    )


_KEYS = {name: _keys(number) for number, name in enumerate(NAMES)}
_OF_OTHERS = {
    name: bytes(set(range(256)) - set(range(3 * number * _DIGITS, 3 * (number + 1) * _DIGITS)))
    for number, name in enumerate(NAMES)
}


def _part(text: bytes, start: int, end: int) -> bytes:
    """Return the part of an output that repeats a text."""
    first = start % len(text)
    return (text * ((end - start) // len(text) + 2))[first : first + end - start]


def _check_output(data: bytes, start: int, history: int, live: int) -> None:
    """
    Check a part of the output of a terminal, which begins at an offset.

    :param history: what was printed before this offset has no queries.
    :param live: what was printed from this offset on has all; between them both are right.
    """
    end = start + len(data)
    first = min(max(start, history), end)
    last = min(max(first, live), end)
    printed, harmless = _part(_PRINTED, start, end), _part(_HARMLESS, start, end)
    old, new = first - start, last - start
    assert data[:old] == harmless[:old], f"output up to {first}, from before the stream"
    either = zip(data[old:new], printed[old:new], harmless[old:new], strict=True)
    assert all(byte in allowed for byte, *allowed in either), f"output from {first} to {last}"
    assert data[new:] == printed[new:], f"output from {last}"


class _User(ResumingUser):
    """
    Takes note of the time of the last loss, and checks the output.

    :param printed_bytes: returns how much the runtime has got from the machine.
    """

    def __init__(self, clock: Clock, printed_bytes: Callable[[], int]) -> None:
        super().__init__()
        self._clock, self.lost_at = clock, 0.0
        self._printed_bytes = printed_bytes
        self._printed_before = printed_bytes()  # before the connection was made
        self._pieces: list[tuple[bytes, int, int, int, int]] = []
        self._checked = 0

    def outage(self, reason: str) -> None:
        super().outage(reason)
        self.lost_at = self._clock.seconds()
        self._printed_before = self._printed_bytes()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        position, live_from = self.stream.position.offset, self.stream.live_from
        bounds = self._printed_before, self._printed_bytes()
        self._pieces.append((data, position, live_from, *bounds))

    def check_output(self) -> None:
        """Check what has arrived since the last call."""
        pieces, self._pieces = self._pieces, []
        for data, position, live_from, before, now in pieces:
            assert before <= live_from <= now, "the connection was not made at that time"
            _check_output(data, self._checked, live_from, live_from)
            self._checked += len(data)
            assert self._checked == position


class Typing:
    """
    What one user types, and what the machine gets of it.

    :ivar typed: how many keys were typed over all sessions.
    :ivar owed: from this key on the machine must get everything; ``None`` while that is not known.
    """

    def __init__(self, name: str) -> None:
        self._keys, self._of_others = _KEYS[name], _OF_OTHERS[name]
        self.typed = 0
        self.owed: int | None = 0
        self._expected_at = 0  # of `owed` in what has arrived
        self._arrived = bytearray()
        self._next = 0  # the key after the last one that has arrived
        self._items = 0

    def type(self, size: int) -> bytes:
        data = self._keys[self.typed : self.typed + size]
        self.typed += len(data)
        return data

    def calm(self) -> None:
        """From now on the machine must get everything."""
        self.owed, self._expected_at = self.typed, len(self._arrived)

    def disturb(self) -> None:
        """What is on the way may be discarded, and what follows may be."""
        self.owed = None

    def ended(self) -> None:
        """The machine has ended: the next boot must get nothing that was typed before."""
        self._next = self.typed

    def started(self) -> None:
        """The machine has started again."""
        self._items = 0

    def check(self, items: list[Any]) -> None:
        """Check what has arrived since the last call; ``items`` is what this boot has got."""
        new, self._items = items[self._items :], len(items)
        data = b"".join(each for each in new if isinstance(each, bytes))
        data = data.translate(None, self._of_others)
        self._arrived += data
        if self._keys[self._next : self._next + len(data)] == data:
            self._next += len(data)
        else:
            for key in data:
                found = self._keys.find(key, self._next, self.typed)
                assert found >= 0, f"key {key} of {data!r} after {self._next}"
                self._next = found + 1
        if self.owed is not None:
            owed = self._keys[self.owed : self.typed]
            assert owed.startswith(self._arrived[self._expected_at :]), "input was discarded"

    @property
    def is_complete(self) -> bool:
        """True if the machine has got all that it must get."""
        if self.owed is None:
            return True
        return len(self._arrived) - self._expected_at == self.typed - self.owed


class Interleavings(RuleBasedStateMachine):
    """One machine, three users, and everything that can happen between them."""

    @initialize()
    def start(self) -> None:
        self.clock: Any = Clock()
        self.runtime = Runtime(self.clock, KEPT_SECONDS, restart_seconds=KEPT_SECONDS)
        self.runtime.query = CONSOLE.query()
        self.typing = {name: Typing(name) for name in NAMES}
        self.ends: dict[str, Any] = {}
        self.off_since: float | None = None
        self.may_be_over: set[str] = set()
        self.checked = self.history = 0  # of the stock client's output
        self.may_be_uncertain: set[str] = set()
        for name in NAMES:
            self.open(name)
        self.calm()

    def open(self, name: str) -> None:
        """Open a session."""
        if name == STOCK:
            self.checked, self.history = 0, len(self.runtime.printed)
            self.ends[name] = self.runtime.stock(name)
        else:
            user = _User(self.clock, lambda: len(self.runtime.printed))
            self.ends[name] = self.runtime.ours(name, user)
        self.may_be_over.discard(name)
        self.typing[name].disturb()

    def user(self, name: str) -> RecordingUser:
        end = self.ends[name]
        return end if name == STOCK else end.user  # type: ignore[no-any-return]

    def stream(self, name: str) -> Any:
        return self.ends[name].stream if name == STOCK else self.ends[name].client

    def is_open(self, name: str) -> bool:
        return not self.user(name).detached_with

    def disturb(self) -> None:
        for each in self.typing.values():
            each.disturb()

    def calm(self) -> None:
        """Nothing is on the way, so from now on the machine must get all that the writers type."""
        writers = {each.user for each in self.runtime.process.shared.floor.writers}
        for name in writers:
            if self.is_open(name):
                self.typing[name].calm()

    # The users.

    @rule(name=st.sampled_from(NAMES), size=SIZES)
    def type(self, name: str, size: int) -> None:
        if self.is_open(name):
            self.stream(name).write(self.typing[name].type(size))

    @rule(
        name=st.sampled_from(NAMES), role=st.sampled_from((Role.WRITER, Role.WRITER, Role.OBSERVER))
    )
    def request_role(self, name: str, role: Role) -> None:
        if self.is_open(name):
            self.disturb()
            self.stream(name).wish(role)

    @precondition(lambda self: self.can_open)
    @rule(name=st.sampled_from(NAMES))
    def come_back(self, name: str) -> None:
        if not self.is_open(name):
            self.runtime.pump()
            self.open(name)

    @property
    def can_open(self) -> bool:
        return hasattr(self, "ends") and self.off_since is None

    # The machine.

    @rule(size=SIZES)
    def print(self, size: int) -> None:
        start = len(self.runtime.printed)
        if self.off_since is None:
            self.runtime.print(_part(_PRINTED, start, start + size))

    @precondition(lambda self: self.can_open)
    @rule()
    def end_machine(self) -> None:
        self.disturb()
        self.runtime.end_machine(CRASH)
        self.check_input()
        for name in RESUMING:
            self.typing[name].ended()
        self.off_since = self.clock.seconds()

    @precondition(lambda self: self.off_since is not None)
    @rule()
    def start_machine(self) -> None:
        self.note_time()
        self.off_since = None
        self.runtime.start_machine()
        for each in self.typing.values():
            each.started()

    # The runtime.

    @precondition(lambda self: self.can_open)
    @rule()
    def restart_runtime(self) -> None:
        self.disturb()
        self.may_be_over.add(STOCK)
        # Of the others the client reads the last Ack.
        self.may_be_uncertain.update(name for name in RESUMING if not self.is_connected(name))
        self.runtime.restart()
        self.note_time()

    def is_connected(self, name: str) -> bool:
        """Return whether a user has a connection that delivers."""
        stream = self.ends[name].client._connection.stream
        pair = self.transports(name)[-2:]
        is_whole = all(each.connected and each not in self.runtime.frozen for each in pair)
        return is_whole and stream is not None

    @precondition(lambda self: self.can_open)
    @rule(number=st.integers(0, 3))
    def kill_runtime(self, number: int) -> None:
        if number == 1:
            self.disturb()
            self.may_be_uncertain.update(RESUMING)
            self.may_be_over.add(STOCK)
            self.runtime.kill()

    # The network.

    def transports(self, name: str) -> list[MemoryTransport]:
        """Return both ends of a user's newest connections."""
        return [] if name == STOCK else self.ends[name].network.transports[-4:]

    @rule(chunk=CHUNKS, times=st.integers(1, 8))
    def deliver(self, chunk: int, times: int) -> None:
        for _ in range(times):
            self.runtime.step(chunk)

    @rule(name=st.sampled_from(RESUMING), index=st.integers(0, 3), chunk=CHUNKS)
    def deliver_one(self, name: str, index: int, chunk: int) -> None:
        transports = self.transports(name)
        transport = transports[index % len(transports)]
        if transport not in self.runtime.frozen:
            transport.step(chunk)

    @rule(name=st.sampled_from(RESUMING), index=st.integers(0, 3))
    def cut(self, name: str, index: int) -> None:
        transports = self.transports(name)
        transports[index % len(transports)].abortConnection()

    @rule(name=st.sampled_from(RESUMING))
    def forget(self, name: str) -> None:
        """The newest connection ends at the client: what it has sent arrives, and no end of it."""
        client, server = self.transports(name)[-2:]
        if client.connected:
            orphan = MemoryTransport(Protocol())
            orphan.reading = False
            orphan.peer, server.peer = server, orphan
            orphan.queued, client.queued = client.queued, b""
            self.ends[name].network.transports.insert(0, orphan)
            client.abortConnection()

    @rule(name=st.sampled_from(RESUMING))
    def lose_path(self, name: str) -> None:
        self.ends[name].freeze()

    @rule()
    def find_paths(self) -> None:
        self.runtime.frozen.clear()

    @rule(name=st.sampled_from(RESUMING), state=st.sampled_from(("up", "up", "down", "hole")))
    def change_link(self, name: str, state: str) -> None:
        self.ends[name].link.state = state

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self.pass_seconds(seconds)

    def pass_seconds(self, seconds: float) -> None:
        self.runtime.pass_seconds(seconds)
        self.note_time()

    def note_time(self) -> None:
        """Take note of sessions that may be over by now."""
        if self.off_since is not None and self.clock.seconds() - self.off_since >= KEPT_SECONDS:
            self.may_be_over.update(NAMES)

    @precondition(lambda self: self.can_open)
    @rule()
    def settle(self) -> None:
        """Everything works again, and arrives."""
        for name in RESUMING:
            self.ends[name].link.state = "up"
        self.pass_seconds(30)
        self.check_complete()
        self.calm()

    # What must hold.

    @invariant()
    def output_is_exact(self) -> None:
        """
        Each session has got a beginning of the output, and no query from before its connection.

        All other bytes are as they were printed.
        """
        if not hasattr(self, "ends"):
            return
        for name in RESUMING:
            user = self.ends[name].user
            assert all(isinstance(each, bytes) for each in user.items), name
            user.check_output()
        output = self.output(STOCK)
        _check_output(output[self.checked :], self.checked, self.history, self.history)
        self.checked = len(output)
        for name in NAMES:
            assert len(self.output(name)) <= len(self.runtime.printed), name

    def output(self, name: str) -> bytes:
        received = self.user(name).received
        return _HALF_NOTICE.sub(b"", _NOTICE.sub(b"", received)) if name == STOCK else received

    @invariant()
    def input_is_exact(self) -> None:
        """The machine got keys in their order, none twice, and none that was typed for another boot."""
        if hasattr(self, "ends"):
            self.check_input()

    def check_input(self) -> None:
        for each in self.typing.values():
            each.check(self.runtime.boots[-1])

    @invariant()
    def nothing_is_uncertain(self) -> None:
        """A restart makes keys uncertain only of users whose connection is lost."""
        for name in RESUMING if hasattr(self, "ends") else ():
            if name not in self.may_be_uncertain:
                assert not any(uncertain for _, uncertain in self.ends[name].user.returns)

    @invariant()
    def one_user_has_the_floor(self) -> None:
        if hasattr(self, "ends"):
            assert len({each.user for each in self.runtime.process.shared.floor.writers}) <= 1

    @invariant()
    def sessions_are_over_for_a_reason(self) -> None:
        """No session ends but by the time without its user, by that of its machine, or with its runtime."""
        for name in NAMES if hasattr(self, "ends") else ():
            user = self.user(name)
            if self.is_open(name) or name in self.may_be_over:
                continue
            (reason,) = user.detached_with
            assert isinstance(user, _User), (name, reason, user.endings)
            assert "there is no such session to resume" in reason, (name, reason, user.endings)
            assert self.clock.seconds() - user.lost_at >= KEPT_SECONDS - 20, "too early"
            self.may_be_over.add(name)

    def check_complete(self) -> None:
        """Everything has arrived, in both directions."""
        self.input_is_exact()
        self.output_is_exact()
        self.sessions_are_over_for_a_reason()
        for name in NAMES:
            if self.is_open(name):
                assert len(self.output(name)) == len(self.runtime.printed), name
                assert self.typing[name].is_complete, name

    def teardown(self) -> None:
        """With a network that works again everything arrives."""
        if not hasattr(self, "ends"):
            return
        if self.off_since is not None:
            self.start_machine()
        self.settle()
        for name in NAMES:
            if self.is_open(name):
                self.stream(name).leave()
        self.pass_seconds(2 * KEPT_SECONDS)
        assert self.runtime.process.shared.viewers == ()


class InterleavingTests(SynchronousTestCase):
    """Whatever happens in whatever order, nothing is lost and nothing is there twice."""

    def test_any_order(self) -> None:
        """
        At each moment the users have a beginning of what the machine printed, and the machine has
        what the writers typed; in the end they have all of it.
        """
        run_state_machine_as_test(
            Interleavings,
            settings=settings(
                max_examples=soak.figure(self), stateful_step_count=40, deadline=None
            ),
        )

    def test_queries(self) -> None:
        """
        A terminal that lost its connection within a query gets a harmless one, and those that are
        printed afterwards as they are, also after a restart; a new session gets harmless ones.
        """
        machine = Interleavings()
        machine.start()
        machine.print(len(_PRINTED) - 1)
        machine.deliver(1 << 16, 2)
        machine.cut("ada", 1)
        machine.print(1 + len(_PRINTED))
        machine.settle()
        machine.print(len(_PRINTED))
        machine.settle()
        first, missed = _PRINTED[:-1], _HARMLESS[-1:] + _HARMLESS
        self.assertEqual(machine.output("ada"), first + missed + _PRINTED)
        self.assertEqual(machine.output("bob"), 3 * _PRINTED)
        self.assertEqual(machine.output("eve"), 3 * _PRINTED)

        machine.restart_runtime()
        machine.settle()
        machine.print(len(_PRINTED))
        machine.settle()
        for name in RESUMING:
            self.assertTrue(machine.output(name).endswith(_PRINTED), name)
        machine.open("eve")
        machine.settle()
        self.assertEqual(machine.output("eve"), 4 * _HARMLESS)
        machine.teardown()
