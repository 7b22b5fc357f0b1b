"""
A run without a line: its console plays a file at each power on, 960 bytes a second.
"""

from io import FileIO

from twisted.internet.defer import fail, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure
from zope.interface import implementer

from twisted_exec.interfaces import CannotStart, ILineTransport, IRun


@implementer(IRun, ILineTransport)
class PlayedRun:
    paced = True  # the file can wait for viewers

    def __init__(self, reactor, path):
        self.path, self.protocol, self.file = path, None, None
        self.is_paused = self.is_due = False
        self.player = LoopingCall(self.play)
        self.player.clock = reactor

    def connect(self, factory):
        try:
            self.file = FileIO(self.path)
        except OSError as error:
            problem = f"cannot play {self.path}: {error.strerror}"
            return fail(CannotStart("FileMissing", problem))
        self.protocol = factory.buildProtocol(None)
        self.protocol.makeConnection(self)
        self.player.start(1, now=False)
        return succeed(self.protocol)

    def play(self):
        self.is_due = self.is_paused
        if self.protocol is not None and not self.is_paused and (data := self.file.read(960)):
            self.protocol.dataReceived(data)

    def pauseProducing(self):
        self.is_paused = True

    def resumeProducing(self):
        self.is_paused = False
        if self.is_due:  # the second ended during a pause
            self.is_due = False
            self.player.clock.callLater(0, self.play)

    def loseConnection(self):
        protocol, self.protocol = self.protocol, None
        if protocol is not None:
            self.player.stop()
            self.file.close()
            protocol.connectionLost(Failure(ConnectionDone()))

    def stop(self):
        self.loseConnection()
        return succeed(None)

    def write(self, data):
        """Discard it: nothing reads input."""

    def registerProducer(self, producer, streaming):
        """Ignore it: input never waits."""

    def unregisterProducer(self):
        """See :meth:`registerProducer`."""

    def window_changed(self, size):
        """Ignore it: a file has no size of a terminal."""
