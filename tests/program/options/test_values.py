"""Tests for :mod:`twisted_exec.program.options.values`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.options.values import duration, whole_seconds


class ValuesTests(SynchronousTestCase):
    """Tests for values of options."""

    def test_duration(self) -> None:
        """Longer times are written as Go writes them."""
        for text, wanted in (("8760h", 31536000), ("1h30m", 5400), ("45s", 45), ("0s", 0)):
            self.assertEqual(duration(text), wanted)
        for text in ("", "1", "h", "1d", "30m1h", "-1h", "1.5h", "99999999h"):
            with self.assertRaises(ValueError) as caught:
                duration(text)
            told = f"{text!r} is no duration such as 8760h, 1h30m or 45s"
            self.assertEqual(str(caught.exception), told)

    def test_whole_seconds(self) -> None:
        """Some times are whole seconds."""
        self.assertEqual([whole_seconds(text) for text in ("0", "60", "3600")], [0, 60, 3600])
        for text in ("", "x", "-1", "1.5", "3601", "1e3", "\u0663"):
            with self.assertRaises(ValueError) as caught:
                whole_seconds(text)
            told = f"{text!r} is no whole number of seconds from 0 to 3600"
            self.assertEqual(str(caught.exception), told)
