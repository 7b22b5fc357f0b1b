"""
Tests for :mod:`twisted_exec.runtimes.lines.serial_settings`.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.program.config_file import ConfigError, Reader
from twisted_exec.runtimes.lines.serial_settings import line_settings
from twisted_exec.wire.com_port import LineSettings


class SettingsTests(SynchronousTestCase):
    """Tests for :func:`line_settings`."""

    def read(self, **keys: Any) -> LineSettings:
        reader = Reader(keys, "file")
        settings = line_settings(reader)
        reader.done()
        return settings

    def test_keys(self) -> None:
        """9600 8N1 unless the file says otherwise."""
        self.assertEqual(self.read(), LineSettings(9600, 8, "none", 1, "none", None, None))
        result = self.read(
            baud=300, data_bits=7, parity="even", stop_bits=1.5, flow="xonxoff", dtr=True, rts="off"
        )
        self.assertEqual(result, LineSettings(300, 7, "even", 1.5, "xonxoff", True, False))

    def test_mistakes(self) -> None:
        """Each mistake has a message."""
        for keys, why in (
            ({"baud": 1}, "baud must be between 50 and 4e+06"),
            ({"data_bits": 9}, "data_bits must be between 5 and 8"),
            ({"parity": "maybe"}, "parity must be one of none, odd, even, mark, space"),
            ({"stop_bits": 1.25}, "stop_bits must be 1, 1.5 or 2"),
            ({"flow": "dtrdsr"}, "flow must be one of none, xonxoff, rtscts"),
            ({"dtr": "up"}, "dtr must be one of on, off, keep"),
        ):
            with self.assertRaises(ConfigError) as caught:
                self.read(**keys)
            self.assertIn(why, str(caught.exception))
