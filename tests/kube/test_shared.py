"""Tests for :mod:`twisted_exec.kube.upstream`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from twisted_exec.kube.kubeconfig.client_config import (
    ClientConfig,
    ImpersonatedUser,
    KubeConfigError,
    Material,
)
from twisted_exec.kube.upstream import sharing
from twisted_exec.streaming.text.shared_downloads import SharedDownloads

CONFIG = ClientConfig("https://leaf.example:6443", token="secret")


class SharingTests(SynchronousTestCase):
    """Tests for :func:`sharing`."""

    def key(self, config: ClientConfig) -> Any:
        """Return the key for sharing connections, or ``None`` without sharing."""
        made = sharing(SharedDownloads(Clock()))(config, Clock(), timeout_seconds=3)
        return getattr(made, "key", None)

    def test_same(self) -> None:
        """Equal configurations share a key."""
        self.assertEqual(self.key(CONFIG), self.key(replace(CONFIG)))
        self.assertIsNotNone(self.key(CONFIG))

    def test_another(self) -> None:
        """Another server, server name, CA or identity gives another key."""
        others = [
            replace(CONFIG, server="https://leaf.example:7443"),
            replace(CONFIG, token="renewed"),
            replace(CONFIG, token="", username="ann", password="secret"),
            replace(CONFIG, tls_server_name="other.example"),
            replace(CONFIG, ca=Material(b"another")),
            replace(CONFIG, certificate=Material(b"another"), key=Material(b"key")),
            replace(CONFIG, impersonate=ImpersonatedUser(user="ann")),
        ]
        keys = {self.key(each) for each in [CONFIG, *others]}
        self.assertEqual(len(keys), len(others) + 1)

    def test_no_credentials(self) -> None:
        """The key holds no credentials."""
        self.assertNotIn("secret", repr(self.key(CONFIG)))

    def test_not_shared(self) -> None:
        """Without TLS, or through a proxy, nothing is shared."""
        self.assertIsNone(self.key(replace(CONFIG, server="http://127.0.0.1:8080")))
        self.assertIsNone(self.key(replace(CONFIG, proxy_url="http://proxy.example:3128")))

    def test_unreadable(self) -> None:
        """Unreadable credentials raise KubeConfigError."""
        with self.assertRaises(KubeConfigError):
            self.key(replace(CONFIG, token="", token_file="/nowhere/token"))
