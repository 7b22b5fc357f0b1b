"""Options of the recordings."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.logger import Logger
from twisted.python.usage import UsageError

from twisted_exec.api.selectors import LabelSelector, parse_labels
from twisted_exec.api.status import APIError
from twisted_exec.nodeserver.recordings.recording import INPUTS, NONE
from twisted_exec.nodeserver.recordings.service import PodRecordings, PodRecordingSettings
from twisted_exec.program.options.command_line import ProgramOptions
from twisted_exec.program.options.declaration import ProgramOption
from twisted_exec.program.options.values import size
from twisted_exec.recording.signer_files import SignerFiles
from twisted_exec.recording.stores.option import FORMS, store_option
from twisted_exec.recording.stores.uploads import UploadMetrics, Uploads

_REQUIRED = ("recorder-certificate", "recorder-key", "recording-dir", "recording-store")
_log = Logger()
_ALL = "*"

MakeRecordings = Callable[[Any, CollectorRegistry], PodRecordings]
"""Creates the recordings from a reactor and a registry of metrics."""


class RecordingOptions(ProgramOptions):
    """Options of recordings."""

    group = "Recordings"

    more: Sequence[ProgramOption] = (
        ProgramOption(
            "record-namespaces",
            "Record exec and attach in these namespaces; * for all.",
            default="",
        ),
        ProgramOption(
            "record-selector",
            "Record only in Pods with these labels: a label selector.",
            default="",
        ),
        ProgramOption("record-input", f"Recorded input: {', '.join(INPUTS)}.", default=NONE),
        ProgramOption(
            "recorder-certificate",
            "Certificate that signs recordings, of 'twisted-exec pki recorder'.",
            default="",
            is_path=True,
        ),
        ProgramOption("recorder-key", "Private key of that certificate.", default="", is_path=True),
        ProgramOption(
            "recording-dir",
            "Directory of recordings that are not stored yet.",
            default="",
            is_path=True,
        ),
        ProgramOption("recording-store", f"Where recordings are stored: {FORMS}.", default=""),
        ProgramOption(
            "recording-bytes",
            "Limit of recordings that are not stored yet.  [default: half of the file system]",
            size,
        ),
        ProgramOption(
            "recording-required",
            "Refuse and end sessions that cannot be recorded.",
            default=False,
        ),
    )

    def postOptions(self) -> None:
        """:raises UsageError: an option is missing, has no use, or is not valid."""
        super().postOptions()
        if not self["record-namespaces"]:
            for name in ("record-selector", *_REQUIRED, "recording-required", "recording-bytes"):
                if self[name]:
                    raise UsageError(f"--{name} needs --record-namespaces")
            return
        for name in _REQUIRED:
            if not self[name]:
                raise UsageError(f"--record-namespaces needs --{name}")
        if self["record-input"] not in INPUTS:
            raise UsageError(
                f"--record-input {self['record-input']!r} is none of {', '.join(INPUTS)}"
            )
        self._recorded_pods()
        try:
            store_option(self["recording-store"])
        except ValueError as problem:
            raise UsageError(f"--recording-store: {problem}") from None

    def _recorded_pods(self) -> LabelSelector:
        try:
            return parse_labels(self["record-selector"])
        except APIError as problem:
            raise UsageError(f"--record-selector: {problem.message}") from None

    def recordings(self) -> MakeRecordings | None:
        """
        Return a function that creates the recordings; ``None`` without ``--record-namespaces``.
        """
        if not self["record-namespaces"]:
            return None
        names = {each.strip() for each in self["record-namespaces"].split(",")} - {""}
        settings = PodRecordingSettings(
            os.path.abspath(self["recording-dir"]),
            frozenset() if _ALL in names else frozenset(names),
            self._recorded_pods(),
            self["record-input"],
            bool(self["recording-required"]),
            self["recording-bytes"] or 0,
        )
        signer = SignerFiles(
            self["recorder-certificate"],
            self["recorder-key"],
            lambda why: _log.warn("{why}", why=why),
        )
        make_store = store_option(self["recording-store"])

        def make(reactor: Any, registry: CollectorRegistry) -> PodRecordings:
            uploads = Uploads(make_store(reactor), reactor, UploadMetrics().register(registry))
            return PodRecordings(settings, signer, uploads, reactor, time.time_ns)

        return make
