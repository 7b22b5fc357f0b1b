"""
Tests for ``docs/howto/embed.rst``.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase
from zope.interface.interfaces import IInterface
from zope.interface.verify import verifyObject

from twisted_exec import interfaces

from . import pages


class EmbedPageTests(SynchronousTestCase):
    """The page has every door, and what it shows works."""

    def test_doors(self) -> None:
        """Each interface of the facade is in the table, and no other."""
        told = pages.first_column(pages.table(pages.page("howto/embed"), "Doors"))
        doors = {
            name for name in interfaces.__all__ if IInterface.providedBy(getattr(interfaces, name))
        }
        self.assertEqual(told, doors)

    def test_audit_sink(self) -> None:
        """The sink that is shown provides its door and keeps what it says."""
        shown: dict[str, object] = {"__name__": "audit_sink"}
        exec((pages.DOCS / "howto" / "audit_sink.py").read_text(), shown)
        sink = shown["Recent"]()  # type: ignore[operator]
        verifyObject(interfaces.IAuditSink, sink)
        for number in range(3000):
            sink.record({"number": number})
        self.assertEqual((len(sink.records), sink.records[-1]), (2000, {"number": 2999}))
