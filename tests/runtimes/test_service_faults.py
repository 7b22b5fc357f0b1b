"""
Faults of other runtimes' exec tokens and URLs, each tried on a whole runtime of ours.

Each test is named after the fault; its docstring says what is so here instead.
"""

from __future__ import annotations

import io
import re
from typing import Any
from urllib.parse import unquote, urlsplit

from twisted.internet import reactor
from twisted.internet.endpoints import connectProtocol
from twisted.logger import globalLogPublisher

from tests.contracts.machine_runtime import machine
from tests.runtimes.serving.test_server import UPGRADE, Raw
from tests.tiers import PROGRAMS
from twisted_exec.api.status import APIError, BadGateway, NotFound
from twisted_exec.iri.client import IRIClient
from twisted_exec.iri.protos import machine_pb2 as pb
from twisted_exec.iri.revisions import REVISIONS
from twisted_exec.iri.target import TargetError
from twisted_exec.poollet.exec_urls import Dialler
from twisted_exec.program.audit_file import JSONLinesAudit
from twisted_exec.runtimes.config import parse
from twisted_exec.runtimes.host import RuntimeHost
from twisted_exec.runtimes.serving.options import Listening
from twisted_exec.runtimes.settings import Settings
from twisted_exec.tls.endpoints import unix_client_endpoint

from .support import SHELL, RuntimeCase, User, open_console, runtime_id

TOLD = {"user": "ann", "machine_uid": "uid-x"}
AS_TOLD = {"X_Twisted_Exec_User": "ann", "X_Twisted_Exec_Machine_Uid": "uid-x"}


class FaultTests(RuntimeCase):
    """A runtime with one machine, ``uid-x``, that is a shell."""

    starts = PROGRAMS
    exact = True

    async def begin(self, **options: Any) -> RuntimeHost:
        self.records = io.StringIO()
        settings = Settings(
            classes=parse({"classes": [SHELL]}),
            state_directory=f"{self.directory}/state",
            iri_target=f"unix://{self.directory}/iri/sock",
            **options,
        )
        host = RuntimeHost(settings, JSONLinesAudit(self.records), reactor)
        ready = host.when_ready()
        host.startService()
        self.addCleanup(host.stopService)
        await ready
        self.mark = runtime_id(self.directory)
        self.client = self.connect(host)
        request = pb.CreateMachineRequest(machine=machine("x", "shell"))
        self.machine_id = (await self.client.create_machine(request)).machine.metadata.id
        await self.until(self.alive)
        return host

    def connect(self, host: RuntimeHost, **options: Any) -> IRIClient:
        client = IRIClient(host.iri.target, reactor, **options)  # type: ignore[arg-type]
        self.addCleanup(client.stopService)
        return client

    async def url(self, **facts: str) -> str:
        answer = await self.client.exec(pb.ExecRequest(machine_id=self.machine_id), **facts)
        return str(answer.url)

    async def open(self, url: str, **headers: str) -> User:
        user = await open_console(url, **headers)
        self.addCleanup(user.stream.abort)
        return user

    async def ask(self, url: str, head: str) -> int:
        """Return the status code of a plain request."""
        raw = await connectProtocol(
            unix_client_endpoint(reactor, unquote(urlsplit(url).netloc)), Raw()
        )
        raw.transport.write(head.encode() + b"\r\n")
        await self.until(lambda: b"\r\n\r\n" in raw.got)
        raw.transport.abortConnection()
        return int(raw.got.split()[1])

    async def test_14_short_token_in_the_clear(self) -> None:
        """A token has 256 bits; it goes through a private socket, or by TLS, or stays on this host."""
        await self.begin()
        parts = urlsplit(await self.url())
        self.assertEqual(parts.scheme, "http+unix")
        self.assertTrue(re.fullmatch(r"/exec/[A-Za-z0-9_-]{43}", parts.path))
        open_to_all = RuntimeHost(
            Settings(
                classes=parse({"classes": [SHELL]}),
                state_directory=f"{self.directory}/other",
                iri_target=f"unix://{self.directory}/iri2/sock",
                streaming=Listening("tcp:0:interface=0.0.0.0"),
            ),
            JSONLinesAudit(io.StringIO()),
            reactor,
        )
        ready = open_to_all.when_ready()
        open_to_all.startService()
        self.addCleanup(open_to_all.stopService)
        with self.assertRaises(TargetError):
            await ready

    async def test_15_probe_burns_token(self) -> None:
        """No probe, link preview or failed negotiation uses a token up; the upgrade does, once."""
        await self.begin()
        url = await self.url(**TOLD)
        path = urlsplit(url).path
        for head in (
            f"GET {path} HTTP/1.1\r\nHost: x\r\n",
            f"HEAD {path} HTTP/1.1\r\nHost: x\r\n",
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n",
            f"GET {path} HTTP/1.1\r\n{UPGRADE.replace('v5.channel', 'v9.channel')}",
            f"GET {path} HTTP/1.1\r\n{UPGRADE.replace('13', '12')}",
        ):
            self.assertGreaterEqual(await self.ask(url, head), 400, head)
        await self.open(url, **AS_TOLD)
        with self.assertRaises(APIError) as caught:
            await self.open(url, **AS_TOLD)
        self.assertEqual(caught.exception.code, 404)

    async def test_16_token_in_logs(self) -> None:
        """Neither the log nor the audit holds a token, whatever is done with it."""
        events: list[Any] = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        await self.begin()
        url = await self.url(**TOLD)
        token = urlsplit(url).path.rpartition("/")[2]
        await self.ask(url, f"GET {urlsplit(url).path} HTTP/1.1\r\nHost: x\r\n")
        with self.assertRaises(APIError):
            await self.open(url, X_Twisted_Exec_User="bob")
        user = await self.open(url, **AS_TOLD)
        with self.assertRaises(APIError):
            await self.open(url, **AS_TOLD)
        user.stream.write(b"exit\n")
        await self.until(lambda: user.gone)
        self.assertNotIn(token, self.records.getvalue())
        self.assertIn("ann", self.records.getvalue())
        self.assertNotIn(token, repr(events))

    async def test_17_token_for_anybody(self) -> None:
        """A token is valid only for its user and machine."""
        await self.begin()
        url = await self.url(**TOLD)
        for headers in (
            {},
            {"X_Twisted_Exec_User": "ann"},
            {"X_Twisted_Exec_Machine_Uid": "uid-x"},
            AS_TOLD | {"X_Twisted_Exec_User": "bob"},
            AS_TOLD | {"X_Twisted_Exec_Machine_Uid": "uid-y"},
        ):
            with self.assertRaises(APIError) as caught:
                await self.open(url, **headers)
            self.assertEqual(caught.exception.code, 404, headers)
        await self.open(url, **AS_TOLD)

    async def test_17_other_machine(self) -> None:
        """A token for a machine that has another UID is not even made."""
        await self.begin()
        with self.assertRaises(NotFound):
            await self.url(machine_uid="uid-y")

    async def test_18_url_for_nobodys_id(self) -> None:
        """There is no URL for an unknown id, in any revision of the interface."""
        host = await self.begin()
        for revision in REVISIONS.values():
            if revision.service != REVISIONS["ironcore"].service or revision.name == "ironcore":
                client = self.connect(host, revision=revision.name)
                with self.assertRaises(NotFound):
                    await client.exec(pb.ExecRequest(machine_id="nobody"))

    async def test_19_url_leads_anywhere(self) -> None:
        """A poollet follows our URLs, and none that leads elsewhere, to nowhere, or to its own port 80."""
        host = await self.begin()
        dialler = Dialler(reactor, runtime=str(host.iri.target))
        dialler.target(await self.url())
        for url in ("http://192.0.2.1/exec/T", "https://example.com/exec/T", "ftp://127.0.0.1/x"):
            with self.assertRaises(BadGateway):
                dialler.target(url)
        with self.assertRaises(APIError) as caught:
            dialler.target("")
        self.assertEqual(caught.exception.code, 501)

    async def test_20_url_without_a_host(self) -> None:
        """A URL always has a host: a server on all addresses needs a base URL."""
        await self.begin()
        self.assertTrue(urlsplit(await self.url()).netloc)

    async def test_30_gone_without_a_word(self) -> None:
        """A user who is cut off leaves their place at once, however quiet the machine is."""
        host = await self.begin()
        ann = await self.open(await self.url(**TOLD), **AS_TOLD)
        ann.stream.write(b"sleep 100000\n")
        await self.until(lambda: b"sleep" in ann.got)
        ann.stream.abort()
        await self.until(lambda: not len(host.streams.sessions))
        url = await self.url(**TOLD | {"user": "bob"})
        bob = await self.open(url, **AS_TOLD | {"X_Twisted_Exec_User": "bob"})
        bob.stream.write(b"\x03echo $((6*7))\n")
        await self.until(lambda: b"42" in bob.got)

    async def test_31_every_key_is_the_machines(self) -> None:
        """No byte that is typed ends a session at the machine's end: 0x1d arrives as any other."""
        await self.begin()
        user = await self.open(await self.url())
        user.stream.write(b"head -c1 | od -An -tx1\n")
        user.stream.write(b"\x1d\n")
        await self.until(lambda: b" 1d" in user.got)
        self.assertFalse(user.gone)
