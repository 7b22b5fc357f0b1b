"""
Tests for :mod:`twisted_exec.wire.telnet`.
"""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.wire.errors import LocalProtocolError, RemoteProtocolError
from twisted_exec.wire.telnet import Event, Option, OptionChanged, Parameters, TelnetClient, Text

IAC, DONT, DO, WONT, WILL, SB, BREAK, SE = 255, 254, 253, 252, 251, 250, 243, 240


def said(*numbers: int) -> bytes:
    return bytes(numbers)


def read(client: TelnetClient, *pieces: bytes) -> list[Event]:
    return [event for piece in pieces for event in client.receive(piece)]


def text(events: Iterable[Event]) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, Text))


def quiet(**options: Iterable[int]) -> TelnetClient:
    """Return a client that negotiates no options."""
    return TelnetClient(**{"offers": (), "wants": (), **options})  # type: ignore[arg-type]


class TextTests(SynchronousTestCase):
    """Text in both directions."""

    def test_printed(self) -> None:
        """A doubled 255 is one byte; without BINARY, CR NUL is CR."""
        events = read(quiet(), b"a\xff\xffb\r\0c\r\nd\r")
        self.assertEqual(text(events), b"a\xffb\rc\r\nd\r")

    def test_split(self) -> None:
        """Escapes may be split anywhere."""
        client = quiet()
        whole = b"a\r\0b\xff\xff\r\0\0" + said(IAC, 241) + b"\r\xff\xff\0"
        self.assertEqual(
            text(read(client, *(bytes((one,)) for one in whole))), b"a\rb\xff\r\0\r\xff\0"
        )

    def test_binary_printed(self) -> None:
        """With BINARY on the server's side, only 255 is special."""
        client = quiet(wants=(Option.BINARY,))
        told = read(client, b"\r", said(IAC, WILL, 0), b"\0x\r\0")
        self.assertEqual(text(told), b"\r\0x\r\0")

    def test_typed(self) -> None:
        """Without BINARY on our side, CR is followed by NUL; 255 is always doubled."""
        client = TelnetClient()
        self.assertEqual(client.encode(b"a\r\n\xff"), b"a\r\0\n\xff\xff")
        client.begin()
        read(client, said(IAC, DO, 0))
        self.assertEqual(client.encode(b"a\r\n\xff"), b"a\r\n\xff\xff")

    def test_commands(self) -> None:
        """Commands without a use for consoles are ignored."""
        commands = b"".join(said(IAC, one) for one in (236, 237, 238, 239, *range(241, 250)))
        client = quiet()
        self.assertEqual(text(read(client, b"a" + commands + b"b")), b"ab")
        self.assertEqual(client.to_send(), b"")

    def test_no_telnet(self) -> None:
        """An undefined command raises RemoteProtocolError."""
        with self.assertRaises(RemoteProtocolError) as caught:
            read(quiet(), b"\xff\x01")
        self.assertIn("1 is not a telnet command", str(caught.exception))

    def test_break(self) -> None:
        """``encode_break`` returns the telnet BREAK command."""
        self.assertEqual(quiet().encode_break(), said(IAC, BREAK))

    @given(st.binary(max_size=64), st.integers(1, 8), st.booleans())
    def test_round_trip(self, data: bytes, size: int, binary: bool) -> None:
        """Text survives encoding and decoding, on any split."""
        ours = TelnetClient(offers=(0,), wants=())
        theirs = TelnetClient(offers=(), wants=(0,))
        ours.begin()
        theirs.begin()
        if binary:
            list(theirs.receive(ours.to_send()))
            list(ours.receive(theirs.to_send()))
        wire = ours.encode(data)
        pieces = [wire[at : at + size] for at in range(0, len(wire), size)]
        self.assertEqual(text(read(theirs, *pieces)), data)


class OptionTests(SynchronousTestCase):
    """Option negotiation."""

    def test_asked(self) -> None:
        """The client requests BINARY and SGA both ways; it does not answer the server's consent."""
        client = TelnetClient()
        client.begin()
        asked = said(IAC, WILL, 0, IAC, WILL, 3, IAC, DO, 0, IAC, DO, 3)
        self.assertEqual(client.to_send(), asked)
        self.assertEqual(client.to_send(), b"")
        events = read(client, said(IAC, DO, 0, IAC, WILL, 3))
        self.assertEqual(events, [OptionChanged(0, True, True), OptionChanged(3, False, True)])
        self.assertTrue(client.is_on(0, ours=True))
        self.assertFalse(client.is_on(0, ours=False))
        self.assertEqual(client.to_send(), b"")

    def test_refused(self) -> None:
        """A refused option gives an event and no answer."""
        client = TelnetClient()
        client.begin()
        client.to_send()
        events = read(client, said(IAC, DONT, 0, IAC, WONT, 0, IAC, WONT, 0))
        self.assertEqual(events, [OptionChanged(0, True, False), OptionChanged(0, False, False)])
        self.assertEqual(client.to_send(), b"")

    def test_unasked(self) -> None:
        """Known options are accepted once; unknown ones are refused."""
        client = quiet()
        events = read(client, said(IAC, WILL, 1, IAC, WILL, 1, IAC, WILL, 24, IAC, DO, 24))
        self.assertEqual(events, [OptionChanged(1, False, True)])
        self.assertEqual(client.to_send(), said(IAC, DO, 1, IAC, DONT, 24, IAC, WONT, 24))

    def test_withdrawn(self) -> None:
        """Either end may disable an option; the client acknowledges."""
        client = quiet(offers=(0,))
        client.begin()
        client.to_send()
        read(client, said(IAC, DO, 0, IAC, WILL, 1))
        client.to_send()
        events = read(client, said(IAC, DONT, 0, IAC, WONT, 1))
        self.assertEqual(events, [OptionChanged(0, True, False), OptionChanged(1, False, False)])
        self.assertEqual(client.to_send(), said(IAC, WONT, 0, IAC, DONT, 1))

    def test_flood(self) -> None:
        """Each option gets at most 16 answers."""
        client = quiet()
        read(client, said(IAC, DO, 24) * 1000)
        self.assertEqual(client.to_send(), said(IAC, WONT, 24) * 16)
        read(client, said(IAC, DO, 25))
        self.assertEqual(client.to_send(), said(IAC, WONT, 25))

    def test_flood_of_sizes(self) -> None:
        """Repeated requests for the window size get a bounded number of answers."""
        client = quiet()
        client.resize(80, 24)
        read(client, said(IAC, DO, 31, IAC, DONT, 31) * 1000)
        self.assertLess(len(client.to_send()), 300)

    def test_window(self) -> None:
        """The latest window size is sent once NAWS is on; 255 is doubled."""
        client = quiet()
        read(client, said(IAC, DO, 31))
        self.assertEqual(client.to_send(), said(IAC, WILL, 31))
        client.resize(80, 24)
        self.assertEqual(client.to_send(), said(IAC, SB, 31, 0, 80, 0, 24, IAC, SE))
        later = quiet()
        later.resize(255, 40)
        self.assertEqual(later.to_send(), b"")
        read(later, said(IAC, DO, 31))
        size = said(IAC, SB, 31, 0, IAC, IAC, 0, 40, IAC, SE)
        self.assertEqual(later.to_send(), said(IAC, WILL, 31) + size)


class ParameterTests(SynchronousTestCase):
    """Parameters of options (subnegotiation)."""

    def client(self) -> TelnetClient:
        client = quiet(offers=(Option.COM_PORT,))
        client.begin()
        read(client, said(IAC, DO, 44))
        client.to_send()
        return client

    def test_said(self) -> None:
        """Parameters are framed by SB and SE, with 255 doubled."""
        told = self.client().encode_parameters(44, b"\1\0\xff")
        self.assertEqual(told, said(IAC, SB, 44, 1, 0, IAC, IAC, IAC, SE))

    def test_not_on(self) -> None:
        """Parameters of an option that is off raise LocalProtocolError."""
        with self.assertRaises(LocalProtocolError):
            quiet().encode_parameters(44, b"")

    def test_heard(self) -> None:
        """Received parameters may be split anywhere, between text."""
        wire = b"a" + said(IAC, SB, 44, 101, 0, IAC, IAC, 0, IAC, SE) + b"b"
        heard = [Text(b"a"), Parameters(44, b"\x65\0\xff\0"), Text(b"b")]
        self.assertEqual(read(self.client(), wire), heard)
        self.assertEqual(read(self.client(), *(bytes((one,)) for one in wire)), heard)

    def test_nobody_asked(self) -> None:
        """Parameters of an option that is off, or of none, are ignored."""
        wire = said(IAC, SB, 24, 1, IAC, SE, IAC, SB, IAC, SE)
        self.assertEqual(read(self.client(), wire), [])

    def test_of_their_side(self) -> None:
        """An option of the server's side may have parameters, too."""
        client = quiet(wants=(200,))
        client.begin()
        self.assertEqual(
            read(client, said(IAC, WILL, 200, IAC, SB, 200, 7, IAC, SE)),
            [OptionChanged(200, False, True), Parameters(200, b"\7")],
        )

    def test_endless(self) -> None:
        """More than 1024 bytes of parameters raise RemoteProtocolError."""
        client = self.client()
        read(client, said(IAC, SB), bytes(1024))
        with self.assertRaises(RemoteProtocolError) as caught:
            read(client, b"x")
        self.assertIn("more than 1024 bytes", str(caught.exception))

    def test_broken(self) -> None:
        """A command within parameters raises RemoteProtocolError."""
        with self.assertRaises(RemoteProtocolError):
            read(self.client(), said(IAC, SB, 44, IAC, WILL))

    def test_before_the_fault(self) -> None:
        """Text before a protocol error is delivered."""
        events = []
        with self.assertRaises(RemoteProtocolError):
            for event in self.client().receive(b"last words" + said(IAC, 5)):
                events.append(event)
        self.assertEqual(events, [Text(b"last words")])
