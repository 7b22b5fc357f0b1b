"""
Producers that record their calls.
"""

from __future__ import annotations

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer


@implementer(IPushProducer)
class RecordingProducer:
    """
    :ivar paused: whether it may not produce now.
    :ivar calls: every call, in order: ``pause``, ``resume``, ``stop``.
    """

    def __init__(self) -> None:
        self.paused = False
        self.calls: list[str] = []

    def pauseProducing(self) -> None:
        self.paused = True
        self.calls.append("pause")

    def resumeProducing(self) -> None:
        self.paused = False
        self.calls.append("resume")

    def stopProducing(self) -> None:
        self.paused = True
        self.calls.append("stop")
