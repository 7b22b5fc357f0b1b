"""
Tests for followed logs of a leaf that speaks HTTP/2, as kube-apiservers do: all that holds for one
that does not, and that they share its connection.
"""

from __future__ import annotations

from typing import Any

from twisted.web import server

from tests.chain import until
from tests.nodeserver.kubelet_api import test_logs
from tests.streaming.h2_server import H2TLS, ByALPN, H2Front
from tests.streaming.readers import Reader
from twisted_exec.streaming.http.upgrade_client import UpgradeRefused
from twisted_exec.tls.server import ServerTLS


def followed(path: str) -> str:
    """A path with one more option."""
    return f"{path}{'&' if '?' in path else '?'}follow=true"


class SharedCase(test_logs.LogCase):
    """With such a leaf."""

    leaf_tls: type[ServerTLS] = H2TLS

    def leaf_factory(self) -> Any:
        self.fronts = ByALPN(server.Site(self.leaf_server))
        self.addCleanup(until, lambda: all(front.lost for front in self.fronts.made))
        return self.fronts

    @property
    def front(self) -> H2Front:
        """The leaf's end of the only connection."""
        (front,) = self.fronts.made
        return front


class SharedPassedTests(SharedCase, test_logs.PassedTests):
    """The answers of followed logs."""

    async def read(self, path: str) -> Reader:
        return await super().read(followed(path))

    async def test_request(self) -> None:
        """
        The leaf gets a request for its own Pod's log, with our credentials and without the root's
        wording.
        """
        await self.read(f"{test_logs.LOG}?tail=5&timestamps=true&insecureSkipTLSVerifyBackend=true")
        (request,) = self.leaf_server.asked
        self.assertEqual(
            request.uri,
            b"/api/v1/namespaces/default/pods/web/log"
            b"?container=main&follow=true&timestamps=true&tailLines=5",
        )
        self.assertEqual(request.getHeader("authorization"), "Bearer of-the-leaf")
        self.assertEqual(request.getHeader("audit-id"), self.audit[0]["session"])
        self.assertEqual(len(self.front.streams), 1)

    async def test_not_followed(self) -> None:
        """A log that is not followed has a connection of its own."""
        await super().read(test_logs.LOG)
        self.assertEqual((len(self.leaf_server.asked), self.fronts.made), (1, []))


class SharedRefusedTests(SharedCase, test_logs.RefusedTests):
    """Refusals of followed logs."""

    async def ask(self, path: str, **more: Any) -> UpgradeRefused:
        return await super().ask(followed(path), **more)


class SharedFollowTests(SharedCase, test_logs.FollowTests):
    """Followers on a shared connection."""

    async def test_one_connection(self) -> None:
        """All share one."""
        readers = [await self.follow() for _ in range(5)]
        self.assertEqual(len(self.front.streams), 5)
        for number, request in enumerate(self.leaf_server.asked):
            request.write(b"%d\n" % number)
        for number, reader in enumerate(readers):
            await until(lambda r=reader, n=number: r.got == b"one\n%d\n" % n)

    async def test_leaf_is_lost(self) -> None:
        """When the connection breaks all its followers end, each with a message."""
        readers = [await self.follow() for _ in range(3)]
        self.front.transport.abortConnection()
        for reader in readers:
            await until(lambda r=reader: r.complete is not None)
            self.assertFalse(reader.complete)
            self.assertIn(b"LineLost", reader.got)
        again = await self.follow()
        self.assertEqual(again.got, b"one\n")

    async def test_rotated_goes_apart(self) -> None:
        """Requests with renewed credentials do not use the connection of the old ones."""
        await self.follow()
        self.leaves.leaves[0].told = self.credentials("renewed")
        self.leaves.tell()
        await self.follow()
        self.assertEqual([len(front.streams) for front in self.fronts.made], [1, 1])
