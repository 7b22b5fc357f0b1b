"""Tests for :mod:`twisted_exec.wire.stream_options`."""

from __future__ import annotations

from urllib.parse import parse_qs

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire.channel import Channel
from twisted_exec.wire.stream_options import StreamOptions

ERROR, STDIN, STDOUT, STDERR = Channel.ERROR, Channel.STDIN, Channel.STDOUT, Channel.STDERR


class StreamOptionsTests(SynchronousTestCase):
    """Tests for :class:`StreamOptions`."""

    def test_words(self) -> None:
        """The spellings of an API server and of a kubelet mean the same."""
        everything = frozenset({ERROR, STDIN, STDOUT, STDERR})
        for query in (
            {b"stdin": [b"true"], b"stdout": [b"true"], b"stderr": [b"true"]},
            {b"input": [b"1"], b"output": [b"1"], b"error": [b"1"]},
        ):
            self.assertEqual(StreamOptions.of(query), StreamOptions(everything))
            terminal = {**query, b"tty": [b"1"]}
            self.assertEqual(
                StreamOptions.of(terminal), StreamOptions(everything - {STDERR}, tty=True)
            )
        self.assertEqual(
            StreamOptions.of({b"stdout": [b"true"]}).channels, frozenset({ERROR, STDOUT})
        )

    def test_forwarded(self) -> None:
        """The query for the next hop is canonical and means the same."""
        for query, forwarded in (
            ({}, b""),
            ({b"tty": [b"true"], b"x": [b"y"]}, b""),
            ({b"input": [b"1"], b"output": [b"1"]}, b"stdin=true&stdout=true"),
            ({b"stdout": [b"true"], b"stderr": [b"true"]}, b"stdout=true&stderr=true"),
            ({b"stdout": [b"t"], b"stderr": [b"1"], b"tty": [b"1"]}, b"stdout=true&tty=true"),
            ({b"readOnly": [b"true"]}, b"readOnly=true"),
            ({b"observe": [b"1"], b"force": [b"1"]}, b"observe=true&force=true"),
            (
                {b"stdout": [b"true"], b"inputEnded": [b"true"]},
                b"stdout=true&inputEnded=true",
            ),
            (
                {b"force": [b"1"], b"readOnly": [b"0"], b"stdin": [b"true"]},
                b"stdin=true&force=true",
            ),
        ):
            options = StreamOptions.of(query)
            self.assertEqual(options.query(), forwarded)
            again = StreamOptions.of(parse_qs(forwarded))
            self.assertEqual(again.query(), forwarded)
            self.assertEqual(again.channels, options.channels)

    def test_unknown(self) -> None:
        """An unknown key is ignored, and not passed on."""
        options = StreamOptions.of({b"stdin": [b"true"], b"run": [b"0a1b2c3d"]})
        self.assertEqual(options.query(), b"stdin=true")

    def test_nothing(self) -> None:
        """A request without streams leaves the channels open."""
        for query in ({}, {b"tty": [b"true"]}, {b"stdin": [b"false"]}, {b"stdin": [b"0"]}):
            self.assertIsNone(StreamOptions.of(query).channels)

    def test_input(self) -> None:
        """Input is taken unless the request leaves out stdin or is read-only."""
        for query, takes in (
            (b"", True),
            (b"stdin=true&stdout=true", True),
            (b"stdout=true", False),
            (b"readOnly=true", False),
            (b"stdin=true&readOnly=true", False),
        ):
            self.assertEqual(StreamOptions.of(parse_qs(query)).takes_input, takes, query)
