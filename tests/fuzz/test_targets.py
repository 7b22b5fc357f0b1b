"""Tests for :mod:`tests.fuzz.targets`: seeds and any bytes, without atheris."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from . import targets
from .seeds import all_seeds
from .targets import TARGETS


class TargetTests(SynchronousTestCase):
    """What must hold does."""

    def test_seeds(self) -> None:
        """For what real clients say, whole, cut short, and on any split."""
        reached = set()
        for data in all_seeds():
            reached.add(data[0])
            for split in (0, 1, 2, 3, 64, 255):
                targets.run(data[:1] + bytes((split,)) + data[2:])
            for end in range(0, len(data), 1 + len(data) // 40):
                targets.run(data[:end])
        self.assertEqual(len(reached), len(TARGETS))

    def test_changed(self) -> None:
        """For seeds with one byte changed."""
        for data in all_seeds():
            for at in range(2, len(data), 1 + len(data) // 40):
                for value in (0, 0x7F, 0xFF, data[at] ^ 1):
                    targets.run(data[:at] + bytes((value,)) + data[at + 1 :])

    def test_many_fields(self) -> None:
        """A body with more fields than allowed is refused."""
        targets.run(targets.seed("protobufs", b"\x08\x00" * 2000))

    @settings(max_examples=300)
    @given(st.sampled_from(sorted(TARGETS)), st.integers(0, 255), st.binary(max_size=400))
    def test_anything(self, name: str, split: int, data: bytes) -> None:
        """For any bytes at all."""
        targets.run(targets.seed(name, data, split))

    @given(st.sampled_from(("sizes", "texts", "queries", "heads", "endings")), st.text())
    def test_text(self, name: str, text: str) -> None:
        """For any text."""
        targets.run(targets.seed(name, text.encode("utf-8", "replace")))
