"""Tests for the journals of a store that have a descriptor."""

from __future__ import annotations

from tests.journal.store_case import StoreCase
from tests.retained import instances
from twisted_exec.journal import awake_journals
from twisted_exec.journal.journal import Journal


class AwakeJournalsTests(StoreCase):
    def test_descriptors(self) -> None:
        """Any number of lines takes a limited number of descriptors."""
        self.patch(awake_journals, "descriptor_limit", lambda: 8 * 20)
        store = self.store()
        for number in range(100):
            store.journal(f"{number:032x}").append(b"x")
        active = [each for each in instances(store, Journal) if each.has_descriptor]
        self.assertLessEqual(len(active), 21)
