"""How translated sessions end, early and after any order of actions."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.streaming.http.test_upgrade_client import OneConnection
from tests.streaming.remotecommand.translating import TranslateTestCase
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    INTERNAL,
    LINE_LOST,
    MACHINE_DELETED,
    REVOKED,
    Ending,
    TerminalSize,
)
from twisted_exec.streaming.remotecommand.carriers import OVER_SPDY
from twisted_exec.streaming.remotecommand.client import ConsoleClient
from twisted_exec.streaming.remotecommand.translate import LOST, SILENT_SECONDS
from twisted_exec.testing.console import RecordingAttachment
from twisted_exec.wire.channel import V5, Channel
from twisted_exec.wire.session_terms import Right, Terms

SUCCESS = {"metadata": {}, "status": "Success"}


class EndTests(TranslateTestCase):
    """Sessions that end early."""

    def test_machine_vanishes(self) -> None:
        """A next hop that dies without a status is a failure that says so, not success."""
        self.open()
        self.attachment.transport.write(b"almost")
        self.network.pump()
        self.attachment.transport.cut()
        last = self.over("backend lost")
        self.assertEqual((self.user.received, last["bytes_to_user"]), (b"almost", 6))
        self.assertEqual(self.user.endings, [Ending(INTERNAL, LOST)])

    def test_unreadable_status(self) -> None:
        """An unreadable status is a failure."""
        self.open()
        self.foreign.carrier.send_status(b"{nonsense")
        self.network.pump()
        (told,) = self.user.endings
        self.assertEqual(
            (told.reason, told.message),
            (INTERNAL, "the machine's status cannot be read: status is not JSON"),
        )

    def test_endless_status(self) -> None:
        """A status that is too large is a failure."""
        self.open()
        for _ in range(5):
            self.foreign.carrier.send(Channel.ERROR, b"x" * 20000)
        self.over("backend closed")
        (told,) = self.user.endings
        self.assertIn("the status is too large", told.message)

    def test_no_status(self) -> None:
        """An empty status is success, as in Kubernetes."""
        self.open()
        self.foreign.carrier.send_status(b"")
        self.network.pump()
        self.assertEqual(self.user.endings, [Ending(COMPLETED)])
        self.over("backend closed")

    def test_protocol_broken_behind(self) -> None:
        """A next hop that speaks nonsense is cut off, the user told."""
        self.open()
        self.foreign.carrier.transport.write(b"\x80\x03\0\x05\0\0\0\0")
        self.network.pump()
        (told,) = self.user.endings
        self.assertIn("the machine's end broke the protocol", told.message)
        self.over("backend closed")

    def test_user_leaves(self) -> None:
        """A user who leaves is gone everywhere, after what was typed."""
        client = self.open()
        client.write(b"exit\n")
        client.leave()
        self.over("client closed")
        self.assertEqual(self.attachment.received, b"exit\n")
        self.assertEqual(self.attachment.detached_with, ["client closed"])

    def test_user_vanishes(self) -> None:
        """A user whose connection is lost ends the session at every hop."""
        client = self.open()
        client.abort()
        self.over("client lost")

    def test_protocol_broken_before(self) -> None:
        """If the user breaks the protocol, the user gets an error and the session ends."""
        client = self.open()
        client.carrier.socket.send(b"\xff\0\0")
        self.network.pump()
        self.assertIn("the client broke the protocol", self.user.endings[0].message)
        self.assertIn("protocol error", self.over_after(15)["reason"])

    def over_after(self, seconds: float) -> dict[str, Any]:
        self.clock.pump([1] * int(seconds))
        self.network.pump()
        self.assertEqual(len(self.sessions), 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        return self.records[-1]

    def test_ended_by_the_hop(self) -> None:
        """The hop tells the user itself, though the next one knows of no endings."""
        self.open()
        self.attachment.transport.write(b"last")
        self.network.pump()
        ending = Ending(MACHINE_DELETED, 'machine "vm" was deleted')
        self.sessions.end(lambda one: one.user == "ann", ending)
        self.network.pump()
        self.assertEqual((self.user.received, self.user.endings), (b"last", [ending]))
        self.over(MACHINE_DELETED)
        self.assertEqual(len(self.foreign.asked), 2)

    def test_input_behind_the_end(self) -> None:
        """Nothing that the user sends after the decision reaches the machine."""
        client = self.open()
        client.write(b"before")
        self.network.pump()
        self.sessions.end(lambda _: True, Ending(REVOKED, "no more"))
        client.write(b"behind")
        self.network.pump()
        self.assertEqual(self.attachment.received, b"before")

    def test_input_while_opening(self) -> None:
        """Nor does anything if the session was to end before its stream was up."""
        attach = self.foreign.make

        def revoke() -> RecordingAttachment:
            self.sessions.end(lambda _: True, Ending(REVOKED, "no more"))
            return attach()

        self.foreign.make = revoke
        opening = self.ask()
        opening.addCallback(lambda client: client.write(b"early"))
        self.network.pump()
        self.assertEqual(self.attachment.received, b"")
        self.assertEqual([each.reason for each in self.user.endings], [REVOKED])

    def test_paused_user(self) -> None:
        """A paused user's input waits, in its order."""
        client = self.open()
        (session,) = self.sessions.live()
        translation: Any = session._stream.connections  # The session alone pauses its user.
        translation.pause_user()
        translation.input(Channel.STDIN, b"read already, ")
        client.write(b"and typed")
        self.network.pump()
        self.assertEqual(self.attachment.received, b"")
        translation.resume_user()
        self.network.pump()
        self.assertEqual(self.attachment.received, b"read already, and typed")
        translation.pause_user()
        translation.input_over()
        self.network.pump()
        self.assertEqual(self.attachment.input_ends, 0)
        translation.resume_user()
        self.network.pump()
        self.assertEqual(self.attachment.input_ends, 1)

    def test_terms_unconfirmed(self) -> None:
        """A session whose next hop still has to confirm a change of terms can end all the same."""
        silent = OneConnection(connected=False)
        self.admission.control = silent
        self.open()
        (session,) = self.sessions.live()
        session.hold_to(Terms(right=Right.OBSERVE))
        self.assertFalse(silent.connecting.called)
        self.attachment.transport.end(Ending(COMPLETED))
        self.over("backend closed")
        self.assertTrue(silent.connecting.called)  # cancelled

    def test_terms_of_the_session(self) -> None:
        """A change of terms names the session, though its streams are translated."""
        self.admission.control = control = OneConnection()
        self.open()
        (session,) = self.sessions.live()
        session.hold_to(Terms(right=Right.OBSERVE))
        line = control.transport.value().split(b"\r\n")[0]
        self.assertIn(b"?session=s-1&terms=right%3Dobserve", line)
        self.clock.advance(60)

    def test_cut_by_the_hop(self) -> None:
        """A cut by the hop ends the session without a status for the user."""
        self.open()
        for session in self.sessions.live():
            session.cut()
        self.over("cut")
        self.assertEqual(self.user.endings, [])

    def test_dead_machine(self) -> None:
        """A next hop that answers nothing any more is given up."""
        client = self.open()
        theirs = self.foreign.carrier.transport
        theirs.pauseProducing()
        for _ in range(int(SILENT_SECONDS) + 10):
            self.clock.advance(1)
            self.network.pump()
        (told,) = self.user.endings
        self.assertIn("the machine's end has not answered for 61 seconds", told.message)
        self.assertTrue(self.user.detached_with)
        self.assertFalse(client.carrier.blocked)

    def test_alive(self) -> None:
        """A session whose next hop only answers pings stays open."""
        client = self.open()
        for _ in range(200):
            self.clock.advance(1)
            self.network.pump()
        self.assertEqual(self.user.endings, [])
        client.leave()
        self.over("client closed")

    def test_stuck_user(self) -> None:
        """The hop waits for a user who does not read the end, up to a time limit."""
        client = self.open()
        client.pause_output()
        self.attachment.transport.write(b"x" * 300_000)
        self.attachment.transport.end(Ending(COMPLETED))
        self.network.pump()
        self.assertEqual(len(self.sessions), 1)
        for _ in range(120):
            self.clock.advance(1)
            self.network.pump()
        self.assertEqual(len(self.sessions), 0)


ACTIONS = st.tuples(
    st.sampled_from(
        [
            *("types", "prints", "user pauses", "user resumes", "machine pauses"),
            *("machine resumes", "resizes", "ends input", "waits"),
        ]
    ),
    st.integers(1, 90_000),
    st.integers(0, 3),
)
LAST = ("leaves", "vanishes", "machine ends", "machine vanishes", "hop ends", "hop cuts")


class AnyOrderTests(TranslateTestCase):
    """Properties of a translation for any order of actions."""

    @settings(max_examples=150, deadline=None)
    @given(st.lists(ACTIONS, max_size=20), st.sampled_from(LAST), st.booleans())
    def test_any_order(
        self, actions: list[tuple[str, int, int]], last: str, reversed_: bool
    ) -> None:
        """
        Bytes are never changed or reordered, buffers stay small, the session ends once and
        leaves nothing behind, and a user gets success only if the machine reported it.
        """
        self.protocols = (OVER_SPDY,) if reversed_ else (V5,)
        self.start(**({"speaks": (V5,), "spdy": False} if reversed_ else {}))
        client = self.open()
        typed = printed = b""
        ended = False
        machine = self.foreign.carrier.transport
        for what, amount, turns in actions:
            data = bytes(range(256)) * (amount // 256 + 1)
            if what == "types" and not ended:
                client.write(data)
                typed += data
            elif what == "prints":
                self.attachment.transport.write(data)
                printed += data
            elif what in ("user pauses", "user resumes"):
                client.pause_output() if what == "user pauses" else client.resume_output()
            elif what in ("machine pauses", "machine resumes"):
                machine.pauseProducing() if what == "machine pauses" else machine.resumeProducing()
            elif what == "resizes":
                client.resize(TerminalSize(amount % 500 + 1, 24))
            elif what == "ends input" and not ended:
                client.end_input()
                ended = True
            for _ in range(turns):
                for each in list(self.network.transports):
                    each.step(20_000)
        self.finish(last, client, machine)
        self.assertTrue(typed.startswith(self.attachment.received))
        self.assertTrue(printed.startswith(self.user.received))
        if last == "machine ends":
            self.assertEqual(self.user.received, printed)
            self.assertEqual([each.exit_code for each in self.user.endings], [9])
        self.assertFalse([each for each in self.user.endings if each.is_success])
        self.assertEqual(len(self.sessions), 0)
        self.records.check_pairs()
        self.assertTrue(all(each.lost for each in self.network.transports))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def finish(self, last: str, client: ConsoleClient, machine: Any) -> None:
        machine.resumeProducing()
        client.resume_output()
        if last == "leaves":
            client.leave()
        elif last == "vanishes":
            client.abort()
        elif last == "machine ends":
            self.attachment.transport.end(Ending(COMPLETED, exit_code=9))
        elif last == "machine vanishes":
            self.attachment.transport.cut()
        else:
            for session in self.sessions.live():
                session.cut() if last == "hop cuts" else session.end(Ending(LINE_LOST, "x"))
        self.network.pump(20_000)
        for _ in range(60):  # the rest ends by its time limits
            self.clock.advance(1)
            self.network.pump(20_000)
