"""
Tests for :mod:`twisted_exec.storage.etcd.errors`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.storage.etcd.client import grpc
from twisted_exec.storage.etcd.errors import EtcdError, read_refusal, write_refusal

StatusCode = grpc.StatusCode


class RefusalTests(SynchronousTestCase):
    """Errors for API clients."""

    def test_certainly_undone(self) -> None:
        """A write that etcd certainly did not make is a 503 that may be retried."""
        for code, told in [
            (StatusCode.UNAVAILABLE, "failed to connect to all addresses; last error: x"),
            (StatusCode.UNAVAILABLE, "etcdserver: no leader"),
            (StatusCode.RESOURCE_EXHAUSTED, "etcdserver: too many requests"),
            (StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"),
            (StatusCode.PERMISSION_DENIED, "etcdserver: permission denied"),
        ]:
            refusal = write_refusal(EtcdError(code, told))
            self.assertEqual((refusal.code, refusal.retry_after_seconds), (503, 1), told)

    def test_unknown(self) -> None:
        """After any other error, the write may have been made."""
        for code, told in [
            (StatusCode.UNAVAILABLE, "etcdserver: request timed out"),
            (StatusCode.UNAVAILABLE, "etcdserver: leader changed"),
            (StatusCode.UNAVAILABLE, "Socket closed"),
            (StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"),
            (StatusCode.CANCELLED, ""),
            (StatusCode.INTERNAL, "this is no answer of etcd's"),
            (StatusCode.UNKNOWN, "x"),
        ]:
            refusal = write_refusal(EtcdError(code, told))
            self.assertEqual((refusal.code, refusal.retry_after_seconds), (504, 1), told)
            self.assertIn("look before trying again", refusal.message)

    def test_words(self) -> None:
        """Messages do not contain etcd's addresses."""
        refused = EtcdError(StatusCode.UNAVAILABLE, "failed to connect to ipv4:10.0.0.1:2379")
        self.assertEqual(
            read_refusal(refused).message, "the store cannot be read: etcd cannot be reached"
        )

    def test_too_large(self) -> None:
        """An object that is too large is a 413, refused by etcd or by grpc."""
        for code, told in [
            (StatusCode.INVALID_ARGUMENT, "etcdserver: request is too large"),
            (
                StatusCode.RESOURCE_EXHAUSTED,
                "grpc: received message larger than max (2200195 vs. 2097152)",
            ),
        ]:
            self.assertEqual(write_refusal(EtcdError(code, told)).code, 413, told)
