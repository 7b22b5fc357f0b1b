"""
Tests for ``twisted_exec.ssh.revocation``.
"""

from __future__ import annotations

import hashlib
import os
import struct
import subprocess
from base64 import b64encode
from collections.abc import Sequence

from twisted.trial.unittest import SynchronousTestCase

from tests import needs
from tests.tiers import PROGRAMS

if (skip := needs.conch()) is None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from twisted.conch.ssh.common import NS

    from tests.ssh.authority import Authority, blob_of, line_of
    from twisted_exec.ssh.certificate import Certificate, read_certificate
    from twisted_exec.ssh.revocation import (
        MOST_BYTES,
        MOST_ENTRIES,
        RevocationError,
        parse_revocations,
    )

HEADER = b"SSHKRL\n\0" + struct.pack(">L", 1) + bytes(24) + bytes(8)
_CERTIFICATES, _KEYS, _SHA1, _SIGNATURE, _SHA256, _EXTENSION = 1, 2, 3, 4, 5, 255
_SERIALS, _RANGE, _BITMAP, _KEY_IDS, _CERTIFICATE_EXTENSION = 0x20, 0x21, 0x22, 0x23, 0x39


def section(kind: int, content: bytes) -> bytes:
    """Return a section of a list, or of the certificates in it."""
    return bytes((kind,)) + NS(content)


def of_certificates(*sections: bytes, authority: bytes = b"") -> bytes:
    """Return a list that revokes certificates."""
    return HEADER + section(_CERTIFICATES, NS(authority) + NS(b"") + b"".join(sections))


def numbers(*values: int) -> bytes:
    """Return numbers of 64 bits."""
    return struct.pack(f">{len(values)}Q", *values)


class ListCase(SynchronousTestCase):
    """An authority and a user."""

    skip = skip

    def setUp(self) -> None:
        self.authority, self.user = Authority(), Ed25519PrivateKey.generate()

    def certificate(self, serial: int = 7, key_id: bytes = b"ada@laptop") -> Certificate:
        blob = self.authority.certify(self.user, b"ada", serial=serial, key_id=key_id)
        return read_certificate(blob)

    def revoked(self, data: bytes, serials: Sequence[int]) -> list[int]:
        """Return those serial numbers whose certificates are revoked."""
        found = parse_revocations(data)
        return [each for each in serials if found.revokes(self.certificate(each))]


class FormatTests(ListCase):
    """Lists in each form."""

    def test_serials(self) -> None:
        """Numbers, ranges and bitmaps revoke what they name, and not their neighbours."""
        large = 2**64 - 1
        data = of_certificates(
            section(_SERIALS, numbers(5, 3, large)),
            section(_RANGE, numbers(10, 12)),
            section(_RANGE, numbers(12, 20)),
            section(_RANGE, numbers(30, 30)),
            section(_BITMAP, numbers(40) + NS(b"\x80\x05")),
        )
        revoked = [3, 5, 10, 12, 20, 30, 40, 42, 55, large]
        others = [1, 2, 4, 6, 9, 21, 29, 31, 39, 41, 43, 54, 56, large - 1]
        self.assertEqual(self.revoked(data, revoked + others), revoked)

    def test_zero(self) -> None:
        """The number 0 is that of all certificates without a number, so it revokes none."""
        data = of_certificates(section(_SERIALS, numbers(0)), section(_RANGE, numbers(0, 9)))
        self.assertEqual(self.revoked(data, [0, 1]), [1])

    def test_key_ids(self) -> None:
        """A key id revokes its certificates, also those without a number."""
        found = parse_revocations(of_certificates(section(_KEY_IDS, NS(b"a") + NS(b"ada@laptop"))))
        self.assertTrue(found.revokes(self.certificate(0)))
        self.assertFalse(found.revokes(self.certificate(0, b"ada@laptop ")))

    def test_authorities(self) -> None:
        """Numbers are those of their authority."""
        content = section(_RANGE, numbers(1, 100))
        other = of_certificates(content, authority=Authority().blob)
        mine = of_certificates(content, authority=self.authority.blob)
        self.assertEqual(self.revoked(other, [7]), [])
        self.assertEqual(self.revoked(mine, [7]), [7])

    def test_keys(self) -> None:
        """A key is revoked by itself or a digest, with its certificates; so are those of an authority."""
        for blob, is_user in ((blob_of(self.user), True), (self.authority.blob, False)):
            for data in (
                HEADER + section(_KEYS, NS(b"x") + NS(blob)),
                HEADER + section(_SHA1, NS(hashlib.sha1(blob).digest())),
                HEADER + section(_SHA256, NS(hashlib.sha256(blob).digest())),
                f"# lost\n\n{line_of(self.user if is_user else self.authority.private)} ada@x\n".encode(),
            ):
                found = parse_revocations(data)
                self.assertTrue(found.revokes(self.certificate()))
                self.assertEqual(found.revokes_key(blob_of(self.user)), is_user)
                self.assertFalse(found.revokes_key(blob_of(Ed25519PrivateKey.generate())))

    def test_others(self) -> None:
        """Signatures and what is not critical are passed over."""
        extension = NS(b"x@example.org") + b"\0" + NS(b"")
        data = (
            HEADER
            + section(_EXTENSION, extension)
            + section(_CERTIFICATES, NS(b"") + NS(b"") + section(_CERTIFICATE_EXTENSION, extension))
            + section(_SIGNATURE, self.authority.blob)
            + NS(b"signature")
        )
        self.assertEqual(self.revoked(data, [7]), [])
        self.assertEqual(self.revoked(HEADER, [7]), [])

    def test_refused(self) -> None:
        """A list that is not understood as a whole is refused as a whole."""
        critical = NS(b"x@example.org") + b"\1" + NS(b"")
        good = of_certificates(section(_SERIALS, numbers(5)))
        for data, problem in (
            (b"", "it is empty"),
            (b"\xff\xfe", "neither a KRL of ssh-keygen nor text"),
            (b"ssh-ed25519", "line 1: a line must be TYPE BASE64"),
            (b"serial: 5\n", "line 1: a line must be TYPE BASE64"),
            (b"# x\nssh-ed25519 !!!\n", "line 2: the public key is no base64"),
            (b"ssh-ed25519 AAAA\n", "line 1: the public key is malformed"),
            (good.replace(b"\0\0\0\1", b"\0\0\0\2", 1), "format version 2"),
            (HEADER + section(9, b""), "unknown type 9"),
            (of_certificates(section(0x40, b"")), "unknown type 64"),
            (of_certificates(section(_RANGE, numbers(5, 4))), "range of serial numbers is wrong"),
            (
                of_certificates(section(_RANGE, numbers(4, 5, 6))),
                "range of serial numbers is wrong",
            ),
            (of_certificates(section(_BITMAP, numbers(4) + NS(b"") + b"x")), "bitmap"),
            (of_certificates(section(_SERIALS, b"x")), "it is cut off"),
            (HEADER + section(_SHA256, NS(bytes(20))), "an entry has a wrong length"),
            (HEADER + section(_KEYS, NS(b"")), "an entry has a wrong length"),
            (HEADER + section(_EXTENSION, critical), "critical extension"),
            (of_certificates(section(_CERTIFICATE_EXTENSION, critical)), "critical extension"),
            (HEADER + b"\x02\xff\xff\xff\xff", "it is cut off"),
            (good + b"\0", "it is cut off"),
        ):
            error = self.assertRaises(RevocationError, parse_revocations, data)
            self.assertIn(problem, str(error))

    def test_cut_off(self) -> None:
        """So is one that is cut off anywhere but between its sections."""
        data = of_certificates(section(_SERIALS, numbers(5)))
        for size in range(1, len(data)):
            if size != len(HEADER):
                self.assertRaises(RevocationError, parse_revocations, data[:size])

    def test_bounds(self) -> None:
        """A list has a largest size, and a largest number of entries."""
        error = self.assertRaises(RevocationError, parse_revocations, bytes(MOST_BYTES + 1))
        self.assertIn("larger than 16 MiB", str(error))
        data = of_certificates(section(_SERIALS, bytes(8 * (MOST_ENTRIES + 1))))
        error = self.assertRaises(RevocationError, parse_revocations, data)
        self.assertIn("more than 1048576 entries", str(error))

    def test_bitmaps(self) -> None:
        """A bitmap of many bits costs its bytes, not its bits, and is found among many."""
        sections = [section(_BITMAP, numbers(each * 100) + NS(b"\1")) for each in range(1000)]
        sections.append(section(_BITMAP, numbers(10**6) + NS(b"\x80" + bytes(1 << 20))))
        data = of_certificates(*sections)
        last = 10**6 + 8 * (1 << 20) + 7
        self.assertEqual(self.revoked(data, [99_900, 99_901, last, last + 1]), [99_900, last])

    def test_overlapping_bitmaps(self) -> None:
        """Bitmaps may overlap."""
        data = of_certificates(
            section(_BITMAP, numbers(10) + NS(b"\1" + bytes(9) + b"\1")),
            section(_BITMAP, numbers(20) + NS(b"\1")),
            section(_BITMAP, numbers(15) + NS(b"\1")),
        )
        serials = [9, 10, 11, 15, 19, 20, 21, 89, 90, 91]
        self.assertEqual(self.revoked(data, serials), [10, 15, 20, 90])


class KeygenTests(ListCase):
    """Lists of ssh-keygen."""

    starts = PROGRAMS
    skip = needs.ssh()

    def list_of(self, specification: str, *words: str) -> bytes:
        """Return what ``ssh-keygen -k`` makes."""
        directory = self.mktemp()
        os.makedirs(directory)
        with open(os.path.join(directory, "specification"), "w") as file:
            file.write(specification)
        with open(os.path.join(directory, "ca.pub"), "w") as file:
            file.write(self.authority.line + "\n")
        command = ["ssh-keygen", "-q", "-k", "-f", "krl", *words, "specification"]
        subprocess.run(command, check=True, cwd=directory)
        with open(os.path.join(directory, "krl"), "rb") as krl:
            return krl.read()

    def test_serials(self) -> None:
        """Numbers are read, in whatever form ssh-keygen finds the shortest."""
        revoked = [7, *range(100, 200, 3), *range(1000, 2000), 10**18]
        lines = "".join(f"serial: {each}\n" for each in revoked) + "serial: 5000-9000\n"
        data = self.list_of(lines, "-s", "ca.pub")
        others = [1, 6, 8, 99, 101, 998, 999, 2000, 4999, 9001, 10**18 + 1]
        revoked = [7, 100, 103, 199, 1000, 1999, 5000, 7000, 9000, 10**18]
        self.assertEqual(self.revoked(data, sorted(revoked + others)), revoked)

    def test_others(self) -> None:
        """Ids, keys and digests are read."""
        user = line_of(self.user)
        digest = "SHA256:" + b64encode(hashlib.sha256(blob_of(self.user)).digest()).decode().rstrip(
            "="
        )
        for specification, words in (
            ("id: ada@laptop\n", ("-s", "ca.pub")),
            (f"key: {user}\n", ()),
            (f"{user}\n", ()),
            (f"sha1: {user}\n", ()),
            (f"sha256: {user}\n", ()),
            (f"hash: {digest}\n", ()),
            (f"key: {self.authority.line}\n", ()),
        ):
            found = parse_revocations(self.list_of(specification, *words))
            self.assertTrue(found.revokes(self.certificate()), specification)
            self.authority, authority = Authority(), self.authority
            self.user, user_before = Ed25519PrivateKey.generate(), self.user
            self.assertFalse(found.revokes(self.certificate(key_id=b"x")), specification)
            self.authority, self.user = authority, user_before

    def test_empty(self) -> None:
        """A list without entries revokes nothing."""
        self.assertFalse(parse_revocations(self.list_of("")).revokes(self.certificate()))
