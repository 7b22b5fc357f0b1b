"""
Tests for :mod:`twisted_exec.storage.option`.
"""

from __future__ import annotations

import os

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.options.command_line import ProgramOptions
from twisted_exec.program.options.declaration import settings_of
from twisted_exec.storage.etcd.store import EtcdStorage
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.storage.option import storage_option
from twisted_exec.storage.quota import QuotaLimits, size_option
from twisted_exec.storage.sqlite.store import SQLiteStorage


class OptionTests(SynchronousTestCase):
    """Tests for :func:`storage_option`."""

    def test_forms(self) -> None:
        """Each form creates its store without opening it."""
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
        """An unknown storage is refused with the permitted forms."""
        for text in ("", "sqlite", "sqlite:", "memory:", "redis:x", "etcd3:x", "SQLITE:x"):
            with self.assertRaises(ValueError) as caught:
                storage_option(text)
            self.assertIn("give sqlite:PATH, etcd:https://HOST:PORT", str(caught.exception))
        with self.assertRaises(ValueError) as caught:
            storage_option("etcd:")
        self.assertIn("give etcd:https://HOST:PORT", str(caught.exception))


class QuotaOptionTests(SynchronousTestCase):
    """Tests for the options of quotas."""

    def test_sizes(self) -> None:
        """Sizes are Kubernetes' quantities; 0 is no limit."""

        class StoreOptions(ProgramOptions):
            settings_class = QuotaLimits

        options = StoreOptions()
        options.parseOptions(["--storage-quota-total=0"])
        self.assertEqual(settings_of(QuotaLimits, options), QuotaLimits(64 << 20, 0))
        self.assertEqual(size_option("1e3"), 1000)

    def test_refused(self) -> None:
        """Everything else is refused in one line."""
        for text in ("", "-1", "64MiB", "much", "99Ei", "1e99"):
            with self.assertRaises(ValueError) as caught:
                size_option(text)
            self.assertIn("is not a size such as 64Mi, or 0 for no limit", str(caught.exception))
