"""
Serial lines behind a network: the parameters of telnet's COM-PORT-OPTION, without I/O (RFC 2217).

The client says how the line shall be set, and the access server answers each with what it is set to.
Besides, the server tells the state of the modem lines as far as it was asked to, and
asks for silence when its buffers are full.

Numbers are those of RFC 2217 §2; a server's are the client's plus 100.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from .errors import RemoteProtocolError

_MAX_SIGNATURE = 200
_FROM_SERVER = 100

PARITIES: Mapping[str, int] = {"none": 1, "odd": 2, "even": 3, "mark": 4, "space": 5}
STOP_BITS: Mapping[float, int] = {1: 1, 2: 2, 1.5: 3}
FLOWS: Mapping[str, int] = {"none": 1, "xonxoff": 2, "rtscts": 3}

CARRIER = 0x80
"""The bit of the modem state that says that a carrier is there (DCD); the lowest four are changes."""
_CARRIER_CHANGED = 0x08


class Ask(IntEnum):
    """What a client says."""

    SIGNATURE = 0
    BAUD_RATE = 1
    DATA_SIZE = 2
    PARITY = 3
    STOP_SIZE = 4
    CONTROL = 5
    LINE_STATE = 6
    MODEM_STATE = 7
    SUSPEND = 8
    RESUME = 9
    LINE_STATE_MASK = 10
    MODEM_STATE_MASK = 11
    PURGE = 12


class Control(IntEnum):
    """Values of ``CONTROL``; 1 to 3 are ways of flow control."""

    BREAK_ON = 5
    BREAK_OFF = 6
    DTR_ON = 8
    DTR_OFF = 9
    RTS_ON = 11
    RTS_OFF = 12


class Purge(IntEnum):
    """Which buffers of the server ``PURGE`` empties."""

    FROM_LINE = 1
    TO_LINE = 2
    BOTH = 3


@dataclass(frozen=True)
class LineSettings:
    """
    How a serial line is set.

    :param baud: bits in a second.
    :param data_bits: 5 to 8.
    :param parity: a key of :data:`PARITIES`.
    :param stop_bits: a key of :data:`STOP_BITS`.
    :param flow: a key of :data:`FLOWS`.
    :param dtr: whether the modem line is on while the line is open; ``None`` leaves it.
    :param rts: likewise.
    """

    baud: int = 9600
    data_bits: int = 8
    parity: str = "none"
    stop_bits: float = 1
    flow: str = "none"
    dtr: bool | None = None
    rts: bool | None = None


@dataclass(frozen=True)
class Signature:
    """What the server calls itself; printable characters only."""

    text: str


@dataclass(frozen=True)
class Applied:
    """
    What the server has set.

    :param told: empty when that is what was asked for, else a sentence for an operator.
    """

    ask: Ask
    told: str = ""


@dataclass(frozen=True)
class Suspended:
    """The server can take nothing (true), or can again."""

    on: bool


@dataclass(frozen=True)
class Carrier:
    """The carrier (DCD) came or went."""

    on: bool


Event = Signature | Applied | Suspended | Carrier


def encode_control(value: Control) -> bytes:
    """Set one control line, or begin or end a BREAK."""
    return bytes((Ask.CONTROL, value))


def encode_purge(which: Purge) -> bytes:
    """Empty buffers of the server."""
    return bytes((Ask.PURGE, which))


class ComPort:
    """
    One line of an access server.  What it gives and takes are a telnet option's parameters.

    :param settings: what is asked for.
    """

    def __init__(self, settings: LineSettings) -> None:
        self.settings = settings
        controls = [FLOWS[settings.flow]]
        if settings.dtr is not None:
            controls.append(Control.DTR_ON if settings.dtr else Control.DTR_OFF)
        if settings.rts is not None:
            controls.append(Control.RTS_ON if settings.rts else Control.RTS_OFF)
        self._controls = controls
        self._asked: dict[Ask, int] = {
            Ask.BAUD_RATE: settings.baud,
            Ask.DATA_SIZE: settings.data_bits,
            Ask.PARITY: PARITIES[settings.parity],
            Ask.STOP_SIZE: STOP_BITS[settings.stop_bits],
        }

    def begin(self) -> Iterator[bytes]:
        """What to say when the option is on: the settings, and what is worth telling us."""
        for ask, value in self._asked.items():
            yield bytes((ask,)) + value.to_bytes(4 if ask is Ask.BAUD_RATE else 1, "big")
        for control in self._controls:
            yield bytes((Ask.CONTROL, control))
        yield bytes((Ask.LINE_STATE_MASK, 0))
        yield bytes((Ask.MODEM_STATE_MASK, CARRIER | _CARRIER_CHANGED))

    def receive(self, data: bytes) -> Event | None:
        """
        Read what the server says of the line.

        :return: ``None`` when it means nothing to a console.
        :raises RemoteProtocolError: it is not as the RFC has it.
        """
        if not data:
            raise RemoteProtocolError("the access server sends an empty COM-PORT command")
        code, value = data[0] - _FROM_SERVER, data[1:]
        if code == Ask.SIGNATURE:
            text = value[:_MAX_SIGNATURE].decode("ascii", "replace")
            return Signature("".join(char for char in text if char.isprintable()))
        if code in (Ask.SUSPEND, Ask.RESUME):
            return Suspended(code == Ask.SUSPEND)
        if not Ask.BAUD_RATE <= code <= Ask.PURGE:
            return None  # of a later RFC
        return self._value(Ask(code), value)

    def _value(self, ask: Ask, value: bytes) -> Event | None:
        size = 4 if ask is Ask.BAUD_RATE else 1
        if len(value) != size:
            raise RemoteProtocolError(
                f"the access server tells {ask.name} in {len(value)} bytes instead of {size}"
            )
        number = int.from_bytes(value, "big")
        if ask is Ask.MODEM_STATE:
            return Carrier(bool(number & CARRIER)) if number & _CARRIER_CHANGED else None
        if ask in self._asked:
            return Applied(ask, self._differs(ask, number))
        return None

    def _differs(self, ask: Ask, number: int) -> str:
        asked = self._asked[ask]
        if number == asked:
            return ""
        name = ask.name.replace("_", " ").lower()
        return f"the console server set the {name} to {number}, not to {asked} (RFC 2217 §2)"
