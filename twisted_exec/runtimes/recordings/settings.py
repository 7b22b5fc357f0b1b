"""
Settings of the recordings of consoles.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted_exec.recording.stores.option import MakeStore


@dataclass(frozen=True)
class RecordingSettings:
    """
    :param certificate: PEM file of the recorder's certificate; empty if nothing can be recorded.
    :param key: its private key.
    :param limit_bytes: see :class:`.RetainedSegments`.
    :param make_store: creates the store of closed recordings; ``None`` without one.
    """

    certificate: str = ""
    key: str = ""
    limit_bytes: int = 0
    make_store: MakeStore | None = None


NO_RECORDINGS = RecordingSettings()
