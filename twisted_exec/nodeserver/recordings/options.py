"""
Command-line options of recordings.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.logger import Logger
from twisted.python.usage import UsageError

from twisted_exec.api.selectors import LabelSelector, parse_labels
from twisted_exec.api.status import APIError
from twisted_exec.program.options import ProgramOptions, size
from twisted_exec.recording.signer_files import SignerFiles
from twisted_exec.recording.stores.option import FORMS, store_option
from twisted_exec.recording.stores.uploads import UploadMetrics, Uploads

from .pod_recording import INPUTS, NONE
from .service import PodRecordings, Settings

FILES = ("recorder-certificate", "recorder-key", "recording-dir")
_REQUIRED = (*FILES, "recording-store")
_log = Logger()
_ALL = "*"

MakeRecordings = Callable[[Any, CollectorRegistry], PodRecordings]
"""Creates the recordings from a reactor and a registry of metrics."""


class RecordingOptions(ProgramOptions):
    """Options of recordings; without ``--record-namespaces`` nothing is recorded."""

    group = "Recordings"

    optParameters = [
        ["record-namespaces", None, "", "Record exec and attach in these namespaces; * for all."],
        ["record-selector", None, "", "Record only in Pods with these labels: a label selector."],
        ["record-input", None, NONE, f"Recorded input: {', '.join(INPUTS)}."],
        [
            "recorder-certificate",
            None,
            "",
            "Certificate that signs recordings, of 'twisted-exec pki recorder'.",
        ],
        ["recorder-key", None, "", "Private key of that certificate."],
        ["recording-dir", None, "", "Directory of recordings that are not stored yet."],
        ["recording-store", None, "", f"Where recordings are stored: {FORMS}."],
        [
            "recording-bytes",
            None,
            None,
            "Limit of recordings that are not stored yet.  [default: half of the file system]",
            size,
        ],
    ]
    optFlags = [
        ["recording-required", None, "Refuse and end sessions that cannot be recorded."],
    ]

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
        """:raises UsageError: the selector is not valid."""
        try:
            return parse_labels(self["record-selector"])
        except APIError as problem:
            raise UsageError(f"--record-selector: {problem.message}") from None

    def recordings(self) -> MakeRecordings | None:
        """Return a function that creates the recordings; ``None`` without ``--record-namespaces``."""
        if not self["record-namespaces"]:
            return None
        names = {each.strip() for each in self["record-namespaces"].split(",")} - {""}
        settings = Settings(
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
