"""
Signatures of requests to S3: :mod:`twisted_exec.recording.stores.bucket`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.recording.stores.bucket import AccessKey, RequestSigner, query

EXAMPLE = AccessKey("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
HOST = {"Host": "examplebucket.s3.amazonaws.com"}
NOW = datetime(2013, 5, 24, tzinfo=UTC)


class SignatureTests(SynchronousTestCase):
    """Signatures."""

    def test_published_examples(self) -> None:
        """
        Each request of Amazon's documentation has the signature that is published there.

        https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
        """
        put = {
            "Date": "Fri, 24 May 2013 00:00:00 GMT",
            "x-amz-storage-class": "REDUCED_REDUNDANCY",
        }
        cases = [
            (
                ("GET", "/test.txt", {}, {"Range": "bytes=0-9"}, b""),
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                ("PUT", "/test%24file.text", {}, put, b"Welcome to Amazon S3."),
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ),
            (
                ("GET", "/", {"lifecycle": ""}, {}, b""),
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                ("GET", "/", {"prefix": "J", "max-keys": "2"}, {}, b""),
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ]
        signer = RequestSigner(EXAMPLE, "us-east-1")
        for (method, path, parameters, headers, body), signature in cases:
            signed = dict(
                signer.sign(method, path, parameters, HOST | headers, sha256(body).hexdigest(), NOW)
            )
            self.assertEqual(signed["x-amz-date"], "20130524T000000Z")
            self.assertTrue(signed["authorization"].endswith(f"Signature={signature}"), path)

    def test_token(self) -> None:
        """The token of temporary credentials is sent and signed."""
        signer = RequestSigner(AccessKey("A", "B", "TOKEN"), "r")
        signed = dict(signer.sign("GET", "/", {}, HOST, "0" * 64, NOW))
        self.assertEqual(signed["x-amz-security-token"], "TOKEN")
        self.assertIn("x-amz-date;x-amz-security-token", signed["authorization"])

    def test_query(self) -> None:
        """All but unreserved characters are percent-encoded; names are sorted."""
        self.assertEqual(query({"b": "a/b+c= ~é", "a": ""}), "a=&b=a%2Fb%2Bc%3D%20~%C3%A9")

    def test_secrets(self) -> None:
        """The representations of credentials show no secret."""
        shown = repr(RequestSigner(AccessKey("A", "SECRET", "TOKEN"), "r"))
        self.assertNotIn("SECRET", shown)
        self.assertNotIn("TOKEN", shown)
