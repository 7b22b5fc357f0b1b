"""
Tests for :mod:`twisted_exec.poollet.text_urls`: TLS and sockets are real, the runtime is a
stand-in.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from tests.chain import until
from tests.poollet.doubles import MemoryRuntime
from tests.poollet.test_text_urls_log_route import LogCase
from twisted_exec.api.kinds import CONSOLERECORDINGS
from twisted_exec.api.status import NotFound, NotImplementedByBackend
from twisted_exec.iri.interfaces import IConsoleRecordings
from twisted_exec.iri.protos import console_pb2
from twisted_exec.poollet.service import Poollet

CONTENT = "/apis/console.twisted-exec.dev/namespaces/lab/consolerecordings/{}/content"


@implementer(IConsoleRecordings)
class RecordingRuntime(MemoryRuntime):
    """
    A runtime with one recording.

    :ivar read: UIDs of recording and machine, and the user, for each URL.
    """

    def __init__(self) -> None:
        super().__init__()
        self.read: list[tuple[str, str, str]] = []
        self.known = ""

    def set_recordings(self, request: Any) -> Deferred[Any]:
        return fail(NotImplementedByBackend("not this one"))

    list_recordings = set_recordings

    def recording(
        self, request: Any, *, user: str = "", machine_uid: str = "", session: str = ""
    ) -> Deferred[Any]:
        if request.uid != self.known:
            return fail(NotFound("consolerecordings", request.uid))
        self.read.append((request.uid, machine_uid, user))
        return succeed(console_pb2.RecordingResponse(url=self.log_url))


class ContentTests(LogCase):
    """The content of a recording."""

    subresource = "content"

    async def start(self, **more: Any) -> Poollet:
        url, self.runtime = self.runtime.log_url, RecordingRuntime()
        self.runtime.log_url = url
        spec = {
            "machine": "old",
            "machineResource": "machines.compute.ironcore.dev",
            "machineUID": "u-old",
            "input": "none",
        }
        for name, pool in (("rec-1", "pool-a"), ("rec-2", "pool-b")):
            body = {"metadata": {"name": name}, "spec": {**spec, "pool": pool}}
            made = await self.client.create(CONSOLERECORDINGS.resource, body, "lab")
            self.allowed.add(("jane", "consolerecordings/content", name))
            if pool == "pool-a":
                self.runtime.known = made["metadata"]["uid"]
        return await super().start(**more)

    async def test_read(self) -> None:
        """The runtime is called with the UID of the recording, and that of a machine that may be gone."""
        await self.start()
        reader = await self.read(path=CONTENT.format("rec-1"))
        await until(lambda: reader.got)
        self.assertEqual(self.runtime.read, [(self.runtime.known, "u-old", "jane")])

    async def test_refused(self) -> None:
        """Users without the permission, unknown names, and recordings of another pool."""
        await self.start()
        path = CONTENT.format("rec-1")
        text = await self.refused(403, path=path, user=b"joe")
        self.assertIn("consolerecordings/content", text)
        for name in ("rec-2", "rec-3"):
            self.allowed.add(("jane", "consolerecordings/content", name))
            text = await self.refused(404, path=CONTENT.format(name))
            self.assertIn(f'"{name}" not found in pool "pool-a"', text)
        self.assertEqual(self.runtime.read, [])

    async def test_forgotten(self) -> None:
        """A runtime that does not have the recording answers 404."""
        await self.start()
        self.runtime.known = "another"
        await self.refused(404, path=CONTENT.format("rec-1"))
