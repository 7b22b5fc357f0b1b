"""
A bucket of moto's server on loopback.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3 import models
from moto.server import ThreadedMotoServer
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from twisted_exec.recording.stores.bucket import AccessKey, BucketTarget, parse_target
from twisted_exec.recording.stores.s3 import MOST_PARTS, BucketClient, S3Store, transport_of

reactor: Any = _reactor
PART_BYTES = 10_000
BUCKET = "recordings"


@cache
def server_port() -> int:
    """Start the server, which runs in a thread until the tests end: stopping it takes half a second."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    return server.get_host_and_port()[1]


class BucketCase(TestCase):
    """A test with an empty bucket, and parts of :data:`PART_BYTES`."""

    def setUp(self) -> Deferred[None]:
        self.patch(models, "S3_UPLOAD_PART_MIN_SIZE", PART_BYTES)
        self.port = server_port()
        self.addCleanup(self.backend.reset)
        return Deferred.fromCoroutine(self._create())

    async def _create(self) -> None:
        await self.bucket().call("create_bucket")

    @property
    def backend(self) -> Any:
        """The buckets of the server."""
        return models.s3_backends[DEFAULT_ACCOUNT_ID]["aws"]

    def target(self, *parameters: str) -> BucketTarget:
        """The address of the bucket."""
        joined = "&".join([f"endpoint=http://127.0.0.1:{self.port}", *parameters])
        return parse_target(f"s3://{BUCKET}/consoles/a?{joined}")

    def bucket(self, transport: Any = None) -> BucketClient:
        """The bucket, with connections that the test closes."""
        target = self.target()
        transport = transport or transport_of(target, reactor)
        self.addCleanup(transport.close)
        return BucketClient(target, lambda: AccessKey("KEY", "SECRET"), transport, reactor)

    def make_store(self, transport: Any = None, *, most_parts: int = MOST_PARTS) -> S3Store:
        """A store in the bucket."""
        return S3Store(self.bucket(transport), part_bytes=PART_BYTES, most_parts=most_parts)

    def leftovers(self) -> int:
        """The number of incomplete uploads."""
        return len(self.backend.buckets[BUCKET].multiparts)

    def objects(self) -> dict[str, bytes]:
        """The content of the bucket."""
        keys = self.backend.buckets[BUCKET].keys
        return {name: keys[name].value for name in keys}
