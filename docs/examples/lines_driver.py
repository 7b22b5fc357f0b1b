"""
A complete driver: consoles of devices at UNIX sockets that print and take frames ``LENGTH:BYTES``.
"""

import os
import re

from twisted.internet.endpoints import UNIXClientEndpoint
from zope.interface import implementer

from twisted_exec.interfaces import IMachineDriver, LineTiming, SharedLine
from twisted_exec.machines import LayeredEndpoint, LineLayer, Lines


def configure(reader, resources):
    """Read the keys of a class; return a function that creates its driver."""
    paths = {}
    for name, line in reader.lines().items():
        path = paths[name] = line.take("path", str)
        if not os.path.isabs(path):  # the runtime may change its working directory
            raise line.error("path must be an absolute path", "path")
        line.reserve(("unix", os.path.normpath(path)), f"the socket {path}")
    return lambda reactor, table: FramedDriver(reactor, Lines(paths))


@implementer(IMachineDriver)
class FramedDriver:
    name = "framed"
    timing = LineTiming()

    def __init__(self, reactor, lines):
        self.reactor, self.lines = reactor, lines

    def missing(self):
        return ""  # this driver needs nothing from the host

    def run(self, facts):
        def claim():
            name, path = self.lines.claim(facts)
            return name, LayeredEndpoint(UNIXClientEndpoint(self.reactor, path), Frames)

        def release():
            self.lines.release(facts)

        return SharedLine(facts, self.reactor, claim, release, timing=self.timing)


class Frames(LineLayer):
    """One connection to a device."""

    rest = b""  # an incomplete frame

    def dataReceived(self, data):
        data, start, output = self.rest + data, 0, bytearray()
        while length := re.compile(rb"([0-9]{1,4}):").match(data, start):
            end = length.end() + int(length[1])
            if end > len(data):
                break
            output += data[length.end() : end]
            start = end
        self.rest = data[start:]
        self.deliver(output)
        if length is None and not re.fullmatch(rb"[0-9]{0,4}", self.rest):
            self.fail(ValueError("the device sent something that is no frame"))

    def write(self, data):
        for start in range(0, len(data), 9999):
            part = data[start : start + 9999]
            super().write(b"%d:%s" % (len(part), part))
