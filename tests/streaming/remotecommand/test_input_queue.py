"""Tests for :mod:`twisted_exec.streaming.remotecommand.input_queue`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.streaming.interfaces import Break, Role
from twisted_exec.streaming.remotecommand.input_queue import InputQueue, Item


class InputQueueTests(SynchronousTestCase):
    """Tests for :class:`InputQueue`."""

    def setUp(self) -> None:
        self.delivered: list[Item] = []
        self.full: list[bool] = []
        self.queue = InputQueue(100, self.delivered.append, self.full.append)

    def test_order(self) -> None:
        """Items are delivered at once, and in their order after a pause."""
        self.queue.put(b"a")
        self.assertEqual(self.delivered, [b"a"])
        self.queue.pause()
        for item in (b"b", Break(), Role.WRITER, b"c", None):
            self.queue.put(item)
        self.assertEqual(self.delivered, [b"a"])
        self.queue.resume()
        self.assertEqual(self.delivered, [b"a", b"b", Break(), Role.WRITER, b"c", None])

    def test_full(self) -> None:
        """The limit is reported when it is reached, and when there is room again."""
        self.queue.put(b"x" * 1000)
        self.assertEqual(self.full, [])
        self.queue.pause()
        self.queue.put(b"x" * 99)
        self.assertEqual(self.full, [])
        self.queue.put(Break())
        self.assertEqual(self.full, [True])
        self.queue.resume()
        self.assertEqual(self.full, [True, False])

    def test_drop(self) -> None:
        """What waits is dropped, except for the end of input."""
        self.queue.pause()
        for item in (b"x" * 100, Role.WRITER, None):
            self.queue.put(item)
        self.full.clear()
        self.assertEqual(self.queue.drop(), 101)  # each byte and each request is a piece
        self.assertEqual(self.full, [False])
        self.queue.resume()
        self.assertEqual(self.delivered, [None])
        self.assertEqual(self.queue.drop(), 0)
        self.assertEqual((self.delivered, self.full), ([None], [False]))

    def test_paused_meanwhile(self) -> None:
        """An item that pauses the queue is the last one that is delivered."""
        queue = InputQueue(100, lambda item: (self.delivered.append(item), queue.pause()), bool)
        queue.pause()
        queue.put(b"a")
        queue.put(b"b")
        queue.resume()
        self.assertEqual(self.delivered, [b"a"])

    def test_closed_meanwhile(self) -> None:
        """After an item that ends the session nothing is delivered, and the client is left alone."""
        queue = InputQueue(
            100, lambda item: (self.delivered.append(item), queue.close()), self.full.append
        )
        queue.pause()
        queue.put(b"a" * 50)
        queue.put(b"b" * 50)
        self.full.clear()
        queue.resume()
        queue.put(b"c")
        self.assertEqual((self.delivered, self.full), ([b"a" * 50], []))

    def test_parts(self) -> None:
        """Long input is delivered in parts of a limited size, and a pause between them keeps the rest."""
        queue = InputQueue(100, lambda item: (self.delivered.append(item), queue.pause()), bool)
        queue.most_bytes = 3
        queue.put(b"abcdefgh")
        queue.put(None)
        self.assertEqual(self.delivered, [b"abc"])
        self.assertEqual(len(queue), 2)
        queue.resume()
        self.assertEqual(self.delivered, [b"abc", b"def"])
        queue.most_bytes = 0
        queue.resume()
        queue.resume()
        self.assertEqual(self.delivered, [b"abc", b"def", b"gh", None])

    def test_drop_the_rest(self) -> None:
        """Only what is left of an item counts as dropped."""
        queue = InputQueue(100, lambda item: (self.delivered.append(item), queue.pause()), bool)
        queue.most_bytes = 3
        queue.put(b"abcdefgh")
        self.assertEqual(queue.drop(), 5)
        queue.put(b"ijk")
        queue.resume()
        self.assertEqual(self.delivered, [b"abc", b"ijk"])

    def test_resumed_meanwhile(self) -> None:
        """An item that has the queue resumed is not overtaken by those behind it."""
        order: list[Item] = []

        def deliver(item: Item) -> None:
            queue.resume()
            order.append(item)

        queue = InputQueue(100, deliver, bool)
        queue.pause()
        for item in (b"a", b"b", b"c"):
            queue.put(item)
        queue.resume()
        self.assertEqual(order, [b"a", b"b", b"c"])
