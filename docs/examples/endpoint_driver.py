"""
A complete driver: each machine of the class is the console behind a Twisted endpoint string.
"""

from twisted.internet.defer import Deferred, succeed
from twisted.internet.endpoints import clientFromString
from zope.interface import implementer

from twisted_exec.interfaces import IMachineDriver, IRun


def configure(reader, resources):
    """Read the keys of a class; return a function that creates its driver."""
    endpoint = reader.take("endpoint", str)
    return lambda reactor, table: EndpointDriver(reactor, endpoint)


@implementer(IMachineDriver)
class EndpointDriver:
    name = "endpoint"

    def __init__(self, reactor, endpoint):
        self.reactor, self.endpoint = reactor, endpoint

    def missing(self):
        return ""  # this driver needs nothing from the host

    def run(self, facts):
        return EndpointRun(clientFromString(self.reactor, self.endpoint))


@implementer(IRun)
class EndpointRun:
    paced = False  # a slow viewer must not delay the machine

    def __init__(self, endpoint):
        self.endpoint, self.line = endpoint, None

    async def _open(self, factory):
        self.line = await self.endpoint.connect(factory)
        return self.line

    def connect(self, factory):
        return Deferred.fromCoroutine(self._open(factory))  # power on: open the line

    def window_changed(self, size):
        """Ignore it: this line has no size."""

    def stop(self):
        if self.line is not None:
            self.line.transport.loseConnection()
        return succeed(None)
