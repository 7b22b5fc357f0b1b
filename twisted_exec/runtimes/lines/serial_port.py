"""
Serial devices of this host as endpoints.
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
from twisted.internet.error import ConnectionAborted
from twisted.internet.fdesc import readFromFD, writeToFD
from twisted.internet.interfaces import IDelayedCall, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.main import CONNECTION_DONE
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.console.interfaces import ILineTransport
from twisted_exec.program.tasks import as_deferred
from twisted_exec.runtimes.lines.device_lock import DeviceLock
from twisted_exec.wire.com_port import LineSettings

# asm-generic/ioctls.h and termbits.h of the kernel; Python's termios lacks them.  The numbers of
# TCGETS2 and TCSETS2 are those of x86 and ARM.
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
_POLL_SECONDS = 0.01
_PROBLEMS = {
    errno.ENOENT: "there is no such device; is it plugged in?",
    errno.ENXIO: "there is no such device; is it plugged in?",
    errno.EACCES: "the runtime's user may not open it; most devices belong to the group dialout",
    errno.EBUSY: "another program uses it",
    errno.EIO: "there is no hardware behind it",
}


@implementer(IStreamClientEndpoint)
class SerialEndpoint:
    """
    Opens a device. ``connect`` fails with ``ServiceUnavailable`` and the reason.

    :param hangup: drop DTR on close, which modems and some machines take for a hang-up.
    :param path: such as ``/dev/ttyUSB0``.
    """

    def __init__(
        self, reactor: Any, path: str, settings: LineSettings, *, hangup: bool = True
    ) -> None:
        self._reactor = reactor
        self._path, self._settings, self._hangup = path, settings, hangup

    @as_deferred
    async def connect(self, protocolFactory: IProtocolFactory) -> Any:
        lock = DeviceLock(self._path)
        try:
            lock.take()
            # O_NONBLOCK: open(2) of a serial port would wait for the carrier.
            flags = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(self._path, flags)
            try:
                _claim(descriptor)
                set_line(descriptor, self._settings, hangup=self._hangup)
            except BaseException:
                os.close(descriptor)
                raise
        except (OSError, termios.error) as error:
            lock.release()
            number, words = error.args[:2]
            raise ServiceUnavailable(f"{self._path}: {_PROBLEMS.get(number, words)}") from None
        protocol = protocolFactory.buildProtocol(None)  # type: ignore[arg-type]
        SerialPort(self._reactor, descriptor, protocol, lock, self._path).begin()
        return protocol


def _claim(descriptor: int) -> None:
    """Get exclusive access; TIOCEXCL keeps out later programs, except those of root."""
    if not os.isatty(descriptor):
        raise OSError(errno.ENOTTY, "it is not a terminal device")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OSError(errno.EBUSY, "") from None
    fcntl.ioctl(descriptor, termios.TIOCEXCL)


def set_line(descriptor: int, settings: LineSettings, *, hangup: bool) -> None:
    """
    Set a terminal device to raw mode with these settings.

    :raises OSError: the driver refused a setting, or the device does not have it.
    """
    control_flags = _DATA_BITS[settings.data_bits] | _PARITY_FLAGS[settings.parity]
    # CSTOPB means 1.5 stop bits with five data bits, else 2 (termios(3)).
    control_flags |= termios.CSTOPB if settings.stop_bits > 1 else 0
    control_flags |= termios.CRTSCTS if settings.flow == "rtscts" else 0
    # CLOCAL: go on without a carrier, which many lines never have.
    flags = control_flags | termios.CREAD | termios.CLOCAL | (termios.HUPCL if hangup else 0)
    software = termios.IXON | termios.IXOFF if settings.flow == "xonxoff" else 0
    control = bytearray(19)
    # With VMIN 0, a read without input returns 0 bytes, which means the end (termios(3)).
    control[termios.VMIN] = 1
    # DC1 and DC3, known as XON and XOFF.
    control[termios.VSTART], control[termios.VSTOP] = 0x11, 0x13
    baud = settings.baud
    rate = getattr(termios, f"B{baud}", _BOTHER)
    fields = (software, 0, flags | rate, 0, 0, bytes(control), baud, baud)
    fcntl.ioctl(descriptor, _TCSETS2, _TERMIOS2.pack(*fields))
    _check(descriptor, control_flags, baud)
    for line, on in ((termios.TIOCM_DTR, settings.dtr), (termios.TIOCM_RTS, settings.rts)):
        if on is not None:
            request = termios.TIOCMBIS if on else termios.TIOCMBIC
            try:
                fcntl.ioctl(descriptor, request, struct.pack("i", line))
            except OSError:
                raise OSError(errno.ENOTTY, "it has no modem lines (dtr, rts)") from None


def _check(descriptor: int, desired: int, baud: int) -> None:
    """Read the settings back: drivers ignore what they do not support (termios(3))."""
    actual = array.array("B", bytes(_TERMIOS2.size))
    fcntl.ioctl(descriptor, _TCGETS2, actual, True)
    _, _, flags, _, _, _, _, speed = _TERMIOS2.unpack(actual.tobytes())
    checked = termios.CSIZE | termios.PARENB | termios.PARODD | _CMSPAR | termios.CSTOPB
    if (flags ^ desired) & checked:
        raise OSError(errno.EINVAL, "it does not support these data bits, parity and stop bits")
    # The driver divides a clock by a whole number; receivers tolerate an error of 3 per cent.
    if abs(speed - baud) > baud * 0.03:
        raise OSError(errno.EINVAL, f"it does not support {baud} baud (it is set to {speed})")


@implementer(ILineTransport)
class SerialPort(FileDescriptor):
    """An open device: the transport of its protocol."""

    connected = 1

    def __init__(
        self, reactor: Any, descriptor: int, protocol: Any, lock: DeviceLock, path: str
    ) -> None:
        super().__init__(reactor)
        self._descriptor, self._lock, self._path = descriptor, lock, path
        self._break: IDelayedCall | None = None
        self._sending: IDelayedCall | None = None
        self.protocol = protocol

    def begin(self) -> None:
        self.protocol.makeConnection(self)
        self.startReading()

    def fileno(self) -> int:
        return self._descriptor

    def doRead(self) -> Any:
        return readFromFD(self._descriptor, self.protocol.dataReceived)

    def writeSomeData(self, data: bytes) -> Any:
        return writeToFD(self._descriptor, data)

    def send_break(self, milliseconds: int) -> None:
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
            pass  # unplugged just now; doRead reports it

    def doWrite(self) -> Any:
        """Write; when everything is written and the port is to close, wait for the device, whose owner limits the time."""
        reason = super().doWrite()
        return reason if reason is not CONNECTION_DONE else self._sent()

    def _sent(self) -> Any:
        if not self._holds_output():
            return CONNECTION_DONE
        clock: Any = self.reactor
        self._sending = clock.callLater(_POLL_SECONDS, self._close_if_sent)
        return None

    def _close_if_sent(self) -> None:
        self._sending = None
        if (reason := self._sent()) is not None:
            self.connectionLost(Failure(reason))

    def _holds_output(self) -> bool:
        queued = array.array("i", [0])
        try:
            fcntl.ioctl(self._descriptor, termios.TIOCOUTQ, queued)
        except OSError:
            return False  # unplugged
        return queued[0] > 0

    def abortConnection(self) -> None:
        if self.connected:
            self.connectionLost(Failure(ConnectionAborted()))

    def connectionLost(self, reason: Failure) -> None:
        if not (self.disconnecting or reason.check(ConnectionAborted)):
            reason = Failure(ServiceUnavailable(f"{self._path}: it hung up or was unplugged"))
        super().connectionLost(reason)
        if self._sending is not None:
            self._sending.cancel()
        if self._break is not None:
            self._break.cancel()
            self._end_break()
        try:
            # close(2) waits for unsent output, possibly for long under flow control.
            termios.tcflush(self._descriptor, termios.TCOFLUSH)
        except termios.error:
            pass
        os.close(self._descriptor)
        self._descriptor = -1  # the number is reused soon
        self._lock.release()
        self.protocol.connectionLost(reason)
