"""
Tests for ``twisted_exec.ssh.door_keys``.
"""

from __future__ import annotations

import os
import time
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests import needs

if (skip := needs.conch()) is None:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
        SSHCertificateType,
    )
    from twisted.conch.ssh.keys import Key

    from tests.ssh.authority import Authority, blob_of, line_of
    from twisted_exec.ssh.door_keys import DoorKey, DoorKeyError, DoorKeys, known_hosts


class KeysCase(SynchronousTestCase):
    """Files of keys in a directory."""

    skip = skip

    def setUp(self) -> None:
        self.directory = self.mktemp()
        os.makedirs(self.directory)
        self.clock = Clock()
        self.authority = Authority()

    def write(self, name: str, content: bytes, mode: int = 0o600) -> str:
        """Replace a file; return its path."""
        path = os.path.join(self.directory, name)
        with open(f"{path}.new", "wb") as file:
            file.write(content)
        os.chmod(f"{path}.new", mode)
        os.replace(f"{path}.new", path)
        return path

    def write_key(
        self,
        name: str,
        private: Any,
        encoding: Any = None,
        passphrase: bytes = b"",
        mode: int = 0o600,
    ) -> str:
        encryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
        form = encoding or PrivateFormat.OpenSSH
        return self.write(name, private.private_bytes(Encoding.PEM, form, encryption), mode)

    def write_certificate(self, name: str, private: Any, **more: Any) -> str:
        more.setdefault("kind", SSHCertificateType.HOST)
        more.setdefault("valid", (time.time() - 60, time.time() + 3600))
        blob = self.authority.certify(private, b"gate.example.org", **more)
        kind = line_of(private).split()[0] + "-cert-v01@openssh.com"
        return self.write(name, f"{kind} {b64encode(blob).decode()} host\n".encode(), 0o644)

    def load(self, keys: Sequence[str], certificates: Sequence[str] = ()) -> Sequence[DoorKey]:
        self.keys = DoorKeys(keys, certificates, self.clock)
        return self.keys.load()

    def problem(self, keys: Sequence[str], certificates: Sequence[str] = ()) -> str:
        return str(self.assertRaises(DoorKeyError, self.load, keys, certificates))


class LoadTests(KeysCase):
    """What the files may hold."""

    def test_algorithms(self) -> None:
        """Keys of both types are offered, with their certificates first, and never with SHA-1."""
        first, second = Ed25519PrivateKey.generate(), rsa.generate_private_key(65537, 3072)
        paths = [
            self.write_key("ed25519", first),
            self.write_key("rsa", second, PrivateFormat.TraditionalOpenSSL),
        ]
        self.assertEqual(
            [each.algorithms for each in self.load(paths)],
            [[b"ssh-ed25519"], [b"rsa-sha2-512", b"rsa-sha2-256"]],
        )
        certificates = [
            self.write_certificate("ed25519-cert", first),
            self.write_certificate("rsa-cert", second),
        ]
        loaded = self.load(paths, certificates)
        suffix = b"-cert-v01@openssh.com"
        self.assertEqual(
            [each.algorithms for each in loaded],
            [
                [b"ssh-ed25519" + suffix, b"ssh-ed25519"],
                [
                    b"rsa-sha2-512" + suffix,
                    b"rsa-sha2-256" + suffix,
                    b"rsa-sha2-512",
                    b"rsa-sha2-256",
                ],
            ],
        )
        for each, private in zip(loaded, (first, second), strict=True):
            for algorithm in each.algorithms:
                signature = each.sign(b"x", algorithm)
                self.assertIn(algorithm.removesuffix(suffix), signature)
                self.assertTrue(Key(private.public_key()).verify(signature, b"x"))
                is_plain = each.blob(algorithm) == blob_of(private)
                self.assertEqual(is_plain, not algorithm.endswith(suffix))

    def test_refused(self) -> None:
        """What cannot be used is refused, with the file and the remedy."""
        private, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        key = self.write_key("key", private)
        for paths, problem in (
            ([], "there is no host key"),
            (["absent"], "absent"),
            ([self.directory], "directory"),
            ([self.write("text", b"x")], "has no private key"),
            ([self.write_key("open", private, mode=0o644)], "type: chmod 600"),
            ([self.write_key("group", private, mode=0o640)], "type: chmod 600"),
            ([self.write_key("locked", private, passphrase=b"secret")], "ssh-keygen -p removes it"),
            ([self.write_key("ec", ec.generate_private_key(ec.SECP256R1()))], "Ed25519 or RSA"),
            ([self.write_key("small", rsa.generate_private_key(65537, 2048))], "it needs 3072"),
            ([key, self.write_key("second", other)], "two host keys of one type"),
        ):
            self.assertIn(problem, self.problem(paths))
        for certificate, problem in (
            (self.write("none", b"ssh-ed25519"), "no certificate"),
            (self.write("plain", line_of(private).encode()), "no certificate"),
            (
                self.write_certificate("user", private, kind=SSHCertificateType.USER),
                "a user's certificate; ssh-keygen -h",
            ),
            (self.write_certificate("other", other), "for none of the host keys"),
        ):
            self.assertIn(problem, self.problem([key], [certificate]))

    def test_known_hosts(self) -> None:
        """The lines for clients have the authorities, and the keys, with the port in the way of OpenSSH."""
        private = Ed25519PrivateKey.generate()
        key = self.write_key("key", private)
        hosts = [("gate.example.org", 22), ("*.example.org", 2222)]
        names = "gate.example.org,[*.example.org]:2222"
        plain = f"{names} {line_of(private)}\n"
        self.assertEqual(known_hosts(self.load([key]), hosts), plain)
        loaded = self.load([key], [self.write_certificate("certificate", private)])
        authority = f"@cert-authority {names} {self.authority.line}\n"
        self.assertEqual(known_hosts(loaded, hosts), authority + plain)


class ReloadTests(KeysCase):
    """Files that change."""

    def test_reloaded(self) -> None:
        """Another key is that of the next connection; what cannot be used changes nothing."""
        first, second = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        path = self.write_key("key", first)
        self.load([path])
        for private, expected in ((None, first), (second, second), (None, second)):
            if private is None:
                self.write("key", b"x")
            else:
                self.write_key("key", private)
            self.clock.advance(2)
            [key] = self.keys.current()
            self.assertEqual(key.blob(b"ssh-ed25519"), blob_of(expected))

    def test_outdated(self) -> None:
        """A certificate that is not valid now is not offered, and the plain key is."""
        private = Ed25519PrivateKey.generate()
        path = self.write_key("key", private)
        for valid in ((0, time.time() - 1), (time.time() + 3600, time.time() + 7200)):
            certificate = self.write_certificate("certificate", private, valid=valid)
            with capturedLogs() as events:
                [key] = self.load([path], [certificate])
            self.assertEqual(key.algorithms, [b"ssh-ed25519"])
            self.assertIn(f"renew it: {certificate}", str(formatEvent(events[-1])))
        self.write_certificate("certificate", private)
        self.clock.advance(2)
        [key] = self.keys.current()
        self.assertEqual(len(key.algorithms), 2)
