"""
The locators of an API server for machines keep the contract of
:class:`~twisted_exec.streaming.location.IStreamLocator`.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from tests.apiserver.consoles.test_admission_recordings import RECORDINGS
from tests.apiserver.support import MACHINES, MERGE, PODS, APITestCase
from tests.contracts.stream_locator import StreamLocatorContract
from twisted_exec.apiserver.consoles.connect import MachineLocator
from twisted_exec.apiserver.consoles.pods import MachineOfPod, MachinePodLocator
from twisted_exec.apiserver.consoles.texts import RetainedTextLocator

UPGRADE = [("Connection", "Upgrade"), ("Upgrade", "websocket")]
PATHS = {
    "exec": f"{MACHINES}/vm/exec?readOnly=true",
    "log": f"{MACHINES}/vm/log?tailLines=1",
    "pod": f"{PODS}/vm/exec?stdin=true&command=console&command=--read-only",
    "machine of pod": f"{PODS}/vm/log",
    "content": f"{RECORDINGS}/r/content",
}


class LocatorTests(StreamLocatorContract, APITestCase):
    """Of machines, of Pods that show them, and of recordings."""

    pods_view = True
    locators = {
        "exec": MachineLocator,
        "log": MachineLocator,
        "pod": MachinePodLocator,
        "machine of pod": MachineOfPod,
        "content": RetainedTextLocator,
    }
    resuming = ("exec", "pod")

    def setUp(self) -> None:
        super().setUp()
        self.make_pool("pool-a", addresses=[{"type": "InternalIP", "address": "127.0.0.1"}])
        self.make_machine("vm")
        body = {"metadata": {"name": "r"}, "spec": {"machine": "vm"}}
        self.answer("POST", RECORDINGS, body, code=201)
        status = {"status": {"phase": "Recording", "firstOffset": 0}}
        self.answer("PATCH", f"{RECORDINGS}/r/status", status, content_type=MERGE)

    def finish(self, test: Any) -> None:
        """As :meth:`StreamLocatorContract.finish`."""
        self.successResultOf(Deferred.fromCoroutine(test))

    async def ask_for(self, word: str, *, allowed: bool) -> None:
        """As :meth:`StreamLocatorContract.ask_for`; nothing connects."""
        user = "admin" if allowed else "bob"
        client = self.server.connect()
        lines = [f"GET {PATHS[word]} HTTP/1.1", "Host: x", f"Authorization: Bearer {user}"]
        if word in self.resuming:
            lines += [f"{name}: {value}" for name, value in UPGRADE]
        client.send("\r\n".join([*lines, "", ""]).encode())
        client.lose()
