"""
Tests for :mod:`twisted_exec.auth.jwt_keys`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from twisted.trial.unittest import SynchronousTestCase

from tests.auth import forge
from tests.tls.support import authority, replaced
from twisted_exec.auth.jwt_keys import jwks_keys, pem_keys, signing_key
from twisted_exec.tls.errors import TLSConfigError


class PemKeysTests(SynchronousTestCase):
    """Tests for :func:`twisted_exec.auth.jwt_keys.pem_keys`."""

    def test_all_kinds(self) -> None:
        """Public keys, private keys and certificates may share one file."""
        first, second = forge.rsa_key(), forge.ec_key()
        certificate = authority("users").certificate_pem
        text = forge.public_pem(first) + b"# old\n" + forge.private_pem(second) + certificate
        found = pem_keys(text, "keys")
        self.assertEqual(len(found), 3)
        self.assertEqual(found[1].algorithms, ("ES256",))
        self.assertIn("RS256", found[0].algorithms)

    def test_kid(self) -> None:
        """A key has the same id as in kube-apiserver."""
        key = forge.rsa_key()
        der = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        expected = base64.urlsafe_b64encode(hashlib.sha256(der).digest()).decode().rstrip("=")
        (found,) = pem_keys(forge.public_pem(key), "keys")
        self.assertEqual(found.kid, expected)

    def test_published(self) -> None:
        """The published JWK has no private part and can be read back."""
        for text in (forge.private_pem(forge.rsa_key()), forge.private_pem(forge.ec_key())):
            public = signing_key(text, "key").public
            told = public.jwk()
            self.assertFalse({"d", "p", "q", "dp", "dq", "qi"} & set(told))
            (again,) = jwks_keys(json.dumps({"keys": [told]}).encode())
            self.assertEqual((again.kid, again.jwk()), (public.kid, told))

    def test_none(self) -> None:
        """A text without a key, or with one that cannot be read, is refused without quoting it."""
        canary = b"-----BEGIN PUBLIC KEY-----\ncanary\n-----END PUBLIC KEY-----\n"
        version = replaced(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x05")
        for text in (b"", b"canary", canary, forge.public_pem(forge.rsa_key()) + canary, version):
            with self.assertRaises(TLSConfigError) as caught:
                pem_keys(text, "key file 'x'")
            self.assertIn("key file 'x' holds", str(caught.exception))
            self.assertNotIn("canary", str(caught.exception))

    def test_of_no_use(self) -> None:
        """Short RSA keys and other curves are refused by name."""
        other = ed25519.Ed25519PrivateKey.generate().public_key()
        koblitz = ec.generate_private_key(ec.SECP256K1()).public_key()
        texts = [forge.public_pem(forge.rsa_key("short", 1024))] + [
            each.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            for each in (other, koblitz)
        ]
        whys = ["1024 bits", "P-256, P-384, P-521", "P-256, P-384, P-521"]
        for text, why in zip(texts, whys, strict=True):
            with self.assertRaises(TLSConfigError) as caught:
                pem_keys(text, "keys")
            self.assertIn(why, str(caught.exception))


class SigningKeyTests(SynchronousTestCase):
    """Tests for :func:`twisted_exec.auth.jwt_keys.signing_key`."""

    def test_algorithm(self) -> None:
        """The kind of the key is its algorithm."""
        self.assertEqual(signing_key(forge.private_pem(forge.rsa_key()), "key").algorithm, "RS256")
        self.assertEqual(signing_key(forge.private_pem(forge.ec_key()), "key").algorithm, "ES256")

    def test_older_forms(self) -> None:
        """The PEM forms that openssl makes by default are read."""
        text = forge.ec_key().private_bytes(
            Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
        )
        parameters = (
            b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"
        )
        self.assertEqual(len(pem_keys(parameters + text, "keys")), 1)
        self.assertEqual(signing_key(text, "key").algorithm, "ES256")

    def test_refused(self) -> None:
        """Public keys, encrypted ones and short ones sign nothing."""
        locked = forge.ec_key().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
        )
        for text, why in (
            (forge.public_pem(forge.rsa_key()), "holds no usable PEM private key"),
            (locked, "is encrypted"),
            (forge.private_pem(forge.rsa_key("short", 1024)), "1024 bits"),
        ):
            with self.assertRaises(TLSConfigError) as caught:
                signing_key(text, "signing key 'x'")
            self.assertIn("signing key 'x'", str(caught.exception))
            self.assertIn(why, str(caught.exception))


class JwksKeysTests(SynchronousTestCase):
    """Tests for :func:`twisted_exec.auth.jwt_keys.jwks_keys`."""

    def left_out(self, **changes: Any) -> None:
        """Check that a key with these changes is skipped and a good key beside it is kept."""
        changed = {**forge.jwk(forge.rsa_key(), "changed"), **changes}
        found = jwks_keys(forge.jwks(changed, forge.jwk(forge.rsa_key(), "good")))
        self.assertEqual([key.kid for key in found], ["good"], changes)

    def test_left_out(self) -> None:
        """Keys of other uses or types, and broken keys, are skipped."""
        self.left_out(kty="oct", k="c2VjcmV0")
        self.left_out(kty="AKP")
        self.left_out(kty=["RSA"])
        self.left_out(use="enc")
        self.left_out(key_ops=["sign"])
        self.left_out(key_ops="verify")
        self.left_out(alg="HS256")
        self.left_out(alg="RSA-OAEP")
        self.left_out(kid=5)
        self.left_out(kid="k" * 2000)
        self.left_out(n="!!!")
        self.left_out(n=5)
        self.left_out(n="A" * 2000)
        self.left_out(e="AA")
        self.left_out(**forge.jwk(forge.rsa_key("short", 1024), "changed"))
        self.left_out(kty="EC", crv="P-256", x="AAAA", y="AAAA")
        self.left_out(kty="EC", crv="secp256k1", x="AAAA", y="AAAA")

    def test_made_to_be_slow(self) -> None:
        """A public exponent as long as the key, which would cost seconds per token, is refused."""
        numbers = forge.rsa_key().public_key().public_numbers()
        for exponent in (1 << 31 | 1, numbers.n - 2):
            slow = {**forge.jwk(forge.rsa_key()), "e": forge.number(exponent)}
            with self.assertRaises(ValueError):
                jwks_keys(forge.jwks(slow))
            text = RSAPublicNumbers(exponent, numbers.n).public_key()
            told = text.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            with self.assertRaisesRegex(TLSConfigError, "exponent beyond 31 bits"):
                pem_keys(told, "keys")

    def test_private_numbers(self) -> None:
        """From a published private key only the public half is used."""
        private = forge.jwk(forge.rsa_key(), d="AQAB", p="AQAB", q="AQAB")
        (found,) = jwks_keys(forge.jwks(private))
        self.assertFalse(found.key.is_private)

    def test_no_key_set(self) -> None:
        """A document that is no key set, or has no usable key, is refused."""
        for text, why in (
            (b"", "not a JSON object"),
            (b"[]", "not a JSON object"),
            (b"<html>", "not a JSON object"),
            (b"{}", "no list of keys"),
            (b'{"keys":{}}', "no list of keys"),
            (b'{"keys":["x"]}', "no list of keys"),
            (b'{"keys":[]}', "no key that verifies"),
            (forge.jwks({"kty": "oct", "k": "c2VjcmV0"}), "no key that verifies"),
            (forge.jwks(*[{"kty": "oct"}] * 101), "more than 100 keys"),
        ):
            with self.assertRaises(ValueError) as caught:
                jwks_keys(text)
            self.assertIn(why, str(caught.exception))
