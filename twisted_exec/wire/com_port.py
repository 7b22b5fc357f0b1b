"""Parameters of serial lines behind a network, sans I/O: COM-PORT-OPTION of telnet (RFC 2217)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from twisted_exec.wire.errors import RemoteProtocolError

_MAX_SIGNATURE = 200
_FROM_SERVER = 100
PARITIES: Mapping[str, int] = {"none": 1, "odd": 2, "even": 3, "mark": 4, "space": 5}
STOP_BITS: Mapping[float, int] = {1: 1, 2: 2, 1.5: 3}
FLOWS: Mapping[str, int] = {"none": 1, "xonxoff": 2, "rtscts": 3}
CARRIER = 0x80
"""The modem state bit for carrier detect (DCD)."""
_CARRIER_CHANGED = 0x08


class Ask(IntEnum):
    """Commands of a client."""

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
    """Values of ``CONTROL``.  1 to 3 select flow control."""

    BREAK_ON = 5
    BREAK_OFF = 6
    DTR_ON = 8
    DTR_OFF = 9
    RTS_ON = 11
    RTS_OFF = 12


class Purge(IntEnum):
    """The server buffers that ``PURGE`` empties."""

    FROM_LINE = 1
    TO_LINE = 2
    BOTH = 3


@dataclass(frozen=True)
class LineSettings:
    """
    Settings of a serial line.

    :param baud: bits per second.
    :param parity: a key of :data:`PARITIES`.
    :param stop_bits: a key of :data:`STOP_BITS`.
    :param flow: a key of :data:`FLOWS`.
    :param dtr: whether DTR is on while the line is open; ``None`` leaves it as it is.
    :param rts: likewise for RTS.
    :param data_bits: 5 to 8.
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
    """The server's name for itself."""

    text: str


@dataclass(frozen=True)
class ServerParameter:
    """
    A parameter that the server has set.

    :param problem: a sentence for an operator; empty if the value is the requested one.
    """

    ask: Ask
    problem: str = ""


@dataclass(frozen=True)
class Suspended:
    """The server stops accepting data (``on``) or resumes."""

    on: bool


@dataclass(frozen=True)
class CarrierDetect:
    """The carrier (DCD) appeared (``on``) or disappeared."""

    on: bool


PortEvent = Signature | ServerParameter | Suspended | CarrierDetect


def encode_control(value: Control) -> bytes:
    """Encode a change of one control line, or the start or end of a BREAK."""
    return bytes((Ask.CONTROL, value))


def encode_purge(which: Purge) -> bytes:
    """Encode the request to empty buffers of the server."""
    return bytes((Ask.PURGE, which))


class ComPort:
    """
    One line of an access server.

    :param settings: the settings to request.
    """

    def __init__(self, settings: LineSettings) -> None:
        self.settings = settings
        # SET-CONTROL 1 to 3 choose the flow control (RFC 2217 §3).
        controls = [FLOWS[settings.flow]]
        if settings.dtr is not None:
            controls.append(Control.DTR_ON if settings.dtr else Control.DTR_OFF)
        if settings.rts is not None:
            controls.append(Control.RTS_ON if settings.rts else Control.RTS_OFF)
        self._controls = controls
        self._requested: dict[Ask, int] = {
            Ask.BAUD_RATE: settings.baud,
            Ask.DATA_SIZE: settings.data_bits,
            Ask.PARITY: PARITIES[settings.parity],
            Ask.STOP_SIZE: STOP_BITS[settings.stop_bits],
        }

    def begin(self) -> Iterator[bytes]:
        """Yield what to send once the option is on: the settings, and subscriptions to states."""
        for ask, value in self._requested.items():
            yield bytes((ask,)) + value.to_bytes(4 if ask is Ask.BAUD_RATE else 1, "big")
        for control in self._controls:
            yield bytes((Ask.CONTROL, control))
        # A server begins with the masks 0 and 255 (RFC 2217 §3), so it would report each change of
        # the modem lines.
        yield bytes((Ask.LINE_STATE_MASK, 0))
        yield bytes((Ask.MODEM_STATE_MASK, CARRIER | _CARRIER_CHANGED))

    def receive(self, data: bytes) -> PortEvent | None:
        """
        Decode one command of the server.

        :return: ``None`` if it does not matter to a console.
        :raises RemoteProtocolError: the command violates RFC 2217.
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
            return None  # from a later RFC
        return self._value(Ask(code), value)

    def _value(self, ask: Ask, value: bytes) -> PortEvent | None:
        size = 4 if ask is Ask.BAUD_RATE else 1
        if len(value) != size:
            raise RemoteProtocolError(
                f"the access server tells {ask.name} in {len(value)} bytes instead of {size}"
            )
        number = int.from_bytes(value, "big")
        if ask is Ask.MODEM_STATE:
            return CarrierDetect(bool(number & CARRIER)) if number & _CARRIER_CHANGED else None
        if ask in self._requested:
            return ServerParameter(ask, self._differs(ask, number))
        return None

    def _differs(self, ask: Ask, number: int) -> str:
        requested = self._requested[ask]
        if number == requested:
            return ""
        name = ask.name.replace("_", " ").lower()
        return f"the console server set the {name} to {number}, not to {requested} (RFC 2217 §2)"
