"""
Tests for :mod:`twisted_exec.wire.com_port`.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire.com_port import (
    Ask,
    CarrierDetect,
    ComPort,
    Control,
    LineSettings,
    Purge,
    ServerParameter,
    Signature,
    Suspended,
    encode_control,
    encode_purge,
)
from twisted_exec.wire.errors import RemoteProtocolError


class AskTests(SynchronousTestCase):
    """Commands to an access server."""

    def test_settings(self) -> None:
        """
        Settings have the codes of RFC 2217 section 2; modem lines are sent only if configured.
        """
        self.assertEqual(
            list(ComPort(LineSettings(115200)).begin()),
            [
                b"\1\0\1\xc2\0",
                b"\2\x08",
                b"\3\1",
                b"\4\1",
                b"\5\1",
                b"\x0a\0",
                b"\x0b\x88",
            ],
        )

    def test_other_settings(self) -> None:
        """Parity, stop bits, flow control and modem lines have their RFC 2217 codes."""
        told = list(ComPort(LineSettings(300, 7, "mark", 1.5, "rtscts", True, False)).begin())
        self.assertEqual(
            told[:7], [b"\1\0\0\1\x2c", b"\2\7", b"\3\4", b"\4\3", b"\5\3", b"\5\x08", b"\5\x0c"]
        )
        other = list(ComPort(LineSettings(dtr=False, rts=True)).begin())
        self.assertEqual(other[5:7], [b"\5\x09", b"\5\x0b"])

    def test_break_and_purge(self) -> None:
        """BREAK on, BREAK off and purge have their RFC 2217 codes."""
        self.assertEqual(encode_control(Control.BREAK_ON), b"\5\5")
        self.assertEqual(encode_control(Control.BREAK_OFF), b"\5\6")
        self.assertEqual(encode_purge(Purge.BOTH), b"\x0c\3")


class HearTests(SynchronousTestCase):
    """Commands from an access server."""

    def setUp(self) -> None:
        self.port = ComPort(LineSettings(9600))

    def test_applied(self) -> None:
        """A setting applied as requested has no problem; a different one has."""
        self.assertEqual(self.port.receive(b"\x65\0\0\x25\x80"), ServerParameter(Ask.BAUD_RATE))
        told = self.port.receive(b"\x65\0\0\x12\xc0")
        assert isinstance(told, ServerParameter)
        self.assertIn("set the baud rate to 4800, not to 9600", told.problem)
        self.assertEqual(self.port.receive(b"\x68\1"), ServerParameter(Ask.STOP_SIZE))

    def test_signature(self) -> None:
        """A signature is bounded and has no control characters."""
        self.assertEqual(self.port.receive(b"\x64ser2net\x1b[2J"), Signature("ser2net[2J"))
        long = self.port.receive(b"\x64" + b"x" * 1000)
        assert isinstance(long, Signature)
        self.assertEqual(len(long.text), 200)

    def test_flow(self) -> None:
        """The server may suspend and resume our output."""
        self.assertEqual(self.port.receive(b"\x6c"), Suspended(True))
        self.assertEqual(self.port.receive(b"\x6d"), Suspended(False))

    def test_carrier(self) -> None:
        """A change of carrier gives an event; other modem lines do not."""
        self.assertEqual(self.port.receive(b"\x6b\x88"), CarrierDetect(True))
        self.assertEqual(self.port.receive(b"\x6b\x08"), CarrierDetect(False))
        self.assertIsNone(self.port.receive(b"\x6b\x80"))

    def test_passed_over(self) -> None:
        """Unused and unknown commands are ignored."""
        for said in (b"\x69\5", b"\x6a\1", b"\x70\3", b"\x7f", b"\1"):
            self.assertIsNone(self.port.receive(said))

    def test_broken(self) -> None:
        """Commands of the wrong length raise RemoteProtocolError."""
        for said in (b"\x65\1", b"\x66\0\0", b"\x6b", b""):
            with self.assertRaises(RemoteProtocolError):
                self.port.receive(said)
