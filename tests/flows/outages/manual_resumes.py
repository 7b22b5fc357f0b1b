"""
A client of consoles that resumes its session when the test says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred

from tests.flows.deployment import pause
from twisted_exec.api.status import APIError
from twisted_exec.kube.kubeconfig.connection import endpoint
from twisted_exec.kube.kubeconfig.loader import load
from twisted_exec.kube.machine_requests import request_head
from twisted_exec.streaming.remotecommand.client import ConsoleClient, connect
from twisted_exec.streaming.remotecommand.stream import MarkUser
from twisted_exec.wire.channel import V5
from twisted_exec.wire.endings import Ending
from twisted_exec.wire.marks import At, Mark
from twisted_exec.wire.resume import MARKS, Position, Resume

reactor: Any = _reactor


class User(MarkUser):
    """A client that resumes its session when the test says so."""

    def __init__(self, kubeconfig: str) -> None:
        self.config = load(kubeconfig)
        self.output, self.position = b"", Position("0" * 16, 0)
        self.endings: list[Ending] = []

    async def open(self, resume: str = MARKS) -> None:
        """Open a connection."""
        path = "/apis/compute.ironcore.dev/v1alpha1/namespaces/default/machines/sh/exec"
        head = request_head(self.config, path, b"stdin=true&stdout=true&tty=true", "test")
        self.lost: Deferred[str] = Deferred()
        self.stream: ConsoleClient = await connect(
            endpoint(self.config, reactor, timeout_seconds=600),
            head,
            self,
            clock=reactor,
            timeout_seconds=600,
            protocols=[V5],
            resume=resume,
        )

    async def resume(self) -> None:
        """Open the next connection of the session."""
        key = self.stream.resumable
        assert key is not None, "the session cannot be resumed"
        await self.open(Resume(key.key, self.stream.session, self.position).text())

    async def resume_soon(self) -> None:
        """As :meth:`resume`, when the servers are back."""
        while True:
            try:
                return await self.resume()
            except APIError as error:
                if error.code not in (429, 502, 503, 504):
                    raise
            await pause()

    async def ask(self, line: bytes, answer: bytes) -> None:
        """Type a line, and wait for the answer."""
        self.stream.write(line + b"\n")
        while answer not in self.output:
            await pause()

    # ConsoleUser

    def attached(self, stream: Any) -> None:
        """The stream is open."""

    def data_received(self, data: bytes) -> None:
        self.output += data
        self.position = replace(self.position, offset=self.position.offset + len(data))

    def mark_received(self, mark: Mark) -> None:
        if isinstance(mark, At):
            self.position = mark.position

    def ended(self, ending: Ending) -> None:
        self.endings.append(ending)

    def detached(self, reason: str) -> None:
        self.lost.callback(reason)
