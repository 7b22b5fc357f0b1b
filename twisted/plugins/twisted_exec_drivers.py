"""The drivers of machine classes that twisted-exec brings."""

from __future__ import annotations

from twisted_exec.runtimes.drivers import DriverMaker

command = DriverMaker("command", "twisted_exec.runtimes.lines.command")
ipmi = DriverMaker("ipmi", "twisted_exec.runtimes.lines.ipmi")
libvirt = DriverMaker("libvirt", "twisted_exec.runtimes.lines.libvirt")
pty = DriverMaker("pty", "twisted_exec.runtimes.pty")
qemu = DriverMaker("qemu", "twisted_exec.runtimes.qemu.driver")
redfish = DriverMaker("redfish", "twisted_exec.runtimes.lines.redfish.driver")
serial = DriverMaker("serial", "twisted_exec.runtimes.lines.serial")
socket = DriverMaker("socket", "twisted_exec.runtimes.lines.socket")
ssh = DriverMaker("ssh", "twisted_exec.runtimes.lines.ssh")
