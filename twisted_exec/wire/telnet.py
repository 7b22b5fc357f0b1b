"""
Client side of telnet for console servers and serial lines, sans I/O (RFC 854, 855).

The options are BINARY (RFC 856), SGA (RFC 858), ECHO (RFC 857), NAWS (RFC 1073), and those that the
caller offers, such as COM-PORT-OPTION (:mod:`twisted_exec.wire.com_port`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from twisted_exec.wire.errors import LocalProtocolError, RemoteProtocolError

_MAX_PARAMETER_BYTES = 1024
_MOST_ANSWERS = 16
_CR, _NUL = b"\r", b"\0"


class TelnetCommand(IntEnum):
    """Commands after IAC."""

    EOF = 236  # RFC 1184
    SE = 240
    BREAK = 243
    SB = 250
    WILL = 251
    WONT = 252
    DO = 253
    DONT = 254
    IAC = 255


class Option(IntEnum):
    """Option numbers."""

    BINARY = 0
    ECHO = 1
    SGA = 3
    NAWS = 31
    COM_PORT = 44


_IAC = bytes((TelnetCommand.IAC,))


@dataclass(frozen=True)
class Text:
    """Output of the machine, at least 1 byte."""

    data: bytes


@dataclass(frozen=True)
class OptionChanged:
    """
    An option was switched on or off, or the peer refused our request for it.

    :param ours: an option of our side, else of theirs.
    """

    option: int
    ours: bool
    on: bool


@dataclass(frozen=True)
class Parameters:
    """Parameters of an option that is on, without its number."""

    option: int
    data: bytes


Event = Text | OptionChanged | Parameters


@dataclass
class _Side:
    ours: bool
    supported: frozenset[int]
    on: set[int] = field(default_factory=set)
    requested: set[int] = field(default_factory=set)
    answers: dict[int, int] = field(default_factory=dict)

    def yes(self) -> TelnetCommand:
        return TelnetCommand.WILL if self.ours else TelnetCommand.DO

    def no(self) -> TelnetCommand:
        return TelnetCommand.WONT if self.ours else TelnetCommand.DONT


class TelnetClient:
    """
    One connection to a telnet server.

    :param offers: options of our side that we request; options in ``agrees`` are accepted when the
        peer asks.
    :param wants: options of their side that we request; ``allows`` likewise.
    :ivar window: the last known size in columns and rows.
    """

    OFFERS = (Option.BINARY, Option.SGA)

    def __init__(
        self,
        *,
        offers: Collection[int] = OFFERS,
        agrees: Collection[int] = (Option.NAWS,),
        wants: Collection[int] = (Option.BINARY, Option.SGA),
        allows: Collection[int] = (Option.ECHO,),
    ) -> None:
        self.window: tuple[int, int] | None = None
        self._ours = _Side(True, frozenset((*offers, *agrees)))
        self._theirs = _Side(False, frozenset((*wants, *allows)))
        self._first = [(self._ours, option) for option in offers]
        self._first += [(self._theirs, option) for option in wants]
        self._outgoing = bytearray()
        self._parameters = bytearray()
        self._verb = 0
        self._after_cr = False
        self._read: Callable[[bytes, int], Iterator[int | Event]] = self._text

    def begin(self) -> None:
        """Request the options; once, before anything else."""
        for side, option in self._first:
            side.requested.add(option)
            self._outgoing += bytes((TelnetCommand.IAC, side.yes(), option))

    def to_send(self) -> bytes:
        """Return and forget the outgoing bytes, often none."""
        data = bytes(self._outgoing)
        self._outgoing.clear()
        return data

    def is_on(self, option: int, *, ours: bool) -> bool:
        return option in (self._ours if ours else self._theirs).on

    # Sending.

    def encode(self, text: bytes) -> bytes:
        data = text.replace(_IAC, _IAC + _IAC)
        if Option.BINARY not in self._ours.on:
            # RFC 854, "The NVT printer and keyboard".
            data = data.replace(_CR, _CR + _NUL)
        return data

    def encode_parameters(self, option: int, data: bytes) -> bytes:
        """
        Encode the parameters of an option.

        :raises LocalProtocolError: the option is not on.
        """
        if not (option in self._ours.on or option in self._theirs.on):
            raise LocalProtocolError(f"option {option} is not on")
        head = bytes((TelnetCommand.IAC, TelnetCommand.SB, option))
        return head + data.replace(_IAC, _IAC + _IAC) + bytes((TelnetCommand.IAC, TelnetCommand.SE))

    def encode_break(self) -> bytes:
        """Encode a BREAK; the other end chooses its duration."""
        return bytes((TelnetCommand.IAC, TelnetCommand.BREAK))

    def resize(self, columns: int, rows: int) -> None:
        """Set the terminal's size, 0 to 65535 each."""
        self.window = (columns, rows)
        if Option.NAWS in self._ours.on:
            self._send_window()

    def _send_window(self) -> None:
        if self.window is not None:
            columns, rows = self.window
            size = columns.to_bytes(2, "big") + rows.to_bytes(2, "big")
            self._outgoing += self.encode_parameters(Option.NAWS, size)

    # Receiving.

    def receive(self, data: bytes) -> Iterator[Event]:
        """
        Take received bytes in any chunks; :meth:`to_send` may have an answer afterwards.

        :return: events as they are decoded, to be iterated to the end.
        :raises RemoteProtocolError: the peer violates the protocol.
        """
        at = 0
        while at < len(data):
            for item in self._read(data, at):
                if isinstance(item, int):
                    at = item
                else:
                    yield item

    # Each of these readers handles one item at ``at``: it yields events, and the position to
    # continue at.

    def _text(self, data: bytes, at: int) -> Iterator[int | Event]:
        end = data.find(_IAC, at)
        text = self._plain(data[at:] if end < 0 else data[at:end])
        if end >= 0:
            self._read = self._command
        if text:
            yield Text(text)
        yield len(data) if end < 0 else end + 1

    def _plain(self, text: bytes) -> bytes:
        if not text:
            return text
        if Option.BINARY in self._theirs.on:
            self._after_cr = False
            return text
        if self._after_cr and text.startswith(_NUL):
            text = text[1:]
            self._after_cr = False
        if text:
            self._after_cr = text.endswith(_CR)
        return text.replace(_CR + _NUL, _CR)

    def _command(self, data: bytes, at: int) -> Iterator[int | Event]:
        command = data[at]
        self._read = self._text
        if command == TelnetCommand.IAC:
            self._after_cr = False
            yield Text(_IAC)
        elif command == TelnetCommand.SB:
            self._parameters.clear()
            self._read = self._inside
        elif command >= TelnetCommand.WILL:
            self._verb = command
            self._read = self._option
        elif command < TelnetCommand.EOF:
            raise RemoteProtocolError(
                f"{command} is not a telnet command; the port may be a raw one"
            )
        # The other commands are for interactive users, or keep the connection alive.
        yield at + 1

    def _option(self, data: bytes, at: int) -> Iterator[int | Event]:
        option, verb = data[at], self._verb
        self._read = self._text
        side = self._theirs if verb in (TelnetCommand.WILL, TelnetCommand.WONT) else self._ours
        if verb in (TelnetCommand.WILL, TelnetCommand.DO):
            yield from self._accepted(side, option)
        else:
            yield from self._refused(side, option)
        yield at + 1

    def _accepted(self, side: _Side, option: int) -> Iterator[Event]:
        # An answer is only sent when something changes, or both ends would answer each other
        # forever (RFC 1143).
        if option in side.on:
            return
        if option not in side.supported:
            self._answer(side, side.no(), option)
            return
        # WILL or DO that answers our own request needs no answer.
        if option not in side.requested:
            self._answer(side, side.yes(), option)
        side.requested.discard(option)
        side.on.add(option)
        yield OptionChanged(option, side.ours, True)
        # A peer that switches NAWS off and on gets no more sizes than answers.
        if side.ours and option == Option.NAWS and side.answers.get(option, 0) <= _MOST_ANSWERS:
            self._send_window()

    def _refused(self, side: _Side, option: int) -> Iterator[Event]:
        if option in side.on:
            side.on.discard(option)
            # A refusal must always be accepted (RFC 854).
            self._answer(side, side.no(), option)
        elif option in side.requested:
            side.requested.discard(option)
        else:
            return
        yield OptionChanged(option, side.ours, False)

    def _answer(self, side: _Side, verb: TelnetCommand, option: int) -> None:
        count = side.answers[option] = side.answers.get(option, 0) + 1
        if count <= _MOST_ANSWERS:
            self._outgoing += bytes((TelnetCommand.IAC, verb, option))

    def _inside(self, data: bytes, at: int) -> Iterator[int | Event]:
        end = data.find(_IAC, at)
        self._collect(data[at:] if end < 0 else data[at:end])
        if end >= 0:
            self._read = self._inside_command
        yield len(data) if end < 0 else end + 1

    def _inside_command(self, data: bytes, at: int) -> Iterator[int | Event]:
        command = data[at]
        if command == TelnetCommand.IAC:
            self._collect(_IAC)
            self._read = self._inside
        elif command == TelnetCommand.SE:
            self._read = self._text
            yield from self._parameters_ended()
        else:
            # Only IAC IAC and IAC SE can follow here (RFC 855).
            raise RemoteProtocolError(f"command {command} within the parameters of an option")
        yield at + 1

    def _collect(self, data: bytes) -> None:
        if len(self._parameters) + len(data) > _MAX_PARAMETER_BYTES:
            raise RemoteProtocolError(
                f"an option has more than {_MAX_PARAMETER_BYTES} bytes of parameters"
            )
        self._parameters += data

    def _parameters_ended(self) -> Iterator[Event]:
        if self._parameters:
            option = self._parameters[0]
            if option in self._ours.on or option in self._theirs.on:
                yield Parameters(option, bytes(self._parameters[1:]))
