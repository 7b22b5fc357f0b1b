"""Tests for :mod:`twisted_exec.spacemanager.providers.local.ports`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.spacemanager.providers.local.world import busy_port
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.spacemanager.providers.local.ports import LOWEST, NoFreePort, free_port, highest


class PortTests(SynchronousTestCase):
    """Tests for :func:`free_port`."""

    def test_below(self) -> None:
        """Ports are below the ephemeral range and not used by another space."""
        port = free_port([])
        self.assertTrue(LOWEST <= port < highest())
        with self.assertRaises(ServiceUnavailable):
            free_port(range(65536))

    def test_range(self) -> None:
        """All ports of a range are tried, and the error names the range and the option."""
        with busy_port(self) as port:
            ports = range(port, port + 1)
            with self.assertRaises(NoFreePort) as caught:
                free_port([], ports)
        self.assertIn(f"no free port from {port} to {port} on 127.0.0.1", caught.exception.message)
        self.assertIn("--space-port-range", caught.exception.message)
        self.assertEqual(free_port([], ports), port)
