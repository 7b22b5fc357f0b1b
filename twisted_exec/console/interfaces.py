"""
Interfaces between a shared console and the drivers below it.
"""

from __future__ import annotations

from typing import Any

from zope.interface import Attribute, Interface


class ILineTransport(Interface):
    """
    The transport of a console line.

    Stream transports of Twisted have these methods, without declaring this interface. The transport
    calls the protocol's ``dataReceived`` with at least 1 byte, and ``connectionLost`` once, also
    when the line ends by itself.
    """

    def write(data: bytes) -> None:
        """
        Send the users' input to the machine; must not block.

        A line that cannot deliver input discards it. It must neither raise nor close, and must not
        send the input later: keys that arrive at another prompt do harm. It may pass a notice
        (:func:`.notices.notice`) to the protocol's ``notice_received``, at most once while the line
        is open or lost.

        :param data: at least 1 byte. May be called until ``connectionLost``, even after
            ``loseConnection``.
        """

    def registerProducer(producer: Any, streaming: bool) -> None:
        """
        Pause and resume the users' input; called at most once, when the line is open.

        :param producer: an :class:`~twisted.internet.interfaces.IPushProducer`. Call its
            ``pauseProducing`` while the line accepts no more, then ``resumeProducing``; both may
            repeat.
        :param streaming: true.
        """

    def unregisterProducer() -> None:
        """Forget a registered producer."""

    def loseConnection() -> None:
        """Close the line; ``connectionLost`` follows. Pending input may be discarded."""

    def pauseProducing() -> None:
        """Stop calling ``dataReceived``. Called only if the console is ``paced``."""

    def resumeProducing() -> None:
        """Call ``dataReceived`` again, first with the output that was held back."""


class IConsoleRecorder(Interface):
    """Records a console.  ``recording`` is that of :class:`~twisted_exec.wire.session_terms.Terms`."""

    recordings = Attribute(
        "The console's recordings that go on (tuple of :class:`~twisted_exec.wire.marks.OpenRecording`)."
        "  The owner of the console calls :meth:`.SharedConsole.recordings_changed` after a change."
    )

    def require(recording: str) -> None:
        """
        Record the console from now on, for a session that requires it.

        :raises APIError: the console cannot be recorded.
        """

    def problem(recording: str) -> str:
        """Return why the console is not recorded as a session requires; empty if it is."""

    def typed(session: str, data: bytes) -> bool:
        """
        Record input, as far as recordings need it, before the machine gets it.

        :param session: the id of the session in the journal, or ``runtime`` for an answer of the
            runtime.
        :return: false if a recording needs the input and cannot get it.
        """


class IRecoveringTransport(ILineTransport):
    """The transport of a line that may be lost for a while. Input is discarded meanwhile."""

    outage = Attribute("Why the line is lost at present (str); empty while it works.")
