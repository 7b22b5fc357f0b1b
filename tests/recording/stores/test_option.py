"""
The option ``--recording-store``: :mod:`twisted_exec.recording.stores.option`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from twisted_exec.recording.stores.directory import DirectoryStore
from twisted_exec.recording.stores.option import store_option
from twisted_exec.recording.stores.s3 import S3Store


class OptionTests(SynchronousTestCase):
    """The forms of its value."""

    def make(self, text: str) -> Any:
        """The store of a value."""
        return store_option(text)(Clock())

    def test_directory(self) -> None:
        """The URL of a directory."""
        store = self.make("file:///var/lib/a%20b/")
        self.assertIsInstance(store, DirectoryStore)
        self.assertEqual(store.url, "file:///var/lib/a%20b")

    def test_bucket(self) -> None:
        """The URL of a bucket; parameters are not in the URL that is shown."""
        store = self.make("s3://bucket/a?region=r&credentials=/x")
        self.assertIsInstance(store, S3Store)
        self.assertEqual(store.url, "s3://bucket/a")

    def test_without_boto3(self) -> None:
        """A bucket is refused at the start if its library is missing; the message has the command."""
        needs.without(self, "boto3")
        error = self.assertRaises(ValueError, store_option, "s3://bucket/a")
        self.assertIn("the extra s3 of twisted-exec: type pip install boto3", str(error))
        self.assertIsInstance(self.make("file:///var/lib/a"), DirectoryStore)

    def test_refused(self) -> None:
        """Other values are refused with the forms that are possible."""
        for text in (
            "",
            "s3:bucket",
            "/var/lib/a",
            "https://host/",
            "file://host/a",
            "file:///a?b",
        ):
            error = self.assertRaises(ValueError, store_option, text)
            self.assertIn("file:///DIRECTORY", str(error))
