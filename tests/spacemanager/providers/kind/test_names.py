"""Tests for :mod:`twisted_exec.spacemanager.providers.kind.names`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.status import BadGateway, Invalid
from twisted_exec.spacemanager.interfaces import Physical
from twisted_exec.spacemanager.providers.kind.names import check_name, listed_names


class NameTests(SynchronousTestCase):
    """Tests for :func:`check_name` and :func:`listed_names`."""

    def test_names(self) -> None:
        """Names that look like a path or an option are refused, though kind allows some."""
        for good in ("a", "a.b-c", "1", "a" * 50):
            check_name(Physical(good), new=True)
        for bad in ("", ".", "..", "-v", "a-", "A", "a_b", "a/b", "a\n", "a" * 51):
            with self.assertRaises(Invalid):
                check_name(Physical(bad), new=True)
        check_name(Physical("a" * 51))
        with self.assertRaises(Invalid):
            check_name(Physical("a", "elsewhere"))

    def test_listed(self) -> None:
        """Output is one name per line, invalid names are skipped, other text fails with 502."""
        self.assertEqual(listed_names(b""), [])
        self.assertEqual(listed_names(b"b\na\n"), ["a", "b"])
        self.assertEqual(listed_names(b"a\n-v\n..\n"), ["a"])
        for nonsense in (b"No kind clusters found.\n", b"a b\n", b"\xff\n", b"\n", b"a\n\nb\n"):
            with self.assertRaises(BadGateway):
                listed_names(nonsense)
