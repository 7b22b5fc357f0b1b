"""
Tests for :mod:`twisted_exec.apiserver.standalone`; the parts it uses have their own tests.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.api.dialects import IRONCORE
from twisted_exec.apiserver.identity.credentials import Identities, ServerAuthenticators
from twisted_exec.apiserver.serving.verbs import Verbs
from twisted_exec.apiserver.signing.authority import CAPair
from twisted_exec.apiserver.signing.interfaces import CLIENT
from twisted_exec.apiserver.standalone import StandaloneControlPlane
from twisted_exec.storage.memory import MemoryStorage
from twisted_exec.tls.pki.directory import create_pki


class LoadTests(SynchronousTestCase):
    """Warnings about usable files."""

    def told(self, signer: str) -> list[str]:
        """Log lines for an authority that signs client certificates."""
        pki, clock, storage = create_pki(self.mktemp()), Clock(), MemoryStorage()
        pair = CAPair(f"{pki.directory}/{signer}.crt", f"{pki.directory}/{signer}.key")
        credentials = ServerAuthenticators(pki.client_ca, Identities(), storage, clock)
        alone = StandaloneControlPlane(
            storage, [IRONCORE], credentials, authorities={CLIENT: pair.reloading(clock)}
        )
        with capturedLogs() as logged:
            alone.load()
        return [formatEvent(event) for event in logged if event["log_level"].name == "warn"]

    def test_nobody_known(self) -> None:
        """An authority outside the client CA causes a warning when the files are loaded."""
        (line,) = self.told("ca")
        self.assertIn("--cluster-signing-kube-apiserver-client-cert-file is none of", line)

    def test_known(self) -> None:
        """The authority of users is nothing to tell."""
        self.assertEqual(self.told("client-ca"), [])


class PrepareTests(SynchronousTestCase):
    """The first start, and later ones."""

    def test_empty_store(self) -> None:
        """A server that begins with an empty store says so, with the location of the store."""
        clock, storage = Clock(), MemoryStorage()
        storage.location = "sqlite:/x/objects.db"
        credentials = ServerAuthenticators("", Identities(), storage, clock)
        control_plane = StandaloneControlPlane(storage, [IRONCORE], credentials)
        lines = []
        for _ in range(2):
            with capturedLogs() as logged:
                preparing = control_plane.prepare(Verbs(storage, [], clock.seconds))
                self.successResultOf(Deferred.fromCoroutine(preparing))
            lines.append([formatEvent(event) for event in logged])
        line = "the store is empty, a new cluster begins: sqlite:/x/objects.db"
        self.assertEqual(lines, [[line], []])
