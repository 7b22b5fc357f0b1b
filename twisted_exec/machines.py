"""Runtimes of machines and their drivers, for applications that embed them."""

from __future__ import annotations

from twisted_exec.iri.client import IRIClient
from twisted_exec.runtimes.config import ClassConfig
from twisted_exec.runtimes.drivers import DriverMaker
from twisted_exec.runtimes.host import RuntimeHost
from twisted_exec.runtimes.lines.layer import LayeredEndpoint, LineLayer
from twisted_exec.runtimes.lines.lines import Lines
from twisted_exec.runtimes.lines.serial_port import SerialEndpoint
from twisted_exec.runtimes.machinebroker.host import BrokerHost
from twisted_exec.runtimes.machinebroker.settings import Settings as BrokerSettings
from twisted_exec.runtimes.pty import PtyDriver, PtyOptions
from twisted_exec.runtimes.settings import Settings as RuntimeSettings
from twisted_exec.standalone.service import Standalone
from twisted_exec.standalone.settings import Settings as StandaloneSettings
from twisted_exec.wire.com_port import LineSettings

__all__ = [
    "BrokerHost",
    "BrokerSettings",
    "ClassConfig",
    "DriverMaker",
    "IRIClient",
    "LayeredEndpoint",
    "LineLayer",
    "LineSettings",
    "Lines",
    "PtyDriver",
    "PtyOptions",
    "RuntimeHost",
    "RuntimeSettings",
    "SerialEndpoint",
    "Standalone",
    "StandaloneSettings",
]
