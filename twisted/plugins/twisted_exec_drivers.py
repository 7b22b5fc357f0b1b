"""
The drivers of machine classes that twisted-exec brings.  No logic, as in its other plugins.
"""

from __future__ import annotations

from twisted_exec.runtimes.drivers import DriverMaker

pty = DriverMaker("pty", "twisted_exec.runtimes.pty")
qemu = DriverMaker("qemu", "twisted_exec.runtimes.qemu")
serial = DriverMaker("serial", "twisted_exec.runtimes.serial")
socket = DriverMaker("socket", "twisted_exec.runtimes.socket")
