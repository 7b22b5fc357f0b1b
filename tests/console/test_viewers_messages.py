"""
Tests for :mod:`twisted_exec.console.viewers`: messages of a user to the others.
"""

from __future__ import annotations

from twisted.internet.task import Clock
from zope.interface.verify import verifyObject

from twisted_exec.console.acts import MESSAGE, Act
from twisted_exec.console.shared_console import SharedConsole
from twisted_exec.streaming.interfaces import IMessaging, Role
from twisted_exec.testing.console import MarkStream
from twisted_exec.wire.marks import Notice, NoticeKind

from .doubles import MemoryConsole
from .viewer_case import READ_ONLY, ViewerCase

MANY = 10
"""Messages that a user may send in a minute."""


class MessageTests(ViewerCase):
    """A user writes to those who look at the same console."""

    def setUp(self) -> None:
        self.acts: list[Act] = []
        self.clock = Clock()
        self.console = MemoryConsole()
        self.shared = SharedConsole(self.console, self.clock, acted=self.acts.append)
        self.successResultOf(self.shared.open())

    def said(self, stream: MarkStream) -> list[str]:
        """Return the messages of others that a stream got."""
        notices = [each for each in stream.sent if isinstance(each, Notice)]
        return [each.text for each in notices if each.kind is NoticeKind.SAID]

    def receipts(self, stream: MarkStream) -> list[str]:
        """Return the answers that a sender got."""
        notices = [each for each in stream.sent if isinstance(each, Notice)]
        return [each.text for each in notices if each.kind is NoticeKind.RECEIPT]

    def test_to_all(self) -> None:
        """All others read it, observers too; the machine and the journal get nothing, and the audit log has it."""
        ann, of_ann = self.attach(user="ann")
        verifyObject(IMessaging, ann)
        _, of_bob = self.attach(user="bob")
        _, of_eve = self.attach(user="eve", options=READ_ONLY)
        end = self.shared.journal.end
        ann.said("I reboot it")
        text = 'message from ann: "I reboot it"'
        self.assertEqual(
            [self.said(each) for each in (of_ann, of_bob, of_eve)], [[], [text], [text]]
        )
        self.assertEqual(self.receipts(of_ann), ['your message to 2 viewers: "I reboot it"'])
        self.assertEqual((self.console.heard(), self.shared.journal.end), (b"", end))
        self.assertEqual(self.acts, [Act(MESSAGE, "s", "ann", "", "I reboot it")])

    def test_from_an_observer(self) -> None:
        """A user who waits for the floor can ask for it."""
        _, of_ann = self.attach(user="ann")
        bob, _ = self.attach(user="bob")
        self.assertIs(bob.role, Role.OBSERVER)
        bob.said("may I?")
        self.assertEqual(self.said(of_ann), ['message from bob: "may I?"'])

    def test_ordinary_streams(self) -> None:
        """In the output of a stock client or a script a message would look like output of the machine: none is there."""
        ann, of_ann = self.attach(user="ann")
        bob = self.watch("bob")
        bob.since()
        ann.said("hello")
        self.assertEqual(bob.since(), b"")
        self.assertEqual(
            self.receipts(of_ann), ['your message to 0 viewers (1 more cannot show it): "hello"']
        )
        self.attach(user="eve")
        ann.said("hello")
        self.assertEqual(
            self.receipts(of_ann)[1:], ['your message to 1 viewer (1 more cannot show it): "hello"']
        )

    def test_alone(self) -> None:
        """A sender without readers learns it, and may still send as many messages to readers."""
        ann, of_ann = self.attach(user="ann")
        for number in range(MANY):
            ann.said(f"{number}")
        alone = "nobody else is at this console to read your message"
        self.assertEqual((self.receipts(of_ann), self.acts), ([alone] * MANY, []))
        _, of_bob = self.attach(user="bob")
        ann.said("hello")
        self.assertEqual(self.said(of_bob), ['message from ann: "hello"'])

    def test_lost(self) -> None:
        """A user whose connection is lost reads the message at the return, behind the output before it."""
        ann, of_ann = self.attach(user="ann")
        bob, _ = self.attach(user="bob")
        bob.away()
        self.console.says(b"12")
        ann.said("hello")
        self.console.says(b"34")
        self.assertEqual(
            self.receipts(of_ann), ['bob is away and reads your message on return: "hello"']
        )
        again = self.resume(bob, 0)
        self.assertEqual(self.said(again), ['message from ann: "hello"'])
        at = [each for each in again.sent if isinstance(each, (bytes, Notice))]
        self.assertEqual((at[0], at[-1]), (b"12", b"34"))

    def test_some_lost(self) -> None:
        """The receipt names the users who are away, or counts their sessions."""
        ann, of_ann = self.attach(user="ann")
        own, _ = self.attach(user="ann")
        own.away()
        ann.said("hello")
        away = [self.attach(user=name)[0] for name in ("bob", "bob", "carl", "eve", "dan")]
        for count in (2, 3, 4):
            for each in away[:count]:
                each.away()
            ann.said("hello")
        self.assertEqual(
            self.receipts(of_ann),
            [
                'another session of yours is away and reads your message on return: "hello"',
                "your message to 3 viewers; another session of yours and bob are away and read it on"
                ' return: "hello"',
                'your message to 2 viewers; 4 more are away and read it on return: "hello"',
                'your message to 1 viewer; 5 more are away and read it on return: "hello"',
            ],
        )
        away[-1].away()
        ann.said("hello")
        self.assertEqual(
            self.receipts(of_ann)[-1],
            '6 viewers are away and read your message on return: "hello"',
        )
        away[-1].detached("left")
        self.watch("dan")
        ann.said("hello")
        self.assertEqual(
            self.receipts(of_ann)[-1],
            "your message to 0 viewers (1 more cannot show it); 5 more are away and read it on return:"
            ' "hello"',
        )

    def test_flood(self) -> None:
        """
        A user may send ten messages a minute, over any number of sessions; other users are not limited by that, and
        the sender's own stream is not flooded with refusals.
        """
        ann, of_ann = self.attach(user="ann")
        again, of_again = self.attach(user="ann")
        bob, of_bob = self.attach(user="bob")
        for number in range(500):
            (ann, again)[number % 2].said(f"{number}")
        self.assertEqual(len(self.said(of_bob)), MANY)
        self.assertEqual(len(self.acts), MANY)
        refused = "your message was not sent: at most 10 messages a minute; try again in 60 s"
        self.assertEqual(self.receipts(of_ann)[MANY // 2 :], [refused] * 5)
        self.assertEqual(self.receipts(of_again)[MANY // 2 :], [refused] * 5)
        self.clock.advance(1)
        ann.said("x")
        self.assertEqual(self.receipts(of_ann)[-1], refused.replace("60 s", "59 s"))
        bob.said("stop it")
        self.assertIn('message from bob: "stop it"', self.said(of_ann))
        self.clock.advance(59)
        ann.said("again")
        self.assertIn('message from ann: "again"', self.said(of_bob))

    def test_users_without_names(self) -> None:
        """Users whom their hop does not name share one limit, because they may have any number of sessions."""
        _, of_bob = self.attach(user="bob")
        for number in range(30):
            viewer, _ = self.attach(user="", session=f"s{number}")
            viewer.said("x")
        self.assertEqual(len(self.said(of_bob)), MANY)

    def test_slow_reader(self) -> None:
        """A client that reads nothing holds nobody up; messages do not push out what it must know."""
        bob, of_bob = self.attach(user="bob")
        bob.pauseProducing()
        senders = [self.attach(user=f"u{number}")[0] for number in range(5)]
        senders[0].wished(Role.WRITER)
        for sender in senders:
            for number in range(MANY):
                sender.said(f"{number}")
        bob.resumeProducing()
        notices = [each for each in of_bob.sent if isinstance(each, Notice)]
        self.assertTrue(
            any("u0 has taken over this console" in each.text for each in notices), notices
        )
        said = self.said(of_bob)
        self.assertEqual(said[-1], 'message from u4: "9"')
        self.assertLessEqual(len(said), 16)

    def test_name(self) -> None:
        """The name of the sender cannot carry control characters or pass for the message of another user."""
        ann, _ = self.attach(user='root: "all is well"\x1b]0;x\x07\u202e')
        _, of_bob = self.attach(user="bob")
        ann.said("hello")
        self.assertEqual(self.said(of_bob), ['message from root: "all is well"?]0;x??: "hello"'])

    def test_over(self) -> None:
        """Behind the end of the console there is nobody to tell."""
        ann, of_ann = self.attach(user="ann")
        from .viewer_case import DELETED

        self.shared.end(DELETED)
        ann.said("hello")
        self.assertEqual((self.receipts(of_ann), self.acts), ([], []))
