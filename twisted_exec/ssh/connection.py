"""
The connection protocol (RFC 4254) behind a login: sessions alone, and a bounded number of them.
"""

from __future__ import annotations

import struct
from typing import Any

from twisted.conch.error import ConchError
from twisted.conch.interfaces import IConchUser
from twisted.conch.ssh.common import NS, getNS
from twisted.conch.ssh.connection import (
    MSG_CHANNEL_CLOSE,
    MSG_CHANNEL_OPEN_CONFIRMATION,
    MSG_CHANNEL_OPEN_FAILURE,
    OPEN_ADMINISTRATIVELY_PROHIBITED,
    OPEN_RESOURCE_SHORTAGE,
    OPEN_UNKNOWN_CHANNEL_TYPE,
    SSHConnection,
)
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from twisted_exec.ssh.channel import NO_FORWARDING, SessionChannel, Sessions
from twisted_exec.ssh.transport import IFlowControlled

MOST_SESSIONS = 10
"""Sessions of one connection at a time, as ``MaxSessions`` of OpenSSH's server."""

_LEAST_PACKET_BYTES = 1024  # each costs CPU, however little is in it
_FORWARDED = (b"direct-tcpip", b"direct-streamlocal@openssh.com")


@implementer(IConchUser)
class User:
    """The user of a connection, whose channels are sessions."""

    def __init__(self, sessions: Sessions, clock: IReactorTime) -> None:
        self._sessions, self._clock = sessions, clock
        self.conn: Any = None  # Conch sets it

    def lookupChannel(
        self, channelType: bytes, windowSize: int, maxPacket: int, data: bytes
    ) -> SessionChannel:
        if channelType in _FORWARDED:
            raise ConchError(NO_FORWARDING, OPEN_ADMINISTRATIVELY_PROHIBITED)
        if maxPacket < _LEAST_PACKET_BYTES:
            why = f"packets of a channel must have at least {_LEAST_PACKET_BYTES} bytes"
            raise ConchError(why, OPEN_RESOURCE_SHORTAGE)
        if channelType != SessionChannel.name:
            raise ConchError("there are only sessions", OPEN_UNKNOWN_CHANNEL_TYPE)
        if len(self.conn.channels) >= MOST_SESSIONS:
            why = f"a connection has at most {MOST_SESSIONS} sessions at a time"
            raise ConchError(why, OPEN_RESOURCE_SHORTAGE)
        return SessionChannel(
            self._sessions,
            self._clock,
            remoteWindow=windowSize,
            remoteMaxPacket=maxPacket,
            data=data,
            avatar=self,
        )

    def lookupSubsystem(self, subsystem: bytes, data: bytes) -> None:
        return None

    def gotGlobalRequest(self, requestType: bytes, data: bytes) -> bool:
        return False  # such as forwarding of ports


@implementer(IFlowControlled)
class Connection(SSHConnection):
    """
    The service behind the login.

    Each channel is a :class:`SessionChannel`.  In the place of Conch's methods that log whatever a client does, which could
    fill a disk, there are some that do not.
    """

    transport: Any
    channels: dict[int, SessionChannel]

    def adjustWindow(self, channel: Any, bytesToAdd: int) -> None:
        if not channel.withholds_window():
            super().adjustWindow(channel, bytesToAdd)

    def ssh_CHANNEL_OPEN(self, packet: bytes) -> None:
        kind, rest = getNS(packet)
        sender, window, most = struct.unpack(">3L", rest[:12])
        try:
            channel = self.getChannel(kind, window, most, rest[12:])
        except ConchError as refusal:
            why, code = refusal.args
            self.transport.sendPacket(
                MSG_CHANNEL_OPEN_FAILURE, struct.pack(">2L", sender, code) + NS(why) + NS(b"")
            )
            return
        number = channel.id = self.localChannelID
        self.localChannelID += 1
        self.channels[number] = channel
        self.channelsToRemoteChannel[channel] = self.localToRemoteChannel[number] = sender
        sizes = (channel.localWindowSize, channel.localMaxPacket)
        self.transport.sendPacket(
            MSG_CHANNEL_OPEN_CONFIRMATION, struct.pack(">4L", sender, number, *sizes)
        )

    def ssh_CHANNEL_DATA(self, packet: bytes) -> None:
        self._check_window(*struct.unpack(">2L", packet[:8]))
        super().ssh_CHANNEL_DATA(packet)

    def ssh_CHANNEL_EXTENDED_DATA(self, packet: bytes) -> None:
        channel, _, size = struct.unpack(">3L", packet[:12])
        self._check_window(channel, size)
        super().ssh_CHANNEL_EXTENDED_DATA(packet)

    def _check_window(self, number: int, size: int) -> None:
        channel = self.channels[number]
        if size > min(channel.localWindowLeft, channel.localMaxPacket):
            raise ValueError("there is more data than the window allows")

    def sendClose(self, channel: SessionChannel) -> None:
        if channel.localClosed:
            return
        number = self.channelsToRemoteChannel[channel]
        self.transport.sendPacket(MSG_CHANNEL_CLOSE, struct.pack(">L", number))
        channel.localClosed = True
        if channel.remoteClosed:
            self.channelClosed(channel)

    @property
    def is_stopped(self) -> bool:
        """True while the connection takes no output, whatever the windows of the channels allow."""
        return bool(self.transport.is_stopped)

    def output_stopped(self) -> None:
        self._output_changed()

    def output_resumed(self) -> None:
        self._output_changed()

    def _output_changed(self) -> None:
        for channel in list(self.channels.values()):
            channel.output_changed()
