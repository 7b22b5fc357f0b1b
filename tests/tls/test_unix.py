"""
Tests for :mod:`twisted_exec.tls.unix`.
"""

from __future__ import annotations

import os
import tempfile

from twisted.internet.testing import StringTransport

from tests.tls.support import LoopbackCase, reactor
from twisted_exec.tls.endpoints import unix_client_endpoint
from twisted_exec.tls.errors import TLSConfigError
from twisted_exec.tls.unix import peer_uid


class PeerUIDTests(LoopbackCase):
    """Tests for :func:`peer_uid`."""

    async def test_uid(self) -> None:
        """The kernel's word on who connected, with and without TLS."""
        directory = tempfile.mkdtemp()
        self.addCleanup(os.rmdir, directory)
        for name, server, client in (
            ("plain", None, None),
            ("tls", self.server_tls(), self.client_tls()),
        ):
            path = os.path.join(directory, name)
            recorders = self.recorders()
            await self.listen(recorders, server, f"unix:{path}:lockfile=0")
            accepted = recorders.next()
            await unix_client_endpoint(reactor, path, client).connect(self.recorders())
            self.assertEqual(peer_uid((await accepted).transport), os.getuid())

    async def test_tcp(self) -> None:
        """TCP does not know, and says so."""
        server, _ = await self.pair(None, None)
        for transport in (server.transport, StringTransport()):
            with self.assertRaises(TLSConfigError):
                peer_uid(transport)
