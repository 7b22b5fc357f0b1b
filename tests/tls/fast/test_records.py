"""
Tests for :mod:`twisted_exec.tls.fast.records`.
"""

from __future__ import annotations

from tests.tls.fast import test_transport
from twisted_exec.tls import endpoints
from twisted_exec.tls.fast import records


class MemoryTLSTests(test_transport.StreamTLSTests):
    """The same of :class:`StreamTLS`, which works above any transport."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(endpoints, "PosixReactorBase", type("None", (), {}))

    def linger(self, seconds: float) -> None:
        self.patch(records, "_LINGER_SECONDS", seconds)

    async def test_kind(self) -> None:
        """Both ends are above a socket's transport."""
        for end in await self.pair(self.server_tls(), self.client_tls()):
            self.assertIsInstance(end.transport, records.StreamTLS)
