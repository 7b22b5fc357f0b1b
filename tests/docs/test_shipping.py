"""
The examples of shipping in the documentation.
"""

from __future__ import annotations

import os
from unittest import TestCase

from tests.docs.pages import DOCS
from twisted_exec.shipping.config import load


class ExampleTests(TestCase):
    """Files beside the how-to guides."""

    def test_files(self) -> None:
        """Each example can be read, and has the kind of its guide."""
        for kind in ("otlp", "syslog", "files"):
            with self.subTest(kind):
                config = load(os.path.join(DOCS, "howto", f"ship-{kind}.yaml"))
                self.assertEqual(len(config.sinks), 1)
