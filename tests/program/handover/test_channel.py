"""
Tests for :mod:`twisted_exec.program.handover.channel`.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from tests.tls.support import reactor
from twisted_exec.program.handover.channel import HandoverChannel, receive


class ReceiveTests(TestCase):
    """Tests for :func:`receive`."""

    def setUp(self) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(self.ours.close)
        self.addCleanup(self.theirs.close)

    def descriptor(self) -> int:
        number = os.open("/dev/null", os.O_RDONLY)
        self.addCleanup(os.close, number)
        return number

    async def test_many(self) -> None:
        """A message has more descriptors than fit into one packet."""
        number, closed = self.descriptor(), Deferred[None]()
        channel = HandoverChannel.over(reactor, self.ours, print, lambda: closed.callback(None))
        channel.send({"state": "x" * 300_000}, [number] * 400)
        message, descriptors = await deferToThread(receive, self.theirs)
        for each in descriptors:
            self.assertFalse(os.get_inheritable(each))
            os.close(each)
        self.assertEqual((len(message["state"]), len(descriptors)), (300_000, 400))
        channel.close()
        await closed

    def test_torn(self) -> None:
        """A message that does not arrive as it was sent is refused, and leaves no descriptor open."""
        cases: list[tuple[bytes, type[Exception]]] = [
            (b"", EOFError),
            (b'{"state":', EOFError),
            (b'{"state":\n', ValueError),
            (b"\xff\n", ValueError),
            (b"[1]\n", ValueError),
            (b'{"state":1}\n{"state":1}\n', ValueError),
        ]
        number = self.descriptor()
        for data, error in cases:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            before = set(os.listdir("/proc/self/fd"))
            if data:
                socket.send_fds(ours, [data], [number, number])
            ours.shutdown(socket.SHUT_WR)
            with self.assertRaises(error):
                receive(theirs)
            self.assertEqual(set(os.listdir("/proc/self/fd")) - before, set(), data)
            ours.close()
            theirs.close()

    def test_no_descriptor_left(self) -> None:
        """Descriptors that this process cannot take, because of its limit, are not lost in silence."""
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        number = self.descriptor()
        before = set(os.listdir("/proc/self/fd"))
        socket.send_fds(self.ours, [b"{}\n"], [number] * 8)
        free = [each for each in range(len(before) + 20) if str(each) not in before]
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[3], hard))
        try:
            problem: Any = self.assertRaises(ValueError, receive, self.theirs)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        self.assertIn("limit of open files", str(problem))
        self.assertEqual(set(os.listdir("/proc/self/fd")) - before, set())

    async def test_cut_off(self) -> None:
        """The beginning of a message is no message."""
        messages: list[Any] = []
        closed: Deferred[None] = Deferred()
        HandoverChannel.over(reactor, self.theirs, messages.append, lambda: closed.callback(None))
        self.ours.sendall(b'{"ready":true}\nnonsense\n{"failed":"x')
        await deferLater(reactor, 0)
        self.ours.close()
        await closed
        self.assertEqual(messages, [{"ready": True}])
