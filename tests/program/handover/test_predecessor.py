"""
Tests for :mod:`twisted_exec.program.handover.predecessor`.
"""

from __future__ import annotations

import gc
import os
import socket

from twisted.trial.unittest import SynchronousTestCase

from tests.program.handover.doubles import Service
from twisted_exec.program.handover.channel import encode
from twisted_exec.program.handover.predecessor import (
    VARIABLE,
    Predecessor,
    find_predecessor,
    predecessor,
)
from twisted_exec.program.listening import ListeningSockets


class FindTests(SynchronousTestCase):
    """Tests for :func:`find_predecessor`."""

    def test_foreign(self) -> None:
        """A descriptor that is no channel belongs to somebody else, and stays open."""
        with socket.socket(socket.AF_INET) as foreign:
            for text in (str(foreign.fileno()), "no number", "99999", ""):
                environment = {VARIABLE: text}
                find_predecessor(environment)
                gc.collect()
                self.assertEqual((environment, predecessor()), ({}, None))
            os.fstat(foreign.fileno())


class TakeOverTests(SynchronousTestCase):
    """Tests for :meth:`Predecessor.take_over`."""

    def test_refused(self) -> None:
        """A state that is not whole is refused before the service has it."""
        cases = ({"go": True}, {"state": {}}, {"state": {"descriptors": 1}})
        for message in cases:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            with ours, theirs:
                ours.sendall(encode(message))
                service, sockets = Service(), ListeningSockets()
                problem = self.assertRaises(
                    ValueError, Predecessor(theirs).take_over, "program", service, sockets
                )
            self.assertIn("did not arrive as it was sent", str(problem))
            self.assertEqual(service.calls, [])
