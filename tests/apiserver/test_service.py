"""
Tests for :mod:`twisted_exec.apiserver.service`: a server on a socket.
"""

from __future__ import annotations

import os
import re
from typing import Any

from twisted.application.service import MultiService
from twisted.internet.error import CannotListenError
from twisted.logger import globalLogPublisher
from zope.interface.verify import verifyObject

from tests.apiserver.chain import ChainTestCase
from tests.apiserver.support import machine
from tests.audits import AuditList
from tests.auth.test_credentials import KeyAuthenticator
from tests.chain import reactor
from tests.contracts.kube_client import KubeClientContract
from twisted_exec.api import kinds
from twisted_exec.apiserver.aggregated.control_plane import Aggregated
from twisted_exec.apiserver.identity.credentials import Accounts, Identities
from twisted_exec.apiserver.interfaces import IAPIServer
from twisted_exec.apiserver.service import APIServer
from twisted_exec.kube.interfaces import IKubeClient
from twisted_exec.program.audit_file import AuditUnavailable, JSONLinesAudit
from twisted_exec.storage.interfaces import StorageError
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.storage.sqlite.store import SQLiteStorage
from twisted_exec.testing.cluster import MemoryCluster
from twisted_exec.tls.errors import TLSConfigError

MACHINES = kinds.MACHINES.resource


class ServiceTests(ChainTestCase):
    """A server that runs."""

    async def test_door(self) -> None:
        """It is an :class:`IAPIServer` that says where it is."""
        self.assertTrue(verifyObject(IAPIServer, self.server))
        port = self.server.address.port  # type: ignore[union-attr]
        self.assertEqual(self.server.url, f"https://127.0.0.1:{port}")
        await self.server.when_ready()

    async def test_stopped(self) -> None:
        """A stopped server is nowhere."""
        await self.server.stopService()
        self.assertIsNone(self.server.address)
        self.assertEqual(self.server.url, "")

    async def test_certificate_is_the_user(self) -> None:
        """A certificate's common name is the user, its organizations the groups."""
        told = await self.client("jane").create(kinds.SELFSUBJECTREVIEWS.resource, {})
        info = told["status"]["userInfo"]
        self.assertEqual(
            (info["username"], info["groups"]), ("jane", ["dev", "system:authenticated"])
        )


class ClientContractTests(KubeClientContract, ChainTestCase):
    """Our client keeps its promises against our server."""

    async def setUp(self) -> None:
        await ChainTestCase.setUp(self)
        await KubeClientContract.setUp(self)

    async def make_client(self) -> IKubeClient:
        return self.admin


class StartTests(ChainTestCase):
    """Errors at the start are one clear line, and everything is closed."""

    async def setUp(self) -> None:
        self.servers: list[APIServer] = []

    async def stop(self) -> None:
        for server in self.servers:
            await server.stopService()

    def make(self, storage: Any = None, audit: Any = None, **settings: Any) -> APIServer:
        server = APIServer(
            self.settings(**settings), storage or MemoryStorage(), audit or AuditList(), reactor
        )
        self.servers.append(server)
        if len(self.servers) == 1:
            self.addCleanup(self.stop)
        return server

    async def failure(self, error: type[Exception], server: APIServer) -> str:
        waiting = server.when_ready()
        server.startService()
        with self.assertRaises(error) as caught:
            await waiting
        line = str(caught.exception)
        self.assertNotIn("\n", line)
        return line

    async def test_files(self) -> None:
        """A file that is missing is named, whichever it is."""
        for name in (
            "certificate",
            "key",
            "client_ca",
            "poollet_certificate",
            "poollet_key",
            "poollet_ca",
        ):
            told = await self.failure(TLSConfigError, self.make(**{name: f"/nonexistent/{name}"}))
            self.assertIn(f"/nonexistent/{name}", told)
        for who in (
            Identities("/nonexistent"),
            Identities(accounts=Accounts(["i"], ["/nonexistent"])),
            Identities(accounts=Accounts(["i"], signing_key_file="/nonexistent")),
        ):
            told = await self.failure(TLSConfigError, self.make(identities=who))
            self.assertIn("/nonexistent", told)

    def test_authenticators_behind_a_host(self) -> None:
        """A server behind a host refuses authenticators that it would never ask."""
        behind = Aggregated(lambda reactor: MemoryCluster().client())
        own = Identities(authenticators=[KeyAuthenticator()])
        with self.assertRaisesRegex(ValueError, "identities.authenticators: .* standalone"):
            self.make(aggregated=behind, identities=own)

    async def test_port_in_use(self) -> None:
        """A port that another server has is named."""
        first = self.make()
        first.startService()
        await first.when_ready()
        port = first.address.port  # type: ignore[union-attr]
        told = await self.failure(
            CannotListenError, self.make(listen=f"tcp:{port}:interface=127.0.0.1")
        )
        self.assertIn(str(port), told)

    async def test_place(self) -> None:
        """The log has the address that the server listens at, also that of a UNIX socket."""
        path = f"{os.path.relpath(self.mktemp())}.sock"
        for listen, pattern in (
            ("tcp:0:interface=127.0.0.1", r"https://127\.0\.0\.1:\d+"),
            (f"unix:{path}", re.escape(f"unix:{path}")),
        ):
            server = self.make(listen=listen)
            places: list[str] = []

            def observe(event: Any, server: Any = server, places: list[str] = places) -> None:
                if event.get("log_source") is server and "listens at" in event["log_format"]:
                    places.append(event["place"])

            globalLogPublisher.addObserver(observe)
            self.addCleanup(globalLogPublisher.removeObserver, observe)
            server.startService()
            await server.when_ready()
            self.assertEqual(len(places), 1)
            self.assertRegex(places[0], f"^{pattern}$")

    async def test_bad_address(self) -> None:
        """A listening address that is none is named."""
        told = await self.failure(TLSConfigError, self.make(listen="carrier-pigeon:1"))
        self.assertIn("carrier-pigeon:1", told)

    async def test_store_in_use(self) -> None:
        """Two servers never share a store."""
        path = self.mktemp()
        first = self.make(SQLiteStorage(path, reactor))
        first.startService()
        await first.when_ready()
        told = await self.failure(StorageError, self.make(SQLiteStorage(path, reactor)))
        self.assertIn("in use by another server", told)

    async def test_audit_file(self) -> None:
        """An audit file that cannot be written is named before anyone is let in."""
        audit = JSONLinesAudit("/nonexistent/audit.log")
        self.assertIn(
            "/nonexistent/audit.log", await self.failure(AuditUnavailable, self.make(audit=audit))
        )

    async def test_nobody_waits(self) -> None:
        """A failure without a waiting caller is logged."""
        self.make(certificate="/nonexistent/x").startService()
        self.assertEqual(len(self.flushLoggedErrors(TLSConfigError)), 1)

    async def test_objects_stay(self) -> None:
        """Objects survive a restart."""
        path = self.mktemp()
        first = self.make(SQLiteStorage(path, reactor))
        first.startService()
        await first.when_ready()
        self.server = first
        made = await self.client("admin").create(MACHINES, machine("vm"), "default")
        await first.stopService()
        second = self.make(SQLiteStorage(path, reactor))
        second.startService()
        await second.when_ready()
        self.server = second
        self.assertEqual(await self.client("admin").get(MACHINES, "vm", "default"), made)

    async def test_in_an_application(self) -> None:
        """It lives in any service collection, and opens nothing before that starts."""
        path = self.mktemp()
        application = MultiService()
        server = APIServer(self.settings(), SQLiteStorage(path, reactor), AuditList(), reactor)
        server.setServiceParent(application)
        self.assertFalse(os.path.exists(path))
        application.startService()
        await server.when_ready()
        self.assertTrue(os.path.exists(path))
        await application.stopService()  # type: ignore[no-untyped-call]
