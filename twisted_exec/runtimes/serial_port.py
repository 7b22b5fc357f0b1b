"""
A serial device as a transport: its settings, its modem lines, its BREAK, and nobody else on it.

By termios and ioctl_tty(2), without pyserial: that blocks while it opens, sends BREAK by sleeping,
and its last release is of 2020.  Linux only, as all runtimes are; rates without a name of their own are set
by ``TCSETS2``, whose numbers are those of x86 and ARM.

A device that is pulled out ends the connection.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import struct
import termios
from typing import Any

from twisted.internet.abstract import FileDescriptor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import ConnectionAborted
from twisted.internet.fdesc import readFromFD, writeToFD
from twisted.internet.interfaces import IDelayedCall, IProtocolFactory, IStreamClientEndpoint
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.console.interfaces import ILineTransport
from twisted_exec.wire.com_port import LineSettings

from .device_lock import DeviceLock

_TIOCSBRK, _TIOCCBRK = 0x5427, 0x5428
_TCGETS2, _TCSETS2 = 0x802C542A, 0x402C542B
_TERMIOS2 = struct.Struct("=4IB19s2I")
_BOTHER = 0o010000
_CMSPAR = 0o10000000000

_DATA_BITS = {5: termios.CS5, 6: termios.CS6, 7: termios.CS7, 8: termios.CS8}
_PARITY_FLAGS = {
    "none": 0,
    "even": termios.PARENB,
    "odd": termios.PARENB | termios.PARODD,
    "space": termios.PARENB | _CMSPAR,
    "mark": termios.PARENB | termios.PARODD | _CMSPAR,
}
_WHY = {
    errno.ENOENT: "it is not there; is it plugged in?",
    errno.ENXIO: "it is not there; is it plugged in?",
    errno.EACCES: "the runtime's user may not open it; devices are mostly of the group dialout",
    errno.EBUSY: "another program has it",
    errno.EIO: "there is no hardware behind it",
}


@implementer(IStreamClientEndpoint)
class SerialEndpoint:
    """
    Opens a device.

    :param path: such as ``/dev/ttyUSB0``.
    :param hangup: whether closing drops DTR, which modems and some machines take for a hang-up.
    :raises ServiceUnavailable: (``connect`` fails with it) it cannot be used; it says why.
    """

    def __init__(
        self, reactor: Any, path: str, settings: LineSettings, *, hangup: bool = True
    ) -> None:
        self._reactor = reactor
        self._path, self._settings, self._hangup = path, settings, hangup

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[Any]:
        return maybeDeferred(self._connect, protocolFactory)

    def _connect(self, factory: IProtocolFactory) -> Any:
        lock = DeviceLock(self._path)
        try:
            lock.take()
            descriptor = os.open(self._path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                _own(descriptor)
                set_line(descriptor, self._settings, hangup=self._hangup)
            except BaseException:
                os.close(descriptor)
                raise
        except (OSError, termios.error) as error:
            lock.release()
            number, words = error.args[:2]
            raise ServiceUnavailable(f"{self._path}: {_WHY.get(number, words)}") from None
        protocol = factory.buildProtocol(None)  # type: ignore[arg-type]
        SerialPort(self._reactor, descriptor, protocol, lock, self._path).begin()
        return protocol


def _own(descriptor: int) -> None:
    """Nobody else opens it (who is root could), and nobody else has locked it."""
    if not os.isatty(descriptor):
        raise OSError(errno.ENOTTY, "it is no terminal device")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OSError(errno.EBUSY, "") from None
    fcntl.ioctl(descriptor, termios.TIOCEXCL)


def set_line(descriptor: int, settings: LineSettings, *, hangup: bool) -> None:
    """
    Set a terminal device for raw bytes.

    :raises OSError: it is set otherwise, or has no modem lines to be set.
    """
    wanted = _DATA_BITS[settings.data_bits] | _PARITY_FLAGS[settings.parity]
    # There are no one and a half: with five bits, two are that (termios(3)).
    wanted |= termios.CSTOPB if settings.stop_bits > 1 else 0
    wanted |= termios.CRTSCTS if settings.flow == "rtscts" else 0
    flags = wanted | termios.CREAD | termios.CLOCAL | (termios.HUPCL if hangup else 0)
    software = termios.IXON | termios.IXOFF if settings.flow == "xonxoff" else 0
    control = bytearray(19)
    control[termios.VMIN] = 1
    control[termios.VSTART], control[termios.VSTOP] = 0x11, 0x13
    baud = settings.baud
    rate = getattr(termios, f"B{baud}", _BOTHER)
    told = (software, 0, flags | rate, 0, 0, bytes(control), baud, baud)
    fcntl.ioctl(descriptor, _TCSETS2, _TERMIOS2.pack(*told))
    _check(descriptor, wanted, baud)
    for line, on in ((termios.TIOCM_DTR, settings.dtr), (termios.TIOCM_RTS, settings.rts)):
        if on is not None:
            request = termios.TIOCMBIS if on else termios.TIOCMBIC
            try:
                fcntl.ioctl(descriptor, request, struct.pack("i", line))
            except OSError:
                raise OSError(errno.ENOTTY, "it has no modem lines (dtr, rts) to be set") from None


def _check(descriptor: int, wanted: int, baud: int) -> None:
    """A driver takes what it can, and says nothing of the rest."""
    found = array.array("B", bytes(_TERMIOS2.size))
    fcntl.ioctl(descriptor, _TCGETS2, found, True)
    _, _, flags, _, _, _, _, speed = _TERMIOS2.unpack(found.tobytes())
    looked_at = termios.CSIZE | termios.PARENB | termios.PARODD | _CMSPAR | termios.CSTOPB
    if (flags ^ wanted) & looked_at:
        raise OSError(errno.EINVAL, "it does not take these data bits, parity and stop bits")
    # Clocks are divided by whole numbers; a receiver forgives 3 per cent.
    if abs(speed - baud) > baud * 0.03:
        raise OSError(errno.EINVAL, f"it does not take {baud} baud (it is set to {speed})")


@implementer(ILineTransport)
class SerialPort(FileDescriptor):
    """
    An open device, the transport of its protocol.

    :param lock: released when it is closed.
    :param path: of the device, for messages.
    """

    connected = 1

    def __init__(
        self, reactor: Any, descriptor: int, protocol: Any, lock: DeviceLock, path: str
    ) -> None:
        super().__init__(reactor)
        self._descriptor, self._lock, self._path = descriptor, lock, path
        self._break: IDelayedCall | None = None
        self.protocol = protocol

    def begin(self) -> None:
        """Join the protocol."""
        self.protocol.makeConnection(self)
        self.startReading()

    def fileno(self) -> int:
        return self._descriptor

    def doRead(self) -> Any:
        return readFromFD(self._descriptor, self.protocol.dataReceived)

    def writeSomeData(self, data: bytes) -> Any:
        return writeToFD(self._descriptor, data)

    def send_break(self, milliseconds: int) -> None:
        """Hold the line for so long; the reactor goes on meanwhile."""
        if self._break is None and self.connected:
            self._ioctl(_TIOCSBRK)
            clock: Any = self.reactor
            self._break = clock.callLater(milliseconds / 1000, self._end_break)

    def _end_break(self) -> None:
        self._break = None
        self._ioctl(_TIOCCBRK)

    def _ioctl(self, request: int) -> None:
        try:
            fcntl.ioctl(self._descriptor, request)
        except OSError:
            pass  # it was just pulled out, which is noticed elsewhere

    def abortConnection(self) -> None:
        """Close it, whatever is still to be sent."""
        if self.connected:
            self.connectionLost(Failure(ConnectionAborted()))

    def connectionLost(self, reason: Failure) -> None:
        if not (self.disconnecting or reason.check(ConnectionAborted)):
            reason = Failure(ServiceUnavailable(f"{self._path}: it hung up, or was pulled out"))
        super().connectionLost(reason)
        if self._break is not None:
            self._break.cancel()
            self._end_break()
        try:
            # Closing waits for what was not sent yet, which flow control may hold back for long.
            termios.tcflush(self._descriptor, termios.TCOFLUSH)
        except termios.error:
            pass
        os.close(self._descriptor)
        self._descriptor = -1  # another's soon
        self._lock.release()
        self.protocol.connectionLost(reason)
