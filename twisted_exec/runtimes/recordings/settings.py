"""
Settings of the recordings of a runtime.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from twisted_exec.program.options.declaration import OPTION, ProgramOption
from twisted_exec.program.options.values import size
from twisted_exec.recording.stores.option import RECORDING_STORE, MakeStore


@dataclass(frozen=True)
class RecordingSettings:
    """
    Settings of the recordings of a runtime.

    :param certificate: PEM file of the recorder's certificate; empty if nothing can be recorded.
    :param make_store: creates the store of closed recordings; ``None`` without one.
    """

    certificate: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "recorder-certificate",
                "Certificate that signs recordings, of 'twisted-exec pki recorder'.",
                group="Recordings",
                is_path=True,
            )
        },
    )
    key: str = field(
        default="",
        metadata={
            OPTION: ProgramOption(
                "recorder-key",
                "Private key of that certificate.",
                group="Recordings",
                is_path=True,
            )
        },
    )
    limit_bytes: int = field(
        default=0,
        metadata={
            OPTION: ProgramOption(
                "recording-bytes",
                "Limit of the output that only recordings retain.  [default: a twentieth of the file system]",
                size,
                default=None,
                group="Recordings",
            )
        },
    )
    make_store: MakeStore | None = field(
        default=None,
        metadata={OPTION: replace(RECORDING_STORE, group="Recordings")},
    )


NO_RECORDINGS = RecordingSettings()
