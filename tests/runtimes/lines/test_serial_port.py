"""
Tests for :mod:`twisted_exec.runtimes.lines.serial_port`.

The device is the end of a pseudo-terminal: it has settings, but no modem lines and no BREAK.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import tty
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.tiers import PROGRAMS
from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.runtimes.lines import device_lock, serial_port
from twisted_exec.runtimes.lines.device_lock import DeviceLock
from twisted_exec.runtimes.lines.serial_port import SerialEndpoint, SerialPort
from twisted_exec.testing.drivers import Line
from twisted_exec.wire.com_port import LineSettings

reactor: Any = _reactor

PLAIN = LineSettings()

TIOCSBRK, TIOCCBRK = 0x5427, 0x5428
"""Of ``asm-generic/ioctls.h``: begin and end a BREAK."""


class Device:
    """A pseudo-terminal whose one end is a device; the other is the machine."""

    def __init__(self) -> None:
        self.machine, self._end = os.openpty()
        tty.setraw(self._end)
        os.set_blocking(self.machine, False)
        self.path = os.ttyname(self._end)
        os.close(self._end)

    def says(self, data: bytes) -> None:
        os.write(self.machine, data)

    def read(self) -> bytes:
        try:
            return os.read(self.machine, 1 << 16)
        except (BlockingIOError, OSError):
            return b""

    def pull_out(self) -> None:
        if self.machine >= 0:
            os.close(self.machine)
            self.machine = -1


class DeviceCase(TestCase):
    """A device, and a directory for lock files."""

    def setUp(self) -> None:
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.patch(device_lock, "LOCK_DIRECTORY", self.directory)
        self.device = Device()
        self.addCleanup(self.device.pull_out)

    async def open(self, settings: LineSettings = PLAIN, **options: Any) -> Line:
        endpoint = SerialEndpoint(reactor, self.device.path, settings, **options)
        line: Line = await endpoint.connect(Factory.forProtocol(Line))
        self.addCleanup(line.transport.abortConnection)
        return line

    async def refused(self, settings: LineSettings = PLAIN, path: str = "") -> str:
        endpoint = SerialEndpoint(reactor, path or self.device.path, settings)
        with self.assertRaises(ServiceUnavailable) as caught:
            await endpoint.connect(Factory.forProtocol(Line))
        return caught.exception.message

    async def until_read(self, expected: bytes) -> None:
        got = b""
        while expected not in got:
            got += self.device.read()
            await deferLater(reactor, 0.01)


class PortTests(DeviceCase):
    """Tests for :class:`SerialPort`."""

    async def test_bytes(self) -> None:
        """All bytes, both ways, as they are."""
        everything = bytes(range(256))
        line = await self.open()
        line.transport.write(everything)
        await self.until_read(everything)
        self.device.says(everything)
        await line.until(everything)

    async def test_pulled_out(self) -> None:
        """A device that goes ends the connection."""
        line = await self.open()
        self.device.pull_out()
        lost = await line.over()
        self.assertIn("it hung up or was unplugged", lost.message)
        self.assertEqual(os.listdir(self.directory), [])

    async def test_close(self) -> None:
        """Closing frees the device; the transport waits for pending output, the kernel does not."""
        line = await self.open()
        line.transport.write(b"last words")
        line.transport.loseConnection()
        await line.over()
        await self.open()

    async def test_close_while_it_sends(self) -> None:
        """A slow device sends what it has accepted before it is closed."""
        ioctl, queued = fcntl.ioctl, [5, 3, 0]

        def slow(descriptor: int, request: int, *rest: Any) -> Any:
            if request == termios.TIOCOUTQ:
                rest[0][0] = queued.pop(0)
                return 0
            return ioctl(descriptor, request, *rest)

        line = await self.open()
        self.patch(fcntl, "ioctl", slow)
        line.transport.write(b"last words")
        line.transport.loseConnection()
        self.assertIsInstance(await line.over(), ConnectionDone)
        self.assertEqual(queued, [])

    async def test_abort_while_it_sends(self) -> None:
        """The time for that has a limit."""
        ioctl, asked = fcntl.ioctl, Deferred[None]()

        def stuck(descriptor: int, request: int, *rest: Any) -> Any:
            if request == termios.TIOCOUTQ:
                rest[0][0] = 5
                reactor.callLater(0, lambda: asked.called or asked.callback(None))
                return 0
            return ioctl(descriptor, request, *rest)

        line = await self.open()
        self.patch(fcntl, "ioctl", stuck)
        line.transport.loseConnection()
        await asked
        self.assertEqual(line.lost, [])
        line.transport.abortConnection()
        self.assertEqual([type(lost) for lost in line.lost], [ConnectionAborted])

    async def test_abort(self) -> None:
        """Aborting discards pending output."""
        line = await self.open()
        line.transport.write(bytes(1 << 20))
        line.transport.abortConnection()
        line.transport.abortConnection()
        self.assertEqual([type(lost) for lost in line.lost], [ConnectionAborted])

    async def test_break(self) -> None:
        """The line is held for so long, once at a time, while the reactor goes on."""
        calls: list[int] = []
        ioctl = fcntl.ioctl

        def spy(descriptor: int, request: int, *rest: Any) -> Any:
            calls.append(request)
            return ioctl(descriptor, request, *rest)

        line = await self.open()
        self.patch(fcntl, "ioctl", spy)
        line.transport.send_break(20)
        line.transport.send_break(20)
        self.assertEqual(calls, [TIOCSBRK])
        while len(calls) < 2:
            await deferLater(reactor, 0.005)
        self.assertEqual(calls, [TIOCSBRK, TIOCCBRK])
        line.transport.send_break(5000)
        line.transport.abortConnection()
        self.assertEqual(calls[2:], [TIOCSBRK, TIOCCBRK])
        line.transport.send_break(5000)
        self.assertEqual(len(calls), 4)

    async def test_break_of_a_device_that_is_gone(self) -> None:
        """BREAK on an unplugged device does nothing; doRead reports the loss."""
        line = await self.open()
        self.device.pull_out()
        line.transport.send_break(5000)
        await line.over()


class SettingsTests(DeviceCase):
    """Settings of the device."""

    def attributes(self, line: Line) -> list[Any]:
        assert isinstance(line.transport, SerialPort)
        return termios.tcgetattr(line.transport.fileno())

    async def test_raw(self) -> None:
        """Raw, with a rate that has no name."""
        line = await self.open(LineSettings(250_000))
        input, output, control, local, *_ = self.attributes(line)
        self.assertEqual((input, output, local), (0, 0, 0))
        self.assertTrue(control & termios.CLOCAL and control & termios.HUPCL)

    async def test_flow_control(self) -> None:
        """In hardware, in software, and without a hang-up at the end."""
        line = await self.open(LineSettings(115200, flow="rtscts"), hangup=False)
        control = self.attributes(line)[2]
        self.assertTrue(control & termios.CRTSCTS)
        self.assertFalse(control & termios.HUPCL)
        self.assertEqual(self.attributes(line)[4], termios.B115200)
        line.transport.abortConnection()
        line = await self.open(LineSettings(stop_bits=2, flow="xonxoff"))
        self.assertEqual(self.attributes(line)[0], termios.IXON | termios.IXOFF)
        self.assertTrue(self.attributes(line)[2] & termios.CSTOPB)

    async def test_cannot(self) -> None:
        """Unsupported settings are reported."""
        for settings, why in (
            (LineSettings(data_bits=7), "does not support these data bits, parity and stop bits"),
            (LineSettings(parity="odd"), "does not support these data bits, parity and stop bits"),
            (LineSettings(dtr=True), "no modem lines (dtr, rts)"),
            (LineSettings(rts=False), "no modem lines (dtr, rts)"),
        ):
            message = await self.refused(settings)
            self.assertTrue(message.startswith(f"{self.device.path}: "), message)
            self.assertIn(why, message)
        await self.open()  # a refusal leaves nothing behind

    async def test_other_rate(self) -> None:
        """A device with a very different rate than requested is refused."""
        real = serial_port._TERMIOS2

        class Slow:
            """Tells 9600, whatever is set."""

            size, pack = real.size, staticmethod(real.pack)

            @staticmethod
            def unpack(data: bytes) -> tuple[Any, ...]:
                return (*real.unpack(data)[:-1], 9600)

        self.patch(serial_port, "_TERMIOS2", Slow)
        self.assertIn(
            "does not support 115200 baud (it is set to 9600)",
            await self.refused(LineSettings(115200)),
        )


class ExclusiveTests(DeviceCase):
    """One program at a time."""

    async def test_twice(self) -> None:
        """A second opening is refused, and does not disturb the first."""
        line = await self.open()
        self.assertIn("another program uses it", await self.refused())
        line.transport.write(b"x")
        await self.until_read(b"x")

    async def test_locked_by_the_kernel(self) -> None:
        """A program that locked the device without a lock file is respected."""
        descriptor = os.open(self.device.path, os.O_RDWR | os.O_NOCTTY)
        self.addCleanup(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        self.assertIn("another program uses it", await self.refused())
        self.assertEqual(os.listdir(self.directory), [])

    async def test_not_there(self) -> None:
        """Nor a device, nor one at all."""
        self.assertIn("is it plugged in?", await self.refused(path=f"{self.directory}/ttyX"))
        self.assertIn("not a terminal device", await self.refused(path="/dev/null"))


class LockTests(SynchronousTestCase):
    """Tests for :class:`DeviceLock`."""

    starts = PROGRAMS

    def setUp(self) -> None:
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.lock = DeviceLock("/dev/ttyS9", self.directory)
        self.path = os.path.join(self.directory, "LCK..ttyS9")

    def holder(self, content: bytes) -> None:
        with open(self.path, "wb") as file:
            file.write(content)

    def test_file(self) -> None:
        """It is named after the device, and holds our process id in ten columns."""
        self.lock.take()
        with open(self.path, "rb") as file:
            self.assertEqual(file.read(), b"%10d\n" % os.getpid())
        with self.assertRaises(OSError):
            DeviceLock("/dev/ttyS9", self.directory).take()
        self.lock.release()
        self.lock.release()
        self.assertEqual(os.listdir(self.directory), [])

    def test_names(self) -> None:
        """A link is its device; directories below /dev are part of the name."""
        link = os.path.join(self.directory, "by-id")
        os.symlink("/dev/pts/7", link)
        self.assertTrue(DeviceLock(link, self.directory).path.endswith("/LCK..pts_7"))

    def test_left_behind(self) -> None:
        """The lock of an ended process is removed."""
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait(600)
        self.holder(b"%10d\n" % ended.pid)
        self.lock.take()

    def test_no_file(self) -> None:
        """A FIFO or endless file in the world-writable directory does not block."""
        os.mkfifo(self.path)
        alarm = signal.signal(signal.SIGALRM, lambda *_: self.fail("it waits for a writer"))
        self.addCleanup(signal.signal, signal.SIGALRM, alarm)
        self.addCleanup(signal.alarm, 0)
        signal.alarm(60)
        with self.assertRaises(OSError) as caught:
            self.lock.take()
        self.assertEqual(caught.exception.errno, errno.EBUSY)

    def test_unreadable(self) -> None:
        """An empty lock file may be just being written."""
        for content in (b"", b"soon", b"9" * 40):
            self.holder(content)
            with self.assertRaises(OSError):
                self.lock.take()

    def test_removed_by_another(self) -> None:
        """Whoever thought it stale and removed it does not make us fail."""
        self.lock.take()
        os.unlink(self.path)
        self.lock.release()

    def test_no_directory(self) -> None:
        """Without a writable directory there is no lock file."""
        lock = DeviceLock("/dev/ttyS9", os.path.join(self.directory, "nowhere"))
        lock.take()
        lock.release()
