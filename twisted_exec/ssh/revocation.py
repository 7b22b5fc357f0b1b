"""
Lists of revoked keys and certificates: the KRLs of ``ssh-keygen -k``, and plain lines of public keys.

Source of the format: ``PROTOCOL.krl`` of OpenSSH.  A list that is not understood as a whole is refused as a whole.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter

from twisted_exec.ssh.certificate import Certificate
from twisted_exec.ssh.public_keys import PublicKeyError, key_lines

MOST_BYTES = 16 << 20
MOST_ENTRIES = 1 << 20
"""Of keys, ids, serial numbers, ranges and bitmaps."""

_MAGIC = b"SSHKRL\n\0"
_VERSION = 1

_CERTIFICATES, _KEYS, _SHA1, _SIGNATURE, _SHA256, _EXTENSION = 1, 2, 3, 4, 5, 255
_SERIALS, _RANGE, _BITMAP, _KEY_IDS, _CERTIFICATE_EXTENSION = 0x20, 0x21, 0x22, 0x23, 0x39
_DIGEST_BYTES = {_SHA1: 20, _SHA256: 32}


class RevocationError(Exception):
    """A list cannot be used; the message is one line about its form."""


@dataclass
class _OfAuthority:
    """
    Certificates of one authority, or of all.

    :ivar ranges: first and last serial numbers; sorted and apart after :meth:`sort`.
    :ivar bitmaps: the serial number of the lowest bit, and the bits as a big-endian number; sorted, too.
    :ivar bitmap_ends: behind each bitmap and all before it.
    """

    serials: set[int] = field(default_factory=set)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    bitmaps: list[tuple[int, bytes]] = field(default_factory=list)
    bitmap_ends: list[int] = field(default_factory=list)
    key_ids: set[bytes] = field(default_factory=set)

    def sort(self) -> None:
        """Prepare :meth:`has`, so that it takes a logarithm of the number of entries."""
        merged: list[tuple[int, int]] = []
        for first, last in sorted(self.ranges):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        self.ranges = merged
        self.bitmaps.sort()
        ends = (lowest + 8 * len(bits) for lowest, bits in self.bitmaps)
        self.bitmap_ends = list(accumulate(ends, max))

    def has(self, serial: int, key_id: bytes) -> bool:
        if key_id in self.key_ids:
            return True
        # As OpenSSH: an authority that gives no numbers gives 0 to all.
        return serial != 0 and (
            serial in self.serials or self._is_in_ranges(serial) or self._is_in_bitmaps(serial)
        )

    def _is_in_ranges(self, serial: int) -> bool:
        index = bisect_right(self.ranges, (serial, 1 << 64)) - 1
        return index >= 0 and serial <= self.ranges[index][1]

    def _is_in_bitmaps(self, serial: int) -> bool:
        index = bisect_right(self.bitmaps, serial, key=itemgetter(0)) - 1
        while index >= 0 and serial < self.bitmap_ends[index]:
            lowest, bits = self.bitmaps[index]
            byte, bit = divmod(serial - lowest, 8)
            if byte < len(bits) and bits[-1 - byte] >> bit & 1:
                return True
            index -= 1
        return False


class RevocationList:
    """
    What is revoked.

    Build one with :func:`parse_revocations`.
    """

    def __init__(self) -> None:
        self._authorities: dict[bytes, _OfAuthority] = {}
        self._keys: set[bytes] = set()
        self._digests: dict[int, set[bytes]] = {_SHA1: set(), _SHA256: set()}

    def revokes_key(self, blob: bytes) -> bool:
        """Return whether a plain public key is revoked, be it of a user or of an authority."""
        return (
            blob in self._keys
            or (
                bool(self._digests[_SHA1])
                and hashlib.sha1(blob, usedforsecurity=False).digest() in self._digests[_SHA1]
            )
            or hashlib.sha256(blob).digest() in self._digests[_SHA256]
        )

    def revokes(self, certificate: Certificate) -> bool:
        """Return whether a certificate is revoked, by itself, its key or its authority."""
        if self.revokes_key(bytes(certificate.key.blob())) or self.revokes_key(
            certificate.authority
        ):
            return True
        lists = (self._authorities.get(each) for each in (certificate.authority, b""))
        return any(each.has(certificate.serial, certificate.key_id) for each in lists if each)


def parse_revocations(data: bytes) -> RevocationList:
    """
    Parse a KRL, or lines of public keys.

    :raises RevocationError: it is malformed, too large, or has a part that is not known.
    """
    if len(data) > MOST_BYTES:
        raise RevocationError(f"it is larger than {MOST_BYTES >> 20} MiB")
    if not data:
        # Perhaps its writer is at work.  Whoever revokes nothing has no list, or one of ssh-keygen.
        raise RevocationError("it is empty; ssh-keygen -k -f FILE makes a list without entries")
    found = RevocationList()
    if data.startswith(_MAGIC):
        _Parser(found).parse(_Cursor(memoryview(data)))
    else:
        try:
            found._keys.update(key_lines(data.decode(), MOST_ENTRIES))
        except UnicodeDecodeError:
            raise RevocationError("it is neither a KRL of ssh-keygen nor text") from None
        except PublicKeyError as error:
            raise RevocationError(str(error)) from None
    return found


class _Cursor:
    """Reads what a length allows, and nothing beyond."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, count: int) -> memoryview:
        end = self._at + count
        if end > len(self._data):
            raise RevocationError("it is cut off")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "big")

    def string(self) -> memoryview:
        return self.take(self.number(4))

    def section(self) -> _Cursor:
        return _Cursor(self.string())

    def strings(self) -> Iterator[bytes]:
        while self:
            yield bytes(self.string())


class _Parser:
    def __init__(self, found: RevocationList) -> None:
        self._found, self._entries = found, 0

    def _count(self) -> None:
        self._entries += 1
        if self._entries > MOST_ENTRIES:
            raise RevocationError(f"it has more than {MOST_ENTRIES} entries")

    def parse(self, krl: _Cursor) -> None:
        krl.take(len(_MAGIC))
        if (version := krl.number(4)) != _VERSION:
            raise RevocationError(f"it has the format version {version}, not {_VERSION}")
        krl.take(24)  # its version, its date, flags
        krl.string()  # reserved
        krl.string()  # comment
        while krl:
            kind, section = krl.number(1), krl.section()
            if kind == _CERTIFICATES:
                self._certificates(section)
            elif kind == _KEYS:
                self._add(self._found._keys, section)
            elif kind in _DIGEST_BYTES:
                self._add(self._found._digests[kind], section, _DIGEST_BYTES[kind])
            elif kind == _SIGNATURE:
                krl.string()  # of whom does not matter: the file is the operator's
            elif kind == _EXTENSION:
                self._extension(section)
            else:
                raise RevocationError(f"it has a section of the unknown type {kind}")
        for each in self._found._authorities.values():
            each.sort()

    def _add(self, entries: set[bytes], section: _Cursor, size: int = 0) -> None:
        for each in section.strings():
            if not each or (size and len(each) != size):
                raise RevocationError("an entry has a wrong length")
            self._count()
            entries.add(each)

    def _certificates(self, part: _Cursor) -> None:
        authority = self._found._authorities.setdefault(bytes(part.string()), _OfAuthority())
        part.string()  # reserved
        while part:
            kind, section = part.number(1), part.section()
            if kind == _SERIALS:
                while section:
                    self._count()
                    authority.serials.add(section.number(8))
            elif kind == _RANGE:
                self._count()
                first, last = section.number(8), section.number(8)
                if first > last or section:
                    raise RevocationError("a range of serial numbers is wrong")
                authority.ranges.append((first, last))
            elif kind == _BITMAP:
                self._count()
                authority.bitmaps.append((section.number(8), bytes(section.string())))
                if section:
                    raise RevocationError("a bitmap of serial numbers is wrong")
            elif kind == _KEY_IDS:
                for each in section.strings():
                    self._count()
                    authority.key_ids.add(each)
            elif kind == _CERTIFICATE_EXTENSION:
                self._extension(section)
            else:
                raise RevocationError(f"it revokes certificates by the unknown type {kind}")

    def _extension(self, section: _Cursor) -> None:
        section.string()
        is_critical = section.number(1)
        section.string()
        if is_critical:
            raise RevocationError("it has a critical extension, and none is known")
