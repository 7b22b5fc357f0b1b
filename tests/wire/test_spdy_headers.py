"""Tests for :mod:`twisted_exec.wire.spdy_headers` and the dictionary."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
import zlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire.errors import LocalProtocolError, RemoteProtocolError
from twisted_exec.wire.spdy_headers import (
    DICTIONARY,
    MAX_BLOCK_BYTES,
    MAX_HEADERS,
    SHA256,
    HeaderReader,
    HeaderWriter,
)

CAPTURES = Path(__file__).parents[1] / "captures"
VECTORS = json.loads((CAPTURES / "spdy-vectors.json").read_text())


class DictionaryTests(SynchronousTestCase):
    """Tests for :data:`DICTIONARY`."""

    def test_bytes(self) -> None:
        """The dictionary is that of the specification and of real peers."""
        self.assertEqual(hashlib.sha256(DICTIONARY).hexdigest(), SHA256)
        known = VECTORS["dictionary"]
        self.assertEqual((len(DICTIONARY), SHA256), (known["len"], known["sha256"]))
        self.assertEqual(f"{zlib.adler32(DICTIONARY):08x}", known["adler32"])


class Other:
    """Compresses arbitrary blocks with zlib's default strategy."""

    def __init__(self) -> None:
        strategy = zlib.Z_DEFAULT_STRATEGY
        self.zlib = zlib.compressobj(9, zlib.DEFLATED, 15, 8, strategy, DICTIONARY)

    def block(self, plain: bytes, flush: int = zlib.Z_SYNC_FLUSH) -> bytes:
        return self.zlib.compress(plain) + self.zlib.flush(flush)


def text(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def plain(*pairs: tuple[bytes, bytes]) -> bytes:
    return len(pairs).to_bytes(4, "big") + b"".join(text(one) + text(two) for one, two in pairs)


class VectorTests(SynchronousTestCase):
    """Captured header blocks of real kubectls."""

    def test_vectors(self) -> None:
        """Captured blocks decode as in the vectors, with one state per direction."""
        blocks = 0
        for session in VECTORS["sessions"]:
            readers = {"C": HeaderReader(), "S": HeaderReader()}
            for frame in session["frames"]:
                if "headers" in frame:
                    found = readers[frame["dir"]].read(bytes.fromhex(frame["raw"]))
                    told = {name.decode(): value.decode() for name, value in found}
                    self.assertEqual(told, frame["headers"])
                    blocks += 1
        self.assertEqual(blocks, 40)


class WriterTests(SynchronousTestCase):
    """Tests for :class:`HeaderWriter`."""

    def test_read_by_zlib(self) -> None:
        """zlib decodes each written block, which ends with a sync flush."""
        writer, reader = HeaderWriter(), zlib.decompressobj(zdict=DICTIONARY)
        for name in (b"error", b"stdin", b"stdout"):
            block = writer.write([(b"streamType", name)])
            self.assertEqual(reader.decompress(block), plain((b"streamtype", name)))
            self.assertTrue(block.endswith(b"\0\0\xff\xff"))

    def test_largest(self) -> None:
        """A block of the maximum size can be written and read."""
        value = b"x" * (MAX_BLOCK_BYTES - len(plain((b"a", b""))))
        block = HeaderWriter().write([(b"a", value)])
        reader = zlib.decompressobj(zdict=DICTIONARY)
        self.assertEqual(reader.decompress(block), plain((b"a", value)))
        self.assertEqual(HeaderReader().read(block), ((b"a", value),))

    def test_several_values(self) -> None:
        """Values of the same name are joined by NUL."""
        block = HeaderWriter().write([(b"a", b"1"), (b"b", b"2"), (b"A", b"3")])
        reader = zlib.decompressobj(zdict=DICTIONARY)
        self.assertEqual(reader.decompress(block), plain((b"a", b"1\x003"), (b"b", b"2")))

    def test_too_large(self) -> None:
        """Writing a block that is too large raises LocalProtocolError."""
        with self.assertRaises(LocalProtocolError):
            HeaderWriter().write([(b"a", b"x" * MAX_BLOCK_BYTES)])

    @given(
        st.lists(
            st.dictionaries(
                st.from_regex(rb"[a-z-]{1,20}", fullmatch=True), st.binary(max_size=60), max_size=10
            ),
            max_size=10,
        )
    )
    def test_round_trip(self, blocks: list[dict[bytes, bytes]]) -> None:
        """Written headers are read back."""
        writer, reader = HeaderWriter(), HeaderReader()
        for headers in blocks:
            joined: dict[bytes, bytes] = {}
            for name, value in reader.read(writer.write(headers.items())):
                joined[name] = joined[name] + b"\0" + value if name in joined else value
            self.assertEqual(joined, headers)


class ReaderTests(SynchronousTestCase):
    """Tests for :class:`HeaderReader`."""

    def read(self, content: bytes) -> object:
        return HeaderReader().read(Other().block(content))

    def refused(self, content: bytes) -> str:
        with self.assertRaises(RemoteProtocolError) as caught:
            self.read(content)
        return str(caught.exception)

    def test_values(self) -> None:
        """Joined values are returned one by one."""
        self.assertEqual(
            self.read(plain((b"a", b"1\0\x003"), (b"b", b""))),
            ((b"a", b"1"), (b"a", b""), (b"a", b"3"), (b"b", b"")),
        )

    def test_names(self) -> None:
        """Names must be non-empty, in lower case and unique."""
        for pairs in ([(b"A", b"")], [(b"", b"")], [(b"a", b"1"), (b"b", b""), (b"a", b"2")]):
            self.assertIn("lower case", self.refused(plain(*pairs)))

    def test_lengths(self) -> None:
        """Lengths in a block must match its content."""
        whole = plain((b"name", b"value"))
        for end in range(len(whole)):
            self.assertEqual(
                self.refused(whole[:end]), "a header block is shorter than its headers"
            )
        self.assertEqual(self.refused(whole + b"x"), "a header block is longer than its headers")
        for lie in (b"\xff\xff\xff\xff", b"\0\1\0\1"):
            self.assertIn("shorter", self.refused(b"\0\0\0\1" + lie + b"name"))

    def test_many(self) -> None:
        """Any number of blocks can be read, each compressed with the state of those before."""
        other, reader = Other(), HeaderReader()
        for number in range(200):
            headers = ((b"streamtype", b"data"), (b"requestid", b"%d" % number))
            self.assertEqual(reader.read(other.block(plain(*headers))), headers)

    def test_memory(self) -> None:
        """The reader keeps less than 2 KiB after a few blocks."""
        other, reader = Other(), HeaderReader()
        blocks = [other.block(plain((b"streamtype", b"%d" % number))) for number in range(5)]
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        for block in blocks:
            reader.read(block)
        kept, _ = tracemalloc.get_traced_memory()
        self.assertLess(kept, 2 << 10)

    def test_count(self) -> None:
        """More than 64 headers or values are refused, also as a false count."""
        pairs = [(b"n%d" % number, b"") for number in range(MAX_HEADERS + 1)]
        self.read(plain(*pairs[:-1]))
        self.assertIn("more than 64 headers", self.refused(plain(*pairs)))
        self.assertIn("more than 64 headers", self.refused(b"\xff\xff\xff\xff"))
        self.read(plain((b"a", b"\0" * (MAX_HEADERS - 1))))
        for values in (MAX_HEADERS, 60000):
            self.assertIn("64 values", self.refused(plain((b"a", b"\0" * values))))

    def test_size(self) -> None:
        """A block of 64 KiB is read; a larger one is refused."""
        fits = MAX_BLOCK_BYTES - len(plain((b"a", b"")))
        self.read(plain((b"a", b"x" * fits)))
        self.assertIn("larger than 65536", self.refused(plain((b"a", b"x" * (fits + 1)))))

    def test_bomb(self) -> None:
        """Reading a decompression bomb stops at the limit and uses little memory."""
        bomb = Other().block(b"\0" * (256 << 20))
        reader = HeaderReader()
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        with self.assertRaises(RemoteProtocolError):
            reader.read(bomb)
        _, peak = tracemalloc.get_traced_memory()
        self.assertLess(peak, 2 * len(bomb) + (512 << 10))

    def test_many_bombs(self) -> None:
        """Repeated blocks with a high compression ratio are refused."""
        other, reader = Other(), HeaderReader()
        block = plain((b"a", b"z" * 65_000))
        reader.read(other.block(block))
        with self.assertRaises(RemoteProtocolError) as caught:
            reader.read(other.block(block))
        self.assertIn("32 times as large", str(caught.exception))

    def test_ratio(self) -> None:
        """Ordinary blocks may inflate to any total size."""
        other, reader = Other(), HeaderReader()
        for number in range(5_000):
            reader.read(
                other.block(plain((b"streamtype", b"data"), (b"requestid", b"%d" % number)))
            )

    def test_not_compressed(self) -> None:
        """Invalid zlib data, or another dictionary, is refused."""
        for block in (b"\xff" * 20, b"\x78\x9c\x00", b"\x78\xf9\0\0\0\0abc"):
            with self.assertRaises(RemoteProtocolError) as caught:
                HeaderReader().read(block)
            self.assertIn("header block", str(caught.exception))

    def test_ended(self) -> None:
        """Ending the compression stream is refused, because it lasts for the connection."""
        with self.assertRaises(RemoteProtocolError) as caught:
            HeaderReader().read(Other().block(plain(), zlib.Z_FINISH))
        self.assertEqual(str(caught.exception), "the header compression was ended")

    def test_flushes(self) -> None:
        """Blocks may end with any zlib flush that contains the headers."""
        for flush in (zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH, zlib.Z_PARTIAL_FLUSH):
            other, reader = Other(), HeaderReader()
            for _ in range(3):
                block = other.block(plain((b"a", b"b")), flush)
                self.assertEqual(reader.read(block), ((b"a", b"b"),))

    @given(st.lists(st.binary(max_size=200), max_size=4))
    def test_anything(self, blocks: list[bytes]) -> None:
        """Any block decodes or raises RemoteProtocolError, compressed or not."""
        for compressed in (True, False):
            reader, other = HeaderReader(), Other()
            for block in blocks:
                try:
                    reader.read(other.block(block) if compressed else block)
                except RemoteProtocolError:
                    pass
