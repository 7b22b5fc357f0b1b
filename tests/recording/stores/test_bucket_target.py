"""
Addresses and credentials of buckets: :mod:`twisted_exec.recording.stores.bucket`.
"""

from __future__ import annotations

import os

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.recording.stores.bucket import AccessKey, credentials_of, parse_target
from twisted_exec.recording.stores.interfaces import StoreError

ENDPOINT = "endpoint=https://minio.example:9000"


class TargetTests(SynchronousTestCase):
    """URLs of buckets."""

    def test_amazon(self) -> None:
        """Without an endpoint it is Amazon's, with the bucket in the name of the host."""
        target = parse_target("s3://recordings/lab/a?region=eu-central-1")
        self.assertEqual(target.server, "https://recordings.s3.eu-central-1.amazonaws.com")
        self.assertEqual(target.prefix, "lab/a")
        self.assertEqual(str(target), "s3://recordings/lab/a")

    def test_endpoint(self) -> None:
        """With an endpoint the bucket is in the path, unless the URL says otherwise."""
        target = parse_target(f"s3://recordings?{ENDPOINT}")
        self.assertEqual(target.server, "https://minio.example:9000")
        self.assertEqual((target.is_path_style, target.prefix), (True, ""))
        target = parse_target(f"s3://recordings/?{ENDPOINT}&style=virtual")
        self.assertEqual(target.server, "https://recordings.minio.example:9000")
        self.assertFalse(target.is_path_style)
        self.assertEqual(parse_target("s3://abc?endpoint=https://A:443/").host, "a")

    def test_dots(self) -> None:
        """A bucket with dots is in the path, because no certificate has its name."""
        target = parse_target("s3://lab.recordings?region=eu-central-1")
        self.assertEqual(target.server, "https://s3.eu-central-1.amazonaws.com")

    def test_refused(self) -> None:
        """Each URL that cannot be meant is refused, without its secrets."""
        cases = [
            ("s3://", "not the name of a bucket"),
            ("s3://Upper", "not the name of a bucket"),
            ("s3://a/b", "not the name of a bucket"),
            ("s3://key:SECRET@bucket", "write credentials to a file"),
            ("s3://bucket/a%20b", "the prefix has"),
            ("s3://bucket/a//b", "the prefix has"),
            ("s3://bucket/../b", "the prefix has"),
            ("s3://bucket?secret=SECRET", "its parameters are"),
            ("s3://bucket?region", "not a URL"),
            ("s3://bucket?region=a&region=b", "repeated"),
            ("s3://bucket?region=a/b", "not a region"),
            ("s3://bucket?style=other", "style is path or virtual"),
            ("s3://bucket?endpoint=minio", "endpoint is not a URL"),
            ("s3://bucket?endpoint=ftp://minio", "endpoint is not a URL"),
            ("s3://bucket?endpoint=https://minio/path", "more than scheme, host and port"),
            ("s3://bucket?endpoint=https://u:SECRET@minio", "more than scheme"),
            ("s3://bucket?endpoint=http://minio", "in the clear"),
            ("s3://bucket?endpoint=https://192.0.2.1&style=virtual", "must be path"),
            ("s3://a.bucket?style=virtual", "must be path"),
            ("s3://bucket#x", "fragment"),
            ("s3://[", "not a URL"),
        ]
        for text, message in cases:
            error = self.assertRaises(ValueError, parse_target, text)
            self.assertIn(message, str(error), text)
            self.assertNotIn("SECRET", str(error))


class CredentialsTests(SynchronousTestCase):
    """Where credentials come from."""

    def test_secrets(self) -> None:
        """The representation of credentials shows no secret."""
        shown = repr(AccessKey("A", "SECRET", "TOKEN"))
        self.assertNotIn("SECRET", shown)
        self.assertNotIn("TOKEN", shown)

    def file(self, text: str) -> str:
        """A file of credentials."""
        path = os.path.abspath(self.mktemp())
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o600)
        return path

    def test_environment(self) -> None:
        """The variables are those of Amazon's programs."""
        environ = {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "B"}
        target = parse_target("s3://bucket")
        self.assertEqual(credentials_of(target, environ, Clock())(), AccessKey("A", "B"))
        environ["AWS_SESSION_TOKEN"] = "C"
        self.assertEqual(credentials_of(target, environ, Clock())(), AccessKey("A", "B", "C"))

    def test_missing(self) -> None:
        """Without credentials the message says how to give them."""
        read = credentials_of(parse_target("s3://bucket"), {}, Clock())
        error = self.assertRaises(StoreError, read)
        self.assertIn("s3://bucket has no credentials: set AWS_ACCESS_KEY_ID", str(error))

    def test_file(self) -> None:
        """The file is that of Amazon's programs, and is read again when it changes."""
        path = self.file("[default]\naws_access_key_id = A\naws_secret_access_key = B\n")
        clock = Clock()
        read = credentials_of(parse_target(f"s3://bucket?credentials={path}"), {}, clock)
        self.assertEqual(read(), AccessKey("A", "B"))
        with open(path, "a") as file:
            file.write("aws_session_token = C\n")
        clock.advance(2)
        self.assertEqual(read(), AccessKey("A", "B", "C"))

    def test_damaged_files(self) -> None:
        """A file without credentials is refused, without its content."""
        for text in (
            "SECRET",
            "[default]\naws_access_key_id = A\n",
            "[other]\naws_access_key_id = A\naws_secret_access_key = SECRET\n",
            "[default]\naws_access_key_id = A\naws_secret_access_key = SECRET\x01\n",
        ):
            path = self.file(text)
            read = credentials_of(parse_target(f"s3://bucket?credentials={path}"), {}, Clock())
            error = self.assertRaises(StoreError, read)
            self.assertIn("has no section [default]", str(error))
            self.assertNotIn("SECRET", str(error))

    def test_missing_file(self) -> None:
        """A file that does not exist is named."""
        read = credentials_of(parse_target("s3://bucket?credentials=/nowhere/x"), {}, Clock())
        self.assertIn("/nowhere/x", str(self.assertRaises(StoreError, read)))
