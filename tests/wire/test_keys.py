"""Tests of :mod:`twisted_exec.wire.keys`."""

from __future__ import annotations

from unittest import TestCase

from twisted_exec.wire.errors import RemoteProtocolError
from twisted_exec.wire.keys import (
    ALONE,
    KEY,
    NUMBER,
    decode_fields,
    digest,
    encode_fields,
    new_key,
)


class KeyTests(TestCase):
    """Keys."""

    def test_key(self) -> None:
        """Each key is another one, has the form of a key, and a digest that says nothing about it."""
        key = new_key()
        self.assertIsNotNone(KEY.match(key))
        self.assertNotEqual(new_key(), key)
        self.assertEqual(digest(key), digest(key))
        self.assertNotEqual(digest(new_key()), digest(key))
        self.assertEqual(len(digest("\N{SNOWMAN}")), 32)


class FieldsTests(TestCase):
    """Headers of fields."""

    forms = {"frames": ALONE, "start": NUMBER}

    def test_fields(self) -> None:
        """Fields are read back, in any order, with those that have no form."""
        text = encode_fields(frames="", start=5, more="a/b")
        self.assertEqual(text, "frames; start=5; more=a/b")
        fields = {"frames": "", "start": "5", "more": "a/b"}
        self.assertEqual(decode_fields("X", text, self.forms), fields)
        self.assertEqual(decode_fields("X", " more=a/b;start=5 ; frames", self.forms), fields)

    def test_invalid(self) -> None:
        """A field that is missing, comes twice or has another form is an error that names the header."""
        for text in (
            "",
            "frames",
            "start=5",
            "frames=1; start=5",
            "frames; start=",
            "frames; start=-5",
            "frames; start=5; start=5",
            "frames; start=5; more=" + "x" * 512,
        ):
            with self.assertRaisesRegex(RemoteProtocolError, "header X ", msg=text):
                decode_fields("X", text, self.forms)
