"""Recordings of a console, as its server reports them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twisted_exec.api.display import display_name

if TYPE_CHECKING:
    from twisted_exec.wire.marks import OpenRecording


def recorded_for(recordings: Sequence[OpenRecording]) -> str:
    """Return for whom a console is recorded, and which input: `ann (input: masked), bob (input: all)`."""
    return ", ".join(f"{display_name(each.user)} (input: {each.input})" for each in recordings)


class RecordingNews:
    """
    The recordings of a console that the user of one session knows of.

    Messages are ends of a sentence, such as ``recorded for ann (input: masked)``.
    """

    def __init__(self) -> None:
        self.present = ""
        self._recorded = ""
        self._recordings: tuple[OpenRecording, ...] | None = None

    def begun(self, recorded: str) -> str:
        """
        Take note of the session's beginning.

        :param recorded: the input that this session wants recorded.
        :return: the message, or empty.
        """
        self._recorded = recorded
        self.present = f"recorded (input: {recorded})" if recorded else ""
        return self.present

    def changed(self, recordings: tuple[OpenRecording, ...] | None) -> str:
        """
        Take note of the recordings that go on.

        :param recordings: ``None`` if the server does not know them.
        :return: the message, or empty.
        """
        before = self._recordings
        if recordings == before or not (recordings or before):
            return ""
        self._recordings = recordings
        self.present = f"recorded for {recorded_for(recordings)}" if recordings else ""
        if before is None and [each.input for each in recordings or ()] == [self._recorded]:
            return ""  # the message at the beginning has said it
        return self.present or "not recorded any more"
