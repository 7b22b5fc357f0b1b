"""
Recordings of Pods with a clock of the test's, and a store in memory.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.internet.task import Clock

from tests.program.disks import FreezableThread
from tests.recording.stores.doubles import MemoryStore
from tests.recording.support import NOW, signer, trust
from twisted_exec.nodeserver.recordings.service import PodRecordings, PodRecordingSettings
from twisted_exec.recording.signatures import HeadSigner
from twisted_exec.recording.stores.uploads import UploadMetrics, Uploads
from twisted_exec.recording.verification import Report, verify
from twisted_exec.streaming.subject import Subject

SUBJECT = Subject("s1", user="kube-apiserver-kubelet-client", pool="leaf-one", subresource="exec")


def pod(name: str = "web", namespace: str = "default", **labels: str) -> dict[str, Any]:
    """A Pod of the root."""
    return {"metadata": {"namespace": namespace, "name": name, "uid": "u1", "labels": labels}}


class Recordings:
    """
    :ivar store: has what is stored.
    :ivar disk: of the directory.
    :ivar made: the recordings.
    """

    def __init__(
        self,
        directory: str,
        clock: Any = None,
        signer: Callable[[], HeadSigner] = signer,
        **settings: Any,
    ) -> None:
        self.directory, self.clock, self.store = directory, clock or Clock(), MemoryStore()
        self.disk = FreezableThread()
        uploads = Uploads(self.store, self.clock, UploadMetrics().register(CollectorRegistry()))
        self.made = PodRecordings(
            PodRecordingSettings(directory, **settings),
            signer,
            uploads,
            self.clock,
            lambda: NOW + int(self.clock.seconds() * 1e9),
            self.disk,
        )
        self.made.check()
        self.made.start()

    def files(self) -> list[str]:
        """The suffixes of the files in the directory."""
        return sorted(os.path.splitext(name)[1] for name in os.listdir(self.directory))

    def stored(self) -> Stored:
        """The only recording in the store."""
        (content,) = self.store.content.values()
        return Stored(content)


class Stored:
    """A recording, verified with the CA alone."""

    def __init__(self, content: bytes) -> None:
        self.text = content.decode()
        self.report: Report = verify(io.BytesIO(content), trust())
        lines = [json.loads(each) for each in self.text.splitlines() if each.startswith("[")]
        self.output = "".join(text for _, code, text in lines if code == "o")
        self.input = "".join(text for _, code, text in lines if code == "i")
        self.sizes = [text for _, code, text in lines if code == "r"]
