"""
Syslog messages: :mod:`twisted_exec.shipping.syslog`.
"""

from __future__ import annotations

from unittest import TestCase

from twisted_exec.shipping.interfaces import Labels, ShippedLine
from twisted_exec.shipping.syslog import SyslogBatch
from twisted_exec.testing.collectors import decode_message


class MessageTests(TestCase):
    """Single messages."""

    def message(self, labels: Labels, line: ShippedLine) -> bytes:
        batch = SyslogBatch(16)
        batch.add(labels, line)
        length, _, message = bytes(batch.data).partition(b" ")
        self.assertEqual(int(length), len(message))
        return message

    def test_message(self) -> None:
        """A message of RFC 5424, byte for byte."""
        labels = Labels("vm-1", "lab", "uid-1", "small", "00ff", {"pool": "a"})
        line = ShippedLine(70_000, 70_006, 1_700_000_000_123_456_789, 3, b"panic \xff\x1b[m")
        self.assertEqual(
            self.message(labels, line),
            b"<134>1 2023-11-14T22:13:20.123456Z vm-1 console 3 line "
            b'[console@32473 machine="vm-1" namespace="lab" uid="uid-1" class="small" '
            b'epoch="00ff" pool="a" boot="3" offset="70000"] panic \xff\x1b[m',
        )

    def test_gap(self) -> None:
        """A gap is a warning with a message id of its own."""
        line = decode_message(self.message(Labels("vm"), ShippedLine(5, 9, 0, 0, b"", 4)))
        self.assertEqual((line.severity, line.labels["kind"]), (4, "gap"))
        self.assertEqual(line.text, "[twisted-exec: 4 bytes are missing]")

    def test_hostile_names(self) -> None:
        """Names from elsewhere can neither end the structured data nor start another field."""
        name = 'a b"]\\ \n<1>1 ä'
        line = decode_message(
            self.message(Labels(name, others={'x"] y': "1"}), ShippedLine(0, 1, 0, 0, b"t"))
        )
        self.assertEqual(line.labels["host"], 'a?b"]\\??<1>1??')
        self.assertEqual(line.labels["machine"], 'a b"]\\ <1>1 ä')
        self.assertEqual((line.labels["x___y"], line.text), ("1", "t"))
