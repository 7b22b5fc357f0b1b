"""
``exec-standalone`` that runs for longer than its certificates.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from twisted.internet import reactor as _reactor
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from tests.flows.consoles import Screen, watch
from tests.tiers import PROGRAMS
from twisted_exec.api.status import APIError
from twisted_exec.standalone.service import Standalone
from twisted_exec.standalone.settings import Settings
from twisted_exec.tls.errors import TLSError
from twisted_exec.tls.pki.directory import create_pki

reactor: Any = _reactor


class RenewalTests(TestCase):
    """In this process, with a clock that is late at first."""

    starts = PROGRAMS

    def setUp(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="twisted-exec-test-")
        self.addCleanup(shutil.rmtree, self.directory, True)
        self.behind = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) - self.behind

    async def start(self, **behind: float) -> Standalone:
        self.behind = timedelta(**behind)
        standalone = Standalone(Settings(self.directory, port=0), reactor, now=self.now)
        self.addCleanup(standalone.stopService)
        standalone.startService()
        await standalone.when_ready()
        self.behind = timedelta()
        return standalone

    def certificates(self, name: str) -> list[x509.Certificate]:
        with open(os.path.join(self.directory, "pki", f"{name}.crt"), "rb") as file:
            return x509.load_pem_x509_certificates(file.read())

    async def works(self, screen: Screen) -> None:
        await screen.ask(b"echo $((6*7))\n", rb"42\r\n")

    async def opened(self, standalone: Standalone) -> Screen:
        """A new session, as soon as every hop has its new files."""
        while True:
            try:
                screen = await watch(standalone.kubeconfig, "demo-shell")
            except (APIError, TLSError):
                await deferLater(reactor, 0.05, lambda: None)
            else:
                await self.works(screen)
                return screen

    async def test_11_years(self) -> None:
        """
        When the authorities near their end all is signed anew: what is open goes on, and the
        kubeconfig that lies there opens more.
        """
        create_pki(os.path.join(self.directory, "pki"), now=self.now() - timedelta(days=3300))
        standalone = await self.start(days=300)
        before = self.certificates("ca"), self.certificates("apiserver")
        screen = await self.opened(standalone)
        standalone.renew()
        self.assertEqual(self.certificates("ca")[1:], before[0])
        self.assertNotEqual(self.certificates("apiserver"), before[1])
        await (await self.opened(standalone)).leave()
        await self.works(screen)
        await screen.leave()
