"""
Tests for :mod:`twisted_exec.apiserver.consoles.retained_texts`: TLS and sockets are real, the poollet is a
stand-in.
"""

from __future__ import annotations

import json
from typing import Any

from tests.apiserver.consoles.test_retained_texts_logs import LogCase
from tests.apiserver.rights import BINDINGS, binding
from tests.chain import POOL
from tests.streaming.readers import read
from twisted_exec.api import kinds
from twisted_exec.api.kinds import Object
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused, UpgradeRequest
from twisted_exec.streaming.text.download import ANY_DOWNLOADS

POOLS = kinds.MACHINEPOOLS.resource

RECORDINGS = kinds.CONSOLERECORDINGS.resource
GROUP = "/apis/console.twisted-exec.dev"
CONTENT = f"{GROUP}/v1alpha1/namespaces/default/consolerecordings/{{}}/content"


class ContentTests(LogCase):
    """A recording of a machine."""

    async def setUp(self) -> None:
        await super().setUp()
        body = {"metadata": {"name": "r"}, "spec": {"machine": "vm"}}
        await self.admin.create(RECORDINGS, body, "default")
        await self.report(phase="Recording", firstOffset=0)

    async def report(self, **status: Any) -> None:
        patch: Object = {"status": status}
        await self.admin.patch(RECORDINGS, "r", patch, "default", subresource="status")

    async def content(self, name: str = "r", user: str = "admin") -> bytes:
        """Return a whole recording."""
        head = UpgradeRequest(b"GET", CONTENT.format(name).encode(), b"server", [])
        reader = await read(self.endpoint(user), head, ANY_DOWNLOADS)
        self.addCleanup(reader.download.abort)
        await self.until(lambda: reader.complete)
        return reader.got

    async def refusal(self, name: str = "r", user: str = "admin") -> dict[str, Any]:
        """Return the Status of a refusal, which is on record."""
        before = len(self.audit)
        with self.assertRaises(UpgradeRefused) as caught:
            await self.content(name, user)
        status: dict[str, Any] = json.loads(caught.exception.body)
        _, end = self.audit[before:]
        self.assertEqual((end["subresource"], end["code"]), ("content", status["code"]))
        return status

    async def test_read(self) -> None:
        """The poollet gets the name of the recording and the user, and the audit has both."""
        self.assertEqual(await self.content(), b'{"version":3}\n')
        ((method, uri, headers),) = self.pool.requests
        path = f"{GROUP}/namespaces/default/consolerecordings/r/content"
        self.assertEqual((method, uri), ("GET", path))
        self.assertEqual(headers["x-remote-user"], ["admin"])
        await self.until(self.ends)
        end = self.audit[-1]
        self.assertEqual(
            (end["user"], end["machine"], end["uid"], end["pool"], end["resource"]),
            ("admin", "r", self.made["metadata"]["uid"], POOL, RECORDINGS.qualified),
        )

    async def test_gone(self) -> None:
        """The recording of a machine that is gone is served; without its pool it is 404."""
        await self.admin.delete(kinds.MACHINES.resource, "vm", "default")
        self.assertTrue(await self.content())
        await self.admin.delete(POOLS, POOL)
        self.assertEqual((await self.refusal())["code"], 404)

    async def test_permission(self) -> None:
        """``edit`` creates recordings and does not read them; there is a role for readers."""
        await self.admin.create(BINDINGS, binding("jane", "edit"), "default")
        message = (await self.refusal(user="jane"))["message"]
        self.assertIn('cannot get resource "consolerecordings/content"', message)
        self.assertIn("administrator for the role console-recording-reader in the ", message)
        reader = binding("jane", "console-recording-reader")
        await self.admin.create(BINDINGS, reader, "default")
        self.assertTrue(await self.content(user="jane"))

    async def test_none(self) -> None:
        """No recording, none yet, and none at all because it failed: clear answers."""
        self.assertEqual((await self.refusal("other"))["code"], 404)
        body = {"metadata": {"name": "new"}, "spec": {"machine": "vm"}}
        await self.admin.create(RECORDINGS, body, "default")
        status = await self.refusal("new")
        self.assertEqual(status["code"], 409)
        self.assertIn('"new" has not begun yet: try again', status["message"])
        patch = {"status": {"phase": "Failed", "message": "the disk is full"}}
        await self.admin.patch(RECORDINGS, "new", patch, "default", subresource="status")
        self.assertIn("has no content: the disk is full", (await self.refusal("new"))["message"])

    async def test_other_poollet(self) -> None:
        """A poollet that serves no recordings gives 501, and its own refusal passes."""
        self.pool.serves_logs = False
        status = await self.refusal()
        self.assertEqual(status["code"], 501)
        self.assertIn("does not serve recordings", status["message"])
        gone = {"kind": "Status", "code": 410, "message": "the runtime retains it no more"}
        self.pool.answer = (410, gone)
        self.assertIn("the runtime retains it no more", (await self.refusal())["message"])
