"""
Tests for ``docs/howto/embed.rst``.
"""

from __future__ import annotations

import re

from twisted.python.reflect import namedAny
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.interfaces import IInterface
from zope.interface.verify import verifyObject

from twisted_exec import interfaces
from twisted_exec import machines as app_machines
from twisted_exec import services as app_services

from . import pages


class EmbedPageTests(SynchronousTestCase):
    """The page lists every interface, and its example works."""

    def test_interfaces(self) -> None:
        """The table has exactly the interfaces of ``twisted_exec.interfaces``."""
        listed = pages.first_column(pages.table(pages.page("howto/embed"), "Interfaces"))
        expected = {
            name for name in interfaces.__all__ if IInterface.providedBy(getattr(interfaces, name))
        }
        self.assertEqual(listed, expected)

    def test_services(self) -> None:
        """The public API has each service of the page, and the class of its settings."""
        page, public = pages.page("howto/embed"), pages.page("api/services")
        rows = pages.section(page, "Services").partition(".. list-table:: What you can set")
        services = [
            name for name in pages.first_column(rows[0]) if name.startswith("twisted_exec.")
        ]
        settings = re.findall(r":py:class:`(\w+) <([\w.]+)>`", rows[2])
        self.assertGreater(len(services), 5)
        self.assertGreater(len(settings), 5)
        for name in services:
            kind = namedAny(name)
            self.assertIn(f".. autoclass:: {kind.__module__}.{kind.__qualname__}\n", public)
        for name, path in settings:
            self.assertIn(f".. autoclass:: {path}\n", public)
            found = {getattr(module, name, None) for module in (app_services, app_machines)}
            self.assertIn(namedAny(path), found)

    def test_audit_sink(self) -> None:
        """The example of an audit sink provides its interface and keeps 2000 records."""
        namespace: dict[str, object] = {"__name__": "audit_sink"}
        exec((pages.DOCS / "howto" / "audit_sink.py").read_text(), namespace)
        sink = namespace["Recent"]()  # type: ignore[operator]
        verifyObject(interfaces.IAuditSink, sink)
        for number in range(3000):
            sink.record({"number": number})
        self.assertEqual((len(sink.records), sink.records[-1]), (2000, {"number": 2999}))
