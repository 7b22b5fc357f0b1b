"""
The recordings that owners have set, until the runtime has begun, changed or released each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted_exec.iri.protos import console_pb2 as pb
from twisted_exec.program.tasks import ShortTurns, SingleRun


class DesiredRecordings:
    """
    Carries out what owners have set, one recording after the other, in short turns: users may create thousands
    at once, and each beginning waits for the disk.

    :param carry_out: takes what is desired and its owner; returns whether that is done.
    """

    def __init__(self, carry_out: Callable[[pb.WantedRecording, str], bool], reactor: Any) -> None:
        self._carry_out, self._reactor = carry_out, reactor
        self._desired: dict[str, tuple[pb.WantedRecording, str]] = {}
        self._is_due = self._is_stopped = False
        self._running = SingleRun(self._run, "beginning and ending recordings")

    def set(self, desired: pb.WantedRecording, owner: str) -> None:
        """Note what an owner has set; :meth:`go_on` carries it out."""
        self._desired[desired.uid] = desired, owner

    def go_on(self) -> None:
        """Carry out everything that is not done; some of it may still not be possible."""
        self._is_due = True
        self._running.start()

    def stop(self) -> None:
        """Carry out nothing any more."""
        self._is_stopped = True

    async def _run(self) -> None:
        turns = ShortTurns(self._reactor)
        while self._is_due:
            self._is_due = False
            for uid, each in list(self._desired.items()):
                await turns.breathe()
                # It may have been set again meanwhile.
                is_current = self._desired.get(uid) is each and not self._is_stopped
                if is_current and self._carry_out(*each):
                    del self._desired[uid]
