"""
A driver whole: each machine of the class is what a Twisted endpoint string leads to.
"""

from twisted.internet.defer import Deferred, succeed
from twisted.internet.endpoints import clientFromString
from zope.interface import implementer

from twisted_exec.interfaces import IMachineDriver, IRun


def configure(reader, resources):
    """Read the keys of a class, and say how its driver is made."""
    endpoint = reader.take("endpoint", str)
    return lambda reactor, table: EndpointDriver(reactor, endpoint)


@implementer(IMachineDriver)
class EndpointDriver:
    name = "endpoint"

    def __init__(self, reactor, endpoint):
        self.reactor, self.endpoint = reactor, endpoint

    def missing(self):
        return ""  # this host lacks nothing for it

    def run(self, facts):
        return EndpointRun(clientFromString(self.reactor, self.endpoint))


@implementer(IRun)
class EndpointRun:
    paced = False  # nobody waits there for a viewer that reads slowly

    def __init__(self, endpoint):
        self.endpoint, self.line = endpoint, None

    async def _open(self, factory):
        self.line = await self.endpoint.connect(factory)
        return self.line

    def connect(self, factory):
        return Deferred.fromCoroutine(self._open(factory))  # powering on is opening the line

    def window_changed(self, size):
        """The line has no size."""

    def stop(self):
        if self.line is not None:
            self.line.transport.loseConnection()
        return succeed(None)
