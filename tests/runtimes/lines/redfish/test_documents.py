"""Tests for :mod:`twisted_exec.runtimes.lines.redfish.documents`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from tests.runtimes.bmc.faults import deep, error
from twisted_exec.api.status import BadGateway
from twisted_exec.runtimes.lines.redfish import documents


class ParseTests(TestCase):
    """Bodies of answers."""

    def test_object(self) -> None:
        """A JSON object is a document."""
        self.assertEqual(documents.parse(b'{"a": 1}'), {"a": 1})

    def test_refused(self) -> None:
        """Anything else is refused, with words that quote nothing of it."""
        many = b'{"a": [' + b"1," * 100_000 + b"1]}"
        for body in (b"", b"canary", b"[]", deep(), many, b"\xff", b'{"a": NaN}'):
            with self.assertRaises(BadGateway) as caught:
                documents.parse(body)
            self.assertNotIn("canary", caught.exception.message)


class MemberTests(TestCase):
    """Members that may be missing, or of another type."""

    def test_texts(self) -> None:
        """A text has no control characters, and a limit."""
        document = {"a": {"b": " x\x1b[2J\n" + "y" * 1000}, "n": 3}
        self.assertEqual(documents.text(document, "a", "b"), "x[2J" + "y" * 193)
        for path in (("a",), ("n",), ("n", "b"), ("a", "b", "c"), ("z",)):
            self.assertEqual(documents.text(document, *path), "")

    def test_lists(self) -> None:
        """A list of texts has texts alone, without control characters, and a limit."""
        document = {"a": ["On", "\x1b[2JOff", 3, None] + ["x"] * 1000}
        found = documents.texts(document, "a")
        assert found is not None
        self.assertEqual((found[:2], len(found)), (("On", "[2JOff"), 62))
        self.assertEqual(documents.texts({"a": 3}, "a"), None)

    def test_numbers(self) -> None:
        """A number is whole and in range."""
        cases: list[tuple[Any, int | None]] = [
            (0, 0),
            (623, 623),
            (-1, None),
            (True, None),
            ("22", None),
            (1.5, None),
            (1 << 40, None),
        ]
        for value, expected in cases:
            self.assertEqual(documents.number({"a": value}, "a"), expected)

    def test_links(self) -> None:
        """A link is a path on the BMC; others are refused."""
        self.assertEqual(
            documents.link({"a": {"@odata.id": "/redfish/v1/x"}}, "a"), "/redfish/v1/x"
        )
        self.assertEqual(documents.link({"a": {}}, "a"), "")
        for wrong in (
            "https://evil.example/redfish/v1",
            "//evil.example/x",
            "/redfish/../../x",
            "redfish",
            "/x\r\nHost: evil",
            "/x?y",
            "/" + "x" * 600,
        ):
            with self.assertRaises(BadGateway):
                documents.link({"a": {"@odata.id": wrong}}, "a")

    def test_message_ids(self) -> None:
        """An error is known by the ids of its messages."""
        body = documents.parse(error("Base.1.8.SessionLimitExceeded"))
        self.assertEqual(documents.message_ids(body), ["Base.1.8.SessionLimitExceeded"])
        self.assertEqual(documents.message_ids({"error": {"code": "a b"}}), [])
