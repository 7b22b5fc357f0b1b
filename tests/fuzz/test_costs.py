"""Tests for :mod:`tests.fuzz.costs`: the same outputs in each run."""

from __future__ import annotations

import random

from twisted.trial.unittest import SynchronousTestCase

from .costs import READERS, Output, any_output, assert_no_faster_than_output

KNOWN = [
    Output(b"\x1b_G", b",i=", 64 << 10),
    Output(b"\x1b_G", b"i=1,", 1),
    Output(b"\x1b]4;", b";?", 512),
    Output(b"", b"\r", 64 << 10),
    Output(b"", b"x", 1),
    Output(b"", b"m\x08 \x08", 1),
    Output(b"\r\n[twisted-exec: ", b"x", 1),
    Output(b"x", b"\xcc\x81", 64 << 10),
]
"""Outputs that were dear once, or that are likely to be."""


class CostTests(SynchronousTestCase):
    def test_known(self) -> None:
        """What was dear once costs no more than its size."""
        for name in READERS:
            for output in KNOWN:
                assert_no_faster_than_output(name, output)

    def test_any(self) -> None:
        """Generated output of any kind, in pieces of any size, costs no more than its size."""
        source = random.Random(1)
        outputs = [any_output(source) for _ in range(25)]
        for name in READERS:
            for output in outputs:
                assert_no_faster_than_output(name, output)
