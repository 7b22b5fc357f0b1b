"""
Tests for :mod:`twisted_exec.storage.option`.
"""

from __future__ import annotations

import os

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.storage.etcd.store import EtcdStorage
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.storage.option import storage_option
from twisted_exec.storage.sqlite import SQLiteStorage


class OptionTests(SynchronousTestCase):
    """Tests for :func:`storage_option`."""

    def test_forms(self) -> None:
        """Each makes its store; nothing is opened by that."""
        before = set(os.listdir("."))
        for text, kind in [
            ("memory", MemoryStorage),
            ("sqlite:some.db", SQLiteStorage),
            ("etcd:https://etcd?ca=ca.crt", EtcdStorage),
            ("etcd:http://localhost:2379?prefix=/x", EtcdStorage),
        ]:
            self.assertIsInstance(storage_option(text)(Clock()), kind)
        self.assertEqual(set(os.listdir(".")), before)

    def test_refused(self) -> None:
        """Whatever else is given is told what can be."""
        for text in ("", "sqlite", "sqlite:", "memory:", "redis:x", "etcd3:x", "SQLITE:x"):
            with self.assertRaises(ValueError) as caught:
                storage_option(text)
            self.assertIn("give sqlite:PATH, etcd:https://HOST:PORT", str(caught.exception))
        with self.assertRaises(ValueError) as caught:
            storage_option("etcd:")
        self.assertIn("give etcd:https://HOST:PORT", str(caught.exception))
