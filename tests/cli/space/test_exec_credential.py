"""
Tests for :mod:`twisted_exec.cli.space.exec_credential`.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.cli.commands.registry import make_parser
from twisted_exec.cli.failures import InputError
from twisted_exec.cli.space import exec_credential
from twisted_exec.cli.space.exec_credential import (
    ASK_AGAIN_SECONDS,
    INFO,
    SHORTEST_SECONDS,
    VERSIONS,
    ask_again,
    request_in,
)
from twisted_exec.kube.kubeconfig.client_config import ClientConfig, Material
from twisted_exec.spaces.interfaces import SpaceName

NAMESPACE = "spaceprovider-default"


class ExecCredentialTests(SynchronousTestCase):
    """Credentials as kubectl reads them."""

    def document(self, config: ClientConfig) -> dict[str, Any]:
        self.patch(os, "environ", {"HOME": "/nonexistent"})
        options = make_parser().parse_args(["space", "exec-credential", "one"])
        return exec_credential.exec_credential(
            VERSIONS[0], config, SpaceName("one", "default", NAMESPACE), options, 0
        )

    def test_certificate(self) -> None:
        """A client certificate is returned with its key, as PEM."""
        pair = {"certificate": Material(data=b"CERT"), "key": Material(data=b"KEY")}
        found = self.document(ClientConfig("https://x", **pair))["status"]
        self.assertEqual((found["clientCertificateData"], found["clientKeyData"]), ("CERT", "KEY"))
        self.assertNotIn("token", found)

    def test_password(self) -> None:
        """A password does not fit into an ExecCredential; the error suggests ``--static``."""
        told = ClientConfig("https://x", username="u", password="p")
        with self.assertRaises(InputError) as caught:
            self.document(told)
        self.assertIn(
            ": twisted-exec space kubeconfig one --provider=default --static --output FILE --force",
            str(caught.exception),
        )

    def test_when(self) -> None:
        """
        Credentials are read again a minute before expiry, after at least 10 s, at most 5 minutes.
        """
        self.assertEqual(ask_again(ClientConfig("https://x", token="t"), 0), ASK_AGAIN_SECONDS)
        for end, asked in ((10_000, 300), (200, 140), (61, 10), (-5, 10)):
            self.patch(exec_credential, "expiry_of", lambda _, end=end: float(end))
            self.assertEqual(ask_again(ClientConfig("https://x", token="t"), 0), asked)
        self.assertEqual(SHORTEST_SECONDS, 10)

    def test_request(self) -> None:
        """An invalid ``KUBERNETES_EXEC_INFO`` is refused."""
        for text in (
            "{",
            "[]",
            '{"kind": "Pod"}',
            '{"kind": "ExecCredential", "apiVersion": "v3"}',
        ):
            with self.assertRaises(InputError):
                request_in({INFO: text})
