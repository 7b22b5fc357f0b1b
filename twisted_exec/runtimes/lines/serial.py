"""
The driver ``serial``: machines at serial devices of this host.

::

    - name: bench
      driver: serial
      lines:
        board-1: {device: /dev/serial/by-id/usb-FTDI_1, baud: 115200}
        board-2: {device: /dev/ttyS0, baud: 9600, flow: rtscts, hangup: false}
      capabilities: {cpu: "1", memory: 1Gi}

Power on opens the device; power off closes it and drops DTR unless ``hangup`` is false.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from twisted.internet.interfaces import IStreamClientEndpoint
from zope.interface import implementer

from twisted_exec.program.config_file import Reader
from twisted_exec.runtimes.interfaces import Build, IMachineDriver, MachineFacts
from twisted_exec.runtimes.lines.driver import LineDriver
from twisted_exec.runtimes.lines.serial_port import SerialEndpoint
from twisted_exec.runtimes.lines.serial_settings import line_settings
from twisted_exec.wire.com_port import LineSettings


@dataclass(frozen=True)
class SerialLine:
    """One device."""

    device: str
    settings: LineSettings = LineSettings()
    hangup: bool = True


def configure(reader: Reader, resources: Mapping[str, int]) -> Build:
    """See :meth:`.IDriverMaker.configure`."""
    lines = {}
    for name, line_reader in reader.lines().items():
        lines[name] = _line(line_reader)
    return lambda reactor, table: SerialDriver(lines, reactor)


def _line(reader: Reader) -> SerialLine:
    device = reader.take("device", str)
    if not device.startswith("/"):
        raise reader.error(f"device {device!r} is no path such as /dev/ttyUSB0", "device")
    reader.reserve(("serial", os.path.normpath(device)), f"the device {device}")
    hangup = reader.take("hangup", bool, True)
    return SerialLine(device, line_settings(reader), hangup)


@implementer(IMachineDriver)
class SerialDriver(LineDriver[SerialLine]):
    """Runs a class of machines at serial devices."""

    name = "serial"
    exclusive = "refused by a lock file and the kernel's lock"

    def missing(self) -> str:
        return ""  # devices may be plugged in later

    def _claim(self, facts: MachineFacts) -> tuple[str, IStreamClientEndpoint]:
        name, line = self.lines.claim(facts)
        endpoint = SerialEndpoint(self.reactor, line.device, line.settings, hangup=line.hangup)
        return name, endpoint
