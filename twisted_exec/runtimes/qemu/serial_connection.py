"""
Connections of a machine's line to its serial port: a socket of QEMU, or a file and a FIFO.

A machine that outlives the runtime prints into a file (see :mod:`.serial_log`), unless that could
not be created.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.task import deferLater

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.program.tasks import ShortTurns
from twisted_exec.runtimes.interfaces import MachineFacts
from twisted_exec.runtimes.qemu.log_port import READ_BYTES, LogPort
from twisted_exec.runtimes.qemu.serial_line import SerialLine, SerialPort
from twisted_exec.runtimes.qemu.serial_log import SerialLog

if TYPE_CHECKING:
    from twisted_exec.runtimes.qemu.driver import QemuDriver

_POLL_SECONDS = 0.02


class SerialConnection:
    """
    Connects the line of one machine, once for each start and after each loss.

    :param ask: runs one QMP command.
    :param reach: connects to one of QEMU's sockets; it takes the path and a maker of protocols.
    """

    def __init__(
        self,
        driver: QemuDriver,
        facts: MachineFacts,
        ask: Callable[..., Awaitable[Any]],
        reach: Callable[[str, Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self._driver, self._facts, self._ask, self._reach = driver, facts, ask, reach
        self._log: SerialLog | None = None
        self._log_port: LogPort | None = None
        if facts.keep and facts.journal is not None:
            self._log = SerialLog(facts.storage, facts.journal)

    def create_log(self) -> int | None:
        """
        Create the file and the FIFO of a machine that outlives the runtime.

        :return: the FIFO's descriptor; ``None`` if the machine has none, or if the disk is full, which
            only costs output.
        """
        if self._log is None:
            return None
        try:
            self._log.create()
            return self._log.open_input()
        except OSError as error:
            self._log.remove()
            why = f"what the machine prints while no runtime runs will be lost: {error.strerror}"
            self._facts.event("Warning", "NoSerialLog", why)
            return None

    def _log_without(self, socket: str) -> SerialLog | None:
        """
        Return the log of this QEMU, if it has no socket.

        The files may be left from a QEMU before: an earlier release, to which the host had gone back,
        starts QEMUs with a socket, and does not know the files.
        """
        log = self._log
        return log if log is not None and log.exists and not os.path.lexists(socket) else None

    async def catch_up(self, line: SerialLine, socket: str) -> bool:
        """
        Read what the machine printed since the journal's end, while no runtime was connected.

        :param socket: path of QEMU's socket, for a machine without a log.
        :return: whether that was all of it.
        """
        log = self._log_without(socket)
        if log is None:
            return False
        skipped = log.skip_excess()
        if skipped:
            message = f"the oldest {skipped} bytes that the machine printed meanwhile are left out"
            self._facts.event("Warning", "OutputSkipped", message)
        turns = ShortTurns(self._driver.reactor)
        position, end = log.position(), log.size()
        while position < end and (data := log.read(position, READ_BYTES)):
            line.received(data)
            await turns.breathe()
            position += len(data)
        return not skipped

    async def connect(self, line: SerialLine, socket: str) -> None:
        """
        Connect the line.

        :param socket: path of QEMU's socket, for a machine without a log.
        :raises ServiceUnavailable: QEMU has ended, or the FIFO cannot be opened.
        """
        log = self._log_without(socket)
        if log is None:
            line.join(await self._reach(socket, lambda: SerialPort(line)))
            await self._wait_for_socket()
            return
        try:
            port = LogPort(log, line, self._driver.watcher, self._driver.reactor)
        except OSError as error:
            raise ServiceUnavailable(f"{log.input_path}: {error.strerror}") from None
        self._log_port = port
        line.join(port)
        port.start()
        if (await self._device()).get("filename") == "null":
            files = {"out": log.path, "in": log.input_path, "append": True}
            await self._ask("chardev-change", id="serial0", backend={"type": "file", "data": files})

    async def _wait_for_socket(self) -> None:
        """
        Wait until QEMU has accepted the connection to the serial port.

        ``connect`` succeeds before that; output of the guest in between would be lost.
        """
        while True:
            if not str((await self._device()).get("filename")).startswith("disconnected:"):
                return
            await deferLater(self._driver.reactor, _POLL_SECONDS)

    async def _device(self) -> dict[str, Any]:
        devices: list[dict[str, Any]] = await self._ask("query-chardev")
        return next((each for each in devices if each.get("label") == "serial0"), {})

    def tidy(self) -> None:
        """Free the disk of output that was read."""
        if self._log is not None and self._log_port is not None:
            self._log.tidy(self._log_port.position)

    def finish(self) -> None:
        """Read the rest of the log: QEMU has ended."""
        if self._log_port is not None:
            self._log_port.finish()
