"""Tests for :mod:`twisted_exec.wire.asked`."""

from __future__ import annotations

from urllib.parse import parse_qs

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire.asked import Asked
from twisted_exec.wire.channel import Channel

ERROR, STDIN, STDOUT, STDERR = Channel.ERROR, Channel.STDIN, Channel.STDOUT, Channel.STDERR


class AskedTests(SynchronousTestCase):
    """Tests for :class:`Asked`."""

    def test_words(self) -> None:
        """An API server's words and a kubelet's mean the same."""
        everything = frozenset({ERROR, STDIN, STDOUT, STDERR})
        for query in (
            {b"stdin": [b"true"], b"stdout": [b"true"], b"stderr": [b"true"]},
            {b"input": [b"1"], b"output": [b"1"], b"error": [b"1"]},
        ):
            self.assertEqual(Asked.of(query), Asked(everything))
            terminal = {**query, b"tty": [b"1"]}
            self.assertEqual(Asked.of(terminal), Asked(everything - {STDERR}, tty=True))
        self.assertEqual(Asked.of({b"stdout": [b"true"]}).channels, frozenset({ERROR, STDOUT}))

    def test_passed(self) -> None:
        """What was asked for is told on in one form, that means the same."""
        for query, passed in (
            ({}, b""),
            ({b"tty": [b"true"], b"x": [b"y"]}, b""),
            ({b"input": [b"1"], b"output": [b"1"]}, b"stdin=true&stdout=true"),
            ({b"stdout": [b"true"], b"stderr": [b"true"]}, b"stdout=true&stderr=true"),
            ({b"stdout": [b"t"], b"stderr": [b"1"], b"tty": [b"1"]}, b"stdout=true&tty=true"),
            ({b"readOnly": [b"true"]}, b"readOnly=true"),
            (
                {b"force": [b"1"], b"readOnly": [b"0"], b"stdin": [b"true"]},
                b"stdin=true&force=true",
            ),
        ):
            asked = Asked.of(query)
            self.assertEqual(asked.query(), passed)
            again = Asked.of(parse_qs(passed))
            self.assertEqual(again.query(), passed)
            self.assertEqual(again.channels, asked.channels)

    def test_nothing(self) -> None:
        """A request that asks for nothing does not say."""
        for query in ({}, {b"tty": [b"true"]}, {b"stdin": [b"false"]}, {b"stdin": [b"0"]}):
            self.assertIsNone(Asked.of(query).channels)

    def test_input(self) -> None:
        """Input is taken unless the request says that none will come, or that it looks on."""
        for query, takes in (
            (b"", True),
            (b"stdin=true&stdout=true", True),
            (b"stdout=true", False),
            (b"readOnly=true", False),
            (b"stdin=true&readOnly=true", False),
        ):
            self.assertEqual(Asked.of(parse_qs(query)).takes_input, takes, query)
