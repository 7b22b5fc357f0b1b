"""
The connection of a virtual machine's line, at its start and again after a loss.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

from twisted_exec.api.status import ServiceUnavailable
from twisted_exec.control.polling import until
from twisted_exec.journal.interfaces import IJournal
from twisted_exec.program.turns import ShortTurns
from twisted_exec.runtimes.interfaces import MachineFacts
from twisted_exec.runtimes.qemu.log_port import READ_BYTES, LogPort, LogWatcher
from twisted_exec.runtimes.qemu.serial import QemuSerialLine, QemuSerialPort
from twisted_exec.runtimes.qemu.serial_log import SerialLog

_POLL_SECONDS = 0.02


class SerialConnection:
    """
    Connects the line of one machine at its start, and again after a loss.

    A machine that outlives the runtime prints into a file
    (:mod:`twisted_exec.runtimes.qemu.serial_log`), unless that could not be created.
    """

    def __init__(
        self,
        reactor: Any,
        watcher: LogWatcher,
        facts: MachineFacts,
        ask: Callable[..., Awaitable[Any]],
        reach: Callable[[str, Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self._reactor, self._watcher = reactor, watcher
        self._facts, self._ask, self._reach = facts, ask, reach
        self._log: SerialLog | None = None
        self._log_port: LogPort | None = None
        if facts.keep and IJournal.providedBy(facts.journal):
            self._log = SerialLog(facts.storage, facts.journal)

    def create_log(self) -> int | None:
        """
        Create the file and the FIFO of a machine that outlives the runtime.

        :return: the FIFO's descriptor; ``None`` without a FIFO.
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
        Return the log, unless this QEMU has a socket: the files may be those of an earlier QEMU.
        """
        log = self._log
        return log if log is not None and log.exists and not os.path.lexists(socket) else None

    async def catch_up(self, line: QemuSerialLine, socket: str) -> bool:
        """
        Read what the machine printed since the journal's end, while no runtime was connected.

        :return: whether that was all of it.
        """
        log = self._log_without(socket)
        if log is None:
            return False
        skipped = log.skip_excess()
        if skipped:
            message = f"the oldest {skipped} bytes that the machine printed meanwhile are left out"
            self._facts.event("Warning", "OutputSkipped", message)
        turns = ShortTurns(self._reactor)
        position, end = log.position(), log.size()
        while position < end and (data := log.read(position, READ_BYTES)):
            line.received(data)
            await turns.breathe()
            position += len(data)
        return True

    async def connect(self, line: QemuSerialLine, socket: str) -> None:
        """
        Connect the line.

        :param socket: path of QEMU's socket, for a machine without a log.
        :raises ServiceUnavailable: QEMU has ended or does not answer, or the FIFO cannot be opened.
        :raises QMPError: QEMU refused a command, or has ended.
        """
        log = self._log_without(socket)
        if log is None:
            line.join(await self._reach(socket, lambda: QemuSerialPort(line)))
            await self._wait_for_socket()
            return
        try:
            port = LogPort(log, line, self._watcher, self._reactor)
        except OSError as error:
            raise ServiceUnavailable(f"{log.input_path}: {error.strerror}") from None
        self._log_port = port
        line.join(port)
        port.start()
        # A file, and not QEMU's ``logfile`` of a socket: when the socket's client is killed, QEMU
        # 7.2 logs the next byte twice.
        if (await self._device()).get("filename") == "null":
            # Without ``append`` QEMU truncates the file (qapi/char.json, ChardevFile).
            files = {"out": log.path, "in": log.input_path, "append": True}
            await self._ask("chardev-change", id="serial0", backend={"type": "file", "data": files})

    async def _wait_for_socket(self) -> None:
        """
        Wait until QEMU has accepted the connection: output of the guest before that would be lost.
        """
        await until(self._is_connected, self._reactor, _POLL_SECONDS)

    async def _is_connected(self) -> bool:
        return not str((await self._device()).get("filename")).startswith("disconnected:")

    async def _device(self) -> dict[str, Any]:
        devices: list[dict[str, Any]] = await self._ask("query-chardev")
        return next((each for each in devices if each.get("label") == "serial0"), {})

    def tidy(self) -> None:
        if self._log is not None and self._log_port is not None:
            self._log.tidy(self._log_port.position)

    def finish(self) -> None:
        if self._log_port is not None:
            self._log_port.finish()
