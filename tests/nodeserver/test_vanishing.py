"""
Whoever vanishes, at whatever byte, leaves nothing behind: of exchanges with real kubectls, recorded
in ``tests/captures``.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.chain import reactor
from tests.streaming.raw import Raw
from twisted_exec.nodeserver.kubelet_api.streams import stream_routes
from twisted_exec.streaming.splice import LOST

from .stream_chain import ROOT, ChainTestCase

CAPTURES = Path(__file__).parents[1] / "captures"
EXEC = "/exec/default/web/main?command=cat&input=1&output=1&error=1"
FORWARD = "/portForward/default/web"
RECORDED = (
    ("spdy-v4-exec-stdin-cat-kubectl1.27", EXEC),
    ("spdy-v4-exec-tty-resize-kubectl1.27", EXEC),
    ("ws-v5-exec-stdin-cat-kubectl1.33", EXEC),
    ("portforward-spdy-kubectl1.30", FORWARD),
    ("portforward-ws-tunnel-kubectl1.33", FORWARD),
)
EACH = 8
"""How many places to vanish at, besides those where something begins or ends."""


def recorded(name: str, target: str) -> tuple[bytes, bytes, bytes]:
    """Of an exchange: the request as a root would send it, and what each side said behind it."""
    items = json.loads((CAPTURES / f"{name}.json").read_text())["items"]
    messages = {
        side: [bytes.fromhex(item["hex"]) for item in items if item["dir"] == side] for side in "CS"
    }
    method, _, rest = messages["C"][0].partition(b" ")
    lines = rest.partition(b"\r\n")[2]
    head = method + b" " + target.encode() + b" HTTP/1.1\r\nAuthorization: Bearer " + ROOT.encode()
    return head + b"\r\n" + lines, b"".join(messages["C"][1:]), b"".join(messages["S"][1:])


def places(length: int, chance: random.Random) -> Iterator[int]:
    """Return offsets to break off at, for so many bytes."""
    yield from sorted({0, 1, length // 2, length - 1, length})
    for _ in range(EACH):
        yield chance.randrange(length + 1)


class VanishingTests(ChainTestCase):
    """Neither session nor descriptor, timer or connection is left, within a second."""

    def routes(self) -> Any:
        return stream_routes(self.collaborators)

    async def asyncSetUp(self) -> None:
        await super().asyncSetUp()
        # A first session opens what stays open: keep-alive, caches.
        await self.gone(*recorded(*RECORDED[0]), "abortConnection")
        self.descriptors = len(os.listdir("/proc/self/fd"))
        self.timers = len(reactor.getDelayedCalls())

    async def gone(self, head: bytes, theirs: bytes, ours: bytes, leave: str) -> None:
        """A client that says this and vanishes; the leaf says its part as soon as it may."""
        self.leaf_server.ends.clear()
        client = await self.connected()
        client.transport.write(head + theirs)
        if head.endswith(b"\r\n\r\n"):
            await self.until(lambda: self.leaf_server.ends)
            self.leaf_server.ends[0].transport.write(ours)
        getattr(client.transport, leave)()
        await self.nothing_left(client)

    async def nothing_left(self, client: Raw) -> None:
        took = await self.until(lambda: client.lost is not None)
        took += await self.until(lambda: not len(self.sessions))
        took += await self.until(lambda: all(end.lost for end in self.leaf_server.ends))
        self.clients.remove(client)
        self.assertLess(took, 5)

    async def nothing_kept(self) -> None:
        self.records.check_pairs()
        await self.until(lambda: len(os.listdir("/proc/self/fd")) <= self.descriptors)
        # `until` has one itself.
        await self.until(lambda: len(reactor.getDelayedCalls()) <= self.timers + 1)
        self.assertEqual(self.sessions.live(), [])

    async def test_client(self) -> None:
        """The root's end vanishes, in its request or behind it, with a reset or a close."""
        chance = random.Random(6)
        for name, target in RECORDED:
            head, theirs, ours = recorded(name, target)
            whole = head + theirs
            for at in places(len(whole), chance):
                said = whole[:at]
                leave = chance.choice(["abortConnection", "loseConnection"])
                await self.gone(said[: len(head)], said[len(head) :], ours, leave)
        await self.nothing_kept()

    async def test_leaf(self) -> None:
        """The leaf's end vanishes, at any byte of what it has to say; the client hears up to there, and
        that it was lost."""
        chance = random.Random(7)
        for name, target in RECORDED:
            head, theirs, ours = recorded(name, target)
            for at in places(len(ours), chance):
                self.leaf_server.ends.clear()
                client = await self.connected()
                client.transport.write(head + theirs)
                await self.until(lambda: self.leaf_server.ends)
                (end,) = self.leaf_server.ends
                end.transport.write(ours[:at])
                end.transport.loseConnection()
                await self.nothing_left(client)
                body, more = client.body[:at], client.body[at:]
                self.assertEqual(body, ours[:at])
                self.assertTrue(not more or LOST.encode() in more, more)
        await self.nothing_kept()
