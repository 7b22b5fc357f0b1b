"""
The telnet of console servers, from the client's end, without I/O (RFC 854, 855).

Text is bytes with 255 (IAC) doubled; behind a single one stands a command.  Four commands agree
on options, each side for itself: *WILL, WONT* speak of one's own side, *DO, DONT* of the other's.  An
answer is sent only when something changes, or it would be answered in turn for ever (RFC 1143).

What a console needs is few options: BINARY (RFC 856), so that a carriage return is one byte, SGA
(RFC 858), ECHO (RFC 857), since machines echo by themselves, NAWS (RFC 1073) where the other end
wants to know the size, and whatever the caller offers besides.  All others are refused.

:mod:`twisted.conch.telnet` is not used: it turns CR LF into LF also where BINARY is on, makes
an object of each byte, and ends in a traceback on commands that nobody defined.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from .errors import LocalProtocolError, RemoteProtocolError

_MAX_PARAMETER_BYTES = 1024
_MOST_ANSWERS = 16
_CR, _NUL = b"\r", b"\0"


class Command(IntEnum):
    """What may stand behind IAC and matters here; from 236 on all are defined."""

    EOF = 236
    SE = 240
    BREAK = 243
    SB = 250
    WILL = 251
    WONT = 252
    DO = 253
    DONT = 254
    IAC = 255


class Option(IntEnum):
    """Options by their numbers."""

    BINARY = 0
    ECHO = 1
    SGA = 3
    NAWS = 31
    COM_PORT = 44


_IAC = bytes((Command.IAC,))


@dataclass(frozen=True)
class Text:
    """What the machine printed, 1 byte or more."""

    data: bytes


@dataclass(frozen=True)
class OptionChanged:
    """
    An option is on or off from now on; also told when one that we asked for is refused.

    :param ours: on our side; else on theirs.
    """

    option: int
    ours: bool
    on: bool


@dataclass(frozen=True)
class Parameters:
    """What an option that is on has to say, without its number."""

    option: int
    data: bytes


Event = Text | OptionChanged | Parameters


@dataclass
class _Side:
    """One side's options: which may be on, are on, and have been asked for."""

    ours: bool
    supported: frozenset[int]
    on: set[int] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)
    answers: dict[int, int] = field(default_factory=dict)

    def yes(self) -> Command:
        return Command.WILL if self.ours else Command.DO

    def no(self) -> Command:
        return Command.WONT if self.ours else Command.DONT


class TelnetClient:
    """
    One connection to a telnet server.

    :param offers: options of our side that we ask for; those in ``agrees`` only when asked.
    :param wants: options of their side that we ask for, likewise.
    :ivar window: the last known size in columns and rows, sent where NAWS is on.
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
        """Ask for the options; once, before anything else."""
        for side, option in self._first:
            side.asked.add(option)
            self._outgoing += bytes((Command.IAC, side.yes(), option))

    def to_send(self) -> bytes:
        """What is to be sent now, often nothing; told once."""
        data = bytes(self._outgoing)
        self._outgoing.clear()
        return data

    def is_on(self, option: int, *, ours: bool) -> bool:
        """Whether both ends have agreed on the option, of our side or of theirs."""
        return option in (self._ours if ours else self._theirs).on

    # What we say.

    def encode(self, text: bytes) -> bytes:
        """
        What is typed, as it travels.

        Without BINARY a carriage return is followed by NUL, or it would be half of a newline.
        """
        data = text.replace(_IAC, _IAC + _IAC)
        if Option.BINARY not in self._ours.on:
            data = data.replace(_CR, _CR + _NUL)
        return data

    def encode_parameters(self, option: int, data: bytes) -> bytes:
        """:raises LocalProtocolError: the option is not on."""
        if not (option in self._ours.on or option in self._theirs.on):
            raise LocalProtocolError(f"option {option} is not on")
        head = bytes((Command.IAC, Command.SB, option))
        return head + data.replace(_IAC, _IAC + _IAC) + bytes((Command.IAC, Command.SE))

    def encode_break(self) -> bytes:
        """A BREAK of whatever length the other end thinks right."""
        return bytes((Command.IAC, Command.BREAK))

    def resize(self, columns: int, rows: int) -> None:
        """The terminal has this size, 0 to 65535 each; :meth:`to_send` tells it where it is wanted."""
        self.window = (columns, rows)
        if Option.NAWS in self._ours.on:
            self._tell_window()

    def _tell_window(self) -> None:
        if self.window is not None:
            columns, rows = self.window
            size = columns.to_bytes(2, "big") + rows.to_bytes(2, "big")
            self._outgoing += self.encode_parameters(Option.NAWS, size)

    # What they say.

    def receive(self, data: bytes) -> Iterator[Event]:
        """
        Take what the server says, in any split; then there may be something :meth:`to_send`.

        :return: events as they are found; to be read to the end.
        :raises RemoteProtocolError: it does not speak telnet, or says too much of an option.
        """
        at = 0
        while at < len(data):
            for found in self._read(data, at):
                if isinstance(found, int):
                    at = found
                else:
                    yield found

    # Each of these reads one thing at ``at``: it gives events, and where to go on.

    def _text(self, data: bytes, at: int) -> Iterator[int | Event]:
        end = data.find(_IAC, at)
        text = self._plain(data[at:] if end < 0 else data[at:end])
        if end >= 0:
            self._read = self._command
        if text:
            yield Text(text)
        yield len(data) if end < 0 else end + 1

    def _plain(self, text: bytes) -> bytes:
        """Without BINARY, a carriage return alone is followed by NUL."""
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
        if command == Command.IAC:
            self._after_cr = False
            yield Text(_IAC)
        elif command == Command.SB:
            self._parameters.clear()
            self._read = self._inside
        elif command >= Command.WILL:
            self._verb = command
            self._read = self._option
        elif command < Command.EOF:
            raise RemoteProtocolError(
                f"{command} is no telnet command: the port is a raw one, or something else"
            )
        # All others are for users at terminals, or to keep the connection alive.
        yield at + 1

    def _option(self, data: bytes, at: int) -> Iterator[int | Event]:
        option, verb = data[at], self._verb
        self._read = self._text
        side = self._theirs if verb in (Command.WILL, Command.WONT) else self._ours
        if verb in (Command.WILL, Command.DO):
            yield from self._wished(side, option)
        else:
            yield from self._refused(side, option)
        yield at + 1

    def _wished(self, side: _Side, option: int) -> Iterator[Event]:
        """WILL of their side, or DO of ours."""
        if option in side.on:
            return
        if option not in side.supported:
            self._answer(side, side.no(), option)
            return
        if option not in side.asked:
            self._answer(side, side.yes(), option)
        side.asked.discard(option)
        side.on.add(option)
        yield OptionChanged(option, side.ours, True)
        if side.ours and option == Option.NAWS and side.answers.get(option, 0) <= _MOST_ANSWERS:
            self._tell_window()

    def _refused(self, side: _Side, option: int) -> Iterator[Event]:
        """WONT of their side, or DONT of ours."""
        if option in side.on:
            side.on.discard(option)
            self._answer(side, side.no(), option)
        elif option in side.asked:
            side.asked.discard(option)
        else:
            return
        yield OptionChanged(option, side.ours, False)

    def _answer(self, side: _Side, verb: Command, option: int) -> None:
        """An end that never tires of asking is not answered for ever."""
        told = side.answers[option] = side.answers.get(option, 0) + 1
        if told <= _MOST_ANSWERS:
            self._outgoing += bytes((Command.IAC, verb, option))

    def _inside(self, data: bytes, at: int) -> Iterator[int | Event]:
        end = data.find(_IAC, at)
        self._collect(data[at:] if end < 0 else data[at:end])
        if end >= 0:
            self._read = self._inside_command
        yield len(data) if end < 0 else end + 1

    def _inside_command(self, data: bytes, at: int) -> Iterator[int | Event]:
        command = data[at]
        if command == Command.IAC:
            self._collect(_IAC)
            self._read = self._inside
        elif command == Command.SE:
            self._read = self._text
            yield from self._told()
        else:
            raise RemoteProtocolError(f"command {command} within the parameters of an option")
        yield at + 1

    def _collect(self, data: bytes) -> None:
        if len(self._parameters) + len(data) > _MAX_PARAMETER_BYTES:
            raise RemoteProtocolError(
                f"an option has more than {_MAX_PARAMETER_BYTES} bytes of parameters"
            )
        self._parameters += data

    def _told(self) -> Iterator[Event]:
        """Parameters of options that nobody agreed on mean nothing."""
        if self._parameters:
            option = self._parameters[0]
            if option in self._ours.on or option in self._theirs.on:
                yield Parameters(option, bytes(self._parameters[1:]))
