"""
What an attachment may expect of its transport, whatever the protocol beneath.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zope.interface.verify import verifyObject

from twisted_exec.streaming.interfaces import (
    COMPLETED,
    Ending,
    IAttachment,
    IAttachmentTransport,
)
from twisted_exec.testing.attachment import RecordingAttachment
from twisted_exec.testing.flow import RecordingProducer

if TYPE_CHECKING:
    from twisted.trial.unittest import SynchronousTestCase
else:
    SynchronousTestCase = object


class AttachmentTransportContract(SynchronousTestCase):
    """Mix it in before the test case, and say how the user's side is moved."""

    def attach_now(self, attachment: RecordingAttachment) -> None:
        """Attach it, over a fresh stream."""
        raise NotImplementedError

    def user_types(self, data: bytes) -> None:
        raise NotImplementedError

    def user_leaves(self) -> None:
        """Without a word."""
        raise NotImplementedError

    def user_saw(self) -> bytes:
        """The output since the last time."""
        raise NotImplementedError

    def block_output(self, blocked: bool) -> None:
        """The user reads nothing for now, or reads again."""
        raise NotImplementedError

    def attached(self) -> RecordingAttachment:
        attachment = RecordingAttachment()
        self.attach_now(attachment)
        return attachment

    def test_provided(self) -> None:
        """The transport and the attachment are what they say."""
        attachment = self.attached()
        verifyObject(IAttachmentTransport, attachment.transport)
        verifyObject(IAttachment, attachment)
        self.assertEqual(attachment.attachments, 1)

    def test_both_ways(self) -> None:
        """Input arrives in order, and so does output."""
        attachment = self.attached()
        self.user_saw()
        for data in (b"a", b"bc" * 20000, b"\0\xff"):
            self.user_types(data)
            attachment.transport.write(data)
        expected = b"a" + b"bc" * 20000 + b"\0\xff"
        self.assertEqual(attachment.received, expected)
        self.assertEqual(self.user_saw(), expected)

    def test_empty_write(self) -> None:
        """Writing nothing is nothing."""
        attachment = self.attached()
        attachment.transport.write(b"")
        self.assertEqual(self.user_saw(), b"")

    def test_paused_input(self) -> None:
        """Nothing is delivered between pause and resume, and nothing is lost; both may repeat."""
        attachment = self.attached()
        attachment.transport.pause_input()
        attachment.transport.pause_input()
        self.user_types(b"one")
        self.user_types(b"two")
        self.assertEqual(attachment.received, b"")
        attachment.transport.resume_input()
        attachment.transport.resume_input()
        self.user_types(b"three")
        self.assertEqual(attachment.received, b"onetwothree")

    def test_producer(self) -> None:
        """A producer is paused while the user does not read, and resumed when it does."""
        attachment = self.attached()
        producer = RecordingProducer()
        attachment.transport.registerProducer(producer, True)
        self.assertFalse(producer.paused)
        self.block_output(True)
        self.assertTrue(producer.paused)
        self.block_output(False)
        self.assertFalse(producer.paused)

    def test_detached_once(self) -> None:
        """A user who leaves is told once; what the attachment does afterwards is harmless."""
        attachment = self.attached()
        attachment.transport.registerProducer(RecordingProducer(), True)
        self.user_leaves()
        self.assertEqual(len(attachment.detached_with), 1)
        attachment.transport.write(b"x")
        attachment.transport.pause_input()
        attachment.transport.resume_input()
        attachment.transport.unregisterProducer()
        attachment.transport.end(Ending(COMPLETED))
        self.assertEqual(len(attachment.detached_with), 1)

    def test_ended_and_detached(self) -> None:
        """An attachment that ends its stream is detached too, once."""
        attachment = self.attached()
        attachment.transport.end(Ending(COMPLETED))
        attachment.transport.end(Ending(COMPLETED))
        self.user_leaves()
        self.assertEqual(len(attachment.detached_with), 1)
