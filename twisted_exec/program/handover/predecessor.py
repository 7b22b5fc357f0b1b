"""
The new process's side of a hand-over: it takes the sockets and the state from its predecessor.

The predecessor (:mod:`.successor`) sends its listening sockets and its state once this process has made its service,
and goes on if this process fails.

It is imported early, so it must not import anything heavy.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from twisted_exec import __version__

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from twisted_exec.program.handover.channel import HandoverChannel, Lingering, Message
    from twisted_exec.program.handover.interfaces import IHandsOver
    from twisted_exec.program.listening import ListeningSockets

VARIABLE = "TWISTED_EXEC_HANDOVER"
"""Environment variable with the number of a descriptor: the channel to the predecessor."""


class Predecessor:
    """
    The process that this process replaces.

    :ivar earlier: channels to the processes before the predecessor, until the predecessor leaves.
    """

    def __init__(self, end: socket.socket) -> None:
        end.set_inheritable(False)
        self._end = end
        self._reactor: Any = None
        self.channel: HandoverChannel | None = None
        self._unclaimed: HandoverChannel | None = None  # until the predecessor leaves
        self.earlier: list[socket.socket] = []
        self._going: Deferred[None]
        self._lingering: Lingering
        self._listening: ListeningSockets
        self._is_ready = False

    def take_over(
        self, program: str, service: IHandsOver | None, listening: ListeningSockets
    ) -> None:
        """
        Take the sockets and the state of the predecessor; blocks until they arrive.

        :raises ValueError: the state is not valid, or the service cannot continue from one.
        :raises EOFError: the predecessor has ended.
        """
        from twisted_exec.program.handover.channel import HELLO, STATE, encode, receive
        from twisted_exec.program.handover.interfaces import ServiceState
        from twisted_exec.program.listening import ListeningSocket

        if service is None:
            raise ValueError("this release cannot take over from a running program; restart it")
        hello = {"program": program, "release": __version__, "version": service.state_version}
        try:
            self._end.sendall(encode({HELLO: hello}))
            message, descriptors = receive(self._end)
        except OSError:
            raise EOFError("the predecessor has ended") from None
        state = message.get(STATE) or {}
        if state.get("descriptors") != len(descriptors):
            raise ValueError("the state of the predecessor did not arrive as it was sent")
        if state["ignoresHangup"]:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        sockets = [
            ListeningSocket(description, socket.socket(fileno=number), is_shared)
            for (description, is_shared), number in zip(state["sockets"], descriptors, strict=False)
        ]
        handed = len(sockets) + state["predecessors"]
        # The reactor does not have them yet: at the end of a process it would shut them down for the
        # predecessor, too, which may have to go on with them.
        self.earlier = [socket.socket(fileno=each) for each in descriptors[len(sockets) : handed]]
        # Until the predecessor has left, it may have to go on with these sockets.
        self._listening = listening
        listening.inherit(sockets, is_held=True)
        service.inherit(ServiceState(state["values"], descriptors[handed:]))

    def attach(self, reactor: Any, lingering: Lingering) -> None:
        """Continue in a reactor; the predecessor learns when this process stops."""
        from twisted.internet.defer import Deferred

        from twisted_exec.program.handover.channel import HandoverChannel

        self._going = Deferred()
        self._reactor, self._lingering = reactor, lingering
        self.channel = HandoverChannel.over(reactor, self._end, self._received, self._closed)
        self._unclaimed = self.channel

    def _received(self, message: Message) -> None:
        from twisted_exec.program.handover.channel import GO

        if GO in message:
            self._go()

    def _closed(self) -> None:
        self._go()  # a predecessor that has ended leaves everything to this process
        self._lingering.look()

    def _go(self) -> None:
        self._claim()
        if not self._going.called:
            self._going.callback(None)

    def _claim(self) -> None:
        channel, self._unclaimed = self._unclaimed, None
        if channel is not None:
            earlier, self.earlier = self.earlier, []
            self._lingering.attach(self._reactor, earlier)
            self._lingering.add(channel)

    def stopping(self) -> None:
        """
        Take note that this process stops.

        If it has been ready, it stops the processes that it has replaced.  Otherwise the predecessor goes on,
        with the listening sockets.
        """
        # The predecessor leaves when it reads that, perhaps before it says so.
        if self._is_ready:
            self._claim()
        elif self._unclaimed is not None:
            from twisted_exec.program.listening import LISTENING

            LISTENING.share()

    def ready(self) -> Deferred[None]:
        """
        Tell the predecessor that this process can serve.

        :return: fires when the predecessor has left everything to this process.
        """
        from twisted_exec.program.handover.channel import READY

        assert self.channel is not None
        self._is_ready = True
        if self.channel.is_open:
            self.channel.send({READY: True})
        return self._going.addCallback(self._accept)

    def _accept(self, _: None) -> None:
        self._listening.accept()
        self._listening.close_unused()

    def failed(self, why: str) -> None:
        """Tell the predecessor why this process will not serve."""
        from twisted_exec.program.handover.channel import FAILED, encode

        if self.channel is None:
            self._end.setblocking(False)
        end = self._end if self.channel is None else self.channel.transport
        try:
            # At once: a reactor that is about to stop sends nothing any more.
            os.write(end.fileno(), encode({FAILED: why}))
        except OSError:
            pass  # it hears of the end of this process anyway


_predecessor: Predecessor | None = None


def find_predecessor(environ: MutableMapping[str, str] = os.environ) -> None:
    """Take note of the predecessor that the environment names, and remove the variable."""
    global _predecessor
    text = environ.pop(VARIABLE, "")
    if not (text.isascii() and text.isdigit()):
        return
    try:
        end = socket.socket(fileno=int(text))
    except OSError:
        return  # the variable of another process, which has not passed the descriptor
    if end.family == socket.AF_UNIX:
        _predecessor = Predecessor(end)
    else:
        end.detach()  # other code owns the descriptor, and needs it open


def predecessor() -> Predecessor | None:
    """Return the process that this process replaces."""
    return _predecessor


def tell_failure(why: str) -> None:
    """Tell the predecessor, if there is one, why this process ends."""
    if _predecessor is not None:
        _predecessor.failed(why)
