"""Tests for :mod:`twisted_exec.iri.methods`; what travels is tested with the client and the server."""

from __future__ import annotations

import grpc
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.iri.methods import from_grpc


class FromGRPCTests(SynchronousTestCase):
    """Tests for :func:`from_grpc`."""

    def test_text(self) -> None:
        """A runtime's text is one line that a log or a terminal can take."""
        told = "no\n2026-01-01 forged\r\x1b[31m" + "x" * 10_000
        error = from_grpc(grpc.StatusCode.PERMISSION_DENIED, told)
        self.assertTrue(error.message.startswith("no 2026-01-01 forged [31mxxx"), error.message)
        self.assertLessEqual(len(error.message), 2048)
