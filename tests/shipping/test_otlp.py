"""
OTLP's messages: :mod:`twisted_exec.shipping.otlp`.
"""

from __future__ import annotations

from unittest import TestCase

from hypothesis import given
from hypothesis import strategies as st

from twisted_exec.shipping.interfaces import Labels, Receipt, ShippedLine
from twisted_exec.shipping.otlp import LogsBatch, read_receipt, status_message
from twisted_exec.testing.collectors import decode_request, encode_partial_success

_ONE = Labels("vm-1", "lab", "uid-1", "small", "00ff", {"pool": "a"})
_TWO = Labels("vm-2")


class EncodingTests(TestCase):
    """Requests."""

    def test_labels(self) -> None:
        """A line has its time, its labels and its place in the journal."""
        batch = LogsBatch(now=9)
        batch.add(_ONE, ShippedLine(70_000, 70_006, 1_234, 3, b"panic"))
        (line,) = decode_request(batch.body())
        self.assertEqual((line.text, line.time, line.severity), ("panic", 1_234, 9))
        self.assertEqual(
            line.labels,
            {
                "pool": "a",
                "service.name": "console",
                "service.namespace": "lab",
                "service.instance.id": "uid-1",
                "k8s.namespace.name": "lab",
                "console.machine": "vm-1",
                "console.class": "small",
                "console.epoch": "00ff",
                "console.offset": 70_000,
                "console.boot": 3,
            },
        )

    def test_machines(self) -> None:
        """A batch has the lines of many machines; the size grows with each line."""
        batch, sizes = LogsBatch(9), []
        for number in range(300):
            batch.add(
                (_ONE, _TWO)[number // 100 % 2], ShippedLine(number, number, 1, 0, b"%d" % number)
            )
            sizes.append(batch.size)
        lines = decode_request(batch.body())
        self.assertEqual([line.text for line in lines], [str(number) for number in range(300)])
        machines = [line.labels["console.machine"] for line in lines]
        self.assertEqual(machines, ["vm-1"] * 100 + ["vm-2"] * 100 + ["vm-1"] * 100)
        self.assertEqual(sizes, sorted(sizes))
        self.assertEqual(batch.lines, 300)

    def test_gap(self) -> None:
        """A gap is a warning with the number of missing bytes; -1 if it is unknown."""
        batch = LogsBatch(9)
        batch.add(_TWO, ShippedLine(5, 25, 1, 0, b"", 20))
        batch.add(_TWO, ShippedLine(25, 99, 1, 0, b"", None))
        first, second = decode_request(batch.body())
        self.assertEqual((first.text, first.severity), ("[twisted-exec: 20 bytes are missing]", 13))
        missing = [each.labels["console.missing_bytes"] for each in (first, second)]
        self.assertEqual(missing, [20, -1])

    @given(st.binary(max_size=300), st.text(max_size=20))
    def test_any_bytes(self, text: bytes, name: str) -> None:
        """What is not UTF-8 is replaced, because protobuf's strings are UTF-8."""
        batch = LogsBatch(9)
        batch.add(Labels("vm", name), ShippedLine(0, 1, 1, 0, text))
        (line,) = decode_request(batch.body())
        self.assertEqual(line.text, text.decode("utf-8", "replace"))


class AnswerTests(TestCase):
    """What a collector answers."""

    def test_partial_success(self) -> None:
        """The number of rejected lines and the reason are read; the reason is one short line."""
        body = encode_partial_success(7, "too old\nand \x1b[1mlarge " + "x" * 9999)
        receipt = read_receipt(body)
        self.assertEqual(receipt.rejected, 7)
        self.assertTrue(receipt.message.startswith("too old and  [1mlarge xxx"))
        self.assertEqual(len(receipt.message), 300)
        self.assertEqual(read_receipt(b""), Receipt())
        self.assertEqual(read_receipt(b"\x0a\x00"), Receipt())

    def test_nonsense(self) -> None:
        """Other documents are no answers."""
        for body in (b"<html>", b'{"a": 1}', b"\x0a\xff\xff\xff\xff\x0fab", b"\x0a\x05a", b"\x80"):
            with self.subTest(body), self.assertRaises(ValueError):
                read_receipt(body)

    @given(st.binary(max_size=50))
    def test_any_answer(self, body: bytes) -> None:
        """No answer raises anything else."""
        self.assertIsInstance(status_message(body), str)
        try:
            read_receipt(body)
        except ValueError:
            pass
