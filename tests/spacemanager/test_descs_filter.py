"""Tests for :mod:`twisted_exec.spacemanager.descs`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.spacemanager.descs import filter_of


class FilterTests(SynchronousTestCase):
    """Tests for :func:`filter_of`."""

    def taken(self, told: str) -> list[str]:
        names = ["ks-1", "ks-2-prod", "other", "ks", "a.b"]
        return [name for name in names if filter_of(told)(name)]

    def test_filters(self) -> None:
        """A filter is a prefix, as upstream, or a glob for the whole name."""
        self.assertEqual(len(self.taken("")), 5)
        self.assertEqual(len(self.taken("*")), 5)
        self.assertEqual(self.taken("ks-"), ["ks-1", "ks-2-prod"])
        self.assertEqual(self.taken("ks-*-prod"), ["ks-2-prod"])
        self.assertEqual(self.taken("ks-?"), ["ks-1"])
        self.assertEqual(self.taken("[ao]*"), ["other", "a.b"])
        self.assertEqual(self.taken("a.b"), ["a.b"], "a dot is a dot")
        self.assertEqual(self.taken("KS-"), [])
        self.assertEqual(self.taken("[ks"), [], "a bracket that is not closed is one")
