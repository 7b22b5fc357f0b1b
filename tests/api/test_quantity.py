"""
Tests for :mod:`twisted_exec.api.quantity`.
"""

from __future__ import annotations

from decimal import Decimal

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api import quantity


class QuantityTests(SynchronousTestCase):
    """Quantities as Kubernetes reads them."""

    def test_values(self) -> None:
        """Decimal and binary suffixes, exponents, bare numbers."""
        for text, value in [
            ("1", 1),
            (2, 2),
            ("500m", Decimal("0.5")),
            (".5", Decimal("0.5")),
            ("1.", 1),
            ("1k", 1000),
            ("1Ki", 1024),
            ("1.5Gi", 1536 << 20),
            ("1E", 10**18),
            ("1Ei", 1 << 60),
            ("1E3", 1000),
            ("1e3", 1000),
            ("12e-1", Decimal("1.2")),
            ("-1", -1),
        ]:
            self.assertEqual(quantity.parse(text), value, text)

    def test_rounded_up(self) -> None:
        """``value`` rounds up to whole numbers."""
        self.assertEqual(quantity.value("100m"), 1)
        self.assertEqual(quantity.value("2"), 2)
        self.assertEqual(quantity.value("1Gi"), 1 << 30)

    def test_unreadable(self) -> None:
        """An invalid quantity is refused, however large it is."""
        for text in ["", "x", "1x", "1 ", "4xGi", "1e999", "1" * 40, "1ki", "1.2.3", "NaN", "٣"]:
            with self.assertRaises(ValueError, msg=text):
                quantity.parse(text)

    def test_written(self) -> None:
        """A number is written in the largest binary unit that divides it."""
        for whole, text in [(0, "0"), (1, "1"), (1000, "1000"), (1024, "1Ki"), (3 << 29, "1536Mi")]:
            self.assertEqual(quantity.binary(whole), text)
            self.assertEqual(quantity.value(text), whole)
