"""
Tests for :mod:`twisted_exec.runtimes.qemu.qmp`.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.runtimes.qemu.qmp import QMP, QMPError

GREETING = b'{"QMP": {"version": {"qemu": {"major": 7}}, "capabilities": []}}\r\n'


class QMPTests(SynchronousTestCase):
    """Tests for :class:`QMP`."""

    def setUp(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.transport = StringTransport()
        self.qmp = QMP(lambda *arguments: self.events.append(arguments))
        self.qmp.makeConnection(self.transport)

    def ready(self) -> None:
        self.qmp.dataReceived(GREETING + b'{"return": {}}\r\n')
        self.successResultOf(self.qmp.greeting)
        self.transport.clear()

    def test_greeting(self) -> None:
        """After the greeting capabilities are negotiated; then commands may be sent."""
        self.qmp.dataReceived(GREETING)
        self.assertEqual(json.loads(self.transport.value()), {"execute": "qmp_capabilities"})
        self.assertNoResult(self.qmp.greeting)
        self.qmp.dataReceived(b'{"return": {}}\r\n')
        self.successResultOf(self.qmp.greeting)

    def test_commands(self) -> None:
        """Answers come in the order of the commands, events in between."""
        self.ready()
        first, second = self.qmp.execute("stop"), self.qmp.execute("query-x", name="n")
        sent = [json.loads(line) for line in self.transport.value().splitlines()]
        self.assertEqual(
            sent, [{"execute": "stop"}, {"execute": "query-x", "arguments": {"name": "n"}}]
        )
        self.qmp.dataReceived(b'{"event": "STOP", "timestamp": {}}\r\n{"return": 1}\r\n')
        self.qmp.dataReceived(b'{"error": {"class": "GenericError", "desc": "no x"}}\r\n')
        self.assertEqual(self.successResultOf(first), 1)
        self.assertEqual(str(self.failureResultOf(second, QMPError).value), "no x")
        self.assertEqual(self.events, [("STOP", {})])

    def test_event_data(self) -> None:
        """An event's data is passed on."""
        self.qmp.dataReceived(b'{"event": "SHUTDOWN", "data": {"guest": true}}\r\n')
        self.assertEqual(self.events, [("SHUTDOWN", {"guest": True})])

    def test_lost(self) -> None:
        """When QEMU ends, pending and later commands fail."""
        self.ready()
        waiting = self.qmp.execute("quit")
        self.qmp.connectionLost(Failure(ConnectionDone()))
        self.failureResultOf(waiting, QMPError)
        self.failureResultOf(self.qmp.execute("quit"), QMPError)

    def test_lost_before_greeting(self) -> None:
        """A line that closes at once was never ready."""
        self.qmp.connectionLost(Failure(ConnectionDone()))
        self.failureResultOf(self.qmp.greeting, ConnectionDone)

    @given(st.lists(st.binary(max_size=200), max_size=5))
    def test_nonsense(self, chunks: list[bytes]) -> None:
        """No input raises an exception; input that is not JSON closes the connection."""
        qmp = QMP(lambda *_: None)
        qmp.makeConnection(StringTransport())
        for chunk in chunks:
            qmp.dataReceived(chunk + b"\r\n")

    def test_not_json(self) -> None:
        """A peer that does not speak JSON, or nests it without end, is none of ours."""
        for line in (b"SSH-2.0-OpenSSH", b"[" * 100_000):
            self.setUp()
            self.qmp.dataReceived(line + b"\r\n")
            self.assertTrue(self.transport.disconnected, line[:20])

    def test_odd_answers(self) -> None:
        """Answers without a command, and errors without a text, do no harm."""
        self.ready()
        self.qmp.dataReceived(b'{"return": {}}\r\n\r\n')
        odd = self.qmp.execute("x")
        self.qmp.dataReceived(b'{"id": 7}\r\n')
        self.failureResultOf(odd, QMPError)
