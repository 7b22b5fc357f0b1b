"""Recordings of a console, as its server reports them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twisted_exec.api.display import display_name

if TYPE_CHECKING:
    from twisted_exec.wire.marks import OpenRecording


def recorded_for(recordings: Sequence[OpenRecording]) -> str:
    """Return for whom a console is recorded, and which input: `ann (input: masked), bob (input: all)`."""
    return ", ".join(f"{_demanded_by(each)} (input: {each.input})" for each in recordings)


def _demanded_by(recording: OpenRecording) -> str:
    policies = ", ".join(display_name(each) for each in recording.policies)
    if not policies:
        return display_name(recording.user)
    return f"{'ConsolePolicy' if len(recording.policies) == 1 else 'ConsolePolicies'} {policies}"


class RecordingNews:
    """
    The recordings of a console that the user of one session knows of.

    Messages are ends of a sentence, such as ``recorded for ann (input: masked)``.
    """

    def __init__(self) -> None:
        self.present = ""
        self._recorded = ""
        self._has_told = False  # of more than the beginning
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
        if not self._has_told and [each.input for each in recordings or ()] == [self._recorded]:
            return (
                ""  # the message at the beginning has said it; the names of policies may come later
            )
        self._has_told = True
        return self.present or "not recorded any more"
