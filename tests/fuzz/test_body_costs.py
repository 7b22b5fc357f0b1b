"""Tests for :mod:`tests.fuzz.body_costs`: the same bodies in each run."""

from __future__ import annotations

import random

from twisted.trial.unittest import SynchronousTestCase

from .body_costs import CONTROL, READERS, Body, any_body, assert_no_faster_than_body

KNOWN = [
    CONTROL,
    Body(b"", b"%TAG !@! a\n", b"--- a"),
    Body(b"a: !!int '", b"1:", b"1'\n"),
    Body(b"a: ", b"1:", b"1\n"),
    Body(b'{"a":1,"a":1,"k":{', b'"@":1,', b'"b":1}}'),
    Body(b"a: &a {", b"@: 1,", b"}\nb: {<<: *a}\n"),
    Body(b"[", b"*x,", b"]"),
    Body(b'{"a":1,"a":1,"', b"{},", b"1]}", b"k", b'":['),
]
"""Bodies that were dear once, or that are likely to be."""


class CostTests(SynchronousTestCase):
    def test_known(self) -> None:
        """What was dear once costs no more than its size."""
        for name in READERS:
            for body in KNOWN:
                assert_no_faster_than_body(name, body)

    def test_any(self) -> None:
        """Generated bodies cost no more than their size, whoever decodes them."""
        source = random.Random(1)
        known = [any_body(source) for _ in range(25)]
        for name in READERS:
            for body in known:
                assert_no_faster_than_body(name, body)
