"""
Tests for :mod:`twisted_exec.runtimes.serving.kept_sessions`: sessions over lost connections, from
the request on.
"""

from __future__ import annotations

import gc
from dataclasses import replace

from tests.retained import entries
from tests.runtimes.serving.kept_case import EPOCH, NO_SESSION, KeptCase
from tests.streaming.frames import Pong
from twisted_exec.api.status import Conflict
from twisted_exec.streaming.interfaces import (
    COMPLETED,
    IDLE,
    RESTARTING,
    RESUMED,
    REVOKED,
    Ending,
)
from twisted_exec.streaming.remotecommand.resumable import PageServer
from twisted_exec.streaming.subject import Subject
from twisted_exec.testing.console import ResumableAttachment
from twisted_exec.wire.marks import Ack, At
from twisted_exec.wire.resize import Message, encode_message
from twisted_exec.wire.resume import UNCONFIRMED_SECONDS, Position
from twisted_exec.wire.session_terms import TERMS_HEADER, Terms


class ResumeTests(KeptCase):
    """A session whose connection is lost, and whose user comes back."""

    def test_back(self) -> None:
        """Output and input go on where they were, with the same attachment."""
        client = self.open()
        self.assertEqual(client.hears(), [Ack(0), At(Position(EPOCH, 0))])
        self.attachment.prints(b"login: ")
        client.send(b"\0ann")
        client.lose()
        self.assertEqual(self.metric("absent_sessions"), 1)
        self.clock.advance(59)
        self.attachment.prints(b"ann\r\n")
        again = self.open(client.resume(3).text())
        self.assertEqual(again.hears(), [Ack(3), At(Position(EPOCH, 3)), b"in: ann\r\n"])
        again.send(b"\0bell")
        self.assertEqual(self.attachment.received, b"annbell")
        (attachment,) = self.attachments
        self.assertEqual(attachment.events, ["away", "resumed"])
        self.assertEqual((self.metric("absent_sessions"), self.results()), (0, {"resumed": 1}))
        self.clock.advance(100)
        again.leave()
        self.assertEqual(attachment.detached_with, ["client closed"])
        self.assertEqual(entries(self.cache), 0)

    def test_idle(self) -> None:
        """A client that resumes its session again and again does not count as one that types."""
        terms = f"{TERMS_HEADER}: {Terms(idle_seconds=100, policy='a/x').text()}".encode()
        size = b'\4{"Width":80,"Height":24}\n'
        for key, ends in ((b"", True), (b"\0x", False)):
            client = self.open(lines=(terms,))
            for _ in range(3):
                client.send(size)
                if key:
                    client.send(key)
                self.clock.advance(30)
                client.lose()
                client = self.open(client.resume().text(), lines=(terms,))
            client.send(size)
            self.clock.advance(10)
            endings = [each for each in client.hears() if isinstance(each, Ending)]
            self.assertEqual([each.reason for each in endings], [IDLE] if ends else [])

    def test_page(self) -> None:
        """The key of a page is valid until the page has sent something, whatever its browser answers."""
        client = self.open("marks; credit=65536")
        self.assertIsInstance(self.attachment.transport, PageServer)
        client.lose()
        again = self.open(f"{client.resume().text()}; credit=65536")
        self.assertIsInstance(self.attachment.transport, PageServer)
        again.say(Pong(b""))
        again.lose()
        self.assertEqual(self.refused(client.resume().text() + "; credit=1")[0], 400)
        again = self.open(client.resume().text())
        self.assertNotIsInstance(self.attachment.transport, PageServer)
        again.leave()

    def test_not_back(self) -> None:
        """After its time the session ends, and cannot be resumed any more."""
        client = self.open()
        client.lose()
        self.clock.advance(59.9)
        self.assertEqual(self.attachment.detached_with, [])
        self.clock.advance(0.2)
        self.assertEqual(self.attachment.detached_with, ["the user did not come back"])
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.refused(client.resume().text()), (404, NO_SESSION))

    def test_unconfirmed(self) -> None:
        """A session whose client may not have got the key ends soon after the loss of the connection."""
        client = self.unconfirmed()
        client.hears()
        self.assertEqual(client.pings, 1)
        client.lose()
        self.assertTrue(self.server.kept_sessions.waits_for("ann", "uid-x"))
        self.clock.advance(UNCONFIRMED_SECONDS - 1)
        again = self.unconfirmed(client.resume().text())
        self.assertEqual(again.hears()[0], Ack(0))
        again.lose()
        self.clock.advance(UNCONFIRMED_SECONDS)
        self.assertEqual(self.attachment.detached_with, ["the user did not come back"])
        self.assertEqual(self.metric("absent_sessions"), 0)
        self.assertEqual(self.refused(client.resume().text()), (404, NO_SESSION))

    def test_confirmed(self) -> None:
        """A client that answers the first ping has the key, and the session waits for it."""
        client = self.unconfirmed()
        client.say(Pong(b""))
        client.lose()
        self.clock.advance(59)
        self.unconfirmed(client.resume().text()).lose()
        self.clock.advance(59)
        self.assertEqual(self.attachment.detached_with, [])

    def test_left(self) -> None:
        """A user who leaves, and a session that was ended, cannot be resumed."""
        client = self.open()
        client.leave()
        self.assertEqual(self.refused(client.resume().text()), (404, NO_SESSION))
        client = self.open()
        (live,) = self.server.sessions.with_id(client.session)
        live.end(Ending(REVOKED, "forbidden"))
        client.lose()
        self.assertEqual(self.attachment.detached_with, [REVOKED])
        self.assertEqual(self.refused(client.resume().text()), (404, NO_SESSION))

    def test_again_and_again(self) -> None:
        """Each connection has a key of its own; the key before is worth nothing once it was used."""
        first = self.open()
        self.attachment.prints(b"login: ")
        first.lose()
        client = first
        for number in range(5):
            header = client.resume(number).text()
            older, client = client, self.open(header)
            client.say(Pong(b""))
            self.assertEqual(self.refused(header), (404, NO_SESSION))
            assert client.answer is not None and older.answer is not None
            self.assertNotEqual(client.answer.key, older.answer.key)
            client.lose()
        self.assertEqual(len(self.attachments), 1)
        self.assertEqual(self.results(), {"resumed": 5, "refused": 5})

    def test_lost_answer(self) -> None:
        """Until the user is heard the key before works too: the 101 may be lost."""
        client = self.open()
        client.send(b"\0abc")
        client.lose()
        unseen = [self.open(client.resume().text()) for _ in range(3)]
        unseen[-1].lose()
        back = self.open(client.resume().text())
        self.assertEqual(back.hears()[0], Ack(3))
        # Those whose 101 was lost are not used by anybody.
        self.assertEqual(self.refused(unseen[1].resume().text()), (404, NO_SESSION))
        self.assertEqual(back.pings, 1)
        back.lose()
        # The 101 has arrived, and nothing else.
        last = self.open(back.resume().text())
        self.assertEqual(last.hears()[0], Ack(3))
        last.send(b"\0d")
        self.assertEqual(self.attachment.received, b"abcd")
        for older in (client, back):
            self.assertEqual(self.refused(older.resume().text()), (404, NO_SESSION))

    def test_newest_wins(self) -> None:
        """The older of two connections ends, and nothing of it reaches the machine any more."""
        client = self.open()
        client.send(b"\0a")
        self.attachment.transport.pause_input()
        client.send(b"\0lost")
        again = self.open(client.resume().text())
        self.assertEqual(again.hears()[0], Ack(1))
        client.send(b"\0x")
        again.send(b"\0b")
        for number, each in enumerate((client, again)):
            each.send(b"\4" + encode_message(Message(f"{number}"), None))
        self.assertEqual((self.attachment.received, self.attachment.messages), (b"ab", ["1"]))
        ending = client.hears()[-1]
        message = "this session goes on over another connection"
        self.assertEqual(ending, Ending(RESUMED, message))
        self.assertTrue(client.is_closed)
        client.lose()
        self.assertEqual(self.attachment.events, ["resumed"])
        self.assertEqual(self.attachment.detached_with, [])
        self.clock.advance(100)
        again.send(b"\0c")
        self.assertEqual(self.attachment.received, b"abc")
        ends = [(each["session"], each["reason"]) for each in self.audit("end")]
        self.assertEqual(ends, [(client.session, RESUMED)])

    def test_status_is_lost(self) -> None:
        """The user can come back for the rest of the output and the status."""
        client = self.open()
        self.attachment.transport.end(Ending(COMPLETED))
        client.lose()
        again = self.open(client.resume().text())
        self.attachment.transport.end(Ending(COMPLETED))
        self.assertEqual(again.hears()[-1], Ending(COMPLETED))
        again.leave()
        self.assertEqual(self.attachment.detached_with, [COMPLETED])

    def test_machine_is_off(self) -> None:
        """A session that waits does not need a running machine."""
        client = self.open()
        client.lose()
        self.problem = Conflict("the machine is powered off")
        self.assertTrue(self.server.kept_sessions.waits_for("ann", "uid-x"))
        self.assertFalse(self.server.kept_sessions.waits_for("bob", "uid-x"))
        self.assertFalse(self.server.kept_sessions.waits_for("ann", "uid-y"))
        self.open(client.resume().text())
        self.assertFalse(self.server.kept_sessions.waits_for("ann", "uid-x"))

    def test_client_that_left(self) -> None:
        """A client that is gone before the 101 changes nothing."""
        client = self.open()
        client.lose()
        session = self.server.kept_sessions.find(client.resume(), "ann", "uid-x")
        assert session is not None
        (live,) = [self.server.sessions.open(Subject("s", user="ann"))]
        session.connect("s", live, client.resume())
        live.over("client closed", code=499)
        self.clock.advance(30)
        again = self.open(client.resume().text())
        self.assertEqual(again.hears()[0], Ack(0))


class Printed(ResumableAttachment):
    """An attachment of a machine that has printed something before."""

    def __init__(self) -> None:
        super().__init__()
        self.output = b"login: "


class MadeAgain(ResumableAttachment):
    """An attachment of a machine with another journal."""

    epoch = "fedcba9876543210"


class RestartTests(KeptCase):
    """A runtime that was killed and started again; its machines are still there."""

    def restart(self) -> None:
        self.clock.advance(5)
        self.start()

    def test_goes_on(self) -> None:
        """The session goes on at its position; nobody knows how much input was settled."""
        client = self.open()
        client.send(b"\0abc")
        self.restart()
        self.make = Printed
        again = self.open(client.resume(4).text())
        self.assertEqual(again.hears(), [Ack(None), At(Position(EPOCH, 4)), b"n: "])
        self.assertEqual(self.results(), {"restarted": 1})
        self.assertEqual(self.attachment.events, ["resumed"])
        again.send(b"\0d")
        self.assertEqual(self.refused(client.resume().text()), (404, NO_SESSION))
        again.lose()
        last = self.open(again.resume().text())
        self.assertEqual(last.hears()[0], Ack(1))
        self.assertEqual(self.results(), {"restarted": 1, "resumed": 1, "refused": 1})

    def test_lost_answer(self) -> None:
        """If the 101 is lost, the same session goes on, and the count is still unknown."""
        client = self.open()
        self.restart()
        before = len(self.attachments)
        self.open(client.resume().text()).lose()
        again = self.open(client.resume().text())
        self.assertEqual(again.hears()[0], Ack(None))
        self.assertEqual(len(self.attachments), before + 1)

    def test_oldest(self) -> None:
        """The new attachment learns where the session began."""
        client_before = self.make
        begin = Position(EPOCH, 77)

        def make() -> ResumableAttachment:
            attachment: ResumableAttachment = client_before()
            attachment.oldest = begin
            return attachment

        self.make = make
        client = self.open()
        self.make = ResumableAttachment
        self.restart()
        self.open(client.resume().text())
        self.assertEqual(self.attachment.oldest, begin)

    def test_refused(self) -> None:
        """Others than the holder get the same answer as for a key that nobody knows."""
        client = self.open()
        self.restart()
        good = client.resume()
        for header, more in (
            (good, {"user": "bob"}),
            (good, {"uid": "uid-y"}),
            (replace(good, session="s9"), {}),
        ):
            self.assertEqual(self.refused(header.text(), **more), (404, NO_SESSION))
        self.assertEqual(self.refused(client.resume(1).text())[0], 400)
        self.problem = Conflict("the machine is powered off")
        self.assertEqual(self.refused(good.text()), (409, "the machine is powered off"))
        self.problem = None
        self.open(good.text())

    def test_other_machine(self) -> None:
        """A machine that was made again meanwhile has another journal, and so another session."""
        client = self.open()
        self.restart()
        self.make = MadeAgain
        self.assertEqual(self.refused(client.resume().text()), (404, NO_SESSION))

    def test_too_late(self) -> None:
        """Sessions of the earlier process wait as long as any other, from the start on."""
        client = self.open()
        self.restart()
        self.clock.advance(60)
        self.assertEqual(self.refused(client.resume().text()), (404, NO_SESSION))

    def test_other_secret(self) -> None:
        """Another runtime does not know the keys."""
        client = self.open()
        self.restart()
        self.server.kept_sessions.start(b"t" * 32)
        self.assertEqual(self.refused(client.resume().text()), (404, NO_SESSION))


class AuditTests(KeptCase):
    """Records of sessions that are lost and resumed."""

    def test_records(self) -> None:
        """The end of the lost connection says so; the start of the next names its session."""
        client = self.open()
        client.send(b"\0abc")
        client.lose()
        again = self.open(client.resume().text())
        again.send(b"\0de")
        again.leave()
        start, resumed = self.audit("start")
        self.assertNotIn("resumes", start)
        self.assertEqual((resumed["session"], resumed["resumes"]), (again.session, client.session))
        lost, left = self.audit("end")
        self.assertEqual(lost["reason"], "connection closed; may be resumed")
        self.assertEqual(left["reason"], "client closed")
        self.assertEqual((lost["bytes_to_machine"], left["bytes_to_machine"]), (3, 2))

    def test_superseded(self) -> None:
        """A connection that was superseded counts its own input only."""
        client = self.open()
        client.send(b"\0abc")
        again = self.open(client.resume().text())
        again.send(b"\0de")
        client.leave()
        again.leave()
        self.assertEqual([each["bytes_to_machine"] for each in self.audit("end")], [3, 2])


class StopTests(KeptCase):
    """A runtime that stops."""

    def test_stop(self) -> None:
        """Clients are told to come back, behind the last Ack; nothing is left, also not of those who wait."""
        client, absent = self.open(), self.open()
        absent.lose()
        client.send(b"\0ls")
        stopped = self.server.stopService()
        self.assertEqual(client.hears()[-1], Ack(2))
        self.assertTrue(client.is_closed)
        client.lose()
        self.successResultOf(stopped)
        reason = "the server of this console is shutting down"
        self.assertEqual([each.detached_with for each in self.attachments], [[reason], [reason]])
        self.assertEqual(self.audit("end")[-1]["reason"], RESTARTING)
        self.clock.advance(0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_lost_meanwhile(self) -> None:
        """A connection that is lost while the runtime stops ends its session."""
        client = self.open()
        self.attachment.transport.end(Ending(COMPLETED))  # its status waits for the client
        self.server.kept_sessions.close("the server of this console is shutting down")
        client.lose()
        reason = "the server of this console is shutting down"
        self.assertEqual(self.attachment.detached_with, [reason])


class LeakTests(KeptCase):
    """Many losses."""

    def cycle(self) -> None:
        """Open a session, resume it, supersede it, and give it up."""
        first = self.open()
        first.lose()
        second = self.open(first.resume().text())
        third = self.open(second.resume().text())
        second.leave()
        third.lose()
        self.clock.advance(61)
        self.attachments.clear()
        self.records.seek(0)
        self.records.truncate()

    def test_losses(self) -> None:
        """They leave nothing behind."""
        for _ in range(3):
            self.cycle()
        gc.collect()
        objects = len(gc.get_objects())
        for _ in range(100):
            self.cycle()
        gc.collect()
        self.assertLess(len(gc.get_objects()) - objects, 100)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual((len(self.server.sessions), entries(self.cache)), (0, 0))
